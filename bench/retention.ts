import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { Client } from 'pg';
import { promptFor, startModelServer } from '../test/fault/support/model-server.ts';
import { fill, SMALL } from './growth-fill.ts';
import { freePort, startPostgres } from './postgres.ts';
import { startServer } from './processes.ts';

/**
 * Deletes 100,000 old sessions while users work, processes die and the one that deletes is stopped:
 * `npm run bench -- retention`. Exit code 1 where a batch took more than a second, a dead invocation waited longer than
 * its lease and a second, a stop longer than its grace, fewer than 1,000 sessions went a second, or a request failed.
 * `--small`: a trial.
 */

const { values } = parseArgs({ options: { small: { type: 'boolean' } } });
const OLD = values.small ? 10_000 : 100_000;
const LEASE_MS = 2_000;
const GRACE_MS = 10_000;
const VICTIMS = 3;
const RUNS_EACH = 4;
const RETENTION = { SESSION_RETENTION_DAYS: '10' };

const postgres = await startPostgres();
const model = await startModelServer();
const mute = await startModelServer();
mute.hold();
/** Of processes that die while their model does not answer. */
const WAITING = { MODEL_BASE_URL: mute.baseUrl, MODEL_TIMEOUT_MS: '600000' };
try {
  const databaseUrl = await postgres.createDatabase('retention');
  const main = new URL('../src/main.ts', import.meta.url).pathname;
  const start = async (more: NodeJS.ProcessEnv = {}) => {
    const port = await freePort();
    return startServer([main], port, '/ready', {
      DATABASE_URL: databaseUrl,
      PORT: String(port),
      LOG_LEVEL: 'error',
      MODEL_PROVIDER: 'openai-compatible',
      MODEL_NAME: 'slow',
      MODEL_BASE_URL: model.baseUrl,
      MODEL_API_KEY: 'none',
      SESSION_LEASE_MS: String(LEASE_MS),
      SHUTDOWN_GRACE_MS: String(GRACE_MS),
      ...more,
    });
  };
  const sql = new Client({ connectionString: databaseUrl });
  sql.on('error', () => undefined);
  await sql.connect();
  const ask = async <Row extends object>(text: string, given: unknown[] = []) =>
    (await sql.query<Row>(text, given)).rows[0] as Row;

  const serving = await start();
  await fill(sql, { ...SMALL, oldSessions: OLD });
  const countOld = async () =>
    (await ask<{ n: number }>(`select count(*)::int as n from sessions where update_time < now() - interval '10 days'`))
      .n;
  const all = await countOld();
  console.error(`filled: ${all} old sessions`);
  /** True where the agent answered. */
  const run = async (url: string, userId: string, prompt: string) => {
    const answer = await fetch(`${url}/harness/invoke`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ prompt, harness_name: 'h', run_agent_request: { user_id: userId, session_id: 's' } }),
    });
    return ((await answer.json()) as { error: unknown }).error === null;
  };

  // Processes with invocations that wait for their model.
  const victims = await Promise.all(Array.from({ length: VICTIMS }, () => start(WAITING)));
  for (const [v, { url }] of victims.entries()) {
    for (let n = 0; n < RUNS_EACH; n++)
      void run(url, `victim${v}-${n}`, promptFor({ id: `v${v}-${n}` })).catch(() => undefined);
  }
  const whereOf = `user_id like 'victim' || $1 || '-%'`;
  for (const v of victims.keys())
    while (
      (
        await ask<{ n: number }>(`select count(*)::int as n from invocations where ${whereOf} and status = 'running'`, [
          v,
        ])
      ).n < RUNS_EACH
    )
      await sleep(50);
  await sql.query('select pg_stat_statements_reset()');

  // Users at work.
  const done = new AbortController();
  const times: number[] = [];
  let failed = 0;
  const work = async (user: string) => {
    for (let n = 0; !done.signal.aborted; n++) {
      const began = performance.now();
      const isOk = await run(serving.url, `${user}-${n}`, promptFor({ id: `${user}-${n}` })).catch(() => false);
      if (!isOk) failed += 1;
      times.push(performance.now() - began);
    }
  };
  const working = ['a', 'b'].map(work);

  let longest = 0;
  const watch = async () => {
    const own = new Client({ connectionString: databaseUrl });
    await own.connect();
    while (!done.signal.aborted) {
      const { rows } = await own.query<{ ms: number | null }>(
        `select max(extract(epoch from clock_timestamp() - xact_start))::float8 * 1000 as ms from pg_stat_activity
         where application_name = 'agent-runtime' and state <> 'idle'`,
      );
      longest = Math.max(longest, rows[0]?.ms ?? 0);
      await sleep(50);
    }
    await own.end();
  };
  working.push(watch());

  /** Milliseconds from the death of a process until others have gone on with all of its invocations. */
  const kill = async (v: number) => {
    await victims[v]?.stop();
    const died = performance.now();
    const own = new Client({ connectionString: databaseUrl });
    await own.connect();
    const goesOn = `select count(*)::int as n from invocations where ${whereOf} and attempt > 1`;
    while (((await own.query<{ n: number }>(goesOn, [v])).rows[0]?.n ?? 0) < RUNS_EACH) await sleep(20);
    await own.end();
    return performance.now() - died;
  };
  const takenOver: Promise<number>[] = [];
  /** Waits until so much of all is left. @returns sessions a second since the first one went */
  const untilLeft = async (share: number) => {
    const before = await countOld();
    let left = before;
    while (left === before) [left] = [await countOld(), await sleep(20)];
    const [began, first] = [performance.now(), left];
    while (left > share * all) {
      await sleep(100);
      left = await countOld();
      if (left < all * (1 - (takenOver.length + 0.5) / (VICTIMS + 0.5)) && takenOver.length < VICTIMS)
        takenOver.push(kill(takenOver.length));
    }
    return (1_000 * (first - left)) / (performance.now() - began);
  };
  const first = await start(RETENTION);
  const rates = [await untilLeft(0.6)];
  const stopped = performance.now();
  process.kill(first.pid, 'SIGTERM');
  while (await fetch(`${first.url}/health`).catch(() => isAlive(first.pid))) await sleep(5);
  const stopMs = performance.now() - stopped;
  const left = await countOld();
  await start(RETENTION);
  rates.push(await untilLeft(0));
  const waits = await Promise.all(takenOver);
  done.abort();
  await Promise.all(working);

  const batches = await ask<{ calls: number; mean: number; max: number }>(
    `select sum(calls)::int as calls, (sum(total_exec_time) / sum(calls))::float8 as mean, max(max_exec_time) as max
     from pg_stat_statements where query like 'delete from "sessions"%'`,
  );
  const ms = (time: number) => `${Math.round(time)} ms`;
  times.sort((one, other) => one - other);
  const slowest = Math.max(...waits);
  const rows: [string, string, boolean][] = [
    ['sessions a second', rates.map((rate) => Math.round(rate)).join(', '), Math.min(...rates) >= 1_000],
    [`batches: ${batches.calls}, mean ${ms(batches.mean)}; the longest`, ms(batches.max), batches.max <= 1_000],
    ['longest transaction of any process', ms(longest), true],
    [
      `${VICTIMS} processes killed, their invocations run on after at most (lease ${LEASE_MS} ms)`,
      ms(slowest),
      waits.length === VICTIMS && slowest <= LEASE_MS + 1_000,
    ],
    [`SIGTERM within a batch, ${left} left (grace ${GRACE_MS} ms)`, ms(stopMs), left > 0 && stopMs <= GRACE_MS],
    [
      `invocations of users meanwhile: ${times.length}; half within, 99 of 100 within`,
      `${ms(times[times.length >> 1] ?? 0)}, ${ms(times[Math.floor(times.length * 0.99)] ?? 0)}`,
      failed === 0,
    ],
  ];
  console.log(`| retention of ${all} old sessions | |\n| --- | --- |`);
  for (const [what, figure, isMet] of rows) console.log(`| ${what} | ${figure}${isMet ? '' : ': missed'} |`);
  process.exitCode = rows.every(([, , isMet]) => isMet) ? 0 : 1;
  await sql.end();
} finally {
  await Promise.all([model.close(), mute.close()]);
  await postgres.stop();
}
process.exit();

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}
