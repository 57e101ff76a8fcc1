import { sumOfCosts } from '../features/evals/scoring/cost.ts';
import type { CaseSummary, RunComparison } from '../features/evals/runs/summary.ts';
import { toJunitXml } from './junit.ts';
import { toColumns } from './output.ts';

/** When the cases of a run pass. */
export interface Gate {
  /** The share of its trials that must pass. */
  threshold: number;
  /** True: trials of which no metric says anything do not keep a case from passing. */
  allowNotEvaluated: boolean;
}

/** True for a case that got through: enough trials passed, and all of them came to an end. */
export function isThrough({ trials, passRate, errors, notEvaluated }: CaseSummary, gate: Gate): boolean {
  if (errors > 0) return false;
  if (notEvaluated > 0 && !gate.allowNotEvaluated) return false;
  return trials === 0 ? notEvaluated > 0 : (passRate ?? 0) >= gate.threshold;
}

/** The exit code of a run: 0 where all cases got through and none got worse, else 1. */
export const toExitCode = (cases: CaseSummary[], gate: Gate, comparison?: RunComparison): 0 | 1 =>
  cases.every((one) => isThrough(one, gate)) && comparison?.regression !== true ? 0 : 1;

const percent = (share: number | null) => (share === null ? '–' : `${Math.round(share * 100)} %`);

/** The cases as a table to read, each with the reason why it did not get through; then what changed. */
export function toTable(cases: CaseSummary[], gate: Gate, comparison?: RunComparison): string {
  const metrics = [...new Set(cases.flatMap(({ scores }) => Object.keys(scores)))];
  const head = ['', 'case', 'passed', '95 %', ...metrics];
  const rows = cases.map((one) => [
    isThrough(one, gate) ? 'ok' : 'NO',
    one.evalId + (one.flaky ? ' (flaky)' : ''),
    `${one.passed}/${one.trials + one.notEvaluated + one.errors}`,
    one.interval.map(percent).join('–'),
    ...metrics.map((name) => one.scores[name]?.toFixed(2) ?? '–'),
  ]);
  const reasons = cases.flatMap((one) =>
    one.reason !== undefined && !isThrough(one, gate) ? [`${one.evalId}: ${one.reason}`] : [],
  );
  const cost = sumOfCosts(cases.map((one) => one.cost));
  const through = cases.filter((one) => isThrough(one, gate)).length;
  return [
    toColumns([head, ...rows]),
    ...(reasons.length > 0 ? ['', ...reasons] : []),
    '',
    `${through} of ${cases.length} cases passed.${cost === undefined ? '' : ` Cost: ${cost}.`}`,
    ...(comparison ? toChanges(comparison) : []),
  ].join('\n');
}

function toChanges({ won, lost, worse, pTwoSided, regression, differences }: RunComparison): string[] {
  const parts = differences.map(
    ({ evalId, event, path, before, after }) =>
      `  ${evalId}: event ${event}${path}: ${JSON.stringify(before)} became ${JSON.stringify(after)}`,
  );
  const names = (ids: string[]) => (ids.length === 0 ? 'none' : ids.join(', '));
  return [
    `Against the baseline: won ${names(won)}; lost ${names(lost)}; worse ${names(worse)}; p = ${pTwoSided.toFixed(3)}.`,
    ...parts,
    ...(regression ? ['This is a regression.'] : []),
  ];
}

/** The cases as a JUnit report, as CI systems read it: one test each. */
export const toJunit = (evalSetId: string, cases: CaseSummary[], gate: Gate): string =>
  toJunitXml(
    evalSetId,
    cases.map((one) => ({
      name: one.evalId,
      kind: isThrough(one, gate) ? undefined : one.errors > 0 ? 'error' : 'failure',
      message: one.reason ?? `${one.passed} of ${one.trials} trials passed.`,
    })),
  );
