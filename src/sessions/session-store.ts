import { sql } from 'drizzle-orm';
import { appendEventCtes, ADVANCED, type EventAppend, givenEvents, newAppend, newSession } from './append-events.ts';
import { type Database, onConflict } from '../db/database.ts';
import { escapeJson, unescapeJson } from '../db/json-escape.ts';
import { statement, value } from '../db/statement.ts';
import { sessions } from '../db/schema.ts';
import { eventExists, eventPage, findEventPage } from './event-store.ts';
import { isSession, KEY } from './session-key.ts';
import { s, sessionTexts, withStates } from './session-text.ts';
import { ConflictError } from '../core/errors.ts';
import type { JsonObject } from '../core/content.ts';
import type { NewEvent } from '../core/event.ts';
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
