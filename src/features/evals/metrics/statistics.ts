/** Numbers of a case's trials with a verdict, and of its passed trials. Trials without a verdict are not counted. */
export interface Trials {
  trials: number;
  passed: number;
}

/** The two-sided 95 % quantile of the normal distribution. */
const Z_95 = 1.959963984540054;

export const passRate = ({ trials, passed }: Trials): number | null => (trials === 0 ? null : passed / trials);

/** Wilson's 95 % interval of the pass rate, within 0 and 1; the full range without trials. */
export function wilsonInterval({ trials, passed }: Trials): [low: number, high: number] {
  if (trials === 0) return [0, 1];
  const rate = passed / trials;
  const weight = Z_95 ** 2 / trials;
  const middle = rate + weight / 2;
  const spread = Z_95 * Math.sqrt((rate * (1 - rate)) / trials + weight / (4 * trials));
  // A bound is exactly 0 or 1 if no or every trial passed: floating-point arithmetic gives a slightly different value.
  const low = passed === 0 ? 0 : (middle - spread) / (1 + weight);
  return [low, passed === trials ? 1 : (middle + spread) / (1 + weight)];
}

/** C(these, count) / C(total, count) as a product of ratios, because the coefficients overflow for many trials. */
function allFrom(these: number, total: number, count: number): number {
  let share = 1;
  for (let drawn = 0; drawn < count; drawn += 1) share *= Math.max(0, these - drawn) / (total - drawn);
  return share;
}

/** pass^k: the estimated probability that `count` trials all pass; null if `count` exceeds the number of trials. */
export const estimatePassAll = ({ trials, passed }: Trials, count: number): number | null =>
  count > trials ? null : allFrom(passed, trials, count);

export const isFlaky = ({ trials, passed }: Trials): boolean => passed > 0 && passed < trials;

/** McNemar's exact two-sided sign test on the changed pairs; 1 if nothing changed. */
export function signTest(lost: number, won: number): number {
  const pairs = lost + won;
  // Computed in logarithms, because 0.5 ** pairs underflows to 0 from 1,075 pairs on.
  let term = -pairs * Math.LN2;
  let tail = Math.exp(term);
  for (let hits = 1; hits <= Math.min(lost, won); hits += 1) {
    term += Math.log((pairs - hits + 1) / hits);
    tail += Math.exp(term);
  }
  return Math.min(1, 2 * tail);
}

export interface ComparedCase {
  evalId: string;
  before: Trials;
  after: Trials;
}

/** Differences between two runs of the same cases. Lists of case ids have the order of the input. */
export interface Comparison {
  won: string[];
  lost: string[];
  pTwoSided: number;
  /** Ids of cases whose interval of the pass rate lies entirely below their interval in the earlier run. */
  worse: string[];
  /** True if significantly more cases changed to failed than to passed (p < 0.05), or if any case is in `worse`. */
  regression: boolean;
}

/** Compares two runs. A case passes if most of its trials pass. Cases without trials in a run are omitted. */
export function compareRuns(cases: ComparedCase[]): Comparison {
  const both = cases.filter(({ before, after }) => before.trials > 0 && after.trials > 0);
  const passes = ({ trials, passed }: Trials) => passed * 2 > trials;
  const toIds = (holds: (one: ComparedCase) => boolean) => both.filter(holds).map(({ evalId }) => evalId);
  const won = toIds(({ before, after }) => !passes(before) && passes(after));
  const lost = toIds(({ before, after }) => passes(before) && !passes(after));
  const worse = toIds(({ before, after }) => wilsonInterval(after)[1] < wilsonInterval(before)[0]);
  const pTwoSided = signTest(lost.length, won.length);
  const regression = (pTwoSided < 0.05 && lost.length > won.length) || worse.length > 0;
  return { won, lost, pTwoSided, worse, regression };
}

/** Counts of the verdicts of a judge and of people on the same turns. */
export interface Verdicts {
  bothPass: number;
  onlyJudgePasses: number;
  onlyHumanPasses: number;
  bothFail: number;
}

export function agreement({ bothPass, onlyJudgePasses, onlyHumanPasses, bothFail }: Verdicts): number | null {
  const all = bothPass + onlyJudgePasses + onlyHumanPasses + bothFail;
  return all === 0 ? null : (bothPass + bothFail) / all;
}

/** Cohen's κ: agreement of judge and people beyond chance, at most 1. Null without verdicts, or if all are equal. */
export function cohensKappa(verdicts: Verdicts): number | null {
  const observed = agreement(verdicts);
  if (observed === null) return null;
  const { bothPass, onlyJudgePasses, onlyHumanPasses, bothFail } = verdicts;
  const all = bothPass + onlyJudgePasses + onlyHumanPasses + bothFail;
  const judge = (bothPass + onlyJudgePasses) / all;
  const human = (bothPass + onlyHumanPasses) / all;
  const chance = judge * human + (1 - judge) * (1 - human);
  return chance === 1 ? null : (observed - chance) / (1 - chance);
}
