import { mkdtemp, writeFile } from 'node:fs/promises';
import { cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { Client } from 'pg';
import { freePort, startPostgres } from './postgres.ts';
import { cpuOf, memoryOf, startServer } from './processes.ts';

/**
 * 100,000 sessions that sleep: `npm run bench -- waits`. What they cost a process, how late they wake at 200 a second, and
 * whether those whose time came while no process ran wake once each. Exit code 1 where a sleeper woke more than a
 * second late, twice or not at all, or the process grew by more than 20 MB. `--small`: a trial.
 */

const { values } = parseArgs({ options: { small: { type: 'boolean' } } });
const SLEEPERS = values.small ? 5_000 : 100_000;
const WAKING = values.small ? 400 : 2_000;
const MISSED = values.small ? 200 : 1_000;
const A_SECOND = 200;
const IDLE_MS = 20_000;
const SLEEP = 'sleep_for {"days": 300}';
const APP = 'harness_agent';

/** Returns the time that the cores of the machine were busy since it started, with all of others, and all time. */
function busyTime() {
  const sum = (of: (times: ReturnType<typeof cpus>[number]['times']) => number) =>
    cpus().reduce((all, { times }) => all + of(times), 0);
  const all = sum(({ user, nice, sys, idle, irq }) => user + nice + sys + idle + irq);
  return { all, ms: all - sum(({ idle }) => idle) };
}

const postgres = await startPostgres();
let isGood = true;
const report = (what: string, found: string, isOk = true) => {
  isGood &&= isOk;
  console.log(`${isOk ? ' ' : '!'} ${what}: ${found}`);
};
try {
  const databaseUrl = await postgres.createDatabase('waits');
  const harness = join(await mkdtemp(join(tmpdir(), 'agent-runtime-waits-')), 'harness.yaml');
  await writeFile(harness, 'tools: [sleep_for]\n');
  const main = new URL('../src/main.ts', import.meta.url).pathname;
  const start = async () => {
    const port = await freePort();
    const settings = { LOG_LEVEL: 'error', MODEL_PROVIDER: 'offline', HARNESS_FILE: harness, DRAIN_DELAY_MS: '0' };
    return startServer([main], port, '/ready', { ...settings, DATABASE_URL: databaseUrl, PORT: String(port) });
  };
  const sql = new Client({ connectionString: databaseUrl });
  sql.on('error', () => undefined);
  await sql.connect();
  const ask = async <Row extends object>(text: string, given: unknown[] = []) =>
    (await sql.query<Row>(text, given)).rows[0] as Row;
  const count = async (text: string) => (await ask<{ n: number }>(`select count(*)::int as n ${text}`)).n;
  const connections = () =>
    count(`from pg_stat_activity where datname = 'waits' and application_name = 'agent-runtime'`);

  const first = await start();
  const post = (path: string, body: object) =>
    fetch(`${first.url}${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
  await post(`/apps/${APP}/users/u0/sessions`, { sessionId: 's' });
  const newMessage = { role: 'user', parts: [{ text: SLEEP }] };
  await (await post('/run', { appName: APP, userId: 'u0', sessionId: 's', newMessage })).text();
  if ((await count(`from tasks where kind = 'sleep' and state = 'open'`)) !== 1) throw new Error('It does not sleep.');
  await sleep(3_000);
  const before = { memory: memoryOf(first.pid), connections: await connections() };

  // All sleep as the first one does.
  const copy = async (table: string) => {
    const { rows } = await sql.query<{ name: string }>(
      `select attname as name from pg_attribute where attrelid = $1::regclass and attnum > 0 and attname <> 'user_id'`,
      [table],
    );
    const names = rows.map(({ name }) => name).join(', ');
    const from = rows.map(({ name }) => (table === 'tasks' && name === 'id' ? `id || '-' || n` : name)).join(', ');
    await sql.query(`insert into ${table} (user_id, ${names}) select 'u' || n, ${from}
      from ${table}, generate_series(1, ${SLEEPERS}) n where user_id = 'u0'`);
  };
  await sql.query(`set agent_runtime.all_users = 'on'; set session_replication_role = 'replica'`);
  for (const table of ['sessions', 'invocations', 'events', 'tool_calls', 'tasks']) await copy(table);
  await sql.query(`set session_replication_role = 'origin'`);
  await sql.query('vacuum analyze');
  await sleep(5_000);
  const cpu = cpuOf(first.pid);
  await sleep(IDLE_MS);
  const idle = (1_000 * (cpuOf(first.pid) - cpu)) / IDLE_MS;
  const grown = memoryOf(first.pid) - before.memory;
  report(`${SLEEPERS} sleep, memory of the process`, `${grown.toFixed(1)} MB more`, grown < 20);
  report('connections', `${before.connections} before, ${await connections()} with them`);
  report('CPU of the idle process', `${idle.toFixed(1)} ms a second`);

  // Their number is that of the user: the first ones wake one after the other.
  const dueFrom = Date.now() / 1_000 + 5;
  await sql.query(
    `update tasks set expire_time = due, due_time = due from (
       select user_id as of_user, to_timestamp($1 + substr(user_id, 2)::int / $2::float8) as due from tasks) given
     where of_user = user_id and substr(user_id, 2)::int between 1 and $3`,
    [dueFrom, A_SECOND, WAKING],
  );
  await sql.query(`select pg_notify('agent_runtime', '["tasks"]')`);
  const others: number[] = [];
  const busyBefore = busyTime();
  const woken = `from tasks where decided_via = 'deadline'`;
  const ended = `from invocations where status = 'succeeded'`;
  for (let n = 0; (await count(woken)) < WAKING || (await count(ended)) < WAKING; n++) {
    const began = performance.now();
    await (await post(`/apps/${APP}/users/other/sessions`, { sessionId: `s${n}` })).text();
    others.push(performance.now() - began);
    await sleep(50);
  }
  const late = await ask<{ p50: number; p99: number; max: number }>(
    `select percentile_cont(0.5) within group (order by ms) as p50,
       percentile_cont(0.99) within group (order by ms) as p99,
       max(ms) as max
     from (select 1000 * extract(epoch from decide_time - expire_time)::float8 as ms ${woken}) woken`,
  );
  const ms = (time: number) => `${Math.round(time)} ms`;
  report(
    `${WAKING} wake, ${A_SECOND} a second: late`,
    `p50 ${ms(late.p50)}, p99 ${ms(late.p99)}, at most ${ms(late.max)}`,
    late.max < 1_000,
  );
  const last = await ask<{ s: number }>(
    `select extract(epoch from max(end_time))::float8 - $1::float8 as s from invocations where status = 'succeeded'`,
    [dueFrom],
  );
  report('their agents have answered', `${last.s.toFixed(1)} s after the first was due`);
  const busy = busyTime();
  const share = (100 * (busy.ms - busyBefore.ms)) / (busy.all - busyBefore.all);
  report('meanwhile the machine', `${share.toFixed(0)} % busy`);
  others.sort((one, other) => one - other);
  report('meanwhile others create a session', `p99 ${ms(others[Math.floor(0.99 * others.length)] ?? 0)}`);

  // Nobody is there when their time comes.
  await first.stop();
  await sql.query(
    `update tasks set expire_time = now(), due_time = now()
     where state = 'open' and substr(user_id, 2)::int between ${WAKING + 1} and ${WAKING + MISSED}`,
  );
  await sleep(2_000);
  const replicas = await Promise.all([start(), start()]);
  while ((await count(ended)) < WAKING + MISSED) await sleep(100);
  await sleep(2_000);
  const answers = await ask<{ sessions: number; answers: number }>(
    `select count(distinct user_id)::int as sessions, count(*)::int as answers from events
     where payload::text like '%functionResponse%woken%'`,
  );
  const all = WAKING + MISSED;
  report(
    `${MISSED} whose time came while no process ran, woken by two`,
    `${answers.answers} answers in ${answers.sessions} sessions of ${all}`,
    answers.answers === all && answers.sessions === all,
  );
  for (const replica of replicas) await replica.stop();
  await sql.end();
} finally {
  await postgres.stop();
}
process.exitCode = isGood ? 0 : 1;
