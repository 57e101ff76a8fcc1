import { and, isNull, type SQL, sql } from 'drizzle-orm';
import type { JsonObject } from '../../core/content.ts';
import { ConflictError, ForbiddenError, InvalidError, SessionExistsError } from '../../core/errors.ts';
import type { NewEvent } from '../../core/event.ts';
import { isEvalSession, type SessionKey, splitDelta } from '../../core/session.ts';
import { type Database, onConflict } from '../../platform/db/database.ts';
import { escapeJson, unescapeJson, unescapeList } from '../../platform/json-escape.ts';
import { callFunction, statement, value } from '../../platform/db/statement.ts';
import { sessions } from '../../platform/db/schema/schema.ts';
import { INT32_MAX } from '../../platform/http/operation/parameters.ts';
import { eventExists, toEventParameters } from './append-store.ts';
import { eventPieces, findEventPage, type Moment } from './event-store.ts';
import type { JsonStream } from '../../platform/json-stream.ts';
import { hasVersion } from './precondition.ts';
import { isChildSession, isSession, KEY } from './session-row.ts';
import { firstTextAt, s, sequenceAt, sessionEtag, sessionTexts, stateAt, timeAt, withStates } from './session-text.ts';

export interface SessionRange {
  afterSequence?: number | undefined;
  /** Maximum number of events, of which the newest are returned, oldest first. */
  numRecentEvents?: number | undefined;
  /** Returns the session as it was after the event with this sequence; 0 is before the first event. */
  atSequence?: number | undefined;
  /** Returns the session as it was at this time, in Unix seconds. */
  atTime?: number | undefined;
  /** True: include the optional members of the type Session. */
  withDetails?: boolean | undefined;
}

export type SessionJson = JsonStream & { etag: string };

/**
 * Reads a session with its events as JSON that PostgreSQL assembles. A single statement unless there are many events.
 * The result is consistent: events are immutable and their sequence has no gaps, so later statements read up to the
 * last sequence that the first statement saw. No transaction stays open for a slow reader.
 * @returns `undefined` if the session does not exist
 * @throws {InvalidError} if the session has fewer events than `atSequence`
 */
export async function findSession(
  db: Database,
  key: SessionKey,
  { afterSequence = 0, numRecentEvents = INT32_MAX, atSequence, atTime, withDetails = false }: SessionRange = {},
): Promise<SessionJson | undefined> {
  const at = atSequence === undefined ? (atTime === undefined ? 'now' : 'time') : 'sequence';
  const values = { ...key, afterSequence, numRecentEvents, atSequence, atTime: clampedSeconds(atTime ?? 0) };
  const pieces = await selectSession[at][withDetails ? 'detailed' : 'plain'](db, values);
  const [row] = pieces;
  if (!row) return undefined;
  checkReached(row.reached, atSequence);
  const { etag, final, created } = row;
  const [head, tail] = [unescapeJson(row.head ?? ''), unescapeJson(row.tail ?? '')];
  const first = [head, ...unescapeList(pieces.flatMap(({ events }) => (events === null ? [] : [events])))];
  const last = pieces.at(-1)?.last ?? final;
  if (last === final) return { first: [...first, tail], etag };
  return { first, etag, rest: readFurtherEvents(db, key, { final, created }, { last, tail }) };
}

/** @throws {InvalidError} if the session's last sequence is below `atSequence` */
export function checkReached(reached: number, atSequence: number | undefined): void {
  if (atSequence === undefined || atSequence <= reached) return;
  throw new InvalidError(`The session has ${reached} events; it has not reached ${atSequence}.`);
}

export const clampedSeconds = (seconds: number): number => Math.min(Math.max(seconds, -2e11), 9e12);

/** SQL condition: this is the first row of events, or the only row of a session without events. */
const IS_FIRST = sql`coalesce(page.place, 0) = 0`;

/** SQL fragments of a read up to sequence `n`: the join that computes `n`, and the session's JSON around its events. */
interface SessionForm {
  n: SQL;
  join: SQL;
  texts: [SQL, SQL];
}

const currentForm = (withDetails: boolean): SessionForm => ({
  n: sql`${s.lastSequence}`,
  join: sql``,
  texts: sessionTexts({ withDetails }),
});

function atPoint(sequence: SQL, withDetails: boolean): SessionForm {
  const n = sql`moment.n`;
  const then = { state: stateAt(KEY, n), updateTime: timeAt(KEY, n), lastSequence: n, firstText: firstTextAt(KEY, n) };
  // `offset 0` is an optimisation fence, so that PostgreSQL computes the sequence only once.
  const join = sql`cross join lateral (select ${sequence} as n offset 0) moment`;
  return { n, join, texts: sessionTexts({ ...then, withDetails }) };
}

function mergeBoth(form: (withDetails: boolean) => SessionForm) {
  const select = (withDetails: boolean) =>
    statement<SessionRow>(() => {
      const { n, join, texts } = form(withDetails);
      const after = sql`greatest(${value('afterSequence')}::int, ${n} - ${value('numRecentEvents')}::int)`;
      return sql`
        select case when ${IS_FIRST} then concat(${texts[0]}) end as head, page.text as events,
               case when ${IS_FIRST} then concat(${texts[1]}) end as tail, page.last, ${n} as final,
               ${s.lastSequence} as reached, extract(epoch from ${s.createTime}) as created, ${sessionEtag} as etag
        from ${withStates(KEY)} ${join} left join ${eventPieces(KEY, after, n)} on true
        where ${isSession(KEY, s)} order by page.place`;
    });
  return { plain: select(false), detailed: select(true) };
}

const selectSession = {
  now: mergeBoth(currentForm),
  sequence: mergeBoth((withDetails) => atPoint(sql`${value('atSequence')}::int`, withDetails)),
  time: mergeBoth((withDetails) => atPoint(sequenceAt(KEY, sql`${value('atTime')}::float8`), withDetails)),
};

/** A row of a session's events. The first also has the JSON around all events; without events there is one row. */
interface SessionRow extends Moment {
  head: string | null;
  events: string | null;
  tail: string | null;
  last: number | null;
  /** The session's last sequence now, even if an earlier state is read. */
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
    yield [',', ...unescapeList(page.texts.splice(0))];
  }
  yield [tail];
}

/**
 * Inserts a session with its initial state and events in one statement.
 * @returns the session's JSON if it has no events; otherwise `undefined`, and the caller reads the session
 * @throws {ConflictError} if the session's id is taken, or two events have the same id
 */
export async function insertSession(
  db: Database,
  key: SessionKey,
  state: JsonObject,
  events: NewEvent[],
): Promise<SessionJson | undefined> {
  const { session = {}, user, app } = splitDelta(state);
  // An imported state is newer than the imported events, so the state's `user:` and `app:` values win.
  const parameters = toEventParameters(db, key, events, (delta) => ({ ...session, ...delta, ...user, ...app }));
  const call = callFunction<CreatedRow>(db, 'create_session', {
    ...parameters,
    p_is_eval: isEvalSession(key.sessionId),
    p_initial_state: escapeJson(withoutChanged(session, events)),
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

/** Returns the JSON of a session without events, in the format of {@link findSession}. */
const toNewText = ({ sessionId, appName, userId }: SessionKey, { state_text, last_update }: CreatedRow): string =>
  `{"id":${JSON.stringify(sessionId)},"appName":${JSON.stringify(appName)},"userId":${JSON.stringify(userId)},` +
  `"state":${unescapeJson(state_text)},"events":[],"lastUpdateTime":${last_update}}`;

/** Guesses the initial state of an imported session from its final state: the keys that no event changed. */
function withoutChanged(state: JsonObject, events: NewEvent[]): JsonObject {
  const changed = new Set(events.flatMap((event) => Object.keys(event.actions?.stateDelta ?? {})));
  return Object.fromEntries(Object.entries(state).filter(([name]) => !changed.has(name)));
}

export async function findInitialState(db: Database, key: SessionKey): Promise<JsonObject | undefined> {
  const [row] = await db.select({ state: sessions.initialState }).from(sessions).where(isSession(key, sessions));
  return row?.state as JsonObject | undefined;
}

/**
 * Deletes a session with its events, invocations and child sessions; with `versions`, only if the session has one of these.
 * @throws {ForbiddenError} for a child session, which goes with its parent
 */
export async function deleteSession(db: Database, key: SessionKey, versions?: string[]): Promise<boolean> {
  const { rowCount } = await db
    .delete(sessions)
    .where(and(isSession(key, sessions), isNull(sessions.parentSessionId), hasVersion(sessions, versions)));
  if ((rowCount ?? 0) > 0) return true;
  if (await isChildSession(db, key))
    throw new ForbiddenError(
      `Session ${key.sessionId} is that of an agent that another one called: it goes with that one's.`,
    );
  return false;
}
