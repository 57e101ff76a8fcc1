import { getParts } from '../../../core/content.ts';
import { STATUS_NUMBERS } from '../metrics/status.ts';
import { callsOf, type Turn, type TurnPair } from '../metrics/turn.ts';
import { type ScoredCase, type ShownEfficiency, toShownEfficiency, toMetricResult } from '../scoring/score.ts';

/** A case that ran: its verdict, or why it could not be brought to an end. */
export interface FinishedCase {
  evalId: string;
  sessionId: string;
  userId: string;
  /** The turns that took place, also of a case that failed on the way. */
  pairs: TurnPair[];
  scored?: ScoredCase | undefined;
  /** What its models cost, where that is known. */
  cost?: number | undefined;
  /** The sentence of the failure; the failed turn counts from 0. */
  error?: { message: string; failedTurn: number } | undefined;
}

/** A run of a set as clients read it; a case result as they do, with members of this service beside ADK's. */
export interface EvalSetResultDocument {
  evalSetResultId: string;
  evalSetResultName: string;
  evalSetId: string;
  evalCaseResults: EvalCaseResultDocument[];
  /** Unix time in seconds; the end of the id. */
  creationTimestamp: number;
}

interface EvalCaseResultDocument {
  evalSetFile: string;
  evalSetId: string;
  evalId: string;
  finalEvalStatus: number;
  /** Always empty: the UI reads the others, and counts these twice. */
  evalMetricResults: [];
  overallEvalMetricResults: object[];
  evalMetricResultPerInvocation: object[];
  sessionId: string;
  userId: string;
  efficiency?: ShownEfficiency;
  cost?: number;
  notEvaluated?: string[];
  error?: string;
  failedTurn?: number;
}

const MICROSECONDS = 1_000_000;

/**
 * The id and the time of a result, from microseconds since 1970. Never a whole second: Python would print `.0` after it
 * and JavaScript does not, so that the id would not hold the time.
 */
export function toResultId(appName: string, evalSetId: string, microseconds: number) {
  const moment = microseconds % MICROSECONDS === 0 ? microseconds + 1 : microseconds;
  const creationTimestamp = moment / MICROSECONDS;
  const evalSetResultId = `${appName}_${evalSetId}_${creationTimestamp}`;
  return { evalSetResultId, evalSetResultName: evalSetResultId.replaceAll('/', '_'), creationTimestamp };
}

/** The result of a run, cases in the order given. */
export function toEvalSetResult(
  appName: string,
  evalSetId: string,
  microseconds: number,
  cases: FinishedCase[],
): EvalSetResultDocument {
  return {
    ...toResultId(appName, evalSetId, microseconds),
    evalSetId,
    evalCaseResults: cases.map((finished) => toEvalCaseResult(evalSetId, finished)),
  };
}

function toEvalCaseResult(evalSetId: string, finished: FinishedCase): EvalCaseResultDocument {
  const { evalId, sessionId, userId, pairs, scored, cost, error } = finished;
  const failure = error ? [toFailure(error.message)] : [];
  const status = error ? 'FAILED' : (scored?.finalStatus ?? 'NOT_EVALUATED');
  const results = (place: number) => {
    const all = scored?.turns[place] ?? [];
    // The older bundle of the UI shows a case red unless all of these passed.
    return status === 'PASSED' ? all.filter((result) => result.status !== 'NOT_EVALUATED') : all;
  };
  return {
    evalSetFile: evalSetId,
    evalSetId,
    evalId,
    finalEvalStatus: STATUS_NUMBERS[status],
    evalMetricResults: [],
    overallEvalMetricResults: [...failure, ...(scored?.overall ?? []).map(toMetricResult)],
    evalMetricResultPerInvocation: pairs.map(({ actual, expected }, place) => ({
      actualInvocation: toShownTurn(actual),
      ...(expected ? { expectedInvocation: toShownTurn(expected) } : {}),
      evalMetricResults: [...(place === error?.failedTurn ? failure : []), ...results(place).map(toMetricResult)],
    })),
    sessionId,
    userId,
    ...(scored ? { efficiency: toShownEfficiency(scored.efficiency) } : {}),
    ...(cost === undefined ? {} : { cost }),
    ...(scored && scored.notEvaluated.length > 0 ? { notEvaluated: scored.notEvaluated } : {}),
    ...(error ? { error: error.message, failedTurn: error.failedTurn } : {}),
  };
}

/** A failure of the agent where clients look for reasons: among the metrics. */
const toFailure = (explanation: string) => ({
  metricName: 'inference',
  evalStatus: STATUS_NUMBERS.FAILED,
  details: { explanation },
});

/**
 * A turn as the UI reads it: with the two members that it reads without looking whether they are there
 * (https://github.com/google/adk-web/issues/266): the calls, and a final response with a part. Ids of calls, responses
 * and texts in between stand in the session and are read by no client; the times would make ADK 2.2.0 refuse the turn.
 */
function toShownTurn({ appDetails: _declarations, duration: _d, modelDuration: _m, toolDuration: _t, ...turn }: Turn) {
  const parts = getParts(turn.finalResponse);
  return {
    ...turn,
    finalResponse: parts.length > 0 ? turn.finalResponse : { role: 'model', parts: [{ text: '' }] },
    intermediateData: { toolUses: callsOf(turn.intermediateData).map(({ id: _id, ...call }) => call) },
  };
}
