import { expect, test } from 'vitest';
import type { PreparedAgent } from '../../../../src/agent/definition/agent.ts';
import { Script } from '../../../../src/agent/loop/script.ts';
import type { Tool } from '../../../../src/agent/definition/tool.ts';
import { getFunctionCalls, getFunctionResponses } from '../../../../src/core/content.ts';
import type { NewEvent } from '../../../../src/core/event.ts';
import { agent, runInput, runToEnd, tool, userEvent } from '../../../support/agent-fixtures.ts';
import { callPart, type ScriptedAnswer, scriptedModel } from '../../../support/scripted-model.ts';

const same = tool('look', async () => ({ found: 'nothing' }));
const input = (script: ScriptedAnswer[], more: Partial<PreparedAgent> = {}, tools: Tool[] = [same]) =>
  runInput({ agent: agent({ model: scriptedModel(script), tools, maxLlmCalls: 100, ...more }) });
const noticesIn = (events: (NewEvent | undefined)[]) =>
  events.flatMap((event) =>
    getFunctionResponses(event?.content).flatMap(({ response }) => (response?.['loop_notice'] as string) ?? []),
  );
const stepsIn = (events: (NewEvent | undefined)[]) =>
  events.filter((event) => getFunctionResponses(event?.content).length > 0).length;

test('the same call with the same answer: the model is told once, then the invocation ends', async () => {
  const { events, end } = await runToEnd(input([[callPart('look', { a: 1, b: 2 })]]));
  expect(end.error).toEqual({
    code: 'loop_detected',
    message: '`assistant` made the same call of `look` with the same answers 10 times in a row.',
  });
  const all = [...events, end.lastEvent];
  expect(stepsIn(all)).toBe(10);
  expect(noticesIn(all)).toEqual([
    'This call has had the same answers 5 times in a row. Do something else, or answer with what you know.',
  ]);
  expect(noticesIn(all.slice(0, 10))).toHaveLength(1);
});

test('a model that is told and does something else goes on', async () => {
  const again = callPart('look', {});
  const { end } = await runToEnd(input([...Array.from({ length: 5 }, () => [again]), [{ text: 'Nothing is there.' }]]));
  expect(end).toMatchObject({ error: undefined, output: 'Nothing is there.' });
});

test('errors are answers, and the order of arguments makes no difference', async () => {
  let calls = 0;
  const turn = (): ReturnType<typeof callPart>[] => [
    callPart('fail', (calls += 1) % 2 === 0 ? { a: 1, b: 2 } : { b: 2, a: 1 }),
  ];
  const fail = tool('fail', async () => {
    throw new Error('It rains.');
  });
  const { end } = await runToEnd(input([turn], {}, [fail]));
  expect(end.error?.code).toBe('loop_detected');
});

test.each([2, 3, 4])('a cycle of %i calls is found', async (length) => {
  let calls = 0;
  const { events, end } = await runToEnd(input([() => [callPart('look', { page: (calls += 1) % length })]]));
  expect(end.error?.message).toBe(
    `\`assistant\` made the same ${length} steps of calls with the same answers 10 times in a row.`,
  );
  expect(stepsIn([...events, end.lastEvent])).toBe(10 * length);
  expect(noticesIn(events)).toHaveLength(1);
});

test('what changes is no loop: other arguments, other answers, a cycle of five', async () => {
  let calls = 0;
  const page = await runToEnd(
    input([() => ((calls += 1) > 30 ? [{ text: 'done' }] : [callPart('look', { page: calls % 5 })])]),
  );
  expect([page.end.output, noticesIn(page.events)]).toEqual(['done', []]);
  let answers = 0;
  const changing = tool('look', async () => ({ found: (answers += 1) }));
  const other = await runToEnd(
    input([() => (answers > 30 ? [{ text: 'done' }] : [callPart('look', {})])], {}, [changing]),
  );
  expect([other.end.output, noticesIn(other.events)]).toEqual(['done', []]);
});

test.each<[string, Partial<PreparedAgent>, Partial<Tool>]>([
  ['a tool that may repeat', {}, { mayRepeat: true }],
  ['a tool that the agent excepts', { loopStop: { except: ['look'] } }, {}],
  ['an agent that wants no stop', { loopStop: { after: 0 } }, {}],
])('%s is not stopped', async (_name, more, members) => {
  let calls = 0;
  const model = () => ((calls += 1) > 30 ? [{ text: 'done' }] : [callPart('look', {})]);
  const { events, end } = await runToEnd(input([model], more, [{ ...same, ...members }]));
  expect([end.output, noticesIn(events)]).toEqual(['done', []]);
});

test('a person may be asked instead: with the approval it goes on, and is counted anew', async () => {
  const settings = { loopStop: { after: 3, action: 'ask' as const } };
  const first = await runToEnd(input([[callPart('look', {})]], settings));
  expect(first.end).toMatchObject({ paused: true, error: undefined });
  const all = [...first.events, ...(first.end.lastEvent ? [first.end.lastEvent] : [])];
  expect(noticesIn(all)).toHaveLength(1);
  const [question] = all.flatMap((event) => (event.longRunningToolIds?.length ? getFunctionCalls(event.content) : []));
  expect(JSON.stringify(question?.args)).toContain('it had the same answers 6 times. May it go on?');
  const { id, name } = question ?? {};
  const approval = userEvent('', {
    content: { role: 'user', parts: [{ functionResponse: { id, name, response: { confirmed: true } } }] },
  });
  const history = [userEvent('go'), ...all, approval];
  const next = await runToEnd({
    ...runInput({
      agent: agent({ model: scriptedModel([[callPart('look', {})], [{ text: 'done' }]]), tools: [same], ...settings }),
      history,
    }),
  });
  expect(next.end).toMatchObject({ output: 'done', error: undefined });
  expect(noticesIn(next.events)).toEqual([]);
});

test('a process that goes on at any event tells and ends at the same step', async () => {
  const whole = await runToEnd(input([[callPart('look', {})]]));
  const all = [...whole.events, ...(whole.end.lastEvent ? [whole.end.lastEvent] : [])];
  for (let kept = 1; kept < all.length; kept += 1) {
    const steps = structuredClone(all.slice(0, kept)).map((event, place) => ({ place, sequence: place + 2, event }));
    let ids = 0;
    const newId = () => `new-${(ids += 1)}`;
    const again = await runToEnd({ ...input([[callPart('look', {})]]), newId, script: new Script(steps) });
    expect(again.end.error?.code, `after ${kept}`).toBe('loop_detected');
    expect(stepsIn([...again.events, again.end.lastEvent]), `after ${kept}`).toBe(10);
    expect(noticesIn(again.events), `after ${kept}`).toHaveLength(1);
  }
});
