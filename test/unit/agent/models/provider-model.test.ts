import { readFileSync } from 'node:fs';
import { afterEach, describe, expect, test } from 'vitest';
import { createModel, type ModelSettings } from '../../../../src/agent/models/create-model.ts';
import {
  type FailedTry,
  GO_ON,
  type ModelAnswer,
  type ModelDelta,
  type ModelRequest,
  type ToolChoice,
} from '../../../../src/agent/definition/model.ts';
import { fitTools } from '../../../../src/agent/models/fit-tools.ts';
import { findProvider, type ProviderName, PROVIDERS } from '../../../../src/agent/providers/index.ts';
import { isStrict } from '../../../../src/agent/providers/openai.ts';
import { AgentError } from '../../../../src/core/errors.ts';
import type { Content } from '../../../../src/core/content.ts';
import { startFakeProvider, type FakeAnswer, type FakeProvider } from '../../../support/fake-provider.ts';

const KEY = 'key-canary-12345';
const PROMPT = 'prompt-canary';
const servers: FakeProvider[] = [];
afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => server.close()));
});

async function start(provider: ProviderName, script: FakeAnswer[], settings: Partial<ModelSettings> = {}) {
  const server = await startFakeProvider(provider, script);
  servers.push(server);
  const model = createModel({
    provider,
    apiKey: KEY,
    baseUrl: server.baseUrl,
    retryDelayMs: 1,
    maxRetries: 2,
    ...settings,
  });
  return { server, model };
}

const toRequest = (members: Partial<ModelRequest> = {}): ModelRequest => ({
  modelName: 'fake-model',
  instruction: 'Be brief.',
  contents: [{ role: 'user', parts: [{ text: PROMPT }] }],
  tools: [],
  sampling: {},
  signal: new AbortController().signal,
  ...members,
});

async function collect(stream: AsyncGenerator<ModelDelta, ModelAnswer, void>) {
  const deltas: Content[] = [];
  for (;;) {
    const next = await stream.next();
    if (next.done) return { deltas, answer: next.value };
    deltas.push(next.value.content);
  }
}

async function ask(provider: ProviderName, script: FakeAnswer[], members: Partial<ModelRequest> = {}) {
  const { server, model } = await start(provider, script);
  return { server, ...(await collect(model.generate(toRequest(members)))) };
}

async function failure(provider: ProviderName, script: FakeAnswer[], settings: Partial<ModelSettings> = {}) {
  const { server, model } = await start(provider, script, settings);
  const error: unknown = await collect(model.generate(toRequest())).catch((caught: unknown) => caught);
  expect(error).toBeInstanceOf(AgentError);
  const { code, message } = error as AgentError;
  expect(message).not.toContain(KEY);
  expect(message).not.toContain(PROMPT);
  return { server, code, message };
}

const parameters = {
  type: 'object',
  properties: { n: { type: 'number', minimum: 0 }, place: { $ref: '#/$defs/place' } },
  $defs: { place: { type: 'string', enum: ['a', 'b'] } },
  required: ['n'],
};
const tools = [{ name: 'work', description: 'Works.', parameters }];
const usageMetadata = {
  promptTokenCount: 100,
  cachedContentTokenCount: 40,
  candidatesTokenCount: 20,
  thoughtsTokenCount: 7,
  totalTokenCount: 127,
};
const CALLS = [{ id: 'call-1', name: 'work', arguments: '{"n":1}' }];
const NAMES = PROVIDERS.map(({ name }) => name);

test('what the providers take of thoughts and of forms of answers', () => {
  const facts = PROVIDERS.map(({ name }) => [name, findProvider(name).facts(undefined, 'fake-model')] as const);
  expect(Object.fromEntries(facts)).toMatchObject({
    openai: { takesThoughts: true, outputSchemas: 'enforced' },
    'openai-compatible': { takesThoughts: true, outputSchemas: 'tried' },
    anthropic: { takesThoughts: true, outputSchemas: 'enforced' },
    google: { takesThoughts: true, outputSchemas: 'enforced' },
  });
});

describe.each(NAMES)('%s', (provider) => {
  test('text, streamed as it comes, with version, reason and usage', async () => {
    const { deltas, answer, server } = await ask(provider, [{ text: ['Hel', 'lo ', 'there'] }]);
    expect(deltas).toEqual(['Hel', 'lo ', 'there'].map((text) => ({ role: 'model', parts: [{ text }] })));
    expect(answer).toEqual({
      content: { role: 'model', parts: [{ text: 'Hello there' }] },
      modelVersion: 'fake-model-2026',
      finishReason: 'STOP',
      usageMetadata,
    });
    expect(server.requests).toHaveLength(1);
    expect(JSON.stringify(server.requests[0]?.headers)).toContain(KEY);
    expect(JSON.stringify(server.requests[0]?.body)).toContain('Be brief.');
  });

  test('a tool call; the schema arrives unharmed', async () => {
    const script = [{ calls: [{ id: 'call-1', name: 'work', arguments: '{"n":1}' }] }];
    const { answer, deltas, server } = await ask(provider, script, { tools });
    expect(deltas).toEqual([]);
    expect(answer).toMatchObject({
      content: { role: 'model', parts: [{ functionCall: { id: 'call-1', name: 'work', args: { n: 1 } } }] },
      finishReason: 'STOP',
    });
    // Google's list of words has no references.
    const told = provider === 'google' ? { ...parameters.properties, place: parameters.$defs.place } : parameters;
    expect(JSON.stringify(server.requests[0]?.body)).toContain(JSON.stringify(told));
  });

  test('two parallel calls beside a text', async () => {
    const calls = [
      { id: 'a', name: 'work', arguments: '{"n":1}' },
      { id: 'b', name: 'work', arguments: '{"n":2}' },
    ];
    const { answer } = await ask(provider, [{ text: ['Both: '], calls }], { tools });
    expect(answer.content?.parts).toEqual([
      { text: 'Both: ' },
      { functionCall: { id: 'a', name: 'work', args: { n: 1 } } },
      { functionCall: { id: 'b', name: 'work', args: { n: 2 } } },
    ]);
  });

  test('a conversation with calls and responses is told in order, ids paired', async () => {
    const contents: Content[] = [
      { role: 'user', parts: [{ text: 'go' }] },
      {
        role: 'model',
        parts: [
          { text: 'Both.' },
          { functionCall: { id: 'callOfOne', name: 'work', args: { n: 1 } } },
          { functionCall: { id: 'callOfTwo', name: 'work', args: { n: 2 } } },
        ],
      },
      {
        role: 'user',
        parts: [
          { functionResponse: { id: 'callOfOne', name: 'work', response: { first: 11 } } },
          { functionResponse: { id: 'callOfTwo', name: 'work', response: { error: 'second failed' } } },
          { text: 'and now?' },
        ],
      },
    ];
    const { server, answer } = await ask(provider, [{ text: ['ok'] }], { contents, tools });
    const body = JSON.stringify(server.requests[0]?.body);
    const told = ['Both.', '"callOfOne"', '"callOfTwo"', 'first', 'second failed', 'and now?'];
    const places = told.map((text) => body.indexOf(text));
    expect(places.every((place) => place > 0)).toBe(true);
    expect([...places].sort((one, other) => one - other)).toEqual(places);
    expect(answer.content?.parts).toEqual([{ text: 'ok' }]);
  });

  test('an image goes in', async () => {
    const image = { inlineData: { mimeType: 'image/png', data: 'iVBORw0KGgo=' } };
    const contents = [{ role: 'user', parts: [{ text: 'what is it?' }, image] }];
    const { server } = await ask(provider, [{ text: ['a dot'] }], { contents });
    expect(JSON.stringify(server.requests[0]?.body)).toContain('iVBORw0KGgo=');
  });

  test('an image in a tool result goes in', async () => {
    const parts = [{ inlineData: { mimeType: 'image/png', data: 'iVBORw0KGgo=' } }];
    const contents: Content[] = [
      { role: 'user', parts: [{ text: 'draw' }] },
      { role: 'model', parts: [{ functionCall: { id: 'a', name: 'work', args: {} } }] },
      { role: 'user', parts: [{ functionResponse: { id: 'a', name: 'work', response: { drawn: true }, parts } }] },
    ];
    const { server } = await ask(provider, [{ text: ['a dot'] }], { contents, tools });
    const body = JSON.stringify(server.requests[0]?.body);
    expect(body).toContain('iVBORw0KGgo=');
    expect(body).toContain('drawn');
  });

  test('thoughts come apart from the answer and go back only to their provider', async () => {
    const script = [{ thoughts: ['let me ', 'think'], signature: 'c2lnbmF0dXJl', text: ['42'] }];
    const { answer, deltas, server } = await ask(provider, [...script, { text: ['ok'] }]);
    expect(deltas.map(({ parts }) => parts?.[0])).toEqual([
      { text: 'let me ', thought: true },
      { text: 'think', thought: true },
      { text: '42' },
    ]);
    const [thought, text] = answer.content?.parts ?? [];
    expect(thought).toMatchObject({ text: 'let me think', thought: true, thoughtSignature: expect.any(String) });
    expect(text).toEqual({ text: '42' });

    const contents: Content[] = [
      { role: 'user', parts: [{ text: 'go' }] },
      answer.content as Content,
      { role: 'user', parts: [{ text: 'more' }] },
    ];
    const { model } = await start(provider, [{ text: ['ok'] }], { baseUrl: server.baseUrl });
    await collect(model.generate(toRequest({ contents })));
    const sent = JSON.stringify(server.requests[1]?.body);
    const { takesThoughts } = findProvider(provider).facts(undefined, 'fake-model');
    expect(sent.includes('let me think')).toBe(takesThoughts);
    // The chat completions wire has no signatures.
    expect(sent.includes('c2lnbmF0dXJl')).toBe(takesThoughts && provider !== 'openai-compatible');

    const other = provider === 'anthropic' ? 'google' : 'anthropic';
    const elsewhere = await ask(other, [{ text: ['ok'] }], { contents });
    expect(JSON.stringify(elsewhere.server.requests[0]?.body)).not.toContain('let me think');
  });

  test.each([
    ['length', 'MAX_TOKENS'],
    ['filter', 'SAFETY'],
  ] as const)('finish %s is %s', async (finish, expected) => {
    const { answer } = await ask(provider, [{ text: ['half'], finish }]);
    expect(answer.finishReason).toBe(expected);
  });

  test('sampling parameters are passed on', async () => {
    const sampling = { temperature: 0.25, maxOutputTokens: 77 };
    const { server } = await ask(provider, [{ text: ['ok'] }], { sampling });
    const body = JSON.stringify(server.requests[0]?.body);
    expect(body).toContain('0.25');
    expect(body).toContain('77');
  });

  test('failed tries are told of, and the beginning of an answer before its text', async () => {
    const { model } = await start(provider, [{ status: 429 }, { status: 503 }, { calls: CALLS }]);
    const order: string[] = [];
    const onFailedTry = (failed: FailedTry) => void order.push(`${failed.provider} ${failed.model} ${failed.error}`);
    await collect(model.generate(toRequest({ tools, onFailedTry, onBegin: () => void order.push('begun') })));
    const failed = ['model_rate_limited', 'model_unavailable'].map((code) => `${provider} fake-model ${code}`);
    expect([...new Set(order)]).toEqual([...failed, 'begun']);
  });

  test('a stream that ends without a finish is an error, and is not retried', async () => {
    const { server, code, message } = await failure(provider, [{ text: ['Hel', 'lo'], stop: 'end' }]);
    expect(code).toBe('model_stream_cut');
    expect(message).toBe(`The model \`fake-model\` of ${provider} broke off in the middle of its answer. Try again.`);
    expect(server.requests).toHaveLength(1);
  });

  test('a connection that breaks in the middle is an error, and is not retried', async () => {
    const { server, model } = await start(provider, [{ text: ['Hel', 'lo'], stop: 'hang' }]);
    const stream = model.generate(toRequest());
    expect(await stream.next()).toMatchObject({ value: { content: { parts: [{ text: 'Hel' }] } } });
    server.cut();
    await expect(collect(stream)).rejects.toMatchObject({ code: 'model_stream_cut' });
    expect(server.requests).toHaveLength(1);
  });

  test('an empty answer is an answer without parts; the loop tells of it', async () => {
    const { answer } = await ask(provider, [{}]);
    expect(answer).toMatchObject({ content: { role: 'model', parts: [] }, finishReason: 'STOP' });
  });

  test('429 and 503, then an answer', async () => {
    const { server, answer } = await ask(provider, [{ status: 429 }, { status: 503 }, { text: ['ok'] }]);
    expect(answer.content?.parts).toEqual([{ text: 'ok' }]);
    expect(server.requests).toHaveLength(3);
  });

  test('429 for ever, or for longer than anyone waits', async () => {
    const forEver = await failure(provider, [{ status: 429 }]);
    expect(forEver.code).toBe('model_rate_limited');
    expect(forEver.server.requests).toHaveLength(3);
    const long = await failure(provider, [{ status: 429, headers: { 'retry-after': '3600' } }]);
    expect(long.code).toBe('model_rate_limited');
    expect(long.server.requests).toHaveLength(1);
  });

  test.each([
    [401, 'model_unauthorized', 1],
    [403, 'model_unauthorized', 1],
    [404, 'model_not_found', 1],
    [400, 'model_rejected', 1],
    [500, 'model_unavailable', 3],
  ] as const)('HTTP %i is %s after %i requests, without a word of the body', async (status, code, count) => {
    const errorBody = { error: { message: `no ${KEY} ${PROMPT}`, type: 'some_error', code: 'some_code' } };
    const result = await failure(provider, [{ status, errorBody }]);
    expect(result.code).toBe(code);
    expect(result.message).toContain(`The model \`fake-model\` of ${provider} `);
    expect(result.message).toContain(`(HTTP ${status}`);
    expect(result.server.requests).toHaveLength(count);
  });

  test('a server that is not there', async () => {
    const { server, model } = await start(provider, [{}]);
    await server.close();
    await expect(collect(model.generate(toRequest()))).rejects.toMatchObject({ code: 'model_unavailable' });
  });

  test.each([{ stop: 'silent' }, { stop: 'hang', text: ['Hel'] }] as FakeAnswer[])(
    'silence (%j) times out and lets go',
    async (answer) => {
      const { server, code } = await failure(provider, [answer], { timeoutMs: 50 });
      expect(code).toBe('model_timeout');
      await server.dropped;
      expect(server.requests).toHaveLength(1);
    },
  );

  test.each([{ stop: 'silent' }, { stop: 'hang', text: ['Hel'] }] as FakeAnswer[])(
    'an abort (%j) ends the call and the connection',
    async (answer) => {
      const { server, model } = await start(provider, [answer]);
      const controller = new AbortController();
      const pending = collect(model.generate(toRequest({ signal: controller.signal })));
      await server.requested;
      controller.abort(new AgentError('cancelled', 'Cancelled.'));
      await expect(pending).rejects.toMatchObject({ code: 'cancelled' });
      await server.dropped;
    },
  );

  test('an abort ends the wait for a retry', async () => {
    const { server, model } = await start(provider, [{ status: 503 }], { retryDelayMs: 15_000 });
    const controller = new AbortController();
    const pending = collect(model.generate(toRequest({ signal: controller.signal })));
    await server.requested;
    controller.abort(new AgentError('cancelled', 'Cancelled.'));
    await expect(pending).rejects.toMatchObject({ code: 'cancelled' });
    expect(server.requests).toHaveLength(1);
  });

  test('an answer that is no stream', async () => {
    const { code } = await failure(provider, [{ status: 200, errorBody: { hello: 'there' } }]);
    expect(['model_bad_response', 'model_stream_cut']).toContain(code);
  });
});

test.each(['openai-compatible', 'openai', 'anthropic'] as const)(
  '%s: arguments that are no JSON object are kept for the loop',
  async (provider) => {
    for (const broken of ['{"n":', '[1]', '"text"']) {
      const { answer } = await ask(provider, [{ calls: [{ id: 'x', name: 'work', arguments: broken }] }], { tools });
      expect(answer.content?.parts).toEqual([
        { functionCall: { id: 'x', name: 'work', args: {} }, partMetadata: { invalidArguments: broken } },
      ]);
    }
  },
);

test.each(['openai-compatible', 'google'] as const)('%s: a call without an id arrives', async (provider) => {
  const { answer } = await ask(provider, [{ calls: [{ name: 'work', arguments: '{"n":1}' }] }], { tools });
  expect(answer.content?.parts?.[0]?.functionCall).toMatchObject({ name: 'work', args: { n: 1 } });
});

test('google: a signature on a call goes back with it', async () => {
  const script = [{ calls: [{ name: 'work', arguments: '{"n":1}', signature: 'c2lnLWNhbGw=' }] }, { text: ['ok'] }];
  const { server, model } = await start('google', script);
  const first = await collect(model.generate(toRequest({ tools })));
  const contents: Content[] = [
    { role: 'user', parts: [{ text: 'go' }] },
    first.answer.content as Content,
    { role: 'user', parts: [{ functionResponse: { name: 'work', response: {} } }] },
  ];
  await collect(model.generate(toRequest({ tools, contents })));
  expect(JSON.stringify(server.requests[1]?.body)).toContain('c2lnLWNhbGw=');
});

test('google: an image comes out, and grounding as it was sent', async () => {
  const citations = [{ uri: 'https://example.org/', title: 'Example' }];
  const { answer } = await ask('google', [{ text: ['see'], image: 'iVBORw0KGgo=', citations }]);
  expect(answer.content?.parts).toEqual([
    { text: 'see' },
    { inlineData: { mimeType: 'image/png', data: 'iVBORw0KGgo=' } },
  ]);
  expect(answer.groundingMetadata).toEqual({ groundingChunks: [{ web: citations[0] }], webSearchQueries: ['q'] });
  expect(answer.citationMetadata).toEqual({ citations });
});

test('openai: citations come from its annotations', async () => {
  const citations = [{ uri: 'https://example.org/', title: 'Example' }];
  const { answer } = await ask('openai', [{ text: ['see'], citations }]);
  expect(answer.citationMetadata).toEqual({ citations });
});

test('openai: nothing is kept there', async () => {
  const { server } = await ask('openai', [{ text: ['ok'] }]);
  expect(server.requests[0]?.body['store']).toBe(false);
});

test('openai-compatible: no key is needed, and none is sent', async () => {
  const server = await startFakeProvider('openai-compatible', [{ text: ['ok'] }]);
  servers.push(server);
  const model = createModel({ provider: 'openai-compatible', baseUrl: server.baseUrl });
  const { answer } = await collect(model.generate(toRequest()));
  expect(answer.content?.parts).toEqual([{ text: 'ok' }]);
  expect(server.requests[0]?.headers.authorization).toBeUndefined();
});

test.each(PROVIDERS.flatMap(({ name, baseUrl }) => (baseUrl === undefined ? [] : [name])))(
  '%s: without a key nothing is sent',
  async (provider) => {
    const model = createModel({ provider });
    await expect(collect(model.generate(toRequest()))).rejects.toMatchObject({
      code: 'model_unauthorized',
      message:
        `The model \`fake-model\` of ${provider} refused the key. ` +
        'Check MODEL_API_KEY and that the key may use this model. (no key is set)',
    });
  },
);

const forms = JSON.parse(readFileSync('test/data/providers/forms.json', 'utf8')) as Record<string, { body: object }>;

test.each([
  ['openai', 400, 'model_rejected', 'HTTP 400, string_above_max_length'],
  ['anthropic', 400, 'model_rejected', 'HTTP 400, invalid_request_error'],
  ['google', 400, 'model_rejected', 'HTTP 400, INVALID_ARGUMENT'],
  ['mistral', 400, 'model_rejected', 'HTTP 400, invalid_request_message_order'],
  ['mistral-422', 422, 'model_rejected', 'HTTP 422, invalid_request_error'],
  ['openrouter', 400, 'model_rejected', 'HTTP 400, invalid_request_error'],
  ['lmstudio', 400, 'model_rejected', 'HTTP 400, <words>'],
  ['azure', 400, 'model_rejected', 'HTTP 400, content_filter'],
  ['vllm', 400, 'model_rejected', 'HTTP 400, BadRequestError'],
])('the word of a refusal in the form of %s', async (form, status, code, detail) => {
  const result = await failure('openai-compatible', [{ status, errorBody: forms[form]?.body }]);
  expect([result.code, result.message.match(/\((.*)\)/)?.[1]]).toEqual([code, detail]);
  expect(result.server.requests).toHaveLength(1);
});

test('a refusal as plain text is told, but for what looks like a key, and a page of HTML is not', async () => {
  const text = `Unsupported  media\ntype for sk-abcdefghijkl and ${KEY}.`;
  const plain = await failure('openai-compatible', [{ status: 400, errorText: text }]);
  expect(plain.message).toContain('(HTTP 400, Unsupported media type for … and …');
  const long = await failure('openai-compatible', [{ status: 400, errorText: 'x'.repeat(5_000) }]);
  expect(long.message.length).toBeLessThan(400);
  const page = await failure('openai-compatible', [{ status: 502, errorText: '<!DOCTYPE html><html>no</html>' }]);
  expect(page.message).toMatch(/\(HTTP 502\)$/);
});

test('what never passes is not tried again: templates of llama.cpp, used up quotas', async () => {
  const template = { error: { code: 500, message: 'Jinja exception: roles must alternate', type: 'server_error' } };
  const days = { '@type': 'QuotaFailure', violations: [{ quotaId: 'GenerateRequestsPerDayPerProject' }] };
  for (const [status, errorBody, code] of [
    [500, template, 'model_rejected'],
    [400, { error: { code: 400, message: 'no', type: 'exceed_context_size_error' } }, 'model_rejected'],
    [429, { error: { type: 'insufficient_quota', code: 'insufficient_quota' } }, 'model_rate_limited'],
    [429, [{ error: { code: 429, status: 'RESOURCE_EXHAUSTED', details: [days] } }], 'model_rate_limited'],
  ] as const) {
    const result = await failure('openai-compatible', [{ status, errorBody }]);
    expect([result.code, result.server.requests.length]).toEqual([code, 1]);
  }
});

test('the wait of a limit: as a date, in milliseconds, and in the body of Gemini', async () => {
  const at = (ms: number) => ({ date: new Date(0).toUTCString(), 'retry-after': new Date(ms).toUTCString() });
  const retryDelay = (delay: string) => ({ error: { status: 'RESOURCE_EXHAUSTED', details: [{ retryDelay: delay }] } });
  const waits: [FakeAnswer, number][] = [
    [{ headers: at(3_600_000) }, 1],
    [{ headers: at(0) }, 3],
    [{ headers: { 'retry-after-ms': '3600000' } }, 1],
    [{ headers: { 'retry-after-ms': '1' } }, 3],
    [{ errorBody: retryDelay('45.837906927s') }, 1],
    [{ errorBody: retryDelay('0.001s') }, 3],
  ];
  for (const [answer, count] of waits) {
    const result = await failure('google', [{ status: 429, ...answer }]);
    expect([answer, result.code, result.server.requests.length]).toEqual([answer, 'model_rate_limited', count]);
  }
});

test('a stream that ends with [DONE] and no reason is whole, where anything came', async () => {
  const { answer } = await ask('openai-compatible', [{ text: ['Hi'], stop: 'unreasoned' }]);
  expect(answer).toMatchObject({ content: { parts: [{ text: 'Hi' }] }, finishReason: 'STOP' });
  const { code } = await failure('openai-compatible', [{ stop: 'unreasoned' }]);
  expect(code).toBe('model_stream_cut');
});

test('openai-compatible: details of reasoning go back unchanged, in order', async () => {
  const details = [
    { type: 'reasoning.text', text: 'Let me ', format: 'anthropic-claude-v1', index: 0 },
    { type: 'reasoning.text', text: 'see.', signature: 'c2ln', format: 'anthropic-claude-v1', index: 0 },
    { type: 'reasoning.encrypted', data: 'AAA', id: 'rs_1', format: 'openai-responses-v1', index: 1 },
  ];
  const { server, model } = await start('openai-compatible', [{ details, calls: CALLS }, { text: ['ok'] }]);
  const { answer } = await collect(model.generate(toRequest({ tools })));
  const contents: Content[] = [
    { role: 'user', parts: [{ text: 'go' }] },
    answer.content as Content,
    { role: 'user', parts: [{ functionResponse: { id: 'call-1', name: 'work', response: {} } }] },
  ];
  await collect(model.generate(toRequest({ tools, contents })));
  const messages = server.requests[1]?.body['messages'] as object[];
  expect(messages[2]).toMatchObject({
    role: 'assistant',
    tool_calls: [{ id: 'call-1' }],
    reasoning_details: [{ ...details[0], ...details[1], text: 'Let me see.' }, details[2]],
  });
});

test('what a model cannot see is told in words once the provider has refused it', async () => {
  const image = { inlineData: { mimeType: 'image/png', data: 'iVBORw0KGgo=', displayName: 'dot.png' } };
  const contents = [{ role: 'user', parts: [{ text: 'what is it?' }, image] }];
  const server = await startFakeProvider('openai-compatible', [{ text: ['A picture.'] }], {
    rules: 'text-only',
    mayRefuse: true,
  });
  servers.push(server);
  const model = createModel({ provider: 'openai-compatible', baseUrl: server.baseUrl });
  const { answer } = await collect(model.generate(toRequest({ contents })));
  expect(answer.content?.parts).toEqual([{ text: 'A picture.' }]);
  expect(server.refused.map(({ id }) => id)).toEqual(['de-content-string']);
  expect(JSON.stringify(server.requests[1]?.body)).toContain('The file dot.png of the type image/png, 8 bytes');
});

describe('schemas of tools that others wrote', () => {
  const choice = {
    type: 'object',
    properties: { name: { type: 'string' } },
    anyOf: [
      { properties: { text: { type: 'string' } }, required: ['text'] },
      { properties: { data: { type: 'string' }, 'mime-type[]': { type: 'array' } }, required: ['data', 'mime-type[]'] },
    ],
  };
  const odd = {
    $schema: 'http://json-schema.org/draft-07/schema#',
    type: 'object',
    properties: {
      $filter: { type: 'string' },
      ['long'.repeat(20)]: { type: 'object' },
      pair: {
        type: 'array',
        items: [{ type: 'string' }, { type: 'object', properties: { 'a b': { type: 'number' } } }],
      },
      above: { type: 'number', minimum: 1, exclusiveMinimum: true },
      maybe: { type: ['string', 'null'] },
      tree: { $ref: '#/definitions/node' },
    },
    required: ['$filter', '$filter', 'tree'],
    definitions: {
      node: { type: 'object', properties: { 'left.most': { $ref: '#/definitions/node' }, value: { enum: [1, 2] } } },
    },
  };
  const args = {
    $filter: 'x',
    ['long'.repeat(20)]: { a: 1 },
    pair: ['p', { 'a b': 2 }],
    tree: { 'left.most': { value: 1 } },
  };

  test.each(NAMES)(
    '%s: they are told as it takes them, and calls come back under their own names',
    async (provider) => {
      const given = [
        { name: 'odd', description: 'Odd.', parameters: odd },
        { name: 'choice', description: 'A choice.', parameters: choice },
        { name: 'none', description: 'Nothing.', parameters: { type: 'string' } },
        { name: 'open', description: 'Anything.', parameters: { type: 'object', additionalProperties: true } },
      ];
      const left: object[] = [];
      const members = { tools: given, onLeftOut: (each: object) => void left.push(each) };
      const first = await ask(provider, [{ text: ['ok'] }], members);
      expect(left).toEqual([{ tool: 'none', reason: 'its arguments are no object' }]);
      const told = JSON.stringify(first.server.requests[0]?.body['tools']);
      expect(told).toContain('Give one of these sets of arguments: `text`; or `data`, `mime_type`.');
      for (const name of ['text', 'data', 'mime_type', 'above', 'maybe']) expect(told).toContain(`"${name}":{`);
      expect(told).not.toContain('"$filter":');
      // The model calls by what it was told: the names of the first request, in order.
      const facts = findProvider(provider).facts(undefined, 'fake-model');
      const sent = fitTools({ tools: given }, facts).toArguments('odd', args);
      const calls = [{ id: 'c', name: 'odd', arguments: JSON.stringify(sent) }];
      const { answer } = await ask(provider, [{ calls }], members);
      expect(answer.content?.parts?.[0]?.functionCall).toEqual({ id: 'c', name: 'odd', args });
      expect(Object.keys(sent)).not.toContain('$filter');
    },
  );

  test.each(NAMES)('%s: tools beyond its number are named to the model', async (provider) => {
    const many = Array.from({ length: 140 }, (_, place) => ({ ...tools[0], name: `tool_${place}` })) as typeof tools;
    const left: { tool: string }[] = [];
    const { server } = await ask(provider, [{ text: ['ok'] }], {
      tools: many,
      onLeftOut: (each) => void left.push(each),
    });
    expect(left.map(({ tool }) => tool)).toEqual(many.slice(128).map(({ name }) => name));
    expect(JSON.stringify(server.requests[0]?.body)).toContain('These tools are too many to be used here: tool_128');
  });

  test('a description that is too long goes on in the instruction', async () => {
    const description = `${'word '.repeat(300)}the end`;
    const { server } = await ask('openai-compatible', [{ text: ['ok'] }], {
      tools: [{ name: 'work', description, parameters }],
    });
    const system = (server.requests[0]?.body['messages'] as { content: string }[] | undefined)?.[0];
    expect(system?.content).toMatch(/More of the tool `work`: …[\s\S]*the end/);
  });
});

const closed = {
  type: 'object',
  properties: { n: { type: 'integer' } },
  required: ['n'],
  additionalProperties: false,
};
const open = { type: 'object', properties: { n: { type: 'integer', minimum: 1 } } };
const OUTPUT = '{"n":7}';
const words = (body: unknown) => JSON.stringify(body).includes('is one JSON value that fits this schema');

const EPHEMERAL = { cache_control: { type: 'ephemeral' } };

test.each<[ProviderName, string, object]>([
  ['openai', 'gpt-5-mini', { reasoning: { effort: 'low' }, prompt_cache_key: 'cache-1' }],
  ['openai-compatible', 'any', { reasoning_effort: 'low', seed: 7, stop: ['END'] }],
  ['anthropic', 'claude-sonnet-4-5', { stop_sequences: ['END'], thinking: { type: 'enabled' } }],
  ['google', 'gemini-2.5-flash', { generationConfig: { seed: 7, stopSequences: ['END'], thinkingConfig: {} } }],
])('%s: effort, seed and stop words as its wire has them', async (provider, modelName, expected) => {
  const sampling = { seed: 7, stopSequences: ['END'], reasoningEffort: 'low' as const, promptCaching: true };
  const { server } = await ask(provider, [{ text: ['ok'] }], { modelName, sampling, cacheKey: 'cache-1' });
  const body = server.requests[0]?.body ?? {};
  expect(body).toMatchObject(expected);
  expect(JSON.stringify(body)).not.toContain('promptCaching');
  expect(JSON.stringify(body).includes('ephemeral')).toBe(provider === 'anthropic');
});

test.each<[string, Partial<ModelRequest>, boolean]>([
  ['with tools', { tools }, true],
  ['with tools, and is told not to', { tools, sampling: { promptCaching: false } }, false],
  ['without tools', {}, false],
  ['without tools, and is told to', { sampling: { promptCaching: true } }, true],
])('anthropic: instruction and history of an agent %s are marked for its cache: %#', async (_, request, isMarked) => {
  const { server } = await ask('anthropic', [{ text: ['ok'] }], request);
  const body = server.requests[0]?.body;
  const marked = {
    system: [{ text: 'Be brief.', ...EPHEMERAL }],
    messages: [{ role: 'user', content: [{ text: PROMPT, ...EPHEMERAL }] }],
  };
  if (isMarked) expect(body).toMatchObject(marked);
  else expect(JSON.stringify(body)).not.toContain('cache_control');
});

test('anthropic: what is marked is the beginning of the next request, also of an agent that only answers with text', async () => {
  const said = (text: string) => ({ role: 'model', parts: [{ text }] });
  const goOn = { role: 'user', parts: [{ text: GO_ON }] };
  const contents = [{ role: 'user', parts: [{ text: PROMPT }] }, said('one'), said('two'), said('three')];
  const sampling = { promptCaching: true };
  let marked = '';
  for (let round = 1; round <= contents.length; round += 1) {
    const shown = [...contents.slice(0, round), ...(round > 1 ? [goOn] : [])];
    const { server } = await ask('anthropic', [{ text: ['ok'] }], { contents: shown, sampling });
    const sent = server.requests[0]?.body as { messages: { role: string; content: object[] }[] } | undefined;
    const blocks = (sent?.messages ?? []).flatMap(({ role, content }) => content.map((block) => ({ role, ...block })));
    const unmarked = JSON.stringify(blocks, (key, value: unknown) => (key === 'cache_control' ? undefined : value));
    expect(unmarked.startsWith(marked)).toBe(true);
    const last = blocks.findLastIndex((block) => 'cache_control' in block);
    expect(last).toBe(round - 1);
    const { cache_control: _, ...block } = blocks[last] as { cache_control?: unknown };
    marked = JSON.stringify([...(JSON.parse(unmarked) as object[]).slice(0, last), block]).slice(0, -1);
  }
});

describe('the form of an answer on the wire', () => {
  const format = { type: 'json_schema', strict: true, name: 'response', schema: closed };
  const json_schema = { name: 'response', strict: true, schema: closed };
  const generationConfig = { responseMimeType: 'application/json', responseJsonSchema: closed };
  const claude = { modelName: 'claude-sonnet-4-5' };
  test.each<[string, ProviderName, Partial<ModelRequest>, object, boolean]>([
    ['strict', 'openai', {}, { text: { format } }, false],
    ['as a hint', 'openai', { outputSchema: open }, { text: { format: { strict: false, schema: open } } }, false],
    ['beside tools', 'openai', { tools }, { text: { format } }, false],
    ['natively and in words', 'openai-compatible', {}, { response_format: { json_schema } }, true],
    ['in words beside tools', 'openai-compatible', { tools }, {}, true],
    ['natively', 'anthropic', claude, { output_config: { format: { schema: closed } } }, false],
    ['natively', 'google', {}, { generationConfig }, false],
  ])('%s: %s', async (_, provider, members, expected, hasWords) => {
    const { server, answer } = await ask(provider, [{ text: [OUTPUT] }], { outputSchema: closed, ...members });
    const body = server.requests[0]?.body ?? {};
    expect(body).toMatchObject(expected);
    expect([words(body), 'response_format' in body]).toEqual([hasWords, 'response_format' in expected]);
    expect(answer.content?.parts).toMatchObject([{ text: OUTPUT }]);
  });

  test.each<[ProviderName, string]>([
    ['anthropic', 'claude-3-haiku-20240307'],
    ['google', 'gemini-2.5-flash'],
  ])('%s: %s answers by a tool beside its own, which is text here', async (provider, modelName) => {
    const members = { outputSchema: closed, modelName, tools };
    const { server, answer } = await ask(
      provider,
      [{ calls: [{ id: 'j', name: 'json', arguments: OUTPUT }] }],
      members,
    );
    expect(JSON.stringify(server.requests[0]?.body['tools'])).toContain('Respond with a JSON object');
    expect(answer.content?.parts).toMatchObject([{ text: OUTPUT }]);
    const called = await ask(provider, [{ calls: [{ id: 'c', name: 'work', arguments: '{"n":1}' }] }], members);
    expect(called.answer.content?.parts).toMatchObject([{ functionCall: { name: 'work', args: { n: 1 } } }]);
  });

  test.each(NAMES)('%s: a form that is refused is asked for in words', async (provider) => {
    const script = [{ status: 400 }, { text: [OUTPUT] }];
    const { server, answer } = await ask(provider, script, { outputSchema: closed });
    const { outputSchemas } = findProvider(provider).facts(undefined, 'fake-model');
    expect(server.requests.map(({ body }) => words(body))).toEqual([outputSchemas === 'tried', true]);
    expect(answer.content?.parts).toMatchObject([{ text: OUTPUT }]);
  });

  test.each([null, 'x', [1]])('a schema with %j in the place of one asks for nothing strict', (wrong) => {
    for (const name of ['properties', 'anyOf', '$defs', 'items'])
      expect(isStrict({ ...closed, [name]: wrong })).toBe(false);
  });
});

test.each([
  // LM Studio takes words alone: the tool is then the only one that the request has.
  ['openai-compatible', 'required', 'required'],
  ['openai', 'required', { type: 'function', name: 'work' }],
  ['anthropic', { type: 'any' }, { type: 'tool', name: 'work' }],
  ['google', { mode: 'ANY' }, { mode: 'ANY', allowedFunctionNames: ['work'] }],
] as const)('%s is told what has to be called, and of no form beside it', async (provider, any, named) => {
  const script = [{ calls: [{ id: 'c1', name: 'work', arguments: '{"n":1}' }] }];
  const toChoice = async (toolChoice: ToolChoice) => {
    const { server } = await ask(provider, script, { tools, toolChoice, outputSchema: { type: 'object' } });
    const body = server.requests[0]?.body as Record<string, unknown>;
    expect(JSON.stringify(body)).not.toMatch(/response_?format|json_schema|fits this schema/i);
    return provider === 'google'
      ? (body['toolConfig'] as { functionCallingConfig: object }).functionCallingConfig
      : body['tool_choice'];
  };
  expect(await toChoice('required')).toEqual(any);
  expect(await toChoice({ name: 'work' })).toEqual(named);
});
