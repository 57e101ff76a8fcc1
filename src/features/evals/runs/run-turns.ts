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
import { findAgent } from '../../../invocations/claim-request.ts';
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

/** Time between two looks at an invocation that another process runs, and at a database that is away. */
const LOOK_MS = 500;

/** How the turns of a case ended. */
export type TurnsEnd =
  | { kind: 'ended'; error?: { message: string; failedTurn: number } }
  /** Something ended a turn from outside: the session cannot be gone on with. */
  | { kind: 'interrupted'; failedTurn: number }
  /** This process stops: another one goes on with the case. */
  | { kind: 'stopped' };

/** The model that speaks in the user's place where no conversation is given. */
export interface Speaker {
  config: SimulatedUser;
  model: Judge;
}

/**
 * Runs the turns of a case in its session, which is made where it is absent. Each turn carries an idempotency key, so
 * that the process that takes the case over goes on after the last turn that was begun, and no turn happens twice.
 * @throws what `signal` was aborted with, and whatever no turn can be blamed for.
 */
export async function runTurns(
  context: InvocationContext,
  claimed: ClaimedCase,
  evalCase: StoredCase,
  speaker: Speaker,
  signal: AbortSignal,
): Promise<TurnsEnd> {
  const key = toSessionKey(claimed);
  // The first turn makes a session without a state, in the statement that begins it.
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

/** The session that a case runs in. */
export const toSessionKey = ({ appName, userId, sessionId }: ClaimedCase): SessionKey => ({
  appName,
  userId,
  sessionId,
});

/** Makes the session of a case. @throws {AppError} where its history cannot be copied. */
async function beginSession(
  { database, leaseTimes }: InvocationContext,
  key: SessionKey,
  { state, history }: StoredCase,
): Promise<void> {
  if (history) return await persist(() => copyHistory(database.db, key, history), leaseTimes.durationMs);
  try {
    await persist(() => insertSession(database.db, key, state, []), leaseTimes.durationMs);
  } catch (error) {
    // An earlier owner of the case made it, or the answer to the first try was lost: the id is its own.
    if (!(error instanceof ConflictError)) throw error;
  }
}

/** The user's message of a turn: as the case has it, as a simulated user said it before, or says now. */
async function nextContent(
  { database }: InvocationContext,
  claimed: ClaimedCase,
  evalCase: StoredCase,
  { config, model }: Speaker,
  turn: number,
): Promise<Content | undefined> {
  const { conversation, scenario } = evalCase;
  if (!scenario) return conversation?.[turn]?.userContent;
  const found = await findHistory(database.db, toSessionKey(claimed));
  const events = withoutHistory(evalCase, found?.events ?? []);
  const said = toEvalInvocations(events)[turn]?.userContent;
  if (said) return said;
  const next = await nextMessage(config, scenario, toDialogue(events), model);
  return next.status === 'success' ? { role: 'user', parts: [{ text: next.text }] } : undefined;
}

const toDialogue = (events: Event[]): Exchange[] =>
  toEvalInvocations(events).map(({ userContent, finalResponse, intermediateData }) => ({
    user: getText(userContent),
    agent: getText({ parts: getParts(finalResponse).filter(({ thought }) => !thought) }),
    calls: getCalls(intermediateData).map(({ name, args }) => ({ name, args })),
  }));

/** A turn to run. */
interface NextTurn {
  content: Content;
  /** Its place, from 0. */
  turn: number;
  createSession: boolean;
  /** The turn of the case; a simulated conversation has none. */
  expected: Turn | undefined;
}

/** Runs one turn, or finds how the one that was begun ended; `undefined` where the agent answered. */
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
        const found = await persist(() => findRepeated(context, key, idempotency), context.leaseTimes.durationMs);
        if (found && !isActive(found)) return found.error;
      } else if (!isPassing(error)) return toInvocationError(context, error);
    }
    // Another process runs it or goes on with it, or there is no room, or the database is away.
    if (context.draining.aborted) return { code: 'interrupted', message: '' };
    await sleep(LOOK_MS, undefined, { signal: AbortSignal.any([signal, context.draining]) }).catch(() => undefined);
  }
}

/** Invokes the agent, with answers of the case where the run says so. */
async function invokeTurn(
  context: InvocationContext,
  { modelExecutionMode, toolExecutionMode, userId }: ClaimedCase,
  request: InvocationRequest & { signal: AbortSignal },
  expected: Turn | undefined,
): Promise<InvocationError | undefined> {
  if (modelExecutionMode === 'live' && toolExecutionMode === 'live') return (await invoke(context, request)).error;
  if (!expected) throw new AgentError('model_failed', 'A simulated conversation has no stored answers: run it live.');
  const stored = new StoredTurn(expected, { modelExecutionMode, toolExecutionMode });
  const prepared = await findAgent(context, request).prepare({}, request.signal, userId, stored.serverTools);
  try {
    return (await invoke(context, { ...request, prepared: stored.wrap(prepared) })).error;
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

/** No client can send a key that begins with a blank: header values are trimmed (RFC 9110, 5.5). */
const toIdempotency = ({ runId, place, trial, sessionCount }: ClaimedCase, turn: number): IdempotentRequest => ({
  idempotencyKey: ` eval run ${runId}, case ${place}.${trial}.${sessionCount}, turn ${turn}`,
  hash: runId,
});

/** Largest history of a case, bytes of its events: each trial of a run copies it. */
const MAX_HISTORY_BYTES = 4_194_304;

/**
 * Makes the session of a case with the history that it begins with: the first events of a session of the same user,
 * whom the caller of the run may act for, and its state of then. Artifacts of that session are not copied.
 * @throws {NotFoundError} where that session is gone. @throws {InvalidError} where it has not come so far, or its
 * history is too large.
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
    // False where an earlier owner of the case made it, or the answer to the first try was lost: the id is its own.
    if (point && (await insertFork(db, source, fork))) return;
  } catch (error) {
    if (sizeRefusal(error)?.code !== 'session_too_large') throw error;
    throw new InvalidError(`The history of the case is larger than ${MAX_HISTORY_BYTES} bytes.`);
  }
  if (!(await findForkPoint(db, key, 0))) throw new NotFoundError(sessionNotFound(sessionId));
}
