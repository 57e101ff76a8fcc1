import { type SQL, sql } from 'drizzle-orm';
import { appendCtes, bumpSession, newAppend } from '../db/append-events.ts';
import type { Database } from '../db/database.ts';
import { fromJsonb, toJsonb, toText } from '../db/json-text.ts';
import { LeaseLostError } from '../errors.ts';
import type { Event, NewEvent } from '../sessions/event.ts';
import { EVAL_SESSION_ID_PREFIX, type SessionKey } from '../sessions/session.ts';
import type { InvocationError, InvocationStatus } from './invocation.ts';

/** A running invocation and its right to write: the token stands in the session row too, where every write asks for it. */
export interface Lease {
  key: SessionKey;
  invocationId: string;
  token: string;
  /** How long the lease lasts without a renewal. */
  durationMs: number;
}

const isSession = ({ appName, userId, sessionId }: SessionKey, id: SQL) =>
  sql`app_name = ${appName} and user_id = ${userId} and ${id} = ${sessionId}`;
const expiry = (durationMs: number) => sql`clock_timestamp() + ${durationMs} * interval '1 millisecond'`;

/**
 * Claims a session that runs nothing: lease, invocation row and the first events in one statement (one round trip).
 * @returns false when the session is busy, or absent and `createSession` is false; nothing was written then.
 */
export async function claimSession(
  db: Database,
  lease: Lease,
  events: NewEvent[],
  createSession: boolean,
): Promise<boolean> {
  const { key, token } = lease;
  const append = newAppend(key, events);
  const claim = createSession
    ? sql`
      insert into sessions (app_name, user_id, id, state, last_sequence, lease_token, is_eval)
      values (${key.appName}, ${key.userId}, ${key.sessionId}, ${toJsonb(append.delta.session)}::jsonb, ${events.length},
              ${token}, ${key.sessionId.startsWith(EVAL_SESSION_ID_PREFIX)})
      on conflict (app_name, user_id, id) do update set ${bumpSession(append)}, lease_token = excluded.lease_token
      where sessions.lease_token is null`
    : sql`
      update sessions set ${bumpSession(append)}, lease_token = ${token}
      where ${isSession(key, sql`id`)} and lease_token is null`;
  const { rows } = await db.execute(sql`
    with bumped as (${claim} returning sessions.last_sequence, sessions.update_time),
    begun as (
      insert into invocations (app_name, user_id, session_id, id, status, lease_token, lease_expire_time, start_time)
      select ${key.appName}, ${key.userId}, ${key.sessionId}, ${lease.invocationId}, 'running', ${token}::uuid,
             ${expiry(lease.durationMs)}, clock_timestamp()
      from bumped)
    ${appendCtes(append)}
    select from bumped`);
  return rows.length === 1;
}

/** Prolongs a lease. @returns false when it is lost; its holder must stop. */
export async function renewLease(db: Database, lease: Lease): Promise<boolean> {
  const { rows } = await db.execute(sql`
    update invocations set lease_expire_time = ${expiry(lease.durationMs)}
    where ${isSession(lease.key, sql`session_id`)} and id = ${lease.invocationId}
      and lease_token = ${lease.token} and status = 'running'
    returning id`);
  return rows.length === 1;
}

/** How an invocation ended, as its row keeps it. */
export interface InvocationOutcome {
  status: InvocationStatus;
  error?: InvocationError | undefined;
  /** The answer as it is sent. */
  answer?: string | undefined;
  llmCalls?: number;
  promptTokens?: number;
  outputTokens?: number;
}

/**
 * Ends an invocation: last events, status and answer, and the session given free, in one statement: success may be told after it.
 * @returns the events' JSON text. @throws {LeaseLostError} when the lease is another's by now; nothing was written then.
 */
export async function finishInvocation(
  db: Database,
  lease: Lease,
  events: NewEvent[],
  outcome: InvocationOutcome,
): Promise<string[]> {
  const append = newAppend(lease.key, events);
  const { rows } = await db.execute<{ texts: string[] }>(sql`
    with bumped as (
      update sessions set ${bumpSession(append)}, lease_token = null
      where ${isSession(lease.key, sql`id`)} and lease_token = ${lease.token}
      returning last_sequence, update_time),
    ended as (
      update invocations set
        status = ${outcome.status}, end_time = clock_timestamp(), answer = ${outcome.answer ?? null},
        error_code = ${outcome.error?.code ?? null},
        error_message = ${outcome.error ? toText(outcome.error.message) : null},
        llm_calls = llm_calls + ${outcome.llmCalls ?? 0}, prompt_tokens = prompt_tokens + ${outcome.promptTokens ?? 0},
        output_tokens = output_tokens + ${outcome.outputTokens ?? 0}
      from bumped
      where ${isSession(lease.key, sql`session_id`)} and id = ${lease.invocationId} and lease_token = ${lease.token})
    ${appendCtes(append)}
    select array(select payload::text from appended order by sequence) as texts from bumped`);
  const row = rows[0];
  if (!row) throw new LeaseLostError(`The invocation no longer holds session ${lease.key.sessionId}.`);
  return row.texts.map(fromJsonb);
}

/** Who holds a session: nobody (`free`), a live invocation, one whose lease is over, or there is no such session. */
export type Holder = { kind: 'absent' | 'free' | 'live' } | { kind: 'dead'; invocationId: string; token: string };

/** Finds the holder of a session and, inside a transaction, locks the session row until its end. */
export async function findHolder(db: Database, key: SessionKey): Promise<Holder> {
  const { rows } = await db.execute<{ token: string | null; id: string | null; live: boolean | null }>(sql`
    select s.lease_token as token, i.id, i.lease_expire_time > clock_timestamp() as live
    from sessions s
    left join invocations i on i.app_name = s.app_name and i.user_id = s.user_id and i.session_id = s.id
      and i.lease_token = s.lease_token and i.status = 'running'
    where ${sql`s.app_name = ${key.appName} and s.user_id = ${key.userId} and s.id = ${key.sessionId}`}
    for update of s`);
  const row = rows[0];
  if (!row) return { kind: 'absent' };
  if (row.token === null) return { kind: 'free' };
  if (row.live === true) return { kind: 'live' };
  return { kind: 'dead', invocationId: row.id ?? '', token: row.token };
}

/** The events of one invocation, in order. */
export async function listInvocationEvents(db: Database, key: SessionKey, invocationId: string): Promise<Event[]> {
  const { rows } = await db.execute<{ text: string }>(sql`
    select payload::text as text from events
    where ${isSession(key, sql`session_id`)} and invocation_id = ${invocationId} order by sequence`);
  return rows.map(({ text }) => JSON.parse(fromJsonb(text)) as Event);
}
