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

/** Topic published when runs were asked to end. */
export const CANCEL_TOPIC = 'cronjobs:cancel';

/** A run as its row has it. Texts are escaped for PostgreSQL. */
export type RunRow = typeof cronjobRuns.$inferSelect;
/** A run to insert. */
export type NewRun = typeof cronjobRuns.$inferInsert;

const isWaiting = inArray(cronjobRuns.status, ['queued', 'retrying']);
const now = sql`clock_timestamp()`;

/** Inserts runs; a due time that has its run already is left alone. @returns those that are new. */
export function insertRuns(db: Database, runs: NewRun[]): Promise<RunRow[]> {
  return db.insert(cronjobRuns).values(runs).onConflictDoNothing().returning();
}

/** Queues a run on request and wakes the schedulers. @returns `undefined` where this millisecond has one. */
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

/** Deletes the answers of the runs of cronjobs in sessions. */
export async function forgetRunOutputs(tx: Database, keys: readonly SessionKey[]): Promise<void> {
  const isOfSessions = isOneOfUsers(keys, cronjobRuns, cronjobRuns.sessionId);
  await tx.update(cronjobRuns).set({ output: null, errorMessage: null }).where(isOfSessions);
}

/** Counts the runs of a cronjob that have not ended. */
export const countActiveRuns = (db: Database, key: CronjobKey): Promise<number> =>
  db.$count(cronjobRuns, and(isRunForCronjob(key), isNull(cronjobRuns.endTime)));

/** Lists the runs of a cronjob, newest due time first; at most `limit`, after a place. Each has its own place. */
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

/** Finds a run of a cronjob; `undefined` where there is none. */
export async function findRun(db: Database, key: CronjobKey, runId: string): Promise<RunRow | undefined> {
  const [run] = await db
    .select()
    .from(cronjobRuns)
    .where(and(isRunForCronjob(key), eq(cronjobRuns.id, runId)));
  return run;
}

/** Cancels the runs that a condition picks: a waiting one ends at once, a running one when its process sees it. */
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

/** Cancels a run; one that has ended stays as it is. */
export const cancelRun = (tx: Database, key: CronjobKey, runId: string): Promise<void> =>
  cancelWhere(tx, and(isRunForCronjob(key), eq(cronjobRuns.id, runId)));

/** Cancels all runs of cronjobs. */
export const cancelAllRuns = (tx: Database, keys: CronjobKey[]): Promise<void> =>
  cancelWhere(tx, or(...keys.map(isRunForCronjob)));

/** Skips the scheduled runs of a cronjob that have not begun, and stores why. */
export async function skipWaitingRuns(db: Database, key: CronjobKey, message: string): Promise<void> {
  await db
    .update(cronjobRuns)
    .set({ status: 'skipped', endTime: now, nextAttemptTime: null, errorCode: 'skipped', errorMessage: message })
    .where(and(isRunForCronjob(key), isWaiting, eq(cronjobRuns.isManual, false)));
}

/** Deletes runs that ended over `days` ago, and of each cronjob those beyond its newest `count`; at most `limit`. */
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

/** The end of a run. */
export interface RunOutcome {
  status: 'success' | 'failed' | 'cancelled';
  invocationId: string | undefined;
  output?: string | undefined;
  error?: { code: string; message: string } | undefined;
}

const isRun = (run: RunRow) => and(isRunForCronjob({ ...run, id: run.cronjobId }), eq(cronjobRuns.id, run.id));
const hasToken = (run: RunRow) => eq(cronjobRuns.leaseToken, run.leaseToken ?? '');
const isHeld = (run: RunRow) => and(isRun(run), eq(cronjobRuns.status, 'running'), hasToken(run));

/** Columns of a run whose attempt has ended: without a lease, with its invocation and its error. */
const toReleased = ({ invocationId, error }: Omit<RunOutcome, 'status'>) => ({
  leaseToken: null,
  leaseExpireTime: null,
  invocationId: invocationId ?? null,
  errorCode: error?.code ?? null,
  errorMessage: error ? escapeText(error.message) : null,
});

/**
 * Ends a run that this process holds and counts its failure: too many in a row disable the cronjob. One statement.
 * @returns whether the cronjob was disabled; `undefined` where the run is lost, and nothing was written.
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

/** Puts back a run that this process holds, to be tried again after a pause. */
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

/** Lets any other process take a run over at once that this one holds; that is no loss. */
export async function releaseRun(db: Database, run: RunRow): Promise<void> {
  await db
    .update(cronjobRuns)
    .set({ leaseExpireTime: now, losses: sql`${cronjobRuns.losses} - 1` })
    .where(isHeld(run));
}

/** Stores the invocation that a run has begun, where that is not the one of its claim. */
export async function setInvocation(db: Database, run: RunRow, invocationId: string): Promise<void> {
  await db.update(cronjobRuns).set({ invocationId }).where(isHeld(run));
}

/** Takes back the loss that is, or will be, counted for a holder of a run that lives. */
export async function takeBackRunLoss(db: Database, run: RunRow): Promise<void> {
  const isCounted = or(hasToken(run), gt(cronjobRuns.losses, 0));
  await db
    .update(cronjobRuns)
    .set({ losses: sql`${cronjobRuns.losses} - 1` })
    .where(and(isRun(run), isNull(cronjobRuns.endTime), isCounted));
}
