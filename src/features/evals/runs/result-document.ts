import { getParts, type JsonObject } from '../../../core/content.ts';
import { STATUS_NUMBERS } from '../metrics/status.ts';
import { toToolUses, type Turn, type TurnPair } from '../metrics/turn.ts';
import { type ScoredCase, toEfficiencyView, toMetricResult, toReason } from '../scoring/score.ts';
import type { Database } from '../../../platform/db/database.ts';
import type { Event } from '../../../core/event.ts';
import { listHistories } from '../../../conversation/sessions/history.ts';
import { toActualTurns } from '../cases/turns.ts';
import { withoutHistory, readStoredCase } from '../cases/eval-case.ts';
import { type EndedPage, listEndedCases } from './eval-run-store.ts';
import { withShortTexts } from '../sets/bounds.ts';
import type { EndedCase, EvalRun, EvalRunKey } from './eval-run.ts';

/** A completed case with its scores, or with the reason why it could not be completed. */
export interface FinishedCase {
  evalId: string;
  sessionId: string;
  userId: string;
  /** The turns that took place, even if the case failed in between. */
  pairs: TurnPair[];
  scored?: ScoredCase | undefined;
  cost?: number | null;
  /** Message of the failure, and the index of the failed turn from 0. */
  error?: { message: string; failedTurn: number } | undefined;
}

const MICROSECONDS = 1_000_000;

/** The time is no whole second (`result_time`), because only Python prints a whole second with `.0`. */
export function toResultId(appName: string, evalSetId: string, microseconds: number) {
  const creationTimestamp = microseconds / MICROSECONDS;
  const evalSetResultId = `${appName}_${evalSetId}_${creationTimestamp}`;
  return { evalSetResultId, evalSetResultName: evalSetResultId.replaceAll('/', '_'), creationTimestamp };
}

/** Maximum number of characters of a case's JSON in a result. */
const MAX_CASE = 1_048_576;

/** If a case's JSON is too long, first its texts are shortened, then its last turns are left out. */
export function toCaseText(evalSetId: string, finishedCase: FinishedCase): string {
  const whole = toEvalCaseResult(evalSetId, finishedCase);
  const text = JSON.stringify(whole);
  if (text.length <= MAX_CASE) return text;
  const shortened = { ...withShortTexts(whole, MAX_CASE / 2), omittedTurns: 0 };
  const turns = shortened.evalMetricResultPerInvocation;
  let length = JSON.stringify(shortened).length;
  while (length > MAX_CASE && turns.length > 0) {
    length -= JSON.stringify(turns.pop()).length;
    shortened.omittedTurns += 1;
  }
  return JSON.stringify(shortened);
}

function toEvalCaseResult(evalSetId: string, finishedCase: FinishedCase) {
  const { evalId, sessionId, userId, pairs, scored, cost, error } = finishedCase;
  const failure = error ? [toFailure(error.message)] : [];
  const status = error ? 'FAILED' : (scored?.finalStatus ?? 'NOT_EVALUATED');
  const results = (place: number) => {
    const all = scored?.turns[place] ?? [];
    // A passed case omits metrics without evaluation: older ADK Web UIs show it as failed unless all metrics passed.
    return status === 'PASSED' ? all.filter((result) => result.status !== 'NOT_EVALUATED') : all;
  };
  return {
    evalSetFile: evalSetId,
    evalSetId,
    evalId,
    finalEvalStatus: STATUS_NUMBERS[status],
    // This list is empty, because the ADK Web UI reads the other two lists and would count the results twice.
    evalMetricResults: [],
    overallEvalMetricResults: [...failure, ...(scored?.overall ?? []).map(toMetricResult)],
    evalMetricResultPerInvocation: pairs.map(({ actual, expected }, place) => ({
      actualInvocation: toShownTurn(actual),
      ...(expected ? { expectedInvocation: toShownTurn(expected) } : {}),
      evalMetricResults: [...(place === error?.failedTurn ? failure : []), ...results(place).map(toMetricResult)],
    })),
    sessionId,
    userId,
    ...(scored ? { efficiency: toEfficiencyView(scored.efficiency) } : {}),
    ...(cost == null ? {} : { cost }),
    ...(scored && scored.notEvaluated.length > 0 ? { notEvaluated: scored.notEvaluated } : {}),
    ...(error ? { error: error.message, failedTurn: error.failedTurn } : {}),
  };
}

/** Shows a failure of the agent as a metric, because clients look for reasons there. */
const toFailure = (explanation: string) => ({
  metricName: 'inference',
  evalStatus: STATUS_NUMBERS.FAILED,
  details: { rubricScores: toReason('inference', explanation) },
});

/**
 * Adds what the ADK Web UI reads blindly (https://github.com/google/adk-web/issues/266): the calls, and a final
 * response with a part. Without durations, because ADK 2.2.0 refuses them.
 */
function toShownTurn({ duration: _d, modelDuration: _m, toolDuration: _t, ...turn }: Turn) {
  const parts = getParts(turn.finalResponse);
  return {
    ...turn,
    finalResponse: parts.length > 0 ? turn.finalResponse : { role: 'model', parts: [{ text: '' }] },
    intermediateData: toToolUses(turn.intermediateData),
  };
}

/** Yields the ended cases of a run as JSON with their actual turns, page by page, in the order of the set. */
export async function* readResult(
  db: Database,
  key: EvalRunKey & Pick<EvalRun, 'evalSetId'>,
  first?: EndedPage,
): AsyncGenerator<string[]> {
  for await (const cases of listEndedCases(db, key, first)) {
    const histories = await listHistories(db, key.appName, cases);
    yield cases.map((one, place) => toCaseText(key.evalSetId, toFinishedCase(one, histories[place] ?? [])));
  }
}

function toFinishedCase(one: EndedCase, events: Event[]): FinishedCase {
  const evalCase = readStoredCase(one.evalCase);
  // Events after the case's last turn are ignored, because a person may have continued the session in the ADK Web UI.
  const scored = one.scored ?? undefined;
  const ownEvents = withoutHistory(evalCase, events.slice(0, one.lastSequence ?? 0));
  const actual = toActualTurns(ownEvents, undefined).map(({ appDetails: _none, ...turn }): Turn => turn);
  // Only an agent's first turn has the agent's details, which would otherwise be the largest part of the result.
  for (const [name, agent] of Object.entries(scored?.agents ?? {})) {
    const first = actual.find((turn) => turn.intermediateData?.invocationEvents?.some(({ author }) => author === name));
    const before = first?.appDetails?.['agentDetails'] as JsonObject | undefined;
    if (first) first.appDetails = { agentDetails: { ...before, [name]: agent } };
  }
  const pairs: TurnPair[] = actual.map((turn, place) => ({ actual: turn, expected: evalCase.conversation?.[place] }));
  return {
    evalId: one.evalId,
    sessionId: one.sessionId,
    userId: one.userId,
    pairs,
    scored,
    cost: one.cost,
    error: one.error === null ? undefined : { message: one.error, failedTurn: one.failedTurn ?? 0 },
  };
}
