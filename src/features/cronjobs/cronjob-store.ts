import { and, eq, getTableColumns, gt, type SQL, sql } from 'drizzle-orm';
import type { Database } from '../../platform/db/database.ts';
import { cronjobRuns, cronjobs } from '../../platform/db/schema/schema.ts';
import { fitsPage, newestFirst } from '../../platform/db/sql.ts';
import { notifyOnCommit } from '../../platform/db/notifications.ts';
import { ConflictError } from '../../core/errors.ts';
import type { Listed, ListPlace } from '../../platform/http/operation/cursor.ts';

/** Topic of notifications that wake the schedulers, because a cronjob or run is new or was changed. */
export const CRONJOBS_TOPIC = 'cronjobs';

export type CronjobRow = typeof cronjobs.$inferSelect;
export type NewCronjob = typeof cronjobs.$inferInsert;
/** New column values; `undefined` leaves a column unchanged. */
export type CronjobChanges = { [Name in Exclude<keyof NewCronjob, keyof CronjobKey>]?: NewCronjob[Name] | undefined };
export type CronjobKey = Pick<CronjobRow, 'appName' | 'userId' | 'id'>;

const isCronjob = ({ appName, userId, id }: CronjobKey): SQL | undefined =>
  and(eq(cronjobs.appName, appName), eq(cronjobs.userId, userId), eq(cronjobs.id, id));

/** SQL condition that joins a run to its cronjob, whose newest run it is. */
const isItsLatestRun = and(
  eq(cronjobRuns.appName, cronjobs.appName),
  eq(cronjobRuns.userId, cronjobs.userId),
  eq(cronjobRuns.cronjobId, cronjobs.id),
  sql`${cronjobRuns.dueTime} = latest_run_time(${cronjobs.appName}, ${cronjobs.userId}, ${cronjobs.id})`,
);

export const isRunForCronjob = ({ appName, userId, id }: CronjobKey): SQL | undefined =>
  and(eq(cronjobRuns.appName, appName), eq(cronjobRuns.userId, userId), eq(cronjobRuns.cronjobId, id));

export async function findTime(db: Database): Promise<Date> {
  const { rows } = await db.execute<{ ms: string }>(
    sql`select floor(extract(epoch from clock_timestamp()) * 1000) as ms`,
  );
  return new Date(Number(rows[0]?.ms));
}

/**
 * Serializes a user's concurrent inserts, because all the user's cronjobs together must not exceed `limit`.
 * @throws {ConflictError} if the user already has `limit` cronjobs
 */
export async function insertCronjob(tx: Database, cronjob: NewCronjob, limit: number): Promise<CronjobRow> {
  await tx.execute(sql`select pg_advisory_xact_lock(hashtextextended(${`cronjobs of ${cronjob.userId}`}, 0))`);
  const count = await tx.$count(cronjobs, eq(cronjobs.userId, cronjob.userId));
  if (count >= limit)
    throw new ConflictError(`The user has ${count} cronjobs; CRONJOBS_MAX_PER_USER allows ${limit}. Delete one first.`);
  const [inserted] = await tx.insert(cronjobs).values(cronjob).returning();
  await notifyOnCommit(tx, CRONJOBS_TOPIC);
  return inserted as CronjobRow;
}

export interface CronjobWithRun {
  cronjob: CronjobRow;
  latestRun: typeof cronjobRuns.$inferSelect | null;
}

/** The list of a user's cronjobs. */
const newest = newestFirst(cronjobs.createTime, cronjobs.id);

const selectWithLatestRun = (db: Database, order = newest.order) => {
  const latest = db.select().from(cronjobRuns).where(isItsLatestRun).limit(1).as('latest');
  const fits = fitsPage(order, latest.output, cronjobs.prompt);
  const columns = {
    cronjob: {
      ...getTableColumns(cronjobs),
      prompt: sql`case when ${fits} then ${cronjobs.prompt} end`.mapWith(cronjobs.prompt),
    },
    latestRun: {
      ...latest._.selectedFields,
      output: sql<string | null>`case when ${fits} then ${latest.output} end`.mapWith(cronjobRuns.output),
    },
    place: newest.place,
    fits,
  };
  return db.select(columns).from(cronjobs).leftJoinLateral(latest, sql`true`);
};

const isVisible = (id: string, userId: string | undefined) =>
  and(eq(cronjobs.id, id), userId === undefined ? undefined : eq(cronjobs.userId, userId));

/** Finds a cronjob by its id. If `userId` is given, cronjobs of other users are not found. */
export async function findCronjob(
  db: Database,
  id: string,
  userId: string | undefined,
): Promise<CronjobWithRun | undefined> {
  const [cronjob] = await selectWithLatestRun(db).where(isVisible(id, userId)).limit(1);
  return cronjob;
}

/**
 * Locks a cronjob until the transaction ends; otherwise like {@link findCronjob}. Not against the foreign key of skipped
 * runs, because a deletion of a session may insert one while it holds what this transaction locks next.
 */
export async function lockCronjob(
  tx: Database,
  id: string,
  userId: string | undefined,
): Promise<CronjobRow | undefined> {
  const [cronjob] = await tx.select().from(cronjobs).where(isVisible(id, userId)).limit(1).for('no key update');
  return cronjob;
}

/** Lists cronjobs after a cursor: a user's newest first, or all by id, because the primary key has that order. */
export async function listCronjobs(
  db: Database,
  userId: string | undefined,
  limit: number,
  after: ListPlace | undefined,
): Promise<Listed<CronjobWithRun>[]> {
  const { id } = cronjobs;
  const [isNext, order] =
    userId === undefined
      ? [after && gt(id, after.id), sql`${id}`]
      : [and(eq(cronjobs.userId, userId), newest.isAfter(after)), newest.order];
  return selectWithLatestRun(db, order).where(isNext).orderBy(order).limit(limit);
}

/** Changes a cronjob whose row the caller has locked. Wakes the schedulers at the commit. */
export async function updateCronjob(tx: Database, key: CronjobKey, changes: CronjobChanges): Promise<CronjobRow> {
  const [updated] = await tx
    .update(cronjobs)
    .set({ ...changes, updateTime: sql`date_trunc('milliseconds', clock_timestamp())` })
    .where(isCronjob(key))
    .returning();
  await notifyOnCommit(tx, CRONJOBS_TOPIC);
  return updated as CronjobRow;
}

/**
 * Deletes a cronjob whose row the caller has locked, with its runs that have not begun.
 * @returns false, and deletes nothing, while a run goes on
 */
export async function deleteCronjob(tx: Database, { appName, userId, id }: CronjobKey): Promise<boolean> {
  const { rows } = await tx.execute<{ deleted: boolean }>(
    sql`select delete_cronjob(${appName}, ${userId}, ${id}) as deleted`,
  );
  return rows[0]?.deleted === true;
}

const { appName, userId, id, schedule, missedRuns, overlap, until, maxRuns, runCount, nextRunTime, revision } =
  cronjobs;
/** The columns of a cronjob that decide when it fires; its prompt may be long. */
const COLUMNS = { appName, userId, id, schedule, missedRuns, overlap, until, maxRuns, runCount, nextRunTime, revision };
const now = sql`statement_timestamp()`;

export interface NextCronjob {
  cronjob: Pick<CronjobRow, keyof typeof COLUMNS>;
  /** The time by the database's clock. */
  now: Date;
  /** Milliseconds until the cronjob is due; not positive if it is due. */
  dueMs: number;
}

/** Lists the cronjobs that are due first, from the start of an index. */
export function listNextCronjobs(db: Database, limit: number): Promise<NextCronjob[]> {
  const dueMs = sql`ceil(extract(epoch from ${nextRunTime} - ${now}) * 1000)`;
  return db
    .select({ cronjob: COLUMNS, now: sql`${now}`.mapWith(nextRunTime), dueMs: dueMs.mapWith(Number) })
    .from(cronjobs)
    .where(sql`${cronjobs.enabled}`)
    .orderBy(nextRunTime)
    .limit(limit);
}

export interface PlannedRun {
  id: string;
  due: Date;
  /** Why the run is left out. Without it the run is queued, unless `overlap` leaves it out. */
  skipped?: string;
}

/** What a due cronjob does. */
export interface Firing {
  runs: PlannedRun[];
  /** Next due time. `undefined`: the cronjob never fires again and is disabled; `reason` says why. */
  next: Date | undefined;
  reason?: string;
}

/**
 * Queues the runs of due cronjobs and stores their next due times, by compare-and-set on what was read.
 * @returns the ids of the cronjobs that this call has fired
 */
export async function fireCronjobs(
  db: Database,
  firings: { cronjob: NextCronjob['cronjob']; firing: Firing }[],
): Promise<ReadonlySet<string>> {
  const parameter = firings.map(({ cronjob, firing }) => ({
    app: cronjob.appName,
    owner: cronjob.userId,
    id: cronjob.id,
    due: cronjob.nextRunTime,
    revision: cronjob.revision,
    ...firing,
  }));
  const { rows } = await db.execute<{ fired: string[] }>(
    sql`select fire_cronjobs(${JSON.stringify(parameter)}::jsonb) as fired`,
  );
  return new Set(rows[0]?.fired);
}
