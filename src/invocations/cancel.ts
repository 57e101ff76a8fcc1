import { freeTopic, QUEUE_TOPIC, sessionTopic, stopTopic } from '../core/names.ts';
import { isActive } from './invocation.ts';
import type { SessionKey } from '../core/session.ts';
import type { DatabasePool } from '../platform/db/database.ts';
import type { Notifications } from '../platform/db/notifications.ts';
import { Wakeup } from '../platform/work/poll-loop.ts';
import type { InvocationContext } from './context.ts';
import { requestStop, requestStopOfRuns, type StoppingInvocation, type StopRequest } from './invocation-store.ts';
import type { SessionFeeds } from './session-feed.ts';
import { TASKS_TOPIC } from './waits/task-store.ts';

/** Cancels an invocation, whichever process runs it. @returns `undefined` if there is no such invocation */
export async function requestCancel(
  { database, notifications }: { database: DatabasePool; notifications: Pick<Notifications, 'publish'> },
  key: SessionKey,
  invocationId: string,
): Promise<StopRequest | undefined> {
  const request = await requestStop(database.db, key, invocationId, 'cancelled');
  if (!request) return undefined;
  publishStops(notifications, [{ ...key, invocationId }]);
  // The end of a child answers the task of its parent.
  notifications.publish(TASKS_TOPIC);
  return request;
}

/** Tells the processes that run these invocations, and their followers, that they were asked to stop. */
export function publishStops(
  notifications: Pick<Notifications, 'publish'>,
  stopping: readonly StoppingInvocation[],
): void {
  for (const { invocationId, ...key } of stopping)
    for (const topic of [stopTopic(invocationId), sessionTopic(key), freeTopic(key), QUEUE_TOPIC])
      notifications.publish(topic);
}

/** Cancels a run of a cronjob, whichever process runs it, and its agents. */
export async function requestCancelOfRun(
  { database, notifications }: { database: DatabasePool; notifications: Pick<Notifications, 'publish'> },
  cronjob: { appName: string; userId: string; id: string },
  runId: string,
): Promise<void> {
  const stop = () => requestStopOfRuns(database.db, cronjob, { only: runId });
  // Twice, because the end of a try, for which the first statement waits, may have queued the next try.
  publishStops(notifications, [...(await stop()), ...(await stop())]);
}

/** Maximum time in milliseconds that the HTTP response to a cancellation waits for the end of the invocation. */
const CANCEL_MS = 5_000;

/** {@link requestCancel}, which waits briefly for the end, so that its response shows the final status. */
export async function cancel(
  context: Pick<InvocationContext, 'database' | 'notifications' | 'feeds' | 'draining'>,
  key: SessionKey,
  invocationId: string,
): Promise<StopRequest | undefined> {
  const request = await requestCancel(context, key, invocationId);
  if (!request) return undefined;
  const signal = AbortSignal.any([AbortSignal.timeout(CANCEL_MS), context.draining]);
  await waitForEnd(context.feeds, key, invocationId, signal);
  return request;
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
      if (!invocation || !isActive(invocation)) return;
      await wakeup.wait();
    }
  } finally {
    signal.removeEventListener('abort', wake);
    unwatch();
    feed.end();
  }
}
