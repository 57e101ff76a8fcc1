import { and, asc, eq, getTableColumns, inArray, isNull, lte, sql } from 'drizzle-orm';
import type { Database } from '../../platform/db/database.ts';
import { cronjobRuns, cronjobs } from '../../platform/db/schema/schema.ts';
import { type CronjobKey, type CronjobRow, isItsRun } from './cronjob-store.ts';
import type { RunRow } from './run-store.ts';

/** Candidates to read beyond twice the wanted number, because other transactions may have locked some. */
const SPARE_CANDIDATES = 10;
const now = sql`clock_timestamp()`;
const msUntil = (time: unknown) => sql`ceil(extract(epoch from ${time} - ${now}) * 1000)`;
const expiry = (durationMs: number) => sql`${now} + ${durationMs} * interval '1 millisecond'`;

/** When the scheduler has work, in milliseconds from now by the database's clock; negative if overdue. */
export interface Agenda {
  /** When the next cronjob is due. */
  dueMs: number | undefined;
  /** When the next waiting run is due. A run that waits for another run or a free slot counts as overdue. */
  waitingMs: number | undefined;
  /** When the first lease of a running run expires. */
  leaseMs: number | undefined;
}

/** Finds the scheduler's work from the first entry of three indexes, however many cronjobs there are. */
export async function findAgenda(db: Database): Promise<Agenda> {
  const { rows } = await db.execute<Record<'due' | 'waiting' | 'lease', string | null>>(sql`
    select (select ${msUntil(sql`min(${cronjobs.nextRunTime})`)} from ${cronjobs} where ${cronjobs.enabled}) as due,
           (select ${msUntil(sql`min(${cronjobRuns.nextAttemptTime})`)} from ${cronjobRuns}
            where ${cronjobRuns.status} in ('queued', 'retrying')) as waiting,
           (select ${msUntil(sql`min(${cronjobRuns.leaseExpireTime})`)} from ${cronjobRuns}
            where ${cronjobRuns.status} = 'running') as lease`);
  const ms = (text: string | null | undefined) => (text == null ? undefined : Number(text));
  return { dueMs: ms(rows[0]?.due), waitingMs: ms(rows[0]?.waiting), leaseMs: ms(rows[0]?.lease) };
}

export interface DueCronjob {
  cronjob: CronjobRow;
  /** Time at which the cronjob was locked. */
  now: Date;
  /** Number of runs of the cronjob that have not ended. */
  activeRuns: number;
}

/** Locks due cronjobs, the longest overdue first. Cronjobs that another scheduler has locked are skipped. */
export function claimDueCronjobs(tx: Database, limit: number): Promise<DueCronjob[]> {
  // A subquery of its own, because the query builder omits table names in the fields of a select from one table.
  const active = tx
    .select({ count: sql`count(*)::int` })
    .from(cronjobRuns)
    .where(and(isItsRun, isNull(cronjobRuns.endTime)));
  return tx
    .select({
      cronjob: getTableColumns(cronjobs),
      now: sql`${now}`.mapWith(cronjobs.createTime),
      activeRuns: sql<number>`${active}`,
    })
    .from(cronjobs)
    .where(and(cronjobs.enabled, lte(cronjobs.nextRunTime, sql`statement_timestamp()`)))
    .orderBy(asc(cronjobs.nextRunTime))
    .limit(limit)
    .for('update', { skipLocked: true, of: cronjobs });
}

export interface Advance {
  key: CronjobKey;
  /** Next due time. `undefined`: the cronjob never fires again and is disabled; `reason` says why. */
  next: Date | undefined;
  reason: string | undefined;
  /** Number of runs that are queued now. */
  runs: number;
}

export async function advanceCronjobs(tx: Database, advances: Advance[]): Promise<void> {
  const column = (of: (advance: Advance) => unknown) => sql.param(advances.map(of));
  await tx.execute(sql`
    update ${cronjobs} set
      next_run_time = moved.next, enabled = moved.next is not null, disabled_reason = moved.reason,
      run_count = ${cronjobs.runCount} + moved.runs
    from unnest(${column(({ key }) => key.appName)}::text[], ${column(({ key }) => key.userId)}::text[],
                ${column(({ key }) => key.id)}::text[],
                ${column(({ next }) => next?.toISOString() ?? null)}::timestamptz[],
                ${column(({ reason }) => reason ?? null)}::text[], ${column(({ runs }) => runs)}::int[])
         as moved(app_name, user_id, id, next, reason, runs)
    where ${cronjobs.appName} = moved.app_name and ${cronjobs.userId} = moved.user_id and ${cronjobs.id} = moved.id`);
}

export interface ClaimedRun {
  run: RunRow;
  cronjob: CronjobRow;
  /** True if another process had claimed the run before and may have started its invocation. */
  isTakenOver: boolean;
}

export interface ClaimLimits {
  slots: number;
  /** Maximum number of concurrent runs per user, over all processes. */
  perUser: number;
  /** Ids of runs that this process already holds, which are not claimed again even if their lease has expired. */
  active: string[];
  /** True: also claim runs whose process died. */
  takesOver: boolean;
  leaseMs: number;
}

/**
 * Claims, in a transaction, runs that are due and runs whose process died. An advisory lock serializes the schedulers,
 * because the limits per cronjob and per user must include the uncommitted claims of other schedulers. The lock is a
 * statement of its own, because a statement sees only what was committed before it started.
 */
export async function claimRuns(tx: Database, limits: ClaimLimits): Promise<ClaimedRun[]> {
  await tx.execute(sql`select pg_advisory_xact_lock(hashtextextended('cronjob runs', 0))`);
  const dead = limits.takesOver ? await takeOverRuns(tx, limits) : [];
  const begun = await beginRuns(tx, { ...limits, slots: limits.slots - dead.length });
  const ids = [...dead, ...begun];
  if (ids.length === 0) return [];
  const claimed = await tx
    .select({ run: getTableColumns(cronjobRuns), cronjob: getTableColumns(cronjobs) })
    .from(cronjobRuns)
    .innerJoin(cronjobs, isItsRun)
    .where(and(eq(cronjobRuns.status, 'running'), inArray(cronjobRuns.id, ids)))
    .orderBy(asc(cronjobRuns.dueTime));
  return claimed.map((each) => ({ ...each, isTakenOver: dead.includes(each.run.id) }));
}

async function takeOverRuns(tx: Database, { slots, active, leaseMs }: ClaimLimits): Promise<string[]> {
  const { rows } = await tx.execute<{ id: string }>(sql`
    update ${cronjobRuns} set
      lease_token = gen_random_uuid(), lease_expire_time = ${expiry(leaseMs)}, losses = ${cronjobRuns.losses} + 1
    from (select app_name, user_id, cronjob_id, id from ${cronjobRuns}
          where status = 'running' and lease_expire_time < ${now} and id <> all(${sql.param(active)}::text[])
          order by lease_expire_time limit ${slots} for update skip locked) dead
    where ${cronjobRuns.appName} = dead.app_name and ${cronjobRuns.userId} = dead.user_id
      and ${cronjobRuns.cronjobId} = dead.cronjob_id and ${cronjobRuns.id} = dead.id
    returning ${cronjobRuns.id} as id`);
  return rows.map(({ id }) => id);
}

/**
 * Claims due runs.
 * 1. `ready`: of each cronjob that has no running run, the first due run.
 * 2. `allowed`: numbers these runs per user, after the user's running runs; `next`: the oldest runs with a number
 *    within the limit per user.
 * 3. `chosen`: locked runs, with a share lock on the cronjob against changes and deletion; rows that others have locked
 *    are skipped. The statement is made to be fast, because all other schedulers wait for its lock.
 */
async function beginRuns(tx: Database, { slots, perUser, leaseMs }: ClaimLimits): Promise<string[]> {
  if (slots <= 0) return [];
  const r = cronjobRuns;
  const cronjobKey = sql`${r.appName}, ${r.userId}, ${r.cronjobId}`;
  const { rows } = await tx.execute<{ id: string }>(sql`
    with running as materialized (select ${cronjobKey} from ${r} where ${r.status} = 'running'),
    busy as (select user_id, count(*) as runs from running group by user_id),
    ready as (
      select distinct on (${cronjobKey}) ${cronjobKey}, ${r.id}, ${r.dueTime} from ${r}
      where ${r.status} in ('queued', 'retrying') and ${r.nextAttemptTime} <= statement_timestamp()
        and (${cronjobKey}) not in (select app_name, user_id, cronjob_id from running)
      order by ${cronjobKey}, ${r.dueTime}),
    allowed as (
      select ready.*, row_number() over (partition by user_id order by due_time, id) + coalesce(busy.runs, 0) as place
      from ready left join busy using (user_id)),
    next as materialized (
      select * from allowed where place <= ${perUser} order by due_time, id limit ${2 * slots + SPARE_CANDIDATES}),
    chosen as (
      select ${cronjobKey}, ${r.id}, ${cronjobs.sessionId} as fixed_session_id
      from next
      join ${r} on ${r.appName} = next.app_name and ${r.userId} = next.user_id
        and ${r.cronjobId} = next.cronjob_id and ${r.id} = next.id
      join ${cronjobs} on ${cronjobs.appName} = ${r.appName} and ${cronjobs.userId} = ${r.userId}
        and ${cronjobs.id} = ${r.cronjobId}
      where ${r.status} in ('queued', 'retrying')
      order by next.due_time, next.id limit ${slots}
      for update of ${r} skip locked for share of ${cronjobs} skip locked)
    update ${r} set
      status = 'running', attempt = ${r.attempt} + 1, next_attempt_time = null, start_time = ${now},
      lease_token = gen_random_uuid(), lease_expire_time = ${expiry(leaseMs)},
      session_id = coalesce(chosen.fixed_session_id,
        ${r.id} || case when ${r.attempt} > 0 then '-' || ${r.attempt} + 1 else '' end),
      invocation_id = 'e-' || gen_random_uuid(), error_code = null, error_message = null
    from chosen
    where ${r.appName} = chosen.app_name and ${r.userId} = chosen.user_id and ${r.cronjobId} = chosen.cronjob_id
      and ${r.id} = chosen.id
    returning ${r.id} as id`);
  return rows.map(({ id }) => id);
}

/** @returns the runs that this process still holds; other processes have taken over the others */
export function renewRuns(
  db: Database,
  runs: RunRow[],
  leaseMs: number,
): Promise<{ id: string; isCancelled: boolean }[]> {
  return db
    .update(cronjobRuns)
    .set({ leaseExpireTime: expiry(leaseMs) })
    .where(
      and(
        eq(cronjobRuns.status, 'running'),
        sql`(${cronjobRuns.id}, ${cronjobRuns.leaseToken}) in (
          select * from unnest(${sql.param(runs.map(({ id }) => id))}::text[],
                               ${sql.param(runs.map(({ leaseToken }) => leaseToken))}::uuid[]))`,
      ),
    )
    .returning({ id: cronjobRuns.id, isCancelled: sql<boolean>`${cronjobRuns.cancelRequestTime} is not null` });
}
