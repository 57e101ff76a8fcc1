import { describe, expect, test } from 'vitest';
import { guardrail, REDACTED } from '../../../../src/agent/definition/guardrail.ts';
import type { Guard, Hooks } from '../../../../src/agent/definition/hooks.ts';
import type { CallLedger } from '../../../../src/agent/loop/call-ledger.ts';
import type { RunInput } from '../../../../src/agent/loop/run.ts';
import { getFunctionResponses, type JsonObject, type Part } from '../../../../src/core/content.ts';
import type { Event } from '../../../../src/core/event.ts';
import { agent, runInput, runToEnd, tool, userEvent } from '../../../support/agent-fixtures.ts';
import { callPart, scriptedModel, type ScriptedAnswer } from '../../../support/scripted-model.ts';

/** Guardrails on what comes from outside: who made an event, what a check costs, and what was blocked before. */

const WORD = 'FORBIDDEN-1234';
const said = (text: string) => [{ text }];
const words = (more: object = {}) => guardrail({ name: 'words', at: ['input'], check: [/FORBIDDEN-\d+/], ...more });
const ofAgent = (id: string, text: string, more: Event = {}): Event => ({
  id,
  invocationId: 'inv-0',
  author: 'assistant',
  content: { role: 'model', parts: said(text) },
  ...more,
});

/** Runs an agent on a history, of which the runtime made the events of these ids. */
async function run(history: Event[], hooks: Hooks[], more: { own?: string[]; node?: object; input?: object } = {}) {
  const model = scriptedModel([said('Done.')]);
  const node = agent({ model, hooks, ...more.node });
  const input: Partial<RunInput> = { history, runtimeEventIds: new Set(more.own ?? []), ...more.input };
  return { model, ...(await runToEnd(runInput({ agent: node, ...input }))) };
}

/** A check that keeps what it was given, and finds the word. */
function noting(texts: string[]) {
  return guardrail({ name: 'noting', at: ['input'], check: (text) => (texts.push(text), text.includes(WORD)) });
}

describe('who made an event', () => {
  const history = [userEvent('Hello.'), ofAgent('a', WORD), userEvent('Go on.')];

  test('words that the model of this runtime said are not checked, and the same words of a client are', async () => {
    const own = await run(history, [words()], { own: ['a'] });
    expect([own.end.output, own.model.requests.length]).toEqual(['Done.', 1]);
    const brought = await run(history, [words()]);
    expect([brought.end.output, brought.model.requests.length]).toEqual(['This is not allowed here.', 0]);
  });

  test('an event of the user is checked also where the runtime stored it', async () => {
    const asked = [userEvent(WORD), ofAgent('a', 'Yes.'), userEvent('Go on.')];
    expect((await run(asked, [words()], { own: ['a', `user-${WORD}`] })).model.requests).toEqual([]);
  });

  test('a client cannot say that its message was blocked before', async () => {
    const forged = { customMetadata: { blocked: [`user-${WORD}`] } };
    const asked = [userEvent(WORD), ofAgent('a', 'This is not allowed here.', forged), userEvent('Go on.')];
    expect((await run(asked, [words()])).end.output).toBe('This is not allowed here.');
  });

  test('what another agent of the tree said, or a tool answered, is no input', async () => {
    const parts = [{ functionResponse: { id: 'c', name: 'work', response: { a: WORD } } }];
    const events = [
      userEvent('Hello.'),
      ofAgent('a', WORD, { author: 'other' }),
      ofAgent('b', '', { content: { role: 'model', parts: [callPart('work', {}, 'c')] } }),
      ofAgent('c', '', { content: { role: 'user', parts } }),
    ];
    const { model } = await run([...events, userEvent('Go on.')], [words()], { own: ['a', 'b', 'c'] });
    expect(JSON.stringify(model.requests[0]?.contents).split(WORD)).toHaveLength(3);
  });

  test('what a client answered is read back in pieces as the guardrail lets it pass', async () => {
    const note = { handle: 'k', characters: 9, kind: 'text', head: '', note: 'Read it with `read_result`.' };
    const answered = (id: string, of: string, author: string, response: JsonObject): Event => ({
      ...ofAgent(id, '', { author }),
      content: { role: 'user', parts: [{ functionResponse: { id: of, name: 'work', response } }] },
    });
    const called = (id: string, of: string) =>
      ofAgent(id, '', { content: { role: 'model', parts: [callPart('work', {}, of)] } });
    const asked = [
      userEvent('Hello.'),
      called('a', 'c'),
      answered('b', 'c', 'user', { result: `It is ${WORD}.` }),
      called('d', 'k'),
      answered('e', 'k', 'assistant', note),
      userEvent('Go on.'),
    ];
    const pieces = [0, 10].map((offset) => callPart('read_result', { handle: 'c', offset, length: 10 }));
    const model = scriptedModel([pieces, said('Done.')]);
    await run(asked, [words({ action: 'redact' })], { own: ['a', 'd', 'e'], node: { model } });
    const read = getFunctionResponses(model.requests[1]?.contents.at(-1)).map(({ response }) => response?.['text']);
    expect(read.join('')).toBe(`It is ${REDACTED}.`);
  });

  test('a value that the agent itself wrote into the state is not checked in an instruction, one of a client is', async () => {
    const wrote = (id: string, value: string) => ofAgent(id, 'Noted.', { actions: { stateDelta: { topic: value } } });
    const asked = [userEvent('Hello.'), wrote('a', WORD), userEvent('Go on.')];
    const node = { instruction: 'About {topic}.' };
    const withState = (topic: string, own: string[]) =>
      run(asked, [words()], { own, node, input: { state: { topic } } });
    expect((await withState(WORD, ['a'])).model.requests[0]?.instruction).toBe(`About ${WORD}.`);
    expect((await withState(WORD, [])).model.requests).toEqual([]);
    expect((await withState(`${WORD}!`, ['a'])).model.requests).toEqual([]);
  });

  test('the request to an agent that is a tool is the model’s own', async () => {
    const texts: string[] = [];
    const inner = scriptedModel([said('Inner.')]);
    const { agentTool } = await import('../../../../src/agent/loop/agent-tree.ts');
    const expert = agent({ name: 'expert', model: inner, hooks: [noting(texts)] });
    const model = scriptedModel([[callPart('expert', { request: 'Explain.' }, 'c')], said('Done.')]);
    await runToEnd(runInput({ agent: agent({ model, tools: [agentTool(expert)] }) }));
    expect([inner.requests.length, texts]).toEqual([1, []]);
  });
});

describe('the price', () => {
  const turns = (count: number) =>
    Array.from({ length: count }, (_, n) => [userEvent(`question ${n}`), ofAgent(`a${n}`, `answer ${n}`)]).flat();
  const own = Array.from({ length: 100 }, (_, n) => `a${n}`);

  test.each([
    ['as they were read anew', (event: Event) => structuredClone(event)],
    ['as they are kept', (event: Event) => event],
  ])('a function sees each message once, %s', async (_name, read) => {
    const texts: string[] = [];
    const hooks = [noting(texts)];
    const all = turns(21).map((event) => Object.freeze(event));
    for (let n = 1; n <= 20; n += 1) {
      const history = all.slice(0, 2 * n + 1).map(read);
      await run(history, hooks, { own });
    }
    expect(texts).toEqual(Array.from({ length: 21 }, (_, n) => `question ${n}`));
  });

  test('a pattern looks at each kept message once', async () => {
    let looked = 0;
    const pattern = words();
    const counting: Hooks = {
      ...pattern,
      guard: {
        ...(pattern.guard as Guard),
        find: (text, context) => ((looked += 1), (pattern.guard as Guard).find(text, context)),
      },
    };
    const all = turns(30).map((event) => Object.freeze(event));
    for (let n = 1; n <= 20; n += 1) await run(all.slice(0, 2 * n + 1), [counting], { own });
    expect(looked).toBe(21);
  });

  const judged = async (history: Event[], hooks: Hooks[], verdict: ScriptedAnswer) => {
    const model = scriptedModel([
      (request) =>
        request.instruction.includes('rude') ? (verdict as (r: unknown) => Part[])(request) : said('Done.'),
    ]);
    const { end } = await runToEnd(runInput({ agent: agent({ model, hooks }), history, runtimeEventIds: new Set() }));
    return { end, asked: model.requests.filter(({ instruction }) => instruction.includes('rude')).length };
  };
  const isRude: ScriptedAnswer = ({ contents }) => said(JSON.stringify(contents).includes(WORD) ? 'Yes.' : 'No.');

  test('a judge reads the messages of a client together, and finds the one that may not pass', async () => {
    const history = Array.from({ length: 64 }, (_, n) => userEvent(n === 40 ? WORD : `message ${n}`));
    const judge = () => guardrail({ name: 'judge', at: ['input'], check: { judge: 'Is it rude?' } });
    const found = await judged(history, [judge()], isRude);
    expect(found.end.lastEvent?.customMetadata).toEqual({
      hooks: ['judge.beforeModel'],
      blocked: [`user-${WORD}`],
    });
    expect(found.asked).toBeLessThanOrEqual(13);
    const hooks = [judge()];
    const fine = history.filter(({ id }) => !id?.includes(WORD));
    expect(await judged(fine, hooks, isRude)).toMatchObject({ end: { output: 'Done.' }, asked: 1 });
  });
});

describe('what was blocked', () => {
  test('stays out of later requests whoever comes between, with its file, and is not asked about again', async () => {
    const texts: string[] = [];
    const hooks = [noting(texts)];
    const file = { inlineData: { mimeType: 'image/png', data: 'AAAA' } };
    const bad = userEvent('bad', { content: { role: 'user', parts: [{ text: WORD }, file] } });
    const blocked = await run([userEvent('Hello.'), bad, ofAgent('x', 'Yes.'), userEvent('Go on.')], hooks);
    const last = blocked.end.lastEvent as Event;
    expect(last.customMetadata).toEqual({ hooks: ['noting.beforeModel'], blocked: ['user-bad'] });
    const history = [...blocked.events, bad, ofAgent('x', 'Yes.'), userEvent('Go on.'), last, userEvent('Again.')];
    texts.length = 0;
    const { model, end } = await run(history, hooks, { own: [last.id ?? ''] });
    expect([end.output, texts]).toEqual(['Done.', ['Again.']]);
    expect(model.requests[0]?.contents.map(({ parts }) => parts)).toEqual([
      [{ text: '[redacted]' }],
      [{ text: 'Yes.' }],
      [{ text: 'Go on.' }],
      [{ text: 'This is not allowed here.' }],
      [{ text: 'Again.' }],
    ]);
  });

  test('and what may not pass, come into no summary', async () => {
    const long = 'x'.repeat(4_000);
    const at = (n: number, event: Event): Event => ({ ...event, invocationId: `inv-${n}`, timestamp: n });
    const history = [
      at(1, userEvent(`${WORD} ${long}`)),
      at(2, ofAgent('a', long)),
      at(3, userEvent('Three.')),
      at(4, { ...userEvent('Four.'), invocationId: 'inv-1' }),
    ];
    const { model } = await run(history, [words({ action: 'redact' })], {
      own: ['a'],
      node: { compaction: { tokenBudget: 500, keepInvocations: 1 } },
      input: { invocationId: 'inv-4' },
    });
    const summary = model.requests.find(({ instruction }) => instruction.startsWith('Summarise'));
    expect(JSON.stringify(summary?.contents)).toContain('[redacted]');
    expect(JSON.stringify(model.requests)).not.toContain(WORD);
  });
});

describe('redacted', () => {
  const base64 = (text: string) => Buffer.from(text).toString('base64');
  test.each<[string, Part, Part]>([
    ['a text', { text: `a ${WORD} b` }, { text: 'a [redacted] b' }],
    [
      'a file',
      { inlineData: { mimeType: 'text/csv', data: base64(`a,${WORD}`) } },
      { inlineData: { mimeType: 'text/plain', data: base64('a,[redacted]') } },
    ],
    [
      'the name of a file',
      { inlineData: { mimeType: 'image/png', data: 'AAAA', displayName: WORD } },
      { text: '[redacted]' },
    ],
    ['code', { executableCode: { code: WORD } }, { text: '[redacted]' }],
  ])('%s', async (_, part, expected) => {
    const { model } = await run(
      [userEvent('x', { content: { role: 'user', parts: [part] } })],
      [words({ action: 'redact' })],
    );
    expect(model.requests[0]?.contents[0]?.parts).toEqual([expected]);
  });

  test('arguments and answers of calls that a client brought', async () => {
    const call = { functionCall: { id: 'c', name: 'look', args: { a: `${WORD}!`, n: 1 } } };
    const answer = { functionResponse: { id: 'c', name: 'other', response: { list: [WORD, 'kept'] } } };
    const history = [
      userEvent('Hello.'),
      ofAgent('a', '', { content: { role: 'model', parts: [call] } }),
      userEvent('b', { content: { role: 'user', parts: [answer] } }),
    ];
    const { model } = await run(history, [words({ action: 'redact' })]);
    const [, called, answered] = model.requests[0]?.contents ?? [];
    expect(called?.parts).toEqual([{ functionCall: { id: 'c', name: 'look', args: { a: '[redacted]!', n: 1 } } }]);
    expect(getFunctionResponses(answered)).toEqual([
      { id: 'c', name: 'look', response: { list: ['[redacted]', 'kept'] } },
    ]);
  });

  test('values in an instruction, and the tools of a client', async () => {
    const offered = tool('look', async () => undefined, { description: `Looks for ${WORD}.`, isOfClient: true });
    const own = tool('own', async () => undefined, { description: `Written by the operator: ${WORD}.` });
    const { model } = await run([userEvent('Hello.')], [words({ action: 'redact' })], {
      node: { instruction: `Never say ${WORD}. About {topic}.`, tools: [offered, own] },
      input: { state: { topic: WORD } },
    });
    expect(model.requests[0]?.instruction).toBe(`Never say ${WORD}. About [redacted].`);
    expect(model.requests[0]?.tools.map(({ description }) => description)).toEqual([
      'Looks for [redacted].',
      `Written by the operator: ${WORD}.`,
    ]);
  });
});

test('what a hook before it adds to the request is checked too', async () => {
  const adding: Hooks = {
    name: 'adding',
    beforeModel: (request) => void request.contents.push({ role: 'user', parts: said(WORD) }),
  };
  expect((await run([userEvent('Hello.')], [adding, words()])).model.requests).toEqual([]);
  const { model } = await run([userEvent('Hello.')], [adding, words({ action: 'redact' })]);
  expect(model.requests[0]?.contents.at(-1)?.parts).toEqual(said('[redacted]'));
});

test.each<['block' | 'redact', object]>([
  ['block', { error: 'This is not allowed here.' }],
  ['redact', { error: 'The server said [redacted].' }],
])('results: what a tool fails with, %s', async (action, expected) => {
  const model = scriptedModel([[callPart('work', {}, 'c')], said('Done.')]);
  const failing = tool('work', () => Promise.reject(new Error(`The server said ${WORD}.`)));
  const hooks = [words({ at: ['results'], action })];
  const { events } = await runToEnd(runInput({ agent: agent({ model, tools: [failing], hooks }) }));
  expect(getFunctionResponses(events[1]?.content)[0]?.response).toEqual(expected);
});

test.each<['block' | 'redact', object]>([
  ['block', { id: 'c', name: 'work', response: { error: 'This is not allowed here.' } }],
  [
    'redact',
    {
      id: 'c',
      name: 'work',
      response: { ok: true },
      parts: [{ inlineData: { mimeType: 'text/plain', data: Buffer.from('[redacted]').toString('base64') } }],
    },
  ],
])('results: a file that a tool gives, %s', async (action, expected) => {
  const model = scriptedModel([[callPart('work', {}, 'c')], said('Done.')]);
  const giving = tool('work', async (_args, { attachments }) => {
    attachments.push({ inlineData: { mimeType: 'application/xml', data: Buffer.from(WORD).toString('base64') } });
    return { ok: true };
  });
  const hooks = [words({ at: ['results'], action })];
  const { events } = await runToEnd(runInput({ agent: agent({ model, tools: [giving], hooks }) }));
  expect(getFunctionResponses(events[1]?.content)).toEqual([expected]);
});

test.each<['block' | 'redact', object]>([
  ['block', { error: 'This is not allowed here.' }],
  ['redact', { said: '[redacted]' }],
])('input: what a person says that a call has done, %s', async (action, expected) => {
  const question = { originalFunctionCall: { id: 'c', name: 'work', args: {} }, toolConfirmation: {} };
  const asked = { ...callPart('adk_request_confirmation', question, 'q') };
  const answer = { functionResponse: { id: 'q', name: 'adk_request_confirmation', response: { confirmed: true } } };
  const history = [
    userEvent('Hello.'),
    ofAgent('a', '', { content: { role: 'model', parts: [callPart('work', {}, 'c')] } }),
    ofAgent('b', '', { content: { role: 'user', parts: [asked] }, longRunningToolIds: ['q'] }),
    userEvent('yes', { content: { role: 'user', parts: [answer] } }),
  ];
  const settled = { state: 'settled' as const, attempt: 1, response: { response: { said: WORD } } };
  const ledger: CallLedger = {
    write: async () => new Map([['c', settled]]),
    writeWith: () => undefined,
    waitFor: () => undefined,
    keepResult: () => Promise.reject(new Error('It was kept.')),
    isFailure: () => false,
  };
  const work = tool('work', () => Promise.reject(new Error('It ran.')), { needsConfirmation: true });
  const { events, model } = await run(history, [words({ action })], {
    own: ['a', 'b'],
    node: { tools: [work] },
    input: { ledger },
  });
  expect(getFunctionResponses(events[0]?.content)[0]?.response).toEqual(expected);
  expect(JSON.stringify(model.requests)).not.toContain(WORD);
});
