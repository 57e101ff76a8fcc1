import type { IdempotentRequest } from '../conversation/idempotency/operations.ts';
import { BusyError, HandedOverError, KeyReusedError, RepeatedInvocationError } from '../core/errors.ts';
import { sessionTopic } from '../core/names.ts';
import { Wakeup } from '../platform/work/poll-loop.ts';
import { endDeadWaiters } from './dead-store.ts';
import { takeOver, type TakeOverContext } from './take-over.ts';
import type { SessionKey } from '../core/session.ts';
import type { InvocationContext, InvocationEnd } from './context.ts';
import { findByIdempotencyKey, type KeyedInvocation } from './invocation-store.ts';

/** Longest pause between two looks at an invocation: notifications only save time, they may be lost. */
const LOOK_MS = 1_000;

/**
 * Finds the invocation that a repeated request belongs to. One whose process is gone is taken over first: it ends, or
 * another process goes on with it.
 * @returns `undefined` where the earlier request was abandoned before it began: its key is free.
 * @throws {KeyReusedError} when the key was used for another request.
 */
export async function findRepeated(
  context: TakeOverContext,
  user: SessionKey,
  request: IdempotentRequest,
): Promise<KeyedInvocation | undefined> {
  const find = () => findByIdempotencyKey(context.database.db, user, request.idempotencyKey);
  let found = await find();
  if (found && isActive(found) && !found.live) {
    if (found.status === 'queued') await endDeadWaiters(context.database.db);
    else await takeOver(context, found.key);
    found = await find();
  }
  if (found && found.hash !== request.hash)
    throw new KeyReusedError('the Idempotency-Key was used for another request');
  return found;
}

/** True while the invocation waits or runs. */
export const isActive = ({ status }: KeyedInvocation) => status === 'queued' || status === 'running';

/** Returns the error of a repeated request whose first try was abandoned in this very moment. */
export const abandonedError = () =>
  new BusyError('The request with this Idempotency-Key has just been abandoned. Try again.', 1);

/**
 * Runs `work`, or returns the answer to its first request, or to what another process goes on with: it waits for that
 * as long as for a busy session.
 * @throws {BusyError} (`rejected`) where that still runs then
 */
export async function answerOnce(
  context: InvocationContext,
  user: SessionKey,
  request: IdempotentRequest | undefined,
  work: () => Promise<string>,
  toAnswer: (end: InvocationEnd, found: KeyedInvocation) => Promise<string> | string,
): Promise<string> {
  for (let tries = 1; ; tries++) {
    try {
      return await work();
    } catch (error) {
      // What this process could not keep is followed as if another had begun it.
      const isLeft = error instanceof HandedOverError && !context.stopping.aborted;
      if (!(error instanceof RepeatedInvocationError || isLeft) || !request) throw error;
      const found = await findEnded(context, user, request);
      if (!found && tries > 1) throw abandonedError();
      if (!found) continue;
      if (isActive(found)) {
        if (context.stopping.aborted) throw new HandedOverError(found, true);
        throw new BusyError('The request with this Idempotency-Key is still running.', 1, 'rejected');
      }
      return (
        found.answer ?? (await toAnswer({ output: '', error: found.error, paused: found.status === 'paused' }, found))
      );
    }
  }
}

/** Finds the invocation of a repeated request, once it has ended or the wait for that is over. */
async function findEnded(
  context: InvocationContext,
  user: SessionKey,
  request: IdempotentRequest,
): Promise<KeyedInvocation | undefined> {
  let found = await findRepeated(context, user, request);
  if (!found || !isActive(found)) return found;
  const { key } = found;
  return context.admission.admit(user.userId, async () => {
    const deadline = performance.now() + context.leaseTimes.waitMs;
    const wakeup = new Wakeup();
    const unsubscribe = context.notifications.subscribe(sessionTopic(key), wakeup.wake);
    try {
      for (let leftMs = 1; leftMs > 0 && !context.stopping.aborted; leftMs = deadline - performance.now()) {
        wakeup.reset();
        found = await findRepeated(context, user, request);
        if (!found || !isActive(found)) break;
        await wakeup.wait(Math.max(0, Math.min(LOOK_MS, deadline - performance.now())), context.stopping);
      }
      return found;
    } finally {
      unsubscribe();
    }
  });
}
