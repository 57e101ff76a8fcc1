import { type SQL, and, eq, sql } from 'drizzle-orm';
import { type Append, appendCtes, bumpSession, newAppend } from './append-events.ts';
import { type Database, onConflict } from '../db/database.ts';
import { fromJsonb, toJsonb } from '../db/json-escape.ts';
import { sessions } from '../db/schema.ts';
import { eventPage, mergedState, sessionTexts, statesOf, withStates } from './session-text.ts';
import { ConflictError, LeaseLostError, NotFoundError } from '../core/errors.ts';
import type { JsonObject } from '../core/content.ts';
import type { Event, NewEvent } from '../core/event.ts';
import type { ListPlace } from './session-cursor.ts';
import type { LongText } from './json-stream.ts';
import { EVAL_SESSION_ID_PREFIX, type SessionKey, sessionNotFound } from '../core/session.ts';
import { splitDelta } from '../core/state.ts';

const eventExists = ({ sessionId }: SessionKey) => new ConflictError(`Event already exists in session ${sessionId}.`);

const isKey = ({ appName, userId, sessionId }: SessionKey, alias: SQL = sql`s`) =>
  sql`${alias}.app_name = ${appName} and ${alias}.user_id = ${userId} and ${alias}.id = ${sessionId}`;

/** What part of a session's events is wanted; by default all. */
export interface EventRange {
  /** Only events after this sequence. */
  afterSequence?: number | undefined;
  /** Only the newest so many, still oldest first. */
  numRecentEvents?: number | undefined;
}

/**
 * One session with its events as JSON text that PostgreSQL assembled, `undefined` where there is none. One statement unless the
 * events are many. All is of the moment of the first one: events never change and their sequence has no gaps, so that later
 * statements go on up to the last sequence of then, without a transaction that would stay open for a slow reader.
 */
export async function findSession(
  db: Database,
  key: SessionKey,
  { afterSequence = 0, numRecentEvents }: EventRange = {},
): Promise<LongText | undefined> {
  const recent = numRecentEvents === undefined ? sql`0` : sql`s.last_sequence - ${numRecentEvents}::int`;
  const [head, tail] = sessionTexts;
  const { rows } = await db.execute<SessionRow>(sql`
    select ${head} as head, coalesce(page.text, '') as events, ${tail} as tail, page.last, s.last_sequence as final,
           s.create_time::text as created
    from ${withStates} cross join ${eventPage(sql`greatest(${afterSequence}, ${recent})`, sql`s.last_sequence`)}
    where ${isKey(key)}`);
  const row = rows[0];
  if (!row) return undefined;
  const first = fromJsonb(row.head + row.events);
  if (row.last === null || row.last === row.final) return { first: first + row.tail };
  return { first, rest: readFurtherEvents(db, key, { ...row, last: row.last }) };
}

interface SessionRow extends Record<string, unknown> {
  head: string;
  events: string;
  tail: string;
  /** Sequence of the last event in `events`. */
  last: number | null;
  final: number;
  created: string;
}

async function* readFurtherEvents(
  db: Database,
  key: SessionKey,
  { last, final, created, tail }: SessionRow & { last: number },
): AsyncGenerator<string> {
  for (let after = last; after < final; ) {
    const { rows } = await db.execute<{ text: string; last: number }>(sql`
      select page.text, page.last from sessions s cross join ${eventPage(after, final)}
      where ${isKey(key)} and s.create_time = ${created}::timestamptz and page.last is not null`);
    const page = rows[0];
    if (!page) throw new ConflictError(`Session ${key.sessionId} was deleted while it was read.`);
    yield `,${fromJsonb(page.text)}`;
    after = page.last;
  }
  yield tail;
}

/** Some of a session's events as the JSON text of an array. */
export interface EventPage {
  text: string;
  /** Sequence after which the next page begins; `undefined` where this is the last. */
  next: number | undefined;
}

/**
 * The events after a sequence, oldest first: at most `limit`, less where they are large; `undefined` where there is no session.
 * One statement.
 */
export async function listEvents(
  db: Database,
  key: SessionKey,
  afterSequence: number,
  limit: number,
): Promise<EventPage | undefined> {
  const { rows } = await db.execute<{ text: string | null; last: number | null; final: number }>(sql`
    select page.text, page.last, s.last_sequence as final
    from sessions s cross join ${eventPage(afterSequence, sql`s.last_sequence`, limit)} where ${isKey(key)}`);
  const row = rows[0];
  if (!row) return undefined;
  const next = row.last === null || row.last === row.final ? undefined : row.last;
  return { text: `[${fromJsonb(row.text ?? '')}]`, next };
}

/** Which part of a user's list of sessions is wanted; by default all of it. */
export interface SessionPage {
  limit?: number | undefined;
  /** Sessions that come after this one in the order of the list. */
  after?: ListPlace | undefined;
  /** Only sessions updated after this Unix time in seconds. */
  updatedAfter?: number | undefined;
}

/** Sessions that one statement reads where all are wanted. */
const MOST_SESSIONS = 200;

/**
 * The sessions of one user as the JSON text of an array, newest first, then by id; those of evaluation runs are left out and
 * `events` is always `[]`. It never touches the table of events. One statement on `sessions_list_idx` unless all of very many
 * sessions are wanted; then the list is that of the first one's moment, and each session as it is when its turn comes.
 * `next` is the place of the last one of a page where more follow.
 */
export async function listSessions(
  db: Database,
  appName: string,
  userId: string,
  { after, updatedAfter, limit }: SessionPage = {},
): Promise<LongText & { next?: ListPlace }> {
  const position = after ? sql`and (s.update_time, s.id) < (${after.updateTime}::timestamptz, ${after.id})` : sql``;
  const since =
    updatedAfter === undefined ? sql`` : sql`and s.update_time > to_timestamp(${clampedSeconds(updatedAfter)}::float8)`;
  const wanted = sql`
    from sessions s where s.app_name = ${appName} and s.user_id = ${userId} and not s.is_eval ${position} ${since}
    order by s.update_time desc, s.id desc`;
  const size = limit ?? MOST_SESSIONS;
  const [head, tail] = sessionTexts;
  const { rows } = await db.execute<{ text: string; further: string[]; last: ListPlace | null }>(sql`
    select (select coalesce(string_agg(${head} || ${tail}, ',' order by s.update_time desc, s.id desc), '')
            from (select s.* ${wanted} limit ${size}) ${statesOf}) as text,
           array(select s.id ${wanted} offset ${size} ${limit === undefined ? sql`` : sql`limit 1`})::text[] as further,
           (select json_build_object('id', s.id, 'updateTime', to_char(s.update_time at time zone 'utc', ${PLACE_TIME}))
            ${wanted} offset ${size - 1} limit 1) as last`);
  const { text = '', further = [], last } = rows[0] ?? {};
  const first = `[${fromJsonb(text)}`;
  if (limit !== undefined) return { first: `${first}]`, ...(last && further.length > 0 ? { next: last } : {}) };
  return further.length === 0
    ? { first: `${first}]` }
    : { first, rest: readFurtherSessions(db, appName, userId, further) };
}

/** What lies outside timestamptz becomes its first or last year. */
const clampedSeconds = (seconds: number) => Math.min(Math.max(seconds, -2e11), 9e12);

/** ISO 8601 in UTC with microseconds. */
const PLACE_TIME = 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"';

async function* readFurtherSessions(
  db: Database,
  appName: string,
  userId: string,
  ids: string[],
): AsyncGenerator<string> {
  const [head, tail] = sessionTexts;
  for (let from = 0; from < ids.length; from += MOST_SESSIONS) {
    const { rows } = await db.execute<{ text: string | null }>(sql`
      select string_agg(${head} || ${tail}, ',' order by wanted.place) as text
      from unnest(${sql.param(ids.slice(from, from + MOST_SESSIONS))}::text[]) with ordinality as wanted(id, place),
           ${withStates}
      where s.app_name = ${appName} and s.user_id = ${userId} and s.id = wanted.id`);
    const text = rows[0]?.text;
    if (text) yield `,${fromJsonb(text)}`;
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
  const first: Append = {
    ...append,
    delta: {
      session: Object.assign(given.session, append.delta.session),
      // The state of an import is newer than the events that once made it: what other sessions share must not go back.
      user: Object.assign(append.delta.user, given.user),
      app: Object.assign(append.delta.app, given.app),
    },
  };
  const inserted = db.execute(sql`
    with bumped as (
      insert into sessions (app_name, user_id, id, state, last_sequence, is_eval)
      values (${key.appName}, ${key.userId}, ${key.sessionId}, limited_state(${toJsonb(first.delta.session)}::jsonb), ${events.length},
              ${key.sessionId.startsWith(EVAL_SESSION_ID_PREFIX)})
      on conflict do nothing
      returning last_sequence, update_time)
    ${appendCtes(first)}
    select from bumped`);
  const { rows } = await onConflict(inserted, 'events_id_key', () => eventExists(key));
  if (rows.length === 0) throw new ConflictError(`Session already exists: ${key.sessionId}`);
}

/** Deletes a session with its events and invocations; deleting what is not there does nothing. Artifacts and shared state stay. */
export async function deleteSession(db: Database, { appName, userId, sessionId }: SessionKey): Promise<void> {
  await db
    .delete(sessions)
    .where(and(eq(sessions.appName, appName), eq(sessions.userId, userId), eq(sessions.id, sessionId)));
}

/** An event as it was stored: its place in the session, and its JSON text with the timestamp that the store gave it. */
export interface StoredEvent {
  sequence: number;
  text: string;
}

/**
 * Appends events in order: sequence, state of three scopes and `lastUpdateTime` move together in one statement.
 * With a `leaseToken` the append is an invocation's: it is refused when the session's lease is another's by now.
 * @throws {NotFoundError} when there is no such session. @throws {LeaseLostError} when the token is no longer the session's.
 * @throws {ConflictError} when the session has an event of one of the ids.
 */
export async function appendEvents(
  db: Database,
  key: SessionKey,
  events: NewEvent[],
  leaseToken?: string,
): Promise<StoredEvent[]> {
  const append = newAppend(key, events);
  const fence = leaseToken === undefined ? sql`` : sql`and sessions.lease_token = ${leaseToken}`;
  const appended = db.execute<{ sequence: number; text: string }>(sql`
    with bumped as (
      update sessions set ${bumpSession(append)}
      where ${isKey(key, sql`sessions`)} ${fence}
      returning last_sequence, update_time)
    ${appendCtes(append)}
    select sequence, payload::text as text from appended order by sequence`);
  const { rows } = await onConflict(appended, 'events_id_key', () => eventExists(key));
  if (rows.length === events.length) return rows.map(({ sequence, text }) => ({ sequence, text: fromJsonb(text) }));
  if (leaseToken !== undefined) throw new LeaseLostError(`The invocation no longer holds session ${key.sessionId}.`);
  throw new NotFoundError(sessionNotFound(key.sessionId));
}

/** What an invocation starts from: all events in order and the merged state, in one statement; `undefined` without a session. */
export async function findHistory(
  db: Database,
  key: SessionKey,
): Promise<{ events: Event[]; state: JsonObject } | undefined> {
  const { rows } = await db.execute<{ events: string; state: string }>(
    sql`
      select (select '[' || coalesce(string_agg(e.payload::text, ',' order by e.sequence), '') || ']' from events e
              where e.app_name = s.app_name and e.user_id = s.user_id and e.session_id = s.id) as events,
             ${mergedState}::text as state
      from ${withStates} where ${isKey(key)}`,
  );
  const row = rows[0];
  if (!row) return undefined;
  return {
    events: JSON.parse(fromJsonb(row.events)) as Event[],
    state: JSON.parse(fromJsonb(row.state)) as JsonObject,
  };
}
