import { type SQL, and, eq, isNotNull, isNull, notExists, sql } from 'drizzle-orm';
import { alias, QueryBuilder } from 'drizzle-orm/pg-core';
import type { Database } from '../platform/db/database.ts';
import { unescapeJson } from '../platform/db/json-escape.ts';
import { invocations } from '../platform/db/schema/schema.ts';
import { getSession } from '../conversation/sessions/session-lease.ts';
import { estimatedBytes } from '../conversation/sessions/session-text.ts';
import type { InvocationStatus } from './invocation.ts';
import { isBackground, isInvocation } from './invocation-store.ts';
import type { Lease } from './lock-store.ts';
import { parseExactJson } from '../core/exact-json.ts';

/** The state of an invocation that waits. */
export interface Waiter {
  status: InvocationStatus;
  /** The status that a stop request asked for. */
  stopAs: 'interrupted' | 'cancelled' | null;
  /** True while its row carries the token of the lease. */
  isMine: boolean;
}

/** Finds what has become of an invocation that was to wait; `undefined` where it has no row, or its session is gone. */
export async function findWaiter(db: Database, lease: Lease): Promise<Waiter | undefined> {
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

/** Takes a waiting invocation out of the queue; its idempotency key is free again. */
export async function dequeueInvocation(db: Database, lease: Lease): Promise<void> {
  await db.delete(invocations).where(and(isInvocation(lease), eq(invocations.status, 'queued')));
}

/** An invocation whose turn has come: the first that waits in the background for a session, which is free. */
export interface QueueHead extends Pick<Lease, 'key' | 'invocationId'> {
  /** How many processes have begun it. */
  attempts: number;
  /** How old it is, seconds. */
  age: number;
  /** How long it has waited, seconds: one that was paused is as old as what it waited for. */
  waited: number;
  /** About the size of its body. */
  bytes: number;
}

/** What a process may take from the queue. */
export interface HeadChoice {
  /** The applications that it serves. */
  appNames: readonly string[];
  /** Ids of invocations that it leaves out: those that it holds, or that could not begin a moment ago. */
  without: readonly string[];
  limit: number;
}

const q = alias(invocations, 'q');
const session = getSession(invocations);

/** The condition that nothing waits in the session before an invocation. */
const isFirst = notExists(
  new QueryBuilder()
    .select({ id: q.id })
    .from(q)
    .where(sql`${q.appName} = ${invocations.appName} and ${q.userId} = ${invocations.userId}
      and ${q.sessionId} = ${invocations.sessionId} and ${q.status} = 'queued'
      and (${q.leaseExpireTime} > clock_timestamp() or ${q.request} is not null)
      and (${q.startTime} is null, ${q.createTime}, ${q.id})
        < (${invocations.startTime} is null, ${invocations.createTime}, ${invocations.id})`),
);

/** True where an invocation has been begun and left: its processes died, or one that stopped has put it back. */
const wasLeft = isNotNull(invocations.startTime);
/** The condition that it may be taken: one whose processes died pauses first, unless it is to end. */
const isDue = sql`(${invocations.stopRequestedAs} is not null or ${invocations.leaseExpireTime} <= clock_timestamp())`;

/** Rows that one statement reads, beside four for each that is wanted. */
const SPARE_ROWS = 100;
/** Statements of one look at those that wait. */
const MAX_ROUNDS = 3;

/**
 * Lists those that a process has begun and left, the one after the next death of which would be its last behind all
 * others. They go on before all that wait, and are few.
 */
export async function listLeftHeads(db: Database, choice: HeadChoice, maxAttempts: number): Promise<QueueHead[]> {
  const { attempt, leaseExpireTime } = invocations;
  const isLast = sql`(${attempt} > 0 and ${attempt} + 1 >= ${maxAttempts})`;
  return listHeads(db, choice, [], sql`${wasLeft} and ${isDue}`, sql`${isLast}, ${leaseExpireTime}`, choice.limit);
}

/**
 * Lists those that wait to begin, or to go on after a wait: the first of each user, then the second, the longest waiting
 * first. A look reads the longest waiting ones and, while these are of fewer users than are wanted, the next ones of
 * others: what it costs depends little on how many wait, and on one user's queue not at all.
 */
export async function listWaitingHeads(db: Database, choice: HeadChoice): Promise<QueueHead[]> {
  const size = 4 * choice.limit + SPARE_ROWS;
  const isWaiting = isNull(invocations.startTime);
  const byUser = new Map<string, QueueHead[]>();
  for (let round = 0; round < MAX_ROUNDS && byUser.size < choice.limit; round += 1) {
    const found = await listHeads(db, choice, [...byUser.keys()], isWaiting, sql`${invocations.createTime}`, size);
    for (const head of found) byUser.set(head.key.userId, [...(byUser.get(head.key.userId) ?? []), head]);
    if (found.length < size) break;
  }
  const inTurn = [...byUser.values()].flatMap((heads) => heads.map((head, place) => ({ head, place })));
  return inTurn
    .toSorted((one, other) => one.place - other.place || other.head.age - one.head.age)
    .slice(0, choice.limit)
    .map(({ head }) => head);
}

/**
 * Lists invocations that can begin, without those of some users. What cannot is not among them, however much of it
 * waits. Without their bodies, which may have megabytes each and are read when their turn has come ({@link findQueued}).
 */
async function listHeads(
  db: Database,
  { appNames, without }: HeadChoice,
  withoutUsers: string[],
  condition: SQL,
  order: SQL,
  limit: number,
): Promise<QueueHead[]> {
  const { appName, userId, sessionId, id, createTime, endTime } = invocations;
  const rows = await db
    .select({
      appName,
      userId,
      sessionId,
      id,
      attempts: sql<number>`case when ${invocations.startTime} is null then 0 else ${invocations.attempt} end`,
      age: sql`extract(epoch from clock_timestamp() - ${createTime})`.mapWith(Number),
      wasPaused: sql<boolean>`${endTime} is not null`,
      bytes: estimatedBytes(invocations.request).mapWith(Number),
    })
    .from(invocations)
    .innerJoin(session.table, session.on)
    .where(
      and(
        isBackground,
        condition,
        sql`${appName} = any(${sql.param(appNames)}::text[])`,
        sql`${id} <> all(${sql.param(without)}::text[])`,
        sql`${userId} <> all(${sql.param(withoutUsers)}::text[])`,
        session.isFree,
        isFirst,
      ),
    )
    .orderBy(order)
    .limit(limit);
  return rows.map(({ id: invocationId, attempts, age, wasPaused, bytes, ...key }) => ({
    key,
    invocationId,
    attempts,
    age,
    waited: wasPaused ? 0 : age,
    bytes,
  }));
}

/** An invocation of an application that nobody serves. */
export type Unserved = Pick<Lease, 'key' | 'invocationId'>;

/**
 * Lists invocations that have waited for a process for so long that none serves their application: their turn has come,
 * and nothing has changed in their session, for `days`; and none of the application runs. @param appNames - those that
 * this process serves
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
        // One statement: an invocation that begins between two would be missed.
        sql`${appName} <> all(array(select ${appName} from ${invocations} where ${status} = 'running'))`,
        session.isFree,
        // When it began to wait, was woken or was left; and when its session was free.
        sql`greatest(${leaseExpireTime}, ${session.changeTime})
          < statement_timestamp() - ${days} * interval '1 day'`,
      ),
    )
    .orderBy(leaseExpireTime)
    .limit(limit);
  return rows.map(({ invocationId, ...key }) => ({ key, invocationId }));
}

/**
 * Pauses an invocation whose turn a budget refuses. One that has not begun has no time of an end, by which a claim
 * knows that it is to be counted. @returns false where it waits no more with the token of the lease
 */
export async function pauseQueued(tx: Database, lease: Lease): Promise<boolean> {
  const { status, leaseToken, startTime } = invocations;
  const { rowCount } = await tx
    .update(invocations)
    .set({ status: 'paused' })
    .where(
      and(isInvocation(lease), eq(status, 'queued'), eq(leaseToken, lease.readToken ?? lease.token), isNull(startTime)),
    );
  return rowCount === 1;
}

/** An invocation that waits for any process to begin it, or to go on with it. */
export interface Queued {
  /** As {@link readStoredRequest} reads it. */
  request: unknown;
  /** The token with which it waits: a new one each time that it is left or woken. */
  token: string;
  /** True where a process has begun it. */
  hasBegun: boolean;
  stopAs: 'interrupted' | 'cancelled' | null;
  llmCalls: number;
  toolCalls: number;
}

/** Finds an invocation that waits for any process; `undefined` where it waits no more. */
export async function findQueued(db: Database, run: Pick<Lease, 'key' | 'invocationId'>): Promise<Queued | undefined> {
  const { request, leaseToken: token, startTime, stopRequestedAs: stopAs, llmCalls, toolCalls } = invocations;
  const [row] = await db
    .select({
      text: sql<string>`${request}::text`,
      token,
      hasBegun: sql<boolean>`${startTime} is not null`,
      stopAs,
      llmCalls,
      toolCalls,
    })
    .from(invocations)
    .where(and(isInvocation(run), isBackground));
  return row && { ...row, request: parseExactJson(unescapeJson(row.text)) };
}
