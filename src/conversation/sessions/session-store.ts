import { and, type SQL, sql } from 'drizzle-orm';
import type { JsonObject } from '../../core/content.ts';
import { ConflictError, InvalidError, SessionExistsError } from '../../core/errors.ts';
import type { NewEvent } from '../../core/event.ts';
import { isEvalSession, type SessionKey, splitDelta } from '../../core/session.ts';
import { type Database, onConflict } from '../../platform/db/database.ts';
import { escapeJson, unescapeJson } from '../../platform/db/json-escape.ts';
import { callFunction, statement, value } from '../../platform/db/statement.ts';
import { sessions } from '../../platform/db/schema/schema.ts';
import { INT32_MAX } from '../../platform/http/operation/parameters.ts';
import { eventExists, toEventParameters } from './append-store.ts';
import { eventPieces, findEventPage, joined, type Moment } from './event-store.ts';
import type { JsonStream } from './json-stream.ts';
import { hasVersion } from './precondition.ts';
import { isSession, KEY } from './session-key.ts';
import { firstTextAt, s, sequenceAt, sessionEtag, sessionTexts, stateAt, timeAt, withStates } from './session-text.ts';
import { parseExactJson } from '../../core/exact-json.ts';

/** The requested part of a session [all of it]. */
export interface SessionRange {
  /** Only events after this sequence. */
  afterSequence?: number | undefined;
  /** Only the newest so many, still oldest first. */
  numRecentEvents?: number | undefined;
  /** As it was after this event; 0 is before the first. */
  atSequence?: number | undefined;
  /** As it was at this Unix time in seconds. */
  atTime?: number | undefined;
  /** True: with the optional members of the Session as the document has it. */
  withDetails?: boolean | undefined;
}

/** A session as JSON text, with its ETag. */
export type FoundSession = JsonStream & { etag: string };

/**
 * One session with its events as JSON text that PostgreSQL assembled, `undefined` where there is none. One statement
 * unless the events are many. All is of the moment of the first one: events never change and their sequence has no
 * gaps, so that later statements go on up to the last sequence of then, without a transaction that would stay open
 * for a slow reader.
 * @throws {InvalidError} for an `atSequence` that the session has not reached.
 */
export async function findSession(
  db: Database,
  key: SessionKey,
  { afterSequence = 0, numRecentEvents = INT32_MAX, atSequence, atTime, withDetails = false }: SessionRange = {},
): Promise<FoundSession | undefined> {
  const at = atSequence === undefined ? (atTime === undefined ? 'now' : 'time') : 'sequence';
  const values = { ...key, afterSequence, numRecentEvents, atSequence, atTime: clampedSeconds(atTime ?? 0) };
  const pieces = await selectSession[at][withDetails ? 'detailed' : 'plain'](db, values);
  const [row] = pieces;
  if (!row) return undefined;
  checkReached(row.reached, atSequence);
  const { etag, final, created } = row;
  const [head, tail] = [unescapeJson(row.head ?? ''), unescapeJson(row.tail ?? '')];
  const first = [head, ...joined(pieces.flatMap(({ events }) => (events === null ? [] : [events])))];
  const last = pieces.at(-1)?.last ?? final;
  if (last === final) return { first: [...first, tail], etag };
  return { first, etag, rest: readFurtherEvents(db, key, { final, created }, { last, tail }) };
}

/** @throws {InvalidError} where a session has not reached a sequence. */
export function checkReached(reached: number, atSequence: number | undefined): void {
  if (atSequence === undefined || atSequence <= reached) return;
  throw new InvalidError(`The session has ${reached} events; it has not reached ${atSequence}.`);
}

/** Clamps seconds to the range of timestamptz. */
export const clampedSeconds = (seconds: number): number => Math.min(Math.max(seconds, -2e11), 9e12);

/** True of the first piece of a session's events, and where there are none. */
const IS_FIRST = sql`coalesce(page.place, 0) = 0`;

/** How a session is read: up to which event, what that needs to be joined, and what stands around its events. */
interface SessionForm {
  n: SQL;
  join: SQL;
  texts: [SQL, SQL];
}

const asItIs = (withDetails: boolean): SessionForm => ({
  n: sql`${s.lastSequence}`,
  join: sql``,
  texts: sessionTexts({ withDetails }),
});

function atPoint(sequence: SQL, withDetails: boolean): SessionForm {
  const n = sql`moment.n`;
  const then = { state: stateAt(KEY, n), updateTime: timeAt(KEY, n), lastSequence: n, firstText: firstTextAt(KEY, n) };
  // `offset 0`: it is found once, and not again wherever it is used.
  const join = sql`cross join lateral (select ${sequence} as n offset 0) moment`;
  return { n, join, texts: sessionTexts({ ...then, withDetails }) };
}

function mergeBoth(form: (withDetails: boolean) => SessionForm) {
  const select = (withDetails: boolean) =>
    statement<SessionRow>(() => {
      const { n, join, texts } = form(withDetails);
      const after = sql`greatest(${value('afterSequence')}::int, ${n} - ${value('numRecentEvents')}::int)`;
      return sql`
        select case when ${IS_FIRST} then ${texts[0]} end as head, page.text as events,
               case when ${IS_FIRST} then ${texts[1]} end as tail, page.last, ${n} as final,
               ${s.lastSequence} as reached, extract(epoch from ${s.createTime}) as created, ${sessionEtag} as etag
        from ${withStates(KEY)} ${join} left join ${eventPieces(KEY, after, n)} on true
        where ${isSession(KEY, s)} order by page.place`;
    });
  return { plain: select(false), detailed: select(true) };
}

/** The statements of {@link findSession}: of now or of then, with or without details. */
const selectSession = {
  now: mergeBoth(asItIs),
  sequence: mergeBoth((withDetails) => atPoint(sql`${value('atSequence')}::int`, withDetails)),
  time: mergeBoth((withDetails) => atPoint(sequenceAt(KEY, sql`${value('atTime')}::float8`), withDetails)),
};

/** A piece of the events, the first with what stands around all of them; one without events where there are none. */
interface SessionRow extends Moment {
  head: string | null;
  events: string | null;
  tail: string | null;
  /** Sequence of the last event in `events`. */
  last: number | null;
  /** The last sequence of the session now. */
  reached: number;
  etag: string;
}

async function* readFurtherEvents(
  db: Database,
  key: SessionKey,
  moment: Moment,
  { last, tail }: { last: number; tail: string },
): AsyncGenerator<string[]> {
  for (let after = last; after < moment.final; ) {
    const page = await findEventPage(db, key, after, moment);
    if (!page) throw new ConflictError(`Session ${key.sessionId} was deleted while it was read.`);
    after = page.last;
    yield [',', ...joined(page.texts.splice(0))];
  }
  yield [tail];
}

/**
 * Inserts a session with its first state and events, all in one statement.
 * @returns it as {@link findSession} does, where it has no events; `undefined` otherwise.
 * @throws {ConflictError} when the id is taken, or two of the events have one id.
 */
export async function insertSession(
  db: Database,
  key: SessionKey,
  state: JsonObject,
  events: NewEvent[],
): Promise<FoundSession | undefined> {
  const given = splitDelta(state);
  const parameters = toEventParameters(db, key, events, (delta) => ({
    session: { ...given.session, ...delta.session },
    // The state of an import is newer than the events that once made it: what other sessions share must not go back.
    user: Object.assign(delta.user, given.user),
    app: Object.assign(delta.app, given.app),
  }));
  const call = callFunction<CreatedRow>(db, 'create_session', {
    ...parameters,
    p_is_eval: isEvalSession(key.sessionId),
    p_initial_state: escapeJson(withoutChanged(given.session, events)),
  });
  const created = await onConflict(call, 'events_id_key', () => eventExists(key));
  if (!created.created) throw new SessionExistsError(key.sessionId);
  return events.length === 0 ? { first: [toNewText(key, created)], etag: created.etag } : undefined;
}

interface CreatedRow {
  created: boolean;
  state_text: string;
  last_update: string;
  etag: string;
}

/** The JSON text of a session without events, as {@link findSession} reads it. */
const toNewText = ({ sessionId, appName, userId }: SessionKey, { state_text, last_update }: CreatedRow): string =>
  `{"id":${JSON.stringify(sessionId)},"appName":${JSON.stringify(appName)},"userId":${JSON.stringify(userId)},` +
  `"state":${unescapeJson(state_text)},"events":[],"lastUpdateTime":${last_update}}`;

/** Guesses the initial state of an import, which has only the final one: the keys that no event changed. */
function withoutChanged(state: JsonObject, events: NewEvent[]): JsonObject {
  const changed = new Set(events.flatMap((event) => Object.keys(event.actions?.stateDelta ?? {})));
  return Object.fromEntries(Object.entries(state).filter(([name]) => !changed.has(name)));
}

/** A session's own state before its first event; `undefined` without a session. */
export async function findInitialState(db: Database, key: SessionKey): Promise<JsonObject | undefined> {
  const [row] = await db
    .select({ text: sql<string>`${sessions.initialState}::text` })
    .from(sessions)
    .where(isSession(key, sessions));
  return row && (parseExactJson(unescapeJson(row.text)) as JsonObject);
}

/** Deletes a session (of these versions only) with events and invocations. @returns false where there was none. */
export async function deleteSession(db: Database, key: SessionKey, versions?: string[]): Promise<boolean> {
  const { rowCount } = await db.delete(sessions).where(and(isSession(key, sessions), hasVersion(sessions, versions)));
  return (rowCount ?? 0) > 0;
}
