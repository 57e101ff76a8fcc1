import { toJunitXml } from './junit.ts';
import { toColumns, toLine } from './output.ts';

/** A case in the summary of a run, as far as a report needs it. */
export interface CaseSummary {
  evalId: string;
  trials: number;
  passed: number;
  notEvaluated: number;
  errors: number;
  unfinished: number;
  passRate: number | null;
  /** 95 % interval of the share of trials that pass. */
  interval: [low: number, high: number];
  flaky: boolean;
  scores: Record<string, number | null>;
  reason?: string;
  cost?: number;
}

export interface RunComparison {
  won: string[];
  lost: string[];
  worse: string[];
  pTwoSided: number;
  regression: boolean;
  differences: { evalId: string; event: number; path: string; before?: unknown; after?: unknown }[];
  compared: number;
  missing: string[];
  added: string[];
  missingMetrics: string[];
}

/** The conditions under which an evaluation case passes. */
export interface Gate {
  /** The share of a case's trials that must pass, from 0 to 1. */
  threshold: number;
  /** True: a case may pass although a metric could not score some of its trials. */
  allowNotEvaluated: boolean;
}

/** True if the case passed: all its trials ended, and enough of them passed. */
export function isThrough({ trials, passRate, errors, notEvaluated, unfinished }: CaseSummary, gate: Gate): boolean {
  if (errors > 0 || unfinished > 0) return false;
  if (notEvaluated > 0 && !gate.allowNotEvaluated) return false;
  return trials === 0 ? notEvaluated > 0 : (passRate ?? 0) >= gate.threshold;
}

/** Exit code if there is no regression, but a part of the baseline could not be compared. */
export const NOT_COMPARED = 3;

/** A comparison as the service returns it; services of earlier versions leave out the members of `Unseen`. */
type Compared = Omit<RunComparison, keyof Unseen> & Partial<Unseen>;
type Unseen = Pick<RunComparison, 'compared' | 'missing' | 'added' | 'missingMetrics'>;

/** Returns the exit code of a comparison: 1 for a regression, 3 if a part of the baseline was not compared, else 0. */
export function toComparisonCode({ regression, compared, missing = [], missingMetrics = [] }: Compared): 0 | 1 | 3 {
  if (regression) return 1;
  return compared === 0 || missing.length > 0 || missingMetrics.length > 0 ? NOT_COMPARED : 0;
}

/** Returns the exit code of a run: 1 if a case did not pass or the run has no cases, else that of the comparison. */
export function toExitCode(cases: CaseSummary[], gate: Gate, comparison?: Compared): 0 | 1 | 3 {
  if (cases.length === 0 || !cases.every((one) => isThrough(one, gate))) return 1;
  return comparison ? toComparisonCode(comparison) : 0;
}

const percent = (share: number | null) => (share === null ? '–' : `${Math.round(share * 100)} %`);

/** One trial of a case in the result of a run, as far as a report needs it. */
export interface CaseResult {
  evalId: string;
  evalMetricResultPerInvocation: {
    actualInvocation: ShownTurn;
    /** Absent for a simulated conversation. */
    expectedInvocation?: ShownTurn;
    evalMetricResults: { evalStatus: number }[];
  }[];
}

interface ShownTurn {
  finalResponse: { parts?: { text?: string }[] };
  intermediateData: { toolUses: { name?: string; args?: unknown }[] };
}

/** `evalStatus` of a metric that failed. */
const FAILED = 2;
/** Maximum number of characters of a call or an answer that a report prints. */
const SHOWN = 300;

/** Returns, by case, what was expected and what came in the first turn that a metric failed. */
export function toMismatches(results: CaseResult[]): Map<string, string[]> {
  const mismatches = new Map<string, string[]>();
  for (const { evalId, evalMetricResultPerInvocation: turns } of results) {
    const place = turns.findIndex(({ evalMetricResults }) =>
      evalMetricResults.some((one) => one.evalStatus === FAILED),
    );
    const { actualInvocation: actual, expectedInvocation: expected } = turns[place] ?? {};
    if (!actual || !expected || mismatches.has(evalId)) continue;
    const lines = [...toDifference('calls', toCalls(expected), toCalls(actual)), ...toAnswers(expected, actual)];
    if (lines.length > 0) mismatches.set(evalId, [`  turn ${place + 1}`, ...lines.map((line) => `    ${line}`)]);
  }
  return mismatches;
}

function toDifference(what: string, expected: string[], actual: string[]): string[] {
  const isSame = expected.length === actual.length && expected.every((text, index) => text === actual[index]);
  const list = (texts: string[]) => texts.join(', ') || 'none';
  return isSame ? [] : [`expected ${what}: ${list(expected)}`, `actual ${what}:   ${list(actual)}`];
}

const toCalls = ({ intermediateData: { toolUses } }: ShownTurn): string[] =>
  toolUses.map(({ name = '', args = {} }) => toLine(`${name} ${JSON.stringify(args)}`, SHOWN));

/** Nothing where the case expects no answer. */
function toAnswers(expected: ShownTurn, actual: ShownTurn): string[] {
  const [wanted = '', came = ''] = [expected, actual].map(({ finalResponse: { parts = [] } }) =>
    toLine(parts.map(({ text = '' }) => text).join(' '), SHOWN),
  );
  return wanted === '' ? [] : toDifference('answer', [wanted], [came]);
}

/**
 * A run as text: a table of the cases, the reasons of those that did not pass, and the changes from the baseline.
 * @param mismatches lines below the reason of a case, by its id
 */
export function toTable(
  cases: CaseSummary[],
  gate: Gate,
  comparison?: Compared,
  mismatches = new Map<string, string[]>(),
): string {
  const metrics = [...new Set(cases.flatMap(({ scores }) => Object.keys(scores)))];
  const head = ['', 'case', 'passed', '95 %', ...metrics];
  const rows = cases.map((one) => [
    isThrough(one, gate) ? 'ok' : 'NO',
    one.evalId + (one.flaky ? ' (flaky)' : ''),
    `${one.passed}/${one.trials + one.notEvaluated + one.errors + one.unfinished}`,
    one.interval.map(percent).join('–'),
    ...metrics.map((name) => one.scores[name]?.toFixed(2) ?? '–'),
  ]);
  const reasons = cases.flatMap((one) =>
    one.reason !== undefined && !isThrough(one, gate)
      ? [`${one.evalId}: ${one.reason}`, ...(mismatches.get(one.evalId) ?? [])]
      : [],
  );
  const costs = cases.flatMap((one) => one.cost ?? []);
  const through = cases.filter((one) => isThrough(one, gate)).length;
  return [
    toColumns([head, ...rows]),
    ...(reasons.length > 0 ? ['', ...reasons] : []),
    '',
    `${through} of ${cases.length} cases passed.${costs.length === 0 ? '' : ` Cost: ${costs.reduce((sum, cost) => sum + cost, 0)}.`}`,
    ...(comparison ? toChanges(comparison) : []),
  ].join('\n');
}

function toChanges(comparison: Compared): string[] {
  const { won, lost, worse, pTwoSided, regression, differences } = comparison;
  const { compared, missing = [], added = [], missingMetrics = [] } = comparison;
  const parts = differences.map(
    ({ evalId, event, path, before, after }) =>
      `  ${evalId}: event ${event}${path}: ${JSON.stringify(before)} became ${JSON.stringify(after)}`,
  );
  const names = (ids: string[]) => (ids.length === 0 ? 'none' : ids.join(', '));
  return [
    `Against the baseline: won ${names(won)}; lost ${names(lost)}; worse ${names(worse)}; p = ${pTwoSided.toFixed(3)}.`,
    ...parts,
    ...(added.length > 0 ? [`New, so without a comparison: ${names(added)}.`] : []),
    ...(missing.length > 0 ? [`Not compared, as they have no verdict now: ${names(missing)}.`] : []),
    ...(missingMetrics.length > 0 ? [`Not compared, as they give no verdict now: ${names(missingMetrics)}.`] : []),
    ...(compared === 0 ? ['Nothing was compared: the runs have no case with a verdict in common.'] : []),
    ...(regression ? ['This is a regression.'] : []),
  ];
}

export const toJunit = (evalSetId: string, cases: CaseSummary[], gate: Gate): string =>
  toJunitXml(
    evalSetId,
    cases.map((one) => ({
      name: one.evalId,
      kind: isThrough(one, gate) ? undefined : one.errors > 0 ? 'error' : 'failure',
      message: one.reason ?? `${one.passed} of ${one.trials} trials passed.`,
    })),
  );
