import { expect, test } from 'vitest';
import type { FunctionCall } from '../../../../../src/core/content.ts';
import { toOverall, toStatus } from '../../../../../src/features/evals/metrics/status.ts';
import {
  type MatchType,
  trajectoryDetails,
  trajectoryMatch,
} from '../../../../../src/features/evals/metrics/trajectory.ts';
import { getCalls } from '../../../../../src/features/evals/metrics/turn.ts';
import { checkAll, near, vectorsOf } from '../vectors.ts';

interface PairVector {
  name: string;
  expected: FunctionCall[];
  actual: FunctionCall[];
  scores: Record<string, number>;
}
interface ConversationVector {
  threshold: number;
  matchType: MatchType;
  turns: { expected: FunctionCall[]; actual: FunctionCall[] }[];
  overallScore: number | null;
  overallStatus: string;
  perInvocation: { score: number | null; status: string }[];
}
const vectors = vectorsOf('trajectory') as { pairs: PairVector[]; conversations: ConversationVector[] };

const holdsValue = (value: unknown, holds: (leaf: unknown) => boolean): boolean =>
  typeof value === 'object' && value !== null
    ? Object.values(value).some((member) => holdsValue(member, holds))
    : holds(value);
const deviations = [
  {
    reason: 'a boolean is not a number',
    holds: (vector: PairVector) => holdsValue([vector.expected, vector.actual], (leaf) => typeof leaf === 'boolean'),
  },
  {
    reason: 'integers beyond 2^53 are one double; jsonb tells them apart where a case is compared in the database',
    holds: (vector: PairVector) =>
      holdsValue([vector.expected, vector.actual], (leaf) => Math.abs(Number(leaf)) >= Number.MAX_SAFE_INTEGER),
  },
];

test('the calls of a turn are held against the expected ones in six ways', () =>
  checkAll(
    'trajectory.pairs',
    vectors.pairs,
    ({ expected, actual, scores }) => {
      const modes = Object.keys(scores).map((mode): [string, number] => {
        const matchType = mode.replace('_IGNORE_ARGS', '') as MatchType;
        return [mode, trajectoryMatch(actual, expected, { matchType, ignoreArgs: mode.endsWith('_IGNORE_ARGS') })];
      });
      expect(Object.fromEntries(modes)).toEqual(scores);
    },
    deviations,
  ));

test('a conversation has the mean of its turns', () =>
  checkAll('trajectory.conversations', vectors.conversations, (vector) => {
    const scores = vector.turns.map(({ actual, expected }) =>
      trajectoryMatch(actual, expected, { matchType: vector.matchType, ignoreArgs: false }),
    );
    const overall = toOverall(scores);
    expect(overall).toEqual(near(vector.overallScore));
    expect(toStatus(overall, vector.threshold)).toBe(vector.overallStatus);
    expect(scores.map((score) => ({ score, status: toStatus(score, vector.threshold) }))).toEqual(vector.perInvocation);
  }));

const call = (name: string, args?: Record<string, unknown>): FunctionCall => ({ name, ...(args ? { args } : {}) });
const exact = { matchType: 'EXACT', ignoreArgs: false } as const;

test('true is not 1', () => {
  const [one, yes] = [call('f', { n: 1 }), call('f', { n: true })];
  expect([trajectoryMatch([yes], [one], exact), trajectoryMatch([one], [yes], exact)]).toEqual([0, 0]);
});

test('a list is not an object of the same members', () => {
  expect(trajectoryMatch([call('f', { l: ['a'] })], [call('f', { l: { 0: 'a' } })], exact)).toBe(0);
});

test('one call does not answer two expected ones, also where both are one object', () => {
  const once = call('f', { a: 1 });
  expect(trajectoryMatch([once], [once, once], { ...exact, matchType: 'ANY_ORDER' })).toBe(0);
  expect(trajectoryMatch([once, once], [once, once], { ...exact, matchType: 'ANY_ORDER' })).toBe(1);
});

test.each<[string, FunctionCall[], FunctionCall[], number, number | null]>([
  ['nothing expected, nothing called', [], [], 1, null],
  ['nothing expected, one called', [call('f', { a: 1 })], [], 0, null],
  ['one of two called', [call('f', { a: 1 })], [call('f', { a: 1 }), call('g', { b: 1 })], 2 / 3, 1 / 2],
  ['one argument of two differs', [call('f', { a: 1, b: 2 })], [call('f', { a: 1, b: 3 })], 0, 1 / 2],
  ['an argument too many counts', [call('f', { a: 1, b: 2 })], [call('f', { a: 1 })], 0, 1 / 2],
  [
    'the right call is not taken by a wrong one',
    [call('f', { a: 1 })],
    [call('f', { a: 2 }), call('f', { a: 1 })],
    2 / 3,
    1 / 2,
  ],
  [
    'another order is as near',
    [call('g', { b: 1 }), call('f', { a: 1 })],
    [call('f', { a: 1 }), call('g', { b: 1 })],
    1,
    1,
  ],
  ['calls without arguments have none to match', [call('f')], [call('f')], 1, null],
])('details: %s', (_name, actual, expected, f1, matching) => {
  expect(trajectoryDetails(actual, expected)).toEqual({ f1: near(f1), matchingArguments: near(matching) });
});

test('the calls of a turn are those of its events, or toolUses', () => {
  const content = { parts: [{ functionCall: call('f') }, { text: 'x' }, { functionCall: call('g') }] };
  expect(getCalls({ invocationEvents: [{ author: 'a', content }, { author: 'a' }] })).toEqual([call('f'), call('g')]);
  expect([getCalls({ toolUses: [call('h')] }), getCalls({}), getCalls(undefined)]).toEqual([[call('h')], [], []]);
});
