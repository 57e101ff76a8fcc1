import { sql } from 'drizzle-orm';
import type { JsonObject } from '../../core/content.ts';
import type { Event } from '../../core/event.ts';
import type { SessionKey } from '../../core/session.ts';
import type { Database } from '../../platform/db/database.ts';
import { unescapeJson, unescapeText } from '../../platform/json-escape.ts';
import { statement, value } from '../../platform/db/statement.ts';
import { sessions } from '../../platform/db/schema/schema.ts';
import { eventIdAt, eventPage, type Moment } from './event-store.ts';
import { type SessionRef, isSession, KEY } from './session-key.ts';
import { mergedState, s, withStates } from './session-text.ts';
import { parseExactJson } from '../../core/exact-json.ts';

export interface SessionHistory {
  events: Event[];
  /** Ids of the events that the runtime made. All other events came in requests, whatever author they name. */
  runtimeEventIds: ReadonlySet<string>;
  state: JsonObject;
}

/** The part of a history after a known sequence, with data for checking that the known part is unchanged. */
export interface HistoryPart {
  events: Event[];
  runtimeEventIds: string[];
  state: JsonObject;
  /** Length of the events' JSON in characters. */
  length: number;
  place: HistoryPlace;
  /** Id of the event at the known sequence; null if there is none. */
  idBefore: string | null;
}

/** The last sequence of a history, and the edition of its session. */
export interface HistoryPlace {
  last: number;
  /** Creation time and version of the events: changes if the session is re-created or its events are rewritten. */
  edition: string;
}

/** Reads all events and the merged state from one snapshot. @returns `undefined` if the session does not exist */
export async function findHistory(db: Database, key: SessionKey): Promise<SessionHistory | undefined> {
  const part = await findHistoryAfter(db, key, 0);
  return part && { events: part.events, runtimeEventIds: new Set(part.runtimeEventIds), state: part.state };
}

/** Like {@link findHistory}, but reads only the events after a sequence. */
export async function findHistoryAfter(db: Database, key: SessionKey, after: number): Promise<HistoryPart | undefined> {
  const [row] = await selectHistory(db, { ...key, after, maxBytes: db.limits.maxSessionBytes });
  if (!row) return undefined;
  // Parsed by page so that other requests run in between: parsing 27 MB at once blocked them for 70 ms.
  const events = toEvents(row.text ?? '');
  const own = row.own ?? [];
  let length = row.text?.length ?? 0;
  for (let read = row.last ?? row.final; read < row.final; ) {
    const [page] = await selectFurtherHistory(db, { ...key, after: read, final: row.final, created: row.created });
    if (page?.last == null) return undefined;
    events.push(...toEvents(page.text ?? ''));
    own.push(...(page.own ?? []));
    length += page.text?.length ?? 0;
    read = page.last;
  }
  return {
    events,
    runtimeEventIds: own.map(unescapeText),
    state: parseExactJson(unescapeJson(row.state)) as JsonObject,
    length,
    place: { last: row.final, edition: `${row.created} ${row.version}` },
    idBefore: row.idBefore,
  };
}

interface HistoryPage {
  text: string | null;
  last: number | null;
  own: string[] | null;
}

interface HistoryRow extends HistoryPage, Moment {
  state: string;
  idBefore: string | null;
  version: number;
}

/** A left join that adds the bytes of a session's events; a distributed database allows no subquery here. */
export const joinEventBytes = (key: SessionRef) => ({
  table: sql`${sessions} ${s}`,
  on: isSession(key, s),
  bytes: sql`coalesce(${s.eventBytes}, 0)`,
});

const AFTER = sql`${value('after')}::int`;

const selectHistory = statement<HistoryRow>(
  () => sql`
    select page.text, page.last, page.own, ${s.lastSequence} as final,
           extract(epoch from ${s.createTime})::text as created, ${s.eventsVersion} as version,
           ${eventIdAt(KEY, AFTER)} as "idBefore",
           ${mergedState}::text as state, assert_session_size(${s.eventBytes}, ${value('maxBytes')}::bigint) as size
    from ${withStates(KEY)} cross join ${eventPage(KEY, AFTER, sql`${s.lastSequence}`)} where ${isSession(KEY, s)}`,
);

const selectFurtherHistory = statement<HistoryPage>(
  () => sql`
    select page.text, page.last, page.own
    from ${sessions} ${s} cross join ${eventPage(KEY, AFTER, sql`${value('final')}::int`)}
    where ${isSession(KEY, s)} and extract(epoch from ${s.createTime}) = ${value('created')}::numeric`,
);

/** Parses events as stored: JSON texts separated by commas. */
export const toEvents = (texts: string) => parseExactJson(`[${unescapeJson(texts)}]`) as Event[];

/** Maximum size of a small session, in bytes: up to 200 of them are read together in one statement (12.5 MiB). */
const SMALL_BYTES = 65_536;
const MAX_TOGETHER = 200;

/** Sessions' events in the order of `keys`. Large ones are read singly, so that no statement builds a huge string. */
export async function listHistories(
  db: Database,
  appName: string,
  keys: { userId: string; sessionId: string }[],
): Promise<Event[][]> {
  const histories: Event[][] = [];
  for (let from = 0; from < keys.length; from += MAX_TOGETHER) {
    const some = keys.slice(from, from + MAX_TOGETHER);
    const small = await listSmallHistories(db, appName, some);
    for (const [place, key] of some.entries()) {
      histories.push(small.get(place) ?? (await findHistory(db, { appName, ...key }))?.events ?? []);
    }
  }
  return histories;
}

/** Reads the events of the small sessions in one statement; returns them by their position in `keys`. */
async function listSmallHistories(
  db: Database,
  appName: string,
  keys: { userId: string; sessionId: string }[],
): Promise<Map<number, Event[]>> {
  const column = (name: 'userId' | 'sessionId') => sql`${sql.param(keys.map((key) => key[name]))}::text[]`;
  const { rows } = await db.execute<{ place: number; text: string | null }>(sql`
    select wanted.place::int as place, page.text
    from unnest(${column('userId')}, ${column('sessionId')}) with ordinality as wanted(user_id, id, place)
    join ${sessions} ${s} on ${s.appName} = ${appName} and ${s.userId} = wanted.user_id and ${s.id} = wanted.id
    cross join ${eventPage({ appName, userId: s.userId, sessionId: s.id }, 0, sql`${s.lastSequence}`)}
    where ${s.eventBytes} <= ${SMALL_BYTES} and coalesce(page.last, 0) = ${s.lastSequence}`);
  return new Map(rows.map(({ place, text }) => [place - 1, toEvents(text ?? '')]));
}
