import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { startReceiver } from '../support/webhook-receiver.ts';
import {
  allEnded,
  allSent,
  insertDue,
  insertHook,
  statusesOf,
  violationsOf,
  wrongDeliveries,
} from './support/cronjobs.ts';
import { modelSettings, openSql, report, stage } from './support/faults.ts';
import { startCluster } from './support/cluster.ts';
import { paced } from './support/pace.ts';
import { startProxy } from './support/postgres-proxy.ts';
import { either, random } from './support/seed.ts';
import { spareServers, startServer } from './support/server-process.ts';

/** Of the processes that are killed: so long their runs wait. */
const LEASE_MS = paced(1_000);
const KILLS = either(8, 50);
const JOBS_PER_KILL = 24;
const IDLE_SECONDS = 30;

const here = stage();
const settings = {
  CRONJOBS: 'true',
  CRONJOBS_MAX_RUNS_PER_USER: '1000',
};

test('a replica that is killed among its firings: nothing lost or doubled, every end is sent', async () => {
  const receiver = await startReceiver();
  const webhooks = { WEBHOOKS: 'true', WEBHOOKS_ALLOWED_HOSTS: receiver.origin };
  const short = { ...settings, ...webhooks, SESSION_LEASE_MS: String(LEASE_MS), REQUEST_TIMEOUT_MS: '1000' };
  const survivor = await startServer(here.databaseUrl, here.environment({ ...short, CRONJOBS_MAX_RUNS: '2' }));
  const draw = random('cronjob kills');
  const victims = spareServers(() => startServer(here.databaseUrl, here.environment(short)));
  const total: Record<string, number> = {};
  for (let kill = 0; kill < KILLS; kill++) {
    const victim = await victims.take();
    const round = `kill-${kill}`;
    const hook = await insertHook(here.sql, round, receiver);
    await insertDue(here.sql, round, JOBS_PER_KILL, 100, hook.url);
    await sleep(100 + draw.whole(0, 600));
    await victim.kill();
    await allEnded(here.sql, round, JOBS_PER_KILL);
    expect(await violationsOf(here.sql, round)).toEqual([]);
    await allSent(here.sql, round);
    expect(await wrongDeliveries(here.sql, round, hook, receiver)).toEqual([]);
    for (const [status, n] of Object.entries(await statusesOf(here.sql, round))) {
      total[status] = (total[status] ?? 0) + n;
    }
  }
  await victims.close();
  await survivor.kill();
  await receiver.close();
  const due = KILLS * JOBS_PER_KILL;
  const requests = receiver.received.length;
  report('cronjobs', `${KILLS} kills, ${due} due times: ${JSON.stringify(total)}; 0 lost, 0 doubled`);
  report('webhooks', `${due} ends, ${requests} requests: each sent, each with one id`);
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

test('10,000 enabled cronjobs, none due, nothing to send: at most a statement in 10 s of a replica', async () => {
  const proxy = await startProxy(here.databaseUrl);
  await insertDue(here.sql, 'idle', 10_000, 86_400_000);
  const replica = await startServer(proxy.url, here.environment({ ...settings, WEBHOOKS: 'true' }));
  await sleep(2_000);
  let statements = 0;
  // The look at the queue of invocations, each 5 s, names `cronjob_id` and is not counted.
  proxy.rules = { before: ({ sql }) => void (statements += /cronjobs|claim_jobs/.test(sql) ? 1 : 0) };
  // The scheduler looks every 30 s, the sender of webhooks every 60 s: ten seconds can hold a look of each.
  await sleep(IDLE_SECONDS * 1000);
  expect(statements).toBeLessThanOrEqual(IDLE_SECONDS / 10);
  report('cronjobs', `10,000 that are not due: ${statements} statements in ${IDLE_SECONDS} s`);
  await replica.kill();
  await proxy.close();
});
