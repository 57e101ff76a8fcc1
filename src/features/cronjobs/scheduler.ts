import type { Log } from '../../platform/log.ts';
import { runPollLoop } from '../../platform/work/poll-loop.ts';
import type { Notifications } from '../../platform/db/notifications.ts';
import { CRONJOBS_TOPIC } from './cronjob-store.ts';
import { type FireContext, fireDueCronjobs } from './fire.ts';

/** Maximum pause between polls: notifications may be lost, as through a connection pooler without LISTEN. */
const MAX_PAUSE_MS = 30_000;

export interface SchedulerContext extends FireContext {
  notifications: Notifications;
  log: Log;
  draining: AbortSignal;
}

/**
 * Queues the runs of due cronjobs until the process drains; the background queue runs them. Every replica does so, and a
 * compare-and-set decides which one fires a cronjob.
 */
export async function runCronjobs(context: SchedulerContext): Promise<void> {
  const { notifications, log, draining: signal } = context;
  const poll = async () => {
    const { nextMs } = await fireDueCronjobs(context);
    return Math.max(0, Math.min(nextMs, MAX_PAUSE_MS));
  };
  const notify = (wake: () => void) => notifications.subscribe(CRONJOBS_TOPIC, wake);
  const onError = (error: unknown) => log.error({ err: error }, 'the cronjobs could not be polled');
  await runPollLoop({ poll, notify, signal, onError });
}
