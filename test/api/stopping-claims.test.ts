import { randomUUID } from 'node:crypto';
import { sql } from 'drizzle-orm';
import { Client } from 'pg';
import { expect, test } from 'vitest';
import { insertEvalSet } from '../../src/features/evals/sets/eval-set-store.ts';
import { insertEvalRun } from '../../src/features/evals/runs/eval-run-store.ts';
import { findRunnableSet } from '../../src/features/evals/cases/eval-case-store.ts';
import { startOn } from '../support/app.ts';
import { testPool } from '../support/store.ts';

/** A process that begins to stop while a claim of it waits in the database: what it claims then is left to others. */
/** Model and tools as they are deployed. */
const LIVE = { modelExecutionMode: 'live', toolExecutionMode: 'live' } as const;
const store = testPool();
const key = { appName: 'harness_agent', evalSetId: 'stopping' };

async function insertDueCronjob(): Promise<void> {
  await store.pool.db.execute(sql`
    insert into cronjobs (app_name, user_id, id, name, prompt, schedule, enabled, session_policy, missed_runs, overlap,
                          max_attempts, retry_pause_seconds, max_retry_pause_seconds, max_failures, next_run_time)
    values ('harness_agent', 'u', 'job', 'n', 'hello', '{"type":"once","onceAt":"2000-01-01T00:00:00Z"}', true, 'new',
            'once', 'skip', 1, 1, 1, 0, now())`);
}

async function insertDelivery(): Promise<void> {
  await store.pool.db.execute(sql`
    insert into webhooks (app_name, user_id, id, url, host, includes_output, secret)
    values ('harness_agent', 'u', 'hook', 'https://nobody.invalid/', 'nobody.invalid', false, 'whsec_MDEy')`);
  await store.pool.db.execute(
    sql`select insert_webhook_delivery('harness_agent', 'u', 'https://nobody.invalid/', 'invocation.ended', '{}')`,
  );
}

async function insertEvaluation(): Promise<void> {
  const turn = { userContent: { role: 'user', parts: [{ text: 'hello' }] } };
  await insertEvalSet(store.pool.db, key, { eval_cases: [{ evalId: 'c', conversation: [turn] }] });
  const cases = ((await findRunnableSet(store.pool.db, key))?.cases ?? []).map((one) => ({ ...one, userId: 'u' }));
  const settings = {
    requestedBy: undefined,
    metrics: [],
    userSimulator: undefined,
    ...LIVE,
    agentHash: 'h',
    modelName: 'm',
  };
  const run = { ...key, runId: randomUUID(), ...settings, trials: 1, parallelism: 1, maxJudgeTokens: 1, cases };
  await insertEvalRun(store.pool.db, run, 10);
}

test.each([
  ['due cronjob', insertDueCronjob, { CRONJOBS: 'true' }, 'cronjobs', `(select status from cronjob_runs)`, ['queued']],
  ['webhook delivery', insertDelivery, { WEBHOOKS: 'true' }, 'jobs', 'kind, attempt', ['delivery', 0]],
  ['step of a case', insertEvaluation, { DEV_UI: 'true' }, 'jobs', 'kind, lease_token', ['evaluation', null]],
])('that claims a %s while it begins to stop begins nothing', async (_, insert, setting, table, columns, untouched) => {
  await insert();
  const holder = new Client({ connectionString: store.url });
  await holder.connect();
  await holder.query(`begin; lock table ${table} in exclusive mode`);
  const runtime = await startOn(store.url, { DEV_UI: 'false', ...setting });
  const waiting = `select count(*)::int as n from pg_locks join pg_stat_activity using (pid)
    where relation = '${table}'::regclass and not granted and datname = current_database()`;
  await expect.poll(async () => (await store.pool.db.execute(sql.raw(waiting))).rows).toEqual([{ n: 1 }]);
  const closed = runtime.close();
  await holder.query('rollback');
  await closed;
  const { rows } = await holder.query({ text: `select ${columns} from ${table}`, rowMode: 'array' });
  expect(rows).toEqual([untouched]);
  await holder.query(`delete from ${table}`);
  await holder.end();
});
