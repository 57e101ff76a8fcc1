import { hourly, lookWhenWoken } from '../../platform/work/look-when-woken.ts';
import type { InvocationContext } from '../../invocations/context.ts';
import { type ActiveRuns, createActiveRuns } from './active-runs.ts';
import { type Agenda, claimRuns, findAgenda } from './claim-store.ts';
import { fireDueCronjobs } from './fire-due.ts';
import { deleteOldRuns } from './run-store.ts';
import { CRONJOBS_TOPIC } from './topics.ts';

/** Longest sleep: what notifications did not bring (a pooler that does not pass LISTEN) is found then. */
const LONGEST_SLEEP_MS = 30_000;
/**
 * Pause while runs wait for a place or for another run: most often this process itself makes the place and is woken.
 */
const BLOCKED_PAUSE_MS = 1_000;
const CLEANING_BATCH = 10_000;

/** What operators say about all cronjobs together. */
export interface SchedulerSettings {
  /** Runs of this process at once. */
  maxRuns: number;
  /** Runs of one user at once, over all processes. */
  maxRunsPerUser: number;
  /** How long runs are kept, and how many of each cronjob. */
  retentionDays: number;
  retentionCount: number;
}

/** The part of a process that fires cronjobs and runs them. */
export interface Scheduler {
  /** Settles when it has stopped: it begins nothing once the process drains, and its runs have ended. */
  stopped: Promise<void>;
}

/**
 * Starts a scheduler. It sleeps until the next due time, by the clock of the database, and is woken by changes; every
 * replica has one, and which of them fires a cronjob or runs a run is decided by rows of the database.
 */
export function startScheduler(context: InvocationContext, settings: SchedulerSettings): Scheduler {
  const runs = createActiveRuns(context);
  const work = createWork(context, settings, runs);
  const schedule = async (): Promise<void> => {
    await lookWhenWoken(context, CRONJOBS_TOPIC, 'the scheduler of cronjobs failed', work);
    await runs.close();
  };
  return { stopped: schedule() };
}

/** One look at what there is to do, and the doing of it; says how many milliseconds the next look may wait. */
function createWork(
  context: InvocationContext,
  settings: SchedulerSettings,
  runs: ActiveRuns,
): (wake: () => void) => Promise<number> {
  const { database, notifications, leaseTimes, draining } = context;
  const clean = hourly(() =>
    deleteOldRuns(database.db, settings.retentionDays, settings.retentionCount, CLEANING_BATCH),
  );
  return async (wake) => {
    const agenda = await findAgenda(database.db);
    const active = runs.ids();
    const slots = settings.maxRuns - active.length;
    const fired = isNow(agenda.dueMs) ? await fireDueCronjobs(context) : 0;
    if (fired > slots) notifications.publish(CRONJOBS_TOPIC);
    const takesOver = isNow(agenda.leaseMs);
    if (slots > 0 && (fired > 0 || isNow(agenda.waitingMs) || takesOver)) {
      const limits = { slots, perUser: settings.maxRunsPerUser, active, takesOver, leaseMs: leaseTimes.durationMs };
      const claimed = await database.transaction(async (tx) => {
        const found = await claimRuns(tx, limits);
        // A process that has begun to stop meanwhile rolls back: another one takes them up.
        draining.throwIfAborted();
        return found;
      });
      for (const each of claimed) runs.start(each, wake);
      if (claimed.length > 0) return 0;
    }
    if (fired > 0) return 0;
    await clean();
    return pauseUntilNext(agenda, slots > 0);
  };
}

const isNow = (ms: number | undefined) => ms !== undefined && ms <= 0;

/**
 * How long there is nothing to do. Without room for runs only what is due counts: a run that ends wakes the scheduler.
 */
function pauseUntilNext({ dueMs, waitingMs, leaseMs }: Agenda, hasRoom: boolean): number {
  const later = (ms: number | undefined) => (ms === undefined ? LONGEST_SLEEP_MS : ms > 0 ? ms : BLOCKED_PAUSE_MS);
  const runs = hasRoom ? [later(waitingMs), later(leaseMs)] : [];
  return Math.min(LONGEST_SLEEP_MS, later(dueMs), ...runs);
}
