import { and, eq, notExists, sql } from 'drizzle-orm';
import { alias } from 'drizzle-orm/pg-core';
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

/** A session's queue whose first invocation waits for any process. */
export interface QueueHead extends Pick<Lease, 'key' | 'invocationId'> {
  /** True where the session is free. */
  isFree: boolean;
  /** How many processes have begun it. */
  attempts: number;
  /** How long it has waited, seconds. */
  waited: number;
  /** About the size of its body. */
  bytes: number;
}

/** The condition that a queued invocation may be taken: one whose processes died pauses first, unless it is to end. */
const isDue = sql`(${invocations.startTime} is null or ${invocations.stopRequestedAs} is not null
  or ${invocations.leaseExpireTime} <= clock_timestamp())`;

/**
 * Lists the heads of queues in the background: the first of each user, then the second, the longest waiting first.
 * Without their bodies, which may have megabytes each and are read when their turn has come ({@link findQueued}).
 */
export async function listQueueHeads(db: Database, limit: number): Promise<QueueHead[]> {
  const q = alias(invocations, 'q');
  const earlier = db
    .select({ id: q.id })
    .from(q)
    .where(sql`${q.appName} = ${invocations.appName} and ${q.userId} = ${invocations.userId}
      and ${q.sessionId} = ${invocations.sessionId} and ${q.status} = 'queued'
      and (${q.leaseExpireTime} > clock_timestamp() or ${q.request} is not null)
      and (${q.startTime} is null, ${q.createTime}, ${q.id})
        < (${invocations.startTime} is null, ${invocations.createTime}, ${invocations.id})`);
  const { appName, userId, sessionId, id, createTime, endTime } = invocations;
  const session = getSession(invocations);
  const rows = await db
    .select({
      appName,
      userId,
      sessionId,
      id,
      isFree: session.isFree,
      attempts: sql<number>`case when ${invocations.startTime} is null then 0 else ${invocations.attempt} end`,
      // One that was paused is as old as what it waited for.
      waited:
        sql`case when ${endTime} is null then extract(epoch from clock_timestamp() - ${createTime}) else 0 end`.mapWith(
          Number,
        ),
      bytes: estimatedBytes(invocations.request).mapWith(Number),
    })
    .from(invocations)
    .innerJoin(session.table, session.on)
    .where(and(isBackground, isDue, notExists(earlier)))
    .orderBy(sql`row_number() over (partition by ${userId} order by ${createTime})`, createTime)
    .limit(limit);
  return rows.map(({ id: invocationId, isFree, attempts, waited, bytes, ...key }) => ({
    key,
    invocationId,
    isFree,
    attempts,
    waited,
    bytes,
  }));
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
  return row && { ...row, request: parseExactJson(unescapeJson(row.text)) as unknown };
}
