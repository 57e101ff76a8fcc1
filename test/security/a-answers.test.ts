import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { type FakeMcpOptions, type FakeMcpTool, startMcpServer } from '../support/mcp-server.ts';
import { FROZEN_MS, startWatched, type WatchedService } from '../support/watched-service.ts';

/** What comes back from servers and providers that mean harm: too much, too deep, too often, without an end. */

const JSON_TYPE = { 'content-type': 'application/json' };
const STREAM_TYPE = { 'content-type': 'text/event-stream' };
const MEGABYTE = 1_000_000;
const CHUNK = { id: 'c', object: 'chat.completion.chunk', created: 1, model: 'm' };
const many = (count: number, piece: (index: number) => string) => Array.from({ length: count }, (_, n) => piece(n));
const ping = (id: number) => `{"jsonrpc":"2.0","method":"ping","id":${id}}`;
const nested = (levels: number) => '['.repeat(levels) + ']'.repeat(levels);

const chunk = (delta: object, finish: string | null = null, more: object = {}) =>
  `data: ${JSON.stringify({ ...CHUNK, choices: [{ index: 0, delta, finish_reason: finish }], ...more })}\n\n`;
const say = (response: ServerResponse, content: string, more: object = {}) =>
  response.writeHead(200, STREAM_TYPE).end(chunk({ content }) + chunk({}, 'stop', more) + 'data: [DONE]\n\n');
const call = (response: ServerResponse, names: string[]) => {
  const calls = names.map((name, index) => ({
    index,
    id: `c${index}`,
    type: 'function',
    function: { name, arguments: '{}' },
  }));
  response.writeHead(200, STREAM_TYPE).end(`${chunk({ tool_calls: calls })}${chunk({}, 'tool_calls')}data: [DONE]\n\n`);
};
/** Writes the same as long as anybody takes it. */
function writeForever(response: ServerResponse, text: string): void {
  while (!response.destroyed)
    if (!response.write(text)) return void response.once('drain', () => writeForever(response, text));
}

describe('A: nobody stops the process by what is answered', () => {
  let service: WatchedService;
  let provider: ReturnType<typeof createServer>;
  type Message = { role: string; content: string };
  let answer: (response: ServerResponse, messages: Message[]) => void;
  /** Calls `work` where it is there, and says its results. */
  const callWork = (response: ServerResponse, messages: Message[]) => {
    const results = messages.filter(({ role }) => role === 'tool').map(({ content }) => content);
    if (results.length > 0) say(response, results.join());
    else call(response, ['work']);
  };
  beforeAll(async () => {
    provider = createServer((request, response) => {
      void request
        .toArray()
        .then((body) => answer(response, (JSON.parse(body.join('')) as { messages: Message[] }).messages));
    });
    await new Promise<void>((resolve) => provider.listen(0, '127.0.0.1', resolve));
    const { port } = provider.address() as AddressInfo;
    service = await startWatched({
      MODEL_PROVIDER: 'openai-compatible',
      MODEL_NAME: 'small',
      MODEL_BASE_URL: `http://127.0.0.1:${port}/v1`,
    });
    answer = (response) => say(response, 'hello');
    await invoke({});
  });
  beforeEach(() => {
    answer = callWork;
    return service.report().then(() => undefined);
  });
  afterAll(async () => {
    await service.close();
    provider.close();
    provider.closeAllConnections();
  });

  const invoke = async (harness: object) => {
    const run_agent_request = { user_id: 'mallory', session_id: crypto.randomUUID() };
    const { body } = await service.post('/harness/invoke', {
      prompt: 'go',
      harness_name: 'h',
      harness,
      run_agent_request,
    });
    return body as { output: string; error: string | null };
  };
  async function isUnharmed(): Promise<void> {
    expect((await service.report()).longestMs).toBeLessThan(FROZEN_MS);
    expect(service.process.exitCode).toBeNull();
  }
  async function serve(tools: FakeMcpTool[], options: FakeMcpOptions = {}) {
    const server = await startMcpServer(tools, options);
    onTestFinished(() => server.close());
    return { server, name: `MCP server \`${new URL(server.url).host}\`` };
  }
  /** A server that gives such a text for the request of a method, as JSON or as a stream that does not end. */
  const answering = (method: string, isStream: boolean, text: (id: number) => string) =>
    serve([{ name: 'work' }], {
      intercept(_request, response, body) {
        const message = JSON.parse(body || '{"id":0}') as { method?: string; id: number };
        if (message.method !== method) return false;
        response.writeHead(200, isStream ? STREAM_TYPE : JSON_TYPE);
        if (isStream) response.write(text(message.id));
        else response.end(text(message.id));
        return true;
      },
    });
  const result = (id: number, members: string) => `{"jsonrpc":"2.0","id":${id},"result":{${members}}}`;

  test.each<[string, string, boolean, (id: number) => string, string]>([
    [
      '300,000 members of a result',
      'tools/list',
      false,
      (id) => result(id, many(300_000, (n) => `"k${n}":0`).join()),
      'It sent a message with more than 100000 values.',
    ],
    [
      'a million values in one event of a stream',
      'tools/list',
      true,
      (id) => `data: ${result(id, `"tools":[${'{},'.repeat(MEGABYTE)}{}]`)}\n\n`,
      'It sent a message with more than 100000 values.',
    ],
    [
      '90,000 pings',
      'tools/list',
      false,
      () => `[${many(90_000, ping).join()}]`,
      'It sent more than 100 messages in one answer.',
    ],
    [
      '20,000 pings',
      'tools/list',
      false,
      () => `[${many(20_000, ping).join()}]`,
      'It sent more than 100 messages in one answer.',
    ],
    [
      '90,000 pings of a stream',
      'tools/list',
      true,
      () => many(90_000, (n) => `data: ${ping(n)}\n\n`).join(''),
      'It sent more than',
    ],
    [
      '600,000 empty events',
      'tools/list',
      true,
      () => 'data:\n\n'.repeat(600_000),
      'It sent more than 1000 messages at once.',
    ],
    [
      'a schema of 30,000 levels',
      'tools/list',
      false,
      (id) => result(id, `"tools":${nested(30_000)}`),
      'It sent a message with more than 500 levels.',
    ],
  ])('%s are refused', async (_, method, isStream, text, reason) => {
    const { server, name } = await answering(method, isStream, text);
    const { error } = await invoke({ mcp_servers: [server.url] });
    expect(error).toContain(`${name} did not list its tools. ${reason}`);
    await isUnharmed();
  });

  test('a result of a million levels is refused', async () => {
    const deep = (id: number) => result(id, `"content":[],"structuredContent":{"x":${nested(MEGABYTE)}}`);
    const { server, name } = await answering('tools/call', false, deep);
    const error = `${name} failed in \`work\`. It sent a message with more than 500 levels.`;
    expect(await invoke({ mcp_servers: [server.url] })).toMatchObject({
      output: JSON.stringify({ error }),
      error: null,
    });
    await isUnharmed();
  });

  test('100 calls of one step that each bring 4 MB bring no more than fits an event', async () => {
    const data = 'A'.repeat(3_900_000);
    const image = { type: 'image' as const, mimeType: 'image/png', data };
    const { server } = await serve([{ name: 'work', call: () => ({ content: [image] }) }]);
    answer = (response, messages) =>
      messages.some(({ role }) => role === 'tool')
        ? callWork(response, messages)
        : call(
            response,
            many(100, () => 'work'),
          );
    const { output, error } = await invoke({ mcp_servers: [server.url] });
    expect(error).toBeNull();
    expect(output).toContain('are together larger than');
    await isUnharmed();
  });

  test.each<[string, (response: ServerResponse) => void]>([
    ['text', (response) => writeForever(response, chunk({ content: 'x'.repeat(100_000) }))],
    ['a line', (response) => writeForever(response, 'x'.repeat(100_000))],
    [
      'arguments of a call',
      (response) => {
        const open = { index: 0, id: 'c', type: 'function', function: { name: 'work', arguments: '{"a":"' } };
        response.write(chunk({ tool_calls: [open] }));
        writeForever(response, chunk({ tool_calls: [{ index: 0, function: { arguments: 'x'.repeat(100_000) } }] }));
      },
    ],
  ])('%s of a provider without an end ends the invocation', async (_, write) => {
    answer = (response) => write(response.writeHead(200, STREAM_TYPE));
    expect((await invoke({})).error).toMatch(/^The model `small` of openai-compatible answered in a form that cannot/);
    await isUnharmed();
  });

  test('counts of tokens that are none are not added up', async () => {
    const usage = { prompt_tokens: 1e308, completion_tokens: -5, total_tokens: 1.5 };
    answer = (response) => say(response, 'hello', { usage });
    expect(await invoke({})).toMatchObject({ output: 'hello', error: null });
  });
});

test('A: a prompt that the offline model reads keeps it no longer than its length', async () => {
  const service = await startWatched();
  onTestFinished(() => service.close());
  const prompt = `calculator 1${'.'.repeat(900_000)}1`;
  const run_agent_request = { user_id: 'mallory', session_id: 's' };
  const { body } = await service.post('/harness/invoke', { prompt, harness_name: 'h', run_agent_request });
  expect(body).toMatchObject({ error: null });
  expect((await service.report()).longestMs).toBeLessThan(FROZEN_MS);
});
