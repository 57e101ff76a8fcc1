import { expect, test } from 'vitest';
import { toStoredCase, withToolUses } from '../../../../../src/features/evals/sets/intermediate-data.ts';
import {
  getCalls,
  getContents,
  type IntermediateData,
  getResponses,
} from '../../../../../src/features/evals/metrics/turn.ts';

const call = (name: string, args?: Record<string, unknown>) => ({
  functionCall: { id: name, name, ...(args ? { args } : {}) },
});
const events = (first: Record<string, unknown> | undefined, second: Record<string, unknown> | undefined) => [
  { author: 'a', content: { role: 'model', parts: [{ text: 'let me see' }, call('f', first)] } },
  { author: 'a', content: { role: 'user', parts: [{ functionResponse: { name: 'f', response: { ok: true } } }] } },
  { author: 'b', content: { role: 'model', parts: [call('g', second)] } },
];
const caseWith = (intermediateData: Record<string, unknown>) => ({
  evalId: 'c',
  conversation: [{ userContent: { parts: [] }, intermediateData }, { userContent: { parts: [] } }],
});
const toolUses = (first: Record<string, unknown>, second: Record<string, unknown>) => ({
  toolUses: [
    { id: 'f', name: 'f', args: first },
    { id: 'g', name: 'g', args: second },
  ],
  toolResponses: [{ name: 'f', response: { ok: true } }],
  intermediateResponses: [['a', [{ text: 'let me see' }]]],
});

test('the UI reads both kinds of members; stored is one', () => {
  const stored = caseWith({ invocationEvents: events({ n: 1 }, { n: 2 }) });
  const shown = caseWith({ invocationEvents: events({ n: 1 }, { n: 2 }), ...toolUses({ n: 1 }, { n: 2 }) });
  expect(withToolUses(stored)).toEqual(shown);
  expect(toStoredCase(shown)).toEqual(stored);
});

test('edited arguments of toolUses win where there is one for each call', () => {
  const edited = caseWith({
    invocationEvents: events({ n: 1 }, { n: 2 }),
    ...toolUses({ n: 1 }, { n: 3, deep: [null] }),
    mine: true,
  });
  expect(toStoredCase(edited)).toEqual(
    caseWith({ invocationEvents: events({ n: 1 }, { n: 3, deep: [null] }), mine: true }),
  );
  const removed = {
    invocationEvents: events({ n: 1 }, { n: 2 }),
    toolUses: [{ name: 'f' }, { name: 'g', args: null }],
  };
  expect(toStoredCase(caseWith(removed))).toEqual(caseWith({ invocationEvents: events(undefined, undefined) }));
});

test('toolUses of another count are dropped', () => {
  const data = { invocationEvents: events({ n: 1 }, { n: 2 }), toolUses: [{ name: 'f', args: { n: 9 } }] };
  expect(toStoredCase(caseWith(data))).toEqual(caseWith({ invocationEvents: events({ n: 1 }, { n: 2 }) }));
});

test('the form of ADK 1.x stays as it is, and so does a case with a scenario', () => {
  const old = caseWith(toolUses({}, {}));
  expect([toStoredCase(old), withToolUses(old)]).toEqual([old, old]);
  const scenario = { evalId: 's', conversationScenario: { startingPrompt: 'p', conversationPlan: 'c' } };
  expect([toStoredCase(scenario), withToolUses(scenario)]).toEqual([scenario, scenario]);
});

test('calls, responses and contents are read from both forms; no data means none', () => {
  const both: IntermediateData[] = [{ invocationEvents: events({ n: 1 }, { n: 2 }) }, toolUses({ n: 1 }, { n: 2 })];
  for (const data of both) {
    expect(getCalls(data)).toEqual(toolUses({ n: 1 }, { n: 2 }).toolUses);
    expect(getResponses(data)).toEqual([{ name: 'f', response: { ok: true } }]);
  }
  expect(both.map((data) => getContents(data).map(({ author }) => author))).toEqual([['a', 'a', 'b'], ['a']]);
  expect([getCalls(undefined), getResponses(null), getContents({})]).toEqual([[], [], []]);
});
