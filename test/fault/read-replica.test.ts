import type { Pool } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { readConfig } from '../../src/config/config.ts';
import { checkDatabase as examineDatabase } from '../../src/cli/doctor/check-database.ts';
import { type PostgresCluster, type PostgresStandby, startCluster } from './support/cluster.ts';
import { eventBody, eventually, listPath, openSql, sessionPath } from './support/faults.ts';
import { type ServerProcess, startServer } from './support/server-process.ts';

/** Plain reads of a replica: who wrote reads it back, whatever the replica has got, and whatever becomes of it. */

const PATIENCE_MS = 120_000;
const HEADER = 'x-read-position';
const [list, path] = [listPath('u'), sessionPath('u', 's')];

let primary: PostgresCluster;
let standby: PostgresStandby;
let sql: Pool[] = [];
/** Two processes, so that one knows nothing of what was written through the other. */
let servers: ServerProcess[] = [];

beforeAll(async () => {
  primary = await startCluster();
  standby = await primary.addStandby();
  sql = [openSql(primary.url), openSql(standby.url)];
  servers = await Promise.all([1, 2].map(() => startServer(primary.url, { DATABASE_READ_URL: standby.url })));
});
afterAll(async () => {
  for (const server of servers) await server.kill();
  for (const pool of sql) await pool.end();
  await standby.close();
  await primary.close();
});

const at = (n: number) => servers[n] as ServerProcess;
const onPrimary = (text: string) => (sql[0] as Pool).query<Record<string, unknown>>(text);
const onStandby = (text: string) => (sql[1] as Pool).query<Record<string, unknown>>(text);

/** Appends an event. @returns the position of its answer */
async function say(text: string, server = at(0)): Promise<string> {
  const answer = await server.post(`${path}/events`, eventBody(text));
  expect([answer.status, answer.headers.get(HEADER)]).toEqual([200, expect.stringMatching(/^[0-9A-F]+\/[0-9A-F]+$/)]);
  return answer.headers.get(HEADER) ?? '';
}

/** The texts of the session, as a client reads them that sends that position. */
async function read(position: string | undefined, server = at(0)): Promise<string[]> {
  const answer = await server.get(path, position === undefined ? {} : { [HEADER]: position });
  expect([answer.status, answer.text]).toEqual([200, answer.text]);
  const { events } = answer.body as { events: { content: { parts: { text: string }[] } }[] };
  return events.map(({ content }) => content.parts[0]?.text ?? '');
}

/** Waits until the standby has got to a position. */
const caughtUp = (position: string) =>
  eventually('the standby has it', PATIENCE_MS, async () => {
    const { rows } = await onStandby(`select pg_last_wal_replay_lsn() >= '${position}' as has`);
    return rows[0]?.['has'] === true;
  });

/** Reads until the answer is the wanted one: after a failed look at the replica none is asked for a moment. */
const readsEventually = (position: string, wanted: string[]) =>
  eventually('it is read', PATIENCE_MS, async () => (await read(position)).join() === wanted.join());

const settings = () => ({ DATABASE_URL: primary.url, DATABASE_READ_URL: standby.url });
/** What doctor says of the database with these settings. */
const examined = async (environment: Record<string, string>) =>
  (await examineDatabase(readConfig(environment))).map(({ status, detail }) => `${status}: ${detail}`);

describe('in this order', () => {
  let [beforePause, afterPause] = ['', ''];

  test('doctor finds nothing wrong; a database that is not replicated is refused at the start too', async () => {
    expect(await examined(settings())).toEqual(['ok: reachable, up to date, with the rights it needs']);
    const other = await startCluster();
    const wrong = { ...settings(), DATABASE_READ_URL: other.url };
    const reason = 'it is no replica of the database of DATABASE_URL';
    expect(await examined(wrong)).toEqual([
      `fault: Plain reads are not of the replica: ${reason}. Check DATABASE_READ_URL.`,
    ]);
    await expect(startServer(primary.url, wrong)).rejects.toThrow(`DATABASE_READ_URL: ${reason}.`);
    await other.close();
  });

  test('a change answers with its position, and a stream that it is not known yet', async () => {
    const created = await at(0).post(list, { sessionId: 's' });
    expect(created.headers.get(HEADER)).toMatch(/^[0-9A-F]+\/[0-9A-F]+$/);
    const body = {
      appName: 'harness_agent',
      userId: 'u',
      sessionId: 'sse',
      newMessage: { parts: [{ text: 'hello' }] },
    };
    await at(0).post(list, { sessionId: 'sse' });
    const streamed = await at(0).post('/run_sse', body);
    expect([streamed.status, streamed.headers.get(HEADER)]).toEqual([200, 'latest']);
    const looked = await at(0).get(path);
    expect([looked.status, looked.headers.get(HEADER)]).toEqual([200, null]);
  });

  test('while the replica stands still it answers those who ask for no more, and the primary all others', async () => {
    beforePause = await say('first');
    await caughtUp(beforePause);
    await onStandby('select pg_wal_replay_pause()');
    await eventually('replay is paused', PATIENCE_MS, async () => {
      const { rows } = await onStandby('select pg_get_wal_replay_pause_state() as state');
      return rows[0]?.['state'] === 'paused';
    });
    afterPause = await say('second');
    // Who wrote reads it, at once and on each process; who sends nothing or nonsense reads everything too.
    for (const server of servers) {
      for (const position of [afterPause, undefined, 'latest', 'ffff/nonsense', `${'F'.repeat(8)}/0`]) {
        expect([position, await read(position, server)]).toEqual([position, ['first', 'second']]);
      }
    }
    // The position of before is all that this client asks for: the replica answers, and lacks what came later.
    await readsEventually(beforePause, ['first']);
    const { body } = await at(0).get(`${path}/events?limit=1`, { [HEADER]: afterPause });
    expect(body).toMatchObject([{ content: { parts: [{ text: 'first' }] } }]);
  });

  test('an invocation reads the primary, whatever its request says', async () => {
    const run = { appName: 'harness_agent', userId: 'u', sessionId: 's', newMessage: { parts: [{ text: 'third' }] } };
    const answer = await at(0).post('/run', run, { [HEADER]: beforePause });
    expect(answer.status).toBe(200);
    const said = await read(answer.headers.get(HEADER) ?? '');
    expect(said.slice(0, 3)).toEqual(['first', 'second', 'third']);
  });

  test('what has replayed is read of the replica, also while the primary is away', async () => {
    const all = await read(undefined);
    await onStandby('select pg_wal_replay_resume()');
    const position = await say('fourth');
    await caughtUp(position);
    await readsEventually(position, [...all, 'fourth']);
    await primary.stopImmediately();
    await readsEventually(position, [...all, 'fourth']);
    expect((await at(0).get('/ready')).status).toBe(503);
    await primary.start();
    await eventually('a change is taken again', PATIENCE_MS, async () => {
      const { status } = await at(0).post(`${path}/events`, eventBody('fifth'));
      return status === 200;
    });
  });

  test('a replica that is promoted is none any more: it is not asked', async () => {
    await standby.promote();
    const { rows } = await onStandby('select pg_is_in_recovery() as is');
    expect(rows).toEqual([{ is: false }]);
    expect(await examined(settings())).toEqual([
      'fault: Plain reads are not of the replica: it is a primary and no replica. Check DATABASE_READ_URL.',
    ]);
    // It lacks this, and takes writes of its own.
    const position = await say('sixth');
    await onStandby(`update events set payload = '{"content": {"parts": [{"text": "of the wrong server"}]}}'`);
    for (let n = 0; n < 20; n++) {
      expect((await read(beforePause)).at(-1)).toBe('sixth');
      expect((await read(position)).at(-1)).toBe('sixth');
    }
  });

  test('a replica that dies is no error', async () => {
    await standby.stopImmediately();
    const [found = ''] = await examined(settings());
    expect(found).toMatch(/^fault: Plain reads are not of the replica: it cannot be used \(.*ECONNREFUSED/);
    for (let n = 0; n < 20; n++) expect((await read(beforePause, at(n % 2))).at(-1)).toBe('sixth');
    expect((await onPrimary('select 1')).rowCount).toBe(1);
    expect(at(0).log() + at(1).log()).not.toContain('"status":500');
  });
});
