import type { Log } from '../platform/log.ts';
import type { Notifications } from '../platform/db/notifications.ts';
import { freeTopic, sessionTopic } from '../core/names.ts';
import { listDeadHolders } from './dead-store.ts';
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

/** The resources that a take-over uses. */
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

/** The resources that ending uses. */
interface EndingContext extends TakeOverContext {
  notifications: Notifications;
  log: Log;
}

/** Sessions of one list. */
const PAGE_SIZE = 100;

/** Ends the invocations of sessions whose process died; what is locked or unreadable waits for the next time. */
export async function endDeadInvocations(context: EndingContext): Promise<void> {
  // Those that are ended leave the list; those that are left stand before the next page.
  for (let left = 0; ; ) {
    const keys = await listDeadHolders(context.database.db, PAGE_SIZE, left);
    for (const key of keys) if (!(await endHolder(context, key))) left += 1;
    if (keys.length < PAGE_SIZE) return;
  }
}

async function endHolder(context: EndingContext, key: SessionKey): Promise<boolean> {
  const { notifications, log } = context;
  try {
    const holder = await takeOver(context, key, { skipLocked: true });
    if (holder.kind === 'absent') return false;
    for (const topic of [sessionTopic(key), freeTopic(key)]) notifications.publish(topic);
    return true;
  } catch (error) {
    log.error({ err: error, ...key }, 'the dead invocation of a session could not be ended');
    return false;
  }
}
