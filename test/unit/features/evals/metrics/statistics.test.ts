import { expect, test } from 'vitest';
import {
  agreement,
  cohensKappa,
  compareRuns,
  isFlaky,
  estimatePassAll,
  passRate,
  signTest,
  type Trials,
  type Verdicts,
  wilsonInterval,
} from '../../../../../src/features/evals/metrics/statistics.ts';
import { checkAll, near, vectorsOf } from '../vectors.ts';

const TOLERANCE = 1e-9;
const vectors = vectorsOf('statistics') as {
  trials: (Trials & {
    rate: number;
    wilson95: [number, number];
    passAllOf: Record<string, number>;
  })[];
  pairedRuns: { passedOnlyBefore: number; passedOnlyAfter: number; pTwoSided: number }[];
  judgeAgreement: (Verdicts & { agreement: number; kappa: number | null })[];
};

test('trials give a rate, an interval, and the chance that all of k pass', () =>
  checkAll('statistics.trials', vectors.trials, (vector) => {
    expect(passRate(vector)).toEqual(near(vector.rate, TOLERANCE));
    expect(wilsonInterval(vector)).toEqual(vector.wilson95.map((bound) => near(bound, TOLERANCE)));
    for (const [count, all] of Object.entries(vector.passAllOf)) {
      expect(estimatePassAll(vector, Number(count))).toEqual(near(all, TOLERANCE));
    }
  }));

test('a paired test says whether two runs differ by more than chance', () =>
  checkAll('statistics.pairedRuns', vectors.pairedRuns, ({ passedOnlyBefore, passedOnlyAfter, pTwoSided }) => {
    expect(signTest(passedOnlyBefore, passedOnlyAfter)).toEqual(near(pTwoSided, TOLERANCE));
  }));

test('a judge agrees with people beyond chance', () =>
  checkAll('statistics.judgeAgreement', vectors.judgeAgreement, (vector) => {
    expect(agreement(vector)).toEqual(near(vector.agreement, TOLERANCE));
    expect(cohensKappa(vector)).toEqual(near(vector.kappa, TOLERANCE));
  }));

test('without trials nothing is known', () => {
  const none = { trials: 0, passed: 0 };
  expect([passRate(none), wilsonInterval(none), estimatePassAll(none, 1), isFlaky(none)]).toEqual([
    null,
    [0, 1],
    null,
    false,
  ]);
  const silent = { bothPass: 0, onlyJudgePasses: 0, onlyHumanPasses: 0, bothFail: 0 };
  expect([agreement(silent), cohensKappa(silent), cohensKappa({ ...silent, bothPass: 3 })]).toEqual([null, null, null]);
});

test('the sign test holds for more pairs than a double can halve', () => {
  expect(signTest(1000, 1000)).toBe(1);
  expect(signTest(700, 500)).toEqual(near(8.535366081034334e-9, 1e-18));
});

test('a case is flaky when some of its trials pass', () => {
  const flaky = [0, 1, 4, 5].map((passed) => isFlaky({ trials: 5, passed }));
  expect(flaky).toEqual([false, true, true, false]);
});

const of = (trials: number, passed: number): Trials => ({ trials, passed });
const compared = (evalId: string, before: Trials, after: Trials) => ({ evalId, before, after });
const many = (name: string, count: number, before: number, after: number) =>
  Array.from({ length: count }, (_, index) => compared(`${name}${index}`, of(1, before), of(1, after)));

test('six cases lost and none won are a regression, five are not, and six won are none', () => {
  expect(compareRuns([...many('l', 5, 1, 0), ...many('same', 3, 1, 1)])).toMatchObject({
    pTwoSided: near(0.0625),
    regression: false,
  });
  expect(compareRuns(many('l', 6, 1, 0))).toMatchObject({ pTwoSided: near(0.03125), regression: true });
  expect(compareRuns(many('w', 6, 0, 1))).toMatchObject({ pTwoSided: near(0.03125), regression: false });
});

test('one case whose interval lies below that of before is a regression; one not evaluated is left out', () => {
  const cases = [
    compared('a', of(20, 20), of(20, 8)),
    compared('b', of(20, 20), of(0, 0)),
    compared('c', of(4, 2), of(4, 3)),
  ];
  expect(compareRuns(cases)).toEqual({ won: ['c'], lost: ['a'], pTwoSided: 1, worse: ['a'], regression: true });
});
