import type { ModelPrice } from '../../../conversation/budgets/budget.ts';
import { listModelPrices } from '../../../conversation/budgets/budget-store.ts';
import type { Database } from '../../../platform/db/database.ts';
import type { Event } from '../../../core/event.ts';
import { listHistories } from '../../../conversation/sessions/history-store.ts';
import { toActualTurns } from '../cases/actual-turns.ts';
import { eventsOfCase, readStoredCase } from '../cases/case-text.ts';
import { costOf } from '../scoring/cost.ts';
import type { TurnPair } from '../metrics/turn.ts';
import { type EvalSetResultDocument, type FinishedCase, toEvalSetResult } from './result-document.ts';
import { type EvalRun, listRunCases, type RunCase } from './eval-run-store.ts';
import type { ScoredCase } from '../scoring/score.ts';

/** The result of a run: its cases that ended, in the order of the set, with the turns that happened. */
export async function readResult(
  db: Database,
  appName: string,
  { runId, evalSetId, resultMicroseconds }: Pick<EvalRun, 'runId' | 'evalSetId' | 'resultMicroseconds'>,
): Promise<EvalSetResultDocument> {
  const cases = (await listRunCases(db, { appName, runId })).filter(hasEnded);
  const histories = await listHistories(db, appName, cases);
  const prices = await listModelPrices(db);
  const finished = cases.map((one, place) => toFinishedCase(one, histories[place] ?? [], prices));
  return toEvalSetResult(appName, evalSetId, resultMicroseconds, finished);
}

type EndedCase = RunCase & { sessionId: string };
const hasEnded = (one: RunCase): one is EndedCase =>
  (one.status === 'done' || one.status === 'error') && one.sessionId !== null;

function toFinishedCase(one: EndedCase, events: Event[], prices: ModelPrice[]): FinishedCase {
  const evalCase = readStoredCase(one.caseText);
  // A session can go on in the UI: what comes after the last turn of the case is not part of it.
  const actual = toActualTurns(eventsOfCase(evalCase, events.slice(0, one.lastSequence ?? 0)), undefined);
  const pairs: TurnPair[] = actual.map((turn, place) => ({ actual: turn, expected: evalCase.conversation?.[place] }));
  const scored = one.resultText === null ? undefined : (JSON.parse(one.resultText) as ScoredCase);
  return {
    evalId: one.evalId,
    sessionId: one.sessionId,
    userId: one.userId,
    pairs,
    scored,
    cost: costOf(scored?.uses, prices),
    error: one.error === null ? undefined : { message: one.error, failedTurn: one.failedTurn ?? 0 },
  };
}
