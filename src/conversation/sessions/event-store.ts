import { type SQL, and, eq, gt, gte, ne, sql } from 'drizzle-orm';
import type { AnyPgColumn } from 'drizzle-orm/pg-core';
import type { StoredEvent } from './append-store.ts';
import type { Database } from '../../platform/db/database.ts';
import { unescapeJson, unescapeList } from '../../platform/json-escape.ts';
import { events, sessions } from '../../platform/db/schema/schema.ts';
import { bytesBefore, jsonTextOf } from '../../platform/db/sql.ts';
import { statement, value } from '../../platform/db/statement.ts';
import type { JsonStream } from '../../platform/json-stream.ts';
import { type SessionRef, isSession, KEY } from './session-row.ts';
import { s } from './session-text.ts';
import { type FunctionCall, getFunctionCalls } from '../../core/content.ts';
import { type Event, withoutRewound } from '../../core/event.ts';
import type { SessionKey } from '../../core/session.ts';

const payloadText = jsonTextOf(events.payload);

/** A page of a session's events, as the JSON text of an array. */
interface EventPage extends JsonStream {
  /** Sequence of the page's last event; the next page starts after it. `undefined` on the last page. */
  next: number | undefined;
}

/** Events of a session that a page of one invocation looks through: 0.5 ms, where all of 20,000 take 10 ms. */
const MAX_LOOKED_THROUGH = 2_000;

/**
 * A session's events, or only those of an invocation, oldest first, fewer than `limit` if large, or if the invocation's
 * are further apart than {@link MAX_LOOKED_THROUGH}.
 * @returns `undefined` if the session does not exist
 */
export async function listEvents(
  db: Database,
  key: SessionKey,
  afterSequence: number,
  limit: number,
  invocationId?: string,
): Promise<EventPage | undefined> {
  const range = { ...key, after: afterSequence, limit };
  const pieces =
    invocationId === undefined
      ? await selectPage(db, range)
      : await selectPageOfInvocation(db, { ...range, invocationId });
  const last = pieces.at(-1);
  if (!last) return undefined;
  const end = last.last ?? last.reached;
  const next = end === last.final ? undefined : end;
  return { first: ['[', ...unescapeList(pieces.flatMap(({ text }) => (text === null ? [] : [text]))), ']'], next };
}

const AFTER = sql`${value('after')}::int`;
const LIMIT = sql`${value('limit')}::int`;

interface PieceRow extends Record<string, unknown> {
  text: string | null;
  last: number | null;
  /** Sequence up to which the session was looked through if the page has no event. */
  reached: number;
  /** Sequence of the session's last event. */
  final: number;
}

const pageOf = (upTo: SQL, which?: SQL): SQL => sql`
    select page.text, page.last, ${upTo} as reached, ${s.lastSequence} as final
    from ${sessions} ${s} left join ${eventPieces(KEY, AFTER, upTo, LIMIT, which)} on true
    where ${isSession(KEY, s)} order by page.place`;

const selectPage = statement<PieceRow>(() => pageOf(sql`${s.lastSequence}`));
const selectPageOfInvocation = statement<PieceRow>(() =>
  pageOf(
    sql`least(${s.lastSequence}, ${AFTER}::bigint + ${MAX_LOOKED_THROUGH})::int`,
    sql` and ${events.invocationId} = ${value('invocationId')}`,
  ),
);

/** Maximum number of events of a read, and maximum bytes of their JSON, so that a whole response is never in memory. */
const MAX_EVENTS = 1_000;
const MAX_BYTES = 1_048_576;
/** Maximum bytes of JSON per row, because node-postgres copies larger rows repeatedly while its buffer grows. */
const PIECE_BYTES = sql.raw('32768');

/**
 * SQL fragment for a lateral join with the alias `page`: one row with a session's events between two sequences as JSON
 * (`text`), the sequence of the last one (`last`) and the ids of those that the runtime made (`own`, null if none). It
 * ends before the limit of events if their JSON reaches {@link MAX_BYTES}.
 */
export const eventPage = (
  key: SessionRef,
  after: SQL | number,
  upTo: SQL | number,
  limit: SQL | number = MAX_EVENTS,
): SQL => sql`lateral (
  select string_agg(sized.payload::text, ',' order by sized.sequence) as text, max(sized.sequence) as last,
         array_agg(sized.id order by sized.sequence) filter (where sized.is_own) as own
  from ${sizedEvents(key, after, upTo, limit)} where sized.bytes_before < ${MAX_BYTES}) page`;

const sizedEvents = (
  key: SessionRef,
  after: SQL | number,
  upTo: SQL | number,
  limit: SQL | number,
  which: SQL = sql``,
): SQL => sql`(
  select e.*, sum(e.bytes) over (order by e.sequence) - e.bytes as bytes_before
  from (select ${events.payload} as payload, ${events.sequence} as sequence, ${events.id} as id,
               ${events.isFromRuntime} as is_own, ${events.bytes} as bytes from ${events}
        where ${isSession(key, events)} and ${events.sequence} > ${after} and ${events.sequence} <= ${upTo}${which}
        order by ${events.sequence} limit ${limit}) e) sized`;

/**
 * Like {@link eventPage}, but in several rows `page` of about `PIECE_BYTES` each, with `text`, `last` sequence and
 * `place` (0 for the first row), by which the caller must sort. Without events there is no row. `which` is a further
 * condition on the events, with its ` and`.
 */
export const eventPieces = (
  key: SessionRef,
  after: SQL | number,
  upTo: SQL | number,
  limit: SQL | number = MAX_EVENTS,
  which?: SQL,
): SQL => sql`lateral (
  select string_agg(sized.payload::text, ',' order by sized.sequence) as text, max(sized.sequence) as last,
         sized.bytes_before / ${PIECE_BYTES} as place
  from ${sizedEvents(key, after, upTo, limit, which)}
  where sized.bytes_before < ${MAX_BYTES} group by sized.bytes_before / ${PIECE_BYTES}) page`;

const isOfSession = sql`${events.appName} = ${s.appName} and ${events.userId} = ${s.userId}
  and ${events.sessionId} = ${s.id}`;

// `order by` forces the index on sequences. Without it PostgreSQL may use the index on ids, because it does not know
// the length of sessions, and then read the whole session: 2.3 ms for 3,000 events.

/** SQL subquery: the id of the event with a sequence; null if there is none. */
export const eventIdAt = (key: SessionRef, sequence: SQL): SQL => sql`(
  select ${events.id} from ${events}
  where ${isSession(key, events)} and ${events.sequence} >= ${sequence} and ${events.sequence} <= ${sequence}
  order by ${events.sequence} limit 1)`;

/** SQL condition: an agent called the tool in session `s`. */
export const callsTool = (name: string): SQL => sql`exists (
  select from ${events} where ${isOfSession} and jsonb_path_exists(${events.payload},
    '$.content.parts[*].functionCall.name ? (@ == $tool)', jsonb_build_object('tool', ${name}::text)))`;
export const hasErrorEvent = sql`exists (
  select from ${events} where ${isOfSession} and ${events.payload} ->> 'errorCode' is not null)`;

/**
 * The session as a first statement saw it. Later reads end at its last sequence, and notice by the creation time that
 * the session was re-created.
 */
export interface Moment extends Record<string, unknown> {
  final: number;
  /** Exact Unix seconds; a formatted time would depend on the date style, and time zone abbreviations are ambiguous. */
  created: string;
}

/** Reads the next events up to the snapshot's last sequence. @returns `undefined` if the session was deleted */
export async function findEventPage(
  db: Database,
  key: SessionKey,
  after: number,
  { final, created }: Moment,
): Promise<{ texts: string[]; last: number } | undefined> {
  const pieces = await selectFurtherPage(db, { ...key, after, final, created });
  const last = pieces.at(-1)?.last;
  return last === undefined ? undefined : { texts: pieces.map(({ text }) => text), last };
}

const selectFurtherPage = statement<{ text: string; last: number }>(
  () => sql`
    select page.text, page.last
    from ${sessions} ${s} cross join ${eventPieces(KEY, AFTER, sql`${value('final')}::int`)}
    where ${isSession(KEY, s)} and extract(epoch from ${s.createTime}) = ${value('created')}::numeric
    order by page.place`,
);

export async function findEvent(db: Database, key: SessionKey, eventId: string): Promise<Event | undefined> {
  const [row] = await db
    .select({ event: events.payload })
    .from(events)
    .where(and(isSession(key, events), eq(events.id, eventId)));
  return row?.event as Event | undefined;
}

/** Finds events by id, in order. A writer whose commit was not confirmed learns from this what was stored. */
export async function findEventsById(db: Database, key: SessionKey, ids: string[]): Promise<StoredEvent[]> {
  return db
    .select({ sequence: events.sequence, text: payloadText })
    .from(events)
    .where(and(isSession(key, events), sql`${events.id} = any(${sql.param(ids)}::text[])`))
    .orderBy(events.sequence);
}

/** Finds an event of a running invocation by id, and the events behind it that the invocation has stored since. */
export async function findStep(
  db: Database,
  key: SessionKey,
  invocationId: string,
  eventId: string,
): Promise<StoredEvent[]> {
  const [step] = await findEventsById(db, key, [eventId]);
  if (!step) return [];
  return db
    .select({ sequence: events.sequence, text: payloadText })
    .from(events)
    .where(and(isOfInvocation(key, invocationId), gte(events.sequence, step.sequence), events.isFromRuntime))
    .orderBy(events.sequence);
}

/** A session's last sequence and its creation time, which differs if a session with the same id is re-created. */
export interface SessionEnd {
  lastSequence: number;
  /** Exact Unix seconds, as text. */
  createTime: string;
}

export type FollowedEvent = StoredEvent & { id: string; invocationId: string };

export interface EventsAfter extends SessionEnd {
  events: FollowedEvent[];
  /** Id of the event after which the list begins; null if there is no such event. */
  placeId: string | null;
}

export const sessionEnd = sql`${s.lastSequence} as "lastSequence",
  extract(epoch from ${s.createTime})::text as "createTime"`;

/** Lists a session's next events in order. @returns `undefined` if the session does not exist */
export async function listEventsAfter(
  db: Database,
  key: SessionKey,
  afterSequence: number,
  limit: number,
): Promise<EventsAfter | undefined> {
  const rows = await selectAfter(db, { ...key, after: afterSequence, limit });
  const [first] = rows;
  if (!first) return undefined;
  const followed = rows.flatMap(({ sequence, text, id, invocationId }) =>
    sequence === null ? [] : [{ sequence, text: unescapeJson(text), id, invocationId }],
  );
  const { lastSequence, createTime, placeId } = first;
  return { events: followed, lastSequence, createTime, placeId };
}

type RowAfter = Omit<EventsAfter, 'events'> & Omit<FollowedEvent, 'sequence'> & { sequence: number | null };

const selectAfter = statement<RowAfter>(
  () => sql`
    select e.sequence, e.payload::text as text, e.id, e."invocationId", ${sessionEnd},
           ${eventIdAt(KEY, AFTER)} as "placeId"
    from ${sessions} ${s}
    left join lateral (
      select sized.*, sum(sized.bytes) over (order by sized.sequence) - sized.bytes as bytes_before
      from (select ${events.sequence} as sequence, ${events.payload} as payload, ${events.bytes} as bytes,
                   ${events.id} as id, ${events.invocationId} as "invocationId"
            from ${events} where ${isSession(KEY, events)} and ${events.sequence} > ${AFTER}
              and ${events.sequence} <= ${s.lastSequence}
            order by ${events.sequence} limit ${LIMIT}) sized) e on e.bytes_before < ${MAX_BYTES}
    where ${isSession(KEY, s)} order by e.sequence`,
);

/** Sessions' last sequences in one statement, in the order of `keys`; `undefined` for a missing session. */
export async function listSessionEnds(db: Database, keys: SessionKey[]): Promise<(SessionEnd | undefined)[]> {
  const column = (name: keyof SessionKey) => sql`${sql.param(keys.map((key) => key[name]))}::text[]`;
  const { rows } = await db.execute<{ lastSequence: number; createTime: string | null }>(sql`
    select ${sessionEnd}
    from unnest(${column('appName')}, ${column('userId')}, ${column('sessionId')})
         with ordinality as wanted(app_name, user_id, id, place)
    left join ${sessions} ${s}
      on ${s.appName} = wanted.app_name and ${s.userId} = wanted.user_id and ${s.id} = wanted.id
    order by wanted.place`);
  return rows.map(({ lastSequence, createTime }) => (createTime === null ? undefined : { lastSequence, createTime }));
}

const isOfInvocation = (key: SessionKey, invocationId: string) =>
  and(isSession(key, events), eq(events.invocationId, invocationId));

export async function listInvocationEvents(db: Database, key: SessionKey, invocationId: string): Promise<Event[]> {
  const rows = await db
    .select({ event: events.payload })
    .from(events)
    .where(isOfInvocation(key, invocationId))
    .orderBy(events.sequence);
  return rows.map(({ event }) => event as Event);
}

/** True if the session has a message of the user that belongs to the invocation. */
export async function hasMessage(db: Database, key: SessionKey, invocationId: string): Promise<boolean> {
  const rows = await db
    .select({ sequence: events.sequence })
    .from(events)
    .where(and(isOfInvocation(key, invocationId), eq(events.author, 'user')))
    .limit(1);
  return rows.length > 0;
}

/** Lists an invocation's next events after a sequence, fewer than `limit` if they are large; empty at the end. */
export async function listNextInvocationEvents(
  db: Database,
  key: SessionKey,
  invocationId: string,
  after: number,
): Promise<StoredEvent[]> {
  const rows = await selectOfInvocation(db, { ...key, invocationId, after });
  return rows.map(({ sequence, text }) => ({ sequence, text: unescapeJson(text) }));
}

const selectOfInvocation = statement<StoredEvent>(
  () => sql`
    select e.sequence, e.payload::text as text
    from (select sized.*, sum(sized.bytes) over (order by sized.sequence) - sized.bytes as bytes_before
          from (select ${events.sequence} as sequence, ${events.payload} as payload, ${events.bytes} as bytes
                from ${events} where ${isSession(KEY, events)} and ${events.invocationId} = ${value('invocationId')}
                  and ${events.sequence} > ${AFTER}
                order by ${events.sequence} limit ${MAX_EVENTS}) sized) e
    where e.bytes_before < ${MAX_BYTES} order by e.sequence`,
);

interface EventSelection {
  sessionId: string;
  invocationId: string;
  /** At most this many user events are read, the newest ones. Default: all. */
  maxUserEvents?: number | undefined;
  agentEvents: boolean;
  /** True: also read events with tool calls or their responses, by any author. */
  calls: boolean;
}

/**
 * Reads selected events of several invocations of a user in one statement. Stops before the invocation that would
 * exceed `maxBytes`; the first invocation is always read.
 * @returns the events of each invocation that was read, in order
 */
export async function listChosenEvents(
  db: Database,
  { appName, userId }: Pick<SessionKey, 'appName' | 'userId'>,
  selections: EventSelection[],
  maxBytes: number,
): Promise<StoredEvent[][]> {
  if (selections.every(({ maxUserEvents, agentEvents, calls }) => maxUserEvents === 0 && !agentEvents && !calls))
    return selections.map(() => []);
  const rows = await selectChosen(db, {
    appName,
    userId,
    sessions: selections.map(({ sessionId }) => sessionId),
    invocations: selections.map(({ invocationId }) => invocationId),
    said: selections.map(({ maxUserEvents }) => maxUserEvents ?? INT32_MAX),
    made: selections.map(({ agentEvents }) => agentEvents),
    calls: selections.map(({ calls }) => calls),
    maxBytes,
  });
  const end = rows[0]?.end ?? selections.length;
  const byInvocation: StoredEvent[][] = Array.from({ length: end }, () => []);
  for (const { place, sequence, text } of rows) byInvocation[place - 1]?.push({ sequence, text: unescapeJson(text) });
  return byInvocation;
}

const INT32_MAX = 2_147_483_647;
const hasPart = (member: string) => sql`jsonb_path_exists(c.payload, ${sql.raw(`'$.content.parts[*].${member}'`)})`;
/** Selects events by their columns first, because their JSON is large: it is only searched for tool calls. */
const selectChosen = statement<StoredEvent & { place: number; end: number | null }>(
  () => sql`
    with chosen as materialized (
      select c.* from (
        select w.place::int as place, w.said, w.made, w.calls, ${events.author} as author, ${events.bytes} as bytes,
               ${events.sequence} as sequence, ${events.payload} as payload,
               row_number() over (partition by w.place, ${events.author} = 'user'
                                  order by ${events.sequence} desc) as newest
        from unnest(${value('sessions')}::text[], ${value('invocations')}::text[], ${value('said')}::int[],
                    ${value('made')}::boolean[], ${value('calls')}::boolean[])
             with ordinality as w(session_id, invocation_id, said, made, calls, place)
        join ${events} on ${events.appName} = ${value('appName')} and ${events.userId} = ${value('userId')}
          and ${events.sessionId} = w.session_id and ${events.invocationId} = w.invocation_id) c
      where case when c.author = 'user' then c.newest <= c.said else c.made end
         or c.calls and (${hasPart('functionResponse')} or ${hasPart('functionCall')})),
    sized as (
      select c.place, c.sequence, c.payload, sum(c.bytes) over (order by c.place) as bytes_to,
             min(c.place) over () as first_place
      from chosen c),
    cut as (select min(place) - 1 as place from sized where bytes_to > ${value('maxBytes')}::bigint and place > first_place)
    select s.place, s.sequence, s.payload::text as text, cut.place as "end"
    from sized s cross join cut where cut.place is null or s.place <= cut.place
    order by s.place, s.sequence`,
);

/**
 * Lists the session's tool calls with these ids, except those that a rewind has undone. The whole events are not read.
 */
export async function listCallsById(db: Database, key: SessionKey, ids: string[]): Promise<FunctionCall[]> {
  if (ids.length === 0) return [];
  const rows = await selectCalls(db, { ...key, ids });
  const outlines = rows.map(({ invocationId, target, calls }) => ({
    invocationId,
    content: { parts: ((calls ?? []) as FunctionCall[]).map((functionCall) => ({ functionCall })) },
    ...(target !== null && { actions: { rewindBeforeInvocationId: target } }),
  }));
  return withoutRewound(outlines).flatMap(({ content }) => getFunctionCalls(content));
}

const selectCalls = statement<{ invocationId: string; target: string | null; calls: unknown[] | null }>(
  () => sql`
    select ${events.invocationId} as "invocationId",
           ${events.payload} -> 'actions' ->> 'rewindBeforeInvocationId' as target,
           (select jsonb_agg(call) from jsonb_path_query(${events.payload}, 'lax $.content.parts[*].functionCall') call
            where call ->> 'id' = any(${value('ids')}::text[])) as calls
    from ${events} where ${isSession(KEY, events)} order by ${events.sequence}`,
);

/** Lists the JSON texts of an invocation's events whose author is the user or an agent, in order. */
export async function listEventTexts(
  db: Database,
  key: SessionKey,
  invocationId: string,
  bySpeaker: 'user' | 'agent',
  after = 0,
): Promise<string[]> {
  const isBySpeaker = bySpeaker === 'user' ? eq(events.author, 'user') : ne(events.author, 'user');
  const rows = await db
    .select({ text: payloadText })
    .from(events)
    .where(and(isOfInvocation(key, invocationId), isBySpeaker, gt(events.sequence, after)))
    .orderBy(events.sequence);
  return rows.map(({ text }) => text);
}

/** The sequence before the invocation's first event, or the session's last if the invocation has no events. */
export async function findPlaceBefore(db: Database, key: SessionKey, invocationId: string): Promise<number> {
  const { rows } = await db.execute<{ place: number | null }>(sql`
    select coalesce((select min(${events.sequence}) - 1 from ${events} where ${isOfInvocation(key, invocationId)}),
                    ${s.lastSequence}) as place
    from ${sessions} ${s} where ${isSession(key, s)}`);
  return rows[0]?.place ?? 0;
}

/**
 * SQL query: the texts in a session's next events, up to `maxBytes` (the first event may exceed it), as rows of `(id,
 * sequence, author, event_time, bytes, content, text)`. The model's thoughts are left out.
 * @param isDone - SQL condition on an event id: events to skip
 */
export const sessionWords = (
  key: SessionKey,
  after: number,
  maxBytes: number,
  isDone: (eventId: AnyPgColumn) => SQL,
): SQL => sql`
  select e.*, e.payload -> 'content' as content, (
    select string_agg(part ->> 'text', ' ') from jsonb_path_query(e.payload, 'lax $.content.parts[*]') part
    where coalesce(part ->> 'thought', 'false') <> 'true') as text
  from (
    select ${events}.*, ${bytesBefore(sql`${events.bytes}`, sql`${events.sequence}`)} as bytes_before
    from ${events}
    where ${isSession(key, events)} and ${events.sequence} > ${after} and not ${isDone(events.id)}
    order by ${events.sequence} limit ${MAX_EVENTS}) e
  where e.bytes_before < ${maxBytes}`;
