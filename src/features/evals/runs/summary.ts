import type { ModelPrice } from '../../../conversation/budgets/budget.ts';
import { listModelPrices } from '../../../conversation/budgets/budget-store.ts';
import type { Database } from '../../../platform/db/database.ts';
import { listHistories } from '../../../conversation/sessions/history-store.ts';
import { computeCost, sumOfCosts } from '../scoring/cost.ts';
import {
  type Comparison,
  compareRuns,
  isFlaky,
  estimatePassAll,
  passRate,
  type Trials,
  wilsonInterval,
} from '../metrics/statistics.ts';
import { toOverall } from '../metrics/status.ts';
import { listRunCases } from './eval-run-store.ts';
import type { EvalRunKey, RunCase } from './eval-run.ts';
import type { ScoredCase } from '../scoring/score.ts';
import { getFunctionCalls, getFunctionResponses, getParts } from '../../../core/content.ts';
import type { Event } from '../../../core/event.ts';
import { type JsonDifference, jsonDifference } from '../../../core/json-difference.ts';

/** The trials of one case in one run, as `runSummarySchema` describes them. */
export type CaseSummary = ReturnType<typeof toSummaries>[number];

/** A run against an earlier one on the same cases. */
export interface RunComparison extends Comparison {
  /** Where the first trials of the won and lost cases part. */
  differences: ({ evalId: string } & Difference)[];
}

/** The cases of a run with their trials, in the order of the set. */
export async function summarizeRun(db: Database, key: EvalRunKey): Promise<CaseSummary[]> {
  return toSummaries(await listRunCases(db, key), await listModelPrices(db));
}

function toSummaries(cases: RunCase[], prices: ModelPrice[]) {
  return [...Map.groupBy(cases, ({ evalId }) => evalId)].map(([evalId, trials]) => {
    const ended = trials.map((trial) => ({
      error: trial.error,
      scored: trial.resultText === null ? undefined : (JSON.parse(trial.resultText) as ScoredCase),
    }));
    const count = (status: string) => ended.filter(({ scored }) => scored?.finalStatus === status).length;
    const verdicts: Trials = { trials: count('PASSED') + count('FAILED'), passed: count('PASSED') };
    const cost = sumOfCosts(ended.map(({ scored }) => computeCost(scored?.uses, prices)));
    const reason = ended.map(toReason).find((text) => text !== undefined);
    return {
      evalId,
      ...verdicts,
      notEvaluated: count('NOT_EVALUATED'),
      errors: ended.filter(({ error }) => error !== null).length,
      passRate: passRate(verdicts),
      interval: wilsonInterval(verdicts),
      passAll: verdicts.trials === 0 ? null : estimatePassAll(verdicts, verdicts.trials),
      flaky: isFlaky(verdicts),
      scores: toScores(ended.flatMap(({ scored }) => scored ?? [])),
      ...(reason === undefined ? {} : { reason }),
      ...(cost === undefined ? {} : { cost }),
    };
  });
}

function toScores(scored: ScoredCase[]): Record<string, number | null> {
  const results = Map.groupBy(
    scored.flatMap(({ overall }) => overall),
    ({ metricName }) => metricName,
  );
  return Object.fromEntries([...results].map(([name, each]) => [name, toOverall(each.map(({ score }) => score))]));
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

/** Where two courses of events part. */
export interface Difference extends JsonDifference {
  /** Place of the event in its session, from 0; the path is '' for an event that only one of them has. */
  event: number;
}

/** The first difference of what was said and done; ids, times and what a provider counts are left out. */
export function firstDifference(before: Event[], after: Event[]): Difference | undefined {
  const length = Math.max(before.length, after.length);
  for (let event = 0; event < length; event += 1) {
    const [one, other] = [toDeed(before[event]), toDeed(after[event])];
    const found = jsonDifference(one, other);
    if (found) return { event, ...found };
  }
  return undefined;
}

/** The words and deeds of an event. */
const toDeed = (event: Event | undefined) =>
  event && {
    author: event.author ?? 'agent',
    texts: getParts(event.content).flatMap(({ text }) => (text ? [text] : [])),
    calls: getFunctionCalls(event.content).map(({ name, args }) => ({ name, args })),
    responses: getFunctionResponses(event.content).map(({ name, response }) => ({ name, response })),
    ...(event.errorCode == null ? {} : { errorCode: event.errorCode }),
  };
