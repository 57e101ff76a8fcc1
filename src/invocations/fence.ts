import { AgentError, isPassingFailure, LeaseLostError } from '../core/errors.ts';
import { stopTopic } from '../core/names.ts';
import type { DatabasePool } from '../platform/db/database.ts';
import type { Notifications } from '../platform/db/notifications.ts';
import { stoppedMessage } from './invocation.ts';
import { type Lease, renewLease } from './lock-store.ts';

/** One signal for everything that ends a running invocation early; its reason says what that was. */
export interface Fence {
  /** Aborted by a time limit or stop (`AgentError`), by the caller, or by a lost lease ({@link LeaseLostError}). */
  signal: AbortSignal;
  /** Stops the timers and the renewal of the lease. */
  release(): void;
}

/** Puts an invocation between its limits; `outside` ends it too: the client or the process goes. */
export function fenceIn(
  context: { database: DatabasePool; notifications: Notifications },
  lease: Lease,
  { timeoutMs, renewalMs }: { timeoutMs: number; renewalMs: number },
  outside: AbortSignal,
): Fence {
  const kept = keepLease(context, lease, renewalMs);
  const limit = new AbortController();
  const message = `The invocation took longer than its limit of ${timeoutMs / 1000} s.`;
  const timer = setTimeout(() => limit.abort(new AgentError('time_limit', message)), timeoutMs);
  return {
    signal: AbortSignal.any([kept.signal, limit.signal, outside]),
    release: () => {
      clearTimeout(timer);
      kept.stop();
    },
  };
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
