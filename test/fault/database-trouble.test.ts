import { execFile } from 'node:child_process';
import { randomBytes, randomUUID } from 'node:crypto';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Answer } from '../support/app.ts';
import { type PostgresCluster, startCluster } from './support/cluster.ts';
import {
  eventBody,
  eventually,
  invokeBody,
  listPath,
  modelSettings,
  openSql,
  report,
  sessionPath,
  stage,
  whenAtRest,
} from './support/faults.ts';
import { type Acked, findViolations } from './support/invariants.ts';
import { answerFor, type ModelServer, promptFor, startModelServer } from './support/model-server.ts';
import { boundNow, paced } from './support/pace.ts';
import { type PostgresProxy, startProxy } from './support/postgres-proxy.ts';
import { either } from './support/seed.ts';
import { type ServerProcess, startServer, tryTo } from './support/server-process.ts';
import { MINUTE, SECOND } from '../support/patience.ts';

const LEASE_MS = paced(1_000);
const REST_WITHIN_MS = 2 * MINUTE;
const settings = { SESSION_LEASE_MS: String(LEASE_MS) };

/** A status that tells the truth about a database that is away. */
const isHonest = ({ status, headers, body }: Answer) =>
  // One that has begun, and that its client must not ask for again, has its id instead.
  (status === 503 && (headers.has('retry-after') || headers.has('x-invocation-id'))) ||
  (status === 200 && typeof (body as { error?: unknown }).error === 'string') ||
  status === 409; // another process, or the sweeper, has taken the session over meanwhile

/** Asks for invocations and events until `isOver`; what was told is kept, and what was neither told nor honest. */
async function load(at: ServerProcess, clients: number, isOver: () => boolean) {
  const acked: Acked[] = [];
  const wrong: string[] = [];
  let asked = 0;
  const one = async (client: number) => {
    const [userId, sessionId] = [`u-${client}`, 's'];
    for (let turn = 0; !isOver(); turn++) {
      asked++;
      const id = randomUUID();
      const prompt = { id, calls: turn % 3, delayMs: 5 };
      const answer = await tryTo(at.post('/harness/invoke', invokeBody(userId, sessionId, prompt)));
      const { error } = (answer?.body ?? {}) as { error?: string | null };
      if (answer?.status === 200 && error === null)
        acked.push({ userId, sessionId, said: promptFor(prompt), answered: answerFor(id) });
      else if (!answer || !isHonest(answer)) wrong.push(`${answer?.status} ${answer?.text}`);
      if (answer?.status !== 200) await sleep(20);
    }
  };
  await Promise.all(Array.from({ length: clients }, (_, client) => one(client)));
  return { acked, wrong, asked };
}

describe('a PostgreSQL that comes and goes', () => {
  const RESTARTS = either(3, 100);
  /** On an idle machine, where the promise is 2 s. */
  const HEALS_WITHIN_MS = 5_000;
  let cluster: PostgresCluster;
  let model: ModelServer;
  let server: ServerProcess;

  beforeAll(async () => {
    model = await startModelServer();
    cluster = await startCluster();
    server = await startServer(cluster.url, { ...modelSettings(model.baseUrl), ...settings });
  });
  afterAll(async () => {
    await server.kill();
    await cluster.close();
    await model.close();
  });

  test('immediate restarts under load: the process lives, nothing told is lost, it heals at once', async () => {
    let isOver = false;
    const work = load(server, 6, () => isOver);
    const healsMs: number[] = [];
    const late: string[] = [];
    for (let restart = 0; restart < RESTARTS; restart++) {
      await sleep(400);
      await cluster.stopImmediately();
      await sleep(restart % 2 === 0 ? 50 : LEASE_MS);
      await cluster.start();
      const id = randomUUID();
      const ms = await eventually('an append works again', 2 * MINUTE, async () => {
        const { status } = await server.post(listPath('heals'), { sessionId: id });
        return status === 200;
      });
      healsMs.push(ms);
      const boundMs = await boundNow(HEALS_WITHIN_MS);
      if (ms >= boundMs) late.push(`healed after ${ms} ms, not ${boundMs}`);
    }
    isOver = true;
    const { acked, wrong, asked } = await work;
    const sql = openSql(cluster.url);
    await whenAtRest(sql, REST_WITHIN_MS);
    const violations = [...wrong, ...late, ...(await findViolations(sql, { acked, api: server }))];
    await sql.end();
    const slowestMs = Math.max(...healsMs);
    report(
      'database restarts',
      `${RESTARTS}, ${asked} requests, ${acked.length} answered, ${violations.length} violations; ` +
        `first success at most ${slowestMs} ms after the return`,
    );
    expect(violations.slice(0, 10)).toEqual([]);
    expect(server.log()).not.toMatch(/uncaught/i);
    expect(acked.length).toBeGreaterThan(0);
  });

  test('a read-only phase: reads answer, writes are refused with 503, and work again after it', async () => {
    const sql = openSql(cluster.url);
    const path = sessionPath('u-read-only', 's');
    await server.post(listPath('u-read-only'), { sessionId: 's', events: [eventBody('before')] });
    const reload = async (value: 'on' | 'off') => {
      await sql.query(`alter system set default_transaction_read_only = ${value}`);
      await sql.query('select pg_reload_conf()');
      await eventually('the setting holds', MINUTE, async () => {
        const { status } = await server.post(`${path}/events`, eventBody(`probe ${randomUUID()}`));
        return status === (value === 'on' ? 503 : 200);
      });
    };
    await reload('on');
    const [append, invoked, read, list] = await Promise.all([
      server.post(`${path}/events`, eventBody('refused')),
      server.post('/harness/invoke', invokeBody('u-read-only', 's', { id: 'refused' })),
      server.get(path),
      server.get(listPath('u-read-only')),
    ]);
    await sql.query('set default_transaction_read_only = off');
    await sql.query('set session characteristics as transaction read write');
    await reload('off');
    const { body } = await server.post('/harness/invoke', invokeBody('u-read-only', 's', { id: 'after' }));
    await sql.end();
    const statuses = [append, invoked, read, list].map(({ status }) => status);
    report(
      'read-only phase',
      `append, invoke, get, list answered ${statuses.join(', ')}; then "${(body as { output: string }).output}"`,
    );
    expect(statuses).toEqual([503, 503, 200, 200]);
    expect(append.headers.get('retry-after')).not.toBeNull();
    expect(read.text).not.toContain('refused');
    expect(body).toMatchObject({ output: answerFor('after'), error: null });
  });
});

describe('a pool of four', () => {
  const here = stage();
  const INVOCATIONS = 50;
  const READS = 20;
  let server: ServerProcess;
  beforeAll(async () => {
    server = await startServer(here.databaseUrl, here.environment({ ...settings, DATABASE_POOL_SIZE: '4' }));
  });
  afterAll(() => server.kill());

  test('many invocations wait for a slow model, and reads answer meanwhile', async () => {
    await server.post('/harness/invoke', invokeBody('u-warm', 's', { id: randomUUID() }));
    const before = here.model.requests();
    const release = here.model.hold();
    let answered = 0;
    const invoked = Array.from({ length: INVOCATIONS }, async (_, n) => {
      const { body } = await server.post('/harness/invoke', invokeBody(`u-${n}`, 's', { id: `slow-${n}` }));
      answered++;
      return (body as { output?: string }).output;
    });
    await eventually('the model has all of them', MINUTE, async () => here.model.requests() === before + INVOCATIONS);
    const readsMs: number[] = [];
    for (let read = 0; read < READS; read++) {
      const startedAt = performance.now();
      expect((await server.get(sessionPath('u-warm', 's'))).status).toBe(200);
      readsMs.push(Math.round(performance.now() - startedAt));
    }
    expect(answered).toBe(0);
    release();
    expect(await Promise.all(invoked)).toEqual(Array.from({ length: INVOCATIONS }, (_, n) => answerFor(`slow-${n}`)));
    report(
      'pool of four',
      `${INVOCATIONS} invocations wait, ${READS} reads meanwhile, ${Math.max(...readsMs)} ms at most`,
    );
  });
});

describe('connections', () => {
  const here = stage();
  let proxy: PostgresProxy;
  let server: ServerProcess;
  const TIMEOUT_MS = '3000';

  beforeAll(async () => {
    proxy = await startProxy(here.databaseUrl);
    const timeouts = { DATABASE_STATEMENT_TIMEOUT_MS: TIMEOUT_MS };
    server = await startServer(proxy.url, here.environment({ ...settings, ...timeouts, DATABASE_POOL_SIZE: '4' }));
  });
  afterAll(async () => {
    await server.kill();
    await proxy.close();
  });

  test('a network that swallows everything: requests end, and it heals when the network is back', async () => {
    const path = sessionPath('u-warm', 's');
    await server.post(listPath('u-warm'), { sessionId: 's' });
    const running = server.post('/harness/invoke', invokeBody('u-hole', 's', { id: randomUUID(), delayMs: 3_000 }));
    await eventually('it runs', 30 * SECOND, async () => {
      const { rows } = await here.sql.query(`select from invocations where user_id = 'u-hole' and status = 'running'`);
      return rows.length === 1;
    });
    proxy.isBlackHole = true;
    const startedAt = performance.now();
    const limitMs = 60_000;
    const end = <T>(work: Promise<T>) => Promise.race([work, sleep(limitMs).then(() => undefined)]);
    const answers = await Promise.all([
      end(server.get(path)),
      end(server.post(`${path}/events`, eventBody('x'))),
      end(running),
    ]);
    const endedMs = Math.round(performance.now() - startedAt);
    proxy.isBlackHole = false;
    proxy.cutAll();
    const healsMs = await eventually(
      'a read works again',
      2 * MINUTE,
      async () => (await server.get(path)).status === 200,
    );
    report(
      'black hole',
      'get, append and a running invocation answered ' +
        `${answers.map((answer) => answer?.status ?? 'nothing').join(', ')} ` +
        `within ${endedMs} ms; healed after ${healsMs} ms`,
    );
    for (const answer of answers) expect([503, 409]).toContain(answer?.status);
  });
});

const run = promisify(execFile);

/** Root alone is not enough: a container may forbid mounts. */
async function canMount(): Promise<boolean> {
  const directory = await mkdtemp(join(tmpdir(), 'agent-runtime-disk-'));
  try {
    await run('mount', ['-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', directory]);
    await run('umount', [directory]);
    return true;
  } catch {
    return false;
  } finally {
    await rm(directory, { recursive: true });
  }
}

describe('a full disk', async () => {
  test.skipIf(!(await canMount()))(
    '(where a tmpfs may be mounted) writes are refused, reads answer, and it heals alone',
    async () => {
      const disk = await mkdtemp(join(tmpdir(), 'agent-runtime-disk-'));
      await run('mount', ['-t', 'tmpfs', '-o', 'size=120m', 'tmpfs', disk]);
      const model = await startModelServer();
      let cluster: PostgresCluster | undefined;
      let server: ServerProcess | undefined;
      try {
        await chmod(disk, 0o755);
        cluster = await startCluster({ tablesIn: disk });
        server = await startServer(cluster.url, { ...modelSettings(model.baseUrl), ...settings });
        const path = sessionPath('u', 's');
        await server.post(listPath('u'), { sessionId: 's' });
        const ballast = join(disk, 'ballast');
        const { stdout } = await run('df', ['--output=avail', '-k', disk]);
        const freeKb = Number(stdout.trim().split('\n').at(-1));
        await writeFile(ballast, Buffer.alloc(Math.max(0, freeKb - 8_000) * 1024));
        const acked: Acked[] = [];
        let refused = 0;
        for (let n = 0; n < 2_000 && refused < 20; n++) {
          const id = randomUUID();
          const filler = randomBytes(24_000).toString('base64');
          const { status } = await server.post(`${path}/events`, eventBody(id, { [`k-${n % 3}`]: filler }));
          if (status === 200) acked.push({ userId: 'u', sessionId: 's', said: id });
          else {
            refused++;
            expect(status).toBe(503);
          }
        }
        const read = await server.get(path);
        await rm(ballast);
        const healsMs = await eventually('an append works again', 2 * MINUTE, async () => {
          const { status } = await (server as ServerProcess).post(`${path}/events`, eventBody(randomUUID()));
          return status === 200;
        });
        const sql = openSql(cluster.url);
        const violations = await findViolations(sql, { acked, api: server });
        await sql.end();
        report(
          'full disk',
          `${acked.length} appends told, ${refused} refused with 503, ` +
            `read answered ${read.status}, ${violations.length} violations, healed after ${healsMs} ms`,
        );
        expect(violations).toEqual([]);
        expect([refused, read.status]).toEqual([20, 200]);
        expect(healsMs).toBeLessThan(await boundNow(5_000));
      } finally {
        await server?.kill();
        await cluster?.close();
        await model.close();
        await run('umount', [disk]);
        await rm(disk, { recursive: true });
      }
    },
  );
});
