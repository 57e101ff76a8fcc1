import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { request } from 'node:http';
import { Client } from 'pg';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { listMetrics, toPrometheusLabel, toPrometheusName } from '../../src/observability/metrics/instruments.ts';
import type { Runtime } from '../../src/process/runtime.ts';
import { gatedAgents } from '../support/agents.ts';
import { client, startOn, withoutRefused } from '../support/app.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { readMetrics, type Samples, valuesOf } from '../support/metrics.ts';
import { callPart } from '../support/scripted-model.ts';
import { startReceiver, type Receiver } from '../support/webhook-receiver.ts';
import { MINUTE } from '../support/patience.ts';

const SESSIONS = '/apps/harness_agent/users/u/sessions';
const adder = {
  name: 'add',
  description: 'Adds.',
  parameters: { type: 'object' },
  needsConfirmation: false,
  run: async ({ a }: { a?: unknown }) => {
    if (a === undefined) throw new Error('a is missing');
    return { sum: a };
  },
};
const gate = gatedAgents([adder]);
let receiver: Receiver;
let database: TestDatabase;
let metricsWithout: string | undefined;
let runtime: Runtime;
let sql: Client;
let app: ReturnType<typeof client>;
beforeAll(async () => {
  receiver = await startReceiver();
  database = await createTestDatabase();
  const without = await startOn(database.url, { DEV_UI: 'false' });
  metricsWithout = without.metrics;
  await without.close();
  const settings = { CRONJOBS: 'true', WEBHOOKS: 'true', WEBHOOKS_ALLOWED_HOSTS: receiver.origin, DEV_UI: 'false' };
  const more = { METRICS_PORT: '0', ALLOWED_HOSTS: 'metrics.example' };
  runtime = await startOn(database.url, withoutRefused({ ...settings, ...more }), {
    agents: gate.agents,
    sweepIntervalMs: 50,
  });
  app = client(runtime.url);
  sql = new Client({ connectionString: database.url });
  await sql.connect();
});
afterAll(async () => {
  await sql.end();
  await runtime.close();
  await database.drop();
  await receiver.close();
});

const metrics = () => readMetrics(runtime.metrics);
/** How much a metric grew, by its labels; what did not grow is left out. */
function growth(name: string, [before, after]: [Samples, Samples]): Record<string, number> {
  const old = valuesOf(before, name);
  const grown = Object.entries(valuesOf(after, name)).map(([labels, value]) => [labels, value - (old[labels] ?? 0)]);
  return Object.fromEntries(grown.filter(([, value]) => value !== 0));
}
/** The metrics before and after some traffic; `has` says what they have when it is counted. */
async function around(traffic: () => Promise<unknown>, has: (change: [Samples, Samples]) => boolean = () => true) {
  const before = await metrics();
  await traffic();
  return await vi.waitUntil(
    async () => {
      const change: [Samples, Samples] = [before, await metrics()];
      return has(change) && change;
    },
    { timeout: MINUTE },
  );
}
const message = (text: string) => ({ newMessage: { role: 'user', parts: [{ text }] } });
const invoke = (sessionId: string, more: object = {}) =>
  app.post('/harness/invoke', {
    prompt: 'Go on.',
    harness_name: 'h',
    run_agent_request: { user_id: 'u', session_id: sessionId },
    ...more,
  });
test('what is counted is there from the start, as 0', async () => {
  const samples = await metrics();
  expect(valuesOf(samples, 'agent_runtime_lease_takeovers_total')).toEqual({ '': 0 });
  const outcomes = { 'outcome=delivered': 0, 'outcome=postponed': 0, 'outcome=failed': 0 };
  expect(valuesOf(samples, 'agent_runtime_webhook_attempts_total')).toEqual(outcomes);
});

let calls = 0;
/** Waits for the next model call. */
const entered = () => gate.entered(++calls);
/** Asks the port of the metrics under another name. */
const ask = (path: string, host: string, method = 'GET') =>
  new Promise<number | undefined>((resolve, reject) => {
    const options = { method, headers: { host } };
    request(new URL(path, runtime.metrics), options, (response) => {
      response.resume();
      resolve(response.statusCode);
    })
      .on('error', reject)
      .end();
  });

describe('requests', () => {
  const COUNT = 'agent_runtime_http_request_duration_seconds_count';

  test('are counted by operation id and status, whoever they are about', async () => {
    const change = await around(
      async () => {
        await app.post(`${SESSIONS}/${randomUUID()}`, {});
        await app.get(`${SESSIONS}/${randomUUID()}`);
        await app.get(`${SESSIONS}/${randomUUID()}`);
        await app.post(SESSIONS, { state: 'no object' });
        await app.get(`/no/such/${randomUUID()}`);
        await app.send('PUT', SESSIONS, {});
      },
      (each) => Object.keys(growth(COUNT, each)).length >= 4,
    );
    expect(growth(COUNT, change)).toEqual({
      'operation=createSessionWithId,status=200': 1,
      'operation=getSession,status=404': 2,
      'operation=createSession,status=422': 1,
      'operation=unknown,status=404': 1,
      'operation=unknown,status=405': 1,
    });
  });

  test('have a histogram of their time', async () => {
    const [, after] = await around(() => app.get('/health'));
    const name = 'agent_runtime_http_request_duration_seconds_bucket';
    const buckets = Object.entries(valuesOf(after, name)).filter(([labels]) => labels.includes('operation=health,'));
    const values = buckets.map(([, value]) => value);
    expect(values).toEqual(values.toSorted((a, b) => a - b));
    expect(buckets.at(-1)).toEqual(['operation=health,status=200,le=+Inf', values.at(-1)]);
  });

  test('a client that leaves first is 499', async () => {
    const change = await around(
      async () => {
        const leaving = new AbortController();
        const answer = fetch(`${runtime.url}/harness/invoke`, {
          method: 'POST',
          headers: { 'content-type': 'application/json' },
          body: JSON.stringify({
            prompt: 'x',
            harness_name: 'h',
            run_agent_request: { user_id: 'u', session_id: 'left' },
          }),
          signal: leaving.signal,
        });
        await entered();
        leaving.abort();
        await answer.catch(() => undefined);
      },
      (each) => growth(COUNT, each)['operation=harnessInvoke,status=499'] === 1,
    );
    expect(growth(COUNT, change)).toEqual({ 'operation=harnessInvoke,status=499': 1 });
    gate.open(); // it goes on without its client
    await expect
      .poll(async () => valuesOf(await metrics(), 'agent_runtime_invocations_active'))
      .toMatchObject({ '': 0 });
  });

  test('open streams are there while they are open', async () => {
    await app.post(`${SESSIONS}/streamed`, {});
    const leaving = new AbortController();
    const streams = async () => valuesOf(await metrics(), 'agent_runtime_streams')['operation=streamEvents'];
    await fetch(`${runtime.url}${SESSIONS}/streamed/events/stream`, { signal: leaving.signal });
    expect(await streams()).toBe(1);
    leaving.abort();
    await expect.poll(streams).toBe(0);
  });
});

describe('invocations', () => {
  test('a streamed answer with the time until its beginning', async () => {
    await app.post(`${SESSIONS}/begun`, {});
    const change = await around(async () => {
      const run = { appName: 'harness_agent', userId: 'u', sessionId: 'begun', streaming: true, ...message('Go on.') };
      const answer = app.post('/run_sse', run);
      await entered();
      gate.open();
      expect((await answer).status).toBe(200);
    });
    const chat = 'gen_ai_operation_name=chat,gen_ai_provider_name=scripted,gen_ai_request_model=scripted';
    expect(growth('gen_ai_client_inference_time_to_first_chunk_seconds_count', change)).toEqual({ [chat]: 1 });
  });

  test('model calls with their tokens, tool calls and the outcome', async () => {
    const change = await around(async () => {
      const answer = invoke('counted');
      await entered();
      expect(valuesOf(await metrics(), 'agent_runtime_invocations_active')).toEqual({ '': 1 });
      gate.open([callPart('add', { a: 1 }), callPart('add', {}), callPart(`made-up-${randomUUID()}`)]);
      await entered();
      gate.open();
      expect((await answer).body).toMatchObject({ output: expect.stringContaining('answer'), error: null });
    });
    const chat = 'gen_ai_operation_name=chat,gen_ai_provider_name=scripted,gen_ai_request_model=scripted';
    expect(growth('agent_runtime_invocation_duration_seconds_count', change)).toEqual({ 'outcome=succeeded': 1 });
    expect(growth('gen_ai_client_inference_duration_seconds_count', change)).toEqual({ [chat]: 2 });
    // Nobody reads the pieces, so the answers were asked for whole.
    expect(growth('gen_ai_client_inference_time_to_first_chunk_seconds_count', change)).toEqual({});
    const tokens = (of: string) => growth(`gen_ai_client_inference_${of}`, change);
    const unknown = `${chat},gen_ai_token_modality=unknown`;
    expect(tokens('usage_input_tokens_total')).toEqual({ [unknown]: 20 });
    expect(tokens('usage_output_tokens_total')).toEqual({ [unknown]: 14 });
    expect(tokens('usage_reasoning_output_tokens_total')).toEqual({ [unknown]: 4 });
    expect(tokens('operation_output_tokens_sum')).toEqual({ [chat]: 14 });
    const agent = 'gen_ai_agent_name=harness_agent';
    expect(growth('gen_ai_invoke_agent_duration_seconds_count', change)).toEqual({ [agent]: 1 });
    expect(growth('gen_ai_execute_tool_duration_seconds_count', change)).toEqual({
      [`${agent},gen_ai_tool_name=add,gen_ai_tool_type=function`]: 1,
      [`${agent},gen_ai_tool_name=add,gen_ai_tool_type=function,error_type=tool_error`]: 1,
      [`${agent},gen_ai_tool_name=other,gen_ai_tool_type=function,error_type=tool_error`]: 1,
    });
    expect(valuesOf(await metrics(), 'agent_runtime_invocations_active')).toEqual({ '': 0 });
  });

  test('a model that a request names is `other`', async () => {
    const change = await around(async () => {
      const answer = invoke('own-model', { harness: { model_name: `model-${randomUUID()}` } });
      await entered();
      gate.open();
      expect(await answer).toMatchObject({ status: 200, body: { error: null } });
    });
    const other = 'gen_ai_operation_name=chat,gen_ai_provider_name=scripted,gen_ai_request_model=other';
    expect(growth('gen_ai_client_inference_duration_seconds_count', change)).toEqual({ [other]: 1 });
  });

  test('a failure counts under its code', async () => {
    const change = await around(async () => {
      const answer = invoke('failing');
      await entered();
      gate.open([{ text: ' ' }]);
      expect((await answer).body).toMatchObject({ error: expect.stringContaining('empty answer') });
    });
    const chat = 'gen_ai_operation_name=chat,gen_ai_provider_name=scripted,gen_ai_request_model=scripted';
    expect(growth('agent_runtime_invocation_duration_seconds_count', change)).toEqual({ 'outcome=empty_answer': 1 });
    expect(growth('gen_ai_client_inference_duration_seconds_count', change)).toEqual({
      [`${chat},error_type=empty_answer`]: 1,
    });
    expect(growth('gen_ai_invoke_agent_duration_seconds_count', change)).toEqual({
      'gen_ai_agent_name=harness_agent,error_type=empty_answer': 1,
    });
  });

  test('the wait for a busy session is counted, of requests and of the background', async () => {
    const [asked, background] = [
      () => invoke('asked'),
      () => app.post(`${SESSIONS}/background/invocations`, message('x')),
    ];
    await app.post(`${SESSIONS}/background`, {});
    for (const start of [asked, background]) {
      const change = await around(
        async () => {
          const first = start();
          await entered();
          const second = start();
          await expect
            .poll(async () => (await sql.query(`select from invocations where status = 'queued'`)).rowCount)
            .toBe(1);
          gate.open();
          await entered();
          gate.open();
          await Promise.all([first, second]);
        },
        (each) => growth('agent_runtime_queue_wait_seconds_count', each)['outcome=claimed'] === 1,
      );
      expect(growth('agent_runtime_queue_wait_seconds_count', change)).toEqual({ 'outcome=claimed': 1 });
    }
  });

  test('the session of a dead process is counted when it is taken over', async () => {
    await app.post(`${SESSIONS}/dead`, {});
    const token = randomUUID();
    const change = await around(
      async () => {
        // One transaction: between two the sweeper would find an invocation that lost its session.
        await sql.query(`insert into invocations
          (app_name, user_id, session_id, id, status, lease_token, lease_expire_time)
          values ('harness_agent', 'u', 'dead', 'e-dead', 'running', '${token}', now() - interval '1 second');
          update sessions set lease_token = '${token}' where id = 'dead'`);
      },
      (each) => Object.keys(growth('agent_runtime_lease_takeovers_total', each)).length > 0,
    );
    expect(growth('agent_runtime_lease_takeovers_total', change)).toEqual({ '': 1 });
  });
});

describe('the process', () => {
  test('connections of the database, and the waits for them', async () => {
    const change = await around(() => app.get(SESSIONS));
    expect(growth('agent_runtime_db_wait_seconds_count', change)['pool=reads']).toBeGreaterThan(0);
    const [, after] = change;
    expect(Object.keys(valuesOf(after, 'agent_runtime_db_connections')).toSorted()).toEqual(
      ['main', 'reads'].flatMap((pool) => ['idle', 'used'].map((state) => `pool=${pool},state=${state}`)),
    );
    expect(valuesOf(after, 'agent_runtime_db_waiting')).toEqual({ 'pool=main': 0, 'pool=reads': 0 });
  });

  test('the event loop, CPU and memory', async () => {
    const samples = await metrics();
    const delay = valuesOf(samples, 'agent_runtime_event_loop_delay_seconds');
    expect(Object.keys(delay)).toEqual(['percentile=50', 'percentile=99', 'percentile=100']);
    expect(samples.get('process_resident_memory_bytes')).toBeGreaterThan(10_000_000);
    expect(samples.get('process_cpu_seconds_total')).toBeGreaterThan(0);
    expect(samples.get('process_start_time_seconds')).toBeLessThan(Date.now() / 1000);
  });

  test('a cronjob that is fired, and a delivery of how its run ended', async () => {
    const change = await around(
      async () => {
        receiver.reply('/hook', (n) => (n === 1 ? 500 : 204));
        const webhookUrl = `${receiver.origin}/hook`;
        expect((await app.post('/harness/webhooks', { ownerId: 'u', url: webhookUrl })).status).toBe(201);
        const schedule = { type: 'once', onceAt: '2900-01-01T00:00:00Z' };
        const job = await app.post('/harness/cronjobs', { ownerId: 'u', name: 'j', prompt: 'p', schedule, webhookUrl });
        expect(job.status).toBe(201);
        await sql.query(`update cronjobs set next_run_time = now() - interval '40 seconds'`);
        await sql.query(`select pg_notify('agent_runtime', '["cronjobs"]')`);
        await entered();
        gate.open();
      },
      (each) => (growth('agent_runtime_webhook_attempts_total', each)['outcome=postponed'] ?? 0) === 1,
    );
    expect(growth('agent_runtime_cronjob_lateness_seconds_count', change)).toEqual({ '': 1 });
    expect(growth('agent_runtime_cronjob_lateness_seconds_sum', change)['']).toBeGreaterThan(40);
  });
});

describe('the port', () => {
  test('has every metric of the list, no other, and no label that a caller chose', async () => {
    const text = await (await fetch(runtime.metrics ?? '')).text();
    const types = [...text.matchAll(/^# TYPE (\S+ \w+)$/gm)].map(([, type = '']) => type);
    const listed = listMetrics().map(([name, { unit, kind }]) => `${toPrometheusName(name, unit)} ${kind}`);
    expect(types.toSorted()).toEqual([...listed, 'target_info gauge'].toSorted());
    expect(text.replaceAll(/^#.*$/gm, '')).not.toMatch(/counted|busy|begun|streamed|made-up|e-dead/);
    for (const [name, { unit, labels: known }] of listMetrics()) {
      const labels = ['le', ...Object.keys(known).map(toPrometheusLabel)];
      const samples = [...text.matchAll(new RegExp(`^${toPrometheusName(name, unit)}\\w*\\{(.*)\\}`, 'gm'))];
      const used = samples.flatMap(([, each = '']) => [...each.matchAll(/(\w+)="/g)].map(([, label = '']) => label));
      expect([...new Set(used)].filter((label) => !labels.includes(label))).toEqual([]);
    }
  });

  test('has what the dashboard asks for, with its labels', async () => {
    const dashboard = readFileSync(new URL('../../deploy/grafana/agent-runtime.json', import.meta.url), 'utf8');
    const { panels } = JSON.parse(dashboard) as { panels: { targets: { expr: string }[] }[] };
    const series = [...(await metrics()).keys()];
    const without = panels
      .flatMap(({ targets }) => targets.map(({ expr }) => expr))
      .filter((expr) => {
        const [, name] = /((?:agent_runtime|gen_ai_(?:client|execute|invoke)|process)_\w+)/.exec(expr) ?? [];
        const grouped = [...expr.matchAll(/by \(([^)]*)\)/g)].flatMap(([, list = '']) => list.split(', '));
        const matched = [...expr.matchAll(/(\w+)(?:=~|!=|=)"/g)].map(([, label]) => label);
        const wanted = [...grouped, ...matched].filter((label) => label !== 'instance');
        const of = series.filter((each) => each.split('{')[0] === name);
        return of.length === 0 || wanted.some((label) => !of.some((each) => each.includes(`${label}="`)));
      });
    expect(without).toEqual([]);
  });

  test('answers to addresses, local names and allowed ones only, and to nothing but /metrics', async () => {
    const statuses = ['127.0.0.1', 'localhost:9464', '[::1]:9464', 'runtime:9464', 'metrics.example'].map((host) =>
      ask('/metrics', host),
    );
    expect(await Promise.all(statuses)).toEqual([200, 200, 200, 200, 200]);
    expect(await ask('/metrics', 'evil.example:9464')).toBe(403);
    expect(await ask('/health', '127.0.0.1')).toBe(404);
    expect(await ask('/metrics', '127.0.0.1', 'POST')).toBe(404);
  });

  test('is not the port of the service', async () => {
    expect((await app.get('/metrics')).status).toBe(404);
  });

  test('is there only where a setting says so', async () => {
    expect(metricsWithout).toBeUndefined();
  });

  test('that is taken ends the start with a sentence', async () => {
    const { port } = new URL(runtime.metrics ?? '');
    await expect(startOn(database.url, { METRICS_PORT: port })).rejects.toThrow(
      `METRICS_PORT: ${port} is taken on 127.0.0.1; choose another.`,
    );
  });
});
