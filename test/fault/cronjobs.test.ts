import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { APP, eventually, modelSettings, openSql, report, stage } from './support/faults.ts';
import { startCluster } from './support/cluster.ts';
import { startProxy } from './support/postgres-proxy.ts';
import { either, random } from './support/seed.ts';
import { spareServers, startServer } from './support/server-process.ts';
import type { Pool } from 'pg';

/** Of the processes that are killed: so long their runs wait. */
const LEASE_MS = 1_000;
const KILLS = either(8, 50);
const JOBS_PER_KILL = 24;
const ENDED_WITHIN_MS = 30_000;

const here = stage();
const settings = {
  CRONJOBS: 'true',
  CRONJOBS_MAX_RUNS_PER_USER: '1000',
  SWEEP_INTERVAL_MS: '100',
};

/**
 * Cronjobs that are due once, in so many milliseconds; the model takes its time, so that a kill finds runs in the
 * middle.
 */
async function insertDue(sql: Pool, round: string, count: number, inMs: number): Promise<void> {
  await sql.query(
    `insert into cronjobs (app_name, user_id, id, name, prompt, schedule, enabled, session_policy, missed_runs, overlap,
                           max_attempts, retry_pause_seconds, max_retry_pause_seconds, max_failures, next_run_time)
     select $1, $2, $2 || '-' || n, 'n', '#id=' || $2 || '-' || n || ' #calls=1 #delay=' || 60 * (n % 5),
            jsonb_build_object('type', 'once',
                               'onceAt', to_char(due at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')),
            true, 'new', 'once', 'skip', 1, 1, 1, 0, due
     from generate_series(1, $3::int) n,
          (select date_trunc('milliseconds', clock_timestamp() + $4 * interval '1 millisecond') as due) d`,
    [APP, round, count, inMs],
  );
  await sql.query(`select pg_notify('agent_runtime', '["cronjobs"]')`);
}

const allEnded = (sql: Pool, round: string, count: number) =>
  eventually('every run has ended', ENDED_WITHIN_MS, async () => {
    const { rows } = await sql.query<{ n: number }>(
      'select count(*)::int as n from cronjob_runs where user_id = $1 and end_time is not null',
      [round],
    );
    return (rows[0]?.n ?? 0) >= count;
  });

/**
 * What is wrong with the runs of a round: due times without a run, with two, prompts that were given twice, wrong
 * ends.
 */
async function violationsOf(sql: Pool, round: string): Promise<unknown[]> {
  const { rows } = await sql.query(
    `select j.id, r.runs, r.statuses, i.prompts
     from cronjobs j
     cross join lateral (select count(*)::int as runs, array_agg(status) as statuses, min(session_id) as session_id,
                                bool_and(start_time is null or start_time >= due_time) as is_in_time
                         from cronjob_runs where user_id = j.user_id and cronjob_id = j.id) r
     cross join lateral (select count(*)::int as prompts from events e
                         where e.user_id = j.user_id and e.session_id = r.session_id and e.author = 'user'
                           and e.payload -> 'content' -> 'parts' -> 0 ? 'text') i
     where j.user_id = $1
       and (r.runs <> 1 or i.prompts <> 1 or not r.is_in_time or j.enabled
            or not (r.statuses <@ array['success', 'failed']))`,
    [round],
  );
  return rows;
}

const statusesOf = async (sql: Pool, round: string) => {
  const { rows } = await sql.query<{ status: string; n: number }>(
    'select status, count(*)::int as n from cronjob_runs where user_id = $1 group by status order by status',
    [round],
  );
  return Object.fromEntries(rows.map(({ status, n }) => [status, n])) as Record<string, number>;
};

test('a replica that is killed among its firings: no due time lost, none doubled, every run ends', async () => {
  const short = { ...settings, SESSION_LEASE_MS: String(LEASE_MS) };
  const survivor = await startServer(here.databaseUrl, here.environment({ ...short, CRONJOBS_MAX_RUNS: '2' }));
  const draw = random('cronjob kills');
  const victims = spareServers(() => startServer(here.databaseUrl, here.environment(short)));
  const total: Record<string, number> = {};
  for (let kill = 0; kill < KILLS; kill++) {
    const victim = await victims.take();
    const round = `kill-${kill}`;
    await insertDue(here.sql, round, JOBS_PER_KILL, 100);
    await sleep(100 + draw.whole(0, 600));
    await victim.kill();
    await allEnded(here.sql, round, JOBS_PER_KILL);
    expect(await violationsOf(here.sql, round)).toEqual([]);
    for (const [status, n] of Object.entries(await statusesOf(here.sql, round))) {
      total[status] = (total[status] ?? 0) + n;
    }
  }
  await victims.close();
  await survivor.kill();
  report('cronjobs', `${KILLS} kills, ${KILLS * JOBS_PER_KILL} due times: ${JSON.stringify(total)}; 0 lost, 0 doubled`);
});

/** Puts the clock of a process wrong: what it does by its own clock is done at the wrong time. */
const wrongClock = (seconds: number) => {
  const script = `const Real = Date, by = ${seconds * 1000};
    globalThis.Date = class extends Real { constructor(...a) { if (a.length) super(...a); else super(Real.now() + by); }
      static now() { return Real.now() + by; } };`;
  return { NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(script)}` };
};

test('the clocks of two replicas are wrong by 90 s, fast and slow: nothing runs early, nothing twice', async () => {
  const replicas = await Promise.all(
    [90, -90].map((seconds) =>
      startServer(here.databaseUrl, here.environment({ ...settings, ...wrongClock(seconds) })),
    ),
  );
  await insertDue(here.sql, 'clocks', 40, 500);
  await allEnded(here.sql, 'clocks', 40);
  expect([await violationsOf(here.sql, 'clocks'), await statusesOf(here.sql, 'clocks')]).toEqual([[], { success: 40 }]);
  await Promise.all(replicas.map((replica) => replica.kill()));
});

test('a database that is away over a due time: the runs come when it is back, each once', async () => {
  const cluster = await startCluster();
  const sql = openSql(cluster.url);
  const replicas = await Promise.all(
    [1, 2].map(() => startServer(cluster.url, { ...modelSettings(here.model.baseUrl), ...settings })),
  );
  await insertDue(sql, 'away', 20, 1_000);
  await cluster.stopImmediately();
  await sleep(1_500);
  await cluster.start();
  await allEnded(sql, 'away', 20);
  expect([await violationsOf(sql, 'away'), await statusesOf(sql, 'away')]).toEqual([[], { success: 20 }]);
  await Promise.all(replicas.map((replica) => replica.kill()));
  await sql.end();
  await cluster.close();
});

test('two replicas and 500 cronjobs due at one second: 500 runs, each once', async () => {
  const offline = { ...settings, MODEL_PROVIDER: 'offline' };
  const replicas = await Promise.all([1, 2].map(() => startServer(here.databaseUrl, offline)));
  await insertDue(here.sql, 'many', 500, 1_000);
  await allEnded(here.sql, 'many', 500);
  expect([await violationsOf(here.sql, 'many'), await statusesOf(here.sql, 'many')]).toEqual([[], { success: 500 }]);
  const { rows } = await here.sql.query<Record<'first' | 'median' | 'last', number>>(
    `select round(extract(epoch from min(start_time - due_time)) * 1000)::int as first,
            round(extract(epoch from percentile_cont(0.5) within group (order by start_time - due_time)) * 1000)::int
              as median,
            round(extract(epoch from max(start_time - due_time)) * 1000)::int as last
     from cronjob_runs where user_id = 'many'`,
  );
  report('cronjobs', `500 due at once, two replicas: starts late by ${JSON.stringify(rows[0])} ms`);
  await Promise.all(replicas.map((replica) => replica.kill()));
});

test('10,000 enabled cronjobs of which none is due: a replica sends a statement in 10 s at most for them', async () => {
  const proxy = await startProxy(here.databaseUrl);
  await insertDue(here.sql, 'idle', 10_000, 86_400_000);
  const replica = await startServer(proxy.url, here.environment({ ...settings }));
  await sleep(2_000);
  let statements = 0;
  proxy.rules = { before: ({ sql }) => void (statements += /cronjob/.test(sql) ? 1 : 0) };
  await sleep(10_000);
  expect(statements).toBeLessThanOrEqual(1);
  report('cronjobs', `10,000 that are not due: ${statements} statements in 10 s`);
  await replica.kill();
  await proxy.close();
});
