import { escapeText } from '../../platform/db/json-escape.ts';
import type { Metrics } from '../../platform/metrics.ts';
import type { DatabasePool } from '../../platform/db/database.ts';
import { advanceCronjobs, claimDueCronjobs, type DueCronjob } from './claim-store.ts';
import { scheduleOf } from './cronjob-view.ts';
import { type Firing, planFiring } from './fire.ts';
import { cancelRunsOf, insertRuns, type NewRun } from './run-store.ts';

/** Cronjobs of one transaction: their next times take about half a millisecond each. */
const BATCH = 100;

/** What firing needs of the process. */
export interface FireContext {
  database: DatabasePool;
  newId: () => string;
  metrics?: Metrics | undefined;
}

/**
 * Queues the runs of cronjobs that are due and moves these to their next times, all in one transaction: whoever dies
 * in it leaves the cronjobs due, and a due time has one row, whoever queues it.
 * @returns how many cronjobs were due.
 */
export async function fireDueCronjobs({ database, newId, metrics }: FireContext): Promise<number> {
  const fired = await database.transaction(async (tx) => {
    const due = await claimDueCronjobs(tx, BATCH);
    if (due.length === 0) return [];
    const firings = due.map((one) => ({ ...one, firing: planOf(one) }));
    const replaced = firings.filter(({ firing }) => firing.replaces).map(({ cronjob }) => cronjob);
    if (replaced.length > 0) await cancelRunsOf(tx, replaced);
    const runs = firings.flatMap(({ cronjob, firing, now }) =>
      firing.runs.map((run) => toNewRun({ ...run, cronjob, now, id: newId() })),
    );
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

const planOf = ({ cronjob, now, activeRuns }: DueCronjob): Firing =>
  planFiring(cronjob, scheduleOf(cronjob), now, activeRuns);

function toNewRun({
  cronjob,
  dueTime,
  skipped,
  now,
  id,
}: Firing['runs'][number] & Pick<DueCronjob, 'cronjob' | 'now'> & { id: string }): NewRun {
  const { appName, userId, id: cronjobId } = cronjob;
  const run = { appName, userId, cronjobId, id, dueTime, isManual: false };
  return skipped === undefined
    ? { ...run, status: 'queued', nextAttemptTime: dueTime }
    : { ...run, status: 'skipped', endTime: now, errorCode: 'skipped', errorMessage: escapeText(skipped) };
}
