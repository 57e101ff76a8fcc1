import { sql } from 'drizzle-orm';
import { toErrorCode } from '../core/error-codes.ts';
import type { Database } from '../db/database.ts';
import { fromJsonb, fromText } from '../db/json-escape.ts';
import { isInvocation, isSession } from '../sessions/session-key.ts';
import type { Event } from '../core/event.ts';
import type { SessionKey } from '../core/session.ts';
import { type InvocationError, type InvocationStatus, stoppedMessage } from './invocation.ts';

/** The events of one invocation, in order. */
export async function listInvocationEvents(db: Database, key: SessionKey, invocationId: string): Promise<Event[]> {
  const { rows } = await db.execute<{ text: string }>(sql`
    select payload::text as text from events
    where ${isSession(key, sql`session_id`)} and invocation_id = ${invocationId} order by sequence`);
  return rows.map(({ text }) => JSON.parse(fromJsonb(text)) as Event);
}

/** At most `limit` events after a sequence, in order; `undefined` where there is no such session. */
export async function listEventsAfter(
  db: Database,
  key: SessionKey,
  afterSequence: number,
  limit: number,
): Promise<{ sequence: number; text: string; invocationId: string }[] | undefined> {
  const { rows } = await db.execute<{ sequence: number | null; text: string; invocation_id: string }>(sql`
    select e.sequence, e.payload::text as text, e.invocation_id
    from sessions s
    left join lateral (
      select * from events where app_name = s.app_name and user_id = s.user_id and session_id = s.id
        and sequence > ${afterSequence} order by sequence limit ${limit}) e on true
    where s.app_name = ${key.appName} and s.user_id = ${key.userId} and s.id = ${key.sessionId}
    order by e.sequence`);
  if (rows.length === 0) return undefined;
  return rows.flatMap(({ sequence, text, invocation_id }) =>
    sequence === null ? [] : [{ sequence, text: fromJsonb(text), invocationId: invocation_id }],
  );
}

/** The sequence of the first event of an invocation; 0 where it has none. */
export async function findFirstSequence(db: Database, key: SessionKey, invocationId: string): Promise<number> {
  const { rows } = await db.execute<{ first: number }>(sql`
    select coalesce(min(sequence), 0)::int as first from events
    where ${isSession(key, sql`session_id`)} and invocation_id = ${invocationId}`);
  return rows[0]?.first ?? 0;
}

/** The JSON texts of an invocation's events, in order; `bySpeaker` picks those of the user or those of the agent. */
export async function listEventTexts(
  db: Database,
  key: SessionKey,
  invocationId: string,
  bySpeaker: 'user' | 'agent',
): Promise<string[]> {
  const { rows } = await db.execute<{ text: string }>(sql`
    select payload::text as text from events
    where ${isSession(key, sql`session_id`)} and invocation_id = ${invocationId}
      and (author = 'user') = ${bySpeaker === 'user'} order by sequence`);
  return rows.map(({ text }) => fromJsonb(text));
}

/** Events of a session by their ids, in order: how a writer that got no answer learns what it wrote. */
export async function findEventsById(
  db: Database,
  key: SessionKey,
  ids: string[],
): Promise<{ sequence: number; text: string }[]> {
  const { rows } = await db.execute<{ sequence: number; text: string }>(sql`
    select sequence, payload::text as text from events
    where ${isSession(key, sql`session_id`)} and id = any(${sql.param(ids)}::text[]) order by sequence`);
  return rows.map(({ sequence, text }) => ({ sequence, text: fromJsonb(text) }));
}

/** The JSON text of an invocation as the wire shows it. */
const invocationText = sql`
  '{"id":' || to_json(i.id) || ',"appName":' || to_json(i.app_name) || ',"userId":' || to_json(i.user_id) ||
  ',"sessionId":' || to_json(i.session_id) || ',"status":' || to_json(i.status) ||
  ',"createTime":' || extract(epoch from i.create_time) ||
  coalesce(',"startTime":' || extract(epoch from i.start_time), '') ||
  coalesce(',"endTime":' || extract(epoch from i.end_time), '') ||
  ',"llmCalls":' || i.llm_calls || ',"toolCalls":' || i.tool_calls ||
  ',"promptTokens":' || i.prompt_tokens || ',"outputTokens":' || i.output_tokens ||
  coalesce(',"error":{"code":' || to_json(i.error_code) || ',"message":' || to_json(i.error_message) || '}', '') || '}'`;

/** One invocation as JSON text; `undefined` where there is none. */
export async function findInvocationText(db: Database, key: SessionKey, id: string): Promise<string | undefined> {
  const { rows } = await db.execute<{ text: string }>(
    sql`select ${invocationText} as text from invocations i where ${isSession(key, sql`i.session_id`)} and i.id = ${id}`,
  );
  return rows[0] && fromJsonb(rows[0].text);
}

/** The invocations of a session as the JSON text of an array, newest first, then by id; at most `limit`. */
export async function listInvocationsText(db: Database, key: SessionKey, limit: number): Promise<string> {
  const { rows } = await db.execute<{ text: string }>(sql`
    select ${invocationText} as text from invocations i where ${isSession(key, sql`i.session_id`)}
    order by i.create_time desc, i.id desc limit ${limit}`);
  return `[${rows.map(({ text }) => fromJsonb(text)).join(',')}]`;
}

/** An invocation found by its idempotency key. */
export interface KeyedInvocation {
  key: SessionKey;
  invocationId: string;
  status: InvocationStatus;
  hash: string;
  answer: string | undefined;
  error: InvocationError | undefined;
  /** False where the process that ran it is gone. */
  live: boolean;
}

/** The invocation that a user's idempotency key belongs to. */
export async function findByIdempotencyKey(
  db: Database,
  { appName, userId }: SessionKey,
  idempotencyKey: string,
): Promise<KeyedInvocation | undefined> {
  const { rows } = await db.execute<
    Record<'session_id' | 'id' | 'status' | 'request_hash', string> & {
      answer: string | null;
      error_code: string | null;
      error_message: string | null;
      live: boolean;
    }
  >(sql`
    select session_id, id, status, request_hash, answer, error_code, error_message,
           lease_expire_time > clock_timestamp() as live
    from invocations where app_name = ${appName} and user_id = ${userId} and idempotency_key = ${idempotencyKey}`);
  const row = rows[0];
  if (!row) return undefined;
  return {
    key: { appName, userId, sessionId: row.session_id },
    invocationId: row.id,
    status: row.status as InvocationStatus,
    hash: row.request_hash,
    answer: row.answer ?? undefined,
    error:
      row.error_code === null
        ? undefined
        : { code: toErrorCode(row.error_code), message: fromText(row.error_message ?? '') },
    live: row.live,
  };
}

/**
 * Asks an invocation to end as `cancelled` or `interrupted`. A queued one ends at once, a running one when its process sees it,
 * a paused one (nobody runs it) at once.
 * @returns its status after the request; `undefined` where there is no such invocation.
 */
export async function requestStop(
  db: Database,
  key: SessionKey,
  invocationId: string,
  status: 'cancelled' | 'interrupted',
): Promise<InvocationStatus | undefined> {
  const { rows } = await db.execute<{ status: InvocationStatus }>(sql`
    update invocations set
      cancel_status = case when status in ('queued', 'running') then ${status} else cancel_status end,
      end_time = case when status in ('queued', 'paused') then clock_timestamp() else end_time end,
      error_code = case when status in ('queued', 'paused') then ${status} else error_code end,
      error_message = case when status in ('queued', 'paused') then ${stoppedMessage(status)} else error_message end,
      status = case when status in ('queued', 'paused') then ${status} else status end
    where ${isInvocation({ key, invocationId })}
    returning status`);
  return rows[0]?.status;
}

/** Frees the idempotency key of an invocation that did nothing. */
export async function forgetKey(db: Database, key: SessionKey, invocationId: string): Promise<void> {
  await db.execute(sql`update invocations set idempotency_key = null where ${isInvocation({ key, invocationId })}`);
}

/** Forgets idempotency keys that are older than `hours`, those of invocations and of other requests. */
export async function forgetIdempotencyKeys(db: Database, hours: number): Promise<void> {
  const age = sql`clock_timestamp() - ${hours} * interval '1 hour'`;
  await db.execute(sql`delete from idempotency_keys where create_time < ${age}`);
  await db.execute(sql`
    update invocations set idempotency_key = null where idempotency_key is not null and create_time < ${age}`);
}
