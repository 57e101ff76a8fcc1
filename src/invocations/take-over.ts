import type { Metrics } from '../platform/metrics.ts';
import type { Database, DatabasePool } from '../platform/db/database.ts';
import { endingEvents, type InvocationError } from './invocation.ts';
import { listInvocationEvents } from '../conversation/sessions/event-store.ts';
import { releaseSession } from '../conversation/sessions/session-lease.ts';
import type { SessionKey } from '../core/session.ts';
import { findLockHolder, type LockHolder } from './lock-store.ts';
import { finishInvocation } from './finish-store.ts';

/** The error that ends an invocation whose process died. */
const PROCESS_DIED: InvocationError = {
  code: 'interrupted',
  message: 'The invocation was interrupted: its process stopped before the answer.',
};

/** What a take-over needs of the process. */
export interface TakeOverContext {
  database: DatabasePool;
  newId: () => string;
  metrics?: Metrics | undefined;
}

/**
 * Ends a session's dead invocation, if it has one: its open function calls are answered, it is marked interrupted,
 * the session is free. One transaction that holds the session row, so that of several takers one acts and a late
 * writer finds its token gone.
 * @returns who holds the session now; `absent` also where `skipLocked` is set and another transaction has the row.
 */
export async function takeOver(
  { database, newId, metrics }: TakeOverContext,
  key: SessionKey,
  { skipLocked = false } = {},
): Promise<LockHolder> {
  const { holder, wasDead } = await database.transaction((tx) => endIfDead(tx, key, newId, skipLocked));
  if (wasDead) metrics?.takenOver();
  return holder;
}

async function endIfDead(
  tx: Database,
  key: SessionKey,
  newId: () => string,
  skipLocked: boolean,
): Promise<{ holder: LockHolder; wasDead: boolean }> {
  const holder = await findLockHolder(tx, key, skipLocked);
  if (holder.kind !== 'dead') return { holder, wasDead: false };
  const { invocationId, token } = holder;
  const free = { holder: { kind: 'free' }, wasDead: true } as const;
  if (invocationId === undefined) {
    await releaseSession(tx, key, token);
    return free;
  }
  const events = await listInvocationEvents(tx, key, invocationId);
  const author = events.findLast((event) => event.author !== 'user')?.author ?? key.appName;
  const ending = endingEvents(invocationId, author, events, PROCESS_DIED, newId);
  const lease = { key, invocationId, token, durationMs: 0 };
  await finishInvocation(tx, lease, ending, { status: 'interrupted', error: PROCESS_DIED, revokesToken: true });
  return free;
}
