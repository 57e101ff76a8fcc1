import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { sql } from 'drizzle-orm';
import type { Pool } from 'pg';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { openDatabase } from '../../src/platform/db/database.ts';
import { migrateDatabase } from '../../src/platform/db/migrate.ts';
import { openToolDatabase } from '../../src/platform/db/tool-database.ts';
import { MINUTE } from '../support/patience.ts';
import { poolOptions } from '../support/store.ts';
import { type PostgresCluster, type PostgresStandby, startCluster } from './support/cluster.ts';
import { APP, eventually, listPath, openSql, report, sessionPath } from './support/faults.ts';
import { paced } from './support/pace.ts';
import { either, isLong } from './support/seed.ts';
import { type ServerProcess, startServer } from './support/server-process.ts';

/**
 * A synchronous standby that is away: a commit waits for it without a limit, and its backend does not notice that its
 * client has given up. No more backends may be left there than the service may have connections, and one that looks.
 */

const POOL_SIZE = 10;
const STATEMENT_TIMEOUT_MS = paced(1_000);
/** Writes without an answer, each of which would leave a backend. In a long run the time ends it. */
const UNANSWERED = either(30, Infinity);
/** For so long the standby is away. In a short run the writes end it. */
const AWAY_MS = either(Infinity, 40_000);
/** As many as may write at once, so that each of them is sent. */
const WRITERS = 7;

let primary: PostgresCluster;
let standby: PostgresStandby;
let admin: Pool;
beforeAll(async () => {
  primary = await startCluster();
  standby = await primary.addStandby();
  admin = openSql(primary.url);
});
afterAll(async () => {
  await admin.end();
  await standby.close();
  await primary.close();
});

/** Backends of the pools of the service, those included whose client has left. */
async function countBackends(): Promise<number> {
  const { rows } = await admin.query<{ n: number }>(
    `select count(*)::int as n from pg_stat_activity where application_name = 'agent-runtime'`,
  );
  return rows[0]?.n ?? 0;
}

/** Counts again and again. @returns what ends it and says how many there were at most */
function watchBackends(): () => Promise<number> {
  let most = 0;
  let isOver = false;
  const watching = (async () => {
    while (!isOver) most = Math.max(most, await countBackends());
  })();
  return async () => {
    isOver = true;
    await watching;
    return most;
  };
}

const setSynchronous = async (names: string) => {
  await admin.query(`alter system set synchronous_standby_names = '${names}'`);
  await admin.query('select pg_reload_conf()');
};

/** The standby is away from now on, in a long run until its time is over. @returns whether it still is, and its return */
async function stall(): Promise<{ isAway: (given: number) => boolean; back: () => Promise<void> }> {
  await eventually('the standby is synchronous', MINUTE, async () => {
    const { rows } = await admin.query(`select from pg_stat_replication where sync_state = 'sync'`);
    return rows.length === 1;
  });
  await standby.stopImmediately();
  const endTime = performance.now() + AWAY_MS;
  const returned = isLong && sleep(AWAY_MS).then(() => standby.start());
  return {
    isAway: (given) => given < UNANSWERED && performance.now() < endTime,
    back: () => returned || standby.start(),
  };
}

beforeEach(() => setSynchronous('standby'));

describe('a synchronous standby that is away', () => {
  let server: ServerProcess;
  beforeAll(async () => {
    server = await startServer(primary.url, {
      DATABASE_POOL_SIZE: String(POOL_SIZE),
      DATABASE_STATEMENT_TIMEOUT_MS: String(STATEMENT_TIMEOUT_MS),
      MODEL_PROVIDER: 'offline',
    });
  });
  afterAll(() => server.kill());

  test('a pool leaves no more backends than it has connections, reads go on, and writes go on after it', async () => {
    await server.post(listPath('u'), { sessionId: 's' });
    const path = sessionPath('u', 's');
    const stop = watchBackends();
    const { isAway, back } = await stall();
    const statuses: number[] = [];
    let [count, reads] = [0, 0];
    const writer = async () => {
      while (isAway(count)) {
        const { status } = await server.post(listPath(`u${count++}`), {});
        // One that was under way when the standby came back may have succeeded.
        if (status !== 200 || isAway(0)) statuses.push(status);
      }
    };
    await Promise.all([
      ...Array.from({ length: WRITERS }, writer),
      (async () => {
        for (; isAway(statuses.length); reads++) expect((await server.get(path)).status).toBe(200);
      })(),
    ]);
    expect(new Set(statuses)).toEqual(new Set([503]));
    await back();
    const firstMs = await eventually('a write is acknowledged again', MINUTE, async () => {
      return (await server.post(listPath('u'), {})).status === 200;
    });
    await eventually('the pool has all its connections again', MINUTE, async () => {
      const answers = await Promise.all(Array.from({ length: POOL_SIZE }, () => server.post(listPath('u'), {})));
      return answers.every(({ status }) => status === 200);
    });
    const most = await stop();
    report(
      'stalled standby',
      `${isLong ? `${AWAY_MS / 1_000} s, ` : ''}${statuses.length} writes without an answer, ${reads} reads, ` +
        `${most} backends of a pool of ${POOL_SIZE}; first success ${firstMs} ms after`,
    );
    expect(most).toBeLessThanOrEqual(POOL_SIZE + 1);
  });
});

test('several pools of a process need one connection more, all together', async () => {
  const agentsDir = mkdtempSync(join(tmpdir(), 'agent-runtime-stalled-'));
  mkdirSync(join(agentsDir, APP, 'migrations'), { recursive: true });
  writeFileSync(join(agentsDir, APP, 'migrations', '0001.sql'), 'create table written (n int);');
  await migrateDatabase({ url: primary.url }, { agentsDir });
  const options = {
    ...poolOptions(primary.url, POOL_SIZE),
    statementTimeoutMs: STATEMENT_TIMEOUT_MS,
    connectTimeoutMs: STATEMENT_TIMEOUT_MS,
  };
  const database = openDatabase(options);
  const tools = openToolDatabase({ ...options, schema: 'public' });
  const toolPlaces = 4;
  const stop = watchBackends();
  const { isAway, back } = await stall();
  let given = 0;
  const attempt = async (work: () => Promise<unknown>) => {
    while (isAway(given)) {
      const outcome = await work().then(
        () => 'done',
        () => 'given up',
      );
      if (isAway(0)) expect(outcome).toBe('given up');
      given++;
    }
  };
  const insert = sql`insert into agent_tools.written values (1)`;
  const plainly = () => database.transaction((tx) => tx.execute(insert));
  const byTool = (n: number) =>
    attempt(() =>
      tools.transact(
        `u${n}`,
        AbortSignal.timeout(2 * STATEMENT_TIMEOUT_MS),
        async (run) => run('insert into written values (1)'),
        async () => undefined,
      ),
    );
  await Promise.all([
    ...Array.from({ length: WRITERS }, () => attempt(plainly)),
    ...Array.from({ length: toolPlaces * 2 }, (_, n) => byTool(n)),
  ]);
  await back();
  await eventually('both write again', MINUTE, () =>
    plainly().then(
      () => true,
      () => false,
    ),
  );
  const most = await stop();
  await Promise.all([database.close(), tools.close()]);
  report(
    'stalled standby, two pools',
    `${given} writes without an answer, ${most} backends of pools of ${POOL_SIZE} and ${toolPlaces}`,
  );
  expect(most).toBeLessThanOrEqual(POOL_SIZE + toolPlaces + 1);
});
