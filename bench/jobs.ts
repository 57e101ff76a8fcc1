import { parseArgs } from 'node:util';
import { Client } from 'pg';
import { migrateDatabase } from '../src/platform/db/migrate.ts';
import { quantile } from './load.ts';
import { startPostgres } from './postgres.ts';

/**
 * What a claim of jobs costs with 5,000 jobs in 100 lanes, and with 1,000,000 in 10,000 lanes beside a flood of another
 * kind, one lane of 500,000: `npm run bench -- jobs`. Each claimed job ends, and one in ten is put back. Exit code 1 if
 * the median claim with many jobs takes more than one and a half times as long as with few. `--small`: a trial.
 */

const { values } = parseArgs({ options: { small: { type: 'boolean' } } });
const SHARE = values.small ? 20 : 1;
const CLAIMS = values.small ? 50 : 300;
const SLOTS = 8;
const LIMITS = { user: 4, lane: 1_000, pair: 3 };
const MOST = 1.5;

const postgres = await startPostgres();
try {
  const url = await postgres.createDatabase('jobs');
  await migrateDatabase({ url });
  const sql = new Client({ connectionString: url });
  sql.on('error', () => undefined);
  await sql.connect();
  await sql.query(`set agent_runtime.all_users = 'on'`);

  const fill = async (kind: string, jobs: number, lanes: number) => {
    await sql.query(
      `insert into jobs (kind, app_name, user_id, id, lane, due_time)
       select $1, 'a', 'u' || n % $3::int, n::text, 'l' || n % $3::int % 7, now() - interval '1 minute' from generate_series(1, $2::int) n`,
      [kind, jobs, lanes],
    );
    await sql.query(
      `insert into job_lanes (kind, app_name, user_id, lane, turn_time)
       select distinct kind, app_name, user_id, lane, due_time from jobs where kind = $1`,
      [kind],
    );
    await sql.query('vacuum analyze jobs, job_lanes');
  };
  /** @returns the times of claims in milliseconds, sorted */
  const measure = async (kind: string, limits: object) => {
    const times: number[] = [];
    for (let n = 0; n < CLAIMS; n++) {
      const startedAt = performance.now();
      const { rows } = await sql.query<{ claimed: { appName: string; userId: string; id: string; token: string }[] }>(
        'select claimed from claim_jobs($1, null, $2, 60000, $3)',
        [kind, SLOTS, JSON.stringify(limits)],
      );
      times.push(performance.now() - startedAt);
      const claimed = rows[0]?.claimed ?? [];
      if (claimed.length === 0) throw new Error(`no job of ${kind} was claimed`);
      for (const [place, { appName, userId, id, token }] of claimed.entries()) {
        const isBack = (n * SLOTS + place) % 10 === 0;
        const text = isBack
          ? 'select put_back_job($1, $2, $3, $4, $5, 0, false)'
          : 'select end_job($1, $2, $3, $4, $5)';
        await sql.query(text, [kind, appName, userId, id, token]);
      }
    }
    return times.toSorted((a, b) => a - b);
  };
  const report = (what: string, times: number[]) => {
    const of = (share: number) => quantile(times, share).toFixed(2);
    console.log(`${what}: p50 ${of(0.5)} ms, p99 ${of(0.99)} ms`);
    return quantile(times, 0.5);
  };

  await fill('few', 5_000, 100);
  const few = report('a claim of 8, 5,000 jobs in 100 lanes', await measure('few', LIMITS));
  await sql.query('delete from jobs; delete from job_lanes');
  await fill('flood', 500_000 / SHARE, 1);
  await fill('many', 1_000_000 / SHARE, 10_000);
  const many = report(
    `a claim of 8, ${(1_000_000 / SHARE).toLocaleString('en')} jobs in 10,000 lanes`,
    await measure('many', LIMITS),
  );
  report('a claim of 8 from one lane of 500,000 jobs', await measure('flood', {}));
  if (many > MOST * few) process.exitCode = 1;
  await sql.end();
} finally {
  await postgres.stop();
}
