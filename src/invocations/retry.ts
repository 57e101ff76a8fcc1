import type { IdempotentRequest } from '../conversation/idempotency/idempotency.ts';
import {
  BusyError,
  HandedOverError,
  isPassingFailure,
  KeyReusedError,
  LeaseLostError,
  RepeatedInvocationError,
  UnavailableError,
} from '../core/errors.ts';
import { sessionTopic } from '../core/names.ts';
import { Wakeup } from '../platform/work/poll-loop.ts';
import { endDeadWaiters, takeOver, type TakeOverContext } from './take-over.ts';
import type { SessionKey } from '../core/session.ts';
import type { InvocationContext } from './context.ts';
import type { InvocationEnd } from './request.ts';
import { isActive } from './invocation.ts';
import { findByIdempotencyKey, type KeyedInvocation } from './invocation-store.ts';

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
  const find = () => findByIdempotencyKey(context.database.db, user, request.idempotencyKey);
  let invocation = await find();
  if (invocation && isActive(invocation) && !invocation.live) {
    if (invocation.status === 'queued') await endDeadWaiters(context.database.db);
    else await takeOver(context, invocation.key);
    invocation = await find();
  }
  if (invocation && invocation.hash !== request.hash)
    throw new KeyReusedError('the Idempotency-Key was used for another request');
  return invocation;
}

/** True if an invocation that did not begin may begin later: its session or the process is busy, or the database away. */
export const mayBeginLater = (error: unknown): boolean =>
  isPassingFailure(error) ||
  [BusyError, UnavailableError, LeaseLostError, RepeatedInvocationError].some((kind) => error instanceof kind);

/** Error of a retry if the first request with its key is being abandoned at this moment. */
export const abandonedError = () =>
  new BusyError('The request with this Idempotency-Key has just been abandoned. Try again.', 1);

/**
 * Runs `work`, which invokes and returns the result. If the idempotency key was used before, or another process resumes
 * the invocation, waits for the result of that invocation instead, as long as for a busy session.
 * @throws {BusyError} (`rejected`) if the invocation still runs after the wait
 */
export async function answerOnce(
  context: InvocationContext,
  user: SessionKey,
  request: IdempotentRequest | undefined,
  work: () => Promise<string>,
  toAnswer: (end: InvocationEnd, invocation: KeyedInvocation) => Promise<string> | string,
): Promise<string> {
  for (let tries = 1; ; tries++) {
    try {
      return await work();
    } catch (error) {
      // Another process continues a run that this process handed over, so its result is awaited too.
      const isLeft = error instanceof HandedOverError && !context.stopping.aborted;
      if (!(error instanceof RepeatedInvocationError || isLeft) || !request) throw error;
      const invocation = await findEnded(context, user, request);
      if (!invocation && tries > 1) throw abandonedError();
      if (!invocation) continue;
      if (isActive(invocation)) {
        if (context.stopping.aborted) throw new HandedOverError(invocation, true);
        throw new BusyError('The request with this Idempotency-Key is still running.', 1, 'rejected');
      }
      return (
        invocation.answer ??
        (await toAnswer({ output: '', error: invocation.error, paused: invocation.status === 'paused' }, invocation))
      );
    }
  }
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
