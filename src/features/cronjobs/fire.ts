import type { CronjobRow } from './cronjob-store.ts';
import { nextTimes, type Schedule, timesBetween } from './schedule.ts';

/**
 * A due time that nobody ran for longer than this was missed, and the policy of the cronjob decides; seconds are only
 * lateness.
 */
const MISSED_AFTER_MS = 60_000;
/** Missed times that are made up for at most. */
const MAX_MADE_UP = 100;
/** Runs of one cronjob that wait at most; further ones are left out. */
const MAX_WAITING = 100;

/** A run to be queued, or left out for a reason. */
interface PlannedRun {
  dueTime: Date;
  skipped?: string;
}

/** What a due cronjob gets. */
export interface Firing {
  runs: PlannedRun[];
  /** True: the runs that go on are asked to end. */
  replaces: boolean;
  /** `undefined` where it never fires again, for a reason. */
  next: Date | undefined;
  reason?: string;
}

/**
 * What happens to a cronjob whose next time has come. Pure: the same answer wherever it is asked.
 * @param activeRuns runs of it that have not ended.
 */
export function planFiring(cronjob: CronjobRow, schedule: Schedule, now: Date, activeRuns: number): Firing {
  const last = cronjob.until && cronjob.until <= now ? new Date(cronjob.until.getTime() - 1) : now;
  const times = timesBetween(schedule, cronjob.nextRunTime ?? now, last, MAX_MADE_UP);
  const left = cronjob.maxRuns === null ? Infinity : Math.max(0, cronjob.maxRuns - cronjob.runCount);
  const planned = missed(times, now, cronjob.missedRuns);
  const fired = planned.filter(({ skipped }) => skipped === undefined).slice(0, left);
  const runs = [...planned.filter(({ skipped }) => skipped !== undefined), ...overlapping(fired, cronjob, activeRuns)];
  const isLast = fired.length >= left;
  const [next] = isLast ? [] : nextTimes(schedule, now, 1);
  const replaces = cronjob.overlap === 'replace' && activeRuns > 0 && fired.length > 0;
  if (next && !(cronjob.until && next >= cronjob.until)) return { runs, replaces, next };
  const reason = isLast
    ? `It ran ${cronjob.maxRuns} times, as often as it should.`
    : 'Its schedule has come to its end.';
  return { runs, replaces, next: undefined, reason };
}

/** The times that are run for, and, of those that are not, the newest with the reason. */
function missed(times: Date[], now: Date, policy: CronjobRow['missedRuns']): PlannedRun[] {
  const late = times.filter((time) => now.getTime() - time.getTime() > MISSED_AFTER_MS);
  const onTime = times.slice(late.length).map((dueTime) => ({ dueTime }));
  const newest = late.at(-1);
  if (!newest) return onTime;
  if (policy === 'all') return times.map((dueTime) => ({ dueTime }));
  if (policy === 'once') return [{ dueTime: newest }, ...onTime];
  const count = late.length >= MAX_MADE_UP ? `${MAX_MADE_UP} or more` : String(late.length);
  return [{ dueTime: newest, skipped: `No scheduler ran when it was due (${count} missed).` }, ...onTime];
}

/** What the runs become beside those that go on. */
function overlapping(runs: PlannedRun[], { overlap }: CronjobRow, activeRuns: number): PlannedRun[] {
  return runs.map((run, position) => {
    const before = overlap === 'replace' ? position : activeRuns + position;
    // Made-up times come at once: they queue behind each other, and only what goes on from before makes them skip.
    if (overlap === 'skip' && activeRuns > 0) return { ...run, skipped: 'The previous run was still going.' };
    if (before >= MAX_WAITING) return { ...run, skipped: `${MAX_WAITING} runs wait already.` };
    return run;
  });
}
