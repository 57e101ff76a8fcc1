import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { gatedAgents } from '../support/agents.ts';
import { client, startApp, startOn, type TestApp } from '../support/app.ts';
import { createTestDatabase } from '../support/database.ts';

/** What becomes of runs while their cronjob, or their process, changes. One user may have one run: the others wait. */
const JOBS = '/harness/cronjobs';
const FAR = { type: 'once', onceAt: '2900-01-01T00:00:00Z' };
const gate = gatedAgents();
let app: TestApp;
let sql: Client;
beforeAll(async () => {
  app = await startApp({ CRONJOBS: 'true', CRONJOBS_MAX_RUNS_PER_USER: '1' }, { agents: gate.agents });
  sql = new Client({ connectionString: app.databaseUrl });
  await sql.connect();
});
afterAll(async () => {
  await sql.end();
  await app.close();
});

interface Run {
  runId: string;
  status: string;
  error?: { message: string };
}
const newOwner = () => `owner-${randomUUID()}`;
const create = async (ownerId: string, more: object = {}) => {
  const { body } = await app.post(JOBS, { ownerId, name: 'n', prompt: 'hello', schedule: FAR, ...more });
  return (body as { jobId: string }).jobId;
};
const runNow = async (jobId: string) => ((await app.post(`${JOBS}/${jobId}/run`)).body as Run).runId;
const runsOf = async (jobId: string) => ((await app.get(`${JOBS}/${jobId}/runs`)).body as { items: Run[] }).items;
const ended = async (jobId: string, runId: string): Promise<Run> => {
  for (;;) {
    const run = (await app.get(`${JOBS}/${jobId}/runs/${runId}`)).body as Run;
    if (!['queued', 'running', 'retrying'].includes(run.status)) return run;
    await sleep(20);
  }
};
/** Makes a cronjob due now, as its schedule would. */
const makeDue = (jobId: string) =>
  sql.query(
    `with due as (update cronjobs set next_run_time = date_trunc('milliseconds', clock_timestamp()) where id = $1
                  returning 1)
     select pg_notify('agent_runtime', '["cronjobs"]') from due`,
    [jobId],
  );
let calls = 0;
const entered = () => gate.entered(++calls);

test('overlap `replace`: a due time cancels the run that goes on, and takes its place', async () => {
  const jobId = await create(newOwner(), {
    overlap: 'replace',
    schedule: { type: 'interval', intervalSeconds: 3_600 },
  });
  await makeDue(jobId);
  await entered();
  const [first] = await runsOf(jobId);
  await makeDue(jobId);
  await entered();
  gate.open(); // of the cancelled one, which nobody awaits any more
  gate.open([{ text: 'the second' }]);
  expect(await ended(jobId, first?.runId ?? '')).toMatchObject({ status: 'cancelled' });
  const [second] = await runsOf(jobId);
  expect(await ended(jobId, second?.runId ?? '')).toMatchObject({ status: 'success', output: 'the second' });
  expect(await runsOf(jobId)).toHaveLength(2);
});

test.each([
  ['disabled', 'skipped', 'The cronjob was disabled.'],
  ['given another schedule', 'skipped', 'The schedule was changed.'],
  ['deleted', undefined, undefined],
])('a due time whose cronjob is %s before its run begins', async (change, status, message) => {
  const ownerId = newOwner();
  const busy = await create(ownerId);
  const running = await runNow(busy);
  await entered();
  const jobId = await create(ownerId, { schedule: { type: 'interval', intervalSeconds: 3_600 } });
  await makeDue(jobId);
  await expect.poll(async () => (await runsOf(jobId)).map((run) => run.status)).toEqual(['queued']);
  const [waiting] = await runsOf(jobId);
  if (change === 'disabled') await app.post(`${JOBS}/${jobId}/disable`);
  else if (change === 'deleted') await app.send('DELETE', `${JOBS}/${jobId}`);
  else await app.send('PATCH', `${JOBS}/${jobId}`, { schedule: FAR });
  gate.open();
  expect(await ended(busy, running)).toMatchObject({ status: 'success' });
  const { status: answered, body } = await app.get(`${JOBS}/${jobId}/runs/${waiting?.runId}`);
  if (status === undefined) expect(answered).toBe(404);
  else expect(body).toMatchObject({ status, error: { code: 'skipped', message }, attempt: 0 });
  const { rows } = await sql.query('select count(*)::int as n from sessions where user_id = $1', [ownerId]);
  expect(rows).toEqual([{ n: 1 }]);
});

test('a change of the prompt before a run begins is what the run says', async () => {
  const ownerId = newOwner();
  const [busy, jobId] = [await create(ownerId), await create(ownerId)];
  const running = await runNow(busy);
  await entered();
  const waiting = await runNow(jobId);
  await app.send('PATCH', `${JOBS}/${jobId}`, { prompt: 'changed' });
  gate.open();
  await ended(busy, running);
  await entered();
  gate.open();
  expect(await ended(jobId, waiting)).toMatchObject({ status: 'success' });
  const { body } = await app.get(`/apps/harness_agent/users/${ownerId}/sessions/${waiting}`);
  expect(body).toMatchObject({ events: [{ author: 'user', content: { parts: [{ text: 'changed' }] } }, {}] });
});

test('the views for people show how late a run began, how it ended, and what the cronjob does next', async () => {
  const ownerId = newOwner();
  const jobId = await create(ownerId);
  const runId = await runNow(jobId);
  await entered();
  gate.open([{ text: 'seen' }]);
  await ended(jobId, runId);
  const { rows: jobs } = await sql.query(
    `select schedule_type, enabled, next_run_time, last_status, runs, success_rate::float, failures_in_a_row,
            median_lateness >= interval '0' as is_late, max_lateness >= median_lateness as is_longest
     from inspect.cronjobs where user_id = $1`,
    [ownerId],
  );
  expect(jobs).toEqual([
    {
      schedule_type: 'once',
      enabled: true,
      next_run_time: new Date(FAR.onceAt),
      last_status: 'success',
      runs: '1',
      success_rate: 1,
      failures_in_a_row: 0,
      is_late: true,
      is_longest: true,
    },
  ]);
  const { rows: runs } = await sql.query(
    `select cronjob_id, run_id, status, is_manual, attempt, lateness >= interval '0' as is_late,
            duration > interval '0' as has_duration, output, error_code
     from inspect.cronjob_runs where user_id = $1`,
    [ownerId],
  );
  expect(runs).toEqual([
    {
      cronjob_id: jobId,
      run_id: runId,
      status: 'success',
      is_manual: true,
      attempt: 1,
      is_late: true,
      has_duration: true,
      output: 'seen',
      error_code: null,
    },
  ]);
});

test('a process that stops among its firings ends what runs and leaves what waits to the next', async () => {
  const ownerId = newOwner();
  const own = gatedAgents();
  const database = await createTestDatabase();
  const settings = { CRONJOBS: 'true', CRONJOBS_MAX_RUNS_PER_USER: '1' };
  const place = await startOn(database.url, settings, { agents: own.agents });
  const caller = client(place.url);
  const { body } = await caller.post(JOBS, { ownerId, name: 'n', prompt: 'hello', schedule: FAR });
  const { jobId } = body as { jobId: string };
  for (let n = 0; n < 3; n++) await caller.post(`${JOBS}/${jobId}/run`);
  await own.entered(1);
  const looking = new Client({ connectionString: database.url });
  await looking.connect();
  const statuses = async () => {
    const { rows } = await looking.query<{ status: string }>('select status from cronjob_runs order by due_time');
    return rows.map(({ status }) => status);
  };
  expect(await statuses()).toEqual(['running', 'queued', 'queued']);
  const closing = place.close();
  own.open([{ text: 'in time' }]);
  await closing;
  expect(await statuses()).toEqual(['success', 'queued', 'queued']);
  const heir = await startOn(database.url, settings);
  await expect.poll(statuses).toEqual(['success', 'success', 'success']);
  await heir.close();
  await looking.end();
  await database.drop();
});

test('a run that goes on in another process is cancelled there', async () => {
  const database = await createTestDatabase();
  const [runner, other] = [gatedAgents(), gatedAgents()];
  const first = await startOn(database.url, { CRONJOBS: 'true' }, { agents: runner.agents });
  const caller = client(first.url);
  const { body } = await caller.post(JOBS, { ownerId: newOwner(), name: 'n', prompt: 'hello', schedule: FAR });
  const path = `${JOBS}/${(body as { jobId: string }).jobId}`;
  const { runId } = (await caller.post(`${path}/run`)).body as { runId: string };
  await runner.entered(1);
  const second = await startOn(database.url, { CRONJOBS: 'true' }, { agents: other.agents });
  await client(second.url).post(`${path}/runs/${runId}/cancel`);
  const seen = async () => (await caller.get(`${path}/runs/${runId}`)).body;
  const error = { code: 'cancelled', message: 'The invocation was cancelled.' };
  await expect.poll(seen).toMatchObject({ status: 'cancelled', attempt: 1, error });
  const looking = new Client({ connectionString: database.url });
  await looking.connect();
  const { rows } = await looking.query('select status from invocations');
  expect(rows).toEqual([{ status: 'cancelled' }]);
  await Promise.all([first.close(), second.close()]);
  await looking.end();
  await database.drop();
});
