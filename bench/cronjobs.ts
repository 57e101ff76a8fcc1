import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from 'pg';
import { MODEL_TOOLS, promptFor, startModelServer } from '../test/fault/support/model-server.ts';
import { freePort, startPostgres } from './postgres.ts';
import { median } from './load.ts';
import { cpuOf, cpuOfFamily, type ServerProcess, startServer } from './processes.ts';
import { APP } from './seed.ts';

/**
 * How late the runs of many cronjobs start that are due at one second, with two replicas: `npm run bench -- cronjobs`. The
 * limits are the defaults; each user has as many cronjobs as may run at once. Offline the model answers at once, so the
 * machine is the limit; the other model takes its time, so the places are.
 */

const JOBS = 500;
const REPLICAS = 2;
/** The defaults of CRONJOBS_MAX_RUNS and CRONJOBS_MAX_RUNS_PER_USER. */
const PLACES = 20 * REPLICAS;
const JOBS_A_USER = 5;
/** Time for the insertion and for the replicas to sleep again. */
const AHEAD_MS = 3_000;
const SHAPES = [
  { model: 'offline', delayMs: 0, trials: 9 },
  { model: 'answers after 1 s', delayMs: 1_000, trials: 3 },
];

interface Trial {
  first: number;
  p50: number;
  p95: number;
  last: number;
  /** From the start of a run to its end, mean. */
  duration: number;
  /** Of a run: CPU of the replicas, of the database, and statements. */
  cpu: number;
  databaseCpu: number;
  statements: number;
}

const postgres = await startPostgres();
const main = new URL('../src/main.ts', import.meta.url).pathname;
const slow = await startModelServer();

async function startReplica(databaseUrl: string, delayMs: number) {
  const port = await freePort();
  const provider = {
    MODEL_PROVIDER: 'openai-compatible',
    MODEL_NAME: 'slow',
    MODEL_BASE_URL: slow.baseUrl,
    MODEL_API_KEY: 'none',
    TOOLS: MODEL_TOOLS,
  };
  const model = delayMs > 0 ? provider : { MODEL_PROVIDER: 'offline' };
  const environment = { DATABASE_URL: databaseUrl, PORT: String(port), CRONJOBS: 'true', LOG_LEVEL: 'error', ...model };
  return startServer([main], port, '/ready', environment);
}

/** Cronjobs that are due once, at the next whole second that is so far away. */
const insertDue = (sql: Client, round: string, prompt: string) =>
  sql.query(
    `insert into cronjobs (app_name, user_id, id, name, prompt, schedule, enabled, session_policy, missed_runs, overlap,
                           max_attempts, retry_pause_seconds, max_retry_pause_seconds, max_failures, next_run_time)
     select $1, $2 || '-' || n / $4::int, $2 || '-' || n, 'n', $5,
            jsonb_build_object('type', 'once',
                               'onceAt', to_char(due at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')),
            true, 'new', 'once', 'skip', 1, 1, 1, 0, due
     from generate_series(1, $3::int) n,
          (select date_trunc('second', clock_timestamp() + $6 * interval '1 millisecond') as due) d`,
    [APP, round, JOBS, JOBS_A_USER, prompt, AHEAD_MS + 1_000],
  );

const ENDED = `select count(*)::int as n from cronjob_runs where cronjob_id like $1 and end_time is not null`;
const COUNTED = `select sum(calls)::int as n from pg_stat_statements
  where dbid = (select oid from pg_database where datname = current_database()) and query !~ 'pg_stat_statements'`;
const LATENESS = `select (1000 * extract(epoch from min(late)))::float8 as first,
         (1000 * extract(epoch from percentile_cont(0.5) within group (order by late)))::float8 as p50,
         (1000 * extract(epoch from percentile_cont(0.95) within group (order by late)))::float8 as p95,
         (1000 * extract(epoch from max(late)))::float8 as last,
         (1000 * extract(epoch from avg(end_time - start_time)))::float8 as duration,
         count(*) filter (where status = 'success')::int as succeeded
  from (select start_time - due_time as late, * from cronjob_runs where cronjob_id like $1) runs`;

async function measure(delayMs: number, trials: number): Promise<Trial[]> {
  const databaseUrl = await postgres.createDatabase(`cronjobs_${delayMs}`);
  const replicas: ServerProcess[] = [];
  for (let n = 0; n < REPLICAS; n++) replicas.push(await startReplica(databaseUrl, delayMs));
  const sql = new Client({ connectionString: databaseUrl });
  await sql.connect();
  const number = async (text: string, values: unknown[] = []) =>
    (await sql.query<{ n: number }>(text, values)).rows[0]?.n ?? 0;
  const replicasCpu = () => replicas.reduce((sum, { pid }) => sum + cpuOf(pid), 0);
  const prompt = promptFor({ id: 'bench', delayMs });
  const results: Trial[] = [];
  for (let trial = 0; trial < trials; trial++) {
    const [round, rows] = [`round-${trial}`, `round-${trial}-%`];
    await insertDue(sql, round, prompt);
    await sql.query(`select pg_notify('agent_runtime', '["cronjobs"]')`);
    await sleep(AHEAD_MS / 2);
    await sql.query('select pg_stat_statements_reset()');
    const [cpu, databaseCpu] = [replicasCpu(), cpuOfFamily(postgres.pid)];
    for (;;) {
      await sleep(250);
      if ((await number(ENDED, [rows])) === JOBS) break;
    }
    // The last ends are counted a moment later than they are seen.
    await sleep(250);
    const used = { cpu: (replicasCpu() - cpu) / JOBS, databaseCpu: (cpuOfFamily(postgres.pid) - databaseCpu) / JOBS };
    const statements = (await number(COUNTED)) / JOBS;
    const [late] = (await sql.query<Omit<Trial, 'cpu'> & { succeeded: number }>(LATENESS, [rows])).rows;
    if (late?.succeeded !== JOBS) throw new Error(`${late?.succeeded} of ${JOBS} runs succeeded`);
    results.push({ ...late, ...used, statements });
  }
  await sql.end();
  await Promise.all(replicas.map((replica) => replica.stop()));
  return results;
}

/** When the last run starts if no place is ever empty: the runs that go before it share the places. */
const bound = ({ first, duration }: Pick<Trial, 'first' | 'duration'>) => first + (JOBS / PLACES - 1) * duration;

console.log(`PostgreSQL ${postgres.version}; ${JOBS} due at one second, ${REPLICAS} replicas, ${PLACES} places in all`);
for (const { model, delayMs, trials } of SHAPES) {
  const results = await measure(delayMs, trials);
  const of = (name: keyof Trial) => median(results.map((trial) => trial[name]));
  const ms = (value: number) => `${Math.round(value)} ms`;
  const worst = Math.max(...results.map(({ first }) => first));
  console.table({
    [`${model}, median of ${trials} trials`]: {
      'first start': `${ms(of('first'))} (worst ${ms(worst)})`,
      'p50 of starts': ms(of('p50')),
      'p95 of starts': ms(of('p95')),
      'last start': ms(of('last')),
      'duration of a run': ms(of('duration')),
      'last start by arithmetic': ms(median(results.map(bound))),
      'statements a run': of('statements').toFixed(1),
      'CPU a run, replicas + database': `${of('cpu').toFixed(1)} + ${of('databaseCpu').toFixed(1)} ms`,
    },
  });
  console.log(
    `  trials, first/p50/last: ${results.map((r) => `${ms(r.first)}/${ms(r.p50)}/${ms(r.last)}`).join(', ')}`,
  );
}
await slow.close();
await postgres.stop();
