import { freeTopic, QUEUE_TOPIC, sessionTopic, stopTopic } from '../core/names.ts';
import type { SessionKey } from '../core/session.ts';
import type { DatabasePool } from '../platform/db/database.ts';
import type { Notifications } from '../platform/db/notifications.ts';
import { Wakeup } from '../platform/work/poll-loop.ts';
import type { InvocationContext } from './context.ts';
import { requestStop, requestStopOfRuns } from './invocation-store.ts';
import type { SessionFeeds } from './session-feed.ts';

/** Cancels an invocation, whichever process runs it. @returns false if there is no such invocation */
export async function requestCancel(
  { database, notifications }: { database: DatabasePool; notifications: Pick<Notifications, 'publish'> },
  key: SessionKey,
  invocationId: string,
): Promise<boolean> {
  if ((await requestStop(database.db, key, invocationId, 'cancelled')) === undefined) return false;
  publishStop(notifications, key, invocationId);
  return true;
}

function publishStop(notifications: Pick<Notifications, 'publish'>, key: SessionKey, invocationId: string): void {
  const topics = [stopTopic(invocationId), sessionTopic(key), freeTopic(key), QUEUE_TOPIC];
  for (const topic of topics) notifications.publish(topic);
}

/** Cancels open runs of a cronjob, whichever processes run them: one of them, or all that were queued before some. */
export async function requestCancelOfRuns(
  { database, notifications }: { database: DatabasePool; notifications: Pick<Notifications, 'publish'> },
  cronjob: { appName: string; userId: string; id: string },
  runs: { only: string } | { before: readonly string[] },
): Promise<void> {
  // Twice, because the end of a try, for which the first statement waits, may have queued the next try.
  const first = await requestStopOfRuns(database.db, cronjob, runs);
  for (const { sessionId, invocationId } of [...first, ...(await requestStopOfRuns(database.db, cronjob, runs))])
    publishStop(notifications, { ...cronjob, sessionId }, invocationId);
}

/** Maximum time in milliseconds that the HTTP response to a cancellation waits for the end of the invocation. */
const CANCEL_MS = 5_000;

/** A cancellation waits briefly for the end, so that its response shows the final status. @returns false without one */
export async function cancel(
  context: Pick<InvocationContext, 'database' | 'notifications' | 'feeds' | 'draining'>,
  key: SessionKey,
  invocationId: string,
): Promise<boolean> {
  if (!(await requestCancel(context, key, invocationId))) return false;
  const signal = AbortSignal.any([AbortSignal.timeout(CANCEL_MS), context.draining]);
  await waitForEnd(context.feeds, key, invocationId, signal);
  return true;
}

async function waitForEnd(feeds: SessionFeeds, key: SessionKey, id: string, signal: AbortSignal): Promise<void> {
  const wakeup = new Wakeup();
  const { wake } = wakeup;
  const feed = feeds.follow(key, wake);
  const unwatch = feeds.watch(key, id, wake);
  signal.addEventListener('abort', wake);
  try {
    while (!signal.aborted) {
      wakeup.reset();
      const invocation = await feeds.readInvocation(key, id);
      if (invocation?.status !== 'running' && invocation?.status !== 'queued') return;
      await wakeup.wait();
    }
  } finally {
    signal.removeEventListener('abort', wake);
    unwatch();
    feed.end();
  }
}
