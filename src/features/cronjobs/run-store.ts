import { and, eq, getViewSelectedFields, sql } from 'drizzle-orm';
import type { Database } from '../../platform/db/database.ts';
import { cronjobRuns } from '../../platform/db/schema/schema.ts';
import { fitsPage, newestFirst } from '../../platform/db/sql.ts';
import type { Listed, ListPlace } from '../../platform/http/operation/cursor.ts';
import { type CronjobKey, isRunForCronjob } from './cronjob-store.ts';

/** A run as the view of runs shows it: an invocation, or a run that was left out. */
export type RunRow = typeof cronjobRuns.$inferSelect;

const toParameters = ({ appName, userId, id }: CronjobKey) => sql`${appName}, ${userId}, ${id}`;

/** Why a manual run was not queued. `taken`: another run was requested in the same millisecond. */
type Refusal = 'absent' | 'disabled' | 'full' | 'taken';

/**
 * Queues a run that is due now, unless `most` runs of the cronjob are open. If `userId` is given, cronjobs of other users
 * are absent.
 */
export async function queueManualRun(
  db: Database,
  cronjobId: string,
  userId: string | undefined,
  runId: string,
  most: number,
): Promise<{ refusal: Refusal | null; run: RunRow }> {
  const queued = sql`queue_manual_run(${userId ?? null}, ${cronjobId}, ${runId}, ${most}) q
    cross join lateral jsonb_populate_record(null::${cronjobRuns}, q.run) ${cronjobRuns}`;
  const columns = getViewSelectedFields(cronjobRuns);
  // As SQL, because the query builder does not know that the function's row has the view's columns.
  const run = Object.entries(columns).map(([name, column]) => [name, sql`${column}`.mapWith(column)]);
  const fields = { refusal: sql<Refusal | null>`q.refusal`, run: Object.fromEntries(run) as typeof columns };
  const [row] = await db.select(fields).from(queued);
  if (!row) throw new TypeError('queue_manual_run returned no row');
  return row;
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
  const { place, order, isAfter } = newestFirst(cronjobRuns.dueTime, cronjobRuns.id);
  const fits = fitsPage(order, cronjobRuns.output);
  const output = sql<string | null>`case when ${fits} then ${cronjobRuns.output} end`.mapWith(cronjobRuns.output);
  return db
    .select({
      ...getViewSelectedFields(cronjobRuns),
      output,
      place,
      fits,
    })
    .from(cronjobRuns)
    .where(and(isRunForCronjob(key), isAfter(after)))
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

/** Maximum number of runs that one transaction forgets. */
const BATCH = 10_000;

/** Forgets the runs that ended more than `days` ago, or that exceed the newest `count` of a cronjob, in batches. */
export async function forgetRuns(db: Database, days: number, count: number): Promise<void> {
  for (let forgotten = BATCH; forgotten === BATCH; ) {
    const { rows } = await db.execute<{ n: number }>(sql`select forget_runs(${days}, ${count}, ${BATCH}) as n`);
    forgotten = rows[0]?.n ?? 0;
  }
}
