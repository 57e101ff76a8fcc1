import { type Placeholder, type SQL, and, eq, not, sql } from 'drizzle-orm';
import { appendEventCtes, ADVANCED, type EventAppend, givenEvents, newAppend, newSession } from './append-events.ts';
import { type Database, onConflict } from '../db/database.ts';
import { escapeJson, unescapeJson } from '../db/json-escape.ts';
import { statement, value } from '../db/statement.ts';
import { appStates, sessions, userStates } from '../db/schema.ts';
import { eventExists, eventPage, findEventPage } from './event-store.ts';
import { isSession, KEY } from './session-key.ts';
import { estimatedBytes, s, sessionTexts, statesOf, withStates } from './session-text.ts';
import { ConflictError } from '../core/errors.ts';
import type { JsonObject } from '../core/content.ts';
import type { NewEvent } from '../core/event.ts';
import type { SessionCursor } from './session-cursor.ts';
import type { JsonStream } from './json-stream.ts';
import type { SessionKey } from '../core/session.ts';
import { splitDelta } from '../core/state.ts';
import { INT32_MAX } from '../http/operation/parameters.ts';

/** What part of a session's events is wanted; by default all. */
export interface EventRange {
  /** Only events after this sequence. */
  afterSequence?: number | undefined;
  /** Only the newest so many, still oldest first. */
  numRecentEvents?: number | undefined;
}

/**
 * One session with its events as JSON text that PostgreSQL assembled, `undefined` where there is none. One statement
 * unless the events are many. All is of the moment of the first one: events never change and their sequence has no
 * gaps, so that later statements go on up to the last sequence of then, without a transaction that would stay open
 * for a slow reader.
 */
export async function findSession(
  db: Database,
  key: SessionKey,
  { afterSequence = 0, numRecentEvents }: EventRange = {},
): Promise<JsonStream | undefined> {
  const [row] = await selectSession(db, { ...key, afterSequence, numRecentEvents: numRecentEvents ?? INT32_MAX });
  if (!row) return undefined;
  const first = unescapeJson(row.head + row.events);
  if (row.last === null || row.last === row.final) return { first: first + row.tail };
  return { first, rest: readFurtherEvents(db, key, { ...row, last: row.last }) };
}

const [sessionHead, sessionTail] = sessionTexts;
const selectSession = statement<SessionRow>(
  () => sql`
    select ${sessionHead} as head, coalesce(page.text, '') as events, ${sessionTail} as tail, page.last,
           ${s.lastSequence} as final, extract(epoch from ${s.createTime}) as created
    from ${withStates} cross join ${eventPage(
      sql`greatest(${value('afterSequence')}::int, ${s.lastSequence} - ${value('numRecentEvents')}::int)`,
      sql`${s.lastSequence}`,
    )}
    where ${isSession(KEY, s)}`,
);

interface SessionRow extends Record<string, unknown> {
  head: string;
  events: string;
  tail: string;
  /** Sequence of the last event in `events`. */
  last: number | null;
  final: number;
  /** Seconds, exact: a time as text depends on the date style, and one with the name of a zone may be another's. */
  created: string;
}

async function* readFurtherEvents(
  db: Database,
  key: SessionKey,
  { last, tail, ...moment }: SessionRow & { last: number },
): AsyncGenerator<string> {
  for (let after = last; after < moment.final; ) {
    const page = await findEventPage(db, key, after, moment);
    if (!page) throw new ConflictError(`Session ${key.sessionId} was deleted while it was read.`);
    yield `,${unescapeJson(page.text)}`;
    after = page.last;
  }
  yield tail;
}

/** Which part of a user's list of sessions is wanted; by default all of it. */
export interface SessionPage {
  limit?: number | undefined;
  /** Sessions that come after this one in the order of the list. */
  after?: SessionCursor | undefined;
  /** Only sessions updated after this Unix time in seconds. */
  updatedAfter?: number | undefined;
}

/** Sessions that one statement reads where all are wanted, and bytes of their states, but for a first larger one. */
const MAX_SESSIONS = 200;
const MAX_STATE_BYTES = 4_194_304;

/** The rows of `sized` whose states, with the shared ones in each, are not too large together: their number as `n`. */
const fitting = (appName: string | Placeholder, userId: string | Placeholder) => sql`(
  select count(*)::int as n from sized, (select
    coalesce((select octet_length(${appStates.state}::text) from ${appStates}
              where ${appStates.appName} = ${appName}), 0) +
    coalesce((select octet_length(${userStates.state}::text) from ${userStates}
              where ${userStates.appName} = ${appName} and ${userStates.userId} = ${userId}), 0) as bytes) shared
  where sized.place = 1 or sized.bytes + sized.place * shared.bytes <= ${MAX_STATE_BYTES})`;

/**
 * The sessions of one user as the JSON text of an array, newest first, then by id; those of evaluation runs are left
 * out and `events` is always `[]`. It never touches the table of events. One statement on `sessions_list_idx` unless
 * all of very many sessions are wanted; then the list is that of the first one's moment, and each session as it is
 * when its turn comes. `next` is the place of the last one of a page where more follow.
 */
export async function listSessions(
  db: Database,
  appName: string,
  userId: string,
  { after, updatedAfter, limit }: SessionPage = {},
): Promise<JsonStream & { next?: SessionCursor }> {
  const shape = { isPage: limit !== undefined, isAfter: after !== undefined, isSince: updatedAfter !== undefined };
  const [row] = await selectSessions(shape)(db, {
    appName,
    userId,
    size: limit ?? MAX_SESSIONS,
    afterTime: after?.updateTime,
    afterId: after?.id,
    since: updatedAfter === undefined ? undefined : clampedSeconds(updatedAfter),
  });
  const { text = '', further = [], last } = row ?? {};
  const first = `[${unescapeJson(text)}`;
  if (limit !== undefined) return { first: `${first}]`, ...(last && further.length > 0 ? { next: last } : {}) };
  return further.length === 0
    ? { first: `${first}]` }
    : { first, rest: readFurtherSessions(db, appName, userId, further) };
}

interface ListRow {
  text: string;
  further: string[];
  last: SessionCursor | null;
}

/** Which conditions a list has. */
type ListShape = Record<'isPage' | 'isAfter' | 'isSince', boolean>;

const lists = new Map<string, ReturnType<typeof statement<ListRow>>>();

/** The statement of a list of one shape. */
function selectSessions(shape: ListShape): ReturnType<typeof statement<ListRow>> {
  const name = Object.values(shape).join();
  const found = lists.get(name) ?? statement<ListRow>(() => listText(shape));
  lists.set(name, found);
  return found;
}

function listText({ isPage, isAfter, isSince }: ListShape): SQL {
  const position = sql`(${s.updateTime}, ${s.id}) < (${value('afterTime')}::timestamptz, ${value('afterId')})`;
  const since = sql`${s.updateTime} > to_timestamp(${value('since')}::float8)`;
  const isListed = and(
    eq(s.appName, value('appName')),
    eq(s.userId, value('userId')),
    not(s.isEval),
    isAfter ? position : undefined,
    isSince ? since : undefined,
  );
  const newestFirst = sql`order by ${s.updateTime} desc, ${s.id} desc`;
  const [head, tail] = sessionTexts;
  const time = sql`to_char(${s.updateTime} at time zone 'utc', ${CURSOR_TIME})`;
  const cursor = sql`json_build_object('id', ${s.id}, 'updateTime', ${time})`;
  // Of a page only whether there are more, of all the ids of the others; they are read only where there are some.
  const others = sql`select ${s.id} from ${sessions} ${s} where ${isListed} ${newestFirst}
    offset (select n from fitting)`;
  return sql`
    with wanted as materialized (
      select ${s}.* from ${sessions} ${s} where ${isListed} ${newestFirst} limit ${value('size')}::int + 1),
    sized as (
      select ${s}.*, row_number() over listed as place, sum(${estimatedBytes(s.state)}) over listed as bytes
      from wanted ${s} window listed as (${newestFirst}) ${newestFirst} limit ${value('size')}),
    fitting as materialized ${fitting(value('appName'), value('userId'))}
    select (select coalesce(string_agg(${head} || ${tail}, ',' ${newestFirst}), '')
            from (select sized.* from sized, fitting where place <= n) ${statesOf}) as text,
           case when n < (select count(*) from wanted)
                then ${isPage ? sql`array['']` : sql`array(${others})::text[]`} else '{}' end as further,
           (select ${cursor} from sized ${s} where place = n) as last
    from fitting`;
}

/** What lies outside timestamptz becomes its first or last year. */
const clampedSeconds = (seconds: number) => Math.min(Math.max(seconds, -2e11), 9e12);

/** ISO 8601 in UTC with microseconds. */
const CURSOR_TIME = 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"';

async function* readFurtherSessions(
  db: Database,
  appName: string,
  userId: string,
  ids: string[],
): AsyncGenerator<string> {
  const [head, tail] = sessionTexts;
  for (let from = 0; from < ids.length; ) {
    const { rows } = await db.execute<{ text: string | null; taken: number | null }>(sql`
      with sized as (
        select ${s}.*, wanted.ordinal, row_number() over listed as place,
               sum(${estimatedBytes(s.state)}) over listed as bytes
        from unnest(${sql.param(ids.slice(from, from + MAX_SESSIONS))}::text[]) with ordinality as wanted(id, ordinal),
             ${sessions} ${s}
        where ${s.appName} = ${appName} and ${s.userId} = ${userId} and ${s.id} = wanted.id
        window listed as (order by wanted.ordinal)),
      fitting as materialized ${fitting(appName, userId)}
      select string_agg(${head} || ${tail}, ',' order by ${s}.ordinal) as text, max(${s}.ordinal)::int as taken
      from (select sized.* from sized, fitting where place <= n) ${statesOf}`);
    const { text, taken } = rows[0] ?? {};
    // Those that are gone by now have no row.
    from += taken ?? MAX_SESSIONS;
    if (text) yield `,${unescapeJson(text)}`;
  }
  yield ']';
}

/**
 * Inserts a session with its first state and events, all in one statement.
 * @throws {ConflictError} when the id is taken, or two of the events have one id.
 */
export async function insertSession(
  db: Database,
  key: SessionKey,
  state: JsonObject,
  events: NewEvent[],
): Promise<void> {
  const append = newAppend(key, events);
  const given = splitDelta(state);
  const first: EventAppend = {
    ...append,
    delta: {
      session: { ...given.session, ...append.delta.session },
      // The state of an import is newer than the events that once made it: what other sessions share must not go back.
      user: Object.assign(append.delta.user, given.user),
      app: Object.assign(append.delta.app, given.app),
    },
  };
  const initial = { initialState: sql`${escapeJson(withoutChanged(given.session, events))}::jsonb` };
  const values = { ...newSession(first), ...initial };
  const inserted = db.insert(sessions).values(values).onConflictDoNothing().returning(ADVANCED);
  const appended = db.execute(sql`
    with ${givenEvents(first)}, advanced as ${inserted} ${appendEventCtes(first)} select from advanced`);
  const { rows } = await onConflict(appended, 'events_id_key', () => eventExists(key));
  if (rows.length === 0) throw new ConflictError(`Session already exists: ${key.sessionId}`);
}

/** What of a state no event changed: an import gives the state of its end, from which that of its start is guessed. */
function withoutChanged(state: JsonObject, events: NewEvent[]): JsonObject {
  const changed = new Set(events.flatMap((event) => Object.keys(event.actions?.stateDelta ?? {})));
  return Object.fromEntries(Object.entries(state).filter(([name]) => !changed.has(name)));
}

/** A session's own state before its first event; `undefined` without a session, and for those of older versions. */
export async function findInitialState(db: Database, key: SessionKey): Promise<JsonObject | undefined> {
  const [row] = await db
    .select({ text: sql<string | null>`${sessions.initialState}::text` })
    .from(sessions)
    .where(isSession(key, sessions));
  return row?.text == null ? undefined : (JSON.parse(unescapeJson(row.text)) as JsonObject);
}

/**
 * Deletes a session with its events and invocations; deleting what is not there does nothing. Artifacts and shared
 * state stay.
 */
export async function deleteSession(db: Database, key: SessionKey): Promise<void> {
  await db.delete(sessions).where(isSession(key, sessions));
}
