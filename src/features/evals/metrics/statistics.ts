/** Trials of one case: how many gave a verdict and how many of those passed. Those not evaluated are counted apart. */
export interface Trials {
  trials: number;
  passed: number;
}

/** The two-sided 95 % quantile of the normal distribution. */
const Z_95 = 1.959963984540054;

/** The share of passed trials; null without trials. */
export const passRate = ({ trials, passed }: Trials): number | null => (trials === 0 ? null : passed / trials);

/** Wilson's 95 % interval of the pass rate, from 0 to 1; the whole range without trials. */
export function wilsonInterval({ trials, passed }: Trials): [low: number, high: number] {
  if (trials === 0) return [0, 1];
  const [rate, weight] = [passed / trials, Z_95 ** 2 / trials];
  const middle = rate + weight / 2;
  const spread = Z_95 * Math.sqrt((rate * (1 - rate)) / trials + weight / (4 * trials));
  // At the ends the exact bounds are 0 and 1; in floating point they would miss by a few units of the last place.
  const low = passed === 0 ? 0 : (middle - spread) / (1 + weight);
  return [low, passed === trials ? 1 : (middle + spread) / (1 + weight)];
}

/** C(these, count) / C(total, count) as a product of ratios, whose factors stay small for any number of trials. */
function allFrom(these: number, total: number, count: number): number {
  let share = 1;
  for (let drawn = 0; drawn < count; drawn += 1) share *= Math.max(0, these - drawn) / (total - drawn);
  return share;
}

/** The estimate that `count` trials all pass (pass^k); null beyond the trials that were made. */
export const estimatePassAll = ({ trials, passed }: Trials, count: number): number | null =>
  count > trials ? null : allFrom(passed, trials, count);

/** True for a case that passes sometimes. */
export const isFlaky = ({ trials, passed }: Trials): boolean => passed > 0 && passed < trials;

/** The exact two-sided sign test (McNemar) on the pairs that changed; 1 where nothing changed. */
export function signTest(lost: number, won: number): number {
  const pairs = lost + won;
  // In logarithms: 0.5 ** pairs is 0 in a double from 1,075 pairs on.
  let term = -pairs * Math.LN2;
  let tail = Math.exp(term);
  for (let hits = 1; hits <= Math.min(lost, won); hits += 1) {
    term += Math.log((pairs - hits + 1) / hits);
    tail += Math.exp(term);
  }
  return Math.min(1, 2 * tail);
}

/** One case in two runs. */
export interface ComparedCase {
  evalId: string;
  before: Trials;
  after: Trials;
}

/** The changes between two runs on the same cases; cases by their id, in the order given. */
export interface Comparison {
  won: string[];
  lost: string[];
  /** The result of the sign test on won and lost cases. */
  pTwoSided: number;
  /** Cases whose interval lies wholly below that of before. */
  worse: string[];
  /** True for more lost than won beyond chance (p < 0.05), and for any case that is worse. */
  regression: boolean;
}

/** Compares two runs. A case passes where most of its trials do; one without trials is left out. */
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

/** Verdicts of a judge and of people on the same turns, counted. */
export interface Verdicts {
  bothPass: number;
  onlyJudgePasses: number;
  onlyHumanPasses: number;
  bothFail: number;
}

/** The share of equal verdicts; null without verdicts. */
export function agreement({ bothPass, onlyJudgePasses, onlyHumanPasses, bothFail }: Verdicts): number | null {
  const all = bothPass + onlyJudgePasses + onlyHumanPasses + bothFail;
  return all === 0 ? null : (bothPass + bothFail) / all;
}

/** Cohen's κ: agreement beyond chance, at most 1; null without verdicts, and where both always say one same thing. */
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
