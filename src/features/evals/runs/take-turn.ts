import { EVALUATION_JOB } from '../../../core/names.ts';
import { type Content, getParts } from '../../../core/content.ts';
import {
  AgentError,
  AppError,
  ConflictError,
  InvalidError,
  NotFoundError,
  sizeRefusal,
  toClientText,
} from '../../../core/errors.ts';
import type { Event } from '../../../core/event.ts';
import { type SessionKey, sessionNotFound } from '../../../core/session.ts';
import type { IdempotentRequest } from '../../../conversation/idempotency/idempotency.ts';
import type { InvocationContext } from '../../../invocations/context.ts';
import { type InvocationEnd, type InvocationRequest, newInvocationId } from '../../../invocations/request.ts';
import type { Invocation } from '../../../invocations/invocation.ts';
import { findAgent } from '../../../invocations/session-lock.ts';
import { invoke } from '../../../invocations/invoke.ts';
import { mayBeginLater } from '../../../invocations/retry.ts';
import { findHistory } from '../../../conversation/sessions/history.ts';
import { insertSession, checkReached } from '../../../conversation/sessions/session-store.ts';
import { withoutHistory, type StoredCase } from '../cases/eval-case.ts';
import { toEvalInvocations } from '../cases/turns.ts';
import type { LastTurn, RunningCase } from './case-store.ts';
import { getCalls, getText, type Turn } from '../metrics/turn.ts';
import type { ScoringContext } from '../scoring/score-case.ts';
import { type Exchange, nextMessage, readSimulatedUser } from './simulated-user.ts';
import { StoredTurn } from './stored-turn.ts';
import type { Database } from '../../../platform/db/database.ts';
import { findForkPoint, insertFork } from '../../../conversation/sessions/fork.ts';

/** How the turns of a case have ended. */
export interface TurnsEnd {
  error?: { message: string; failedTurn: number };
}

export const toSessionKey = ({ appName, userId, sessionId }: RunningCase): SessionKey => ({
  appName,
  userId,
  sessionId,
});

/**
 * Takes the next turn of a case in the case's session. The claim of its invocation checks the case's job, so a turn
 * begins once, and never after the case was cancelled.
 * @returns the turn, which is running if it goes on in another process; or how the turns have ended
 * @throws errors after which a retry in any process may succeed
 */
export async function takeTurn(
  context: InvocationContext,
  current: RunningCase,
  evalCase: StoredCase,
  toScoringContext: () => Promise<ScoringContext>,
): Promise<LastTurn | TurnsEnd> {
  const turn = current.lastTurn ? current.lastTurn.turn + 1 : 0;
  let hasBegun = false;
  try {
    const expected = evalCase.conversation?.[turn];
    // Without initial state the first turn creates the session, in the statement that claims it.
    const isEmpty = Object.keys(evalCase.state).length === 0 && !evalCase.history;
    const createSession = turn === 0 && isEmpty && expected !== undefined;
    if (turn === 0 && !createSession) await beginSession(context.database.db, toSessionKey(current), evalCase);
    const content = evalCase.scenario
      ? await speak(context, current, { ...evalCase, scenario: evalCase.scenario }, toScoringContext)
      : expected?.userContent;
    if (!content) return {};
    // A process that stops begins nothing.
    context.draining.throwIfAborted();
    const { invocation } = await invokeTurn(context, current, expected, {
      key: toSessionKey(current),
      invocationId: newInvocationId(context),
      content,
      overrides: {},
      createSession,
      streaming: false,
      busyPolicy: 'reject',
      inBackground: true,
      idempotency: toIdempotency(current, turn),
      job: { ...current.job, kind: EVALUATION_JOB, step: turn },
      onAccepted: () => (hasBegun = true),
    });
    return toLastTurn(turn, invocation);
  } catch (error) {
    if (!hasBegun && (context.draining.aborted || mayBeginLater(error))) throw error;
    if (!(error instanceof AppError)) context.log.error({ err: error }, 'a turn of an evaluation case failed');
    if (hasBegun) return toLastTurn(turn);
    const message = toClientText(error, 'The runtime failed while it ran the agent.');
    return { error: { message, failedTurn: turn } };
  }
}

/** Without the stored end of a turn, which was lost or is another process's to store, the turn counts as running. */
const toLastTurn = (turn: number, invocation?: Invocation): LastTurn => ({
  turn,
  status: invocation?.status ?? 'running',
  attempt: 1,
  error: invocation?.error?.message ?? '',
});

/** Creates the session of a case. @throws {AppError} if the case's history cannot be copied. */
async function beginSession(db: Database, key: SessionKey, { state, history }: StoredCase): Promise<void> {
  if (history) return copyHistory(db, key, history);
  try {
    await insertSession(db, key, state, []);
  } catch (error) {
    // The session exists: only this case uses its id, so an earlier process or a try with a lost response made it.
    if (!(error instanceof ConflictError)) throw error;
  }
}

/** The next message of the simulated user; `undefined` if the dialogue is over. */
async function speak(
  { database }: InvocationContext,
  current: RunningCase,
  evalCase: StoredCase & { scenario: NonNullable<StoredCase['scenario']> },
  toScoringContext: () => Promise<ScoringContext>,
): Promise<Content | undefined> {
  const { judgeModel, judgeFor } = await toScoringContext();
  const config = readSimulatedUser(current.userSimulator);
  const options = { judgeModel: config.model ?? judgeModel, judgeModelConfig: config.modelConfiguration };
  const model = judgeFor({ ...options, numSamples: 1, parallelismLimit: 1 }, '');
  const history = await findHistory(database.db, toSessionKey(current));
  const events = withoutHistory(evalCase, history?.events ?? []);
  const next = await nextMessage(config, evalCase.scenario, toDialogue(events), model);
  return next.status === 'success' ? { role: 'user', parts: [{ text: next.text }] } : undefined;
}

const toDialogue = (events: Event[]): Exchange[] =>
  toEvalInvocations(events).map(({ userContent, finalResponse, intermediateData }) => ({
    user: getText(userContent),
    agent: getText({ parts: getParts(finalResponse).filter(({ thought }) => !thought) }),
    calls: getCalls(intermediateData).map(({ name, args }) => ({ name, args })),
  }));

/** In the execution mode `stored`, answers of the model or of tools come from the case. */
async function invokeTurn(
  context: InvocationContext,
  { modelExecutionMode, toolExecutionMode, userId }: RunningCase,
  expected: Turn | undefined,
  request: InvocationRequest,
): Promise<InvocationEnd> {
  if (modelExecutionMode === 'live' && toolExecutionMode === 'live') return invoke(context, request);
  if (!expected) throw new AgentError('model_failed', 'A simulated conversation has no stored answers: run it live.');
  const storedTurn = new StoredTurn(expected, { modelExecutionMode, toolExecutionMode });
  const prepared = await findAgent(context, request).prepare({}, context.stopping, userId, storedTurn.serverTools);
  try {
    return await invoke(context, { ...request, prepared: storedTurn.wrap(prepared) });
  } finally {
    await prepared.close();
  }
}

/** The leading blank keeps clients from sending this key, because header values are trimmed (RFC 9110, 5.5). */
const toIdempotency = ({ runId, place, trial, sessionCount }: RunningCase, turn: number): IdempotentRequest => ({
  idempotencyKey: ` eval run ${runId}, case ${place}.${trial}.${sessionCount}, turn ${turn}`,
  hash: runId,
});

/** Maximum size of a case's history in bytes. The size is limited, because each trial copies the history's events. */
const MAX_HISTORY_BYTES = 4_194_304;

/**
 * Creates a case's session with the case's history: the first events of another session of the same user, and that
 * session's state. The caller of the run may act for this user. Artifacts are not copied.
 * @throws {NotFoundError} if the source session was deleted.
 * @throws {InvalidError} if the source session has fewer events, or the history is too large.
 */
async function copyHistory(
  db: Database,
  key: SessionKey,
  { sessionId, sequence }: NonNullable<StoredCase['history']>,
): Promise<void> {
  const source = { ...key, sessionId };
  const point = await findForkPoint(db, source, sequence);
  if (point) checkReached(point.reached, sequence);
  const fork = { sessionId: key.sessionId, atSequence: sequence, labels: {}, maxBytes: MAX_HISTORY_BYTES };
  try {
    // `insertFork` gives false if the session exists: an earlier try made it, because only this case uses its id.
    if (point && (await insertFork(db, source, fork))) return;
  } catch (error) {
    if (sizeRefusal(error)?.code !== 'session_too_large') throw error;
    throw new InvalidError(`The history of the case is larger than ${MAX_HISTORY_BYTES} bytes.`);
  }
  if (!(await findForkPoint(db, key, 0))) throw new NotFoundError(sessionNotFound(sessionId));
}
