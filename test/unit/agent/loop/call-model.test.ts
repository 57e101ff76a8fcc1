import { afterEach, expect, test } from 'vitest';
import { CircuitBreaker } from '../../../../src/agent/definition/circuit-breaker.ts';
import type { Model, ModelRequest } from '../../../../src/agent/definition/model.ts';
import { toOutputSchema } from '../../../../src/agent/definition/output-schema.ts';
import { createModel } from '../../../../src/agent/models/create-model.ts';
import { type ProviderName, PROVIDERS } from '../../../../src/agent/providers/index.ts';
import { AgentError } from '../../../../src/core/errors.ts';
import { agent, runInput, runToEnd } from '../../../support/agent-fixtures.ts';
import { type FakeAnswer, type FakeProvider, startFakeProvider } from '../../../support/fake-provider.ts';
import { scriptedModel } from '../../../support/scripted-model.ts';

const servers: FakeProvider[] = [];
afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => server.close()));
});

const NAMES = PROVIDERS.map(({ name }) => name);
const second = () => scriptedModel([[{ text: 'from the second' }]]);

async function start(provider: ProviderName, script: FakeAnswer[]) {
  const server = await startFakeProvider(provider, script);
  servers.push(server);
  const model = createModel({ provider, apiKey: 'k', baseUrl: server.baseUrl, retryDelayMs: 1, maxRetries: 1 });
  return { server, model };
}

/** Runs an agent whose first model is `model`, with one fallback; says what was reserved and counted. */
async function run(model: Model, members: object = {}, input: object = {}) {
  const fallback = second();
  const reserved: string[] = [];
  const counted: string[] = [];
  const node = agent({ model, modelName: 'first', fallbacks: [{ model: fallback, modelName: 'other' }], ...members });
  const { events, end } = await runToEnd(
    runInput({
      agent: node,
      reserve: async (request: ModelRequest) => {
        reserved.push(request.modelName);
        return { request, end: () => void reserved.push('ended') };
      },
      onUse: (use) => void counted.push(`${use.model} as ${use.answeredAs}`),
      ...input,
    }),
  );
  return { fallback, reserved, counted, end, event: end.lastEvent ?? events.at(-1) };
}

test.each(NAMES)('%s: where it fails, the fallback answers, is reserved and counted', async (provider) => {
  const { server, model } = await start(provider, [{ status: 503 }]);
  const { end, event, reserved, counted, fallback } = await run(model);
  expect(server.requests).toHaveLength(2);
  expect(end).toMatchObject({ output: 'from the second', llmCalls: 1, promptTokens: 10 });
  expect(fallback.requests[0]?.modelName).toBe('other');
  expect(event?.customMetadata).toEqual({
    model: {
      failedTries: Array.from({ length: 2 }, () => ({ provider, model: 'first', error: 'model_unavailable' })),
      answeredBy: { provider: 'scripted', model: 'other' },
    },
  });
  expect(reserved).toEqual(['first', 'ended', 'other', 'ended']);
  expect(counted).toEqual(['other as scripted-1']);
});

test.each(NAMES)('%s: where nothing listens, the fallback answers without another try', async (provider) => {
  const { server, model } = await start(provider, []);
  await server.close();
  const { end, event } = await run(model);
  expect(end.output).toBe('from the second');
  const failedTries = [{ provider, model: 'first', error: 'model_unavailable' }];
  expect(event?.customMetadata?.['model']).toMatchObject({ failedTries });
  // The last model has no other: it is tried again.
  const alone = await run(model, { fallbacks: [] });
  expect(alone.event?.customMetadata?.['model']).toMatchObject({ failedTries });
});

test.each(NAMES)('%s: what has shown text does not fall back', async (provider) => {
  const { model } = await start(provider, [{ text: ['Hel'], stop: 'end' }]);
  const { end, fallback } = await run(model, {}, { streaming: true });
  expect(end.error?.code).toBe('model_stream_cut');
  expect(fallback.requests).toEqual([]);
});

test.each([
  ['nobody reads its pieces', {}, false, true],
  ['a client reads its pieces', {}, true, false],
  ['its text is held back from the client', { outputSchema: toOutputSchema({ type: 'object' }) }, true, true],
  ['a fallback waits for its beginning', { firstTokenMs: 1_000 }, false, false],
])('an answer is asked for whole or not: %s', async (_where, members, streaming, asWhole) => {
  const model = scriptedModel([[{ text: '{}' }]]);
  await run(model, members, { streaming });
  expect(model.requests[0]?.asWhole).toBe(asWhole);
});

test.each(NAMES)("%s: an answer that does not begin in time is another model's", async (provider) => {
  const { model } = await start(provider, [{ stop: 'silent' }]);
  const { end, event } = await run(model, { firstTokenMs: 20 });
  expect(end.output).toBe('from the second');
  expect(event?.customMetadata?.['model']).toMatchObject({ failedTries: [{ error: 'model_timeout' }] });
});

test('the last model waits as long as its provider allows, and its retries are told of', async () => {
  const { model } = await start('anthropic', [{ status: 503 }, { text: ['ok'] }]);
  const { end, event } = await run(model, { fallbacks: [], firstTokenMs: 1 });
  expect(end.output).toBe('ok');
  expect(event?.customMetadata).toEqual({
    model: { failedTries: [{ provider: 'anthropic', model: 'first', error: 'model_unavailable' }] },
  });
});

test('neither a budget nor a cancelled invocation asks another model', async () => {
  const over = new AgentError('budget_exceeded', 'Nothing is left.');
  const model = scriptedModel([[{ text: 'no' }]]);
  const none = await run(model, {}, { reserve: () => Promise.reject(over) });
  expect(none.end.error?.code).toBe('budget_exceeded');
  const stop = new AbortController();
  const aborting = scriptedModel([
    () => {
      stop.abort(new AgentError('cancelled', 'Cancelled.'));
      return Promise.reject(new AgentError('model_unavailable', 'It is away.'));
    },
  ]);
  const { end, fallback } = await run(aborting, {}, { signal: stop.signal });
  expect(end.error?.code).toBe('cancelled');
  expect(fallback.requests).toEqual([]);
});

test('a provider that failed in a row is passed over, by its user alone while only that one saw it', () => {
  let now = 0;
  const breaker = new CircuitBreaker(() => now);
  const fail = (user: string, times: number) => {
    for (let time = 0; time < times; time += 1) breaker.note(user, true);
  };
  const passed = () => ['ann', 'bob', 'cho'].map((user) => breaker.passesOver(user));
  fail('ann', 4);
  expect(passed()).toEqual([false, false, false]);
  fail('ann', 1);
  expect(passed()).toEqual([true, false, false]);
  fail('bob', 1);
  expect(passed()).toEqual([true, true, true]);
  now = 10_000;
  // One call tries it again.
  expect(passed()).toEqual([false, true, true]);
  breaker.note('ann', true);
  expect(passed()).toEqual([true, true, true]);
  now = 30_000;
  expect(breaker.passesOver('cho')).toBe(false);
  breaker.note('cho', false);
  expect(passed()).toEqual([false, false, false]);
});

test('calls pass an open breaker by, and the last model is asked all the same', async () => {
  const { server, model } = await start('google', [{ status: 404 }, { status: 401 }]);
  const unknown = await run(model);
  expect(unknown.end.output).toBe('from the second');
  for (let call = 0; call < 5; call += 1) await run(model);
  const before = server.requests.length;
  const { event } = await run(model);
  expect(server.requests).toHaveLength(before);
  expect(event?.customMetadata?.['model']).toMatchObject({
    failedTries: [{ provider: 'google', model: 'first', error: 'passed_over' }],
  });
  const alone = await run(model, { fallbacks: [] });
  expect(alone.end.error?.code).toBe('model_unauthorized');
});
