import { sessionTopic } from '../core/topics.ts';
import { setTimeout as sleep } from 'node:timers/promises';
import type { DatabasePool } from '../db/database.ts';
import type { Notifications } from '../db/notifications.ts';
import type { SessionKey } from '../core/session.ts';
import { listEventsAfter, type StoredEvent } from '../sessions/event-store.ts';

/** Events that are read at once. */
const PAGE = 100;
/** Maximum time between two looks: notifications only save time, they may be lost. */
const LOOK_MS = 1_000;

/** What following needs of the process. */
interface FollowContext {
  database: DatabasePool;
  notifications: Notifications;
}

/**
 * The events of a session after a sequence, then those to come, in order, from whatever replica wrote them. Ends when
 * `signal` aborts, when the session is gone, and when `isOver` says so after all events so far were given.
 */
export async function* followEvents(
  { database, notifications }: FollowContext,
  key: SessionKey,
  afterSequence: number,
  signal: AbortSignal,
  isOver: () => Promise<boolean> = () => Promise.resolve(false),
): AsyncGenerator<StoredEvent & { invocationId: string }> {
  let woken = Promise.withResolvers<void>();
  const unsubscribe = notifications.subscribe(sessionTopic(key), () => woken.resolve());
  try {
    for (let after = afterSequence; !signal.aborted; ) {
      woken = Promise.withResolvers<void>();
      const over = await isOver();
      const events = await listEventsAfter(database.reads, key, after, PAGE);
      if (!events) return;
      for (const event of events) yield event;
      after = events.at(-1)?.sequence ?? after;
      if (events.length === PAGE) continue;
      if (over) return;
      await Promise.race([woken.promise, sleep(LOOK_MS, undefined, { signal }).catch(() => undefined)]);
    }
  } finally {
    unsubscribe();
  }
}
