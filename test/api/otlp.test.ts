import { Writable } from 'node:stream';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { readConfig } from '../../src/process/config.ts';
import { toResource } from '../../src/observability/metrics/open-metrics.ts';
import { createLog } from '../../src/platform/log.ts';
import { type Runtime, startRuntime } from '../../src/process/runtime.ts';
import { type AnsweringProvider, startAnsweringProvider } from '../support/answering-provider.ts';
import { client, startOn } from '../support/app.ts';
import { type CollectedSpan, type Collector, startCollector } from '../support/collector.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { findMetricFaults, findSpanFaults, findUnpublished, GEN_AI_METRICS } from '../support/gen-ai-conventions.ts';
import { type FakeMcp, startMcpServer } from '../support/mcp-server.ts';
import { MINUTE } from '../support/patience.ts';

const SECRET = 'a word that nobody is to read';
const TRACE_ID = '4bf92f3577b34da6a3ce929d0e0e4736';
const CALLER_SPAN = '00f067aa0ba902b7';
const TRACEPARENT = `00-${TRACE_ID}-${CALLER_SPAN}-01`;
let database: TestDatabase;
let collector: Collector;
let silent: Collector;
let mcp: FakeMcp;
let provider: AnsweringProvider;
let quiet: Runtime;
const runtimes: Runtime[] = [];
const lines: string[] = [];

const settings = () => ({
  DEV_UI: 'false',
  MODEL_PROVIDER: 'openai-compatible',
  MODEL_NAME: 'm',
  MODEL_BASE_URL: provider.baseUrl,
  MCP_SERVERS: JSON.stringify([{ name: 'far', url: mcp.url }]),
});
const start = async (more: Record<string, string>) => {
  const runtime = await startOn(database.url, { ...settings(), ...more });
  runtimes.push(runtime);
  return runtime;
};
beforeAll(async () => {
  [database, collector, silent] = await Promise.all([
    createTestDatabase(),
    startCollector(),
    startCollector({ answers: false }),
  ]);
  mcp = await startMcpServer([
    { name: 'look', call: () => ({ content: [{ type: 'text', text: `seen: ${SECRET}` }] }) },
  ]);
  provider = await startAnsweringProvider(({ prompt, results }) =>
    prompt === 'fail'
      ? { status: 400 }
      : prompt.includes('"verdict"')
        ? '{"verdict":"harmless","reason":"r"}'
        : results.length === 0
          ? { calls: [['look', { at: SECRET }]] }
          : `answer: ${SECRET}`,
  );
  quiet = await start({
    EVALS: 'true',
    OTEL_EXPORTER_OTLP_ENDPOINT: `${collector.url}/`,
    OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json',
    OTEL_EXPORTER_OTLP_HEADERS: 'authorization=Bearer%20collector-key',
    OTEL_SERVICE_NAME: 'my-agents',
    OTEL_METRIC_EXPORT_INTERVAL: '1000',
    OTEL_RESOURCE_ATTRIBUTES: 'deployment.environment.name=a%20b,service.name=overruled,service.version=7',
  });
});
afterAll(async () => {
  await Promise.all(runtimes.map((runtime) => runtime.close()));
  await Promise.all([mcp.close(), provider.close(), collector.close(), silent.close()]);
  await database.drop();
});

const invoke = (runtime: Runtime, sessionId: string, headers = {}, prompt = `Look: ${SECRET}`) =>
  client(runtime.url).post(
    '/harness/invoke',
    { prompt, harness_name: 'h', run_agent_request: { user_id: 'u', session_id: sessionId } },
    headers,
  );
/** As `invoke`, for a client that reads the answer as it comes. */
const stream = (runtime: Runtime, sessionId: string) =>
  client(runtime.url).post('/run_sse', {
    appName: 'harness_agent',
    userId: 'u',
    sessionId,
    newMessage: { role: 'user', parts: [{ text: 'Go on.' }] },
    streaming: true,
  });
const traceOf = (sessionId: string) => collector.trace('invocation', 'gen_ai.conversation.id', sessionId);
/** The tree as lines, indented by depth. */
const outline = (spans: CollectedSpan[], parent: string | undefined, indent = ''): string[] =>
  spans
    .filter(({ parentSpanId }) => (parentSpanId || undefined) === parent)
    .flatMap(({ name, spanId }) => [indent + name, ...outline(spans, spanId, `${indent}  `)]);

describe('traces', () => {
  test('follow the conventions for GenAI, without a word of what was said', async () => {
    expect((await invoke(quiet, 's1')).body).toMatchObject({ output: `answer: ${SECRET}`, error: null });
    const spans = await traceOf('s1');
    expect(outline(spans, undefined)).toEqual([
      'invocation',
      '  invoke_agent harness_agent',
      '    chat m',
      '      execute_tool look',
      '    chat m',
    ]);
    const [chat] = spans.filter(({ name }) => name === 'chat m');
    const common = {
      'agent_runtime.app_name': 'harness_agent',
      'agent_runtime.invocation_id': expect.stringMatching(/^e-/) as unknown,
      'gen_ai.conversation.id': 's1',
      'user.id': 'u',
    };
    const event = { 'agent_runtime.event_id': expect.any(String) as unknown };
    expect(chat).toMatchObject({ kind: 3 });
    expect(chat?.attributes).toEqual({
      ...common,
      ...event,
      'gen_ai.operation.name': 'chat',
      'gen_ai.provider.name': 'openai-compatible',
      'gen_ai.request.model': 'm',
      'gen_ai.request.stream': false,
      'gen_ai.response.model': expect.any(String) as unknown,
      'gen_ai.response.finish_reasons': ['stop'],
      'gen_ai.usage.input_tokens': expect.any(Number) as unknown,
      'gen_ai.usage.output_tokens': expect.any(Number) as unknown,
    });
    expect(spans.find(({ name }) => name === 'execute_tool look')?.attributes).toEqual({
      ...common,
      ...event,
      'gen_ai.operation.name': 'execute_tool',
      'gen_ai.tool.name': 'look',
      'gen_ai.tool.type': 'function',
      'gen_ai.tool.call.id': expect.any(String) as unknown,
    });
    expect(Buffer.concat(collector.exports.map(({ body }) => body)).toString()).not.toContain(SECRET);
  });

  test('have the names, kinds, types and required attributes of the conventions, those of a failure too', async () => {
    expect(findUnpublished()).toEqual([]);
    await invoke(quiet, 'told', {}, 'fail');
    const spans = await traceOf('told');
    const failed = spans.map(({ name, attributes, events }) => [
      name,
      attributes['error.type'],
      events.map((event) => event.name),
    ]);
    expect(failed).toEqual([
      ['chat m', 'model_rejected', ['gen_ai.client.operation.exception']],
      ['invoke_agent harness_agent', 'model_rejected', []],
      ['invocation', 'model_rejected', []],
    ]);
    await invoke(quiet, 'all');
    await traceOf('all');
    expect(collector.spans().length).toBeGreaterThan(7);
    expect(collector.spans().flatMap(findSpanFaults)).toEqual([]);
  });

  test('go to the collector with its key and the name of the service', async () => {
    await invoke(quiet, 's2');
    await traceOf('s2');
    const [first] = collector.exports.filter(({ path }) => path === '/v1/traces');
    expect(first?.headers['authorization']).toBe('Bearer collector-key');
    expect(first?.body.toString()).toContain('{"key":"service.name","value":{"stringValue":"my-agents"}}');
  });

  test('go on from the caller, and go on at the provider and at MCP servers', async () => {
    const before = { asked: provider.asked.length, headers: mcp.headers.length };
    await invoke(quiet, 's3', { traceparent: TRACEPARENT });
    const spans = await traceOf('s3');
    expect(new Set(spans.map(({ traceId }) => traceId))).toEqual(new Set([TRACE_ID]));
    expect(outline(spans, CALLER_SPAN)[0]).toBe('invocation');
    const idsOf = (name: string) =>
      spans.filter((span) => span.name === name).map(({ spanId }) => `00-${TRACE_ID}-${spanId}-01`);
    const asked = provider.asked.slice(before.asked).map(({ headers }) => String(headers['traceparent']));
    expect(asked.toSorted()).toEqual(idsOf('chat m').toSorted());
    const called = mcp.headers.slice(before.headers).map(({ traceparent }) => traceparent);
    expect(called.filter(Boolean)).toEqual(idsOf('execute_tool look'));
  });

  test('are a share of those that begin here, and as the caller decided, whose decision goes on', async () => {
    const sampled = await start({
      OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
      OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json',
      OTEL_TRACES_SAMPLER: 'parentbased_traceidratio',
      OTEL_TRACES_SAMPLER_ARG: '0',
    });
    const caller = `00-${TRACE_ID.replaceAll('4', '5')}-${CALLER_SPAN}`;
    const before = provider.asked.length;
    await invoke(sampled, 'own');
    await invoke(sampled, 'left out', { traceparent: `${caller}-00` });
    await invoke(sampled, 'kept', { traceparent: `${caller}-01` });
    // Spans are sent in their order.
    expect((await traceOf('kept')).map(({ name }) => name)).toContain('invocation');
    const ids = collector.spans().map(({ attributes }) => attributes['gen_ai.conversation.id']);
    expect(ids.filter((id) => id === 'own' || id === 'left out')).toEqual([]);
    const flags = provider.asked.slice(before).map(({ headers }) => String(headers['traceparent']).slice(-2));
    expect(flags).toEqual(['00', '00', '00', '00', '01', '01']);
  });

  test('begin anew where the trace context is none, of a forbidden version, too long, or no such thing', async () => {
    const none = '00-00000000000000000000000000000000-00f067aa0ba902b7-01';
    const bad = [none, `ff-${TRACE_ID}-${CALLER_SPAN}-01`, `${TRACEPARENT}-more`, 'x'.repeat(5_000)];
    await Promise.all(bad.map((traceparent, index) => invoke(quiet, `bad ${index}`, { traceparent })));
    for (const index of bad.keys()) {
      const spans = await traceOf(`bad ${index}`);
      expect(outline(spans, undefined)[0]).toBe('invocation');
      expect(spans[0]?.traceId).not.toBe(TRACE_ID);
    }
  });

  test('have what was said where a setting asks for it; protobuf is what they are written in', async () => {
    const talkative = await start({
      DEV_UI: 'true',
      OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
      OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT: 'true',
    });
    await invoke(talkative, 's4', { traceparent: TRACEPARENT });
    const isProtobuf = ({ path, headers }: (typeof collector.exports)[number]) =>
      path === '/v1/traces' && headers['content-type'] === 'application/x-protobuf';
    // A slow process sends the spans of an invocation in several requests; the second call of the model is in the last.
    const answered = '{"role":"tool","parts":[{"type":"tool_call_response"';
    const text = await vi.waitUntil(
      () => {
        const sent = Buffer.concat(collector.exports.filter(isProtobuf).map(({ body }) => body)).toString('latin1');
        return sent.includes(answered) && sent;
      },
      { timeout: MINUTE },
    );
    const message = { role: 'user', parts: [{ type: 'text', content: `Look: ${SECRET}` }] };
    expect(text).toContain(JSON.stringify([message]));
    for (const name of ['gen_ai.output.messages', 'gen_ai.tool.call.arguments', 'gen_ai.system_instructions']) {
      expect(text).toContain(name);
    }
    expect(text).toContain('{"type":"function","name":"look"');
    // The Web UI still has its own trace, which begins with the invocation.
    const kept = await client(talkative.url).get('/dev/apps/harness_agent/debug/trace/session/s4');
    const roots = (kept.body as { name: string; parent_span_id: string | null }[]).filter(
      ({ parent_span_id: parent }) => parent === null,
    );
    expect(roots.map(({ name }) => name)).toEqual(['invocation']);
  });
});

test('what rules and requests score goes to the collector, by the conventions and without explanations', async () => {
  const { send, post } = client(quiet.url);
  const evalMetrics = [
    { metricName: 'safety_v1', threshold: 1, criterion: { threshold: 1, judgeModelOptions: { numSamples: 1 } } },
    { metricName: 'response_match_score', threshold: 1 },
  ];
  await send('PUT', '/apps/harness_agent/score-rules/safe', { evalMetrics });
  await invoke(quiet, 'scored');
  const [{ attributes, events } = { attributes: {}, events: [] }] = await collector.trace(
    'evaluation',
    'gen_ai.conversation.id',
    'scored',
  );
  expect(attributes).toEqual({
    'agent_runtime.app_name': 'harness_agent',
    'agent_runtime.invocation_id': expect.stringMatching(/^e-/) as unknown,
    'gen_ai.conversation.id': 'scored',
    'user.id': 'u',
  });
  expect(events.map((event) => event.attributes)).toEqual([
    {
      'gen_ai.evaluation.name': 'safety_v1',
      'gen_ai.evaluation.score.label': 'pass',
      'gen_ai.evaluation.score.value': 1,
    },
    { 'gen_ai.evaluation.name': 'response_match_score', 'error.type': 'not_evaluated' },
  ]);
  await send('DELETE', '/apps/harness_agent/score-rules/safe');
  await invoke(quiet, 'asked');
  const sessions = [{ userId: 'u', sessionId: 'asked' }];
  expect((await post('/apps/harness_agent/session-scores', { evalMetrics, sessions })).status).toBe(200);
  const asked = await collector.trace('evaluation', 'gen_ai.conversation.id', 'asked');
  expect(Object.keys(asked[0]?.attributes ?? {})).not.toContain('agent_runtime.invocation_id');
  expect(collector.spans().flatMap(findSpanFaults)).toEqual([]);
});

test('metrics go to the collector too, without a port of their own', async () => {
  await invoke(quiet, 's5');
  await stream(quiet, 's5');
  const isComplete = () => GEN_AI_METRICS.every((name) => collector.metricNames().has(name));
  await vi.waitUntil(isComplete, { timeout: MINUTE });
  const ofModels = collector.metrics().filter(({ name }) => name.startsWith('gen_ai.'));
  expect(ofModels.flatMap(findMetricFaults)).toEqual([]);
  expect([...collector.metricNames()]).toEqual(
    expect.arrayContaining(['agent_runtime_http_request_duration_seconds', 'agent_runtime_db_connections']),
  );
  expect(quiet.metrics).toBeUndefined();
});

test('both name the process, one like the other, and have the attributes that the operator chose', async () => {
  await invoke(quiet, 's6');
  await traceOf('s6');
  await vi.waitUntil(() => collector.metricNames().size > 0, { timeout: MINUTE });
  const [first, ...others] = collector.resources('my-agents');
  expect(first).toMatchObject({
    'service.name': 'my-agents',
    'service.version': '7',
    'deployment.environment.name': 'a b',
    'service.instance.id': expect.stringMatching(/^[\da-f-]{36}$/) as unknown,
  });
  expect(others.length).toBeGreaterThan(0);
  for (const other of others) expect(other).toEqual(first);
});

test('a broken list of attributes is left out whole, and the name in it is used where there is no other', () => {
  const attributesOf = (environment: Record<string, string>) => toResource(readConfig(environment), '1').attributes;
  expect(attributesOf({ OTEL_RESOURCE_ATTRIBUTES: 'service.name=a,b' })).toMatchObject({
    'service.name': 'agent-runtime',
  });
  expect(attributesOf({ OTEL_RESOURCE_ATTRIBUTES: 'service.name=a' })).toMatchObject({ 'service.name': 'a' });
});

describe('a collector that never answers', () => {
  test('slows nothing, and keeps nobody from ending; the log has the ids of the work and no content', async () => {
    const environment = {
      ...settings(),
      DATABASE_URL: database.url,
      PORT: '0',
      DRAIN_DELAY_MS: '0',
      OTEL_EXPORTER_OTLP_ENDPOINT: silent.url,
      OTEL_METRIC_EXPORT_INTERVAL: '1000',
    };
    const destination = new Writable({
      write: (chunk: Buffer, _encoding, done) => {
        lines.push(chunk.toString());
        done();
      },
    });
    const runtime = await startRuntime({ config: readConfig(environment), log: createLog('info', destination) });
    const answers = await Promise.all(
      Array.from({ length: 5 }, (_, index) => invoke(runtime, `dead ${index}`, { 'x-request-id': `request-${index}` })),
    );
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200, 200]);
    await vi.waitUntil(() => silent.exports.some(({ path }) => path === '/v1/traces'), { timeout: MINUTE });
    await runtime.close();
    const entries = lines.map((line) => JSON.parse(line) as Record<string, unknown>);
    expect(entries.filter(({ requestId }) => requestId === 'request-3')).toEqual([
      {
        level: 30,
        time: expect.any(Number) as unknown,
        requestId: 'request-3',
        sessionId: 'dead 3',
        invocationId: expect.stringMatching(/^e-/) as unknown,
        appName: 'harness_agent',
        userId: 'u',
        outcome: 'succeeded',
        ms: expect.any(Number) as unknown,
        modelCalls: 2,
        toolCalls: 1,
        msg: 'invocation ended',
      },
      {
        level: 30,
        time: expect.any(Number) as unknown,
        requestId: 'request-3',
        operation: 'harnessInvoke',
        status: 200,
        ms: expect.any(Number) as unknown,
        msg: 'request answered',
      },
    ]);
    expect(lines.join('')).not.toContain(SECRET);
  });

  test('one that is not there at all does neither', async () => {
    const gone = await startCollector();
    await gone.close();
    const runtime = await start({ OTEL_EXPORTER_OTLP_ENDPOINT: gone.url });
    expect((await invoke(runtime, 'gone')).status).toBe(200);
  });
});

test('a header for the collector that is none ends the start, without showing it', () => {
  expect(() => readConfig({ OTEL_EXPORTER_OTLP_HEADERS: 'secret-key' })).toThrow(
    'OTEL_EXPORTER_OTLP_HEADERS: found a wrong value; allowed: name=value pairs with commas between them.',
  );
});
