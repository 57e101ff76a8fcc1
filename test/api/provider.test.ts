import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pino from 'pino';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { getFunctionCalls, getFunctionResponses } from '../../src/core/content.ts';
import type { Event } from '../../src/core/event.ts';
import { getBreak } from '../../src/agent/loop/prefix.ts';
import { type Answer, startApp, type TestApp } from '../support/app.ts';
import { type FakeAnswer, type FakeProvider, startFakeProvider } from '../support/fake-provider.ts';
import { type FakeMcp, startMcpServer } from '../support/mcp-server.ts';
import { leastStatements } from '../support/store.ts';

/**
 * The whole service against a server that speaks the OpenAI wire: what goes over it, and what comes of its failures.
 */

const KEY = 'sk-canary-of-the-provider';
const RUNTIME_KEY = 'canary-of-the-runtime';
const MCP_BEARER = 'canary-of-an-mcp-server';
const PROMPT = 'canary of a prompt';
const SECRETS = [KEY, RUNTIME_KEY, MCP_BEARER, PROMPT];

const settings = {
  MODEL_PROVIDER: 'openai-compatible',
  MODEL_NAME: 'small',
  MODEL_API_KEY: KEY,
  MODEL_MAX_RETRIES: '1',
  SYSTEM_PROMPT: 'Be helpful.',
  SKILLS_DIR: 'test/support/skills',
  RUNTIME_API_KEYS: RUNTIME_KEY,
  LOG_LEVEL: 'trace',
  DEV_UI: 'false',
  // Nothing but the request under test may speak to the database: neither the sweeper nor renewals.
  SESSION_LEASE_MS: '600000',
};

const script: FakeAnswer[] = [];
const logged: string[] = [];
let provider: FakeProvider;
let mcp: FakeMcp;
let app: TestApp;

const start = (more: Record<string, string> = {}) =>
  startApp(
    { ...settings, MODEL_BASE_URL: provider.baseUrl, MCP_ALLOWED_HOSTS: new URL(mcp.url).origin, ...more },
    { log: pino({ level: 'trace' }, { write: (line: string) => void logged.push(line) }) },
  );

/** As `start`, for one test. */
async function startForTest(more: Record<string, string>): Promise<TestApp> {
  const service = await start(more);
  onTestFinished(() => service.close());
  return service;
}

beforeAll(async () => {
  provider = await startFakeProvider('openai-compatible', script);
  mcp = await startMcpServer(
    [{ name: 'look_up', call: ({ word }) => ({ content: [{ type: 'text', text: `${String(word)}: found` }] }) }],
    {
      intercept: (request, response, body) => {
        const isRefused = request.headers['x-refuse'] !== undefined;
        if (isRefused) response.writeHead(403).end(`${String(request.headers.authorization)} ${body}`);
        return isRefused;
      },
    },
  );
  app = await start();
});
afterAll(async () => {
  await app.close();
  await mcp.close();
  await provider.close();
});

/** The setting for a file with these sampling parameters of the agent. */
function withSampling(sampling: object): { HARNESS_FILE: string } {
  const HARNESS_FILE = join(mkdtempSync(join(tmpdir(), 'sampling-')), 'harness.yaml');
  writeFileSync(HARNESS_FILE, JSON.stringify({ sampling }));
  return { HARNESS_FILE };
}

/** The provider answers so from now on, the last answer for ever. */
function play(...answers: FakeAnswer[]): void {
  script.splice(0, script.length, ...answers);
  provider.requests.length = 0;
}

const call = (name: string, args: object, id = 'c1') => ({ id, name, arguments: JSON.stringify(args) });
const authorization = { authorization: `Bearer ${RUNTIME_KEY}` };
const message = (text: string) => ({ role: 'user', parts: [{ text }] });

const invoke = (sessionId: string, harness?: object, { prompt = PROMPT, to = app, limit = 10 } = {}): Promise<Answer> =>
  to.post(
    '/harness/invoke',
    {
      prompt,
      harness_name: 'demo',
      run_agent_request: { user_id: 'u', session_id: sessionId, max_llm_calls: limit },
      ...(harness ? { harness } : {}),
    },
    authorization,
  );
const answered = (output: string, overwrite = false) => ({ harness_name: 'demo', overwrite, output, error: null });

async function events(sessionId: string, from = app): Promise<Event[]> {
  const { body } = await from.get(`/apps/harness_agent/users/u/sessions/${sessionId}`, authorization);
  return (body as { events: Event[] }).events;
}

/** Every function call has exactly one response, and the response stands behind it. */
function expectPaired(stored: Event[]): void {
  const open: string[] = [];
  for (const { content } of stored) {
    for (const { id } of getFunctionResponses(content)) {
      expect(open).toContain(id);
      open.splice(open.indexOf(id ?? ''), 1);
    }
    for (const { id } of getFunctionCalls(content)) open.push(id ?? '');
  }
  expect(open).toEqual([]);
}

/** Messages of the n-th request that the provider got, as the OpenAI wire has them. */
const sent = (n: number) => provider.requests[n]?.body['messages'];
const sentTools = (n: number) =>
  ((provider.requests[n]?.body['tools'] ?? []) as { function: { name: string } }[]).map((tool) => tool.function.name);

const usage = {
  promptTokenCount: 100,
  cachedContentTokenCount: 40,
  candidatesTokenCount: 20,
  thoughtsTokenCount: 7,
  totalTokenCount: 127,
};

describe('an invocation', () => {
  test('a tool call, then an answer: on the wire, in the response and in the session', async () => {
    play({ calls: [call('calculator', { expression: '17 * 23' })] }, { text: ['It is ', '391.'] });
    const { status, body } = await invoke('tool');
    expect([status, body]).toEqual([200, answered('It is 391.')]);
    expect(provider.requests.map(({ path, body: { model } }) => [path, model])).toEqual([
      ['/v1/chat/completions', 'small'],
      ['/v1/chat/completions', 'small'],
    ]);
    expect(provider.requests[0]?.headers.authorization).toBe(`Bearer ${KEY}`);
    expect(sent(1)).toEqual([
      { role: 'system', content: 'Be helpful.' },
      { role: 'user', content: PROMPT },
      {
        role: 'assistant',
        content: null,
        tool_calls: [
          { id: 'c1', type: 'function', function: { name: 'calculator', arguments: '{"expression":"17 * 23"}' } },
        ],
      },
      { role: 'tool', tool_call_id: 'c1', content: '{"result":391}' },
    ]);
    const stored = await events('tool');
    const model = {
      author: 'harness_agent',
      modelVersion: 'fake-model-2026',
      finishReason: 'STOP',
      usageMetadata: usage,
    };
    expect(stored).toMatchObject([
      { author: 'user', content: message(PROMPT) },
      { ...model, content: { parts: [{ functionCall: { id: 'c1', args: { expression: '17 * 23' } } }] } },
      { content: { parts: [{ functionResponse: { id: 'c1', name: 'calculator', response: { result: 391 } } }] } },
      { ...model, content: { role: 'model', parts: [{ text: 'It is 391.' }] } },
    ]);
    expectPaired(stored);
  });

  test('its cost in round trips: 3, 2 in a new session, and 2 more for a step with tools', async () => {
    const least = (budget: number, sessionId: (run: number) => string, ...answers: Parameters<typeof play>) =>
      leastStatements(budget, (run) => {
        play(...answers);
        return invoke(sessionId(run));
      });
    const isNew = (run: number) => `new-${run}`;
    expect(await least(2, isNew, { text: ['Hello.'] })).toBe(2);
    expect(await least(3, () => 'new-0', { text: ['Hello.'] })).toBe(3);
    const calls = [call('calculator', { expression: '1' }, 'a'), call('calculator', { expression: '2' }, 'b')];
    expect(await least(5, () => 'new-1', { calls }, { text: ['Done.'] })).toBe(5);
  });

  test.each(['of the request', 'of the deployment'])('a tool of an MCP server %s', async (whose) => {
    const server = { name: 'words', url: mcp.url, headers: { authorization: `Bearer ${MCP_BEARER}` } };
    const isDeployed = whose === 'of the deployment';
    const service = isDeployed ? await startForTest({ MCP_SERVERS: JSON.stringify([server]) }) : app;
    mcp.headers.length = 0;
    play({ calls: [call('look_up', { word: 'tea' })] }, { text: ['Tea was found.'] });
    const { body } = await invoke('mcp', isDeployed ? undefined : { mcp_servers: [server] }, { to: service });
    expect(body).toEqual(answered('Tea was found.'));
    expect(sentTools(0)).toEqual(['current_time', 'calculator', 'look_up']);
    const stored = await events('mcp', service);
    expect(getFunctionResponses(stored[2]?.content)).toMatchObject([{ id: 'c1', response: { result: 'tea: found' } }]);
    expect(new Set(mcp.headers.map((headers) => headers.authorization))).toEqual(new Set([`Bearer ${MCP_BEARER}`]));
    expect(mcp.openSessions()).toBe(0);
    if (isDeployed) {
      play({ text: ['Without.'] });
      expect((await invoke('cleared', { mcp_servers: [] }, { to: service })).body).toEqual(answered('Without.'));
      expect(sentTools(0)).toEqual(['current_time', 'calculator']);
    }
  });

  test("tools of an MCP server: another order is the same prompt, another list is a break of the provider's cache", async () => {
    const listed = ['b', 'C', 'a', 'look_up'].map((name) => ({ name }));
    const server = await startMcpServer(listed);
    onTestFinished(() => server.close());
    const service = await startForTest({
      MCP_SERVERS: JSON.stringify([{ name: 'words', url: server.url }]),
      MCP_ALLOWED_HOSTS: new URL(server.url).origin,
      ...withSampling({ prompt_caching: true }),
    });
    play({ text: ['Yes.'] });
    const ask = () => invoke('order', undefined, { to: service });
    await ask();
    listed.reverse();
    await ask();
    listed.push({ name: 'added' });
    await ask();
    const sorted = ['C', 'a', 'b', 'look_up'];
    expect([0, 1, 2].map((place) => sentTools(place).slice(2))).toEqual([
      sorted,
      sorted,
      ['C', 'a', 'added', 'b', 'look_up'],
    ]);
    const answers = (await events('order', service)).filter(({ author }) => author !== 'user');
    expect(answers.map(getBreak)).toEqual([undefined, undefined, { part: 'tools', why: 'since the last invocation' }]);
  });

  test('a skill: its name is in the prompt, its body and its resources come on demand', async () => {
    play(
      { calls: [call('load_skill', { name: 'haiku' })] },
      { calls: [call('load_skill_resource', { name: 'haiku', path: 'references/season-words.md' }, 'c2')] },
      { text: ['Frost on the window.'] },
    );
    const { body } = await invoke('skill', { skills: 'haiku' });
    expect(body).toEqual(answered('Frost on the window.', true));
    expect(JSON.stringify(sent(0))).toContain('- haiku: Writes a haiku about a subject.');
    expect(JSON.stringify(sent(0))).not.toContain('syllables');
    const responses = (await events('skill')).flatMap(({ content }) => getFunctionResponses(content));
    expect(responses.map(({ response }) => response)).toEqual([
      {
        name: 'haiku',
        instructions: expect.stringContaining('syllables'),
        resources: ['references/season-words.md'],
      },
      {
        path: 'references/season-words.md',
        text: readFileSync('test/support/skills/haiku/references/season-words.md', 'utf8'),
      },
    ]);
  });

  test('429, then an answer', async () => {
    play({ status: 429 }, { text: ['At last.'] });
    expect((await invoke('busy')).body).toEqual(answered('At last.'));
    expect(provider.requests).toHaveLength(2);
    expect(await events('busy')).toHaveLength(2);
  });
});

test('OpenAI is told which requests are of one session, unless the agent says no', async () => {
  const openai = await startFakeProvider('openai', [{ text: ['ok'] }]);
  onTestFinished(() => openai.close());
  const of = { MODEL_PROVIDER: 'openai', MODEL_BASE_URL: openai.baseUrl };
  const service = await startForTest(of);
  for (const session of ['one', 'two', 'one']) await invoke(session, undefined, { to: service });
  const silent = await startForTest({ ...of, ...withSampling({ prompt_caching: false }) });
  await invoke('one', undefined, { to: silent });
  const [first, other, again, ...unnamed] = openai.requests.map(({ body }) => body['prompt_cache_key']);
  expect(first).toMatch(/^[-\da-f]{36}$/);
  expect(again).toBe(first);
  expect(other).not.toBe(first);
  expect(unnamed).toEqual([undefined]);
});

describe('a failure is answered with 200, an empty output and a sentence, and is the last event', () => {
  const quoting = { error: { message: `Wrong: ${KEY} ${PROMPT}`, type: 'some_error', code: 'some_code' } };
  const aCall = { calls: [call('calculator', { expression: '1 + 1' })] };
  const refusal =
    'The model `small` of openai-compatible refused the key. ' +
    'Check MODEL_API_KEY and that the key may use this model. (HTTP 401, some_code)';

  test.each<[string, FakeAnswer[], code: string, error: string, stored: number]>([
    ['a refused key', [{ status: 401, errorBody: quoting }], 'model_unauthorized', refusal, 2],
    ['a key refused in the middle', [aCall, { status: 401, errorBody: quoting }], 'model_unauthorized', refusal, 4],
    [
      'a quota that is used up',
      [{ status: 429, errorBody: quoting }],
      'model_rate_limited',
      'The model `small` of openai-compatible limits the rate of calls or the quota is used up. ' +
        'Try again later. (HTTP 429, some_code)',
      2,
    ],
    [
      'a provider that is down',
      [aCall, { status: 503, errorBody: quoting }],
      'model_unavailable',
      'The model `small` of openai-compatible is not available or could not be reached. Try again later, ' +
        'or check MODEL_BASE_URL. (HTTP 503, some_code)',
      4,
    ],
    [
      'a stream that is cut',
      [{ text: ['It is'], stop: 'end' }],
      'model_stream_cut',
      'The model `small` of openai-compatible broke off in the middle of its answer. Try again.',
      2,
    ],
    ['an empty answer', [aCall, {}], 'empty_answer', 'The model `small` gave an empty answer.', 4],
  ])('%s', async (name, answers, code, error, stored) => {
    play(...answers);
    const { status, body } = await invoke(name);
    expect([status, body]).toEqual([200, { harness_name: 'demo', overwrite: false, output: '', error }]);
    const all = await events(name);
    expect(all).toHaveLength(stored);
    expect(all.at(-1)).toMatchObject({ author: 'harness_agent', errorCode: code, errorMessage: error });
    expectPaired(all);
  });

  test.each<[string, FakeAnswer]>([
    ['before its answer', { stop: 'silent' }],
    ['in its answer', { text: ['It is'], stop: 'hang' }],
  ])('a provider that hangs %s', async (_where, answer) => {
    const impatient = await startForTest({ MODEL_TIMEOUT_MS: '1000' });
    play({ calls: [call('calculator', { expression: '1 + 1' })] }, answer);
    const { status, body } = await invoke('hang', undefined, { to: impatient });
    const error = 'The model `small` of openai-compatible sent nothing for too long.';
    expect([status, body]).toEqual([200, { harness_name: 'demo', overwrite: false, output: '', error }]);
    await provider.dropped;
    const stored = await events('hang', impatient);
    expect(stored.at(-1)).toMatchObject({ errorCode: 'model_timeout', errorMessage: error });
    expectPaired(stored);
  });

  test('a limit of one model call', async () => {
    play({ calls: [call('calculator', { expression: '1 + 1' })] }, { text: ['Too late.'] });
    const { status, body } = await invoke('limit', undefined, { limit: 1 });
    const error = 'Max number of llm calls limit of `1` exceeded';
    expect([status, body]).toEqual([200, { harness_name: 'demo', overwrite: false, output: '', error }]);
    expect(provider.requests).toHaveLength(1);
    const stored = await events('limit');
    expect(stored.at(-1)).toMatchObject({ errorCode: 'llm_calls_limit', errorMessage: error });
    expectPaired(stored);
  });

  test('an MCP server that refuses is named, its answer is not repeated', async () => {
    play({ text: ['Never asked.'] });
    const headers = { authorization: `Bearer ${MCP_BEARER}`, 'x-refuse': 'yes' };
    const { status, body } = await invoke('forbidden', { mcp_servers: [{ name: 'words', url: mcp.url, headers }] });
    const error = 'MCP server `words` could not be reached. It answered HTTP 403.';
    expect([status, body]).toEqual([200, { harness_name: 'demo', overwrite: false, output: '', error }]);
    expect(provider.requests).toHaveLength(0);
    expect((await events('forbidden')).at(-1)).toMatchObject({ errorCode: 'mcp_failed', errorMessage: error });
  });

  test.each(['fail', 'skip'])('an MCP server that is down, on_failure: %s', async (onFailure) => {
    const gone = await startMcpServer([]);
    gone.kill();
    const MCP_SERVERS = JSON.stringify([{ name: 'words', url: gone.url, on_failure: onFailure }]);
    const service = await startForTest({ MCP_SERVERS, MCP_ALLOWED_HOSTS: new URL(gone.url).origin });
    play({ text: ['Without it.'] });
    const { status, body } = await invoke('down', {}, { to: service });
    const error = 'MCP server `words` could not be reached. The connection failed.';
    const isSkipped = onFailure === 'skip';
    const result = isSkipped ? answered('Without it.') : { ...answered(''), error };
    expect([status, body]).toEqual([200, result]);
    expect(await events('down', service)).toHaveLength(2);
    expect((await events('down', service)).at(-1)).toMatchObject(
      isSkipped ? { modelVersion: 'fake-model-2026' } : { errorCode: 'mcp_failed', errorMessage: error },
    );
  });

  test('a tool that makes the state too large', async () => {
    const small = await startForTest({ MAX_STATE_BYTES: '1024' });
    logged.length = 0;
    play({ calls: [call('write_state', { key: 'note', value: PROMPT.repeat(100) })] }, { text: ['Never asked.'] });
    const { status, body } = await invoke('state', { tools: ['write_state'] }, { to: small });
    const error = 'The state would be larger than MAX_STATE_BYTES.';
    expect([status, body]).toEqual([200, { harness_name: 'demo', overwrite: true, output: '', error }]);
    expectPaired(await events('state', small));
    expect(logged.filter((line) => SECRETS.some((secret) => line.includes(secret)))).toEqual([]);
  });

  test('the conversation goes on after it', async () => {
    play({ calls: [call('calculator', { expression: '1 + 1' })] }, { status: 401 }, { text: ['Here again.'] });
    await invoke('goes on');
    expect((await invoke('goes on', undefined, { prompt: 'And now?' })).body).toEqual(answered('Here again.'));
    expect(sent(2)).toEqual([...(sent(1) as object[]), { role: 'user', content: 'And now?' }]);
  });

  test('a message that was refused is not sent again with the next one', async () => {
    play({ status: 400 }, { text: ['Here.'] });
    expect((await invoke('refused', undefined, { prompt: 'Explode!' })).body).toMatchObject({
      error: expect.stringContaining('refused the request'),
    });
    const unknown = await invoke('refused', { tools: ['nope'] }, { prompt: 'Hello?' });
    expect(unknown.body).toMatchObject({ error: expect.stringContaining('Tool `nope` is not a supported') });
    expect((await invoke('refused', undefined, { prompt: 'Hello?' })).body).toEqual(answered('Here.'));
    expect((sent(1) as object[]).slice(1)).toEqual([{ role: 'user', content: 'Hello?' }]);
    const texts = (await events('refused')).map((event) => event.content?.parts?.[0]?.text ?? event.errorCode);
    expect(texts).toEqual(['Explode!', 'model_rejected', 'unknown_tool', 'Hello?', 'Here.']);
  });

  test('files that no model takes do not end a session: text-like ones are read, others named', async () => {
    const docx = 'application/vnd.openxmlformats-officedocument.wordprocessingml.document';
    const file = (displayName: string, mimeType: string, text: string) => ({
      inlineData: { displayName, mimeType, data: Buffer.from(text).toString('base64url') },
    });
    const parts = [
      { text: 'Read these.' },
      file('a.csv', 'application/csv', 'a,b'),
      file('b.xml', 'Application/XML; charset=utf-8', '<b/>'),
      file('c.docx', docx, 'PK\u0003\u0004\u0000'),
    ];
    play({ text: ['Read.'] });
    const session = { appName: 'harness_agent', userId: 'u', sessionId: 'files' };
    await app.post('/apps/harness_agent/users/u/sessions', { sessionId: 'files' }, authorization);
    const { status, body } = await app.post('/run', { ...session, newMessage: { role: 'user', parts } }, authorization);
    expect([status, (body as Event[]).at(-1)?.content?.parts]).toEqual([200, [{ text: 'Read.' }]]);
    const [, prompt] = sent(0) as { content: string }[];
    expect(prompt?.content.split('\n\n')).toEqual([
      'Read these.',
      'File a.csv:\na,b',
      'File b.xml:\n<b/>',
      expect.stringMatching(/^\(The file c\.docx of the type .*, 5 bytes, is not shown: /),
    ]);
    expect((await invoke('files', undefined, { prompt: 'And now?' })).body).toEqual(answered('Read.'));
  });

  test('a message after a passing failure is sent with the one before, a blank line between', async () => {
    play({ status: 401 }, { text: ['Here.'] });
    await invoke('failed', undefined, { prompt: 'First.' });
    expect((await invoke('failed', undefined, { prompt: 'Second.' })).body).toEqual(answered('Here.'));
    const [, ...messages] = sent(1) as { content: unknown }[];
    // A string, since many servers of this wire take no list of texts.
    expect(messages).toEqual([{ role: 'user', content: 'First.\n\nSecond.' }]);
  });

  test('no secret and no prompt is in what was answered or logged', async () => {
    const server = (more: object) => ({
      name: 'words',
      url: mcp.url,
      headers: { authorization: `Bearer ${MCP_BEARER}`, ...more },
    });
    const failures: [FakeAnswer[], object][] = [
      [[{ status: 401, errorBody: quoting }], {}],
      [[{ status: 400, errorBody: quoting }], { system_prompt: PROMPT }],
      [[{ status: 404, errorBody: { error: { message: KEY, code: KEY } } }], {}],
      [[{ text: [PROMPT], stop: 'end' }], {}],
      [[{ text: ['x'] }], { mcp_servers: [server({ 'x-refuse': 'yes' })] }],
      [[{ text: ['x'] }], { mcp_servers: [{ ...server({}), url: 'http://169.254.169.254/mcp' }] }],
      [[{ text: ['x'] }], { mcp_servers: [{ ...server({}), url: `not a url ${MCP_BEARER}` }] }],
      [[{ text: ['x'] }], { skills: ['no-such-skill'] }],
    ];
    logged.length = 0;
    const seen: string[] = [];
    for (const [number, [answers, harness]] of failures.entries()) {
      play(...answers);
      const { status, text, body } = await invoke(`leak-${number}`, harness);
      expect([status, body]).toMatchObject([200, { output: '', error: expect.any(String) }]);
      await app.post('/apps/harness_agent/users/u/sessions', { sessionId: `leak-run-${number}` }, authorization);
      const request = { appName: 'harness_agent', userId: 'u', sessionId: `leak-run-${number}`, harness };
      const run = await app.post('/run', { ...request, newMessage: message(PROMPT) }, authorization);
      const sse = await app.post('/run_sse', { ...request, newMessage: message(PROMPT) }, authorization);
      expect([run.status, sse.status]).toEqual([200, 200]);
      const stored = (await events(`leak-run-${number}`)).filter(({ author }) => author !== 'user');
      seen.push(text, run.text, sse.text, JSON.stringify(stored));
    }
    const denied = await app.post('/harness/invoke', { prompt: PROMPT }, { authorization: `Bearer ${RUNTIME_KEY}x` });
    expect(denied.status).toBe(401);
    seen.push(denied.text, ...logged);
    for (const secret of SECRETS) expect(seen.filter((text) => text.includes(secret))).toEqual([]);
  });
});

describe('overrides', () => {
  const full = {
    model_name: 'large',
    system_prompt: 'Speak like a pirate.',
    tools: ['read_state', 'calculator'],
    temperature: 0.5,
    top_p: 0.25,
    max_tokens: 64,
    presence_penalty: 1,
    frequency_penalty: -1,
  };
  /** The members of a request that an override can change. */
  const changeable = (body: Record<string, unknown> | undefined) => {
    const { model, messages, temperature, top_p, max_tokens, presence_penalty, frequency_penalty } = body ?? {};
    const [system] = messages as unknown[];
    return { model, system, temperature, top_p, max_tokens, presence_penalty, frequency_penalty };
  };
  const overridden = {
    model: 'large',
    system: { role: 'system', content: 'Speak like a pirate.' },
    temperature: 0.5,
    top_p: 0.25,
    max_tokens: 64,
    presence_penalty: 1,
    frequency_penalty: -1,
  };
  const deployed = { model: 'small', system: { role: 'system', content: 'Be helpful.' } };

  test.each(['/harness/invoke', '/run', '/run_sse'])(
    '%s: they reach the wire, and only for this request',
    async (path) => {
      const sessionId = `overrides${path}`;
      await app.post('/apps/harness_agent/users/u/sessions', { sessionId }, authorization);
      const ask = (harness?: object) =>
        path === '/harness/invoke'
          ? invoke(sessionId, harness)
          : app.post(
              path,
              { appName: 'harness_agent', userId: 'u', sessionId, newMessage: message(PROMPT), harness },
              authorization,
            );
      play({ text: ['Aye.'] });
      for (const harness of [undefined, full, undefined]) expect((await ask(harness)).status).toBe(200);
      expect(provider.requests.map(({ body }) => changeable(body))).toEqual([deployed, overridden, deployed]);
      const usual = ['current_time', 'calculator'];
      expect([0, 1, 2].map(sentTools)).toEqual([usual, [...usual, 'read_state'], usual]);
    },
  );

  test.each<[object, boolean]>([
    [{ model_name: 'large' }, true],
    [{ temperature: 0 }, true],
    [{ max_llm_calls: 3 }, true],
    [{ skills: ['haiku'] }, true],
    [{ mcp_servers: [], model_name: null }, false],
    [{}, false],
  ])('%j: overwrite is %s', async (harness, overwrite) => {
    play({ text: ['Aye.'] });
    expect((await invoke('overwrite', harness)).body).toEqual(answered('Aye.', overwrite));
  });

  test('parallel invocations do not see those of each other', async () => {
    play({ text: ['Aye.'] });
    const numbers = Array.from({ length: 16 }, (_, number) => number);
    const answers = await Promise.all(
      numbers.map((n) =>
        invoke(
          `parallel-${n}`,
          n % 4 === 0 ? undefined : { model_name: `model-${n}`, system_prompt: `You are ${n}.`, temperature: n / 16 },
          { prompt: `I am ${n}.` },
        ),
      ),
    );
    expect(answers.map(({ body }) => body)).toEqual(numbers.map((n) => answered('Aye.', n % 4 !== 0)));
    const got = provider.requests.map(({ body }) => [body['model'], body['temperature'], body['messages']]);
    const wanted = numbers.map((n) => {
      const [model, temperature, system] =
        n % 4 === 0 ? ['small', undefined, 'Be helpful.'] : [`model-${n}`, n / 16, `You are ${n}.`];
      return [
        model,
        temperature,
        [
          { role: 'system', content: system },
          { role: 'user', content: `I am ${n}.` },
        ],
      ];
    });
    expect(got).toHaveLength(wanted.length);
    expect(got).toEqual(expect.arrayContaining(wanted));
  });
});

describe('a sentence names what said which model is called', () => {
  const UNKNOWN = 'The model `nosuch` of openai-compatible does not know this model. Check ';
  const inCode = (model: object) => `export const agent = { instruction: 'Answer.', model: ${JSON.stringify(model)} };`;
  test.each<[string, (baseUrl: string) => Record<string, string>, told: string]>([
    [
      'the environment',
      (MODEL_BASE_URL) => ({ MODEL_PROVIDER: 'openai-compatible', MODEL_NAME: 'nosuch', MODEL_BASE_URL }),
      'MODEL_NAME and MODEL_BASE_URL.',
    ],
    [
      'harness.yaml',
      (base_url) => {
        const HARNESS_FILE = join(mkdtempSync(join(tmpdir(), 'origin-')), 'harness.yaml');
        const model = { provider: 'openai-compatible', name: 'nosuch', base_url };
        writeFileSync(HARNESS_FILE, JSON.stringify({ model }));
        return { HARNESS_FILE };
      },
      '`name` of `model` in harness.yaml and `base_url` of `model` in harness.yaml.',
    ],
    [
      'an agent in code, beside another model of the environment',
      (baseUrl) => {
        const AGENTS_DIR = mkdtempSync(join(tmpdir(), 'origin-'));
        mkdirSync(join(AGENTS_DIR, 'harness_agent'));
        const code = inCode({ provider: 'openai-compatible', name: 'nosuch', baseUrl });
        writeFileSync(join(AGENTS_DIR, 'harness_agent', 'agent.ts'), code);
        const other = {
          MODEL_PROVIDER: 'openai-compatible',
          MODEL_BASE_URL: 'http://127.0.0.1:9/v1',
          MODEL_NAME: 'nosuch',
        };
        return { AGENTS_DIR, ...other };
      },
      "`name` of the agent's model and `baseUrl` of the agent's model.",
    ],
    [
      'an agent in code by its name alone',
      (MODEL_BASE_URL) => {
        const AGENTS_DIR = mkdtempSync(join(tmpdir(), 'origin-'));
        mkdirSync(join(AGENTS_DIR, 'harness_agent'));
        writeFileSync(join(AGENTS_DIR, 'harness_agent', 'agent.ts'), inCode({ name: 'nosuch' }));
        return { AGENTS_DIR, MODEL_PROVIDER: 'openai-compatible', MODEL_NAME: 'other', MODEL_BASE_URL };
      },
      'the name in `model` of the agent and MODEL_BASE_URL.',
    ],
  ])('%s', async (_who, environment, told) => {
    const server = createServer((_request, response) => response.writeHead(404).end('{"error":{"code":"unknown"}}'));
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const own = await startApp({
      DEV_UI: 'false',
      ...environment(`http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`),
    });
    try {
      const request = { user_id: 'u', session_id: 's' };
      const { body } = await own.post('/harness/invoke', {
        prompt: 'Hi',
        harness_name: 'd',
        run_agent_request: request,
      });
      expect(body).toMatchObject({ error: `${UNKNOWN}${told} (HTTP 404, unknown)` });
    } finally {
      await own.close();
      server.close();
    }
  });
});
