import { and, eq, not, sql } from 'drizzle-orm';
import { type OverBudget, OverBudgetError } from '../conversation/budgets/budget.ts';
import type { IdempotentRequest } from '../conversation/idempotency/operations.ts';
import { type CallAnswer, toAnswersParameter, toEventParameters } from '../conversation/sessions/append-store.ts';
import { toHistory } from '../conversation/sessions/history-cache.ts';
import type { SessionHistory } from '../conversation/sessions/history-store.ts';
import { isSession } from '../conversation/sessions/session-key.ts';
import { lockSession, releaseSession } from '../conversation/sessions/session-lease.ts';
import { LeaseLostError, RepeatedInvocationError, throwRefusal } from '../core/errors.ts';
import type { JsonObject } from '../core/content.ts';
import type { NewEvent } from '../core/event.ts';
import { isEvalSession, type SessionKey } from '../core/session.ts';
import { callFunction } from '../platform/db/statement.ts';
import { type Database, onConflict } from '../platform/db/database.ts';
import { escapeJson } from '../platform/db/json-escape.ts';
import { invocations } from '../platform/db/schema/schema.ts';
import { isActive, isInvocation, isLive } from './invocation-store.ts';

/**
 * The right of a running invocation to write to its session. The session's row holds the lease's token, and every write
 * compares the token.
 */
export interface Lease {
  key: SessionKey;
  invocationId: string;
  token: string;
  /**
   * Token of the queued invocation's row at the time it was read. The claim compares this token, because another
   * process may have claimed the row since.
   */
  readToken?: string;
  /** Time in milliseconds that the lease lasts without a renewal. */
  durationMs: number;
  /** The `Idempotency-Key` of the request and the hash of the request's content. */
  request?: IdempotentRequest | undefined;
  /** Address of the webhook that receives the result. A database trigger fills the outbox. */
  webhookUrl?: string | undefined;
  /**
   * The request as the invocation's row stores it, for a process that resumes the invocation ({@link
   * toClaimedRequest}).
   */
  storedRequest?: JsonObject | undefined;
  version?: string | undefined;
  /** Open calls to which the message responds. The claim closes the tasks of these calls, or fails. */
  answers?: CallAnswer[] | undefined;
  /** True if the message interrupts the session: invocations that sleep or await a signal end. */
  endsSleeps?: boolean;
  /** True if the invocation calls no model: budgets neither count nor refuse it. */
  isFree?: true;
  /** False if the claim or the last append found no budget for the user. Model calls then need no reservation. */
  hasBudgets?: boolean;
  /** The session's history, if the claim created the session; it saves a read. */
  history?: SessionHistory;
}

/**
 * Claims an idle session that no request waits for: stores lease, invocation row and first events in one statement.
 * @returns false if nothing was written: the session is busy, or is absent without `createSession`, or exists although
 * `createSession` is `new`
 * @throws {RepeatedInvocationError} if another invocation has the idempotency key
 * @throws {LimitError} if a budget is exhausted
 * @throws {ConflictError} if the message responds to a call that is not open
 * @throws {ForbiddenError} if another person must respond to the call
 * @throws {LeaseLostError} if an earlier try of this claim succeeded unnoticed, and another process has taken the
 * session over since
 */
export const claimSession = (
  db: Database,
  lease: Lease,
  events: NewEvent[],
  createSession: boolean | 'new',
): Promise<boolean> =>
  claim(db, lease, events, {
    p_is_queued: false,
    p_creates: createSession !== false,
    p_is_new: createSession === 'new',
  });

/**
 * Claims the session for the invocation that is first in its queue. If several processes claim a background invocation,
 * the first wins.
 */
export const claimQueued = (db: Database, lease: Lease, events: NewEvent[]): Promise<boolean> =>
  claim(db, lease, events, { p_is_queued: true, p_creates: false, p_is_new: false });

async function claim(
  db: Database,
  lease: Lease,
  events: NewEvent[],
  how: { p_is_queued: boolean; p_creates: boolean; p_is_new: boolean },
): Promise<boolean> {
  type Claimed = {
    claimed: boolean;
    over: OverBudget | null;
    limited: boolean;
    lines: string | null;
    state_text: string | null;
  };
  const call = callFunction<Claimed>(db, 'claim_session', {
    ...toLeaseParameters(lease),
    ...toEventParameters(db, lease.key, events),
    ...how,
    p_read: lease.readToken,
    p_request: lease.storedRequest && escapeJson(lease.storedRequest),
    p_is_eval: isEvalSession(lease.key.sessionId),
    p_is_free: lease.isFree === true,
    p_version: lease.version,
    p_answers: toAnswersParameter(lease.answers),
    p_ends_sleeps: lease.endsSleeps,
  }).catch(throwRefusal);
  const once = onConflict(call, 'invocations_idempotency_key', repeated);
  // Only an earlier try of this claim can have stored the event, and another process has taken the session over since.
  const { claimed, over, limited, ...creation } = await onConflict(once, 'events_id_key', () => leaseLost(lease));
  if (!claimed && over) throw new OverBudgetError(over);
  lease.hasBudgets = limited;
  if (creation.state_text !== null) lease.history = toHistory(creation.lines, creation.state_text);
  return claimed;
}

const leaseLost = ({ key }: Lease) => new LeaseLostError(`The invocation no longer holds session ${key.sessionId}.`);
const repeated = () => new RepeatedInvocationError('A request with this Idempotency-Key was made before.');

/** The SQL parameters of an invocation, without its session. */
const toLeaseParameters = ({ invocationId, token, durationMs, request, webhookUrl }: Lease) => ({
  p_invocation: invocationId,
  p_token: token,
  p_duration_ms: durationMs,
  p_key: request?.idempotencyKey,
  p_hash: request?.hash,
  p_webhook: webhookUrl,
});

/**
 * Result of enqueueing. `queued`: the invocation waits; `createTime` (seconds with six decimals by the database's
 * clock) is the sort key of the queue. `full`: the queue has the maximum length. `absent`: there is no such session.
 * `lost`: an earlier try had queued the invocation, and its row is gone or another process has begun it.
 */
export type Place = { kind: 'queued'; createTime: string } | { kind: 'full' | 'absent' | 'lost' };

/**
 * Appends an invocation to its session's queue of at most `depth` invocations. With a `body` (a background start) the
 * invocation waits without a process. Without a `body` the process that waits must renew the lease ({@link
 * renewLease}).
 * @throws {RepeatedInvocationError} if another invocation has the idempotency key
 */
export async function enqueueInvocation(db: Database, lease: Lease, depth: number, body?: unknown): Promise<Place> {
  type Queued = { is_there: boolean; is_full: boolean; queued_since: string | null };
  const { appName, userId, sessionId } = lease.key;
  const call = callFunction<Queued>(db, 'enqueue_invocation', {
    p_app: appName,
    p_user: userId,
    p_session: sessionId,
    ...toLeaseParameters(lease),
    p_request: body === undefined ? null : escapeJson(body),
    p_depth: depth,
    p_max_user_bytes: db.limits.maxUserBytes,
  });
  const { is_there, is_full, queued_since } = await onConflict(call, 'invocations_idempotency_key', repeated);
  if (queued_since !== null) return { kind: 'queued', createTime: queued_since };
  if (!is_there) return { kind: 'absent' };
  return { kind: is_full ? 'full' : 'lost' };
}

/**
 * Result of a renewal: `lost` if the session is held under another lease token; otherwise the status that a stop
 * request asked for; otherwise `held`.
 */
export type Renewal = 'lost' | 'held' | 'interrupted' | 'cancelled';

/** Extends the lease of a running or queued invocation. */
export async function renewLease(db: Database, lease: Lease): Promise<Renewal> {
  const [row] = await db
    .update(invocations)
    // The process measures the duration from before it sent this statement, so it stops writing before the lease
    // expires here.
    .set({ leaseExpireTime: sql`statement_timestamp() + ${lease.durationMs} * interval '1 millisecond'` })
    .where(and(isInvocation(lease), eq(invocations.leaseToken, lease.token), isActive))
    .returning({ stopAs: invocations.stopRequestedAs });
  return row ? (row.stopAs ?? 'held') : 'lost';
}

/** The row of an invocation whose process died. */
export interface DeadRun {
  invocationId: string;
  attempt: number;
  stopAs: 'interrupted' | 'cancelled' | null;
  hasRequest: boolean;
  /** The reason why the invocation may not be resumed, as the end of a sentence. */
  endsBecause: string | null;
}

/**
 * The holder of a session: none (`free`), an invocation whose process lives, or one whose process is dead. `run` is
 * absent if no invocation has the session's lease token.
 */
export type LockHolder =
  | { kind: 'absent' | 'free' }
  | { kind: 'live'; invocationId: string; token: string }
  | { kind: 'dead'; run: DeadRun | undefined; token: string };

/**
 * Finds the holder of a session and locks the session row until the transaction ends. Uses two statements: in one
 * statement, a join that waits for the lock would read the invocation from an older snapshot than the session
 * (EvalPlanQual rereads only the locked row).
 */
export async function findLockHolder(tx: Database, key: SessionKey, skipLocked = false): Promise<LockHolder> {
  const session = await lockSession(tx, key, skipLocked);
  if (!session) return { kind: 'absent' };
  const { leaseToken: token } = session;
  if (token === null) return { kind: 'free' };
  const { id: invocationId, attempt, stopRequestedAs: stopAs, request } = invocations;
  const hasRequest = sql<boolean>`${request} is not null`;
  const endsBecause = sql<string | null>`${request} ->> 'endsBecause'`;
  const [run] = await tx
    .select({ invocationId, attempt, stopAs, hasRequest, endsBecause, live: isLive })
    .from(invocations)
    .where(and(isSession(key, invocations), eq(invocations.leaseToken, token), eq(invocations.status, 'running')));
  return run?.live === true ? { kind: 'live', invocationId: run.invocationId, token } : { kind: 'dead', run, token };
}

/**
 * Puts a running invocation back in the queue under a new token. Any process may resume it after `pauseMs`.
 * `isHandedOver`: its process handed it over, which does not count as an attempt. `isPaused`: the invocation first
 * waits for a task. The time spent so far is stored, because the time limit covers all attempts.
 * @returns false if the invocation did not run under this lease
 */
export async function putBack(
  tx: Database,
  { key, invocationId, token }: Lease,
  leaseToken: string,
  { pauseMs = 0, isHandedOver = false, isPaused = false },
): Promise<boolean> {
  const leaseExpireTime = sql`statement_timestamp() + ${pauseMs} * interval '1 millisecond'`;
  const attempt = sql`${invocations.attempt} - ${Number(isHandedOver)}`;
  // Citus accepts only immutable functions here. The functions to_jsonb and extract(epoch from timestamptz) are not
  // immutable.
  const last = sql`least(${invocations.leaseExpireTime}, statement_timestamp())`;
  const ended = sql`extract(epoch from ${last} at time zone 'UTC')`;
  const spent = sql`(1000 * (${ended} - (${invocations.request} #>> '{began,at}')::numeric))::text::jsonb`;
  const request = sql`jsonb_set(${invocations.request}, '{began,spentMs}', ${spent})`;
  const paused = isPaused && ({ status: 'paused', endTime: sql`statement_timestamp()` } as const);
  const { rowCount } = await tx
    .update(invocations)
    .set({ status: 'queued', leaseToken, leaseExpireTime, attempt, request, ...paused })
    .where(
      and(isInvocation({ key, invocationId }), eq(invocations.leaseToken, token), eq(invocations.status, 'running')),
    );
  await releaseSession(tx, key, token);
  return rowCount === 1;
}

/**
 * Stores `temp:` state values in the request of a running invocation, because events do not contain them and a process
 * that resumes the invocation needs them.
 * @throws an error that {@link stateRefusal} recognizes, if the state grows too large
 */
export async function keepTemporary(db: Database, lease: Lease, values: JsonObject): Promise<void> {
  const { request, leaseToken } = invocations;
  const all = sql`coalesce(${request} -> 'stateDelta', '{}') || ${escapeJson(values)}::jsonb`;
  const { maxStateBytes, maxStateKeys } = db.limits;
  await db
    .update(invocations)
    .set({
      request: sql`jsonb_set(${request}, '{stateDelta}', assert_state_size(${all}, ${maxStateBytes}, ${maxStateKeys}))`,
    })
    .where(and(isInvocation(lease), eq(leaseToken, lease.token), sql`${request} ->> 'endsBecause' is null`));
}

/** True if this run has already ended: the row has the run's lease token and a terminal status. */
export async function hasFinished(db: Database, lease: Lease): Promise<boolean> {
  const rows = await db
    .select({ id: invocations.id })
    .from(invocations)
    .where(and(isInvocation(lease), eq(invocations.leaseToken, lease.token), not(isActive)));
  return rows.length === 1;
}
