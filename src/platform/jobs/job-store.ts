import { and, eq, gt, ne, or, sql, type SQL } from 'drizzle-orm';
import type { AnyPgColumn } from 'drizzle-orm/pg-core';
import { LeaseLostError } from '../../core/errors.ts';
import type { Database } from '../db/database.ts';
import { jobLanes, jobs } from '../db/schema/schema.ts';
import { callFunction } from '../db/statement.ts';
import type { RunEnd } from '../work/leased-queue.ts';

/** A job of the table `jobs` that this process has claimed. */
export interface Job {
  appName: string;
  userId: string;
  id: string;
  /** Number of this attempt, from 1. */
  attempt: number;
  /** Number of processes that crashed while they held it. */
  losses: number;
  token: string;
  /** What the job is about, as the function of its kind returned it; absent if the kind has none. */
  work?: unknown;
}

/** Maximum numbers of concurrent jobs of a kind, over all processes. Default: unlimited. */
export interface JobLimits {
  user?: number;
  /** Per name of a lane, over all users. */
  lane?: number;
  /** Per user and lane. A half-open lane has one place, whatever this says. */
  pair?: number;
}

export interface JobsClaim {
  kind: string;
  /** Applications that this process serves. Default: all. */
  appNames?: readonly string[] | undefined;
  slots: number;
  leaseMs: number;
  limits?: JobLimits | undefined;
  /** SQL function that reads what a claimed job is about: see `claim_jobs`. */
  work?: string | undefined;
}

type JobKey = Pick<Job, 'appName' | 'userId' | 'id'>;

/**
 * Claims due jobs. The transaction should be short, because claims of a kind wait for each other.
 * @returns the jobs, whether one was due, and the milliseconds until the next one is due: not positive if a limit blocks
 *   it, `null` if no job waits
 */
export async function claimJobs(
  db: Database,
  { kind, appNames, slots, leaseMs, limits = {}, work }: JobsClaim,
): Promise<{ claimed: Job[]; wasDue: boolean; pause_ms: number | null }> {
  const row = await callFunction<{ claimed: Job[] | null; pause_ms: number | null }>(db, 'claim_jobs', {
    p_kind: kind,
    p_apps: appNames,
    p_slots: slots,
    p_lease_ms: leaseMs,
    p_limits: JSON.stringify(limits),
    p_work: work,
  });
  return { ...row, claimed: row.claimed ?? [], wasDue: row.claimed !== null };
}

const keyOf = (kind: string, { appName, userId, id, token }: Job) =>
  sql`${kind}, ${appName}, ${userId}, ${id}, ${token}::uuid`;

/** SQL expression that adds a job of a user's only lane; for a job that is there already, see `add_job`. */
export const addsJob = (kind: string, { appName, userId, id }: JobKey, due = sql`clock_timestamp()`) =>
  sql`add_job(${kind}, ${appName}, ${userId}, ${id}, p_lane => '', p_due => ${due})`;

type User = Pick<Job, 'appName' | 'userId'>;
/** Lanes of one name, of all users of an application. */
export type Lanes = Pick<Job, 'appName'> & { kind: string; lane: string };

const areOfUser = (table: typeof jobs | typeof jobLanes, { appName, userId }: User) =>
  and(eq(table.appName, appName), eq(table.userId, userId));
const areInLanes = (table: typeof jobs | typeof jobLanes, { kind, appName, lane }: Lanes) =>
  and(eq(table.kind, kind), eq(table.appName, appName), eq(table.lane, lane));

/** Deletes jobs with their lanes: the lanes first, because that waits for writers who are adding jobs to them. */
async function deleteJobs(tx: Database, are: (table: typeof jobs | typeof jobLanes) => SQL | undefined): Promise<void> {
  for (const table of [jobLanes, jobs]) await tx.delete(table).where(are(table));
}

/** Deletes all jobs of a user but those of the kind `except`. */
export const deleteUserJobs = (tx: Database, user: User, except: string): Promise<void> =>
  deleteJobs(tx, (table) => and(areOfUser(table, user), ne(table.kind, except)));

export const deleteLanes = (tx: Database, lanes: Lanes): Promise<void> =>
  deleteJobs(tx, (table) => areInLanes(table, lanes));

/** Deletes the jobs that wait and are due. @returns their number */
export async function deleteDueJobs(db: Database, lanes: Lanes): Promise<number> {
  const { rowCount } = await db.execute(sql`
    with due as materialized (
      select ctid as place from ${jobs}
      where ${areInLanes(jobs, lanes)} and ${jobs.leaseToken} is null and ${jobs.dueTime} <= clock_timestamp()
      for update skip locked)
    delete from ${jobs} using due where ctid = due.place`);
  return rowCount ?? 0;
}

/** For statements about what jobs are about: the join with the job of a row, and when it is due or its lease expires. */
export const jobOf = (kind: string, row: Record<'appName' | 'userId' | 'id', AnyPgColumn>) => ({
  table: jobs,
  on: and(eq(jobs.appName, row.appName), eq(jobs.userId, row.userId), eq(jobs.kind, kind), eq(jobs.id, row.id)),
  attempt: jobs.attempt,
  nextTime: sql`coalesce(${jobs.leaseExpireTime}, ${jobs.dueTime})`.mapWith(jobs.dueTime),
});

/** SQL expression that ends a claimed job: true; or puts it back if it was added again: false; null if it is lost. */
export const endsJob = (kind: string, job: Job) => sql<boolean | null>`end_job(${keyOf(kind, job)})`;

/** SQL expression that locks a claimed job until the transaction ends; false if another process has it, or it is gone. */
export const holdsJob = (kind: string, job: Job) => sql<boolean>`holds_job(${keyOf(kind, job)})`;

/**
 * Ends a claimed job, or puts it back if it was added again: then it is due.
 * @throws {LeaseLostError} if another process has claimed it, or it is gone
 */
export async function endJob(db: Database, kind: string, job: Job): Promise<RunEnd> {
  const { rows } = await db.execute<{ isOver: boolean | null }>(sql`select ${endsJob(kind, job)} as "isOver"`);
  const isOver = rows[0]?.isOver ?? null;
  if (isOver === null) throw jobLost();
  return isOver ? 'over' : 'waits';
}

export const jobLost = () => new LeaseLostError('Another process has claimed the job, or it is gone.');

/** Renews the leases of claimed jobs. @returns the jobs that other processes have claimed meanwhile */
export async function renewJobs(db: Database, kind: string, held: Job[], leaseMs: number): Promise<Job[]> {
  const { tokens } = await callFunction<{ tokens: string[] }>(db, 'renew_jobs', {
    p_kind: kind,
    p_jobs: JSON.stringify(held.map(({ appName, userId, id, token }) => ({ appName, userId, id, token }))),
    p_lease_ms: leaseMs,
  });
  return held.filter(({ token }) => !tokens.includes(token));
}

/** SQL expression that puts a claimed job back for another attempt; false if another process has claimed it. */
export const putsBackJob = (kind: string, job: Job, pauseMs: number, halfOpen = sql`false`) =>
  sql<boolean>`put_back_job(${keyOf(kind, job)}, ${pauseMs}::bigint, ${halfOpen})`;

/**
 * Puts a claimed job back. `attempts`: how many it has had, this one included by default; 0: its crashes are counted anew
 * too.
 * @returns false if another process has claimed it, or it is gone
 */
export async function putBackJob(
  db: Database,
  kind: string,
  job: Job,
  { pauseMs = 0, attempts = null }: { pauseMs?: number; attempts?: number | null },
): Promise<boolean> {
  const { rows } = await db.execute<{ isHeld: boolean }>(
    sql`select put_back_job(${keyOf(kind, job)}, ${pauseMs}::bigint, p_attempt => ${attempts}::integer) as "isHeld"`,
  );
  return rows[0]?.isHeld === true;
}

/** Undoes one increment of the crash counter, because the process was only slow and did not die. */
export async function takeBackLoss(db: Database, kind: string, job: Job): Promise<void> {
  // The crash is counted in `losses`, or will be by the next claim, because the row still has the expired lease.
  const isCounted = or(eq(jobs.leaseToken, job.token), gt(jobs.losses, 0));
  await db
    .update(jobs)
    .set({ losses: sql`${jobs.losses} - 1` })
    .where(and(isJob(kind, job), isCounted));
}

/** Opens a user's lane, or half-opens it: after a job without an answer it runs one job at a time. */
export async function setHalfOpen(
  db: Database,
  kind: string,
  { userId, lane, isHalfOpen }: { userId: string; lane: string; isHalfOpen: boolean },
): Promise<void> {
  const isLane = and(eq(jobLanes.kind, kind), eq(jobLanes.userId, userId), eq(jobLanes.lane, lane));
  await db
    .update(jobLanes)
    .set({ halfOpen: isHalfOpen })
    .where(and(isLane, eq(jobLanes.halfOpen, !isHalfOpen)));
}

const isJob = (kind: string, { appName, userId, id }: JobKey) =>
  and(eq(jobs.appName, appName), eq(jobs.userId, userId), eq(jobs.kind, kind), eq(jobs.id, id));
