import { beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { startAnsweringProvider } from '../support/answering-provider.ts';
import { type FakeMcpTool, startMcpServer } from '../support/mcp-server.ts';
import { FROZEN_MS, startWatched } from '../support/watched-service.ts';
import { staged } from '../support/staged.ts';

type Schema = Record<string, unknown>;

/** No answer of a check. */
const PASSES = '';
const COSTLY = 'The schema of this tool takes too long to check, so it cannot be called.';
const TOO_MANY = 'It sent a message with more than 100000 values.';
const object = (properties: Schema, more: Schema = {}) => ({ type: 'object', properties, ...more });
const noPattern = (place: string) =>
  `Invalid arguments: ${place} Call the tool again with arguments that fit its schema.`;

/** Each level has the one below it twice: 2^40 ways to fail. */
const doubled = Object.fromEntries(
  Array.from({ length: 40 }, (_, level) => {
    const below = level === 39 ? { type: 'null' } : { $ref: `#/$defs/d${level + 1}` };
    return [`d${level}`, { anyOf: [below, below] }];
  }),
);
const nested = (levels: number): Schema =>
  levels === 0 ? { type: 'null' } : { anyOf: [nested(levels - 1), { const: 'x'.repeat(10_000) }] };
const aaab = `${'a'.repeat(40)}b`;

/** Calls of `work` that a schema makes costly, and what the model is answered. */
const calls: [name: string, schema: Schema, args: object, answer: string][] = [
  [
    'a pattern with nested repetition',
    object({ s: { type: 'string', pattern: '^(a+)+$' } }),
    { s: aaab },
    noPattern('`/s` must match pattern "^(a+)+$".'),
  ],
  [
    'the same in patternProperties',
    { type: 'object', patternProperties: { '^(a+)+$': {} }, additionalProperties: false },
    { [aaab]: 1 },
    noPattern(`The arguments must NOT have additional properties (${aaab}).`),
  ],
  // The server checks what it declared; nobody else checks the form of an answer.
  ['a pattern that looks around', object({ s: { pattern: '^(?=(a+)+$)' } }), { s: aaab }, PASSES],
  ['anyOf that doubles at each level', object({ s: { $ref: '#/$defs/d0' } }, { $defs: doubled }), { s: 1 }, COSTLY],
  [
    'uniqueItems over 45,000 objects',
    object({ list: { type: 'array', uniqueItems: true } }),
    { list: Array.from({ length: 45_000 }, (_, index) => ({ i: index })) },
    COSTLY,
  ],
];

describe('A: nobody stops the process by the tools of an MCP server', () => {
  let args: object = {};
  let said: string | undefined;
  const provider = staged(() =>
    startAnsweringProvider(
      ({ results, tools }) =>
        said ??
        (results.length > 0 || !tools.includes('work') ? results.join() || 'no tool' : { calls: [['work', args]] }),
    ),
  );
  const service = staged(() =>
    startWatched({
      MODEL_PROVIDER: 'openai-compatible',
      MODEL_NAME: 'small',
      MODEL_BASE_URL: provider.baseUrl,
    }),
  );
  beforeAll(async () => {
    await invoke([]);
  });

  const invoke = (servers: string[], user = 'mallory') =>
    service.post('/harness/invoke', {
      prompt: 'go',
      harness_name: 'harness_agent',
      harness: { mcp_servers: servers, tools: [] },
      run_agent_request: { user_id: user, session_id: crypto.randomUUID() },
    });

  async function serve(tools: FakeMcpTool[]): Promise<string> {
    const server = await startMcpServer(tools, { pageSize: tools.length });
    onTestFinished(() => server.close());
    return server.url;
  }

  test.each(calls)('%s freezes nothing', async (_, inputSchema, given, answer) => {
    args = given;
    const url = await serve([{ name: 'work', inputSchema }]);
    await service.report();
    const attack = invoke([url]);
    expect((await service.get('/health')).status).toBe(200);
    const { body } = await attack;
    expect(body).toMatchObject({
      error: null,
      output: JSON.stringify(answer === PASSES ? { result: 'ok' } : { error: answer }),
    });
    expect((await service.report()).longestMs).toBeLessThan(FROZEN_MS);
  });

  test.each(calls)('%s as the form of an answer freezes nothing', async (_, output_schema, given) => {
    said = JSON.stringify(given);
    onTestFinished(() => void (said = undefined));
    await service.report();
    const attack = service.post('/harness/invoke', {
      prompt: 'go',
      harness_name: 'harness_agent',
      harness: { output_schema },
      run_agent_request: { user_id: 'mallory', session_id: crypto.randomUUID() },
    });
    expect((await service.get('/health')).status).toBe(200);
    const { body } = (await attack) as { body: { error: string } };
    expect(body.error).toMatch(/cannot be used|do not fit the output schema/);
    expect((await service.report()).longestMs).toBeLessThan(FROZEN_MS);
  });

  test.each<[string, FakeMcpTool[], string]>([
    [
      'anyOf of megabytes',
      [{ name: 'work', inputSchema: object({ s: nested(200) }) }],
      'It has a list of more than 1048576 characters.',
    ],
    ['40,000 tools of one name', Array.from({ length: 40_000 }, () => ({ name: 'work' })), TOO_MANY],
    ['257 tools', Array.from({ length: 257 }, () => ({ name: 'work' })), 'It has more than 256 tools.'],
    [
      'anyOf of 300 levels',
      [{ name: 'work', inputSchema: object({ s: nested(300) }) }],
      'It sent a message with more than 500 levels.',
    ],
    [
      '200 tools of 10 KB',
      Array.from({ length: 200 }, (_, index) => ({ name: `t${index}`, description: 'x'.repeat(10_000) })),
      'It has a list of more than 1048576 characters.',
    ],
  ])('%s are refused', async (_, tools, reason) => {
    const url = await serve(tools);
    await service.report();
    const { body } = await invoke([url]);
    const name = `MCP server \`${new URL(url).host}\``;
    expect(body).toMatchObject({ error: `${name} did not list its tools. ${reason}` });
    expect((await service.report()).longestMs).toBeLessThan(FROZEN_MS);
  });

  test.each([
    [1_001, 'It has more than 1000 blocks in its answer.'],
    [100_000, TOO_MANY],
  ])('%i blocks in the answer of a tool are refused', async (length, reason) => {
    args = {};
    const content = Array.from({ length }, () => ({ type: 'text' as const, text: '' }));
    const url = await serve([{ name: 'work', call: () => ({ content }) }]);
    await service.report();
    const { body } = await invoke([url]);
    const error = `MCP server \`${new URL(url).host}\` failed in \`work\`. ${reason}`;
    expect(body).toMatchObject({ error: null, output: JSON.stringify({ error }) });
    expect((await service.report()).longestMs).toBeLessThan(FROZEN_MS);
  });

  test('an invocation has 16 servers, and a user 32 connections to one', async () => {
    const url = await serve([{ name: 'work' }]);
    args = {};
    const many = await invoke(Array.from({ length: 17 }, () => url));
    expect(many.body).toMatchObject({ error: '17 MCP servers are more than one invocation may have: 16.' });
    const { promise: held, resolve: release } = Promise.withResolvers<void>();
    let running = 0;
    const call = async () => {
      running += 1;
      await held;
      return { content: [] };
    };
    const slow = await serve([{ name: 'work', call }]);
    const servers = Array.from({ length: 16 }, () => slow);
    const waiting = [invoke(servers), invoke(servers)];
    await expect.poll(() => running).toBe(2);
    const host = new URL(slow).host;
    expect((await invoke([slow])).body).toMatchObject({
      error: `MCP server \`${host}\` has 32 connections of this user, the maximum. Try again when others have ended.`,
    });
    const other = invoke([slow], 'alice');
    release();
    expect((await Promise.all([other, ...waiting])).map(({ body }) => body)).toMatchObject(
      Array.from({ length: 3 }, () => ({ error: null })),
    );
  });
});
