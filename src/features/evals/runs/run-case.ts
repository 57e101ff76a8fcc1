import type { JsonObject } from '../../../core/content.ts';
import { LeaseLostError, LimitError, NotFoundError } from '../../../core/errors.ts';
import { toCallUse } from '../../../agent/definition/model.ts';
import { boundCall, type Spend, spendWith } from '../../../conversation/budgets/reserve-call.ts';
import type { Database } from '../../../platform/db/database.ts';
import { addJudgeTokens } from './eval-run-store.ts';
import type { InvocationContext } from '../../../invocations/context.ts';
import { persist } from '../../../invocations/persist.ts';
import { findHistory } from '../../../conversation/sessions/history-store.ts';
import { toActualTurns } from '../cases/turns.ts';
import { withoutHistory, readStoredCase, type StoredCase } from '../cases/eval-case.ts';
import { type CaseOutcome, type ClaimedCase, restartEvalCase } from './claim-store.ts';
import { toUses } from '../scoring/cost.ts';
import { MetricError } from '../metrics/status.ts';
import type { Turn } from '../metrics/turn.ts';
import { runTurns, toSessionKey, type Speaker, type TurnsEnd } from './run-turns.ts';
import { pairTurns, scoreCase, type ScoringContext, toScoring } from '../scoring/score-case.ts';
import { readSimulatedUser } from './simulated-user.ts';

const GONE = 'The session of the case was deleted: there are no turns to judge.';
/** A case gets a new session if a process freezes or stops within a turn. Crashes are counted separately. */
const MAX_SESSIONS = 5;
const INTERRUPTED = `The turn was interrupted, in each of ${MAX_SESSIONS} sessions.`;

/** `undefined` if this process stops before the case's end; then the caller must release the case. */
export async function runCase(
  context: InvocationContext,
  claimed: ClaimedCase,
  judgeModel: string | undefined,
  signal: AbortSignal,
): Promise<CaseOutcome | undefined> {
  const evalCase = readStoredCase(claimed.caseText);
  const agent = context.agents.get(claimed.appName);
  if (!agent) throw new NotFoundError(`App not found: ${claimed.appName}`);
  // The agent is prepared without MCP servers, because only its model is used: for the simulated user and for judging.
  const prepared = await agent.prepare({ mcpServers: [] }, signal, claimed.userId);
  const spend = spendInRun(context.database.db, claimed, spendWith(context.database.db, toSessionKey(claimed)));
  const scoring = { ...toScoring({ ...prepared, spend }, judgeModel, evalCase, signal), own: agent.evals?.metrics };
  const turns = claimed.isJudging
    ? { end: { kind: 'ended' as const }, claimed }
    : await runInSession(context, claimed, evalCase, toSpeaker(claimed, scoring), signal);
  if (!turns) return undefined;
  const { end, ...lastClaim } = turns;
  const key = toSessionKey(lastClaim.claimed);
  const history = await persist(() => findHistory(context.database.db, key), context.leaseTimes.durationMs);
  // Later events are ignored, because a user may have continued the session after the judged run.
  const events = (history?.events ?? []).slice(0, claimed.lastSequence ?? undefined);
  const outcome = { lastSequence: events.length };
  if ('error' in end && end.error) return { ...outcome, error: end.error };
  if (claimed.isJudging && !history) return { ...outcome, error: { message: GONE, failedTurn: 0 } };
  const ownEvents = withoutHistory(evalCase, events);
  const actual = toActualTurns(ownEvents, agent.describe());
  const verdict = await judge(actual, evalCase, claimed, scoring);
  const agents = Object.assign({}, ...actual.map(({ appDetails }) => appDetails?.['agentDetails'])) as JsonObject;
  const details = { uses: toUses(ownEvents, agent.describe()), agents };
  return { ...outcome, ...verdict, ...(verdict.scored ? { scored: { ...verdict.scored, ...details } } : {}) };
}

/** Charges judge calls to the token budget of the run. @throws {LimitError} if a call may use more than is left */
const spendInRun =
  (db: Database, run: ClaimedCase, spend: Spend): Spend =>
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
  { metrics }: ClaimedCase,
  scoring: ScoringContext,
): Promise<Pick<CaseOutcome, 'scored' | 'error'>> {
  try {
    return { scored: await scoreCase(pairTurns(actual, evalCase), metrics, scoring) };
  } catch (error) {
    if (!(error instanceof MetricError)) throw error;
    return { error: { message: error.message, failedTurn: actual.length } };
  }
}

/** Runs the turns of a case. If a turn is interrupted, all turns are run again in a new session. */
async function runInSession(
  context: InvocationContext,
  first: ClaimedCase,
  evalCase: StoredCase,
  speaker: Speaker,
  signal: AbortSignal,
): Promise<{ end: Extract<TurnsEnd, { kind: 'ended' }>; claimed: ClaimedCase } | undefined> {
  for (let claimed = first; ; ) {
    const end = await runTurns(context, claimed, evalCase, speaker, signal);
    if (end.kind === 'stopped') return undefined;
    if (end.kind === 'ended') return { end, claimed };
    if (claimed.sessionCount >= MAX_SESSIONS) {
      const error = { message: INTERRUPTED, failedTurn: end.failedTurn };
      return { end: { kind: 'ended', error }, claimed };
    }
    const sessionId = await restartEvalCase(context.database.db, claimed);
    if (sessionId === undefined) throw new LeaseLostError('The evaluation case is run by another process.');
    claimed = { ...claimed, sessionId, sessionCount: claimed.sessionCount + 1 };
  }
}

function toSpeaker({ userSimulator }: ClaimedCase, { judgeModel, judgeFor }: ScoringContext): Speaker {
  const config = readSimulatedUser(userSimulator);
  const options = { judgeModel: config.model ?? judgeModel, judgeModelConfig: config.modelConfiguration };
  return { config, model: judgeFor({ ...options, numSamples: 1, parallelismLimit: 1 }, '') };
}
