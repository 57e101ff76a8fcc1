import type { ModelPrice } from '../../../conversation/budgets/budget.ts';
import { listModelPrices } from '../../../conversation/budgets/budget-store.ts';
import type { Database } from '../../../platform/db/database.ts';
import { listHistories } from '../../../conversation/sessions/history-store.ts';
import { costOf, sumOfCosts } from '../scoring/cost.ts';
import { type Difference, firstDifference } from './first-difference.ts';
import {
  type Comparison,
  compareRuns,
  isFlaky,
  passAllOf,
  passRate,
  type Trials,
  wilsonInterval,
} from '../metrics/statistics.ts';
import { type EvalRunKey, listRunCases, type RunCase } from './eval-run-store.ts';
import type { ScoredCase } from '../scoring/score.ts';

/** The trials of one case in one run. Those not evaluated and those that broke off are counted apart from the rate. */
export interface CaseSummary {
  evalId: string;
  trials: number;
  passed: number;
  notEvaluated: number;
  errors: number;
  /** Null without a trial that gave a verdict. */
  passRate: number | null;
  /** Wilson's 95 % interval of the rate. */
  interval: [low: number, high: number];
  /** The estimate that as many trials as were made all pass. */
  passAll: number | null;
  flaky: boolean;
  /** The mean score of each metric over the trials; null where none gave one. */
  scores: Record<string, number | null>;
  /** Why the first trial that did not pass did not. */
  reason?: string;
  /** What its trials cost together; absent where no cost is known. */
  cost?: number;
}

/** A run against an earlier one on the same cases. */
export interface RunComparison extends Comparison {
  /** Of the won and lost cases: where the first trials part. */
  differences: ({ evalId: string } & Difference)[];
}

/** The cases of a run with their trials, in the order of the set. */
export async function summarizeRun(db: Database, key: EvalRunKey): Promise<CaseSummary[]> {
  return toSummaries(await listRunCases(db, key), await listModelPrices(db));
}

function toSummaries(cases: RunCase[], prices: ModelPrice[]): CaseSummary[] {
  return [...Map.groupBy(cases, ({ evalId }) => evalId)].map(([evalId, trials]) => {
    const ended = trials.map((trial) => ({
      error: trial.error,
      scored: trial.resultText === null ? undefined : (JSON.parse(trial.resultText) as ScoredCase),
    }));
    const count = (status: string) => ended.filter(({ scored }) => scored?.finalStatus === status).length;
    const verdicts: Trials = { trials: count('PASSED') + count('FAILED'), passed: count('PASSED') };
    const cost = sumOfCosts(ended.map(({ scored }) => costOf(scored?.uses, prices)));
    const reason = ended.map(toReason).find((text) => text !== undefined);
    return {
      evalId,
      ...verdicts,
      notEvaluated: count('NOT_EVALUATED'),
      errors: ended.filter(({ error }) => error !== null).length,
      passRate: passRate(verdicts),
      interval: wilsonInterval(verdicts),
      passAll: verdicts.trials === 0 ? null : passAllOf(verdicts, verdicts.trials),
      flaky: isFlaky(verdicts),
      scores: toScores(ended.flatMap(({ scored }) => scored ?? [])),
      ...(reason === undefined ? {} : { reason }),
      ...(cost === undefined ? {} : { cost }),
    };
  });
}

function toScores(scored: ScoredCase[]): CaseSummary['scores'] {
  const results = Map.groupBy(
    scored.flatMap(({ overall }) => overall),
    ({ metricName }) => metricName,
  );
  const means = [...results].map(([name, each]): [string, number | null] => {
    const known = each.flatMap(({ score }) => score ?? []);
    return [name, known.length === 0 ? null : known.reduce((sum, score) => sum + score, 0) / known.length];
  });
  return Object.fromEntries(means);
}

function toReason({ error, scored }: { error: string | null; scored: ScoredCase | undefined }): string | undefined {
  if (error !== null) return error;
  const unmet = scored?.overall.find(({ status }) => status === 'FAILED');
  if (unmet) return `${unmet.metricName}: ${unmet.score} is below ${unmet.threshold}.`;
  const silent = scored?.overall.find(({ status }) => status === 'NOT_EVALUATED');
  return silent && `${silent.metricName} was not evaluated: ${silent.explanation ?? 'there is nothing to score'}`;
}

/** Compares a run with an earlier one: cases that were won and lost, and where their first trials part. */
export async function compareWith(db: Database, key: EvalRunKey, baseline: EvalRunKey): Promise<RunComparison> {
  const [after, before] = [await listRunCases(db, key), await listRunCases(db, baseline)];
  const earlier = new Map(toSummaries(before, []).map((summary) => [summary.evalId, summary]));
  const none: Trials = { trials: 0, passed: 0 };
  const comparison = compareRuns(
    toSummaries(after, []).map((summary) => ({
      evalId: summary.evalId,
      before: earlier.get(summary.evalId) ?? none,
      after: summary,
    })),
  );
  const changed = [...comparison.lost, ...comparison.won];
  const [left, right] = [await firstTrials(db, baseline, before, changed), await firstTrials(db, key, after, changed)];
  const differences = changed.flatMap((evalId, place) => {
    const found = firstDifference(left[place] ?? [], right[place] ?? []);
    return found ? [{ evalId, ...found }] : [];
  });
  return { ...comparison, differences };
}

/** The events of the first trials of these cases, in the order given. */
async function firstTrials(db: Database, { appName }: EvalRunKey, cases: RunCase[], evalIds: string[]) {
  const trials = evalIds.map((evalId) => cases.find((one) => one.evalId === evalId && one.trial === 1));
  const keys = trials.map((one) => ({ userId: one?.userId ?? '', sessionId: one?.sessionId ?? '' }));
  const histories = await listHistories(db, appName, keys);
  return histories.map((events, place) => events.slice(0, trials[place]?.lastSequence ?? 0));
}
