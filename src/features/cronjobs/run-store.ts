import { and, eq, getViewSelectedFields, sql } from 'drizzle-orm';
import type { Database } from '../../platform/db/database.ts';
import { cronjobRuns } from '../../platform/db/schema/schema.ts';
import { exactTime, fitsPage, isAfterPlace } from '../../platform/db/sql.ts';
import type { Listed, ListPlace } from '../../platform/http/operation/cursor.ts';
import { type CronjobKey, isRunForCronjob } from './cronjob-store.ts';

/** A run as the view of runs shows it: an invocation, or a run that was left out. Texts are escaped for PostgreSQL. */
export type RunRow = typeof cronjobRuns.$inferSelect;

const toParameters = ({ appName, userId, id }: CronjobKey) => sql`${appName}, ${userId}, ${id}`;

/**
 * Queues a run that is due now, unless the cronjob is absent or disabled, `most` of its runs are open, or another run was
 * requested in the same millisecond.
 */
export async function queueManualRun(
  db: Database,
  key: CronjobKey,
  id: string,
  most: number,
): Promise<'queued' | 'absent' | 'disabled' | 'full' | 'taken'> {
  type Queued = Awaited<ReturnType<typeof queueManualRun>>;
  const { rows } = await db.execute<{ how: Queued }>(sql`
    select queue_manual_run(${toParameters(key)}, ${id}, ${most}) as how`);
  return rows[0]?.how ?? 'absent';
}

/** Gives the runs that have not begun the present settings of their cronjob, whose row the caller has locked. */
export const requeueRuns = (tx: Database, key: CronjobKey): Promise<unknown> =>
  tx.execute(sql`select requeue_runs(${toParameters(key)})`);

/** Skips the scheduled runs that have not begun. The caller has locked the cronjob's row. */
export const skipRuns = (tx: Database, key: CronjobKey, reason: string): Promise<unknown> =>
  tx.execute(sql`select skip_runs(${toParameters(key)}, ${reason})`);

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
      ...getViewSelectedFields(cronjobRuns),
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

/** Forgets at most `limit` runs that ended more than `days` ago, or that exceed the newest `count` of a cronjob. */
export async function forgetRuns(db: Database, days: number, count: number, limit: number): Promise<void> {
  await db.execute(sql`select forget_runs(${days}, ${count}, ${limit})`);
}
