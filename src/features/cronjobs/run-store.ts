import { and, eq, getTableColumns, gt, inArray, isNull, or, type SQL, sql } from 'drizzle-orm';
import type { SessionKey } from '../../core/session.ts';
import type { Database } from '../../platform/db/database.ts';
import { cronjobRuns, cronjobs } from '../../platform/db/schema/schema.ts';
import { escapeText } from '../../platform/db/json-escape.ts';
import { isOnHold } from '../../conversation/holds/hold-store.ts';
import { isOneOfUsers } from '../../conversation/sessions/session-key.ts';
import { notifyOnCommit } from '../../platform/db/notifications.ts';
import { exactTime, fitsPage, isAfterPlace } from '../../platform/db/sql.ts';
import type { Listed, ListPlace } from '../../platform/http/operation/cursor.ts';
import { type CronjobKey, CRONJOBS_TOPIC, isCronjob, isRunForCronjob } from './cronjob-store.ts';

/** Topic of the notification that the cancellation of a run was requested. */
export const CANCEL_TOPIC = 'cronjobs:cancel';

/** A row of the table of runs. Texts are escaped for PostgreSQL. */
export type RunRow = typeof cronjobRuns.$inferSelect;
export type NewRun = typeof cronjobRuns.$inferInsert;

const isWaiting = inArray(cronjobRuns.status, ['queued', 'retrying']);
const now = sql`clock_timestamp()`;

/** Ignores a run if its cronjob already has a run with the same due time. @returns the inserted runs */
export function insertRuns(db: Database, runs: NewRun[]): Promise<RunRow[]> {
  return db.insert(cronjobRuns).values(runs).onConflictDoNothing().returning();
}

/** Queues a manual run; `undefined` if the cronjob already has a run with this due time, in milliseconds. */
export async function insertManualRun(
  tx: Database,
  key: CronjobKey,
  id: string,
  time: Date,
): Promise<RunRow | undefined> {
  const { appName, userId, id: cronjobId } = key;
  const [run] = await insertRuns(tx, [
    { appName, userId, cronjobId, id, dueTime: time, isManual: true, status: 'queued', nextAttemptTime: time },
  ]);
  await notifyOnCommit(tx, CRONJOBS_TOPIC);
  return run;
}

export async function forgetRunOutputs(tx: Database, keys: readonly SessionKey[]): Promise<void> {
  const isOfSessions = isOneOfUsers(keys, cronjobRuns, cronjobRuns.sessionId);
  await tx.update(cronjobRuns).set({ output: null, errorMessage: null }).where(isOfSessions);
}

export const countActiveRuns = (db: Database, key: CronjobKey): Promise<number> =>
  db.$count(cronjobRuns, and(isRunForCronjob(key), isNull(cronjobRuns.endTime)));

/** Lists the runs of a cronjob after a cursor position, newest due time first. Each run has its position. */
export async function listRuns(
  db: Database,
  key: CronjobKey,
  limit: number,
  after: ListPlace | undefined,
): Promise<Listed<RunRow>[]> {
  const order = sql`${cronjobRuns.dueTime} desc, ${cronjobRuns.id} desc`;
  const fits = fitsPage(order, cronjobRuns.output);
  const output = sql<string | null>`case when ${fits} then ${cronjobRuns.output} end`;
  return db
    .select({
      ...getTableColumns(cronjobRuns),
      output,
      place: { time: exactTime(cronjobRuns.dueTime), id: cronjobRuns.id },
      fits,
    })
    .from(cronjobRuns)
    .where(and(isRunForCronjob(key), isAfterPlace({ time: cronjobRuns.dueTime, id: cronjobRuns.id }, after)))
    .orderBy(order)
    .limit(limit);
}

export async function findRun(db: Database, key: CronjobKey, runId: string): Promise<RunRow | undefined> {
  const [run] = await db
    .select()
    .from(cronjobRuns)
    .where(and(isRunForCronjob(key), eq(cronjobRuns.id, runId)));
  return run;
}

/** Cancels runs. A waiting run ends immediately; a running run ends when its process reads the request. */
async function cancelWhere(tx: Database, condition: SQL | undefined): Promise<void> {
  await tx
    .update(cronjobRuns)
    .set({
      cancelRequestTime: sql`coalesce(${cronjobRuns.cancelRequestTime}, ${now})`,
      status: sql`case when ${isWaiting} then 'cancelled' else ${cronjobRuns.status} end`,
      endTime: sql`case when ${isWaiting} then ${now} end`,
      nextAttemptTime: null,
    })
    .where(and(condition, isNull(cronjobRuns.endTime)));
  await notifyOnCommit(tx, CANCEL_TOPIC);
}

/** Cancels a run. A run that has ended stays unchanged. */
export const cancelRun = (tx: Database, key: CronjobKey, runId: string): Promise<void> =>
  cancelWhere(tx, and(isRunForCronjob(key), eq(cronjobRuns.id, runId)));

export const cancelAllRuns = (tx: Database, keys: CronjobKey[]): Promise<void> =>
  cancelWhere(tx, or(...keys.map(isRunForCronjob)));

/** Skips the scheduled runs that have not started. Manual runs stay queued. */
export async function skipWaitingRuns(db: Database, key: CronjobKey, message: string): Promise<void> {
  await db
    .update(cronjobRuns)
    .set({ status: 'skipped', endTime: now, nextAttemptTime: null, errorCode: 'skipped', errorMessage: message })
    .where(and(isRunForCronjob(key), isWaiting, eq(cronjobRuns.isManual, false)));
}

/** Deletes at most `limit` runs that ended more than `days` ago, or that exceed the newest `count` of a cronjob. */
export async function deleteOldRuns(db: Database, days: number, count: number, limit: number): Promise<void> {
  const counted = { appName: sql`counted.app_name`, userId: sql`counted.user_id`, sessionId: sql`counted.session_id` };
  const old = sql`
    select app_name, user_id, cronjob_id, id from (
      select ${cronjobRuns.appName}, ${cronjobRuns.userId}, ${cronjobRuns.cronjobId}, ${cronjobRuns.id},
             ${cronjobRuns.sessionId}, ${cronjobRuns.endTime},
             row_number() over (partition by ${cronjobRuns.appName}, ${cronjobRuns.userId}, ${cronjobRuns.cronjobId}
                                order by ${cronjobRuns.dueTime} desc) as place
      from ${cronjobRuns}) counted
    where (end_time < ${now} - ${days} * interval '1 day' or (place > ${count} and end_time is not null))
      and not ${isOnHold(counted)}
    limit ${limit}`;
  await db
    .delete(cronjobRuns)
    .where(
      sql`(${cronjobRuns.appName}, ${cronjobRuns.userId}, ${cronjobRuns.cronjobId}, ${cronjobRuns.id}) in (${old})`,
    );
}

export interface RunOutcome {
  status: 'success' | 'failed' | 'cancelled';
  invocationId: string | undefined;
  output?: string | undefined;
  error?: { code: string; message: string } | undefined;
}

const isRun = (run: RunRow) => and(isRunForCronjob({ ...run, id: run.cronjobId }), eq(cronjobRuns.id, run.id));
const hasToken = (run: RunRow) => eq(cronjobRuns.leaseToken, run.leaseToken ?? '');
const isHeld = (run: RunRow) => and(isRun(run), eq(cronjobRuns.status, 'running'), hasToken(run));

const toReleased = ({ invocationId, error }: Omit<RunOutcome, 'status'>) => ({
  leaseToken: null,
  leaseExpireTime: null,
  invocationId: invocationId ?? null,
  errorCode: error?.code ?? null,
  errorMessage: error ? escapeText(error.message) : null,
});

/**
 * One statement ends the run and counts its cronjob's consecutive failures, of which too many disable it.
 * @returns true if the cronjob was disabled; `undefined` if the lease was lost and nothing was written
 */
export async function endRun(
  db: Database,
  run: RunRow,
  outcome: RunOutcome,
): Promise<{ disabled: boolean } | undefined> {
  const ended = db
    .update(cronjobRuns)
    .set({
      ...toReleased(outcome),
      status: outcome.status,
      endTime: now,
      output: outcome.output === undefined ? null : escapeText(outcome.output),
    })
    .where(isHeld(run))
    .returning({ id: cronjobRuns.id });
  const failed = outcome.status === 'failed';
  const isTooMany = sql`(${failed} and ${cronjobs.enabled} and ${cronjobs.maxFailures} > 0
    and ${cronjobs.failureCount} + 1 >= ${cronjobs.maxFailures})`;
  const why = escapeText(outcome.error?.message ?? '');
  const reason = sql`'It failed ' || ${cronjobs.failureCount} + 1 || ' times in a row; the last time: ' || ${why}`;
  const failures = failed
    ? sql`${cronjobs.failureCount} + 1`
    : outcome.status === 'success'
      ? 0
      : cronjobs.failureCount;
  const { rows } = await db.execute<{ disabled: boolean | null }>(sql`
    with ended as ${ended},
    counted as (
      update ${cronjobs} set
        failure_count = ${failures},
        enabled = enabled and not ${isTooMany},
        next_run_time = case when not ${isTooMany} then next_run_time end,
        disabled_reason = case when ${isTooMany} then ${reason} else disabled_reason end
      where ${isCronjob({ ...run, id: run.cronjobId })} and ${cronjobs.failureCount} <> ${failures}
        and exists (select from ended)
      returning not enabled and ${failed} as disabled)
    select disabled from ended left join counted on true`);
  const row = rows[0];
  return row && { disabled: row.disabled === true };
}

export async function retryRun(
  db: Database,
  run: RunRow,
  pauseMs: number,
  outcome: Omit<RunOutcome, 'status'>,
): Promise<void> {
  await db
    .update(cronjobRuns)
    .set({
      ...toReleased(outcome),
      status: 'retrying',
      nextAttemptTime: sql`${now} + ${pauseMs} * interval '1 millisecond'`,
    })
    .where(isHeld(run));
}

/** Releases a run: another process can take it over immediately, and this does not count as a crash. */
export async function releaseRun(db: Database, run: RunRow): Promise<void> {
  await db
    .update(cronjobRuns)
    .set({ leaseExpireTime: now, losses: sql`${cronjobRuns.losses} - 1` })
    .where(isHeld(run));
}

/** Stores the id of a run's invocation, if it differs from the id that the claim created. */
export async function setInvocation(db: Database, run: RunRow, invocationId: string): Promise<void> {
  await db.update(cronjobRuns).set({ invocationId }).where(isHeld(run));
}

/** Decrements the number of crashes, because the process that had lost the run's lease had only stalled. */
export async function takeBackRunLoss(db: Database, run: RunRow): Promise<void> {
  const isCounted = or(hasToken(run), gt(cronjobRuns.losses, 0));
  await db
    .update(cronjobRuns)
    .set({ losses: sql`${cronjobRuns.losses} - 1` })
    .where(and(isRun(run), isNull(cronjobRuns.endTime), isCounted));
}
