import { type SQL, and, eq, ne, sql } from 'drizzle-orm';
import type { AnyPgColumn } from 'drizzle-orm/pg-core';
import type { StoredEvent } from './append-store.ts';
import type { Database } from '../../platform/db/database.ts';
import { unescapeJson } from '../../platform/db/json-escape.ts';
import { events, sessions } from '../../platform/db/schema/schema.ts';
import { bytesBefore } from '../../platform/db/sql.ts';
import { statement, value } from '../../platform/db/statement.ts';
import type { JsonStream } from './json-stream.ts';
import { type GivenSession, isSession, KEY } from './session-key.ts';
import { s } from './session-text.ts';
import { type FunctionCall, getFunctionCalls } from '../../core/content.ts';
import { type Event, withoutRewound } from '../../core/event.ts';
import type { SessionKey } from '../../core/session.ts';
import { parseExactJson } from '../../core/exact-json.ts';

const payloadText = sql<string>`${events.payload}::text`;
const toEvent = (text: string) => parseExactJson(unescapeJson(text)) as Event;

/** Some of a session's events as the JSON text of an array. */
export interface EventPage extends JsonStream {
  /** Sequence after which the next page begins; `undefined` where this is the last. */
  next: number | undefined;
}

/** Lists the events after a sequence, oldest first, fewer where they are large; `undefined` without a session. */
export async function listEvents(
  db: Database,
  key: SessionKey,
  afterSequence: number,
  limit: number,
): Promise<EventPage | undefined> {
  const pieces = await selectPage(db, { ...key, after: afterSequence, limit });
  const last = pieces.at(-1);
  if (!last) return undefined;
  const next = last.last === null || last.last === last.final ? undefined : last.last;
  return { first: ['[', ...joined(pieces.flatMap(({ text }) => (text === null ? [] : [text]))), ']'], next };
}

/** Pieces of a list with commas between them, apart: to send them as one string Node would copy all of them again. */
export const joined = (texts: string[]): string[] =>
  texts.flatMap((text, place) => (place === 0 ? [unescapeJson(text)] : [',', unescapeJson(text)]));

const AFTER = sql`${value('after')}::int`;
const LIMIT = sql`${value('limit')}::int`;

const selectPage = statement<{ text: string | null; last: number | null; final: number }>(
  () => sql`
    select page.text, page.last, ${s.lastSequence} as final
    from ${sessions} ${s} left join ${eventPieces(KEY, AFTER, sql`${s.lastSequence}`, LIMIT)} on true
    where ${isSession(KEY, s)} order by page.place`,
);

/** Maximum of events and bytes of text that one statement reads: no response is ever whole in memory. */
const MAX_EVENTS = 1_000;
const MAX_BYTES = 1_048_576;
/** Bytes of a piece of a page: node-postgres copies a larger row into ever larger buffers. */
const PIECE_BYTES = sql.raw('32768');

/**
 * The piece of a statement that reads the events of a session from one sequence to another, or the first of them:
 * `page` with their `text`, the `last` sequence, and `own`, the ids of those that the runtime made; null for none.
 */
export const eventPage = (
  key: GivenSession,
  after: SQL | number,
  upTo: SQL | number,
  limit: SQL | number = MAX_EVENTS,
): SQL => sql`lateral (
  select string_agg(sized.payload::text, ',' order by sized.sequence) as text, max(sized.sequence) as last,
         array_agg(sized.id order by sized.sequence) filter (where sized.is_own) as own
  from ${sizedEvents(key, after, upTo, limit)} where sized.bytes_before < ${MAX_BYTES}) page`;

const sizedEvents = (key: GivenSession, after: SQL | number, upTo: SQL | number, limit: SQL | number): SQL => sql`(
  select e.*, sum(e.bytes) over (order by e.sequence) - e.bytes as bytes_before
  from (select ${events.payload} as payload, ${events.sequence} as sequence, ${events.id} as id,
               ${events.isFromRuntime} as is_own, ${events.bytes} as bytes from ${events}
        where ${isSession(key, events)} and ${events.sequence} > ${after} and ${events.sequence} <= ${upTo}
        order by ${events.sequence} limit ${limit}) e) sized`;

/**
 * As {@link eventPage} in rows of some `PIECE_BYTES`: `page` with the `text` and the `last` sequence of each, and
 * with its `place`: 0 of the first; no row for none. The caller sorts them by their places.
 */
export const eventPieces = (
  key: GivenSession,
  after: SQL | number,
  upTo: SQL | number,
  limit: SQL | number = MAX_EVENTS,
): SQL => sql`lateral (
  select string_agg(sized.payload::text, ',' order by sized.sequence) as text, max(sized.sequence) as last,
         sized.bytes_before / ${PIECE_BYTES} as place
  from ${sizedEvents(key, after, upTo, limit)}
  where sized.bytes_before < ${MAX_BYTES} group by sized.bytes_before / ${PIECE_BYTES}) page`;

/** The condition that an event is one of session `s`, whosever that is. */
const isOfSession = sql`${events.appName} = ${s.appName} and ${events.userId} = ${s.userId}
  and ${events.sessionId} = ${s.id}`;

/*
 * Without an order PostgreSQL takes the index of ids for as good as that of sequences, since it does not know how long
 * sessions are, and reads all entries of the session: 2.3 ms each time for 3,000 events.
 */

/** The piece of a statement that has the id of the event of a session with a sequence; null where none has it. */
export const eventIdAt = (key: GivenSession, sequence: SQL): SQL => sql`(
  select ${events.id} from ${events}
  where ${isSession(key, events)} and ${events.sequence} >= ${sequence} and ${events.sequence} <= ${sequence}
  order by ${events.sequence} limit 1)`;

/** The condition that an agent called a tool in session `s`. */
export const callsTool = (name: string): SQL => sql`exists (
  select from ${events} where ${isOfSession} and jsonb_path_exists(${events.payload},
    '$.content.parts[*].functionCall.name ? (@ == $tool)', jsonb_build_object('tool', ${name}::text)))`;
/** The condition that session `s` has an event of an error. */
export const hasErrorEvent = sql`exists (
  select from ${events} where ${isOfSession} and ${events.payload} ->> 'errorCode' is not null)`;

/** The moment of a first statement that later ones go on from: the last sequence and the session's own age. */
export interface Moment extends Record<string, unknown> {
  final: number;
  /** Seconds, exact: a time as text depends on the date style, and one with the name of a zone may be another's. */
  created: string;
}

/** The next events of a session up to a moment, in pieces, with the last sequence; `undefined` where it is gone. */
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

/** One event of a session; `undefined` where there is none. */
export async function findEvent(db: Database, key: SessionKey, eventId: string): Promise<Event | undefined> {
  const [row] = await db
    .select({ text: payloadText })
    .from(events)
    .where(and(isSession(key, events), eq(events.id, eventId)));
  return row && toEvent(row.text);
}

/** Events of a session by their ids, in order: how a writer that got no answer learns what it wrote. */
export async function findEventsById(db: Database, key: SessionKey, ids: string[]): Promise<StoredEvent[]> {
  const rows = await db
    .select({ sequence: events.sequence, text: payloadText })
    .from(events)
    .where(and(isSession(key, events), sql`${events.id} = any(${sql.param(ids)}::text[])`))
    .orderBy(events.sequence);
  return rows.map(({ sequence, text }) => ({ sequence, text: unescapeJson(text) }));
}

/** Where a session ends, and which of all that had its name it is. */
export interface SessionEnd {
  /** Sequence of the last event; 0 where there is none. */
  lastSequence: number;
  /** Seconds, exact, as text. */
  createTime: string;
}

/** An event as those who follow a session get it. */
export type FollowedEvent = StoredEvent & { id: string; invocationId: string };

/** Events of a session after a sequence, and where the session ended when they were read. */
export interface EventsAfter extends SessionEnd {
  events: FollowedEvent[];
  /** Id of the event that has the sequence itself; null where none has. */
  placeId: string | null;
}

/** The columns of a {@link SessionEnd}. */
export const sessionEnd = sql`${s.lastSequence} as "lastSequence",
  extract(epoch from ${s.createTime})::text as "createTime"`;

/** At most `limit` events after a sequence, in order; `undefined` where there is no such session. */
export async function listEventsAfter(
  db: Database,
  key: SessionKey,
  afterSequence: number,
  limit: number,
): Promise<EventsAfter | undefined> {
  const rows = await selectAfter(db, { ...key, after: afterSequence, limit });
  const [first] = rows;
  if (!first) return undefined;
  const found = rows.flatMap(({ sequence, text, id, invocationId }) =>
    sequence === null ? [] : [{ sequence, text: unescapeJson(text), id, invocationId }],
  );
  const { lastSequence, createTime, placeId } = first;
  return { events: found, lastSequence, createTime, placeId };
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

/** Where each of some sessions ends, in their order; `undefined` for one that there is not. One statement. */
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

/** The events of one invocation, in order. */
export async function listInvocationEvents(db: Database, key: SessionKey, invocationId: string): Promise<Event[]> {
  const rows = await db
    .select({ text: payloadText })
    .from(events)
    .where(isOfInvocation(key, invocationId))
    .orderBy(events.sequence);
  return rows.map(({ text }) => toEvent(text));
}

/** The next events of one invocation behind a sequence, fewer where they are large; none where there are no more. */
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

/** An invocation some of whose events are read. */
export interface WantedEvents {
  sessionId: string;
  invocationId: string;
  /** Most events of what its user said, the newest ones [all]. */
  said?: number | undefined;
  /** True: those of its agents. */
  made: boolean;
  /** True: those that call, and those that answer a call, whoever made them. */
  calls: boolean;
}

/**
 * Reads chosen events of some invocations of a user, in their order, in one statement. Of those behind the first it
 * reads as many as have no more than `maxBytes` in all.
 * @returns the events of each invocation, in order, as far as they were read
 */
export async function listChosenEvents(
  db: Database,
  { appName, userId }: Pick<SessionKey, 'appName' | 'userId'>,
  wanted: WantedEvents[],
  maxBytes: number,
): Promise<StoredEvent[][]> {
  if (wanted.every(({ said, made, calls }) => said === 0 && !made && !calls)) return wanted.map(() => []);
  const rows = await selectChosen(db, {
    appName,
    userId,
    sessions: wanted.map(({ sessionId }) => sessionId),
    invocations: wanted.map(({ invocationId }) => invocationId),
    said: wanted.map(({ said }) => said ?? INT32_MAX),
    made: wanted.map(({ made }) => made),
    calls: wanted.map(({ calls }) => calls),
    maxBytes,
  });
  const end = rows[0]?.end ?? wanted.length;
  const found: StoredEvent[][] = Array.from({ length: end }, () => []);
  for (const { place, sequence, text } of rows) found[place - 1]?.push({ sequence, text: unescapeJson(text) });
  return found;
}

const INT32_MAX = 2_147_483_647;
const hasPart = (member: string) => sql`jsonb_path_exists(c.payload, ${sql.raw(`'$.content.parts[*].${member}'`)})`;
/** The choice goes by columns: no payload is opened but to look for calls, and none is sent that is not shown. */
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

/** Lists those calls of a session that have one of these ids, but for what is rewound; no other part is sent. */
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

/** The JSON texts of an invocation's events, in order; `bySpeaker` picks those of the user or those of the agent. */
export async function listEventTexts(
  db: Database,
  key: SessionKey,
  invocationId: string,
  bySpeaker: 'user' | 'agent',
): Promise<string[]> {
  const isBySpeaker = bySpeaker === 'user' ? eq(events.author, 'user') : ne(events.author, 'user');
  const rows = await db
    .select({ text: payloadText })
    .from(events)
    .where(and(isOfInvocation(key, invocationId), isBySpeaker))
    .orderBy(events.sequence);
  return rows.map(({ text }) => unescapeJson(text));
}

/** Finds the place behind which all events of an invocation stand; that where the session ends for one without any. */
export async function findPlaceBefore(db: Database, key: SessionKey, invocationId: string): Promise<number> {
  const { rows } = await db.execute<{ place: number | null }>(sql`
    select coalesce((select min(${events.sequence}) - 1 from ${events} where ${isOfInvocation(key, invocationId)}),
                    ${s.lastSequence}) as place
    from ${sessions} ${s} where ${isSession(key, s)}`);
  return rows[0]?.place ?? 0;
}

/**
 * The piece of a statement that reads the words of a session's next events, but for a first larger one no more bytes of
 * them: `(id, sequence, author, event_time, bytes, content, text)`, no thoughts. `isDone` leaves events out by id.
 */
export const saidInSession = (
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
