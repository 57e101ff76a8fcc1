import { expect, test } from 'vitest';
import {
  type EvalStatus,
  STATUS_NUMBERS,
  toFinalStatus,
  toOverall,
  toStatus,
} from '../../../../../src/features/evals/metrics/status.ts';
import { checkAll, vectorsOf } from '../vectors.ts';

const vectors = vectorsOf('finalStatus') as { metrics: EvalStatus[]; final: EvalStatus }[];

test('the statuses of the metrics make that of the case', () =>
  checkAll('finalStatus', vectors, ({ metrics, final }) => expect(toFinalStatus(metrics)).toBe(final)));

test('a score passes at its threshold, and null never does', () => {
  expect([toStatus(0.5, 0.5), toStatus(0.5, 0.5000000001), toStatus(null, 0), toStatus(0, 0)]).toEqual([
    'PASSED',
    'FAILED',
    'NOT_EVALUATED',
    'PASSED',
  ]);
});

test('the overall score leaves out what was not evaluated', () => {
  expect([toOverall([1, null, 0]), toOverall([null]), toOverall([])]).toEqual([0.5, null, null]);
});

test('the wire counts the statuses from 1', () => {
  const { statuses } = vectorsOf('about') as { statuses: Record<string, number> };
  expect(STATUS_NUMBERS).toEqual(
    Object.fromEntries(Object.entries(statuses).map(([name, number]) => [name.split(' ')[0], number])),
  );
});
