import { escapeText } from '../../platform/db/json-escape.ts';
import type { DatabasePool } from '../../platform/db/database.ts';
import type { Metrics } from '../../platform/metrics.ts';
import { advanceCronjobs, claimDueCronjobs, type DueCronjob } from './claim-store.ts';
import type { CronjobRow } from './cronjob-store.ts';
import { toSchedule } from './cronjob-view.ts';
import { cancelAllRuns, insertRuns, type NewRun } from './run-store.ts';
import { getNextTimes, getTimesBetween } from './schedule.ts';

/** Maximum cronjobs per transaction. Computing a next due time takes about half a millisecond. */
const BATCH = 100;

export interface FireContext {
  database: DatabasePool;
  newId: () => string;
  metrics?: Metrics | undefined;
}

/**
 * Queues the runs of due cronjobs and stores the next due times in one transaction, so that the cronjobs stay due if
 * the process dies. A unique index on the due time keeps two processes from queueing the same run.
 */
export async function fireDueCronjobs({ database, newId, metrics }: FireContext): Promise<number> {
  const fired = await database.transaction(async (tx) => {
    const due = await claimDueCronjobs(tx, BATCH);
    if (due.length === 0) return [];
    const firings = due.map((one) => ({ ...one, firing: planFiring(one) }));
    const replaced = firings.filter(({ firing }) => firing.replaces).map(({ cronjob }) => cronjob);
    if (replaced.length > 0) await cancelAllRuns(tx, replaced);
    const runs = firings.flatMap((one) => one.firing.runs.map((run) => toNewRun(one, run, newId())));
    if (runs.length > 0) await insertRuns(tx, runs);
    await advanceCronjobs(
      tx,
      firings.map(({ cronjob, firing }) => ({
        key: cronjob,
        next: firing.next,
        reason: firing.reason,
        runs: firing.runs.filter(({ skipped }) => skipped === undefined).length,
      })),
    );
    return due;
  });
  for (const { cronjob, now } of fired) {
    if (cronjob.nextRunTime) metrics?.fired((now.getTime() - cronjob.nextRunTime.getTime()) / 1000);
  }
  return fired.length;
}

function toNewRun({ cronjob, now }: DueCronjob, { dueTime, skipped }: PlannedRun, id: string): NewRun {
  const { appName, userId, id: cronjobId } = cronjob;
  const run = { appName, userId, cronjobId, id, dueTime, isManual: false };
  return skipped === undefined
    ? { ...run, status: 'queued', nextAttemptTime: dueTime }
    : { ...run, status: 'skipped', endTime: now, errorCode: 'skipped', errorMessage: escapeText(skipped) };
}

/** Delay after which a due time counts as missed, and the cronjob's policy for missed runs applies. */
const MISSED_AFTER_MS = 60_000;
/** Maximum number of missed due times for which runs are queued afterwards. */
const MAX_MADE_UP = 100;
/** Maximum number of waiting runs per cronjob; further ones are skipped. */
const MAX_WAITING = 100;

interface PlannedRun {
  dueTime: Date;
  skipped?: string;
}

interface Firing {
  runs: PlannedRun[];
  /** True: the cronjob's runs that have not ended are cancelled, and the planned run replaces them. */
  replaces: boolean;
  /** Next due time; `undefined` if the cronjob never fires again. `reason` says why. */
  next: Date | undefined;
  reason?: string;
}

function planFiring({ cronjob, now, activeRuns }: DueCronjob): Firing {
  const schedule = toSchedule(cronjob);
  const last = cronjob.until && cronjob.until <= now ? new Date(cronjob.until.getTime() - 1) : now;
  const times = getTimesBetween(schedule, cronjob.nextRunTime ?? now, last, MAX_MADE_UP);
  const remaining = cronjob.maxRuns === null ? Infinity : Math.max(0, cronjob.maxRuns - cronjob.runCount);
  const planned = planMissedRuns(times, now, cronjob.missedRuns);
  const fired = planned.filter(({ skipped }) => skipped === undefined).slice(0, remaining);
  const runs = [
    ...planned.filter(({ skipped }) => skipped !== undefined),
    ...applyOverlapPolicy(fired, cronjob, activeRuns),
  ];
  const isLast = fired.length >= remaining;
  const [next] = isLast ? [] : getNextTimes(schedule, now, 1);
  const replaces = cronjob.overlap === 'replace' && activeRuns > 0 && fired.length > 0;
  if (next && !(cronjob.until && next >= cronjob.until)) return { runs, replaces, next };
  const reason = isLast
    ? `It ran ${cronjob.maxRuns} times, as often as it should.`
    : 'Its schedule has come to its end.';
  return { runs, replaces, next: undefined, reason };
}

/** If missed due times are skipped, records a skipped run with the reason for the newest of them. */
function planMissedRuns(times: Date[], now: Date, policy: CronjobRow['missedRuns']): PlannedRun[] {
  const late = times.filter((time) => now.getTime() - time.getTime() > MISSED_AFTER_MS);
  const onTime = times.slice(late.length).map((dueTime) => ({ dueTime }));
  const newest = late.at(-1);
  if (!newest) return onTime;
  if (policy === 'all') return times.map((dueTime) => ({ dueTime }));
  if (policy === 'once') return [{ dueTime: newest }, ...onTime];
  const count = late.length >= MAX_MADE_UP ? `${MAX_MADE_UP} or more` : String(late.length);
  return [{ dueTime: newest, skipped: `No scheduler ran when it was due (${count} missed).` }, ...onTime];
}

/** Marks as skipped those planned runs that the cronjob's overlap policy forbids. */
function applyOverlapPolicy(runs: PlannedRun[], { overlap }: CronjobRow, activeRuns: number): PlannedRun[] {
  return runs.map((run, position) => {
    const before = overlap === 'replace' ? position : activeRuns + position;
    // Runs that are planned together for missed due times do not skip one another, but run one after another.
    if (overlap === 'skip' && activeRuns > 0) return { ...run, skipped: 'The previous run was still going.' };
    if (before >= MAX_WAITING) return { ...run, skipped: `${MAX_WAITING} runs wait already.` };
    return run;
  });
}
