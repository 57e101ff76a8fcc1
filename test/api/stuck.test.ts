import { Client } from 'pg';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import type { Runtime } from '../../src/process/runtime.ts';
import { gatedAgents } from '../support/agents.ts';
import { client, startOn } from '../support/app.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { readMetrics, valuesOf } from '../support/metrics.ts';
import { MINUTE } from '../support/patience.ts';
import { callPart } from '../support/scripted-model.ts';

/** What an operator sees of planted faults: in the views, in `/service`, and in the gauges. */

const SESSIONS = '/apps/harness_agent/users/u/sessions';
const pay = {
  name: 'pay',
  description: 'Pays.',
  parameters: { type: 'object' },
  needsConfirmation: true,
  run: async () => ({ paid: true }),
};
const gate = gatedAgents([pay]);
let database: TestDatabase;
let runtime: Runtime;
let sql: Client;
let app: ReturnType<typeof client>;
beforeAll(async () => {
  database = await createTestDatabase();
  // It serves no webhooks, although their owner has one.
  const settings = { METRICS_PORT: '0', WEBHOOKS: 'false', DOORS: 'ag-ui', DEV_UI: 'false' };
  runtime = await startOn(database.url, settings, { agents: gate.agents, sweepIntervalMs: 200 });
  app = client(runtime.url);
  sql = new Client({ connectionString: database.url });
  await sql.connect();
  await sql.query(`set agent_runtime.all_users = 'on'`);
});
afterAll(async () => {
  await sql.end();
  await runtime.close();
  await database.drop();
});

const message = (text: string) => ({ newMessage: { role: 'user', parts: [{ text }] } });
const start = async (sessionId: string) => {
  await app.post(`${SESSIONS}/${sessionId}`, {});
  return ((await app.post(`${SESSIONS}/${sessionId}/invocations`, message('Go on.'))).body as { id: string }).id;
};
const again = async (sessionId: string) =>
  ((await app.post(`${SESSIONS}/${sessionId}/invocations`, message('Again.'))).body as { id: string }).id;
const rowsOf = async (statement: string, values: unknown[] = []) => (await sql.query(statement, values)).rows;
const statusOf = async (sessionId: string, id: string) =>
  ((await app.get(`${SESSIONS}/${sessionId}/invocations/${id}`)).body as { status: string }).status;
let calls = 0;
/** Waits for the next call of the model. */
const entered = () => gate.entered(++calls);
/** Waits until a gauge has a value; the service reads it at intervals. */
const gauge = (name: string, labels: string, fits: (value: number) => boolean) =>
  vi.waitUntil(async () => fits(valuesOf(await readMetrics(runtime.metrics), name)[labels] ?? -1), {
    timeout: MINUTE,
    interval: 250,
  });
const OLDEST = 'agent_runtime_queue_oldest_seconds';
const WAITING = 'agent_runtime_queue_waiting';

test('what waits in the background for longer than a lease is in the queue, and is not called dead', async () => {
  const first = await start('busy');
  await entered();
  const waiting = [await again('busy'), await again('busy')];
  const long = `update invocations set lease_expire_time = now() - interval '1 minute' where status = 'queued' returning id`;
  expect(await rowsOf(long)).toHaveLength(2);
  const queue = await rowsOf(`select place::int, invocation_id, running_invocation from inspect.queue order by place`);
  expect(queue).toEqual(
    waiting.map((invocation_id, n) => ({ place: n + 1, invocation_id, running_invocation: first })),
  );
  for (const view of ['invocations', 'open_invocations'])
    expect(await rowsOf(`select invocation_id from inspect.${view} where is_dead`)).toEqual([]);
  await gauge(WAITING, 'queue=invocations', (value) => value === 2);
  for (const _ of [first, ...waiting]) {
    gate.open();
    if (_ !== waiting[1]) await entered();
  }
  await gauge(WAITING, 'queue=invocations', (value) => value === 0);
  await expect.poll(() => statusOf('busy', waiting[1] ?? '')).toBe('succeeded');
});

describe('a paused invocation', () => {
  const strandedRows = () =>
    rowsOf(`select session_id, is_dead, waits_for from inspect.open_invocations where is_stranded`);

  /** The ids in the list of the application, of the user and of the session. */
  const stranded = () => {
    const ofUser = '&userId=u';
    const queries = ['', ofUser, `${ofUser}&sessionId=paused`];
    return Promise.all(
      queries.map(async (query) => {
        const { body } = await app.get(`/apps/harness_agent/invocations?stranded=true${query}`);
        return (body as { items: { id: string }[] }).items.map(({ id }) => id);
      }),
    );
  };

  test('whose task was deleted is stranded: in the view, the list, /service and the gauge, until it is cancelled', async () => {
    const id = await start('paused');
    await entered();
    gate.open([callPart('pay')]);
    await expect.poll(() => statusOf('paused', id)).toBe('paused');
    expect(await rowsOf(`select waits_for, is_stranded from inspect.open_invocations`)).toEqual([
      { waits_for: 'confirmation', is_stranded: false },
    ]);
    await gauge('agent_runtime_invocations_stranded', '', (value) => value === 0);
    expect(await stranded()).toEqual([[], [], []]);
    await sql.query(`delete from tasks where session_id = 'paused'`);
    expect(await stranded()).toEqual([[id], [id], [id]]);
    expect(await strandedRows()).toEqual([{ session_id: 'paused', is_dead: false, waits_for: null }]);
    expect((await app.get('/service')).body).toMatchObject({ stranded: 1 });
    await gauge('agent_runtime_invocations_stranded', '', (value) => value === 1);
    expect((await app.post(`${SESSIONS}/paused/invocations/${id}/cancel`)).status).toBe(200);
    expect(await strandedRows()).toEqual([]);
    expect(await stranded()).toEqual([[], [], []]);
    await gauge('agent_runtime_invocations_stranded', '', (value) => value === 0);
  });

  test('that its client resumes has no task, and is not stranded', async () => {
    const tool = { name: 'pick', description: 'Picks.', parameters: { type: 'object' } };
    const asked = app.post('/ag-ui/harness_agent', {
      threadId: 't',
      runId: 'r',
      messages: [{ id: 'm', role: 'user', content: 'Go on.' }],
      tools: [tool],
      context: [],
      state: {},
      forwardedProps: {},
    });
    await entered();
    gate.open([callPart('pick')]);
    expect((await asked).status).toBe(200);
    expect(await rowsOf(`select status, waits_for, is_stranded from inspect.open_invocations`)).toEqual([
      { status: 'paused', waits_for: null, is_stranded: false },
    ]);
    expect((await app.get('/service')).body).toMatchObject({ stranded: 0 });
  });
});

test('an application that no process serves, a lane that nobody serves: the age of their queues rises', async () => {
  await sql.query(`
    insert into sessions (app_name, user_id, id) values ('gone', 'u', 's');
    insert into invocations (app_name, user_id, session_id, id, status, lease_token, lease_expire_time, request, create_time)
    values ('gone', 'u', 's', 'i', 'queued', gen_random_uuid(), now(), '{}', now() - interval '1 hour');
    insert into webhooks (app_name, user_id, id, url, host, includes_output, secret)
    values ('harness_agent', 'u', 'w', 'https://hook.example/', 'hook.example', false, 'whsec');
    insert into webhook_deliveries (app_name, user_id, id, webhook_id, host, payload, status, retry_end_time)
    values ('harness_agent', 'u', 'd', 'w', 'hook.example', '{}', 'pending', now() + interval '1 day');
    update jobs set due_time = due_time - interval '2 hours' where kind = 'delivery'`);
  await gauge(OLDEST, 'queue=invocations', (value) => value > 3_500 && value < 7_000);
  await gauge(OLDEST, 'queue=webhook deliveries', (value) => value > 7_100);
  await gauge(WAITING, 'queue=webhook deliveries', (value) => value === 1);
  expect(await rowsOf(`select app_name, invocation_id, running_invocation from inspect.queue`)).toEqual([
    { app_name: 'gone', invocation_id: 'i', running_invocation: null },
  ]);
});

test('a signal that nobody has waited for yet is seen, with its time', async () => {
  await app.post(`${SESSIONS}/signalled`, {});
  const sent = await app.post(`${SESSIONS}/signalled/signals/paid`, { payload: { amount: 3 } });
  expect(sent.status).toBe(200);
  expect(
    await rowsOf(`select name, session_id, waiting_since > now() - interval '1 hour' as is_new from inspect.signals`),
  ).toEqual([{ name: 'paid', session_id: 'signalled', is_new: true }]);
});
