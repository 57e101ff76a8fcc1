import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { chmod, mkdtemp, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import type { Pool } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { searchMemories } from '../../src/features/memory/memory-store.ts';
import { openPool } from '../support/store.ts';
import { installVectors } from '../support/vectors.ts';
import { type PostgresCluster, startCluster } from './support/cluster.ts';
import {
  APP,
  eventBody,
  eventually,
  invokeBody,
  listPath,
  modelSettings,
  openSql,
  report,
  sessionPath,
} from './support/faults.ts';
import { historySettings, newHistory, operate, type Target } from './support/history.ts';
import { findViolations } from './support/invariants.ts';
import { answerFor, type ModelServer, promptFor, startModelServer } from './support/model-server.ts';
import { paced } from './support/pace.ts';
import { findPostgresPrograms, NO_PROGRAMS } from './support/postgres-programs.ts';
import { random } from './support/seed.ts';
import { type ServerProcess, startServer } from './support/server-process.ts';
import { MINUTE } from '../support/patience.ts';

/** pg_dump while the service works, pg_restore into another server, and what the service on it does and says. */

const run = promisify(execFile);
const home = findPostgresPrograms();
if (home === undefined) console.log(`  backup: ${NO_PROGRAMS}`);

/** Longer than the test takes from the dump on: the model does not answer before. */
const NEVER_MS = 10 * MINUTE;
const PATIENCE_MS = 2 * MINUTE;
const LEASE_MS = paced(3_000);
const CLIENTS = 4;
const settings = { ...historySettings, SESSION_LEASE_MS: String(LEASE_MS), CRONJOBS: 'true' };
const busy: Target[] = Array.from({ length: 4 }, (_, n) => ({ userId: 'busy', sessionId: `s-${n}` }));
const content = (text: string) => ({ role: 'user', parts: [{ text }] });
const EVALS = `/dev/apps/${APP}/eval-sets`;

/** Answers of sessions at rest, artifacts, memory, evaluation, cronjobs: they are to be the same bytes. */
const SAME = [
  listPath('u'),
  sessionPath('u', 's1'),
  sessionPath('u', 's2'),
  `${sessionPath('u', 's1')}/events?limit=3`,
  `${sessionPath('u', 's1')}/invocations`,
  `${sessionPath('u', 's1')}/artifacts`,
  `${sessionPath('u', 's1')}/artifacts/a%2Fb.txt/versions`,
  `${sessionPath('u', 's1')}/artifacts/a%2Fb.txt/versions/0`,
  `${sessionPath('u', 's1')}/artifacts/user:bytes`,
  `${sessionPath('u', 's1')}/artifacts/user:bytes/versions/0/metadata`,
  `/apps/${APP}/users/u/memory?query=line`,
  EVALS,
  `/dev/apps/${APP}/eval_sets/smoke/evals/e1`,
  `${EVALS}/smoke`,
  `/dev/apps/${APP}/eval-runs?evalSetId=smoke`,
  `/dev/apps/${APP}/eval_results`,
];
const CRONJOBS = '/harness/cronjobs?ownerId=u';
/** `app:` state is shared with the sessions in which clients still write. */
const SHARED = /,? ?"app:[^"]*": "[^"]*"/g;
const bytesOf = (server: ServerProcess) =>
  Promise.all(
    SAME.map(async (path) => {
      const { status, text } = await server.get(path);
      return `${path} ${status} ${text.replaceAll(SHARED, '')}`;
    }),
  );

async function ask(server: ServerProcess, method: string, path: string, body: object | string): Promise<unknown> {
  const answer = await server.send(method, path, body);
  expect([path, answer.status < 300, answer.text]).toEqual([path, true, answer.text]);
  return answer.body;
}

/** Data of every kind, after which nothing of user `u` changes. */
async function fill(server: ServerProcess, database: string): Promise<void> {
  const s1 = sessionPath('u', 's1');
  await ask(server, 'POST', listPath('u'), { sessionId: 's1', state: { 'user:likes': 'tea', nul: 'a\u0000b' } });
  await ask(server, 'POST', `${s1}/events`, '{"author":"user","actions":{"stateDelta":{"n":12345678901234567890.10}}}');
  await ask(server, 'POST', '/harness/invoke', invokeBody('u', 's1', { id: 'told', calls: 3 }));
  const events = Array.from({ length: 230 }, (_, n) => ({ author: 'user', content: content(`line ${n}`) }));
  await ask(server, 'POST', listPath('u'), { sessionId: 's2', events });
  for (const text of ['first', 'second'])
    await ask(server, 'POST', `${s1}/artifacts`, { filename: 'a/b.txt', artifact: { text } });
  const data = Buffer.from([0, 255, 10, 13]).toString('base64');
  const artifact = { inlineData: { mimeType: 'application/octet-stream', data } };
  await ask(server, 'POST', `${s1}/artifacts`, { filename: 'user:bytes', artifact });
  await ask(server, 'PATCH', `/apps/${APP}/users/u/memory`, { sessionId: 's2' });
  const sql = openSql(database);
  await sql.query(`update memories set embedding = '{1,0}', embedding_model = 'm 2'
                   where content::text like '%line 7"%'`);
  await sql.end();
  await ask(server, 'POST', `${EVALS}/smoke/add-session`, { evalId: 'e1', sessionId: 's1', userId: 'u' });
  await ask(server, 'POST', `${EVALS}/smoke/run`, {
    evalMetrics: [{ metricName: 'response_match_score', threshold: 0.8 }],
  });
  const schedule = { type: 'daily', time: '08:00', timezone: 'UTC' };
  for (const missedRuns of ['once', 'skip', 'all']) {
    const cronjob = { ownerId: 'u', name: missedRuns, prompt: promptFor({ id: missedRuns }), schedule, missedRuns };
    await ask(server, 'POST', '/harness/cronjobs', cronjob);
  }
  for (const { userId, sessionId } of busy) await ask(server, 'POST', listPath(userId), { sessionId });
}

/** An invocation that runs and one that waits for it in the background. @returns their ids */
async function startLong(server: ServerProcess): Promise<string[]> {
  const ids = [];
  await ask(server, 'POST', listPath('long'), { sessionId: 's' });
  for (const prompt of [promptFor({ id: 'runs', delayMs: NEVER_MS }), promptFor({ id: 'waits' })]) {
    const body = { newMessage: content(prompt) };
    const { id } = (await ask(server, 'POST', `${sessionPath('long', 's')}/invocations`, body)) as { id: string };
    ids.push(id);
  }
  return ids;
}

const statusOf = async (server: ServerProcess, id: string) => {
  const { body } = await server.get(`${sessionPath('long', 's')}/invocations/${id}`);
  return (body as { status: string }).status;
};

/** Clients that work until `end` is called. */
function startLoad(server: ServerProcess) {
  const history = newHistory();
  let isOver = false;
  const clients = Array.from({ length: CLIENTS }, async (_, n) => {
    const draw = random(`backup client ${n}`);
    while (!isOver) {
      await operate(history, draw, server, draw.pick(busy));
      await sleep(draw.whole(0, 10));
    }
  });
  const end = async () => {
    isOver = true;
    await Promise.all(clients);
  };
  return { history, end };
}

describe.skipIf(home === undefined)('a dump that was taken while the service worked', () => {
  let [source, target]: PostgresCluster[] = [];
  let model: ModelServer;
  let folder = '';
  let servers: ServerProcess[] = [];
  let restored: Pool;

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'agent-runtime-backup-'));
    model = await startModelServer();
    [source, target] = await Promise.all([
      startCluster({ binaries: home ?? '' }),
      startCluster({ binaries: home ?? '' }),
    ]);
  });
  afterAll(async () => {
    for (const server of servers) await server.kill();
    await restored?.end();
    await Promise.all([source?.close(), target?.close(), model.close()]);
    await rm(folder, { recursive: true });
  });

  /** A role as managed servers give one: it owns its database and is no superuser. */
  async function restore(file: string): Promise<string> {
    const admin = openSql(target?.url ?? '');
    await admin.query('create role agents_owner login');
    await admin.query('create database agents owner agents_owner');
    await admin.end();
    const url = new URL(target?.url ?? '');
    [url.username, url.pathname] = ['agents_owner', '/agents'];
    await run(join(home ?? '', 'bin', 'pg_restore'), [
      '--no-owner',
      '--no-privileges',
      '--exit-on-error',
      '--dbname',
      url.href,
      file,
    ]);
    return url.href;
  }

  test('is restored elsewhere as the same bytes; what ran and what waited goes on', async () => {
    const environment = { ...modelSettings(model.baseUrl), ...settings };
    const before = await startServer(source?.url ?? '', environment);
    servers = [before];
    await fill(before, source?.url ?? '');
    const [running = '', waiting = ''] = await startLong(before);
    await eventually('it runs', PATIENCE_MS, async () => (await statusOf(before, running)) === 'running');
    expect(await statusOf(before, waiting)).toBe('queued');
    const { history, end } = startLoad(before);
    await eventually('clients work', PATIENCE_MS, async () => history.acked.length >= 30);
    const acked = [...history.acked];

    const file = join(folder, 'agents.dump');
    const startedAt = performance.now();
    await run(
      join(home ?? '', 'bin', 'pg_dump'),
      ['--enable-row-security', '--format=custom', '--file', file, source?.url ?? ''],
      { env: { ...process.env, PGOPTIONS: '-c agent_runtime.all_users=on' } },
    );
    const dumpMs = Math.round(performance.now() - startedAt);
    const during = history.acked.length - acked.length;
    await eventually('clients still work', PATIENCE_MS, async () => history.acked.length > acked.length + during);
    const same = await bytesOf(before);
    expect(same.filter((answer) => !answer.includes(' 200 '))).toEqual([]);
    const cronjobs = await before.get(CRONJOBS);
    await end();
    expect(history.wrong).toEqual([]);

    const url = await restore(file);
    // Its role is held to row-level security.
    restored = openSql(`${url}&options=-c%20agent_runtime.all_users%3Don`);
    const after = await startServer(url, { ...environment, CRONJOBS: 'false' });
    servers.push(after);
    const found = await bytesOf(after);
    expect(found.filter((answer, position) => answer !== same[position])).toEqual([]);
    expect(await findByMeaning(url)).toEqual(['line 7']);
    const goesOn = `select from invocations where id = $1 and status = 'running' and attempt = 2`;
    const isGoingOn = async () => (await restored.query(goesOn, [running])).rowCount === 1;
    await eventually('what ran goes on', PATIENCE_MS, isGoingOn);
    await after.post(`${sessionPath('long', 's')}/invocations/${running}/cancel`, {});
    expect(await invocationsWhenEnded(after, [running, waiting])).toEqual(['cancelled', 'succeeded']);
    await eventually('what ran in the busy sessions has ended', PATIENCE_MS, hasNoneOpen);
    expect(await findViolations(restored, { acked, users: ['busy', 'long'], api: after })).toEqual([]);
    const id = randomUUID();
    const { body } = await after.post('/harness/invoke', invokeBody('long', 's', { id }));
    expect(body).toMatchObject({ output: answerFor(id), error: null });

    // Cronjobs are as they were. As if the dump were three days old: what was due meanwhile goes by their rules.
    const scheduled = await startServer(url, environment);
    servers.push(scheduled);
    expect((await scheduled.get(CRONJOBS)).text).toBe(cronjobs.text);
    expect(await runsOf()).toEqual([]);
    await restored.query(`update cronjobs set next_run_time = next_run_time - interval '3 days'`);
    await restored.query(`select pg_notify('agent_runtime', '["cronjobs"]')`);
    await eventually('all runs have ended', PATIENCE_MS, async () => (await runsOf()).length === 5);
    expect(await runsOf()).toEqual(['all success', 'all success', 'all success', 'once success', 'skip skipped']);
    report(
      'backup',
      `pg_dump ${dumpMs} ms, ${(await stat(file)).size} bytes, ${acked.length} writes acknowledged before it began: ` +
        `all restored; ${during} acknowledged while it ran; ${SAME.length} answers compared`,
    );
  });

  /** What a memory with none of the words is found by: its vector was in the dump. */
  const findByMeaning = async (url: string) => {
    const admin = new URL(target?.url ?? '');
    admin.pathname = new URL(url).pathname;
    await installVectors(admin.href);
    const pool = openPool(admin.href);
    const near = { vector: [1, 0], model: 'm 2', schema: 'meaning' };
    const found = await searchMemories(pool.db, { appName: APP, userId: 'u' }, 'sea', 5, near);
    await pool.close();
    return found.map((text) => (JSON.parse(text) as { content: { parts: { text: string }[] } }).content.parts[0]?.text);
  };

  const invocationsWhenEnded = async (server: ServerProcess, ids: string[]) => {
    const statuses = () => Promise.all(ids.map((id) => statusOf(server, id)));
    const areOver = async () => !(await statuses()).some((status) => status === 'running' || status === 'queued');
    await eventually('they have ended', PATIENCE_MS, areOver);
    return statuses();
  };

  const hasNoneOpen = async () =>
    (await restored.query(`select from invocations where status in ('running', 'queued')`)).rowCount === 0;

  const runsOf = async () => {
    const { rows } = await restored.query<{ run: string }>(
      `select j.name || ' ' || r.status as run from cronjob_runs r join cronjobs j on j.id = r.cronjob_id
       where r.end_time is not null order by 1`,
    );
    return rows.map(({ run: name }) => name);
  };
});

test.skipIf(home === undefined)('a server recovered to a point in time has what was acknowledged by then', async () => {
  await using stack = new AsyncDisposableStack();
  const archive = await mkdtemp(join(tmpdir(), 'agent-runtime-archive-'));
  stack.defer(() => rm(archive, { recursive: true }));
  await chmod(archive, 0o777); // the server has an account of its own where this runs as root
  const archiving = { archive_mode: 'on', archive_command: `'cp "%p" "${archive}/%f"'` };
  const cluster = await startCluster({ binaries: home ?? '', settings: archiving });
  stack.defer(() => cluster.close());
  const sql = openSql(cluster.url);
  stack.defer(() => sql.end());
  const before = await startServer(cluster.url, { CRONJOBS: 'true' });
  stack.defer(() => before.kill());
  const path = sessionPath('u', 's');
  await ask(before, 'POST', listPath('u'), { sessionId: 's' });
  const base = await cluster.takeBase(archive);
  await ask(before, 'POST', `${path}/events`, eventBody('before', { n: 1 }));
  const then = await before.get(path);
  await sql.query(`select pg_create_restore_point('noon')`);
  await ask(before, 'POST', `${path}/events`, eventBody('after', { n: 2 }));
  // The file of that event, not the newest one: the service goes on writing, and that file stays open.
  const {
    rows: [last],
  } = await sql.query<{ file: string }>('select pg_walfile_name(pg_current_wal_lsn() - 1) as file');
  await sql.query('select pg_switch_wal()');
  await eventually('the log is in the archive', PATIENCE_MS, async () => {
    const { rows } = await sql.query<{ newest: string | null }>(
      'select last_archived_wal as newest from pg_stat_archiver',
    );
    return last !== undefined && (rows[0]?.newest ?? '') >= last.file;
  });
  const recovered = await base.recoverTo('noon');
  stack.defer(() => recovered.close());
  const after = await startServer(recovered.url, { CRONJOBS: 'true' });
  stack.defer(() => after.kill());
  expect((await after.get(path)).text).toBe(then.text);
  await ask(after, 'POST', `${path}/events`, eventBody('again', { n: 3 }));
  expect(((await after.get(path)).body as { state: unknown }).state).toEqual({ n: 3 });
});
