import { setTimeout as sleep } from 'node:timers/promises';
import { type Content, getParts } from '../../../core/content.ts';
import {
  AgentError,
  AppError,
  BusyError,
  ConflictError,
  isPassingFailure,
  LeaseLostError,
  RepeatedInvocationError,
  UnavailableError,
  InvalidError,
  NotFoundError,
  sizeRefusal,
} from '../../../core/errors.ts';
import type { Event } from '../../../core/event.ts';
import { type SessionKey, sessionNotFound } from '../../../core/session.ts';
import type { IdempotentRequest } from '../../../conversation/idempotency/operations.ts';
import { type InvocationContext, type InvocationRequest, newInvocationId } from '../../../invocations/context.ts';
import { type InvocationError, isStopped } from '../../../invocations/invocation.ts';
import { findAgent } from '../../../invocations/session-claim.ts';
import { invoke } from '../../../invocations/invoke.ts';
import { persist } from '../../../invocations/persist.ts';
import { findRepeated, isActive } from '../../../invocations/retry.ts';
import { findHistory } from '../../../conversation/sessions/history-store.ts';
import { insertSession, checkReached } from '../../../conversation/sessions/session-store.ts';
import { withoutHistory, type StoredCase } from '../cases/eval-case.ts';
import { toEvalInvocations } from '../cases/turns.ts';
import type { ClaimedCase } from './claim-store.ts';
import type { Judge } from '../judges/judge.ts';
import { getCalls, getText, type Turn } from '../metrics/turn.ts';
import { type Exchange, nextMessage, type SimulatedUser } from './simulated-user.ts';
import { StoredTurn } from './stored-turn.ts';
import type { Database } from '../../../platform/db/database.ts';
import { findForkPoint, insertFork } from '../../../conversation/sessions/fork-store.ts';

/** Poll interval in milliseconds while another process runs the invocation, or while the database is unavailable. */
const LOOK_MS = 500;

export type TurnsEnd =
  | { kind: 'ended'; error?: { message: string; failedTurn: number } }
  /** A turn was interrupted from outside. Its session cannot be continued, and the case restarts in a new session. */
  | { kind: 'interrupted'; failedTurn: number }
  /** This process stops. Another process continues the case. */
  | { kind: 'stopped' };

export interface Speaker {
  config: SimulatedUser;
  model: Judge;
}

/**
 * Runs the turns of a case in the case's session, which is created if it does not exist. Each turn has an idempotency
 * key: a process that takes the case over continues after the last started turn, and no turn runs twice.
 * @throws the abort reason of `signal`, and errors that are not the fault of a turn.
 */
export async function runTurns(
  context: InvocationContext,
  claimed: ClaimedCase,
  evalCase: StoredCase,
  speaker: Speaker,
  signal: AbortSignal,
): Promise<TurnsEnd> {
  const key = toSessionKey(claimed);
  // Without initial state the first turn creates the session, in the statement that claims it.
  const isEmpty = Object.keys(evalCase.state).length === 0 && !evalCase.history;
  const isMadeByTurn = isEmpty && (evalCase.conversation ?? []).length > 0;
  if (!isMadeByTurn) await beginSession(context, key, evalCase);
  for (let turn = 0; ; turn += 1) {
    signal.throwIfAborted();
    if (context.draining.aborted) return { kind: 'stopped' };
    let content: Content | undefined;
    try {
      content = await nextContent(context, claimed, evalCase, speaker, turn);
    } catch (error) {
      if (!(error instanceof AppError)) throw error;
      return { kind: 'ended', error: { message: error.message, failedTurn: turn } };
    }
    if (!content) return { kind: 'ended' };
    const createSession = isMadeByTurn && turn === 0;
    const expected = evalCase.conversation?.[turn];
    const error = await runTurn(context, claimed, { content, turn, createSession, expected }, signal);
    if (!error) continue;
    if (!isStopped(error.code)) return { kind: 'ended', error: { message: error.message, failedTurn: turn } };
    signal.throwIfAborted();
    return context.draining.aborted ? { kind: 'stopped' } : { kind: 'interrupted', failedTurn: turn };
  }
}

export const toSessionKey = ({ appName, userId, sessionId }: ClaimedCase): SessionKey => ({
  appName,
  userId,
  sessionId,
});

/** Creates the session of a case. @throws {AppError} if the case's history cannot be copied. */
async function beginSession(
  { database, leaseTimes }: InvocationContext,
  key: SessionKey,
  { state, history }: StoredCase,
): Promise<void> {
  if (history) return await persist(() => copyHistory(database.db, key, history), leaseTimes.durationMs);
  try {
    await persist(() => insertSession(database.db, key, state, []), leaseTimes.durationMs);
  } catch (error) {
    // The session exists: only this case uses its id, so an earlier process or a try with a lost response made it.
    if (!(error instanceof ConflictError)) throw error;
  }
}

/** The user's message from the case, or from the simulated user unless the session already has it. */
async function nextContent(
  { database }: InvocationContext,
  claimed: ClaimedCase,
  evalCase: StoredCase,
  { config, model }: Speaker,
  turn: number,
): Promise<Content | undefined> {
  const { conversation, scenario } = evalCase;
  if (!scenario) return conversation?.[turn]?.userContent;
  const history = await findHistory(database.db, toSessionKey(claimed));
  const events = withoutHistory(evalCase, history?.events ?? []);
  const earlierContent = toEvalInvocations(events)[turn]?.userContent;
  if (earlierContent) return earlierContent;
  const next = await nextMessage(config, scenario, toDialogue(events), model);
  return next.status === 'success' ? { role: 'user', parts: [{ text: next.text }] } : undefined;
}

const toDialogue = (events: Event[]): Exchange[] =>
  toEvalInvocations(events).map(({ userContent, finalResponse, intermediateData }) => ({
    user: getText(userContent),
    agent: getText({ parts: getParts(finalResponse).filter(({ thought }) => !thought) }),
    calls: getCalls(intermediateData).map(({ name, args }) => ({ name, args })),
  }));

interface NextTurn {
  content: Content;
  /** Index of the turn in its conversation, from 0. */
  turn: number;
  createSession: boolean;
  expected: Turn | undefined;
}

/** Runs a turn, or waits for one that was started. `undefined` if the agent answered, otherwise the failure. */
async function runTurn(
  context: InvocationContext,
  claimed: ClaimedCase,
  { content, turn, createSession, expected }: NextTurn,
  signal: AbortSignal,
): Promise<InvocationError | undefined> {
  const idempotency = toIdempotency(claimed, turn);
  const key = toSessionKey(claimed);
  for (;;) {
    try {
      const invocationId = newInvocationId(context);
      const prompt = { key, invocationId, content, overrides: {}, createSession, streaming: false, idempotency };
      const request = { ...prompt, busyPolicy: 'enqueue', inBackground: true, signal } as const;
      return await invokeTurn(context, claimed, request, expected);
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof RepeatedInvocationError) {
        const earlier = await persist(() => findRepeated(context, key, idempotency), context.leaseTimes.durationMs);
        if (earlier && !isActive(earlier)) return earlier.error;
      } else if (!isPassing(error)) return toInvocationError(context, error);
    }
    // Waits: another process runs or resumes the invocation, the queue is full, or the database is unavailable.
    if (context.draining.aborted) return { code: 'interrupted', message: '' };
    await sleep(LOOK_MS, undefined, { signal: AbortSignal.any([signal, context.draining]) }).catch(() => undefined);
  }
}

/** In the execution mode `stored`, answers of the model or of tools come from the case. */
async function invokeTurn(
  context: InvocationContext,
  { modelExecutionMode, toolExecutionMode, userId }: ClaimedCase,
  request: InvocationRequest & { signal: AbortSignal },
  expected: Turn | undefined,
): Promise<InvocationError | undefined> {
  if (modelExecutionMode === 'live' && toolExecutionMode === 'live') return (await invoke(context, request)).error;
  if (!expected) throw new AgentError('model_failed', 'A simulated conversation has no stored answers: run it live.');
  const storedTurn = new StoredTurn(expected, { modelExecutionMode, toolExecutionMode });
  const prepared = await findAgent(context, request).prepare({}, request.signal, userId, storedTurn.serverTools);
  try {
    return (await invoke(context, { ...request, prepared: storedTurn.wrap(prepared) })).error;
  } finally {
    await prepared.close();
  }
}

const isPassing = (error: unknown) =>
  isPassingFailure(error) || [BusyError, UnavailableError, LeaseLostError].some((kind) => error instanceof kind);

function toInvocationError({ log }: InvocationContext, error: unknown): InvocationError {
  if (!(error instanceof AppError)) {
    log.error({ err: error }, 'a turn of an evaluation case failed');
    return { code: 'internal', message: 'The runtime failed while it ran the agent.' };
  }
  return { code: isStopped(error.code) ? error.code : 'internal', message: error.message };
}

/** The leading blank keeps clients from sending this key, because header values are trimmed (RFC 9110, 5.5). */
const toIdempotency = ({ runId, place, trial, sessionCount }: ClaimedCase, turn: number): IdempotentRequest => ({
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
