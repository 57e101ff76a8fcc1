import { and, desc, eq, getTableColumns, inArray, lt, sql } from 'drizzle-orm';
import { sqlState } from '../../platform/db/client.ts';
import { inBatches, isInBatch } from '../../platform/db/batches.ts';
import type { Database, DatabasePool } from '../../platform/db/database.ts';
import { escapeJson } from '../../platform/json-escape.ts';
import { spans } from '../../platform/db/schema/schema.ts';
import { bytesBefore, insertSelect, jsonTextOf } from '../../platform/db/sql.ts';
import { isOnHold } from '../../conversation/holds/hold-store.ts';
import { isBelow, sessionLock } from '../../conversation/sessions/session-row.ts';
import type { Feature } from '../../platform/feature/feature.ts';
import { type Span, spanSchema } from './span.ts';

/**
 * Inserts spans, in one statement for each session; spans that exist already stay unchanged. Of a session that is gone
 * none is inserted: the statement waits for a deletion under way, which deletes the session's row before its spans.
 * @throws the first error, after the spans of the other sessions, which are of other users
 */
export async function insertSpans(db: Database, newSpans: Span[]): Promise<void> {
  const bySession = Map.groupBy(newSpans, ({ key: { appName, userId, sessionId } }) =>
    JSON.stringify([appName, userId, sessionId]),
  );
  const errors: unknown[] = [];
  for (const ofSession of bySession.values()) {
    await insertOfSession(db, ofSession).catch((error: unknown) => {
      // A database that is away is not asked for each session.
      if (!sqlState(error)) throw error;
      errors.push(error);
    });
  }
  if (errors.length > 0) throw errors[0];
}

async function insertOfSession(db: Database, newSpans: Span[]): Promise<void> {
  const [first] = newSpans;
  if (!first) return;
  const { key: session } = first;
  const rows = newSpans.map(({ traceId, id, name, attributes, startNs, endNs, parentId, eventId, links }) => ({
    traceId,
    id,
    name,
    attributes,
    parentId: parentId ?? null,
    eventId: eventId ?? null,
    startNs: String(startNs),
    endNs: String(endNs),
    links: links ?? null,
  }));
  const insert = insertSelect(spans, {
    appName: session.appName,
    userId: session.userId,
    sessionId: session.sessionId,
    traceId: sql`s."traceId"`,
    id: sql`s.id`,
    parentId: sql`s."parentId"`,
    eventId: sql`s."eventId"`,
    name: sql`s.name`,
    startNs: sql`s."startNs"`,
    endNs: sql`s."endNs"`,
    attributes: sql`s.attributes`,
    links: sql`s.links`,
  });
  await db.execute(sql`
    with held as materialized (${sessionLock(session)})
    ${insert} from held, jsonb_to_recordset(${escapeJson(rows)}::jsonb) as s(
      "traceId" text, id text, "parentId" text, "eventId" text, name text, "startNs" bigint, "endNs" bigint,
      attributes jsonb, links jsonb)
    on conflict do nothing`);
}

/** The spans that a caller may read: those of these applications, and only one user's if `userId` is set. */
export interface SpanScope {
  appNames: string[];
  userId: string | undefined;
}

const inScope = ({ appNames, userId }: SpanScope) =>
  and(inArray(spans.appName, appNames), userId === undefined ? undefined : eq(spans.userId, userId));

/** Maximum number of spans in a response, newest first, and maximum bytes of them. 500 model calls with tools fit. */
const MAX_SPANS = 5_000;
const MAX_BYTES = 8_388_608;

/** Lists a session's spans, sorted by start, as JSON in the format that the Web UI expects. */
export async function listSessionSpansText(db: Database, scope: SpanScope, sessionId: string): Promise<string> {
  const bytes = bytesBefore(sql`octet_length(${spans.attributes}::text)`, sql`${spans.startNs} desc`);
  const newest = db
    .select({ ...getTableColumns(spans), bytesBefore: bytes.as('bytes_before') })
    .from(spans)
    .where(and(inScope(scope), eq(spans.sessionId, sessionId)))
    .orderBy(desc(spans.startNs))
    .limit(MAX_SPANS)
    .as('newest');
  const span = sql`json_build_object(
    'name', ${newest.name}, 'span_id', ${newest.id}, 'trace_id', ${newest.traceId}, 'start_time', ${newest.startNs},
    'end_time', ${newest.endNs}, 'attributes', ${newest.attributes}, 'parent_span_id', ${newest.parentId},
    'links', case when jsonb_typeof(${newest.links}) = 'array' then ${newest.links} else '[]' end)`;
  const order = sql`${newest.startNs}, ${newest.endNs} desc, ${newest.id}`;
  const [row] = await db
    .select({ text: jsonTextOf(sql`coalesce(json_agg(${span} order by ${order}), '[]')`) })
    .from(newest)
    .where(lt(newest.bytesBefore, MAX_BYTES));
  return row?.text ?? '[]';
}

/** Finds attributes and ids of an event's latest span, as JSON. */
export async function findEventTraceText(db: Database, scope: SpanScope, eventId: string): Promise<string | undefined> {
  const ids = sql`jsonb_build_object('trace_id', ${spans.traceId}, 'span_id', ${spans.id})`;
  const [row] = await db
    .select({ text: jsonTextOf(sql`(${spans.attributes} || ${ids})`) })
    .from(spans)
    .where(and(inScope(scope), eq(spans.eventId, eventId)))
    .orderBy(desc(spans.startNs), spans.id)
    .limit(1);
  return row?.text;
}

/** Deletes spans older than `hours`, in batches. @returns the number of deleted spans */
export function deleteOldSpans(db: Database, hours: number, signal?: AbortSignal): Promise<number> {
  const isOld = sql`${spans.createTime} < statement_timestamp() - ${hours} * interval '1 hour'
    and not ${isOnHold(spans)} and not ${isBelow(spans, isOnHold)}`;
  return inBatches(() => db.delete(spans).where(isInBatch(spans, isOld, spans.createTime)), signal);
}

/**
 * Hours for which traces are stored: a developer may return after a weekend, but traces contain prompts and answers.
 */
const TRACE_HOURS = 72;

export const traceFeature = {
  name: 'traces',
  schemas: { Span: spanSchema },
  sweeps: [
    {
      group: 'minutely',
      name: 'deleting old traces',
      run: ({ database, signal }) => deleteOldSpans(database.db, TRACE_HOURS, signal),
    },
  ],
  userTables: [{ table: spans }],
} satisfies Feature<{ database: DatabasePool }>;
