import { and, eq, notExists, sql } from 'drizzle-orm';
import { alias } from 'drizzle-orm/pg-core';
import type { Database } from '../platform/db/database.ts';
import { unescapeJson } from '../platform/db/json-escape.ts';
import { invocations } from '../platform/db/schema/schema.ts';
import { getSession } from '../conversation/sessions/session-lease.ts';
import type { InvocationStatus } from './invocation.ts';
import { isBackground, isInvocation } from './invocation-store.ts';
import type { Lease } from './lock-store.ts';

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

/** A session's queue whose first invocation waits in the background. */
export interface QueueHead extends Pick<Lease, 'key' | 'invocationId'> {
  /** True where the session is free. */
  isFree: boolean;
  /** How long it has waited, seconds. */
  waited: number;
}

/**
 * Lists the heads of queues in the background: the first of each user, then the second, the longest waiting first.
 * Without their bodies, which may have megabytes each and are read when their turn has come ({@link findQueuedBody}).
 */
export async function listQueueHeads(db: Database, limit: number): Promise<QueueHead[]> {
  const q = alias(invocations, 'q');
  const earlier = db
    .select({ id: q.id })
    .from(q)
    .where(sql`${q.appName} = ${invocations.appName} and ${q.userId} = ${invocations.userId}
      and ${q.sessionId} = ${invocations.sessionId} and ${q.status} = 'queued'
      and (${q.leaseExpireTime} > clock_timestamp() or ${q.request} is not null)
      and (${q.createTime}, ${q.id}) < (${invocations.createTime}, ${invocations.id})`);
  const { appName, userId, sessionId, id, createTime } = invocations;
  const session = getSession(invocations);
  const rows = await db
    .select({
      appName,
      userId,
      sessionId,
      id,
      isFree: session.isFree,
      waited: sql`extract(epoch from clock_timestamp() - ${createTime})`.mapWith(Number),
    })
    .from(invocations)
    .innerJoin(session.table, session.on)
    .where(and(isBackground, notExists(earlier)))
    .orderBy(sql`row_number() over (partition by ${userId} order by ${createTime})`, createTime)
    .limit(limit);
  return rows.map(({ id: invocationId, isFree: free, waited, ...key }) => ({
    key,
    invocationId,
    isFree: free,
    waited,
  }));
}

/** Finds the body of a start that waits in the background, as it was sent; `undefined` where it waits no more. */
export async function findQueuedBody(db: Database, lease: Lease): Promise<unknown> {
  const [row] = await db
    .select({ text: sql<string>`${invocations.request}::text` })
    .from(invocations)
    .where(and(isInvocation(lease), isBackground));
  return row && (JSON.parse(unescapeJson(row.text)) as unknown);
}
