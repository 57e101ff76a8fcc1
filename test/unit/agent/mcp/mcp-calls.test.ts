import { Writable } from 'node:stream';
import { afterEach, describe, expect, test } from 'vitest';
import { connectMcpServers, type McpSettings } from '../../../../src/agent/mcp/mcp-tools.ts';
import { getFunctionResponses } from '../../../../src/core/content.ts';
import { AgentError } from '../../../../src/core/errors.ts';
import { createLog } from '../../../../src/platform/log.ts';
import { agent, runInput, runToEnd } from '../../../support/agent-fixtures.ts';
import {
  type FakeMcp,
  type FakeMcpOptions,
  type FakeMcpTool,
  startMcpServer,
  startModernMcpServer,
} from '../../../support/mcp-server.ts';
import { callPart, scriptedModel } from '../../../support/scripted-model.ts';

/** The product's limits of time would only say how busy the machine is. */
const patient = { connectMs: 60_000, listMs: 60_000, callMs: 60_000 };
const settings: McpSettings = { egress: { allowLoopback: true }, timeouts: patient };
const neverEnds = new AbortController().signal;
const text = (said: string) => ({ content: [{ type: 'text', text: said }] });

const started: FakeMcp[] = [];
afterEach(() => {
  for (const server of started.splice(0)) server.kill();
});

/** Calls a tool by the loop. @returns its response, and what the log was given */
async function call(
  start: typeof startMcpServer,
  tools: FakeMcpTool[],
  {
    args = {},
    signal = neverEnds,
    options = {},
  }: { args?: object; signal?: AbortSignal; options?: FakeMcpOptions } = {},
) {
  const server = await start(tools, options);
  started.push(server);
  const connected = await connectMcpServers([{ name: 'docs', url: server.url }], settings, [], signal);
  const lines: Record<string, unknown>[] = [];
  const write = new Writable({ write: (line, _encoding, done) => done(void lines.push(JSON.parse(String(line)))) });
  const model = scriptedModel([[callPart(tools[0]?.name ?? '', args as never, 'call-1')], [{ text: 'ok' }]]);
  const input = runInput({ agent: agent({ model, tools: connected.tools }), signal, log: createLog('debug', write) });
  const { events, end } = await runToEnd(input);
  await connected.close();
  const [response] = events.flatMap(({ content }) => getFunctionResponses(content));
  return { response: response?.response, lines, end, server };
}

const count = { type: 'object', properties: { n: { type: 'integer', minimum: 1 } }, required: ['n'] };
const counted = (structuredContent: unknown, more = {}) => ({ ...text('…'), structuredContent, ...more });

describe.each([
  ['2025-11-25', startMcpServer],
  ['2026-07-28', startModernMcpServer],
])('in the protocol of %s', (era, start) => {
  test.each([
    ['fits', counted({ n: 2 }), { n: 2 }],
    [
      'is refused',
      counted({ n: 0 }),
      { error: 'The tool answered what its output schema refuses: `/n` must be >= 1.' },
    ],
    [
      'is missing',
      text('2'),
      { error: 'The tool answered without the structured content that its output schema declares.' },
    ],
    ['is an error', { ...text('No.'), isError: true }, { error: 'No.' }],
  ])('structured content that %s', async (_, answer, response) => {
    const tools = [{ name: 'count', outputSchema: count, call: () => answer }];
    expect(await call(start, tools)).toMatchObject({ response });
  });

  test.each([
    [
      'cannot be used',
      { properties: { n: { $ref: 'https://elsewhere.example/schema.json' } } },
      /^The output schema of this tool cannot be used/,
    ],
    ['never ends', { properties: { n: { uniqueItems: true } } }, /takes too long/],
  ])('an output schema that %s is answered with a sentence', async (_, outputSchema, error) => {
    const n = Array.from({ length: 45_000 }, (__, index) => ({ i: index }));
    const { response } = await call(start, [{ name: 'count', outputSchema, call: () => counted({ n }) }]);
    expect(response).toEqual({ error: expect.stringMatching(error) as unknown });
  });

  test('progress and messages of a server are lines of the log, bounded in number and length', async () => {
    const tools: FakeMcpTool[] = [
      {
        name: 'work',
        async call(_args, { notify, progressToken }) {
          await notify('notifications/progress', { progressToken, progress: 1, total: 2, message: 'half' });
          await notify('notifications/message', { level: 'info', data: 'begun' });
          await notify('notifications/message', { level: 'emergency', data: { why: 'x'.repeat(5_000) } });
          for (let n = 0; n < 200; n += 1) await notify('notifications/message', { level: 'debug', data: n });
          return text('done');
        },
      },
    ];
    const { response, lines } = await call(start, tools);
    expect(response).toEqual({ result: 'done' });
    const ours = lines.filter(({ mcpServer }) => mcpServer === 'docs');
    const about = { tool: 'work', callId: 'call-1' };
    expect(ours.slice(0, 3)).toMatchObject([
      { ...about, level: 20, msg: 'progress 1 of 2 half' },
      { ...about, level: 30, msg: 'begun' },
      { ...about, level: 40, msg: `{"why":"${'x'.repeat(5_000)}`.slice(0, 1_000) },
    ]);
    expect(ours).toHaveLength(100);
  });

  test('an invocation that ends cancels its call at the server', async () => {
    const controller = new AbortController();
    const { promise: cancelled, resolve } = Promise.withResolvers<void>();
    const tools: FakeMcpTool[] = [
      {
        name: 'hang',
        call: (_args, { signal }) => {
          signal.addEventListener('abort', () => resolve());
          controller.abort(new AgentError('cancelled', 'Cancelled.'));
          return new Promise(() => {});
        },
      },
    ];
    const { end, server } = await call(start, tools, { signal: controller.signal });
    expect(end.error).toEqual({ code: 'cancelled', message: 'Cancelled.' });
    await cancelled;
    expect(server.counts['notifications/cancelled']).toBe(era === '2025-11-25' ? 1 : undefined);
  });
});

test('structured content of the newer protocol may be no object', async () => {
  const tools = [{ name: 'list', outputSchema: { type: 'array' }, call: () => counted([1, 2]) }];
  expect(await call(startModernMcpServer, tools)).toMatchObject({ response: { result: [1, 2] } });
});

describe.each([
  ['2025-11-25', startMcpServer],
  ['2026-07-28', startModernMcpServer],
])('resources and prompts in the protocol of %s', (_, start) => {
  const many = Array.from({ length: 1_001 }, (__, n) => ({ uri: `file:///${n}`, name: `n${n}` }));
  const cache = { ttlMs: 0, cacheScope: 'private' };
  const methods: FakeMcpOptions['methods'] = {
    'resources/list': ({ cursor }) => ({
      resources: cursor === 'all' ? many : [{ uri: 'file:///a', name: 'A', _meta: { secret: 1 } }],
      nextCursor: 'more',
      ...cache,
    }),
    'resources/templates/list': () => ({ resourceTemplates: [{ uriTemplate: 'file:///{x}', name: 'X' }], ...cache }),
    'resources/read': ({ uri }) => ({
      contents: [
        { uri, text: `text of ${String(uri)}` },
        { uri, mimeType: 'image/png', blob: 'AAAA' },
      ],
      ...cache,
    }),
    'prompts/list': () => ({ prompts: [{ name: 'greet', arguments: [{ name: 'who' }] }], ...cache }),
    'prompts/get': ({ arguments: given }) => ({
      messages: [{ role: 'user', content: { type: 'text', text: `Greet ${(given as { who: string }).who}.` } }],
    }),
  };
  const options = { capabilities: { resources: {}, prompts: {} }, methods };
  const use = async (given: object, tools: FakeMcpTool[], more: FakeMcpOptions = options) => {
    const server = await start(tools, more);
    started.push(server);
    const mcp = await connectMcpServers([{ name: 'docs', url: server.url, ...given }], settings, [], neverEnds);
    const answer = async (name: string, args: object) => {
      const model = scriptedModel([[callPart(name, args as never, 'call-1')], [{ text: 'ok' }]]);
      const { events } = await runToEnd(runInput({ agent: agent({ model, tools: mcp.tools }) }));
      const { response, parts } = getFunctionResponses(events[1]?.content)[0] ?? {};
      return { response, ...(parts && { parts }) };
    };
    return { ...mcp, names: mcp.tools.map(({ name }) => name), answer };
  };

  test('are tools that change nothing, where the entry of the server says so', async () => {
    const both = await use({ resources: true, prompts: true }, [{ name: 'list_prompts' }]);
    const named = ['list_prompts', 'list_resources', 'read_resource', 'docs_list_prompts', 'get_prompt'];
    expect(both.names).toEqual(named);
    expect(both.tools.slice(1).every(({ effect, calls }) => effect === 'none' && calls === 'server')).toBe(true);
    expect(await both.answer('list_resources', {})).toEqual({
      response: {
        resources: [{ uri: 'file:///a', name: 'A' }],
        templates: [{ uriTemplate: 'file:///{x}', name: 'X' }],
        nextCursor: 'more',
      },
    });
    expect(await both.answer('read_resource', { uri: 'file:///a' })).toEqual({
      response: { result: 'text of file:///a' },
      parts: [{ inlineData: { mimeType: 'image/png', data: 'AAAA' } }],
    });
    expect(await both.answer('docs_list_prompts', {})).toEqual({
      response: { prompts: [{ name: 'greet', arguments: [{ name: 'who' }] }] },
    });
    expect(await both.answer('get_prompt', { name: 'greet', arguments: { who: 'Ada' } })).toEqual({
      response: { result: 'user: Greet Ada.' },
    });
    expect(await both.answer('list_resources', { cursor: 'all' })).toEqual({
      response: {
        error: 'MCP server `docs` failed in `resources/list`. It has more than 1000 entries in its answer.',
      },
    });
    await both.close();
    const none = await use({}, [{ name: 'work' }]);
    expect(none.names).toEqual(['work']);
    await none.close();
    const unable = await use({ resources: true, prompts: true }, [{ name: 'work' }], {});
    expect(unable.names).toEqual(['work']);
    await unable.close();
  });

  test('what a server has not, or answers wrongly, is an error for the model', async () => {
    const wrong = { ...options, methods: { ...methods, 'resources/read': () => ({ contents: 'x' }) } };
    const { answer, close } = await use({ resources: true, prompts: true }, [], wrong);
    const error = { error: expect.stringMatching(/^MCP server `docs` failed in `resources\/read`\. /) as unknown };
    expect(await answer('read_resource', { uri: 'file:///a' })).toEqual({ response: error });
    expect(await answer('read_resource', {})).toEqual({
      response: { error: expect.stringContaining('must have required property') as unknown },
    });
    await close();
  });
});
