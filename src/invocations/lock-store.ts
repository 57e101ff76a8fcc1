import type { KeyedRequest } from '../idempotency/key.ts';
import { type SQL, sql } from 'drizzle-orm';
import { appendCtes, bumpSession, newAppend } from '../sessions/append-events.ts';
import { type Database, onConflict } from '../db/database.ts';
import { fromJsonb, toJsonb, toText } from '../db/json-escape.ts';
import { isInvocation, isSession } from '../sessions/session-key.ts';
import { LeaseLostError, RepeatedInvocationError } from '../core/errors.ts';
import type { InvocationError, InvocationStatus } from './invocation.ts';
import type { NewEvent } from '../core/event.ts';
import { EVAL_SESSION_ID_PREFIX, type SessionKey } from '../core/session.ts';

/** A running invocation and its right to write: the token stands in the session row too, where every write asks for it. */
export interface Lease {
  key: SessionKey;
  invocationId: string;
  token: string;
  /** How long the lease lasts without a renewal. */
  durationMs: number;
  /** The `Idempotency-Key` of the request and the hash of what it asked for. */
  request?: KeyedRequest | undefined;
}

const expiry = (durationMs: number) => sql`clock_timestamp() + ${durationMs} * interval '1 millisecond'`;

/** True while another request that came before waits for the session: first come, first served. Dead waiters do not count. */
const hasEarlierWaiter = ({ key, invocationId }: Lease, before: SQL = sql``) => sql`exists (
  select from invocations q where ${isSession(key, sql`q.session_id`)} and q.status = 'queued'
    and q.id <> ${invocationId} and q.lease_expire_time > clock_timestamp() ${before})`;

/** True when the idempotency key of the request has an invocation, which a claim must not begin again. */
const isRepeated = ({ key, request }: Lease) =>
  request
    ? sql`exists (select from invocations k where k.app_name = ${key.appName} and k.user_id = ${key.userId}
        and k.idempotency_key = ${request.idempotencyKey} and k.status <> 'queued')`
    : sql`false`;

/** The invocation row of a claim. A resumed invocation keeps its id and its row. */
const begin = (lease: Lease) => sql`
  insert into invocations (app_name, user_id, session_id, id, status, lease_token, lease_expire_time, idempotency_key,
                           request_hash, start_time)
  select ${lease.key.appName}, ${lease.key.userId}, ${lease.key.sessionId}, ${lease.invocationId}, 'running',
         ${lease.token}::uuid, ${expiry(lease.durationMs)}, ${lease.request?.idempotencyKey ?? null},
         ${lease.request?.hash ?? null}, clock_timestamp()
  from bumped
  on conflict (app_name, user_id, session_id, id) do update set
    status = 'running', lease_token = excluded.lease_token, lease_expire_time = excluded.lease_expire_time,
    idempotency_key = coalesce(excluded.idempotency_key, invocations.idempotency_key),
    request_hash = coalesce(excluded.request_hash, invocations.request_hash),
    start_time = coalesce(invocations.start_time, excluded.start_time), end_time = null, answer = null,
    error_code = null, error_message = null, cancel_status = null
  where invocations.status <> 'running'`;

const repeated = () => new RepeatedInvocationError('A request with this Idempotency-Key was made before.');

/**
 * Claims a session that runs nothing and has no earlier waiter: lease, invocation row and the first events in one statement.
 * @returns false when the session is busy, or absent and `createSession` is false; nothing was written then.
 * @throws {RepeatedInvocationError} when the idempotency key is another invocation's.
 */
export async function claimSession(
  db: Database,
  lease: Lease,
  events: NewEvent[],
  createSession: boolean,
): Promise<boolean> {
  const { key, token } = lease;
  const append = newAppend(key, events);
  const isFree = sql`sessions.lease_token is null and not ${hasEarlierWaiter(lease)} and not ${isRepeated(lease)}`;
  const claim = createSession
    ? sql`
      insert into sessions (app_name, user_id, id, state, last_sequence, lease_token, is_eval)
      values (${key.appName}, ${key.userId}, ${key.sessionId}, limited_state(${toJsonb(append.delta.session)}::jsonb), ${events.length},
              ${token}, ${key.sessionId.startsWith(EVAL_SESSION_ID_PREFIX)})
      on conflict (app_name, user_id, id) do update set ${bumpSession(append)}, lease_token = excluded.lease_token
      where ${isFree}`
    : sql`
      update sessions set ${bumpSession(append)}, lease_token = ${token}
      where ${isSession(key, sql`id`)} and ${isFree}`;
  const statement = db.execute(sql`
    with bumped as (${claim} returning sessions.last_sequence, sessions.update_time),
    begun as (${begin(lease)})
    ${appendCtes(append)}
    select from bumped`);
  const { rows } = await onConflict(statement, 'invocations_idempotency_key', repeated);
  return rows.length === 1;
}

/**
 * Puts an invocation at the end of its session's queue.
 * @returns false when `depth` others wait already. @throws {RepeatedInvocationError} as {@link claimSession} does.
 */
export async function enqueueInvocation(db: Database, lease: Lease, depth: number): Promise<boolean> {
  const { key } = lease;
  const statement = db.execute(sql`
    insert into invocations (app_name, user_id, session_id, id, status, lease_token, lease_expire_time, idempotency_key, request_hash)
    select ${key.appName}, ${key.userId}, ${key.sessionId}, ${lease.invocationId}, 'queued', ${lease.token}::uuid,
           ${expiry(lease.durationMs)}, ${lease.request?.idempotencyKey ?? null}, ${lease.request?.hash ?? null}
    where (select count(*) from invocations q where ${isSession(key, sql`q.session_id`)} and q.status = 'queued'
             and q.id <> ${lease.invocationId} and q.lease_expire_time > clock_timestamp()) < ${depth}
      and exists (select from sessions where ${isSession(key, sql`id`)})
    -- The answer to an earlier try was lost: its place is kept.
    on conflict (app_name, user_id, session_id, id) do update set lease_expire_time = excluded.lease_expire_time
    where invocations.status = 'queued' and invocations.lease_token = excluded.lease_token
    returning id`);
  const { rows } = await onConflict(statement, 'invocations_idempotency_key', repeated);
  return rows.length === 1;
}

/** Claims the session for a queued invocation whose turn it is; as {@link claimSession} otherwise. */
export async function claimQueued(db: Database, lease: Lease, events: NewEvent[]): Promise<boolean> {
  const { key } = lease;
  const append = newAppend(key, events);
  const { rows } = await db.execute(sql`
    -- Locked, so that a cancellation is either before the claim or after it.
    with mine as materialized (
      select create_time, id from invocations
      where ${isInvocation(lease)} and status = 'queued' and lease_token = ${lease.token} for update),
    bumped as (
      update sessions set ${bumpSession(append)}, lease_token = ${lease.token}
      where ${isSession(key, sql`id`)} and lease_token is null and exists (select from mine)
        and not ${hasEarlierWaiter(lease, sql`and (q.create_time, q.id) < (select create_time, id from mine)`)}
      returning last_sequence, update_time),
    begun as (${begin(lease)})
    ${appendCtes(append)}
    select from bumped`);
  return rows.length === 1;
}

/** Takes a waiting invocation out of the queue; its idempotency key is free again. */
export async function leaveQueue(db: Database, lease: Lease): Promise<void> {
  await db.execute(sql`delete from invocations where ${isInvocation(lease)} and status = 'queued'`);
}

/** What a renewal found: `lost` where the lease is another's, else what the invocation is asked to end as, if anything. */
export type Renewal = 'lost' | 'held' | 'interrupted' | 'cancelled';

/** Prolongs the lease of a running invocation, or the place of a queued one. */
export async function renewLease(db: Database, lease: Lease): Promise<Renewal> {
  const { rows } = await db.execute<{ cancel_status: 'interrupted' | 'cancelled' | null }>(sql`
    update invocations set lease_expire_time = ${expiry(lease.durationMs)}
    where ${isInvocation(lease)} and lease_token = ${lease.token} and status in ('queued', 'running')
    returning cancel_status`);
  const row = rows[0];
  return row ? (row.cancel_status ?? 'held') : 'lost';
}

/** How an invocation ended, as its row keeps it. */
export interface InvocationOutcome {
  status: InvocationStatus;
  error?: InvocationError | undefined;
  /** The answer as it is sent. */
  answer?: string | undefined;
  llmCalls?: number;
  toolCalls?: number;
  promptTokens?: number;
  outputTokens?: number;
  /** True: whoever ran it is taken for dead, and must not take this end for its own should it wake up. */
  revokesToken?: boolean;
}

/**
 * Ends an invocation: last events, status and answer, and the session given free, in one statement: success may be told after it.
 * @returns the events with their sequences. @throws {LeaseLostError} when the lease is another's; nothing was written then.
 */
export async function finishInvocation(
  db: Database,
  lease: Lease,
  events: NewEvent[],
  outcome: InvocationOutcome,
): Promise<{ sequence: number; text: string }[]> {
  const append = newAppend(lease.key, events);
  const { rows } = await db.execute<{ last: number; texts: string[] }>(sql`
    with bumped as (
      update sessions set ${bumpSession(append)}, lease_token = null
      where ${isSession(lease.key, sql`id`)} and lease_token = ${lease.token}
      returning last_sequence, update_time),
    ended as (
      update invocations set
        lease_token = ${outcome.revokesToken === true ? sql`gen_random_uuid()` : sql`lease_token`},
        status = ${outcome.status}, end_time = clock_timestamp(), answer = ${outcome.answer ?? null},
        error_code = ${outcome.error?.code ?? null},
        error_message = ${outcome.error ? toText(outcome.error.message) : null},
        llm_calls = llm_calls + ${outcome.llmCalls ?? 0}, tool_calls = tool_calls + ${outcome.toolCalls ?? 0},
        prompt_tokens = prompt_tokens + ${outcome.promptTokens ?? 0},
        output_tokens = output_tokens + ${outcome.outputTokens ?? 0}
      from bumped
      where ${isInvocation(lease)} and lease_token = ${lease.token})
    ${appendCtes(append)}
    select last_sequence as last, array(select payload::text from appended order by sequence) as texts from bumped`);
  const row = rows[0];
  if (!row) throw new LeaseLostError(`The invocation no longer holds session ${lease.key.sessionId}.`);
  const first = row.last - row.texts.length + 1;
  return row.texts.map((text, position) => ({ sequence: first + position, text: fromJsonb(text) }));
}

/**
 * Who holds a session: nobody (`free`), a live invocation, a dead one whose lease is over (without an id where the session has a
 * token that no running invocation has), or there is no such session.
 */
export type LockHolder =
  | { kind: 'absent' | 'free' }
  | { kind: 'live'; invocationId: string; token: string }
  | { kind: 'dead'; invocationId: string | undefined; token: string };

/**
 * Finds the holder of a session in a transaction and locks the session row until its end. Two statements: a join would show the
 * invocation of an older snapshot when the lock had to be waited for (EvalPlanQual renews the locked row only).
 */
export async function findHolder(tx: Database, key: SessionKey): Promise<LockHolder> {
  const session = await tx.execute<{ token: string | null }>(
    sql`select lease_token as token from sessions where ${isSession(key, sql`id`)} for update`,
  );
  const row = session.rows[0];
  if (!row) return { kind: 'absent' };
  const { token } = row;
  if (token === null) return { kind: 'free' };
  const running = await tx.execute<{ id: string; live: boolean }>(sql`
    select id, lease_expire_time > clock_timestamp() as live from invocations
    where ${isSession(key, sql`session_id`)} and lease_token = ${token} and status = 'running'`);
  const holder = running.rows[0];
  return holder?.live === true
    ? { kind: 'live', invocationId: holder.id, token }
    : { kind: 'dead', invocationId: holder?.id, token };
}

/** Gives a session free whose token no running invocation has. */
export async function releaseSession(tx: Database, key: SessionKey, token: string): Promise<void> {
  await tx.execute(
    sql`update sessions set lease_token = null where ${isSession(key, sql`id`)} and lease_token = ${token}`,
  );
}

/** True when this very run of an invocation has ended: its token is still in the row, its status is an end. */
export async function hasFinished(db: Database, lease: Lease): Promise<boolean> {
  const { rows } = await db.execute(sql`
    select from invocations where ${isInvocation(lease)} and lease_token = ${lease.token}
      and status not in ('queued', 'running')`);
  return rows.length === 1;
}

/** The error of an invocation whose process stopped while it waited: it never began, so its idempotency key is free again. */
const STOPPED_WHILE_QUEUED = 'The invocation was interrupted: its process stopped before it began.';
/** The error of one that lost its session without an ending. */
const LOST_ITS_SESSION = 'The invocation was interrupted: its process lost the session.';

/** Ends the queued invocations that nobody waits for any more. */
export async function endDeadWaiters(db: Database): Promise<void> {
  await db.execute(sql`
    update invocations set status = 'interrupted', end_time = clock_timestamp(), error_code = 'interrupted',
      error_message = ${STOPPED_WHILE_QUEUED}, idempotency_key = null
    where status = 'queued' and lease_expire_time < clock_timestamp()`);
}

/** Ends invocations that say they run and hold no session; lists the sessions whose holder is dead, longest first. */
export async function sweepInvocations(db: Database, limit: number): Promise<SessionKey[]> {
  await db.execute(sql`
    update invocations i set status = 'interrupted', end_time = clock_timestamp(), error_code = 'interrupted',
      error_message = ${LOST_ITS_SESSION}
    where i.status = 'running' and i.lease_expire_time < clock_timestamp() and not exists (
      select from sessions s where s.app_name = i.app_name and s.user_id = i.user_id and s.id = i.session_id
        and s.lease_token = i.lease_token)`);
  const { rows } = await db.execute<Record<'app_name' | 'user_id' | 'session_id', string>>(sql`
    select app_name, user_id, session_id from invocations
    where status = 'running' and lease_expire_time < clock_timestamp() order by lease_expire_time limit ${limit}`);
  return rows.map((row) => ({ appName: row.app_name, userId: row.user_id, sessionId: row.session_id }));
}
