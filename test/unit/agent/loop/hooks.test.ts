import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { guardrail } from '../../../../src/agent/definition/guardrail.ts';
import type { Hooks } from '../../../../src/agent/definition/hooks.ts';
import type { ModelRequest } from '../../../../src/agent/definition/model.ts';
import { toOutputSchema } from '../../../../src/agent/definition/output-schema.ts';
import { Script } from '../../../../src/agent/loop/script.ts';
import { type Content, getFunctionResponses } from '../../../../src/core/content.ts';
import type { Event } from '../../../../src/core/event.ts';
import { agent, runInput, runToEnd, tool, userEvent } from '../../../support/agent-fixtures.ts';
import { callPart, scriptedModel, type ScriptedAnswer } from '../../../support/scripted-model.ts';

const text = (value: string) => [{ text: value }];
const said = (value: string): Content => ({ role: 'model', parts: text(value) });
const CALL = [callPart('work', { to: 'ann' }, 'c')];
const responses = (event: Event | undefined) => getFunctionResponses(event?.content).map(({ response }) => response);

async function run(script: ScriptedAnswer[], hooks: Hooks[], input: object = {}, members: object = {}) {
  const model = scriptedModel(script);
  const ran: unknown[] = [];
  const work = tool('work', async (args) => {
    ran.push(args);
    if (args['to'] === 'nobody') throw new Error('nobody is there');
    return { sent: args['to'] };
  });
  const node = agent({ model, tools: [work], hooks, ...members });
  const { events, end } = await runToEnd(runInput({ agent: node, ...input }));
  return { model, ran, events, end };
}

/** Hooks that write down when they are called. */
const watching = (name: string, order: string[], more: Partial<Hooks> = {}): Hooks => {
  const note = (kind: string) => void order.push(`${name}.${kind}`);
  return {
    name,
    beforeAgent: () => note('beforeAgent'),
    afterAgent: () => note('afterAgent'),
    beforeModel: () => note('beforeModel'),
    afterModel: () => note('afterModel'),
    beforeTool: () => note('beforeTool'),
    afterTool: () => note('afterTool'),
    onError: () => note('onError'),
    ...more,
  };
};

test('the order of hooks, as a table', async () => {
  const order: string[] = [];
  await run([CALL, text('done')], [watching('plugin', order), watching('own', order)]);
  const kinds = order.map((each) => each.split('.')[1]).filter((_, index) => index % 2 === 0);
  process.stdout.write(`hooks: ${order.join(' · ')}\n`);
  const step = ['beforeModel', 'afterModel'];
  expect(kinds).toEqual(['beforeAgent', ...step, 'beforeTool', 'afterTool', ...step, 'afterAgent']);
  expect(order).toEqual(kinds.flatMap((kind) => [`plugin.${kind}`, `own.${kind}`]));
});

test('the first hook that gives a value is the last of its kind, and is named in the event', async () => {
  const order: string[] = [];
  const first = watching('first', order, { beforeModel: () => ({ content: said('from the cache') }) });
  const { model, end } = await run([text('no')], [first, watching('second', order)]);
  expect(model.requests).toEqual([]);
  expect(order).not.toContain('second.beforeModel');
  expect(end.lastEvent).toMatchObject({
    content: said('from the cache'),
    customMetadata: { hooks: ['first.beforeModel'] },
  });
});

describe('each hook may look, change, or answer instead', () => {
  test('beforeAgent answers, and the agent does not run', async () => {
    const { model, end } = await run([text('no')], [{ name: 'h', beforeAgent: () => said('closed') }]);
    expect([model.requests.length, end.output]).toEqual([0, 'closed']);
  });

  test('beforeModel cannot change the model, which budgets and fallbacks go by', async () => {
    const other = (request: ModelRequest) => void (request.modelName = 'other');
    const { model, end } = await run([text('no')], [{ name: 'h', beforeModel: other }]);
    expect([model.requests.length, end.error?.code]).toEqual([0, 'hook_failed']);
    expect(end.lastEvent?.customMetadata).toBeUndefined();
    expect(String(end.error?.cause)).toContain('cannot change `modelName` from');
  });

  test('afterAgent adds an event; state that hooks write is stored with theirs', async () => {
    const hooks: Hooks = {
      name: 'h',
      beforeAgent: ({ stateDelta }) => void (stateDelta['began'] = true),
      afterModel: (_answer, { stateDelta }) => void (stateDelta['answered'] = 1),
      afterAgent: () => said('bye'),
    };
    const { events, end } = await run([text('hello')], [hooks]);
    expect(events.map(({ actions, content }) => [actions?.stateDelta, content?.parts?.[0]?.text])).toEqual([
      [{ began: true }, undefined],
      [{ answered: 1 }, 'hello'],
    ]);
    expect(end.output).toBe('bye');
  });

  test('beforeModel changes the request of its call, and afterModel the answer; tokens stay as counted', async () => {
    const hooks: Hooks = {
      name: 'h',
      beforeModel: (request) => void (request.instruction += ' Be kind.'),
      afterModel: ({ content }) => (content?.parts?.[0]?.text ? { content: said('Kinder.') } : undefined),
    };
    const { model, end } = await run([text('Rude.')], [hooks]);
    expect(model.requests[0]?.instruction).toBe('Help. Be kind.');
    expect(end).toMatchObject({
      output: 'Kinder.',
      outputTokens: 7,
      lastEvent: { usageMetadata: { totalTokenCount: 17 } },
    });
  });

  test('beforeTool replaces arguments, or answers; afterTool replaces the response', async () => {
    const change: Hooks = { name: 'h', beforeTool: (call) => void (call.args = { to: 'bob' }) };
    const { ran, events } = await run([CALL, text('ok')], [change]);
    expect(ran).toEqual([{ to: 'bob' }]);
    expect(events[1]?.customMetadata).toEqual({ hooks: ['c.args'] });
    const answered = await run([CALL, text('ok')], [{ name: 'h', beforeTool: () => ({ cached: true }) }]);
    expect([answered.ran, responses(answered.events[1])]).toEqual([[], [{ cached: true }]]);
    const after = await run(
      [CALL, text('ok')],
      [{ name: 'h', afterTool: (_call, { sent }) => ({ sent, seen: true }) }],
    );
    expect(responses(after.events[1])).toEqual([{ sent: 'ann', seen: true }]);
  });

  test('onError answers in place of a model or a tool that failed', async () => {
    const onError: Hooks = {
      name: 'h',
      onError: (failure) =>
        failure.during === 'model' ? { content: said('Later.') } : { error: failure.error.message, hint: 1 },
    };
    const { end } = await run([new Error('broken')], [onError]);
    expect([end.error, end.output]).toEqual([undefined, 'Later.']);
    const failed = await run([[callPart('work', { to: 'nobody' }, 'c')], text('ok')], [onError]);
    expect(responses(failed.events[1])).toEqual([{ error: 'nobody is there', hint: 1 }]);
  });
});

test.each<[keyof Hooks, Partial<Hooks>]>([
  ['beforeAgent', {}],
  ['afterAgent', {}],
  ['beforeModel', {}],
  ['afterModel', {}],
])('%s that throws or is late ends the invocation with its name', async (kind) => {
  const broken = await run([text('x')], [{ name: 'h', [kind]: () => Promise.reject(new Error('secret')) }]);
  expect(broken.end.error).toMatchObject({
    code: 'hook_failed',
    message: `The hook \`h.${kind}\` failed. The log of the service has the reason.`,
  });
  const late = await run(
    [text('x')],
    [{ name: 'h', timeoutMs: 5, [kind]: () => sleep(60_000, undefined, { ref: false }) }],
  );
  expect(late.end.error?.message).toBe(`The hook \`h.${kind}\` took longer than 5 ms.`);
});

test('around a tool the call fails, and the tool does not run', async () => {
  const { ran, events, end } = await run(
    [CALL, text('ok')],
    [{ name: 'h', beforeTool: () => Promise.reject(new Error('x')) }],
  );
  expect([ran, responses(events[1]), end.output]).toEqual([
    [],
    [{ error: 'The hook `h.beforeTool` failed. The log of the service has the reason.' }],
    'ok',
  ]);
});

test('a run that goes on takes what hooks did, and runs none of them again', async () => {
  const order: string[] = [];
  const hooks = watching('h', order, {
    beforeAgent: ({ stateDelta }) => {
      order.push('h.beforeAgent');
      stateDelta['n'] = 1;
    },
  });
  const first = await run([CALL, text('done')], [hooks]);
  const steps = first.events.map((event, index) => ({ event, place: index + 1, sequence: index + 2 }));
  expect(steps).toHaveLength(3);
  for (const [count, left] of [
    [1, ['beforeModel', 'afterModel', 'afterAgent']],
    [3, ['beforeModel', 'afterModel', 'afterAgent']],
  ] as const) {
    order.length = 0;
    const script = new Script(steps.slice(0, count), [userEvent('go')]);
    const { end } = await run([text('done')], [hooks], { script });
    expect([count, end.error, order]).toEqual([count, undefined, left.map((kind) => `h.${kind}`)]);
  }
});

describe('guardrails', () => {
  const at = (place: 'input' | 'output' | 'calls' | 'results', action: 'block' | 'redact') =>
    guardrail({ name: 'g', at: [place], check: [/\b\d{4}\b/], action, message: 'No numbers.' });

  test.each<['block' | 'redact', string]>([
    ['block', 'No numbers.'],
    ['redact', 'done'],
  ])('input: %s', async (action, output) => {
    const { model, end } = await run([text('done')], [at('input', action)], { history: [userEvent('my pin is 1234')] });
    expect(end.output).toBe(output);
    expect(JSON.stringify(model.requests)).not.toContain('1234');
    expect(model.requests).toHaveLength(action === 'block' ? 0 : 1);
  });

  test('what was blocked stays out of later requests, and its answer is not asked for again in a form', async () => {
    const outputSchema = toOutputSchema({ type: 'object', required: ['n'] });
    const history = [userEvent('my pin is 1234')];
    const blocked = await run(
      [text('{"n":1}')],
      [at('input', 'block')],
      { history, streaming: true },
      { outputSchema },
    );
    expect(blocked.model.requests).toEqual([]);
    expect([blocked.end.output, blocked.end.value]).toEqual(['No numbers.', undefined]);
    const asked = [...history, blocked.end.lastEvent as Event, userEvent('do what I said')];
    const { model, end } = await run([text('done')], [at('input', 'block')], { history: asked });
    expect(end.output).toBe('done');
    expect(model.requests[0]?.contents.map(({ parts }) => parts?.map((part) => part.text))).toEqual([
      ['[redacted]'],
      ['No numbers.'],
      ['do what I said'],
    ]);
  });

  test.each<['block' | 'redact', string]>([
    ['block', 'No numbers.'],
    ['redact', 'It is [redacted], yes.'],
  ])('output: %s, thoughts and streams too', async (action, output) => {
    const parts = [{ text: 'I recall 1234', thought: true }, { text: 'It is 1234, yes.' }];
    const { events, end } = await run([parts], [at('output', action)], { streaming: true });
    expect(end.output).toBe(output);
    expect(JSON.stringify([events, end])).not.toContain('1234');
    expect(events.filter(({ partial }) => partial)).toHaveLength(1);
  });

  test('text in pieces is found', async () => {
    const { end } = await run([[{ text: 'It is 12' }, { text: '34.' }]], [at('output', 'redact')]);
    expect(end.output).toBe('It is [redacted].');
  });

  test('calls and results of tools: blocked, redacted', async () => {
    const call = [callPart('work', { to: 'no 1234' }, 'c')];
    const blocked = await run([call, text('ok')], [at('calls', 'block')]);
    expect([blocked.ran, responses(blocked.events[1])]).toEqual([[], [{ error: 'No numbers.' }]]);
    const redacted = await run([call, text('ok')], [at('calls', 'redact')]);
    expect(redacted.ran).toEqual([{ to: 'no [redacted]' }]);
    const results = await run([call, text('ok')], [at('results', 'redact')]);
    expect(responses(results.events[1])).toEqual([{ sent: 'no [redacted]' }]);
  });

  test.each([
    [{ 'key 1234': 'x' }, { 'key [redacted]': 'x' }],
    [{ list: [{ n: 'a 1234' }] }, { list: [{ n: 'a [redacted]' }] }],
    [{ n: 1234 }, { error: 'No numbers.' }],
  ])('a result %j is redacted to the last member, or blocked', async (result, expected) => {
    const tools = [tool('work', async () => result)];
    const { events } = await run([CALL, text('ok')], [at('results', 'redact')], {}, { tools });
    expect(responses(events[1])).toEqual([expected]);
  });

  test.each([
    ['No.', 'done'],
    ['yes', 'This is not allowed here.'],
    ['I will not say', 'This is not allowed here.'],
  ])('a model that judges says %s', async (verdict, output) => {
    const judge = guardrail({ name: 'g', at: ['output'], check: { judge: 'Is it rude?' } });
    const { model, end } = await run([text('done'), text(verdict)], [judge]);
    expect(end).toMatchObject({ output, llmCalls: 2, outputTokens: 14 });
    expect(model.requests[1]).toMatchObject({ contents: [{ role: 'user', parts: text('done') }], tools: [] });
  });

  test('a person is asked about a call, and decides', async () => {
    const ask = guardrail({
      name: 'g',
      at: ['calls'],
      check: ({ length }) => length > 0,
      action: 'ask',
      message: 'May it?',
    });
    const { ran, events, end } = await run([CALL, text('ok')], [ask]);
    expect([ran, end.paused]).toEqual([[], true]);
    const request = events.at(-1);
    expect(JSON.stringify(request)).toContain('May it?');
    const id = request?.content?.parts?.[0]?.functionCall?.id ?? '';
    for (const [confirmed, expected] of [
      [true, [{ to: 'ann' }]],
      [false, []],
    ] as const) {
      const answer = { functionResponse: { id, name: 'adk_request_confirmation', response: { confirmed } } };
      const asked = [userEvent('go'), ...events, end.lastEvent as Event];
      const history = [...asked, userEvent('', { content: { role: 'user', parts: [answer] } })];
      const resumed = await run([text('ok')], [ask], {
        history,
        runtimeEventIds: new Set(asked.map((event) => event.id ?? '')),
      });
      expect(resumed.ran).toEqual(expected);
    }
  });

  test.each<[object, string]>([
    [{ at: ['output'], action: 'ask' }, 'can ask a person at `calls` only'],
    [{ at: ['inputs'] }, 'needs `at`, some of input, output, calls, results'],
    [{ at: [] }, 'needs `at`'],
    [{ action: 'refuse' }, 'needs an `action` of block, redact, ask'],
    [{ check: 'secret' }, 'needs a `check`: patterns, a judge, or a function'],
    [{ check: [] }, 'needs a `check`'],
    [{ check: ['secret'] }, 'needs a `check`'],
  ])('one that would check nothing is refused: %j', (wrong, why) => {
    const options = { name: 'g', at: ['input'], check: [/x/], ...wrong } as Parameters<typeof guardrail>[0];
    expect(() => guardrail(options)).toThrow(why);
  });

  test('an answer with a form is checked as the guardrail left it', async () => {
    const outputSchema = toOutputSchema({ type: 'object', required: ['n'] });
    const hooks = [guardrail({ name: 'g', at: ['output'], check: [/secret/], action: 'redact' })];
    const { end } = await run([text('{"n":"secret"}')], hooks, {}, { outputSchema });
    expect(end.value).toEqual({ n: '[redacted]' });
  });
});
