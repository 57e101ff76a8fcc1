import { SignJWT } from 'jose';
import { Client } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { client, startApp, startOn, type TestApp, testApp } from '../support/app.ts';
import { type Issuer, signingKey, startIssuer } from '../support/issuer.ts';

interface WireSpan {
  name: string;
  span_id: string;
  trace_id: string;
  start_time: number;
  end_time: number;
  attributes: Record<string, unknown>;
  parent_span_id: string | null;
}

const DEV = '/dev/apps/harness_agent';
const app = testApp({ DEV_UI: 'true' });

const prompt = (sessionId: string, text: string, more: object = {}, on: Pick<TestApp, 'post'> = app) =>
  on.post('/harness/invoke', {
    prompt: text,
    harness_name: 'h',
    run_agent_request: { user_id: 'u', session_id: sessionId, ...more },
  });
const traceOf = async (sessionId: string, on: Pick<TestApp, 'get'> = app) =>
  (await on.get(`${DEV}/debug/trace/session/${sessionId}`)).body as WireSpan[];
const eventsOf = async (sessionId: string) =>
  ((await app.get(`/apps/harness_agent/users/u/sessions/${sessionId}`)).body as { events: { id: string }[] }).events;
/** The tree as lines, indented by depth. */
const outline = (spans: WireSpan[], parent: string | null = null, indent = ''): string[] =>
  spans
    .filter((span) => span.parent_span_id === parent)
    .flatMap((span) => [indent + span.name, ...outline(spans, span.span_id, `${indent}  `)]);

describe('the trace of a session', () => {
  test('has the steps of an invocation as a tree, tied to its events', async () => {
    await prompt('tree', 'What is 17 * 23? Use the calculator.');
    const spans = await traceOf('tree');
    expect(outline(spans)).toEqual([
      'invocation',
      '  invoke_agent harness_agent',
      '    call_llm',
      '      execute_tool calculator',
      '    call_llm',
    ]);
    const [, call, response, answer] = await eventsOf('tree');
    const eventIds = spans.map(({ attributes }) => attributes['gcp.vertex.agent.event_id']);
    expect(eventIds).toEqual([undefined, undefined, call?.id, response?.id, answer?.id]);
  });

  test('keeps the rules by which the Web UI validates every span', async () => {
    await prompt('rules', 'What is 17 * 23? Use the calculator.');
    const [events, spans] = [await eventsOf('rules'), await traceOf('rules')];
    expect(new Set(spans.map(({ trace_id }) => trace_id)).size).toBe(1);
    for (const span of spans) {
      expect(span).toEqual({
        name: expect.any(String),
        span_id: expect.stringMatching(/^[0-9a-f]{16}$/),
        trace_id: expect.stringMatching(/^[0-9a-f]{32}$/),
        start_time: expect.any(Number),
        end_time: expect.any(Number),
        attributes: expect.objectContaining({
          'gcp.vertex.agent.session_id': 'rules',
          'gcp.vertex.agent.invocation_id': (events[0] as { invocationId?: string }).invocationId,
          'gen_ai.conversation.id': 'rules',
        }),
        parent_span_id: span.name === 'invocation' ? null : expect.stringMatching(/^[0-9a-f]{16}$/),
        links: [],
      });
      expect(span.end_time).toBeGreaterThanOrEqual(span.start_time);
      expect(Math.abs(span.start_time / 1e6 - Date.now())).toBeLessThan(600_000);
      expect(JSON.stringify(span.attributes)).not.toContain(':null');
    }
  });

  test('shows the request and the answer of a model call, the arguments and the response of a tool', async () => {
    await prompt('io', 'What is 17 * 23? Use the calculator.');
    const [, , call, tool] = await traceOf('io');
    const request = JSON.parse(String(call?.attributes['gcp.vertex.agent.llm_request'])) as Record<string, unknown>;
    expect(request).toEqual({
      model: 'offline',
      config: {
        system_instruction: 'You are a helpful assistant.',
        tools: [{ function_declarations: expect.arrayContaining([expect.objectContaining({ name: 'calculator' })]) }],
      },
      contents: [{ role: 'user', parts: [{ text: 'What is 17 * 23? Use the calculator.' }] }],
    });
    expect(JSON.parse(String(call?.attributes['gcp.vertex.agent.llm_response']))).toMatchObject({
      content: { role: 'model', parts: [{ functionCall: { name: 'calculator', args: { expression: '17 * 23' } } }] },
      modelVersion: 'offline',
      finishReason: 'STOP',
    });
    expect(call?.attributes).toMatchObject({
      'gen_ai.request.model': 'offline',
      'gen_ai.response.finish_reasons': ['stop'],
      'gen_ai.usage.input_tokens': expect.any(Number),
      'gen_ai.usage.output_tokens': expect.any(Number),
    });
    expect(tool?.attributes).toMatchObject({
      'gen_ai.tool.name': 'calculator',
      'gcp.vertex.agent.tool_call_args': '{"expression":"17 * 23"}',
      'gcp.vertex.agent.tool_response': '{"result":391}',
    });
  });

  test('has one trace for each invocation, in their order', async () => {
    await prompt('two', 'one');
    await prompt('two', 'two');
    const spans = await traceOf('two');
    expect(outline(spans)).toEqual([
      'invocation',
      '  invoke_agent harness_agent',
      '    call_llm',
      'invocation',
      '  invoke_agent harness_agent',
      '    call_llm',
    ]);
    expect(new Set(spans.map(({ trace_id }) => trace_id)).size).toBe(2);
  });

  test('says what failed: a tool, the limit of model calls', async () => {
    await prompt('failed', 'calculator {"expression": "17 *"}', { max_llm_calls: 1 });
    const spans = await traceOf('failed');
    const errors = spans.map(({ name, attributes }) => [name, attributes['error.type']]);
    expect(errors).toEqual([
      ['invocation', 'llm_calls_limit'],
      ['invoke_agent harness_agent', 'llm_calls_limit'],
      ['call_llm', undefined],
      ['execute_tool calculator', 'tool_error'],
    ]);
  });

  test('any text comes back as it was: U+0000, lone surrogates, quotes', async () => {
    const text = 'a\u0000b \ud800 "quoted" \ue000 é';
    await prompt('text', text);
    const [, , call] = await traceOf('text');
    const request = JSON.parse(String(call?.attributes['gcp.vertex.agent.llm_request'])) as { contents: unknown };
    expect(request.contents).toEqual([{ role: 'user', parts: [{ text }] }]);
  });

  test('a long prompt is shortened to JSON that still parses', async () => {
    await prompt('long', `begin ${'x'.repeat(300_000)}`);
    const [, , call] = await traceOf('long');
    const text = String(call?.attributes['gcp.vertex.agent.llm_request']);
    expect(Buffer.byteLength(text)).toBeLessThanOrEqual(32 * 1024);
    const { contents } = JSON.parse(text) as { contents: { parts: { text: string }[] }[] };
    expect(contents[0]?.parts[0]?.text).toMatch(/^begin x+… \[\d+ characters left out\]$/);
  });

  test('is empty for a session that nothing ran in, and for another application', async () => {
    await prompt('own', 'hello');
    for (const path of [`${DEV}/debug/trace/session/none`, '/dev/apps/other/debug/trace/session/own']) {
      const { status, headers, text } = await app.get(path);
      expect([status, headers.get('content-type'), text]).toEqual([200, 'application/json', '[]']);
    }
  });

  test.each(['é'.repeat(200), "a' or '1'='1", '..x/y', '%', '__proto__', ' '])('hostile id %j', async (id) => {
    await prompt(id, 'hello');
    expect(await traceOf(encodeURIComponent(id))).toHaveLength(3);
  });

  test('has its legacy spelling', async () => {
    await prompt('legacy', 'hello');
    const { status, text } = await app.get('/debug/trace/session/legacy');
    expect([status, text]).toEqual([200, (await app.get(`${DEV}/debug/trace/session/legacy`)).text]);
    expect(JSON.parse(text)).toHaveLength(3);
  });
});

describe('the trace of an event', () => {
  test('is the attributes of its span with the ids', async () => {
    await prompt('event', 'hello');
    const [, answer] = await eventsOf('event');
    const [, , call] = await traceOf('event');
    const expected = { ...call?.attributes, trace_id: call?.trace_id, span_id: call?.span_id };
    for (const path of [`${DEV}/debug/trace/${answer?.id}`, `/debug/trace/${answer?.id}`]) {
      const { status, body } = await app.get(path);
      expect([status, body]).toEqual([200, expected]);
    }
  });
});

describe('traces are kept in the database', () => {
  test('another replica has them, also after the first has ended', async () => {
    const first = await startApp({ DEV_UI: 'true' });
    const second = await startOn(first.databaseUrl);
    try {
      await prompt('replica', 'hello', {}, first);
      const other = client(second.url);
      const before = await traceOf('replica', first);
      expect(before).toHaveLength(3);
      expect(await traceOf('replica', other)).toEqual(before);
    } finally {
      await second.close();
      await first.close();
    }
  });

  test('what ended last is stored before the process ends', async () => {
    const first = await startApp({ DEV_UI: 'true' });
    const second = await startOn(first.databaseUrl);
    try {
      await prompt('last', 'hello', {}, client(second.url));
      await second.close();
      expect(await traceOf('last', first)).toHaveLength(3);
    } finally {
      await first.close();
    }
  });

  test('as many sessions as there are connections are deleted at once, while their spans are being stored', async () => {
    const small = await startApp({ DEV_UI: 'true', DATABASE_POOL_SIZE: '3' });
    try {
      const ids = Array.from({ length: 9 }, (_, n) => `deleted-${n}`);
      await Promise.all(ids.map((id) => prompt(id, 'hello', {}, small)));
      const deleted = await Promise.all(
        ids.map((id) => small.send('DELETE', `/apps/harness_agent/users/u/sessions/${id}`)),
      );
      expect(deleted.map(({ status }) => status)).toEqual(ids.map(() => 200));
      for (const id of ids) expect(await traceOf(id, small)).toEqual([]);
    } finally {
      await small.close();
    }
  });

  test('API mode keeps no prompts', async () => {
    const api = await startApp({ DEV_UI: 'false' });
    const database = new Client({ connectionString: api.databaseUrl });
    await database.connect();
    try {
      await prompt('none', 'hello', {}, api);
      expect((await database.query('select * from spans')).rows).toEqual([]);
    } finally {
      await database.end();
      await api.close();
    }
  });
});

describe('users of a user pool', () => {
  let issuer: Issuer;
  let pool: TestApp;
  let tokenOf: (userId: string) => Promise<Record<string, string>>;
  beforeAll(async () => {
    const key = await signingKey('RS256', 'one');
    issuer = await startIssuer([{ ...key.jwk, alg: 'RS256' }]);
    pool = await startApp({ DEV_UI: 'true', JWT_ISSUER: issuer.url, JWT_AUDIENCE: 'runtime' });
    tokenOf = async (userId) => {
      const token = new SignJWT({}).setProtectedHeader({ alg: 'RS256', kid: 'one' }).setSubject(userId);
      const signed = token.setIssuer(issuer.url).setAudience('runtime').setIssuedAt().setExpirationTime('5m');
      return { authorization: `Bearer ${await signed.sign(key.privateKey)}` };
    };
  });
  afterAll(async () => {
    await pool.close();
    await issuer.close();
  });

  test('see their own traces only, also of a session whose id another user has too', async () => {
    for (const userId of ['alice', 'bob']) {
      const token = await tokenOf(userId);
      await pool.post(`/apps/harness_agent/users/${userId}/sessions`, { sessionId: 'same' }, token);
      const newMessage = { role: 'user', parts: [{ text: `I am ${userId}` }] };
      await pool.post('/run', { appName: 'harness_agent', userId, sessionId: 'same', newMessage }, token);
    }
    for (const path of [`${DEV}/debug/trace/session/same`, '/debug/trace/session/same']) {
      const { body, text } = await pool.get(path, await tokenOf('alice'));
      expect(body).toHaveLength(3);
      expect(text).toContain('I am alice');
      expect(text).not.toContain('bob');
      // The prompt is the operator's: only developers see it.
      expect(text).not.toContain('system_instruction');
    }
    const spans = (await pool.get(`${DEV}/debug/trace/session/same`, await tokenOf('bob'))).body as WireSpan[];
    const eventId = String(spans.at(-1)?.attributes['gcp.vertex.agent.event_id']);
    expect((await pool.get(`${DEV}/debug/trace/${eventId}`, await tokenOf('bob'))).status).toBe(200);
    expect((await pool.get(`${DEV}/debug/trace/${eventId}`, await tokenOf('alice'))).body).toEqual({
      detail: 'Trace not found',
    });
  });
});

describe('graphs', () => {
  test('the structure of the application', async () => {
    const { status, body } = await app.get(`${DEV}/build_graph`);
    expect([status, body]).toEqual([
      200,
      {
        name: 'harness_agent',
        root_agent: {
          name: 'harness_agent',
          type: 'agent',
          description: '',
          model: 'offline',
          tools: [
            { name: 'current_time', type: 'tool' },
            { name: 'calculator', type: 'tool' },
          ],
          sub_agents: [],
        },
      },
    ]);
  });

  test('the graph stands under its path and as dotSrc, in light and dark', async () => {
    const light = (await app.get(`${DEV}/build_graph_image`)).body as { dotSrc: string };
    const dark = (await app.get(`${DEV}/build_graph_image?dark_mode=true`)).body as { dotSrc: string };
    expect(light).toEqual({ '': { dotSrc: light.dotSrc }, dotSrc: light.dotSrc });
    expect(light.dotSrc).toContain('"harness_agent" -> "calculator"');
    expect(dark.dotSrc).not.toBe(light.dotSrc);
    expect((await app.get(`${DEV}/graph`)).body).toEqual({ dotSrc: light.dotSrc });
    expect((await app.get(`${DEV}/graph?dark_mode=true`)).body).toEqual({ dotSrc: dark.dotSrc });
    const byPath = await app.get(`${DEV}/build_graph_image?node=harness_agent`);
    expect(byPath.body).toEqual({ harness_agent: { dotSrc: light.dotSrc }, dotSrc: light.dotSrc });
  });

  test.each([
    ['/dev/apps/none/build_graph', 'App not found: none'],
    ['/dev/apps/none/build_graph_image', 'App not found: none'],
    ['/dev/apps/none/graph', 'App not found: none'],
    [`${DEV}/build_graph_image?node=a/b`, 'Node not found: a/b'],
    [`${DEV}/build_graph_image?node=__proto__`, 'Node not found: __proto__'],
  ])('%s: 404', async (path, detail) => {
    const { status, body } = await app.get(path);
    expect([status, body]).toEqual([404, { detail }]);
  });

  test('a wrong dark_mode is 422', async () => {
    const { status, body } = await app.get(`${DEV}/graph?dark_mode=maybe`);
    expect([status, body]).toEqual([
      422,
      { detail: [expect.objectContaining({ type: 'bool_parsing', loc: ['query', 'dark_mode'] })] },
    ]);
  });

  test('an event highlights what it did', async () => {
    await prompt('graph', 'What is 17 * 23? Use the calculator.');
    const graphs = [];
    for (const { id } of await eventsOf('graph')) {
      const { status, body } = await app.get(`${DEV}/users/u/sessions/graph/events/${id}/graph`);
      expect(status).toBe(200);
      const lines = (body as { dotSrc: string }).dotSrc.split('\n');
      graphs.push(
        lines.filter((line) => line.startsWith('"') && line.includes('#2e7d4f')).map((line) => line.split(' [')[0]),
      );
    }
    expect(graphs).toEqual([
      [],
      ['"harness_agent"', '"calculator"', '"harness_agent" -> "calculator"'],
      ['"harness_agent"', '"calculator"', '"harness_agent" -> "calculator"'],
      ['"harness_agent"'],
    ]);
  });

  test.each(['u/sessions/graph/events/none', 'other/sessions/graph/events/x', 'u/sessions/none/events/x'])(
    'no event, no graph: %s',
    async (path) => {
      const { status, body } = await app.get(`${DEV}/users/${path}/graph`);
      expect([status, body]).toEqual([200, {}]);
    },
  );

  test('the visual builder has nothing to load', async () => {
    const { status, headers, text } = await app.get(`${DEV}/builder?ts=1&tmp=true&file_path=root.yaml`);
    expect([status, headers.get('content-type'), text]).toEqual([200, 'text/plain', '']);
  });
});
