import type { JsonObject } from '../../../core/content.ts';
import { LimitError, NotFoundError } from '../../../core/errors.ts';
import { toCallUse } from '../../../agent/definition/model.ts';
import { boundCall, type Spend, spendWith } from '../../../conversation/budgets/reserve-call.ts';
import type { Database } from '../../../platform/db/database.ts';
import { addJudgeTokens } from './eval-run-store.ts';
import { isStopped } from '../../../invocations/invocation.ts';
import { jobLost } from '../../../platform/jobs/job-store.ts';
import { findHistory } from '../../../conversation/sessions/history-store.ts';
import { toActualTurns } from '../cases/turns.ts';
import { withoutHistory, readStoredCase, type StoredCase } from '../cases/eval-case.ts';
import { type CaseOutcome, type RunningCase, restartCase } from './case-store.ts';
import { toUses } from '../scoring/cost.ts';
import type { EvalContext } from '../sets/context.ts';
import { MetricError } from '../metrics/status.ts';
import type { Turn } from '../metrics/turn.ts';
import { beginTurn, toSessionKey, type TurnsEnd } from './begin-turn.ts';
import { pairTurns, scoreCase, type ScoringContext, toScoring } from '../scoring/score-case.ts';

const GONE = 'The session of the case was deleted: there are no turns to judge.';
/** A case starts again in a new session if a turn is interrupted and cannot be resumed. */
const MAX_SESSIONS = 5;
const INTERRUPTED = `The turn was interrupted, in each of ${MAX_SESSIONS} sessions.`;

/**
 * Takes one step of a case: begins its next turn, or scores it after the last one.
 * @returns the outcome of the case; `undefined` if a turn has begun, whose invocation adds the case's job again
 */
export async function takeStep(
  context: EvalContext,
  current: RunningCase,
  signal: AbortSignal,
): Promise<CaseOutcome | undefined> {
  const { db } = context.database;
  const { lastTurn, sessionCount } = current;
  if (lastTurn && isStopped(lastTurn.status) && !isPoison(context, lastTurn) && sessionCount < MAX_SESSIONS) {
    const sessionId = await restartCase(db, current);
    if (sessionId === undefined) throw jobLost();
    return takeStep(context, { ...current, sessionId, sessionCount: sessionCount + 1, lastTurn: undefined }, signal);
  }
  const evalCase = readStoredCase(current.caseText);
  const agent = context.agents.get(current.appName);
  if (!agent) throw new NotFoundError(`App not found: ${current.appName}`);
  const toScoringContext = async (): Promise<ScoringContext> => {
    // The agent is prepared without MCP servers, because only its model is used: as simulated user and as judge.
    const prepared = await agent.prepare({ mcpServers: [] }, signal, current.userId);
    const spend = spendInRun(db, current, spendWith(db, toSessionKey(current)));
    const scoring = toScoring({ ...prepared, spend }, context.config.EVALS_JUDGE_MODEL, evalCase, signal);
    return { ...scoring, own: agent.evals?.metrics };
  };
  const end = await endTurns(context, current, evalCase, toScoringContext);
  if (!end) return undefined;
  const history = await findHistory(db, toSessionKey(current));
  // Later events are ignored, because a user may have continued the session after the judged run.
  const events = (history?.events ?? []).slice(0, current.lastSequence ?? undefined);
  const outcome = { lastSequence: events.length };
  if (end.error) return { ...outcome, error: end.error };
  if (current.isJudging && !history) return { ...outcome, error: { message: GONE, failedTurn: 0 } };
  const ownEvents = withoutHistory(evalCase, events);
  const actual = toActualTurns(ownEvents, agent.describe());
  const verdict = await judge(actual, evalCase, current, await toScoringContext());
  const agents = Object.assign({}, ...actual.map(({ appDetails }) => appDetails?.['agentDetails'])) as JsonObject;
  const details = { uses: toUses(ownEvents, agent.describe()), agents };
  return { ...outcome, ...verdict, ...(verdict.scored ? { scored: { ...verdict.scored, ...details } } : {}) };
}

/** True if the turn has crashed as many processes as may begin one invocation: it may be what crashes them. */
const isPoison = ({ limits }: EvalContext, { attempt }: NonNullable<RunningCase['lastTurn']>): boolean =>
  attempt > 1 && attempt >= limits.attempts;

/** Begins the next turn of a case. @returns `undefined` if it has begun, or how the turns have ended */
async function endTurns(
  context: EvalContext,
  current: RunningCase,
  evalCase: StoredCase,
  toScoringContext: () => Promise<ScoringContext>,
): Promise<TurnsEnd | undefined> {
  const { isJudging, lastTurn } = current;
  if (isJudging) return {};
  if (lastTurn && isStopped(lastTurn.status)) {
    const message = isPoison(context, lastTurn) ? lastTurn.error : INTERRUPTED;
    return { error: { message, failedTurn: lastTurn.turn } };
  }
  if (lastTurn?.status === 'failed') return { error: { message: lastTurn.error, failedTurn: lastTurn.turn } };
  return beginTurn(context, current, evalCase, toScoringContext);
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
