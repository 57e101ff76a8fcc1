import { afterEach, describe, expect, test, vi } from 'vitest';
import type { FailedTry, ModelAnswer, ModelDelta, ModelRequest } from '../../../../src/agent/definition/model.ts';
import { createModel, type ModelSettings } from '../../../../src/agent/models/create-model.ts';
import { type ProviderName, PROVIDERS } from '../../../../src/agent/providers/index.ts';
import { getParts } from '../../../../src/core/content.ts';
import { AgentError } from '../../../../src/core/errors.ts';
import { startFakeProvider, type FakeAnswer, type FakeProvider } from '../../../support/fake-provider.ts';

const servers: FakeProvider[] = [];
afterEach(async () => {
  vi.restoreAllMocks();
  await Promise.all(servers.splice(0).map((server) => server.close()));
});

async function start(provider: ProviderName, script: FakeAnswer[], settings: Partial<ModelSettings> = {}) {
  const server = await startFakeProvider(provider, script);
  servers.push(server);
  const common = { provider, apiKey: 'key', baseUrl: server.baseUrl, retryDelayMs: 1, maxRetries: 2 };
  return { server, model: createModel({ ...common, ...settings }) };
}

const parameters = { type: 'object', properties: { n: { type: 'number' } } };
const toRequest = (members: Partial<ModelRequest> = {}): ModelRequest => ({
  modelName: 'fake-model',
  instruction: 'Be brief.',
  contents: [{ role: 'user', parts: [{ text: 'Hello' }] }],
  tools: [{ name: 'work', description: 'Works.', parameters }],
  sampling: { maxOutputTokens: 1_000 },
  signal: new AbortController().signal,
  asWhole: true,
  ...members,
});

/** Returns the whole output, and the texts of its pieces joined. */
async function collect(stream: AsyncGenerator<ModelDelta, ModelAnswer, void>) {
  const texts = { text: '', thought: '' };
  for (;;) {
    const next = await stream.next();
    if (next.done) return { answer: next.value, texts };
    for (const { text, thought } of getParts(next.value.content)) texts[thought ? 'thought' : 'text'] += text ?? '';
  }
}

/** True for each request for a stream. */
const asked = ({ requests }: FakeProvider) =>
  requests.map(({ path, body }) => body['stream'] === true || path.includes(':stream'));

const CALL = { id: 'call-1', name: 'work', arguments: '{"n":1}' };
const ANSWERS: Record<string, FakeAnswer> = {
  'a text': { text: ['Hel', 'lo ', 'there'] },
  'thoughts and a text': { thoughts: ['let me ', 'think'], signature: 'c2ln', text: ['4', '2'] },
  'thoughts in tags': { text: ['<think>We ', 'add.</think>', '4'] },
  'thoughts and a call': { thoughts: ['let me'], signature: 'c2ln', calls: [CALL] },
  'a text and calls': { text: ['Both'], calls: [CALL, { id: 'call-2', name: 'work', arguments: '{"n":2}' }] },
  'a call with broken arguments': { calls: [{ ...CALL, arguments: '{"n":' }] },
  citations: { text: ['As seen.'], citations: [{ uri: 'https://example.com/a', title: 'A' }] },
  'a picture': { text: ['A dot.'], image: 'iVBORw0KGgo=' },
  details: {
    details: [
      { type: 'reasoning.text', text: 'let me', index: 0, format: 'some-v1' },
      { type: 'reasoning.encrypted', data: 'abc', index: 1 },
    ],
    text: ['ok'],
  },
  'an end by length': { text: ['half'], finish: 'length' },
  'an end by a filter': { text: ['half'], finish: 'filter' },
  'a refusal': { refusal: ['I ', 'cannot.'] },
  'thoughts of an open model': { openThoughts: ['let me ', 'think'], text: ['ok'] },
  nothing: {},
};

describe.each(PROVIDERS.map(({ name }) => name))('%s', (provider) => {
  test.each(Object.entries(ANSWERS))('%s: the same as from a stream', async (_name, answer) => {
    const { server, model } = await start(provider, [answer]);
    const whole = await collect(model.generate(toRequest()));
    const streamed = await collect(model.generate(toRequest({ asWhole: false })));
    expect(whole).toEqual(streamed);
    expect(asked(server)).toEqual([false, true]);
    const [one, other] = server.requests;
    const { stream: _, stream_options: __, ...rest } = other?.body ?? {};
    const tools = JSON.parse(JSON.stringify(rest['tools']), (name, value: unknown) =>
      name === 'eager_input_streaming' ? undefined : value,
    ) as unknown;
    expect(one?.body).toEqual({ ...rest, tools });
  });

  test('what takes too long is asked for again as a stream, and so are later answers of that model', async () => {
    const silent = { stop: 'silent' } as const;
    const { server, model } = await start(provider, [silent, { text: ['ok'] }], { timeoutMs: 1_000 });
    const failed: string[] = [];
    const onFailedTry = ({ error }: FailedTry) => void failed.push(error);
    expect((await collect(model.generate(toRequest({ onFailedTry })))).texts.text).toBe('ok');
    await collect(model.generate(toRequest({ onFailedTry })));
    await collect(model.generate(toRequest({ modelName: 'another-model', onFailedTry })));
    expect(asked(server)).toEqual([false, true, true, false]);
    expect(failed).toEqual(['model_timeout']);
  });

  test('a provider that says nothing at all', async () => {
    const { server, model } = await start(provider, [{ stop: 'silent' }], { timeoutMs: 1_000 });
    await expect(collect(model.generate(toRequest()))).rejects.toMatchObject({ code: 'model_timeout' });
    expect(asked(server)).toEqual([false, true]);
  });

  test('an answer that stops in the middle', async () => {
    const { server, model } = await start(provider, [{ text: ['no'], stop: 'hang' }, { text: ['ok'] }], {
      timeoutMs: 1_000,
    });
    expect((await collect(model.generate(toRequest()))).texts.text).toBe('ok');
    expect(asked(server)).toEqual([false, true]);
  });

  test('an answer whose connection breaks is asked for again, because nobody has seen a part of it', async () => {
    const { server, model } = await start(provider, [{ text: ['no'], stop: 'end' }, { text: ['ok'] }]);
    expect((await collect(model.generate(toRequest()))).texts.text).toBe('ok');
    expect(asked(server)).toEqual([false, false]);
  });

  test('an abort ends the request', async () => {
    const { server, model } = await start(provider, [{ stop: 'silent' }]);
    const ending = new AbortController();
    const answer = collect(model.generate(toRequest({ signal: ending.signal })));
    await server.requested;
    ending.abort(new AgentError('cancelled', 'A request cancelled it.'));
    await expect(answer).rejects.toMatchObject({ code: 'cancelled' });
    await server.dropped;
    expect(server.requests).toHaveLength(1);
  });

  test.each([400, 501, 200])('a server that only streams says so with status %s', async (status) => {
    const message = 'parameter.enable_thinking must be set to false for non-streaming calls';
    const errorBody = { error: { message, type: 'invalid_request_error', code: 'invalid_parameter_error' } };
    const { server, model } = await start(provider, [{ status, errorBody }, { text: ['ok'] }]);
    for (let calls = 0; calls < 2; calls += 1)
      expect((await collect(model.generate(toRequest()))).texts.text).toBe('ok');
    expect(asked(server)).toEqual([false, true, true]);
  });

  test('a refusal for another reason, also of something upstream, and a limit of rate', async () => {
    const errorBody = { error: { message: 'upstream: no such thing', type: 'invalid_request_error' } };
    const refused = await start(provider, [{ status: 400, errorBody }]);
    await expect(collect(refused.model.generate(toRequest()))).rejects.toMatchObject({ code: 'model_rejected' });
    expect(asked(refused.server)).toEqual([false]);
    const limited = await start(provider, [{ status: 429 }, { status: 503 }, { text: ['ok'] }]);
    await collect(limited.model.generate(toRequest()));
    expect(asked(limited.server)).toEqual([false, false, false]);
  });

  test('a gateway that waits no longer', async () => {
    const { server, model } = await start(provider, [{ status: 504 }, { text: ['ok'] }]);
    let now = 0;
    vi.spyOn(performance, 'now').mockImplementation(() => (now += 30_000));
    expect((await collect(model.generate(toRequest()))).texts.text).toBe('ok');
    expect(asked(server)).toEqual([false, true]);
  });

  test('a gateway that waits no longer, and says how long to wait', async () => {
    const { server, model } = await start(provider, [{ status: 503, headers: { 'retry-after': '60' } }]);
    let now = 0;
    vi.spyOn(performance, 'now').mockImplementation(() => (now += 30_000));
    await expect(collect(model.generate(toRequest()))).rejects.toMatchObject({ code: 'model_unavailable' });
    expect(asked(server)).toEqual([false]);
  });
});

test('requests for other models do not erase that one is only streamed', async () => {
  const errorBody = { error: { message: 'Only stream=true is supported.' } };
  const { server, model } = await start('openai-compatible', [{ status: 400, errorBody }, { text: ['ok'] }]);
  await collect(model.generate(toRequest()));
  for (let other = 0; other < 101; other += 1)
    await collect(model.generate(toRequest({ modelName: `other-${other}` })));
  await collect(model.generate(toRequest()));
  expect(asked(server).map(Number).join('')).toBe(`01${'0'.repeat(101)}1`);
});

test.each([403, 404])("a proxy with status %s for Google's other URL is asked for a stream", async (status) => {
  const { server, model } = await start('google', [{ status }, { text: ['ok'] }]);
  expect((await collect(model.generate(toRequest()))).texts.text).toBe('ok');
  await collect(model.generate(toRequest()));
  expect(asked(server)).toEqual([false, true, true]);
});

test('a model that does not exist teaches nothing', async () => {
  const { server, model } = await start('google', [{ status: 404 }]);
  for (let calls = 0; calls < 2; calls += 1)
    await expect(collect(model.generate(toRequest()))).rejects.toMatchObject({ code: 'model_not_found' });
  expect(asked(server)).toEqual([false, true, false, true]);
});

test('each attempt says what it asks for', async () => {
  const errorBody = { error: { message: 'Only stream=true is supported.' } };
  const { model } = await start('anthropic', [{ status: 400, errorBody }, { text: ['ok'] }]);
  const told: boolean[] = [];
  const onAsk = (asWhole: boolean) => void told.push(asWhole);
  await collect(model.generate(toRequest({ onAsk })));
  await collect(model.generate(toRequest({ onAsk, modelName: 'other', sampling: {} })));
  await collect(model.generate(toRequest({ onAsk, modelName: 'another' })));
  expect(told).toEqual([true, false, false, true]);
});

test('Anthropic is asked for whole answers only below the limit of its own clients', async () => {
  const { server, model } = await start('anthropic', [{ text: ['ok'] }]);
  const thinking = { maxOutputTokens: 1_000, reasoningEffort: 'high' } as const;
  const samplings = [{}, { maxOutputTokens: 21_334 }, { maxOutputTokens: 21_333 }, thinking];
  for (const sampling of samplings) await collect(model.generate(toRequest({ sampling })));
  expect(asked(server)).toEqual([true, true, false, true]);
});
