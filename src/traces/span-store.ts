import { sql } from 'drizzle-orm';
import type { Database } from '../db/database.ts';
import { fromJsonb, toJsonb, toText } from '../db/json-escape.ts';
import type { Event } from '../core/event.ts';
import type { SessionKey } from '../core/session.ts';
import type { Span } from './span.ts';

/** Inserts spans in one statement; one that is there already stays as it is. */
export async function insertSpans(db: Database, spans: Span[]): Promise<void> {
  const rows = spans.map(({ key, startNs, endNs, parentId, eventId, name, ...span }) => ({
    ...key,
    ...span,
    name: toText(name),
    parentId: parentId ?? null,
    eventId: eventId ?? null,
    startNs: String(startNs),
    endNs: String(endNs),
  }));
  await db.execute(sql`
    insert into spans (app_name, user_id, session_id, trace_id, id, parent_id, event_id, name, start_ns, end_ns, attributes)
    select s."appName", s."userId", s."sessionId", s."traceId", s.id, s."parentId", s."eventId", s.name,
           s."startNs", s."endNs", s.attributes
    from jsonb_to_recordset(${toJsonb(rows)}::jsonb) as s(
      "appName" text, "userId" text, "sessionId" text, "traceId" text, id text, "parentId" text, "eventId" text, name text,
      "startNs" bigint, "endNs" bigint, attributes jsonb)
    on conflict do nothing`);
}

/** Whose spans are asked for: those of these applications, and of one user only where `userId` is given. */
export interface SpanScope {
  appNames: string[];
  userId: string | undefined;
}

const inScope = ({ appNames, userId }: SpanScope) => sql`
  app_name in (select jsonb_array_elements_text(${JSON.stringify(appNames)}::jsonb))
  and (${userId ?? null}::text is null or user_id = ${userId ?? null})`;

/** Most spans of one answer, the newest: 500 model calls with their tools fit. */
const MAX_SPANS = 5_000;

/** The spans of a session as JSON text in the shape that the Web UI validates, by start; `[]` where there is none. */
export async function listSessionSpansText(db: Database, scope: SpanScope, sessionId: string): Promise<string> {
  const { rows } = await db.execute<{ text: string }>(sql`
    select coalesce(json_agg(json_build_object(
             'name', name, 'span_id', id, 'trace_id', trace_id, 'start_time', start_ns, 'end_time', end_ns,
             'attributes', attributes, 'parent_span_id', parent_id) order by start_ns, end_ns desc, id), '[]')::text as text
    from (select * from spans where ${inScope(scope)} and session_id = ${sessionId}
          order by start_ns desc limit ${MAX_SPANS}) newest`);
  return fromJsonb(rows[0]?.text ?? '[]');
}

/** The attributes of the latest span of an event with its ids, as JSON text; `undefined` where there is none. */
export async function findEventTraceText(db: Database, scope: SpanScope, eventId: string): Promise<string | undefined> {
  const { rows } = await db.execute<{ text: string }>(sql`
    select (attributes || jsonb_build_object('trace_id', trace_id, 'span_id', id))::text as text
    from spans where ${inScope(scope)} and event_id = ${eventId}
    order by start_ns desc, id limit 1`);
  return rows[0] && fromJsonb(rows[0].text);
}

/** One event of a session; `undefined` where there is none. */
export async function findEvent(db: Database, key: SessionKey, eventId: string): Promise<Event | undefined> {
  const { rows } = await db.execute<{ text: string }>(sql`
    select payload::text as text from events
    where app_name = ${key.appName} and user_id = ${key.userId} and session_id = ${key.sessionId} and id = ${eventId}`);
  return rows[0] && (JSON.parse(fromJsonb(rows[0].text)) as Event);
}

/** Rows of one deletion: short enough never to hold locks for long. */
const DELETED_AT_ONCE = 1_000;

/** Deletes the spans that are older than so many hours, in short statements. @returns how many there were. */
export async function deleteOldSpans(db: Database, hours: number): Promise<number> {
  for (let total = 0; ; ) {
    const { rowCount } = await db.execute(sql`
      delete from spans where ctid = any(array(
        select ctid from spans where create_time < clock_timestamp() - ${hours} * interval '1 hour'
        order by create_time limit ${DELETED_AT_ONCE} for update skip locked))`);
    total += rowCount ?? 0;
    if ((rowCount ?? 0) < DELETED_AT_ONCE) return total;
  }
}
