import type { DatabasePool } from '../db/database.ts';
import { endingEvents, type InvocationError } from './invocation.ts';
import { listInvocationEvents } from '../sessions/event-store.ts';
import { releaseSession } from '../sessions/session-lease.ts';
import type { SessionKey } from '../core/session.ts';
import { findLockHolder, finishInvocation, type LockHolder } from './lock-store.ts';

/** The error that ends an invocation whose process died. */
const PROCESS_DIED: InvocationError = {
  code: 'interrupted',
  message: 'The invocation was interrupted: its process stopped before the answer.',
};

/**
 * Ends a session's dead invocation, if it has one: its open function calls are answered, it is marked interrupted,
 * the session is free. One transaction that holds the session row, so that of several takers one acts and a late
 * writer finds its token gone.
 * @returns who holds the session now; `absent` also where `skipLocked` is set and another transaction has the row.
 */
export function takeOver(
  database: DatabasePool,
  key: SessionKey,
  newId: () => string,
  { skipLocked = false } = {},
): Promise<LockHolder> {
  return database.transaction(async (tx) => {
    const holder = await findLockHolder(tx, key, skipLocked);
    if (holder.kind !== 'dead') return holder;
    const { invocationId, token } = holder;
    if (invocationId === undefined) {
      await releaseSession(tx, key, token);
      return { kind: 'free' };
    }
    const events = await listInvocationEvents(tx, key, invocationId);
    const author = events.findLast((event) => event.author !== 'user')?.author ?? key.appName;
    const ending = endingEvents(invocationId, author, events, PROCESS_DIED, newId);
    const lease = { key, invocationId, token, durationMs: 0 };
    await finishInvocation(tx, lease, ending, { status: 'interrupted', error: PROCESS_DIED, revokesToken: true });
    return { kind: 'free' };
  });
}
