import { setImmediate as setImmediateOf } from 'node:timers';
import { setImmediate } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, test } from 'vitest';
import { AgentError } from '../../../../src/core/errors.ts';
import { runAgent } from '../../../../src/agent/loop/run-agent.ts';
import type { Model, ModelDelta } from '../../../../src/agent/definition/model.ts';
import { getFunctionResponses } from '../../../../src/core/content.ts';
import type { Event } from '../../../../src/core/event.ts';
import { agent, runInput, runToEnd, tool, userEvent } from '../../../support/agent-fixtures.ts';
import { callPart, scriptedModel } from '../../../support/scripted-model.ts';

const actions = { stateDelta: {}, artifactDelta: {}, requestedAuthConfigs: {}, requestedToolConfirmations: {} };
const usage = { promptTokenCount: 10, candidatesTokenCount: 5, thoughtsTokenCount: 2, totalTokenCount: 17 };
const answered = { modelVersion: 'scripted-1', finishReason: 'STOP', usageMetadata: usage, actions };
const base = { invocationId: 'inv-1', author: 'assistant', nodeInfo: { path: 'assistant@1' } };
const responses = (event: Event | undefined) => getFunctionResponses(event?.content).map(({ response }) => response);

test('an answer without calls is the last event and is not yielded', async () => {
  const { events, end } = await runToEnd(runInput());
  expect(events).toEqual([]);
  expect(end).toEqual({
    lastEvent: { id: 'id-1', ...base, ...answered, content: { role: 'model', parts: [{ text: 'done' }] } },
    output: 'done',
    error: undefined,
    paused: false,
    llmCalls: 1,
    promptTokens: 10,
    outputTokens: 7,
  });
});

test('a tool runs only after the consumer has taken the function-call event', async () => {
  const order: string[] = [];
  const model = scriptedModel([[callPart('work', { n: 1 }, 'call-1')], [{ text: 'finished' }]]);
  const work = tool('work', async () => {
    order.push('tool');
    return { ok: true };
  });
  const { events, end } = await runToEnd(runInput({ agent: agent({ model, tools: [work] }) }), (event) => {
    order.push(`stored ${event.id}`);
  });
  expect(order).toEqual(['stored id-1', 'tool', 'stored id-2']);
  expect(events).toEqual([
    {
      id: 'id-1',
      ...base,
      ...answered,
      longRunningToolIds: [],
      content: { role: 'model', parts: [callPart('work', { n: 1 }, 'call-1')] },
    },
    {
      id: 'id-2',
      ...base,
      actions,
      content: { role: 'user', parts: [{ functionResponse: { id: 'call-1', name: 'work', response: { ok: true } } }] },
    },
  ]);
  expect(end).toMatchObject({ output: 'finished', llmCalls: 2, promptTokens: 20, outputTokens: 14 });
});

test('the model sees the call and its response in the next step', async () => {
  const model = scriptedModel([[callPart('work', {}, 'c')], [{ text: 'ok' }]]);
  await runToEnd(runInput({ agent: agent({ model, tools: [tool('work', async () => 7)] }) }));
  expect(model.requests[1]?.contents).toEqual([
    { role: 'user', parts: [{ text: 'go' }] },
    { role: 'model', parts: [callPart('work', {}, 'c')] },
    { role: 'user', parts: [{ functionResponse: { id: 'c', name: 'work', response: { result: 7 } } }] },
  ]);
  expect(model.requests[0]).toMatchObject({
    modelName: 'test-model',
    instruction: 'Help.',
    tools: [{ name: 'work', description: 'Does work.', parameters: { type: 'object' } }],
  });
});

test('tools of one step run at the same time and answer in call order in one event', async () => {
  const { promise: bothStarted, resolve } = Promise.withResolvers<void>();
  let started = 0;
  // Each waits for the other: one after another they would never end.
  const meet = (name: string) =>
    tool(name, async () => {
      started += 1;
      if (started === 2) resolve();
      await bothStarted;
      return { name };
    });
  const model = scriptedModel([[callPart('b', {}, '1'), callPart('a', {}, '2')], [{ text: 'ok' }]]);
  const { events } = await runToEnd(runInput({ agent: agent({ model, tools: [meet('a'), meet('b')] }) }));
  expect(responses(events[1])).toEqual([{ name: 'b' }, { name: 'a' }]);
});

test('an unknown tool, wrong arguments, broken JSON and a throwing tool are errors for the model to read', async () => {
  const strict = tool('strict', async () => 'never', {
    parameters: {
      $schema: 'https://json-schema.org/draft/2020-12/schema',
      type: 'object',
      properties: { n: { type: 'integer' } },
      required: ['n'],
      additionalProperties: false,
    },
  });
  const throwing = tool('throwing', async () => {
    throw new Error('the disk is full');
  });
  const calls = [
    callPart('nosuch', {}, '1'),
    callPart('strict', { n: '1' }, '2'),
    callPart('strict', { n: 1, m: 2 }, '3'),
    { ...callPart('strict', {}, '4'), partMetadata: { invalidArguments: '{"n":' } },
    callPart('throwing', {}, '5'),
  ];
  const model = scriptedModel([calls, [{ text: 'sorry' }]]);
  const { events, end } = await runToEnd(runInput({ agent: agent({ model, tools: [strict, throwing] }) }));
  expect(responses(events[1])).toEqual([
    { error: 'Tool `nosuch` does not exist. Available: strict, throwing' },
    { error: 'Invalid arguments: `/n` must be integer. Call the tool again with arguments that fit its schema.' },
    {
      error:
        'Invalid arguments: The arguments must NOT have additional properties (m). ' +
        'Call the tool again with arguments that fit its schema.',
    },
    { error: 'The arguments were not a JSON object. Call the tool again with valid JSON.' },
    { error: 'the disk is full' },
  ]);
  expect(end).toMatchObject({ output: 'sorry', error: undefined });
});

test('a value that JSON cannot carry is an error; undefined is null', async () => {
  const circular: Record<string, unknown> = {};
  circular['self'] = circular;
  const tools = [
    tool('circular', async () => circular),
    tool('nothing', async () => undefined),
    tool('list', async () => [1, 2]),
  ];
  const model = scriptedModel([tools.map(({ name }, index) => callPart(name, {}, `${index}`)), [{ text: 'ok' }]]);
  const { events } = await runToEnd(runInput({ agent: agent({ model, tools }) }));
  const [first, ...others] = responses(events[1]);
  expect(first?.['error']).toContain('circular');
  expect(others).toEqual([{ result: null }, { result: [1, 2] }]);
});

test('calls without an id and calls that reuse one get a fresh one', async () => {
  const model = scriptedModel([
    [callPart('work'), callPart('work', {}, 'same'), callPart('work', {}, 'same')],
    [callPart('work', {}, 'same')],
    [{ text: 'ok' }],
  ]);
  const { events } = await runToEnd(runInput({ agent: agent({ model, tools: [tool('work', async () => 1)] }) }));
  const ids = events.flatMap((event) => getFunctionResponses(event.content).map(({ id }) => id));
  expect(ids).toHaveLength(4);
  expect(new Set(ids).size).toBe(4);
  expect(ids[1]).toBe('same');
});

test.each([1, 3])('passing a limit of %i model calls ends with the limit error', async (maxLlmCalls) => {
  const model = scriptedModel([(request) => [callPart('nosuch', {}, `call-${request.contents.length}`)]]);
  const { events, end } = await runToEnd(runInput({ agent: agent({ model, maxLlmCalls }) }));
  const text = `Max number of llm calls limit of \`${maxLlmCalls}\` exceeded`;
  expect(model.requests).toHaveLength(maxLlmCalls);
  expect(events).toHaveLength(2 * maxLlmCalls);
  expect(end).toMatchObject({
    output: '',
    error: { code: 'llm_calls_limit', message: text },
    llmCalls: maxLlmCalls,
    lastEvent: { ...base, errorCode: 'llm_calls_limit', errorMessage: text },
  });
});

test('a model failure becomes the last event with its code and an empty output', async () => {
  const failure = new AgentError('model_unavailable', 'The model `m` of x is not available.');
  const model = scriptedModel([[{ text: 'first' }, callPart('nosuch')], failure]);
  const { end } = await runToEnd(runInput({ agent: agent({ model }) }));
  expect(end).toMatchObject({
    output: '',
    error: { code: 'model_unavailable', message: 'The model `m` of x is not available.' },
    lastEvent: { errorCode: 'model_unavailable', errorMessage: 'The model `m` of x is not available.' },
  });
});

test('an unexpected failure of a model says nothing of its inside, and keeps the cause for the log', async () => {
  const cause = new TypeError('secret-key is not a function');
  const { end } = await runToEnd(runInput({ agent: agent({ model: scriptedModel([cause]) }) }));
  expect(end.error).toEqual({
    code: 'model_failed',
    message: 'The model `test-model` (scripted) failed unexpectedly.',
    cause,
  });
  expect(JSON.stringify(end.lastEvent)).not.toContain('secret-key');
});

test.each([[[]], [[{ text: ' \n' }]], [[{ text: 'hm', thought: true }]]])(
  'an empty answer %j is an error',
  async (parts) => {
    const { end } = await runToEnd(runInput({ agent: agent({ model: scriptedModel([parts]) }) }));
    expect(end.error).toEqual({ code: 'empty_answer', message: 'The model `test-model` gave an empty answer.' });
    expect(end).toMatchObject({ output: '', lastEvent: { errorCode: 'empty_answer', usageMetadata: usage } });
  },
);

test('an abort during tools answers every open call, also of a tool that ignores its signal', async () => {
  const controller = new AbortController();
  const told: boolean[] = [];
  const quick = tool('quick', async () => 'done');
  const deaf = tool('deaf', async (_args, context) => {
    context.signal.addEventListener('abort', () => told.push(true));
    await setImmediate();
    controller.abort(new AgentError('cancelled', 'The invocation was cancelled.'));
    await new Promise(() => {});
  });
  const model = scriptedModel([[callPart('quick', {}, '1'), callPart('deaf', {}, '2')]]);
  const input = runInput({ agent: agent({ model, tools: [deaf, quick] }), signal: controller.signal });
  const { events, end } = await runToEnd(input);
  expect(told).toEqual([true]);
  expect(events).toHaveLength(1);
  expect(getFunctionResponses(end.lastEvent?.content)).toEqual([
    { id: '1', name: 'quick', response: { result: 'done' } },
    { id: '2', name: 'deaf', response: { error: 'interrupted' } },
  ]);
  expect(end).toMatchObject({
    output: '',
    error: { code: 'cancelled', message: 'The invocation was cancelled.' },
    lastEvent: { errorCode: 'cancelled', errorMessage: 'The invocation was cancelled.' },
    llmCalls: 1,
  });
});

test('an abort during a model call that never answers ends at once and aborts the request', async () => {
  const controller = new AbortController();
  let seen: AbortSignal | undefined;
  const model: Model = {
    provider: 'deaf',
    // oxlint-disable-next-line require-yield
    async *generate(request): AsyncGenerator<ModelDelta, never, void> {
      seen = request.signal;
      controller.abort(new AgentError('time_limit', 'The invocation took too long.'));
      return await new Promise<never>(() => {});
    },
  };
  const { end } = await runToEnd(runInput({ agent: agent({ model }), signal: controller.signal }));
  expect(end.error).toEqual({ code: 'time_limit', message: 'The invocation took too long.' });
  expect(seen?.aborted).toBe(true);
});

test('an abort before the start makes no model call', async () => {
  const model = scriptedModel([[{ text: 'no' }]]);
  const { end } = await runToEnd(runInput({ agent: agent({ model }), signal: AbortSignal.abort() }));
  expect(end.error).toEqual({ code: 'interrupted', message: 'The invocation was interrupted.' });
  expect(model.requests).toEqual([]);
});

test('a consumer that stops early ends the model call', async () => {
  let seen: AbortSignal | undefined;
  const model = scriptedModel([
    (request) => {
      seen = request.signal;
      return [{ text: 'Hel' }, { text: 'lo' }];
    },
  ]);
  const steps = runAgent(runInput({ agent: agent({ model }), streaming: true }));
  await steps.next();
  expect(seen?.aborted).toBe(false);
  await steps.return(undefined as never);
  expect(seen?.aborted).toBe(true);
});

test('partial events come only when streaming, and never count as output', async () => {
  const parts = [{ text: 'think', thought: true }, { text: 'Hel' }, { text: 'lo' }];
  const partial = (part: object) => ({
    // That of the whole event, for who stores them; on the wire each has its own.
    id: 'id-1',
    ...base,
    actions,
    partial: true,
    modelVersion: 'scripted-1',
    content: { role: 'model', parts: [part] },
  });
  const quiet = await runToEnd(runInput({ agent: agent({ model: scriptedModel([parts]) }) }));
  const loud = await runToEnd(runInput({ agent: agent({ model: scriptedModel([parts]) }), streaming: true }));
  expect(quiet.events).toEqual([]);
  expect(loud.events).toEqual(parts.map(partial));
  expect(loud.end.lastEvent?.id).toBe('id-1');
  expect(loud.end.output).toBe('Hello');
  expect([quiet.end.lastEvent?.partial, loud.end.lastEvent?.partial]).toEqual([undefined, false]);
});

test('when streaming, whole answers of the model say so; responses of tools and errors do not', async () => {
  const model = scriptedModel([[{ text: 'Look.' }, callPart('work', {}, 'c')], [{ text: 'done' }], []]);
  const input = runInput({ agent: agent({ model, tools: [tool('work', async () => 7)] }), streaming: true });
  const { events, end } = await runToEnd(input);
  const complete = events.filter((event) => event.partial !== true);
  expect([...complete, end.lastEvent].map((event) => event?.partial)).toEqual([false, undefined, false]);
  const empty = await runToEnd({ ...input, agent: agent({ model }) });
  expect(empty.end.lastEvent).toMatchObject({ errorCode: 'empty_answer' });
  expect(empty.end.lastEvent).not.toHaveProperty('partial');
});

test('later steps see the state that tools wrote, temp: keys and hostile keys as data', async () => {
  const seen: unknown[] = [];
  const write = tool('write', async (args, { actions: own }) => {
    own.stateDelta = JSON.parse(String(args['delta'])) as Record<string, unknown>;
    return {};
  });
  const read = tool('read', async (_args, { state }) => {
    seen.push({ ...state });
    return {};
  });
  const deltas = ['{"a":1,"temp:t":2}', '{"b":3,"__proto__":{"x":1}}'];
  const model = scriptedModel([
    deltas.map((delta, index) => callPart('write', { delta }, `w${index}`)),
    [callPart('read', {}, 'r')],
    [{ text: 'ok' }],
  ]);
  const { events } = await runToEnd(runInput({ agent: agent({ model, tools: [write, read] }), state: { a: 0, c: 4 } }));
  expect(JSON.stringify(events[1]?.actions?.stateDelta)).toBe('{"a":1,"temp:t":2,"b":3,"__proto__":{"x":1}}');
  expect(seen).toEqual([JSON.parse('{"a":1,"c":4,"temp:t":2,"b":3,"__proto__":{"x":1}}')]);
  expect(({} as Record<string, unknown>)['x']).toBeUndefined();
});

test('a tool that works on after an abort cannot change its stored event', async () => {
  const controller = new AbortController();
  const { promise: later, resolve } = Promise.withResolvers<void>();
  const late = tool('late', async (_args, context) => {
    controller.abort();
    await later;
    context.actions.stateDelta = { late: true };
  });
  const model = scriptedModel([[callPart('late', {}, '1')]]);
  const { end } = await runToEnd(runInput({ agent: agent({ model, tools: [late] }), signal: controller.signal }));
  resolve();
  await Promise.resolve();
  expect(end.lastEvent?.actions).toEqual(actions);
});

test('media that a tool attaches stand in the parts of its response', async () => {
  const image = { inlineData: { mimeType: 'image/png', data: 'AAAA' } };
  const draw = tool('draw', async (_args, { attachments }) => {
    attachments.push(image);
    return { drawn: true };
  });
  const model = scriptedModel([[callPart('draw', {}, '1')], [{ text: 'ok' }]]);
  const { events } = await runToEnd(runInput({ agent: agent({ model, tools: [draw] }) }));
  expect(getFunctionResponses(events[1]?.content)).toEqual([
    { id: '1', name: 'draw', response: { drawn: true }, parts: [image] },
  ]);
});

test('a long-running tool without an answer pauses, its call open; the later answer reaches the model', async () => {
  const choose = tool('choose', async () => undefined, { longRunning: true });
  const model = scriptedModel([[callPart('choose', {}, 'c')], [{ text: 'red it is' }]]);
  const members = { agent: agent({ model, tools: [choose] }) };
  const { events, end } = await runToEnd(runInput(members));
  expect(events).toMatchObject([{ longRunningToolIds: ['c'] }]);
  expect(end).toMatchObject({ lastEvent: undefined, paused: true, error: undefined, output: '' });

  const response = { functionResponse: { id: 'c', name: 'choose', response: { choice: 'red' } } };
  const reply: Event = { invocationId: 'inv-2', author: 'user', content: { role: 'user', parts: [response] } };
  const second = await runToEnd(runInput({ ...members, history: [userEvent('go'), ...events, reply] }));
  expect(second.end).toMatchObject({ output: 'red it is', paused: false });
  expect(model.requests[1]?.contents).toEqual([
    { role: 'user', parts: [{ text: 'go' }] },
    { role: 'model', parts: [callPart('choose', {}, 'c')] },
    { role: 'user', parts: [response] },
  ]);
});

test('of a large result the invocation keeps the head in memory, not the whole', async () => {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  const heaps: number[] = [];
  const log = tool('log', async ({ n }) => {
    collect();
    heaps.push(process.memoryUsage().heapUsed);
    return `${String(n)} `.repeat(1_000_000);
  });
  const calls = Array.from({ length: 32 }, (_, n) => [callPart('log', { n: n + 10 }, `c${n}`)]);
  const model = scriptedModel([...calls, [{ text: 'done' }]]);
  const input = runInput({ agent: agent({ model, tools: [log], maxLlmCalls: 100 }) });
  const services = { ...input.services, saveArtifact: async () => 0 };
  expect((await runToEnd({ ...input, services })).end.output).toBe('done');
  // The 30 results between have 90 MB.
  expect((heaps.at(-1) ?? 0) - (heaps[1] ?? 0)).toBeLessThan(30_000_000);
});

test('reads of one kept result at once load it once, and others work between them', async () => {
  const reads = Array.from({ length: 8 }, (_, n) =>
    callPart('read_result', { handle: 'c', offset: n, length: 1 }, `r${n}`),
  );
  const model = scriptedModel([[callPart('log', {}, 'c')], reads, [{ text: 'done' }]]);
  const input = runInput({ agent: agent({ model, tools: [tool('log', async () => '0123456789'.repeat(20_000))] }) });
  let [loads, turns, isOver] = [0, 0, false];
  const loadArtifact = async () => {
    loads += 1;
    await setImmediate();
    turns = 0;
    return { text: '0123456789' };
  };
  const count = (): void => {
    turns += 1;
    if (!isOver) setImmediateOf(count);
  };
  count();
  await runToEnd({ ...input, services: { ...input.services, saveArtifact: async () => 0, loadArtifact } });
  isOver = true;
  const given = getFunctionResponses(model.requests[2]?.contents.at(-1)).map(({ response }) => response?.['text']);
  expect([given.join(''), loads]).toEqual(['01234567', 1]);
  expect(turns).toBeGreaterThan(reads.length / 2);
});
