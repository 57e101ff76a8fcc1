import { and, eq, not, sql } from 'drizzle-orm';
import { type OverBudget, OverBudgetError } from '../conversation/budgets/budget.ts';
import type { IdempotentRequest } from '../conversation/idempotency/idempotency.ts';
import {
  type CallAnswer,
  type StoredEvent,
  toEventParameters,
  toMessageLimits,
  toStoredEvents,
} from '../conversation/sessions/append-store.ts';
import { type SessionHistory, toHistory } from '../conversation/sessions/history.ts';
import { isSession, lockSession, releaseSession } from '../conversation/sessions/session-row.ts';
import { LeaseLostError, RepeatedInvocationError, throwRefusal } from '../core/errors.ts';
import type { JsonObject } from '../core/content.ts';
import type { NewEvent } from '../core/event.ts';
import { isEvalSession, type SessionKey } from '../core/session.ts';
import { callFunction } from '../platform/db/statement.ts';
import { type Database, onConflict } from '../platform/db/database.ts';
import { escapeJson, escapeList } from '../platform/json-escape.ts';
import { invocations } from '../platform/db/schema/schema.ts';
import type { Job } from '../platform/jobs/job-store.ts';
import { isActive, isInvocation, isLive } from './invocation-store.ts';

/** A claimed job of which an invocation is a step, and the number of the step, from 0. */
export type JobStep = { kind: string; step: number } & Pick<Job, 'userId' | 'id' | 'token'>;

/** A running invocation's right to write to its session: every write compares the token in the session's row. */
export interface Lease {
  key: SessionKey;
  invocationId: string;
  token: string;
  /**
   * The queued row's token when it was read; the claim compares it, because another process may have claimed the row.
   */
  readToken?: string;
  /** Time in milliseconds that the lease lasts without a renewal. */
  durationMs: number;
  /** The `Idempotency-Key` of the request and the hash of the request's content. */
  request?: IdempotentRequest | undefined;
  /** Address of the webhook that receives the result. A database trigger fills the outbox. */
  webhookUrl?: string | undefined;
  /** The stored request, for a process that resumes the invocation ({@link toClaimedRequest}). */
  storedRequest?: JsonObject | undefined;
  /** Trace context of the run, which the claim stores, for a later run to be linked to it. */
  trace?: string | undefined;
  version?: string | undefined;
  /** Open calls to which the message responds. The claim closes the tasks of these calls, or fails. */
  answers?: CallAnswer[] | undefined;
  /** True if the message interrupts the session: invocations that sleep or await a signal end. */
  endsSleeps?: boolean;
  /** True for an invocation that budgets neither count nor refuse, as one that calls no model. */
  isFree?: true;
  /** False if the claim or the last append found no budget for the user. Model calls then need no reservation. */
  hasBudgets?: boolean;
  /** The session's history, if the claim created the session; it saves a read. */
  history?: SessionHistory;
  /** API keys whose waiting messages the claim takes, if a message woke the invocation. Default: none. */
  keys?: readonly string[];
  /** The claim of a cronjob's run fails if so many runs of the user go on. */
  places?: number;
  /** True if the claim returns the first events, for a follower in this process. */
  isFollowed?: true;
  /** The job of which the invocation is a step. The claim fails if another process has it. */
  job?: JobStep | undefined;
  /** The first events as the claim stored them, and the session's last sequence before them. */
  beginning?: { before: number; stored: StoredEvent[] };
}

export interface LeaseTimes {
  /** Milliseconds that a lease lasts without a renewal, and that a killed process blocks its session. */
  durationMs: number;
  /** Milliseconds between renewals: at most a third of the duration, so that two in a row may fail. */
  renewalMs: number;
  waitMs: number;
}

/**
 * Claims an idle session that no request waits for: stores lease, invocation row and first events in one statement.
 * @returns false if nothing was written: the session is busy, or absent without `createSession`, or exists although
 *   `createSession` is `new`
 * @throws {RepeatedInvocationError} if another invocation has the idempotency key
 * @throws {LimitError} if a budget is exhausted
 * @throws {ConflictError} if the message responds to a call that is not open
 * @throws {ForbiddenError} if another person must respond to the call
 * @throws {LeaseLostError} if an earlier try succeeded unnoticed, and another process has taken the session over since;
 *   or if another process has the invocation's job
 */
export async function claimSession(
  db: Database,
  lease: Lease,
  events: NewEvent[],
  createSession: boolean | 'new',
  isQueued = false,
): Promise<boolean> {
  type Claimed = {
    claimed: boolean;
    over: OverBudget | null;
    limited: boolean;
    lines: string | null;
    state_text: string | null;
    last: number | null;
  };
  const call = callFunction<Claimed>(db, 'claim_session', {
    ...toLeaseParameters(lease),
    ...toEventParameters(db, lease.key, events, undefined, toMessageLimits(lease.keys)),
    p_is_queued: isQueued,
    p_creates: createSession !== false,
    p_is_new: createSession === 'new',
    p_read: lease.readToken,
    p_request: toStoredRequest(lease),
    p_is_eval: isEvalSession(lease.key.sessionId),
    p_is_free: lease.isFree === true,
    p_version: lease.version,
    p_answers: escapeList(lease.answers),
    p_ends_sleeps: lease.endsSleeps,
    p_returns: lease.isFollowed === true,
    p_job: lease.job && toJobText(lease.job),
    p_places: lease.places,
  }).catch(throwRefusal);
  const once = onConflict(call, 'invocations_idempotency_key', repeated);
  // Only an earlier try of this claim can have stored the event, and another process has taken the session over since.
  const { claimed, over, limited, ...creation } = await onConflict(once, 'events_id_key', () => leaseLost(lease));
  if (!claimed && over) throw new OverBudgetError(over);
  lease.hasBudgets = limited;
  if (creation.state_text !== null) lease.history = toHistory(creation.lines, creation.state_text);
  if (lease.isFollowed && creation.last !== null) {
    const stored = toStoredEvents(creation);
    lease.beginning = { before: creation.last - stored.length, stored };
  }
  return claimed;
}

/** Claims the session for the first invocation in its queue. Of several processes the first wins. */
export const claimQueued = (db: Database, lease: Lease, events: NewEvent[]): Promise<boolean> =>
  claimSession(db, lease, events, false, true);

/** A resumed invocation keeps its stored request, which gets the trace context alone. */
const toStoredRequest = ({ storedRequest, trace }: Lease) =>
  storedRequest || trace !== undefined ? escapeJson({ ...storedRequest, trace }) : undefined;
const toJobText = ({ kind, userId, id, token, step }: JobStep) => JSON.stringify({ kind, userId, id, token, step });
const leaseLost = ({ key }: Lease) => new LeaseLostError(`The invocation no longer holds session ${key.sessionId}.`);
export const repeated = () => new RepeatedInvocationError('A request with this Idempotency-Key was made before.');

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
 * Enqueueing: `queued`: `createTime` (seconds with six decimals by the database's clock) is the sort key. `full`: the
 * queue has the maximum length. `lost`: an earlier try had queued the invocation, and its row is gone or begun.
 */
export type Place = { kind: 'queued'; createTime: string } | { kind: 'full' | 'absent' | 'lost' };

/**
 * A session's queue has at most `depth` invocations. With a `body` (a background start) one waits without a process;
 * otherwise the process that waits must renew the lease.
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

/** A renewal: `lost` if another lease token holds the session; else the status that a stop asked for, or `held`. */
export type Renewal = 'lost' | 'held' | 'interrupted' | 'cancelled';

export async function renewLease(db: Database, lease: Lease): Promise<Renewal> {
  const [row] = await db
    .update(invocations)
    // The process counts a lease from before this statement, so it stops writing before the lease expires here.
    .set({ leaseExpireTime: sql`statement_timestamp() + ${lease.durationMs} * interval '1 millisecond'` })
    .where(and(isInvocation(lease), eq(invocations.leaseToken, lease.token), isActive))
    .returning({ stopAs: invocations.stopRequestedAs });
  return row ? (row.stopAs ?? 'held') : 'lost';
}

/** The row of an invocation whose process died. */
export interface DeadRun {
  invocationId: string;
  /** How many processes in a row died with it before they got on; 1 if this one did get on. */
  attempt: number;
  stopAs: 'interrupted' | 'cancelled' | null;
  hasRequest: boolean;
  /** The reason why the invocation may not be resumed, as the end of a sentence. */
  endsBecause: string | null;
}

/** A session's holder: none (`free`), or an invocation, live or dead. `run` is absent if none has the lease's token. */
export type LockHolder =
  | { kind: 'absent' | 'free' }
  | { kind: 'live'; invocationId: string; token: string }
  | { kind: 'dead'; run: DeadRun | undefined; token: string };

/**
 * A process has got on with an invocation if it stored two answers of models, because it then survived all that followed
 * the first. One does not say so: a step that kills each process comes after an answer of a model that asks for it again.
 */
const PROGRESS = 2;
const { llmCalls } = invocations;
const isAt = (member: string) => sql`(${invocations.request} #>> ${`{began,${member}}`}::text[])::integer`;
/** The attempt as it counts after the death of its process: the first again, if that has got on. */
const lostAttempt = sql<number>`case when ${llmCalls} - coalesce(${isAt('leftAt')}, ${isAt('llmCalls')}) >= ${PROGRESS}
  then 1 else ${invocations.attempt} end`;

/**
 * Finds a session's holder and locks its row. Two statements, because a join that waits for the lock would read
 * the invocation from an older snapshot than the session (EvalPlanQual rereads only the locked row).
 */
export async function findLockHolder(tx: Database, key: SessionKey, skipLocked = false): Promise<LockHolder> {
  const session = await lockSession(tx, key, skipLocked);
  if (!session) return { kind: 'absent' };
  const { leaseToken: token } = session;
  if (token === null) return { kind: 'free' };
  const { id: invocationId, stopRequestedAs: stopAs, request } = invocations;
  const attempt = lostAttempt.mapWith(invocations.attempt);
  const hasRequest = sql<boolean>`${request} is not null`;
  const endsBecause = sql<string | null>`${request} ->> 'endsBecause'`;
  const [run] = await tx
    .select({ invocationId, attempt, stopAs, hasRequest, endsBecause, live: isLive })
    .from(invocations)
    .where(and(isSession(key, invocations), eq(invocations.leaseToken, token), eq(invocations.status, 'running')));
  return run?.live === true ? { kind: 'live', invocationId: run.invocationId, token } : { kind: 'dead', run, token };
}

/** True if an invocation was asked to stop. Locks its row, so that a later request finds what the caller stores. */
export async function isAskedToStop(tx: Database, lease: Lease): Promise<boolean> {
  const { stopRequestedAs: stopAs } = invocations;
  const [row] = await tx.select({ stopAs }).from(invocations).where(isInvocation(lease)).for('no key update');
  return row !== undefined && row.stopAs !== null;
}

/**
 * Puts a running invocation back in the queue under a new token. Any process may resume it after `pauseMs`.
 * `isHandedOver`: its process handed it over, which does not count as an attempt. `isPaused`: the invocation first
 * waits for a task. The time spent so far is stored, because the time limit covers all attempts; and the number of model
 * calls, from which the next attempt's progress counts.
 * @returns false if the invocation did not run under this lease
 */
export async function putBack(
  tx: Database,
  { key, invocationId, token }: Lease,
  leaseToken: string,
  { pauseMs = 0, isHandedOver = false, isPaused = false },
): Promise<boolean> {
  const leaseExpireTime = sql`statement_timestamp() + ${pauseMs} * interval '1 millisecond'`;
  const attempt = isHandedOver ? sql`${invocations.attempt} - 1` : lostAttempt;
  // Citus accepts only immutable functions here, unlike to_jsonb and extract(epoch from timestamptz).
  const last = sql`least(${invocations.leaseExpireTime}, statement_timestamp())`;
  const ended = sql`extract(epoch from ${last} at time zone 'UTC')`;
  const spent = sql`(1000 * (${ended} - (${invocations.request} #>> '{began,at}')::numeric))::text::jsonb`;
  const left = isPaused ? 'budget' : isHandedOver ? 'hand_over' : 'take_over';
  const withSpent = sql`jsonb_set(${invocations.request}, '{began,spentMs}', ${spent})`;
  const withCalls = sql`jsonb_set(${withSpent}, '{began,leftAt}', ${llmCalls}::text::jsonb)`;
  const request = sql`${withCalls} || ${JSON.stringify({ left })}::jsonb`;
  const paused = isPaused && ({ status: 'paused', endTime: sql`statement_timestamp()`, waitsForTasks: true } as const);
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
 * Stores `temp:` state for a process that resumes the invocation, because events do not contain it.
 * @throws an error that {@link stateRefusal} recognizes, if the state grows too large
 */
export async function keepTemporary(db: Database, lease: Lease, values: JsonObject): Promise<void> {
  const { request, leaseToken } = invocations;
  const all = sql`coalesce(${request} -> 'stateDelta', '{}') || ${sql.param(values, request)}::jsonb`;
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
