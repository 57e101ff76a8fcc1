import type { IdempotentRequest } from '../conversation/idempotency/idempotency.ts';
import {
  BusyError,
  HandedOverError,
  isPassingFailure,
  KeyReusedError,
  LeaseLostError,
  NotFoundError,
  QueuedError,
  RepeatedInvocationError,
  UnavailableError,
} from '../core/errors.ts';
import { sessionTopic } from '../core/names.ts';
import { Wakeup } from '../platform/work/poll-loop.ts';
import { endDeadWaiters, takeOver, type TakeOverContext } from './take-over.ts';
import { getAnswerText } from '../core/content.ts';
import { type SessionKey, sessionNotFound } from '../core/session.ts';
import { findEventsById, listInvocationEvents } from '../conversation/sessions/event-store.ts';
import { requestCancel } from './cancel.ts';
import type { InvocationContext } from './context.ts';
import type { InvocationEnd } from './request.ts';
import { isActive } from './invocation.ts';
import { findById, findByIdempotencyKey, type KeyedInvocation } from './invocation-store.ts';

/** Maximum milliseconds between polls of an invocation: the database's notifications may be lost. */
const LOOK_MS = 1_000;

/**
 * The invocation that an idempotency key started. If its process is dead, it is first ended or put back in the queue.
 * @returns `undefined` if the earlier request was abandoned before it began, so that its key is free
 * @throws {KeyReusedError} if the key was used for a different request
 */
export async function findRepeated(
  context: TakeOverContext,
  user: SessionKey,
  request: IdempotentRequest,
): Promise<KeyedInvocation | undefined> {
  const invocation = await findAsItIs(context, () =>
    findByIdempotencyKey(context.database.db, user, request.idempotencyKey),
  );
  if (invocation && invocation.hash !== request.hash)
    throw new KeyReusedError('the Idempotency-Key was used for another request');
  return invocation;
}

/** If the invocation's process is dead, it is first ended or put back in the queue. */
async function findAsItIs(
  context: TakeOverContext,
  find: () => Promise<KeyedInvocation | undefined>,
): Promise<KeyedInvocation | undefined> {
  const invocation = await find();
  if (!invocation || !isActive(invocation) || invocation.live) return invocation;
  if (invocation.status === 'queued') await endDeadWaiters(context.database.db);
  else await takeOver(context, invocation.key);
  return find();
}

type Ref = Pick<KeyedInvocation, 'key' | 'invocationId'>;

/** An invocation as it is now: ended or put back in the queue if its process is dead. */
export const findPresent = (
  context: TakeOverContext,
  { key, invocationId }: Ref,
): Promise<KeyedInvocation | undefined> => findAsItIs(context, () => findById(context.database.db, key, invocationId));

/** Waits for an invocation's row. @returns the row, as it is if `signal` aborts */
async function awaitRow(
  context: InvocationContext,
  { key, invocationId }: Ref,
  isWanted: (row: KeyedInvocation) => boolean,
  signal: AbortSignal,
): Promise<KeyedInvocation> {
  const wakeup = new Wakeup();
  const unsubscribe = context.notifications.subscribe(sessionTopic(key), wakeup.wake);
  try {
    for (;;) {
      wakeup.reset();
      const row = await findPresent(context, { key, invocationId });
      if (!row) throw new NotFoundError(sessionNotFound(key.sessionId));
      if (isWanted(row) || signal.aborted) return row;
      await wakeup.wait(LOOK_MS, signal);
    }
  } finally {
    unsubscribe();
  }
}

/** What answers a message that waited: its own invocation, or the one that took it, behind the event `after`. */
export interface Answering extends Ref {
  after?: number;
}

/** Waits until a message that waits for the invocation of its session was taken by it, or has begun its own. */
export async function findAnswering(context: InvocationContext, ref: Ref, signal: AbortSignal): Promise<Answering> {
  const { status, steeredInto } = await awaitRow(context, ref, (row) => row.status !== 'queued', signal);
  if (status === 'queued') throw new HandedOverError(ref, false);
  if (steeredInto === undefined) return ref;
  const [message] = await findEventsById(context.database.db, ref.key, [ref.invocationId]);
  return { key: ref.key, invocationId: steeredInto, after: message?.sequence ?? 0 };
}

/** Waits for the end of what answers a message that waited. `signal`: its client has left, which cancels it. */
async function awaitAnswer(
  context: InvocationContext,
  ref: Ref,
  isRepeatable: boolean,
  signal?: AbortSignal,
): Promise<{ invocation: KeyedInvocation; after: number | undefined }> {
  const until = AbortSignal.any([context.stopping, ...(signal ? [signal] : [])]);
  try {
    const { after, ...answering } = await findAnswering(context, ref, until);
    const invocation = await awaitRow(context, answering, (row) => !isActive(row), until);
    if (isActive(invocation)) throw new HandedOverError(invocation, isRepeatable);
    return { invocation, after };
  } finally {
    // What took the message goes on: another request has begun it.
    if (signal?.aborted) await requestCancel(context, ref.key, ref.invocationId);
  }
}

/** True if an invocation that did not begin may begin later: its session or the process is busy, or the database away. */
export const mayBeginLater = (error: unknown): boolean =>
  isPassingFailure(error) ||
  [BusyError, UnavailableError, LeaseLostError, RepeatedInvocationError].some((kind) => error instanceof kind);

/** Error of a retry if the first request with its key is being abandoned at this moment. */
export const abandonedError = () =>
  new BusyError('The request with this Idempotency-Key has just been abandoned. Try again.', 1);

interface AnswerOptions {
  signal?: AbortSignal | undefined;
  onFollowed?: ((invocationId: string) => void) | undefined;
  steers?: boolean;
}

/**
 * Runs `work`, which invokes and returns the result. If the idempotency key was used before, or another process resumes
 * the invocation, waits for the result of that invocation instead, as long as for a busy session. For a message that steers
 * it waits until that is answered.
 * @param toAnswer - builds the result of an invocation that has none of its own. `after`: sequence of the message that it
 *   took, whose answer stands behind that
 * @param options.onFollowed - called with the invocation that answers a message that steers
 * @param options.steers - true: the request may wait for the answer to a message, and is counted (`admitSteering`)
 * @throws {BusyError} (`rejected`) if the invocation still runs after the wait
 */
export async function answerOnce(
  context: InvocationContext,
  user: SessionKey,
  request: IdempotentRequest | undefined,
  work: () => Promise<string>,
  toAnswer: (end: InvocationEnd, invocation: KeyedInvocation, after?: number) => Promise<string> | string,
  { signal, onFollowed, steers = false }: AnswerOptions = {},
): Promise<string> {
  if (steers) {
    const options = { signal, onFollowed };
    return context.admission.admitSteering(user.userId, () =>
      answerOnce(context, user, request, work, toAnswer, options),
    );
  }
  const follow = async (ref: Ref) => {
    const { invocation, after } = await awaitAnswer(context, ref, request !== undefined, signal);
    onFollowed?.(invocation.invocationId);
    if (after === undefined) return invocation.answer ?? toAnswer(toEnd(invocation), invocation);
    return toAnswer({ ...toEnd(invocation), ...(await readOutput(context, invocation)) }, invocation, after);
  };
  for (let tries = 1; ; tries++) {
    try {
      return await work();
    } catch (error) {
      // Another process continues a run that this process handed over, so its result is awaited too.
      if (error instanceof QueuedError) return follow(error);
      const isLeft = error instanceof HandedOverError && !context.stopping.aborted;
      if (!(error instanceof RepeatedInvocationError || isLeft) || !request) throw error;
      const invocation = await findEnded(context, user, request);
      if (!invocation && tries > 1) throw abandonedError();
      if (!invocation) continue;
      if (isActive(invocation)) {
        if (context.stopping.aborted) throw new HandedOverError(invocation, true);
        throw new BusyError('The request with this Idempotency-Key is still running.', 1, 'rejected');
      }
      if (invocation.steeredInto !== undefined) return follow(invocation);
      return invocation.answer ?? (await toAnswer(toEnd(invocation), invocation));
    }
  }
}

const toEnd = ({ error, status }: KeyedInvocation): InvocationEnd => ({
  output: '',
  error,
  paused: status === 'paused',
});

/** What an invocation answered, which its row has only in the form of the request that began it. */
async function readOutput(
  { database }: InvocationContext,
  { key, invocationId, error }: KeyedInvocation,
): Promise<Partial<InvocationEnd>> {
  if (error) return {};
  const events = (await listInvocationEvents(database.db, key, invocationId)).filter(({ author }) => author !== 'user');
  const output = events.map(({ content }) => getAnswerText(content)).findLast((text) => text !== '') ?? '';
  const value = events.at(-1)?.output;
  return { output, ...(value != null && { value }) };
}

/** Waits for a retry's invocation. @returns the invocation, which is still active if the wait timed out */
async function findEnded(
  context: InvocationContext,
  user: SessionKey,
  request: IdempotentRequest,
): Promise<KeyedInvocation | undefined> {
  let invocation = await findRepeated(context, user, request);
  if (!invocation || !isActive(invocation)) return invocation;
  const { key } = invocation;
  return context.admission.admit(user.userId, async () => {
    const deadline = performance.now() + context.leaseTimes.waitMs;
    const wakeup = new Wakeup();
    const unsubscribe = context.notifications.subscribe(sessionTopic(key), wakeup.wake);
    try {
      for (let leftMs = 1; leftMs > 0 && !context.stopping.aborted; leftMs = deadline - performance.now()) {
        wakeup.reset();
        invocation = await findRepeated(context, user, request);
        if (!invocation || !isActive(invocation)) break;
        await wakeup.wait(Math.max(0, Math.min(LOOK_MS, deadline - performance.now())), context.stopping);
      }
      return invocation;
    } finally {
      unsubscribe();
    }
  });
}
