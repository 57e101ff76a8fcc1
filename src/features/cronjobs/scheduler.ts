import type { Log } from '../../platform/log.ts';
import { hourly, runPollLoop } from '../../platform/work/poll-loop.ts';
import type { Notifications } from '../../platform/db/notifications.ts';
import { CRONJOBS_TOPIC } from './cronjob-store.ts';
import { type FireContext, fireDueCronjobs } from './fire.ts';
import { forgetRuns } from './run-store.ts';

/** Maximum pause between polls: notifications may be lost, as through a connection pooler without LISTEN. */
const MAX_PAUSE_MS = 30_000;
const CLEANING_BATCH = 10_000;

export interface SchedulerSettings {
  /** Number of days for which ended runs are listed, and maximum number of ended runs per cronjob. */
  retentionDays: number;
  retentionCount: number;
}

export interface SchedulerContext extends FireContext {
  notifications: Notifications;
  log: Log;
  draining: AbortSignal;
}

/**
 * Queues the runs of due cronjobs until the process drains; the background queue runs them. Every replica does so, and a
 * compare-and-set decides which one fires a cronjob.
 */
export async function runCronjobs(
  context: SchedulerContext,
  { retentionDays, retentionCount }: SchedulerSettings,
): Promise<void> {
  const { database, notifications, log, draining: signal } = context;
  const forgetOld = () => forgetRuns(database.db, retentionDays, retentionCount, CLEANING_BATCH);
  // The first clean-up runs at a random time within the hour, because replicas start together.
  const clean = hourly(forgetOld, Math.random());
  const poll = async () => {
    const { fired, nextMs } = await fireDueCronjobs(context);
    if (fired === 0) await clean();
    return Math.max(0, Math.min(nextMs, MAX_PAUSE_MS));
  };
  const notify = (wake: () => void) => notifications.subscribe(CRONJOBS_TOPIC, wake);
  const onError = (error: unknown) => log.error({ err: error }, 'the cronjobs could not be polled');
  await runPollLoop({ poll, notify, signal, onError });
}
