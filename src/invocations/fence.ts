import { AgentError, isPassingFailure, LeaseLostError } from '../core/errors.ts';
import { freeTopic, QUEUE_TOPIC, sessionTopic, stopTopic } from '../core/names.ts';
import type { SessionKey } from '../core/session.ts';
import type { DatabasePool } from '../platform/db/database.ts';
import type { Notifications } from '../platform/db/notifications.ts';
import { stoppedMessage } from './invocation.ts';
import { requestStop } from './invocation-store.ts';
import { type Lease, renewLease } from './lock-store.ts';

/** One abort signal for all causes that end a running invocation early; its reason names the cause. */
export interface Fence {
  /**
   * Aborted by the time limit or a stop request (`AgentError`), a lost lease ({@link LeaseLostError}) or the caller.
   */
  signal: AbortSignal;
  /** Time at which the time limit is reached, in milliseconds of `performance.now()`. */
  endTime: number;
  /** Stops the timer of the time limit and the renewal of the lease. */
  release(): void;
}

/** Starts time limit and lease renewal. `spentMs` milliseconds are used already; the signal `outside` also ends it. */
export function fenceIn(
  context: { database: DatabasePool; notifications: Notifications },
  lease: Lease,
  { timeoutMs, spentMs = 0, renewalMs }: { timeoutMs: number; spentMs?: number | undefined; renewalMs: number },
  outside: AbortSignal,
): Fence {
  const renewal = keepLease(context, lease, renewalMs);
  const limit = new AbortController();
  const message = `The invocation took longer than its limit of ${timeoutMs / 1000} s.`;
  const timer = setTimeout(() => limit.abort(new AgentError('time_limit', message)), Math.max(0, timeoutMs - spentMs));
  return {
    signal: AbortSignal.any([renewal.signal, limit.signal, outside]),
    endTime: performance.now() + timeoutMs - spentMs,
    release: () => {
      clearTimeout(timer);
      renewal.stop();
    },
  };
}

/** Cancels an invocation, whichever process runs it. @returns false if there is no such invocation */
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
 * Renews a lease until `stop` is called. The signal aborts at a stop request, and with a {@link LeaseLostError} if a
 * renewal is refused or was not confirmed before the lease expired: then another process may write to the session.
 */
function keepLease(
  { database, notifications }: { database: DatabasePool; notifications: Notifications },
  lease: Lease,
  renewalMs: number,
): { signal: AbortSignal; stop(): void } {
  const leaseEnd = new AbortController();
  let heldUntil = performance.now() + lease.durationMs;
  const lost = () => new LeaseLostError(`The invocation no longer holds session ${lease.key.sessionId}.`);
  const renew = async () => {
    const sentAt = performance.now();
    const renewal = await renewLease(database.db, lease).catch((error: unknown) => {
      if (isPassingFailure(error)) return 'unsure' as const;
      throw error;
    });
    if (renewal === 'lost') return leaseEnd.abort(lost());
    if (renewal === 'cancelled' || renewal === 'interrupted') {
      leaseEnd.abort(new AgentError(renewal, stoppedMessage(renewal)));
    }
    if (renewal !== 'unsure') heldUntil = sentAt + lease.durationMs;
  };
  let renewing = false;
  const renewOrEnd = () => {
    // Without a response of the database the process must assume that the lease has expired.
    if (performance.now() >= heldUntil) leaseEnd.abort(lost());
    if (renewing) return;
    renewing = true;
    renew()
      .catch((error: unknown) => leaseEnd.abort(error))
      .finally(() => (renewing = false));
  };
  const timer = setInterval(renewOrEnd, renewalMs);
  const unsubscribe = notifications.subscribe(stopTopic(lease.invocationId), renewOrEnd);
  return {
    signal: leaseEnd.signal,
    stop: () => {
      clearInterval(timer);
      unsubscribe();
    },
  };
}
