import { type SQL, and, eq, sql } from 'drizzle-orm';
import { type Append, appendCtes, bumpSession, newAppend } from '../db/append-events.ts';
import { type Database, onConflict } from '../db/database.ts';
import { fromJsonb, toJsonb } from '../db/json-text.ts';
import { sessions } from '../db/schema.ts';
import { ConflictError, LeaseLostError, NotFoundError } from '../errors.ts';
import type { JsonObject } from './content.ts';
import type { Event, NewEvent } from './event.ts';
import { EVAL_SESSION_ID_PREFIX, type SessionKey } from './session.ts';
import { splitDelta } from './state.ts';

/** The text of the 404 of a session; a foreign session gets the same bytes. */
export const sessionNotFound = (sessionId: string) => `Session not found: ${sessionId}`;

const eventExists = ({ sessionId }: SessionKey) => new ConflictError(`Event already exists in session ${sessionId}.`);

const isKey = ({ appName, userId, sessionId }: SessionKey, alias: SQL = sql`s`) =>
  sql`${alias}.app_name = ${appName} and ${alias}.user_id = ${userId} and ${alias}.id = ${sessionId}`;

/** Session row `s` with the two shared states joined, merged as the wire shows it. Keys are stored with their prefix. */
const withStates = sql`sessions s
  left join app_states a on a.app_name = s.app_name
  left join user_states u on u.app_name = s.app_name and u.user_id = s.user_id`;
const mergedState = sql`(s.state || coalesce(a.state, '{}') || coalesce(u.state, '{}'))`;

/** The JSON text of a session around the text of its events. */
const sessionText = (events: SQL) => sql`
  '{"id":' || to_json(s.id) || ',"appName":' || to_json(s.app_name) || ',"userId":' || to_json(s.user_id) ||
  ',"state":' || ${mergedState} || ',"events":[' || ${events} || '],"lastUpdateTime":' || extract(epoch from s.update_time) || '}'`;

/** What part of a session's events is wanted; by default all. */
export interface EventRange {
  /** Only events after this sequence. */
  afterSequence?: number | undefined;
  /** Only the newest so many, still oldest first. */
  numRecentEvents?: number | undefined;
}

function eventsText({ afterSequence, numRecentEvents }: EventRange): SQL {
  const newest =
    numRecentEvents === undefined ? sql`` : sql`order by e.sequence desc limit ${Math.max(numRecentEvents, 0)}`;
  return sql`(
    select coalesce(string_agg(wanted.payload::text, ',' order by wanted.sequence), '')
    from (select e.payload, e.sequence from events e
          where e.app_name = s.app_name and e.user_id = s.user_id and e.session_id = s.id
            and e.sequence > ${afterSequence ?? 0} ${newest}) wanted)`;
}

/** One session with its events as JSON text that PostgreSQL assembled, in one statement; `undefined` where there is none. */
export async function findSessionText(
  db: Database,
  key: SessionKey,
  range: EventRange = {},
): Promise<string | undefined> {
  const { rows } = await db.execute<{ text: string }>(
    sql`select ${sessionText(eventsText(range))} as text from ${withStates} where ${isKey(key)}`,
  );
  return rows[0] && fromJsonb(rows[0].text);
}

/** Which part of a user's list of sessions is wanted; by default all of it. */
export interface SessionPage {
  limit?: number | undefined;
  /** Sessions that come after this one in the order of the list. */
  after?: { updateTime: string; id: string } | undefined;
  /** Only sessions updated after this Unix time in seconds. */
  updatedAfter?: number | undefined;
}

/**
 * The sessions of one user as the JSON text of an array, newest first, then by id; those of evaluation runs are left out and
 * `events` is always `[]`. One statement on `sessions_list_idx`; it never touches the table of events.
 */
export async function listSessionsText(
  db: Database,
  appName: string,
  userId: string,
  page: SessionPage = {},
): Promise<string> {
  const { after, updatedAfter, limit } = page;
  const position = after ? sql`and (s.update_time, s.id) < (${after.updateTime}::timestamptz, ${after.id})` : sql``;
  const since = updatedAfter === undefined ? sql`` : sql`and s.update_time > to_timestamp(${updatedAfter}::float8)`;
  const { rows } = await db.execute<{ text: string }>(sql`
    select coalesce(string_agg(${sessionText(sql`''`)}, ',' order by s.update_time desc, s.id desc), '') as text
    from (select * from sessions s
          where s.app_name = ${appName} and s.user_id = ${userId} and not s.is_eval ${position} ${since}
          order by s.update_time desc, s.id desc ${limit === undefined ? sql`` : sql`limit ${limit}`}) s
    left join app_states a on a.app_name = s.app_name
    left join user_states u on u.app_name = s.app_name and u.user_id = s.user_id`);
  return `[${fromJsonb(rows[0]?.text ?? '')}]`;
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
      user: Object.assign(given.user, append.delta.user),
      app: Object.assign(given.app, append.delta.app),
    },
  };
  const inserted = db.execute(sql`
    with bumped as (
      insert into sessions (app_name, user_id, id, state, last_sequence, is_eval)
      values (${key.appName}, ${key.userId}, ${key.sessionId}, ${toJsonb(first.delta.session)}::jsonb, ${events.length},
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
    sql`select '[' || ${eventsText({})} || ']' as events, ${mergedState}::text as state from ${withStates} where ${isKey(key)}`,
  );
  const row = rows[0];
  if (!row) return undefined;
  return {
    events: JSON.parse(fromJsonb(row.events)) as Event[],
    state: JSON.parse(fromJsonb(row.state)) as JsonObject,
  };
}
