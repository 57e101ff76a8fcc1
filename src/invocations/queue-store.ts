import { type SQL, and, eq, isNotNull, isNull, notExists, or, sql } from 'drizzle-orm';
import { alias, type AnyPgColumn, QueryBuilder, unionAll } from 'drizzle-orm/pg-core';
import type { Database } from '../platform/db/database.ts';
import { invocations } from '../platform/db/schema/schema.ts';
import type { InvocationCounts } from '../conversation/sessions/append-store.ts';
import { getSession } from '../conversation/sessions/session-row.ts';
import { estimatedBytes } from '../conversation/sessions/session-text.ts';
import type { InvocationStatus } from './invocation.ts';
import { isBackground, isInvocation } from './invocation-store.ts';
import type { Lease } from './lock-store.ts';

export interface LeasedRow {
  status: InvocationStatus;
  /** The status that a stop request asked for; `null` if there is no stop request. */
  stopAs: 'interrupted' | 'cancelled' | null;
  /** True if the row still has the token of the given lease. */
  isMine: boolean;
}

/** The row of an invocation that this process queued or ran; `undefined` without the row or its session. */
export async function findLeasedRow(db: Database, lease: Lease): Promise<LeasedRow | undefined> {
  const [row] = await db
    .select({
      status: invocations.status,
      stopAs: invocations.stopRequestedAs,
      isMine: sql<boolean>`${invocations.leaseToken} = ${lease.token}`,
    })
    .from(invocations)
    .where(isInvocation(lease));
  return row;
}

/** SQL condition: the row is queued and no process has begun its invocation. */
const isWaiting = sql`(${invocations.status} = 'queued' and ${invocations.startTime} is null)`;

/**
 * Deletes a request that waits in this process, which also frees its idempotency key.
 * @returns false if the row is gone, has begun or has ended
 */
export async function dequeueInvocation(db: Database, lease: Lease): Promise<boolean> {
  const isMine = eq(invocations.leaseToken, lease.token);
  const { rowCount } = await db.delete(invocations).where(and(isInvocation(lease), isWaiting, isMine));
  return rowCount === 1;
}

/** Renews the leases of requests that wait in this process. @returns the tokens of those that still wait */
export async function renewPlaces(db: Database, leases: Lease[], durationMs: number): Promise<Set<string>> {
  const { appName, userId, sessionId, id, leaseToken } = invocations;
  const column = (valueOf: (lease: Lease) => string) => sql`${sql.param(leases.map(valueOf))}::text[]`;
  const renewed = await db
    .update(invocations)
    .set({ leaseExpireTime: sql`statement_timestamp() + ${durationMs} * interval '1 millisecond'` })
    .where(
      and(
        sql`(${appName}, ${userId}, ${sessionId}, ${id}, ${leaseToken}::text) in (select * from unnest(
          ${column(({ key }) => key.appName)}, ${column(({ key }) => key.userId)},
          ${column(({ key }) => key.sessionId)}, ${column(({ invocationId }) => invocationId)},
          ${column(({ token }) => token)}))`,
        isWaiting,
      ),
    )
    .returning({ leaseToken });
  return new Set(renewed.map((row) => row.leaseToken));
}

/** A background invocation that may run now: the first in the queue of an idle session. */
export interface QueueHead extends Pick<Lease, 'key' | 'invocationId'> {
  /** How many processes have begun the invocation. */
  attempts: number;
  /** Time since the invocation was requested, in seconds. */
  ageSeconds: number;
  /** Time in the queue, in seconds; 0 for an invocation that was paused, because it has already left the queue once. */
  waitSeconds: number;
  /** Approximate size of the stored request, in bytes. */
  bytes: number;
  /** True for a run of a cronjob. */
  isRun: boolean;
  /** The row of an invocation that has not begun and whose request is small; {@link findQueued} reads others. */
  queued: Queued | undefined;
}

export interface HeadChoice {
  /** The applications that this process serves. */
  appNames: readonly string[];
  /** Invocations to leave out: those that run here, and those that back off after they could not begin here. */
  without: readonly string[];
  limit: number;
  /** Maximum number of cronjob runs to begin. */
  runs: number;
  /** Maximum number of a user's cronjob runs that go on at once, in all processes. */
  runsPerUser: number;
  /** Maximum milliseconds until a listed run may begin. */
  aheadMs: number;
}

const COUNTS = {
  llmCalls: invocations.llmCalls,
  toolCalls: invocations.toolCalls,
  promptTokens: invocations.promptTokens,
  outputTokens: invocations.outputTokens,
};

const q = alias(invocations, 'q');
const session = getSession(invocations);

/** SQL condition: no other invocation precedes this one in the queue of its session. */
const isFirst = notExists(
  new QueryBuilder()
    .select({ id: q.id })
    .from(q)
    .where(sql`${q.appName} = ${invocations.appName} and ${q.userId} = ${invocations.userId}
      and ${q.sessionId} = ${invocations.sessionId} and ${q.status} = 'queued' and ${q.notBefore} is null
      and (${q.leaseExpireTime} > clock_timestamp() or ${q.request} is not null)
      and (${q.startTime} is null, ${q.createTime}, ${q.id})
        < (${invocations.startTime} is null, ${invocations.createTime}, ${invocations.id})`),
);

/** SQL expression: number of cronjob runs of the invocation's user that go on. */
const begunRuns = sql`begun_runs(${invocations.userId})`;
/** SQL condition: a process began the invocation before it was put back in the queue. */
const hasBegun = isNotNull(invocations.startTime);
/** SQL condition: the back-off after the process's death is over, or a stop of the invocation is requested. */
const isDue = sql`(${invocations.stopRequestedAs} is not null or ${invocations.leaseExpireTime} <= clock_timestamp())`;

/** Rows to read beyond four per requested invocation, because some rows belong to the same user. */
const SPARE_ROWS = 100;
const MAX_ROUNDS = 3;

/** Invocations that this process may take up, and the milliseconds until a cronjob's run may begin that is not due yet. */
export interface QueueHeads {
  /** Invocations that a process had begun: first in the queue, but those in their last attempt come last. */
  begun: QueueHead[];
  /** The others, fair among users: each user's first, then each user's second, the longest waiting first. */
  waiting: QueueHead[];
  nextMs: number;
}

/**
 * Lists invocations that may run now. Reads the oldest rows and, while these are of too few users, rows of others. The
 * cost depends little on the length of the queue, and not on how many invocations one user has.
 */
export async function listHeads(db: Database, choice: HeadChoice, maxAttempts: number): Promise<QueueHeads> {
  const size = 4 * choice.limit + SPARE_ROWS;
  const { attempt, leaseExpireTime, notBefore, createTime } = invocations;
  const isLast = sql`(${attempt} > 0 and ${attempt} + 1 >= ${maxAttempts})`;
  // The next open run of each cronjob, read once: runs of a cronjob go one after another. One that goes on comes before
  // those that wait, and has no `not_before`; one that is due before those that wait for their next try.
  const mayRun =
    choice.runs > 0
      ? sql`(${invocations.userId}, ${invocations.appName}, ${invocations.sessionId}, ${invocations.id}) in (
          select n.user_id, n.app_name, n.session_id, n.id from (
            select distinct on (r.user_id, r.app_name, r.cronjob_id) r.user_id, r.app_name, r.session_id, r.id, r.not_before
            from ${invocations} r
            where r.cronjob_id is not null and r.first_end_time is null and r.status in ('queued', 'running')
            order by r.user_id, r.app_name, r.cronjob_id, r.not_before is not null,
                     greatest(r.not_before, statement_timestamp()), r.create_time, r.due_time) n
          where n.not_before < clock_timestamp() + ${choice.aheadMs} * interval '1 millisecond'
            and begun_runs(n.user_id) < ${choice.runsPerUser})`
      : sql`false`;
  const mayBegin = sql`${isWaiting} and (${notBefore} is null or ${mayRun})`;
  const selectWaiting = (withoutUsers: string[]) =>
    selectHeads(db, choice, and(mayBegin, isNotIn(invocations.userId, withoutUsers)), sql`${createTime}`, size);
  const hadBegun = and(hasBegun, isDue);
  const first = await unionAll(
    selectHeads(db, choice, hadBegun, sql`${isLast}, ${leaseExpireTime}`, choice.limit),
    selectWaiting([]),
  );
  const begun = first.filter(({ hasBegun: is }) => is).map(toHead);
  let rows = first.filter(({ hasBegun: is }) => !is);
  const byUser = new Map<string, QueueHead[]>();
  let nextMs = Infinity;
  for (let round = 1; ; round += 1) {
    for (const row of rows) {
      const own = byUser.get(row.userId) ?? [];
      if (row.waitMs > 0) nextMs = Math.min(nextMs, row.waitMs);
      else if (!row.isRun || own.filter(({ isRun }) => isRun).length < row.places) own.push(toHead(row));
      byUser.set(row.userId, own);
    }
    if (rows.length < size || round === MAX_ROUNDS || byUser.size >= choice.limit) break;
    rows = await selectWaiting([...byUser.keys()]);
  }
  const inTurn = [...byUser.values()].flatMap((heads) => heads.map((head, place) => ({ head, place })));
  let runs = 0;
  const waiting = inTurn
    .toSorted((one, other) => one.place - other.place || other.head.ageSeconds - one.head.ageSeconds)
    .map(({ head }) => head)
    .filter(({ isRun }) => !isRun || ++runs <= choice.runs)
    .slice(0, choice.limit);
  return { begun, waiting, nextMs };
}

const isNotIn = (column: AnyPgColumn, texts: readonly string[]) => sql`${column} <> all(${sql.param(texts)}::text[])`;

/** Maximum bytes of an uncompressed request that is read with its row, because it is in the row itself. */
const INLINE_BYTES = 2_000;

/**
 * Selects invocations that can begin. Reads only small requests: others may be megabytes, and {@link findQueued} reads one
 * when its turn has come. So it does for those that have begun, because they may have been asked to stop since.
 */
function selectHeads(
  db: Database,
  { appNames, without, runsPerUser }: HeadChoice,
  condition: SQL | undefined,
  order: SQL,
  limit: number,
) {
  const { appName, userId, sessionId, id, request, createTime, endTime, notBefore } = invocations;
  return db
    .select({
      appName,
      userId,
      sessionId,
      id,
      hasBegun: sql<boolean>`${hasBegun}`.as('has_begun'),
      attempts: sql<number>`case when ${hasBegun} then ${invocations.attempt} else 0 end`.as('attempts'),
      ageSeconds: sql`extract(epoch from clock_timestamp() - greatest(${createTime}, ${notBefore}))`
        .mapWith(Number)
        .as('age'),
      wasPaused: sql<boolean>`${endTime} is not null`.as('was_paused'),
      bytes: estimatedBytes(request).mapWith(Number).as('bytes'),
      request: sql<unknown>`case when not ${hasBegun} and pg_column_size(${request}) <= ${INLINE_BYTES}
        and pg_column_compression(${request}) is null then ${request} end`.as('request'),
      token: invocations.leaseToken,
      stopAs: invocations.stopRequestedAs,
      ...COUNTS,
      isRun: sql<boolean>`${invocations.runId} is not null and ${invocations.firstEndTime} is null`.as('is_run'),
      /** Milliseconds until the invocation may begin, if that is later than now. */
      waitMs: sql`coalesce(1000 * extract(epoch from ${notBefore} - clock_timestamp()), 0)`
        .mapWith(Number)
        .as('wait_ms'),
      /** How many more cronjob runs of the user may begin. One that waits in its session has its place already. */
      places: sql`case when ${notBefore} is null then 2147483647 else ${runsPerUser} - ${begunRuns} end`
        .mapWith(Number)
        .as('places'),
    })
    .from(invocations)
    .innerJoin(session.table, session.on)
    .where(
      and(
        isBackground,
        condition,
        sql`${appName} = any(${sql.param(appNames)}::text[])`,
        isNotIn(id, without),
        // A cronjob's run whose session is busy is listed too, because its claim gives it a place in the session's queue.
        or(session.isFree, isNotNull(notBefore)),
        isFirst,
      ),
    )
    .orderBy(order)
    .limit(limit);
}

type HeadRow = Awaited<ReturnType<typeof selectHeads>>[number];

function toHead({ appName, userId, sessionId, id, wasPaused, ...row }: HeadRow): QueueHead {
  const { attempts, ageSeconds, bytes, isRun, request, token, hasBegun: is, stopAs } = row;
  const { llmCalls, toolCalls, promptTokens, outputTokens } = row;
  const counts = { llmCalls, toolCalls, promptTokens, outputTokens };
  return {
    key: { appName, userId, sessionId },
    invocationId: id,
    attempts,
    ageSeconds,
    waitSeconds: wasPaused ? 0 : ageSeconds,
    bytes,
    isRun,
    queued: request === null ? undefined : { request, token, hasBegun: is, stopAs, ...counts },
  };
}

/** A background invocation of an application that no process serves. */
export type Unserved = Pick<Lease, 'key' | 'invocationId'>;

/**
 * Background invocations that could have run for `days` while their session did not change and no invocation of their
 * application ran. @param appNames - applications that this process serves
 */
export async function listUnserved(
  db: Database,
  appNames: readonly string[],
  days: number,
  limit: number,
): Promise<Unserved[]> {
  const { appName, userId, sessionId, id, status, leaseExpireTime } = invocations;
  const rows = await db
    .select({ appName, userId, sessionId, invocationId: id })
    .from(invocations)
    .innerJoin(session.table, session.on)
    .where(
      and(
        isBackground,
        sql`${appName} <> all(${sql.param(appNames)}::text[])`,
        // Read in the same statement, because an invocation that begins between two statements would be missed.
        sql`${appName} <> all(array(select ${appName} from ${invocations} where ${status} = 'running'))`,
        session.isFree,
        // The later of two times: when the invocation was queued, woken or put back, and when its session became free.
        sql`greatest(${leaseExpireTime}, ${session.changeTime})
          < statement_timestamp() - ${days} * interval '1 day'`,
      ),
    )
    .orderBy(leaseExpireTime)
    .limit(limit);
  return rows.map(({ invocationId, ...key }) => ({ key, invocationId }));
}

/**
 * Pauses an invocation that a budget refuses. Its end time stays null if no process has begun it: so the claim knows
 * that it must still charge it. @returns false if it is no longer queued under the lease's token, or was
 * asked to stop
 */
export async function pauseQueued(tx: Database, lease: Lease): Promise<boolean> {
  const isRead = eq(invocations.leaseToken, lease.readToken ?? lease.token);
  const { rowCount } = await tx
    .update(invocations)
    .set({ status: 'paused', waitsForTasks: true })
    .where(and(isInvocation(lease), isWaiting, isRead, isNull(invocations.stopRequestedAs)));
  return rowCount === 1;
}

/** A queued background invocation, which any process may run. */
export interface Queued extends InvocationCounts {
  request: unknown;
  /** The lease token of the invocation's row. It changes each time the invocation is put back in the queue or woken. */
  token: string;
  /** True if a process has begun the invocation before. */
  hasBegun: boolean;
  stopAs: 'interrupted' | 'cancelled' | null;
}

/** Finds a queued background invocation; `undefined` if it is no longer queued. */
export async function findQueued(db: Database, run: Pick<Lease, 'key' | 'invocationId'>): Promise<Queued | undefined> {
  const { request, leaseToken: token, startTime, stopRequestedAs: stopAs } = invocations;
  const [row] = await db
    .select({
      request,
      token,
      hasBegun: sql<boolean>`${startTime} is not null`,
      stopAs,
      ...COUNTS,
    })
    .from(invocations)
    .where(and(isInvocation(run), isBackground));
  return row;
}
