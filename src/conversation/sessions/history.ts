import { sql } from 'drizzle-orm';
import { eventIdAt, eventPage, type Moment } from './event-store.ts';
import { isSession, KEY, type SessionRef } from './session-row.ts';
import { mergedState, s, withStates } from './session-text.ts';
import type { JsonObject } from '../../core/content.ts';
import type { Event } from '../../core/event.ts';
import { parseExactJson } from '../../core/exact-json.ts';
import type { SessionKey } from '../../core/session.ts';
import type { Database } from '../../platform/db/database.ts';
import { sessions } from '../../platform/db/schema/schema.ts';
import { statement, value } from '../../platform/db/statement.ts';
import { unescapeJson, unescapeText } from '../../platform/json-escape.ts';
import { newPauses } from '../../platform/work/loop-turns.ts';

export interface SessionHistory {
  events: Event[];
  /** Ids of the events that the runtime made. All other events came in requests, whatever author they name. */
  runtimeEventIds: ReadonlySet<string>;
  state: JsonObject;
}

/** The part of a history after a known sequence, with data for checking that the known part is unchanged. */
interface HistoryPart {
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
interface HistoryPlace {
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
async function findHistoryAfter(db: Database, key: SessionKey, after: number): Promise<HistoryPart | undefined> {
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
const toEvents = (texts: string) => parseExactJson(`[${unescapeJson(texts)}]`) as Event[];

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

interface CachedHistory {
  /** The events are frozen, because all invocations of the session share these objects. */
  events: readonly Event[];
  /** Ids of events that the runtime made. All readers share the set; ids of events that a reader lacks do no harm. */
  runtimeEventIds: Set<string>;
  lastId: string | null;
  place: HistoryPlace;
  length: number;
}

/** Minimum length of a cached history, in characters; reading a shorter one costs as little as checking it. */
const MIN_LENGTH = 8_192;

/**
 * Caches parsed histories of recently used sessions, so that the next invocation in this process reads only newer
 * events. The cache is never trusted: each read queries the database under row-level security, and checks that the
 * session is the same and unchanged up to the last cached event. The least recently used histories are evicted, by
 * length of their JSON.
 */
export class HistoryCache {
  readonly #maxLength: number;
  readonly #histories = new Map<string, CachedHistory>();
  #length = 0;

  /** @param maxLength - maximum total length of cached JSON, in characters; 0 disables the cache */
  constructor(maxLength: number) {
    this.#maxLength = maxLength;
  }

  /** Like `findHistory`, but returns frozen events. */
  async find(db: Database, key: SessionKey): Promise<SessionHistory | undefined> {
    const name = JSON.stringify([key.appName, key.userId, key.sessionId]);
    const cached = this.#histories.get(name);
    let part = await findFrozen(db, key, cached?.place.last ?? 0);
    if (cached && part && continues(part, cached)) return this.#store(name, part, cached);
    if (cached) {
      this.#forget(name);
      part &&= await findFrozen(db, key, 0);
    }
    return part && this.#store(name, part);
  }

  #store(name: string, part: HistoryPart, before?: CachedHistory): SessionHistory {
    const events = before ? [...before.events, ...part.events] : part.events;
    const length = (before?.length ?? 0) + part.length;
    const runtimeEventIds = before?.runtimeEventIds ?? new Set();
    for (const id of part.runtimeEventIds) runtimeEventIds.add(id);
    this.#forget(name);
    if (length >= MIN_LENGTH && length <= this.#maxLength) {
      this.#histories.set(name, {
        events,
        runtimeEventIds,
        lastId: events.at(-1)?.id ?? null,
        place: part.place,
        length,
      });
      this.#length += length;
      for (const oldest of this.#histories.keys()) {
        if (this.#length <= this.#maxLength) break;
        this.#forget(oldest);
      }
    }
    return { events: [...events], runtimeEventIds, state: part.state };
  }

  #forget(name: string): void {
    this.#length -= this.#histories.get(name)?.length ?? 0;
    this.#histories.delete(name);
  }
}

/**
 * The last event of a cached history is compared by id, because after a failover another event may have its sequence.
 */
const continues = ({ place, idBefore }: HistoryPart, cached: CachedHistory) =>
  place.edition === cached.place.edition && idBefore === cached.lastId;

/** Freezes a history's events, and yields meanwhile, because freezing 10 MB of small values takes 0.5 s. */
async function findFrozen(db: Database, key: SessionKey, after: number): Promise<HistoryPart | undefined> {
  const part = await findHistoryAfter(db, key, after);
  const pause = newPauses();
  for (const event of part?.events ?? []) {
    await pause();
    freeze(event);
  }
  return part;
}

/** Parses and freezes a history that was read when its invocation was claimed: events as JSON lines, and state. */
export function toHistory(lines: string | null, state: string): SessionHistory {
  const events = toEvents(lines?.replaceAll('\n', ',') ?? '');
  for (const event of events) freeze(event);
  return { events, runtimeEventIds: new Set(), state: parseExactJson(unescapeJson(state)) as JsonObject };
}

/** Freezes an event deeply, so that an agent that modifies it fails instead of changing it for later invocations. */
function freeze(event: Event): void {
  const open: unknown[] = [event];
  for (let member = open.pop(); member !== undefined; member = open.pop()) {
    if (typeof member !== 'object' || member === null) continue;
    open.push(...Object.values(Object.freeze(member)));
  }
}
