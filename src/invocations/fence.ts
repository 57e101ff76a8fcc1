import { AgentError, isPassingFailure, LeaseLostError } from '../core/errors.ts';
import { freeTopic, QUEUE_TOPIC, sessionTopic, stopTopic } from '../core/names.ts';
import type { SessionKey } from '../core/session.ts';
import type { DatabasePool } from '../platform/db/database.ts';
import type { Notifications } from '../platform/db/notifications.ts';
import { stoppedMessage } from './invocation.ts';
import { requestStop } from './invocation-store.ts';
import { type Lease, renewLease } from './lock-store.ts';

/** One signal for everything that ends a running invocation early; its reason says what that was. */
export interface Fence {
  /** Aborted by a time limit or stop (`AgentError`), by the caller, or by a lost lease ({@link LeaseLostError}). */
  signal: AbortSignal;
  /** The moment at which the time limit ends it, by `performance.now()`. */
  endTime: number;
  /** Stops the timers and the renewal of the lease. */
  release(): void;
}

/** Puts an invocation between its limits; of its time `spentMs` are over. `outside` ends it too: client or process. */
export function fenceIn(
  context: { database: DatabasePool; notifications: Notifications },
  lease: Lease,
  { timeoutMs, spentMs = 0, renewalMs }: { timeoutMs: number; spentMs?: number | undefined; renewalMs: number },
  outside: AbortSignal,
): Fence {
  const kept = keepLease(context, lease, renewalMs);
  const limit = new AbortController();
  const message = `The invocation took longer than its limit of ${timeoutMs / 1000} s.`;
  const timer = setTimeout(() => limit.abort(new AgentError('time_limit', message)), Math.max(0, timeoutMs - spentMs));
  return {
    signal: AbortSignal.any([kept.signal, limit.signal, outside]),
    endTime: performance.now() + timeoutMs - spentMs,
    release: () => {
      clearTimeout(timer);
      kept.stop();
    },
  };
}

/** Asks an invocation to end as cancelled, on whatever process. @returns false where there is no such invocation. */
export async function requestCancel(
  { database, notifications }: { database: DatabasePool; notifications: Pick<Notifications, 'publish'> },
  key: SessionKey,
  invocationId: string,
): Promise<boolean> {
  if ((await requestStop(database.db, key, invocationId, 'cancelled')) === undefined) return false;
  const topics = [stopTopic(invocationId), sessionTopic(key), freeTopic(key), QUEUE_TOPIC];
  for (const topic of topics) notifications.publish(topic);
  return true;
}

/**
 * Renews a lease until stopped. The signal aborts at a request to stop, and with a {@link LeaseLostError} where a
 * renewal is refused, or not known to have worked when the lease runs out: authority to write is over then.
 */
function keepLease(
  { database, notifications }: { database: DatabasePool; notifications: Notifications },
  lease: Lease,
  renewalMs: number,
): { signal: AbortSignal; stop(): void } {
  const ended = new AbortController();
  let heldUntil = performance.now() + lease.durationMs;
  const lost = () => new LeaseLostError(`The invocation no longer holds session ${lease.key.sessionId}.`);
  const renew = async () => {
    const sentAt = performance.now();
    const renewal = await renewLease(database.db, lease).catch((error: unknown) => {
      if (isPassingFailure(error)) return 'unsure' as const;
      throw error;
    });
    if (renewal === 'lost') return ended.abort(lost());
    if (renewal === 'cancelled' || renewal === 'interrupted') {
      ended.abort(new AgentError(renewal, stoppedMessage(renewal)));
    }
    if (renewal !== 'unsure') heldUntil = sentAt + lease.durationMs;
  };
  let renewing = false;
  const renewOrEnd = () => {
    // Without an answer too the authority ends with the lease.
    if (performance.now() >= heldUntil) ended.abort(lost());
    if (renewing) return;
    renewing = true;
    renew()
      .catch((error: unknown) => ended.abort(error))
      .finally(() => (renewing = false));
  };
  const timer = setInterval(renewOrEnd, renewalMs);
  const unsubscribe = notifications.subscribe(stopTopic(lease.invocationId), renewOrEnd);
  return {
    signal: ended.signal,
    stop: () => {
      clearInterval(timer);
      unsubscribe();
    },
  };
}
