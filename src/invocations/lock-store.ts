import type { IdempotentRequest } from '../conversation/idempotency/key.ts';
import { CLAIMED, type ClaimedRow, countClaim, overCte, toClaimed, WITHIN_BUDGET } from './claim-budget.ts';
import { type SQL, and, eq, not, sql } from 'drizzle-orm';
import {
  appendEventCtes,
  type EventAppend,
  givenEvents,
  newAppend,
  userOf,
} from '../conversation/sessions/append-events.ts';
import { type Database, onConflict } from '../platform/db/database.ts';
import { escapeJson } from '../platform/db/json-escape.ts';
import { invocations } from '../platform/db/schema/schema.ts';
import { shapedStatement } from '../platform/db/statement.ts';
import { assignments, excluded, insertSelect, names } from '../platform/db/sql.ts';
import { isActive, isBackground, isInvocation, isLive } from './invocation-store.ts';
import { isSession } from '../conversation/sessions/session-key.ts';
import {
  claimedOrNewSession,
  claimedSession,
  lockSession,
  sessionExists,
} from '../conversation/sessions/session-lease.ts';
import { isForgotten, isRepeated } from './repeated.ts';
import { RepeatedInvocationError } from '../core/errors.ts';
import type { NewEvent } from '../core/event.ts';
import type { SessionKey } from '../core/session.ts';

/** A running invocation and its right to write: the token stands in the session row too, where every write needs it. */
export interface Lease {
  key: SessionKey;
  invocationId: string;
  token: string;
  /** How long the lease lasts without a renewal. */
  durationMs: number;
  /** The `Idempotency-Key` of the request and the hash of what was requested. */
  request?: IdempotentRequest | undefined;
  /** Address of the webhook that is sent how it ends: a trigger sees to that, whoever ends it. */
  webhookUrl?: string | undefined;
  /** True for what calls no model: no budget counts or refuses it. */
  isFree?: true;
}

const expiry = (durationMs: number) => sql`clock_timestamp() + ${durationMs} * interval '1 millisecond'`;

/** The rows of other requests that wait for the session. Dead waiters do not count. */
const otherWaiters = ({ key, invocationId }: Lease) => sql`from ${invocations} where ${isSession(key, invocations)}
  and ${invocations.status} = 'queued' and ${invocations.id} <> ${invocationId} and ${isLive}`;

/** True while another request that came before waits for the session: first come, first served. */
const hasEarlierWaiter = (lease: Lease, before: SQL = sql``) => sql`exists (select ${otherWaiters(lease)} ${before})`;

const toRow = ({ key, invocationId, token, durationMs, request, webhookUrl }: Lease) => ({
  appName: key.appName,
  userId: key.userId,
  sessionId: key.sessionId,
  id: invocationId,
  leaseToken: sql`${token}::uuid`,
  leaseExpireTime: expiry(durationMs),
  idempotencyKey: request?.idempotencyKey ?? null,
  requestHash: request?.hash ?? null,
  webhookUrl: webhookUrl ?? null,
});

const KEY = names(invocations.appName, invocations.userId, invocations.sessionId, invocations.id);

/** The invocation row of a claim. A resumed invocation keeps its id and its row. */
const begin = (lease: Lease) => sql`
  ${insertSelect(invocations, { ...toRow(lease), status: 'running', startTime: sql`clock_timestamp()` })} from advanced
  on conflict (${KEY}) do update set ${assignments(invocations, {
    status: 'running',
    leaseToken: excluded(invocations.leaseToken),
    leaseExpireTime: excluded(invocations.leaseExpireTime),
    idempotencyKey: sql`coalesce(${excluded(invocations.idempotencyKey)}, ${invocations.idempotencyKey})`,
    requestHash: sql`coalesce(${excluded(invocations.requestHash)}, ${invocations.requestHash})`,
    webhookUrl: sql`coalesce(${excluded(invocations.webhookUrl)}, ${invocations.webhookUrl})`,
    startTime: sql`coalesce(${invocations.startTime}, ${excluded(invocations.startTime)})`,
    endTime: null,
    responseBody: null,
    errorCode: null,
    errorMessage: null,
    stopRequestedAs: null,
    request: null,
  })}
  where ${invocations.status} <> 'running'`;

const repeated = () => new RepeatedInvocationError('A request with this Idempotency-Key was made before.');

/**
 * Claims a session that runs nothing and has no earlier waiter: lease, invocation row and the first events in one
 * statement.
 * @returns false when the session is busy, or absent and `createSession` is false; nothing was written then.
 * @throws {RepeatedInvocationError} when the idempotency key is another invocation's.
 * @throws {LimitError} when a budget has nothing left
 */
export async function claimSession(
  db: Database,
  lease: Lease,
  events: NewEvent[],
  createSession: boolean,
): Promise<boolean> {
  const claim = insertClaim(db, { lease, append: newAppend(db, lease.key, events), createSession });
  const [row] = await onConflict(claim, 'invocations_idempotency_key', repeated);
  return toClaimed(row);
}

type Claim = { lease: Lease; append: EventAppend };

const insertClaim = shapedStatement<Claim & { createSession: boolean }, ClaimedRow>(
  ({ lease, append, createSession }, db) => {
    const isNext = sql`not ${hasEarlierWaiter(lease)} and not ${isRepeated(lease)} and ${WITHIN_BUDGET}`;
    const claimed = createSession
      ? claimedOrNewSession(append, lease.token, isNext, sql`not ${isForgotten(lease)} and ${WITHIN_BUDGET}`)
      : claimedSession(db, append, lease.token, isNext);
    return sql`
      with ${givenEvents(append)}, ${overCte(lease, isRepeated(lease))},
      advanced as (${claimed}),
      begun as (${begin(lease)})
      ${appendEventCtes(append)} ${countClaim(lease)}
      ${CLAIMED}`;
  },
  userOf,
);

/**
 * What came of an attempt to wait: `queued`; `full` where so many others wait already; `absent` without the session;
 * `lost` where the place of an earlier try is gone, or another process has begun what waited there.
 */
export type Place =
  | {
      kind: 'queued' /** Seconds with six decimals, by the database's clock: the order of the queue. */;
      createTime: string;
    }
  | { kind: 'full' | 'absent' | 'lost' };

/**
 * Puts an invocation at the end of its session's queue, where at most `depth` wait. With a `body`, that of a start in
 * the background, it waits without a process; otherwise its place must be renewed ({@link renewLease}).
 * @throws {RepeatedInvocationError} as {@link claimSession} does.
 */
export async function enqueueInvocation(db: Database, lease: Lease, depth: number, body?: unknown): Promise<Place> {
  const given = { lease, depth, body: body === undefined ? undefined : escapeJson(body) };
  const rows = await onConflict(insertQueued(db, given), 'invocations_idempotency_key', repeated);
  const [found] = rows;
  if (typeof found?.placed === 'string') return { kind: 'queued', createTime: found.placed };
  if (found?.isThere !== true) return { kind: 'absent' };
  return { kind: found.isFull ? 'full' : 'lost' };
}

type Waiting = { lease: Lease; depth: number; body: string | undefined };

const insertQueued = shapedStatement<Waiting, { isThere: boolean; isFull: boolean; placed: string | null }>(
  ({ lease, depth, body }) => {
    const { status, leaseToken } = invocations;
    const isSame = sql`${status} = 'queued' and ${leaseToken} = ${excluded(leaseToken)}`;
    const request = body === undefined ? null : sql`${body}::jsonb`;
    return sql`
    with found as (
      select ${sessionExists(lease.key)} as "isThere",
             (select count(*) ${otherWaiters(lease)}) >= ${depth}::int as "isFull"),
    placed as (
      ${insertSelect(invocations, { ...toRow(lease), status: 'queued', request })} from found
      where "isThere" and not "isFull"
      -- The answer to an earlier try was lost: its place is kept.
      on conflict (${KEY}) do update
        set ${assignments(invocations, { leaseExpireTime: excluded(invocations.leaseExpireTime) })} where ${isSame}
      returning extract(epoch from ${invocations.createTime})::text as create_time)
    select "isThere", "isFull", (select create_time from placed) as placed from found`;
  },
);

/**
 * Claims the session for a queued invocation whose turn it is; as {@link claimSession} otherwise. One that waits in the
 * background needs no token: whoever claims it first runs it.
 */
export async function claimQueued(db: Database, lease: Lease, events: NewEvent[]): Promise<boolean> {
  const [row] = await updateQueued(db, { lease, append: newAppend(db, lease.key, events) });
  return toClaimed(row);
}

const updateQueued = shapedStatement<Claim, ClaimedRow>(({ lease, append }, db) => {
  const place = sql`(${invocations.createTime}, ${invocations.id})`;
  const isNext = sql`exists (select 1 from mine) and ${WITHIN_BUDGET}
    and not ${hasEarlierWaiter(lease, sql`and ${place} < (select mine.create_time, mine.id from mine)`)}`;
  return sql`
    -- Locked, so that a cancellation is either before the claim or after it.
    with ${givenEvents(append)}, ${overCte(lease, isRepeated(lease))},
    mine as materialized (
      select ${invocations.createTime} as create_time, ${invocations.id} as id from ${invocations}
      where ${isInvocation(lease)} and ${invocations.status} = 'queued'
        and (${invocations.leaseToken} = ${lease.token} or ${isBackground})
      for update),
    advanced as (${claimedSession(db, append, lease.token, isNext)}),
    begun as (${begin(lease)})
    ${appendEventCtes(append)} ${countClaim(lease)}
    ${CLAIMED}`;
}, userOf);

/**
 * What a renewal found: `lost` where the lease is another's, else what the invocation is requested to end as, if
 * anything.
 */
export type Renewal = 'lost' | 'held' | 'interrupted' | 'cancelled';

/** Prolongs the lease of a running invocation, or the place of a queued one. */
export async function renewLease(db: Database, lease: Lease): Promise<Renewal> {
  const [row] = await db
    .update(invocations)
    // The process counts from before it sent this, so that its authority ends first.
    .set({ leaseExpireTime: sql`statement_timestamp() + ${lease.durationMs} * interval '1 millisecond'` })
    .where(and(isInvocation(lease), eq(invocations.leaseToken, lease.token), isActive))
    .returning({ stopAs: invocations.stopRequestedAs });
  return row ? (row.stopAs ?? 'held') : 'lost';
}

/**
 * Who holds a session: nobody (`free`), a live invocation, a dead one whose lease is over (without an id where the
 * session has a token that no running invocation has), or there is no such session.
 */
export type LockHolder =
  | { kind: 'absent' | 'free' }
  | { kind: 'live'; invocationId: string; token: string }
  | { kind: 'dead'; invocationId: string | undefined; token: string };

/**
 * Finds the holder of a session in a transaction and locks the session row until its end. Two statements: a join
 * would show the invocation of an older snapshot when the lock had to be waited for (EvalPlanQual renews the locked
 * row only).
 */
export async function findLockHolder(tx: Database, key: SessionKey, skipLocked = false): Promise<LockHolder> {
  const session = await lockSession(tx, key, skipLocked);
  if (!session) return { kind: 'absent' };
  const { leaseToken: token } = session;
  if (token === null) return { kind: 'free' };
  const [holder] = await tx
    .select({ id: invocations.id, live: isLive })
    .from(invocations)
    .where(and(isSession(key, invocations), eq(invocations.leaseToken, token), eq(invocations.status, 'running')));
  return holder?.live === true
    ? { kind: 'live', invocationId: holder.id, token }
    : { kind: 'dead', invocationId: holder?.id, token };
}

/** True when this very run of an invocation has ended: its token is still in the row, its status is an end. */
export async function hasFinished(db: Database, lease: Lease): Promise<boolean> {
  const rows = await db
    .select({ id: invocations.id })
    .from(invocations)
    .where(and(isInvocation(lease), eq(invocations.leaseToken, lease.token), not(isActive)));
  return rows.length === 1;
}
