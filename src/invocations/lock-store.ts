import { and, eq, not, sql } from 'drizzle-orm';
import { type OverBudget, OverBudgetError } from '../conversation/budgets/budget.ts';
import type { IdempotentRequest } from '../conversation/idempotency/operations.ts';
import { type GivenCall, toAnswersParameter, toEventParameters } from '../conversation/sessions/append-store.ts';
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

/** A running invocation and its right to write: the token stands in the session row too, where every write needs it. */
export interface Lease {
  key: SessionKey;
  invocationId: string;
  token: string;
  /** The token with which its row waited when it was read, where any process may claim it. */
  readToken?: string;
  /** How long the lease lasts without a renewal. */
  durationMs: number;
  /** The `Idempotency-Key` of the request and the hash of what was requested. */
  request?: IdempotentRequest | undefined;
  /** Address of the webhook that is sent how it ends: a trigger fills the outbox. */
  webhookUrl?: string | undefined;
  /** The request as its row is to keep it, for who goes on with it ({@link toClaimedRequest}). */
  kept?: JsonObject | undefined;
  /** The version of the application that runs it. */
  version?: string | undefined;
  /** Calls that its message answers: the claim closes their tasks, or is refused. */
  answers?: GivenCall[] | undefined;
  /** True where its message interrupts: what sleeps in the session ends. */
  endsSleeps?: boolean;
  /** True for what calls no model: no budget counts or refuses it. */
  isFree?: true;
  /** False where no budget applies to its user, as its claim or its last append found: no model call is reserved. */
  isLimited?: boolean;
  /** The history of the session, where its claim made it: nothing else is there to be read. */
  history?: SessionHistory;
}

/**
 * Claims a session that runs nothing and has no earlier waiter: lease, invocation row and the first events in one
 * statement.
 * @returns false when the session is busy, absent and `createSession` is false, or there and it is `new`; nothing was
 * written then.
 * @throws {RepeatedInvocationError} when the idempotency key is another invocation's.
 * @throws {LimitError} when a budget has nothing left
 * @throws {ConflictError} when nothing waits for what its message answers. @throws {ForbiddenError} when it is for others
 * @throws {LeaseLostError} when an earlier try, whose answer was lost, was taken over
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

/** Claims the session for a queued invocation whose turn it is; in the background the first process gets it. */
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
    p_request: lease.kept && escapeJson(lease.kept),
    p_is_eval: isEvalSession(lease.key.sessionId),
    p_is_free: lease.isFree === true,
    p_version: lease.version,
    p_answers: toAnswersParameter(lease.answers),
    p_ends_sleeps: lease.endsSleeps,
  }).catch(throwRefusal);
  const once = onConflict(call, 'invocations_idempotency_key', repeated);
  // Only an earlier try of this very claim has brought the event, and has been taken over since.
  const { claimed, over, limited, ...made } = await onConflict(once, 'events_id_key', () => leaseLost(lease));
  if (!claimed && over) throw new OverBudgetError(over);
  lease.isLimited = limited;
  if (made.state_text !== null) lease.history = toHistory(made.lines, made.state_text);
  return claimed;
}

const leaseLost = ({ key }: Lease) => new LeaseLostError(`The invocation no longer holds session ${key.sessionId}.`);
const repeated = () => new RepeatedInvocationError('A request with this Idempotency-Key was made before.');

/** The parameters of an invocation that is to run or to wait, but for its session. */
const toLeaseParameters = ({ invocationId, token, durationMs, request, webhookUrl }: Lease) => ({
  p_invocation: invocationId,
  p_token: token,
  p_duration_ms: durationMs,
  p_key: request?.idempotencyKey,
  p_hash: request?.hash,
  p_webhook: webhookUrl,
});

/**
 * The result of an attempt to wait: `queued` since `createTime` (seconds with six decimals by the database's clock: the
 * order of the queue); `full` where as many wait as may; `absent` without the session; `lost` where the place of an
 * earlier try is gone, or another process has begun what waited there.
 */
export type Place = { kind: 'queued'; createTime: string } | { kind: 'full' | 'absent' | 'lost' };

/**
 * Puts an invocation at the end of its session's queue, where at most `depth` wait. With a `body`, that of a start in
 * the background, it waits without a process; otherwise its place must be renewed ({@link renewLease}).
 * @throws {RepeatedInvocationError} as {@link claimSession} does.
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

/** The result of a renewal: `lost` where the lease is another's, else the status that a stop asked for, if any. */
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

/** The row of an invocation whose process died: how often it was begun, and why it may not go on. */
export interface DeadRun {
  invocationId: string;
  attempt: number;
  stopAs: 'interrupted' | 'cancelled' | null;
  isKept: boolean;
  /** The reason in its request, the end of a sentence. */
  endsBecause: string | null;
}

/** The holder of a session: none (`free`), a live invocation, or a dead one, without a run where none has the token. */
export type LockHolder =
  | { kind: 'absent' | 'free' }
  | { kind: 'live'; invocationId: string; token: string }
  | { kind: 'dead'; run: DeadRun | undefined; token: string };

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
  const { id: invocationId, attempt, stopRequestedAs: stopAs, request } = invocations;
  const isKept = sql<boolean>`${request} is not null`;
  const endsBecause = sql<string | null>`${request} ->> 'endsBecause'`;
  const [run] = await tx
    .select({ invocationId, attempt, stopAs, isKept, endsBecause, live: isLive })
    .from(invocations)
    .where(and(isSession(key, invocations), eq(invocations.leaseToken, token), eq(invocations.status, 'running')));
  return run?.live === true ? { kind: 'live', invocationId: run.invocationId, token } : { kind: 'dead', run, token };
}

/**
 * Makes a running invocation wait, under a new token, for a process that goes on with it, in `pauseMs` or later. With
 * `wasLeft` its process lives and has left it: that is no attempt; with `isPaused` it waits for a task, too. The time
 * limit holds for what processes have spent. @returns true where it was running under this lease
 */
export async function putBack(
  tx: Database,
  { key, invocationId, token }: Lease,
  leaseToken: string,
  { pauseMs = 0, wasLeft = false, isPaused = false },
): Promise<boolean> {
  const leaseExpireTime = sql`statement_timestamp() + ${pauseMs} * interval '1 millisecond'`;
  const attempt = sql`${invocations.attempt} - ${Number(wasLeft)}`;
  // Immutable, which to_jsonb and the epoch of a moment with its zone are not: a cluster takes nothing else here.
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
 * Keeps `temp:` values, which no event keeps, in the request of a running invocation: who goes on with it has them.
 * @throws what {@link stateRefusal} knows where they are more than a state may be
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

/** True when this very run of an invocation has ended: its token is still in the row, its status is an end. */
export async function hasFinished(db: Database, lease: Lease): Promise<boolean> {
  const rows = await db
    .select({ id: invocations.id })
    .from(invocations)
    .where(and(isInvocation(lease), eq(invocations.leaseToken, lease.token), not(isActive)));
  return rows.length === 1;
}
