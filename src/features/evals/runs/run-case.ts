import type { JsonObject } from '../../../core/content.ts';
import { LimitError, NotFoundError } from '../../../core/errors.ts';
import { toCallUse } from '../../../agent/definition/model.ts';
import { boundCall, type Spend, spendWith } from '../../../conversation/budgets/reserve-call.ts';
import type { Database } from '../../../platform/db/database.ts';
import { addJudgeTokens } from './eval-run-store.ts';
import { isStopped } from '../../../invocations/invocation.ts';
import { jobLost } from '../../../platform/jobs/job-store.ts';
import { findHistory } from '../../../conversation/sessions/history.ts';
import { toActualTurns } from '../cases/turns.ts';
import { withoutHistory, type StoredCase } from '../cases/eval-case.ts';
import { type CaseOutcome, findCaseOfJob, type RunningCase, restartCase } from './case-store.ts';
import { toUses } from '../scoring/score.ts';
import type { EvalContext } from '../sets/context.ts';
import { MetricError } from '../metrics/status.ts';
import type { Turn } from '../metrics/turn.ts';
import { takeTurn, toSessionKey, type TurnsEnd } from './take-turn.ts';
import { pairTurns, prepareScoring, scoreCase, type ScoringContext } from '../scoring/score-case.ts';

const GONE = 'The session of the case was deleted: there are no turns to judge.';
/** A case starts again in a new session if a turn is interrupted and cannot be resumed. */
const MAX_SESSIONS = 5;
const INTERRUPTED = `The turn was interrupted, in each of ${MAX_SESSIONS} sessions.`;

/** After this time a case gives its place in the process to another one between two turns. */
const MAX_HELD_MS = 60_000;

/**
 * Runs a case from its newest turn on: takes its turns and scores them.
 * @returns the outcome; `undefined` if the case was deleted, or goes on later, because the end of its last turn makes its
 *   job due
 */
export async function runCase(
  context: EvalContext,
  claimed: RunningCase,
  signal: AbortSignal,
): Promise<CaseOutcome | undefined> {
  const { db } = context.database;
  const startedAt = performance.now();
  const agent = context.agents.get(claimed.appName);
  if (!agent) throw new NotFoundError(`App not found: ${claimed.appName}`);
  const evalCase = await findCaseOfJob(db, claimed.job);
  if (!evalCase) return undefined;
  let current = claimed;
  const toScoringContext = async (): Promise<ScoringContext> => {
    const spend = spendInRun(db, current, spendWith(db, toSessionKey(current)));
    return { ...(await prepareScoring(context, agent, current.userId, spend, signal)), scenario: evalCase.scenario };
  };
  let end = toTurnsEnd(context, current);
  // What became of turns before those of this process is not known.
  let haveTurnsEnded = claimed.lastTurn === undefined;
  while (!end) {
    // A process that stops asks no model: another one goes on with the case.
    context.draining.throwIfAborted();
    const { status } = current.lastTurn ?? {};
    if (status === 'running' || status === 'queued') return undefined;
    if (status && isStopped(status)) current = await restart(db, current);
    const step = await takeTurn(context, current, evalCase, toScoringContext);
    if ('turn' in step) current = { ...current, lastTurn: step };
    haveTurnsEnded &&= 'turn' in step ? step.status === 'succeeded' : step.error === undefined;
    end = 'turn' in step ? toTurnsEnd(context, current) : step;
    if (!end && performance.now() - startedAt > MAX_HELD_MS) return undefined;
  }
  context.draining.throwIfAborted();
  const history = await findHistory(db, toSessionKey(current));
  // Later events are ignored, because a user may have continued the session after the judged run.
  const events = (history?.events ?? []).slice(0, current.lastSequence ?? undefined);
  const outcome = { lastSequence: events.length, haveTurnsEnded };
  if (end.error) return { ...outcome, error: end.error };
  if (current.isJudging && !history) return { ...outcome, error: { message: GONE, failedTurn: 0 } };
  const ownEvents = withoutHistory(evalCase, events);
  const actual = toActualTurns(ownEvents, agent.describe());
  const verdict = await judge(actual, evalCase, current, await toScoringContext());
  const agents = Object.assign({}, ...actual.map(({ appDetails }) => appDetails?.['agentDetails'])) as JsonObject;
  const details = { uses: toUses(ownEvents, agent.describe()), agents };
  return { ...outcome, ...verdict, ...(verdict.scored ? { scored: { ...verdict.scored, ...details } } : {}) };
}

/** How the turns of a case have ended; `undefined` if there may be a next one. */
function toTurnsEnd({ limits }: EvalContext, { isJudging, lastTurn, sessionCount }: RunningCase): TurnsEnd | undefined {
  if (isJudging) return {};
  if (!lastTurn) return undefined;
  const { turn: failedTurn, status, attempt, error } = lastTurn;
  // True if the turn has crashed as many processes as may begin one invocation: it may be what crashes them.
  const isPoison = isStopped(status) && attempt > 1 && attempt >= limits.attempts;
  if (status === 'failed' || isPoison) return { error: { message: error, failedTurn } };
  if (isStopped(status) && sessionCount >= MAX_SESSIONS) return { error: { message: INTERRUPTED, failedTurn } };
  return undefined;
}

/** Gives a case a new session. @throws {LeaseLostError} if another process has done so, or the case has ended */
async function restart(db: Database, current: RunningCase): Promise<RunningCase> {
  const sessionId = await restartCase(db, current);
  if (sessionId === undefined) throw jobLost();
  return { ...current, sessionId, sessionCount: current.sessionCount + 1, lastTurn: undefined };
}

/** Charges judge calls to the token budget of the run. @throws {LimitError} if a call may use more than is left */
const spendInRun =
  (db: Database, run: RunningCase, spend: Spend): Spend =>
  async (model, request) => {
    const bound = boundCall(request);
    const reservedTokens = bound.prompt + bound.output;
    if (!(await addJudgeTokens(db, run, reservedTokens))) {
      const message = `A judge may use ${reservedTokens} tokens, and fewer of the run are left: maxJudgeTokens.`;
      throw new LimitError('maxJudgeTokens', message);
    }
    let usedTokens = 0;
    try {
      const answer = await spend(model, bound.request);
      const { promptTokens, outputTokens } = toCallUse(request.modelName, answer);
      usedTokens = promptTokens + outputTokens;
      return answer;
    } finally {
      await addJudgeTokens(db, run, usedTokens - reservedTokens);
    }
  };

/** Scores the turns of a case. Scoring is separate from running, because stored turns can be judged again. */
async function judge(
  actual: Turn[],
  evalCase: StoredCase,
  { metrics }: RunningCase,
  scoring: ScoringContext,
): Promise<Pick<CaseOutcome, 'scored' | 'error'>> {
  try {
    return { scored: await scoreCase(pairTurns(actual, evalCase), metrics, scoring) };
  } catch (error) {
    if (!(error instanceof MetricError)) throw error;
    return { error: { message: error.message, failedTurn: actual.length } };
  }
}
