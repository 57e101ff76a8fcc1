import { and, asc, eq, getTableColumns, inArray, isNull, lte, sql } from 'drizzle-orm';
import type { Database } from '../../platform/db/database.ts';
import { cronjobRuns, cronjobs } from '../../platform/db/schema/schema.ts';
import { type CronjobKey, type CronjobRow, isItsRun } from './cronjob-store.ts';
import type { RunRow } from './run-store.ts';

/** Candidates beside twice as many as are wanted: they replace those that others have locked. */
const SPARE_CANDIDATES = 10;
const now = sql`clock_timestamp()`;
const msUntil = (time: unknown) => sql`ceil(extract(epoch from ${time} - ${now}) * 1000)`;
const expiry = (durationMs: number) => sql`${now} + ${durationMs} * interval '1 millisecond'`;

/** Times of a scheduler's next work, in milliseconds from now by the database's clock; negative where it is late. */
export interface Agenda {
  /** Until the next cronjob is due. */
  dueMs: number | undefined;
  /** Until the next waiting run may begin; one that must wait for another run, or a place, counts as late. */
  waitingMs: number | undefined;
  /** Until the lease of the first running run is over. */
  leaseMs: number | undefined;
}

/** Reads the times of the next work: three ends of indexes, whatever the number of cronjobs. */
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

/** A cronjob that is due, locked until the transaction ends. */
export interface DueCronjob {
  cronjob: CronjobRow;
  /** When it was locked. */
  now: Date;
  /** Its runs that have not ended. */
  activeRuns: number;
}

/** Locks cronjobs that are due, longest first, at most `limit`; those that another scheduler holds are left to it. */
export function claimDueCronjobs(tx: Database, limit: number): Promise<DueCronjob[]> {
  // A query of its own: in the fields of a select on one table the builder leaves the names of tables out.
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

/** The new values of a due cronjob. */
export interface Advance {
  key: CronjobKey;
  /** `undefined` where it never fires again: it is disabled then, for this reason. */
  next: Date | undefined;
  reason: string | undefined;
  /** Number of runs that it got. */
  runs: number;
}

/** Moves locked cronjobs to their next times. */
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

/** A run to begin or to take over, with its cronjob as it is at this moment. */
export interface ClaimedRun {
  run: RunRow;
  cronjob: CronjobRow;
  /** Another process had it, and may have begun its invocation. */
  isTakenOver: boolean;
}

/** Limits of a claim. */
export interface ClaimLimits {
  /** Maximum of runs to claim. */
  slots: number;
  /** Maximum of runs of one user at once, over all processes. */
  perUser: number;
  /** Ids of runs that this process holds: it never takes over from itself. */
  active: string[];
  /** True: claims dead runs too. */
  takesOver: boolean;
  leaseMs: number;
}

/**
 * Claims runs in a transaction: dead ones, and waiting ones whose time has come. Schedulers claim one after the other
 * (advisory lock), because "one run of a cronjob at once" and "so many of a user" cannot be seen in rows that others
 * are just changing; the lock is a statement of its own, since a statement sees what was committed before it began.
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
 * Claims waiting runs.
 * 1. `ready`: waiting runs whose time has come, of cronjobs that run nothing, the first one of each.
 * 2. `allowed`: the places of those among the runs of their users; `next`: the first that have one.
 * 3. `chosen`: locked, with a share of the cronjob, so that it is not deleted or changed meanwhile; what others hold
 * is skipped.
 * The running ones are read once and hashed, and only a few rows are joined, since all schedulers wait meanwhile. The
 * invocation has its id from here on.
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

/** Renews the leases of runs. @returns those that are still held; the others belong to another process. */
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
