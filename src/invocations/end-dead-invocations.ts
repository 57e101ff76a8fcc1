import type { SessionKey } from '../core/session.ts';
import type { Log } from '../platform/log.ts';
import { freeTopic, sessionTopic } from '../core/names.ts';
import type { Notifications } from '../platform/db/notifications.ts';
import { listDeadHolders } from './dead-store.ts';
import { takeOver, type TakeOverContext } from './take-over.ts';

/** What ending needs of the process. */
interface EndingContext extends TakeOverContext {
  notifications: Notifications;
  log: Log;
}

/** Sessions of one list. */
const PAGE_SIZE = 100;

/**
 * Ends the invocations whose process died while they held a session, of every session. One that somebody else has
 * locked is left to the next time; one that cannot be read is logged and left. Neither keeps the others.
 */
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
