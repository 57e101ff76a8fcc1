import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, expect, test } from 'vitest';
import { McpConnections } from '../../../../src/agent/mcp/mcp-connections.ts';
import { connectMcpServers, type McpSettings } from '../../../../src/agent/mcp/mcp-tools.ts';
import { AgentError } from '../../../../src/core/errors.ts';
import { getFunctionResponses } from '../../../../src/core/content.ts';
import { agent, runInput, runToEnd } from '../../../support/agent-fixtures.ts';
import {
  startMcpServer,
  startModernMcpServer,
  type FakeMcp,
  type FakeMcpOptions,
  type FakeMcpTool,
} from '../../../support/mcp-server.ts';
import { callPart, scriptedModel } from '../../../support/scripted-model.ts';
import { MINUTE } from '../../../support/patience.ts';

const started: FakeMcp[] = [];
afterEach(() => {
  for (const server of started.splice(0)) server.kill();
});

async function start(tools: FakeMcpTool[], options?: FakeMcpOptions) {
  const server = await startMcpServer(tools, options);
  started.push(server);
  return server;
}

/** The product's limits of time would only say how busy the machine is. */
const patient = { connectMs: MINUTE, listMs: MINUTE, callMs: MINUTE };
const settings: McpSettings = { egress: { allowLoopback: true }, timeouts: patient, onFailure: 'fail' };
const signal = new AbortController().signal;
const at = (name: string, { url }: FakeMcp, more = {}) => ({ name, url, ...more });

/** Calls tools by the loop and gives their responses. */
async function call(
  tools: Awaited<ReturnType<typeof connectMcpServers>>['tools'],
  calls: Parameters<typeof callPart>[],
) {
  const model = scriptedModel([calls.map(([name, args], index) => callPart(name, args, `${index}`)), [{ text: 'ok' }]]);
  const { events } = await runToEnd(runInput({ agent: agent({ model, tools }) }));
  return getFunctionResponses(events[1]?.content).map(({ response, parts }) => ({
    response,
    ...(parts ? { parts } : {}),
  }));
}

test('one connect, all pages of the list, and a DELETE at the end', async () => {
  const names = Array.from({ length: 25 }, (_, index) => `tool-${index}`);
  const server = await start(
    names.map((name) => ({ name, description: `Does ${name}` })),
    { pageSize: 10 },
  );
  const { tools, close } = await connectMcpServers([at('docs', server)], settings, [], signal);
  expect(tools.map(({ name, description }) => [name, description])).toEqual(
    names.toSorted().map((name) => [name, `Does ${name}`]),
  );
  expect(server.openSessions()).toBe(1);
  expect(await call(tools, [['tool-7', {}]])).toEqual([{ response: { result: 'ok' } }]);
  await close();
  await close();
  expect(server.openSessions()).toBe(0);
  expect(server.counts).toMatchObject({ initialize: 1, 'tools/list': 3, 'tools/call': 1, DELETE: 1 });
  await expect.poll(() => server.openSockets()).toBe(0);
});

test('a schema arrives unharmed', async () => {
  const inputSchema = {
    type: 'object',
    properties: {
      n: { type: 'integer', minimum: 1, maximum: 9007199254740991 },
      place: { $ref: '#/$defs/place' },
      either: { oneOf: [{ type: 'string' }, { type: 'null' }], default: null },
    },
    required: ['n'],
    additionalProperties: false,
    $defs: { place: { enum: ['a', 1, null] } },
    'x-own': { any: true },
  };
  const server = await start([{ name: 'work', inputSchema }]);
  const { tools, close } = await connectMcpServers([at('docs', server)], settings, [], signal);
  expect(tools[0]?.parameters).toEqual(inputSchema);
  expect(await call(tools, [['work', { n: 0 }]])).toEqual([
    {
      response: {
        error: 'Invalid arguments: `/n` must be >= 1. Call the tool again with arguments that fit its schema.',
      },
    },
  ]);
  await close();
});

test('text, structured content, media and errors become function responses', async () => {
  const server = await start([
    {
      name: 'texts',
      call: () => ({
        content: [
          { type: 'text', text: 'a' },
          { type: 'text', text: 'b' },
        ],
      }),
    },
    { name: 'structured', call: () => ({ content: [{ type: 'text', text: '{"n":1}' }], structuredContent: { n: 1 } }) },
    { name: 'image', call: () => ({ content: [{ type: 'image', mimeType: 'image/png', data: 'AAAA' }] }) },
    { name: 'fails', call: () => ({ content: [{ type: 'text', text: 'no such page' }], isError: true }) },
    {
      name: 'resources',
      call: () => ({
        content: [
          { type: 'resource', resource: { uri: 'file:///a', text: 'inside' } },
          { type: 'resource', resource: { uri: 'file:///b', mimeType: 'application/pdf', blob: 'QUJD' } },
          { type: 'resource_link', uri: 'https://example.org/', name: 'Example' },
        ],
      }),
    },
    {
      name: 'throws',
      call: () => {
        throw new Error('server-secret');
      },
    },
  ]);
  const { tools, close } = await connectMcpServers([at('docs', server)], settings, [], signal);
  const names = ['texts', 'structured', 'image', 'fails', 'resources', 'throws'];
  expect(
    await call(
      tools,
      names.map((name) => [name, {}]),
    ),
  ).toEqual([
    { response: { result: 'a\nb' } },
    { response: { n: 1 } },
    {
      response: { result: '1 attachment(s)' },
      parts: [{ inlineData: { mimeType: 'image/png', data: 'AAAA' } }],
    },
    { response: { error: 'no such page' } },
    {
      response: { result: 'inside\nExample: https://example.org/' },
      parts: [{ inlineData: { mimeType: 'application/pdf', data: 'QUJD' } }],
    },
    { response: { error: 'MCP server `docs` failed in `throws`. It answered with error -32603.' } },
  ]);
  await close();
});

test('an older server is reached by SSE, and its session ends too', async () => {
  const server = await start(
    [{ name: 'old', call: ({ x }) => ({ content: [{ type: 'text', text: `got ${String(x)}` }] }) }],
    {
      sse: true,
    },
  );
  const { tools, close } = await connectMcpServers([at('old', server)], settings, [], signal);
  expect(await call(tools, [['old', { x: 1 }]])).toEqual([{ response: { result: 'got 1' } }]);
  await close();
  await expect.poll(() => server.openSessions()).toBe(0);
});

test('names are unique among servers and built-in tools, and fit the providers', async () => {
  const one = await start([{ name: 'search' }, { name: 'calculator' }, { name: 'a.b/c' }]);
  const two = await start([{ name: 'search' }, { name: 'x'.repeat(80) }]);
  const { tools, close } = await connectMcpServers([at('one', one), at('two', two)], settings, ['calculator'], signal);
  expect(tools.map(({ name }) => name)).toEqual(['a_b_c', 'one_calculator', 'search', 'two_search', 'x'.repeat(64)]);
  expect(await call(tools, [['two_search', {}]])).toEqual([{ response: { result: 'ok' } }]);
  await close();
});

test('no server has a tool by a name of the runtime, or by none', async () => {
  const server = await start([{ name: 'adk_request_confirmation' }, { name: 'transfer_to_agent' }, { name: '' }]);
  const { tools, close } = await connectMcpServers([at('one', server)], settings, [], signal);
  const names = ['tool_', 'tool_adk_request_confirmation', 'tool_transfer_to_agent'];
  expect(tools.map(({ name }) => name)).toEqual(names);
  await close();
});

test('headers go to their server, and only there', async () => {
  const one = await start([{ name: 'a' }]);
  const two = await start([{ name: 'b' }]);
  const headers = { authorization: 'Bearer for-one' };
  const { close } = await connectMcpServers([at('one', one, { headers }), at('two', two)], settings, [], signal);
  await close();
  expect(one.headers.every(({ authorization }) => authorization === 'Bearer for-one')).toBe(true);
  expect(two.headers.some(({ authorization }) => authorization !== undefined)).toBe(false);
});

const status = (code: number): FakeMcpOptions => ({
  intercept: (_request, response) => {
    response.writeHead(code, { 'content-type': 'text/plain' }).end('server-secret');
    return true;
  },
});

test.each([401, 403, 500])(
  'a server that answers %i fails the invocation by name; the others are closed',
  async (code) => {
    const good = await start([{ name: 'a' }]);
    const bad = await start([], status(code));
    const attempt = connectMcpServers([at('good', good), at('bad', bad)], settings, [], signal);
    await expect(attempt).rejects.toEqual(
      new AgentError('mcp_failed', `MCP server \`bad\` could not be reached. It answered HTTP ${code}.`),
    );
    expect(good.openSessions()).toBe(0);
    await expect.poll(async () => [await good.openSockets(), await bad.openSockets()]).toEqual([0, 0]);
  },
);

test('a server that is down or forbidden is named', async () => {
  const server = await start([{ name: 'a' }]);
  server.kill();
  await expect(connectMcpServers([at('down', server)], settings, [], signal)).rejects.toMatchObject({
    code: 'mcp_failed',
    message: 'MCP server `down` could not be reached. The connection failed.',
  });
  const strict: McpSettings = { egress: { allowLoopback: false } };
  await expect(
    connectMcpServers([{ name: 'inner', url: 'https://169.254.169.254/mcp' }], strict, [], signal),
  ).rejects.toMatchObject({
    message: 'MCP server `inner` could not be reached. 169.254.169.254 is not a public address.',
  });
  await expect(connectMcpServers([{ name: 'odd', url: 'nonsense' }], settings, [], signal)).rejects.toMatchObject({
    message: 'MCP server `odd` has no valid address.',
  });
});

test('`skip` leaves out the tools of a server that fails', async () => {
  const good = await start([{ name: 'a' }]);
  const bad = await start([], status(403));
  const both = [{ ...at('bad', bad), onFailure: 'skip' as const }, at('good', good)];
  const told: string[] = [];
  const usual = { ...settings, onFailure: undefined, warn: (line: string) => void told.push(line) };
  const { tools, close } = await connectMcpServers(both, usual, [], signal);
  expect(tools.map(({ name }) => name)).toEqual(['a', 'bad_unavailable']);
  const why = 'MCP server `bad` could not be reached. It answered HTTP 403.';
  expect(await call(tools, [['bad_unavailable', {}]])).toEqual([{ response: { error: why } }]);
  expect(told).toEqual([`${why} The invocation goes on without its tools.`]);
  await close();
});

test.each([
  ['gives no answer', undefined, true],
  ['answers 503', 503, true],
  ['answers 401', 401, false],
  ['is not allowed', 'denied', false],
])('without `on_failure`, a server that %s', async (_, what, isSkipped) => {
  const server = await start([{ name: 'a' }], typeof what === 'number' ? status(what) : {});
  if (what === undefined) server.kill();
  const egress = { allowLoopback: what !== 'denied' };
  const attempt = connectMcpServers([at('one', server)], { egress, timeouts: patient }, [], signal);
  if (!isSkipped)
    return expect(attempt).rejects.toMatchObject({ code: expect.stringMatching(/mcp_failed|egress_denied/) });
  const { tools, close } = await attempt;
  expect(tools.map(({ name }) => name)).toEqual(['one_unavailable']);
  await close();
});

test('a server that takes connections and says nothing is given up', async () => {
  const sockets: { destroy(): void }[] = [];
  const silent = createServer((socket) => sockets.push(socket));
  await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve));
  const url = `http://127.0.0.1:${(silent.address() as AddressInfo).port}/`;
  const quick: McpSettings = { ...settings, timeouts: { ...patient, connectMs: 30 } };
  await expect(connectMcpServers([{ name: 'mute', url }], quick, [], signal)).rejects.toMatchObject({
    message: 'MCP server `mute` could not be reached. It took too long.',
  });
  silent.close();
  for (const socket of sockets) socket.destroy();
});

test('a list that hangs or never ends is given up, and the session is ended', async () => {
  const isList = (body: string) => body.includes('"tools/list"');
  const hanging = await start([{ name: 'a' }], { intercept: (_request, _response, body) => isList(body) });
  const quick: McpSettings = { ...settings, timeouts: { listMs: 30 } };
  await expect(connectMcpServers([at('slow', hanging)], quick, [], signal)).rejects.toMatchObject({
    message: 'MCP server `slow` did not list its tools. It took too long.',
  });
  expect(hanging.openSessions()).toBe(0);

  const endless = await start([{ name: 'a' }], {
    intercept: (_request, response, body) => {
      if (!isList(body)) return false;
      const { id } = JSON.parse(body) as { id: number };
      const result = { tools: [{ name: 'a', inputSchema: { type: 'object' } }], nextCursor: `after ${id}` };
      response
        .writeHead(200, { 'content-type': 'application/json' })
        .end(JSON.stringify({ jsonrpc: '2.0', id, result }));
      return true;
    },
  });
  await expect(connectMcpServers([at('endless', endless)], settings, [], signal)).rejects.toMatchObject({
    message: 'MCP server `endless` did not list its tools. The connection failed.',
  });
  expect(endless.counts['tools/list']).toBe(100);
});

const unknown = (why: string) => `It is not known whether this call took effect: ${why} It was not repeated.`;

test('a call that hangs fails with the name of the server; the session can still be ended', async () => {
  const server = await start([{ name: 'hang', call: () => new Promise(() => {}) }, { name: 'quick' }]);
  const { tools, close } = await connectMcpServers(
    [{ ...at('slow', server), callTimeoutMs: 30 }],
    settings,
    [],
    signal,
  );
  expect(await call(tools, [['hang', {}]])).toEqual([
    { response: { error: unknown('MCP server `slow` failed in `hang`. It took too long.') } },
  ]);
  await close();
  expect(server.openSessions()).toBe(0);
});

test('a server that is killed in the middle of a call fails the call; the other server is unharmed', async () => {
  const { promise: called, resolve } = Promise.withResolvers<void>();
  const dying = await start([
    {
      name: 'hang',
      call: () => {
        resolve();
        return new Promise(() => {});
      },
    },
  ]);
  const fine = await start([{ name: 'fine' }]);
  const both = [at('dying', dying), at('fine', fine)];
  const timeouts = { callMs: MINUTE };
  const { tools, close } = await connectMcpServers(both, { ...settings, timeouts }, [], signal);
  const responses = call(tools, [
    ['hang', {}],
    ['fine', {}],
  ]);
  await called;
  dying.kill();
  const [failed, good] = await responses;
  expect(failed?.response?.['error']).toMatch(/^It is not known .*: MCP server `dying` failed in `hang`\. /);
  expect(good).toEqual({ response: { result: 'ok' } });
  await close();
  expect(fine.openSessions()).toBe(0);
});

test('an abort ends connecting and calling at once', async () => {
  const controller = new AbortController();
  const server = await start([
    {
      name: 'hang',
      call: () => {
        controller.abort(new AgentError('cancelled', 'Cancelled.'));
        return new Promise(() => {});
      },
    },
  ]);
  const { tools, close } = await connectMcpServers([at('docs', server)], settings, [], controller.signal);
  const model = scriptedModel([[callPart('hang', {}, '1')]]);
  const { end } = await runToEnd(runInput({ agent: agent({ model, tools }), signal: controller.signal }));
  expect(end.error).toEqual({ code: 'cancelled', message: 'Cancelled.' });
  await close();
  expect(server.openSessions()).toBe(0);
  await expect(connectMcpServers([at('docs', server)], settings, [], controller.signal)).rejects.toMatchObject({
    code: 'cancelled',
  });
});

test('after 60 invocations, 20 at a time, no session and no socket is left', async () => {
  const server = await start([{ name: 'a' }]);
  const invoke = async () => {
    const { tools, close } = await connectMcpServers([at('docs', server)], settings, [], signal);
    expect(await call(tools, [['a', {}]])).toEqual([{ response: { result: 'ok' } }]);
    await close();
  };
  for (let round = 0; round < 3; round += 1) await Promise.all(Array.from({ length: 20 }, invoke));
  expect(server.openSessions()).toBe(0);
  expect(server.counts).toMatchObject({ initialize: 60, 'tools/list': 60, 'tools/call': 60, DELETE: 60 });
  await expect.poll(() => server.openSockets()).toBe(0);
});

test('the end of one invocation does not disturb another', async () => {
  const server = await start([{ name: 'a' }]);
  const all = await Promise.all([1, 2, 3, 4].map(() => connectMcpServers([at('docs', server)], settings, [], signal)));
  expect(server.openSessions()).toBe(4);
  await all[0]?.close();
  for (const { tools } of all.slice(1))
    expect(await call(tools, [['a', {}]])).toEqual([{ response: { result: 'ok' } }]);
  await Promise.all(all.map(({ close }) => close()));
  expect(server.openSessions()).toBe(0);
});

test('a server that speaks only the protocol of 2026-07-28 is asked in it, without a session', async () => {
  const city = { type: 'string', 'x-mcp-header': 'City' };
  const server = await startModernMcpServer([
    { name: 'plain', call: () => ({ content: [], structuredContent: { sky: 'clear' } }) },
    { name: 'routed', inputSchema: { properties: { city } } },
    { name: 'failing', call: () => ({ content: [{ type: 'text', text: 'No.' }], isError: true }) },
  ]);
  started.push(server);
  const { tools, close } = await connectMcpServers([at('new', server)], settings, [], signal);
  const responses = await call(tools, [
    ['plain', {}],
    ['routed', { city: 'Århus' }],
    ['failing', {}],
  ]);
  expect(responses).toEqual([
    { response: { sky: 'clear' } },
    { response: { result: 'ok' } },
    { response: { error: 'No.' } },
  ]);
  await close();
  expect(server.counts).toEqual({ POST: 5, 'server/discover': 1, 'tools/list': 1, 'tools/call': 3 });
  expect(server.headers.map((each) => each['mcp-param-city']).filter(Boolean)).toEqual([
    `=?base64?${Buffer.from('Århus').toString('base64')}?=`,
  ]);
  await expect.poll(() => server.openSockets()).toBe(0);
});

test('which protocol a server speaks is asked once, and again when it has been replaced', async () => {
  const connections = new McpConnections(10);
  const connect = (server: FakeMcp) =>
    connectMcpServers([at('docs', server)], { ...settings, connections }, [], signal).then(({ close }) => close());
  const old = await start([{ name: 'one' }]);
  for (let times = 0; times < 3; times += 1) await connect(old);
  expect(old.counts).toMatchObject({ 'server/discover': 1, initialize: 3 });
  const modern = await startModernMcpServer([{ name: 'one' }]);
  started.push(modern);
  connections.eras.set(modern.url, { prior: { kind: 'legacy' }, until: performance.now() + 300_000 });
  for (let times = 0; times < 3; times += 1) await connect(modern);
  expect(modern.counts).toMatchObject({ initialize: 1, 'server/discover': 1, 'tools/list': 3 });
  const others = [at('docs', modern, { headers: { authorization: 'Bearer other' } }), at('docs', modern)];
  for (const [index, server] of others.entries())
    await connectMcpServers([server], { ...settings, connections }, [], signal, `user-${index}`).then(({ close }) =>
      close(),
    );
  expect(modern.counts['server/discover']).toBe(3);
  const [known] = [...connections.eras].filter(([, { prior }]) => prior.kind === 'modern');
  connections.eras.set(known?.[0].replaceAll(modern.url, old.url) ?? '', known?.[1] as never);
  connections.eras.delete(old.url);
  await connect(old);
  expect(old.counts).toMatchObject({ 'server/discover': 2, initialize: 4 });
});

describe.each([
  ['2025-11-25', startMcpServer],
  ['2026-07-28', startModernMcpServer],
])('connections to a server of %s that keeps no state', (_, startServer) => {
  const begin = async (tool: FakeMcpTool = { name: 'work' }) => {
    const server = await startServer([tool], { stateless: true });
    started.push(server);
    const connections = new McpConnections(10);
    const invoke = (userId: string, more = {}) =>
      connectMcpServers([at('docs', server, more)], { ...settings, connections }, [], signal, userId);
    /** Counts the new connections of some invocations; one that follows at once may need another. */
    const count = async (times: number, userId: string, more = {}) => {
      const before = server.sockets();
      for (let done = 0; done < times; done += 1) {
        const { tools, close } = await invoke(userId, more);
        expect(await call(tools, [['work', {}]])).toEqual([{ response: { result: 'ok' } }]);
        await close();
      }
      return server.sockets() - before;
    };
    return { server, invoke, count };
  };

  test('are kept for all invocations of one principal, and for no other', async () => {
    const { count } = await begin();
    for (const [userId, more] of [
      ['ann'],
      ['bob'],
      ['ann', { headers: { authorization: 'Bearer of-another' } }],
    ] as const) {
      // The first one does not know yet that the server keeps nothing.
      await count(1, userId, more);
      const own = await count(6, userId, more);
      expect(own).toBeGreaterThan(0);
      expect(own).toBeLessThan(6);
    }
    expect(await count(6, 'ann')).toBeLessThan(6);
  });

  test('that an invocation has in use end with it, and disturb no other', async () => {
    let calls = 0;
    const { server, invoke } = await begin({
      name: 'work',
      call: () => ((calls += 1) === 1 ? new Promise(() => {}) : { content: [] }),
    });
    await (await invoke('ann')).close();
    const [one, other] = [await invoke('ann'), await invoke('ann')];
    const failed = call(one.tools, [['work', {}]]);
    await expect.poll(() => calls).toBe(1);
    const before = await server.openSockets();
    await one.close();
    expect((await failed)[0]?.response?.['error']).toContain('MCP server `docs` failed in `work`.');
    await expect.poll(() => server.openSockets()).toBeLessThan(before);
    expect(await call(other.tools, [['work', {}]])).toEqual([{ response: { result: '' } }]);
    await other.close();
  });
});
