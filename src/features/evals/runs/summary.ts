import type { Database } from '../../../platform/db/database.ts';
import { toShown } from '../../../conversation/sessions/diff.ts';
import { findHistory } from '../../../conversation/sessions/history.ts';
import { sumOfCosts } from '../scoring/score.ts';
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
import { listOutcomes } from './eval-run-store.ts';
import type { EvalRunKey, Outcome, RunCase } from './eval-run.ts';
import { getFunctionCalls, getFunctionResponses, getParts } from '../../../core/content.ts';
import type { Event } from '../../../core/event.ts';
import { type JsonDifference, jsonDifference } from '../../../core/json-difference.ts';

export type CaseSummary = ReturnType<typeof toSummaries>[number];

export interface RunComparison extends Comparison {
  compared: number;
  /** Ids of cases that have a verdict in the earlier run but not in this run. */
  missing: string[];
  added: string[];
  missingMetrics: string[];
  /** For each case that passed in only one of the runs: the first difference between its first trials in both. */
  differences: ({ evalId: string } & Difference)[];
}

export async function summarizeRun(db: Database, key: EvalRunKey): Promise<CaseSummary[]> {
  return toSummaries(await listOutcomes(db, key));
}

type CaseOutcome = RunCase & { scored: Outcome | null };

function toSummaries(cases: CaseOutcome[]) {
  return [...Map.groupBy(cases, ({ evalId }) => evalId)].map(([evalId, trials]) => {
    const count = (status: string) => trials.filter(({ scored }) => scored?.finalStatus === status).length;
    const verdicts: Trials = { trials: count('PASSED') + count('FAILED'), passed: count('PASSED') };
    const cost = sumOfCosts(trials.map(({ scored }) => scored?.cost ?? undefined));
    const reason = trials.map(toReason).find((text) => text !== undefined);
    return {
      evalId,
      ...verdicts,
      notEvaluated: count('NOT_EVALUATED'),
      errors: trials.filter(({ error }) => error !== null).length,
      unfinished: trials.filter(({ status }) => status !== 'done' && status !== 'error').length,
      passRate: passRate(verdicts),
      interval: wilsonInterval(verdicts),
      passAll: verdicts.trials === 0 ? null : estimatePassAll(verdicts, verdicts.trials),
      flaky: isFlaky(verdicts),
      scores: toScores(trials.flatMap(({ scored }) => scored ?? [])),
      ...(reason === undefined ? {} : { reason }),
      ...(cost === undefined ? {} : { cost }),
    };
  });
}

function toScores(scored: Outcome[]): Record<string, number | null> {
  const results = Map.groupBy(
    scored.flatMap(({ overall }) => overall),
    ({ metricName }) => metricName,
  );
  return Object.fromEntries([...results].map(([name, each]) => [name, toOverall(each.map(({ score }) => score))]));
}

/** A score for people: four decimals, unless it is nearer to the threshold. */
function toShort(score: number | null | undefined, threshold: number | null): string {
  const short = Number(score?.toFixed(4));
  return String(threshold !== null && short < threshold ? short : score);
}

function toReason({ error, scored }: CaseOutcome): string | undefined {
  if (error !== null) return error;
  const failed = scored?.overall.find(({ status }) => status === 'FAILED');
  if (failed) return `${failed.metricName}: ${toShort(failed.score, failed.threshold)} is below ${failed.threshold}.`;
  const unevaluated = scored?.overall.find(({ status }) => status === 'NOT_EVALUATED');
  if (unevaluated)
    return `${unevaluated.metricName} was not evaluated: ${unevaluated.explanation ?? 'there is nothing to score'}`;
  const partial = scored?.overall.find(({ explanation }) => explanation != null);
  return partial && `A part of ${partial.metricName} was not evaluated: ${partial.explanation}`;
}

export async function compareWith(db: Database, key: EvalRunKey, baseline: EvalRunKey): Promise<RunComparison> {
  const after = await listOutcomes(db, key);
  const before = await listOutcomes(db, baseline);
  const earlier = new Map(toSummaries(before).map((summary) => [summary.evalId, summary]));
  const later = new Map(toSummaries(after).map((summary) => [summary.evalId, summary]));
  const none: Trials = { trials: 0, passed: 0 };
  const cases = [...new Set([...later.keys(), ...earlier.keys()])].map((evalId) => ({
    evalId,
    before: earlier.get(evalId) ?? none,
    after: later.get(evalId) ?? none,
  }));
  const comparison = compareRuns(cases);
  const idsOf = (hadVerdict: boolean, hasVerdict: boolean) =>
    cases
      .filter((one) => one.before.trials > 0 === hadVerdict && one.after.trials > 0 === hasVerdict)
      .map(({ evalId }) => evalId);
  const metricsAfter = listMetrics(after);
  const coverage = {
    compared: idsOf(true, true).length,
    missing: idsOf(true, false),
    added: idsOf(false, true),
    missingMetrics: [...listMetrics(before)].filter((name) => !metricsAfter.has(name)),
  };
  const changedIds = [...comparison.lost, ...comparison.won];
  const differences: RunComparison['differences'] = [];
  // Cases are compared one after another, because each needs two whole histories in memory.
  for (const evalId of changedIds) {
    const eventsBefore = await firstTrial(db, baseline, before, evalId);
    const eventsAfter = await firstTrial(db, key, after, evalId);
    const difference = firstDifference(eventsBefore, eventsAfter);
    if (difference)
      differences.push({
        evalId,
        ...difference,
        before: toShown(difference.before),
        after: toShown(difference.after),
      });
  }
  return { ...comparison, ...coverage, differences };
}

const listMetrics = (cases: CaseOutcome[]): Set<string> =>
  new Set(
    cases
      .flatMap(({ scored }) => scored?.overall ?? [])
      .filter(({ status }) => status === 'PASSED' || status === 'FAILED')
      .map(({ metricName }) => metricName),
  );

async function firstTrial(db: Database, { appName }: EvalRunKey, cases: RunCase[], evalId: string): Promise<Event[]> {
  const one = cases.find((some) => some.evalId === evalId && some.trial === 1);
  if (!one || one.sessionId === null) return [];
  const history = await findHistory(db, { appName, userId: one.userId, sessionId: one.sessionId });
  return (history?.events ?? []).slice(0, one.lastSequence ?? 0);
}

export interface Difference extends JsonDifference {
  /** Index of the event in its session, from 0. The path is empty if only one of the two sessions has the event. */
  event: number;
}

/** Finds the first difference in content between two lists of events. Ids, times and token counts are ignored. */
export function firstDifference(before: Event[], after: Event[]): Difference | undefined {
  const length = Math.max(before.length, after.length);
  for (let event = 0; event < length; event += 1) {
    const difference = jsonDifference(toComparable(before[event]), toComparable(after[event]));
    if (difference) return { event, ...difference };
  }
  return undefined;
}

const toComparable = (event: Event | undefined) =>
  event && {
    author: event.author ?? 'agent',
    texts: getParts(event.content).flatMap(({ text }) => (text ? [text] : [])),
    calls: getFunctionCalls(event.content).map(({ name, args }) => ({ name, args })),
    responses: getFunctionResponses(event.content).map(({ name, response }) => ({ name, response })),
    ...(event.errorCode == null ? {} : { errorCode: event.errorCode }),
  };
