import { sql } from 'drizzle-orm';
import type { JsonObject } from '../core/content.ts';
import type { Event } from '../core/event.ts';
import type { SessionKey } from '../core/session.ts';
import type { Database } from '../db/database.ts';
import { unescapeJson, unescapeText } from '../db/json-escape.ts';
import { limitedSize, storedBytes } from './append-events.ts';
import { eventPage, findEventPage, type Moment, runtimeEventIds } from './event-store.ts';
import { isSession } from './session-key.ts';
import { mergedState, s, withStates } from './session-text.ts';

/** A session as an invocation finds it. */
interface SessionHistory {
  events: Event[];
  /** Those of them that the runtime made; the others came in requests, whatever author they name. */
  runtimeEventIds: ReadonlySet<string>;
  state: JsonObject;
}

/**
 * What an invocation starts from: all events in order and the merged state, of one moment; `undefined` without a
 * session. One statement unless the events are many. It fails for a session of more than `MAX_SESSION_BYTES`, which
 * would not fit in memory.
 */
export async function findHistory(db: Database, key: SessionKey): Promise<SessionHistory | undefined> {
  type Row = Moment & { text: string | null; last: number | null; own: string[]; state: string };
  const { rows } = await db.execute<Row>(sql`
    select page.text, page.last, ${s.lastSequence} as final, extract(epoch from ${s.createTime})::text as created,
           ${runtimeEventIds} as own,
           ${mergedState}::text as state, ${limitedSize(storedBytes(s))} as size
    from ${withStates} cross join ${eventPage(0, sql`${s.lastSequence}`)} where ${isSession(key, s)}`);
  const row = rows[0];
  if (!row) return undefined;
  const found = toEvents(row.text ?? '');
  for (let after = row.last ?? row.final; after < row.final; ) {
    const page = await findEventPage(db, key, after, row);
    if (!page) return undefined;
    for (const event of toEvents(page.text)) found.push(event);
    after = page.last;
  }
  return {
    events: found,
    runtimeEventIds: new Set(row.own.map(unescapeText)),
    state: JSON.parse(unescapeJson(row.state)) as JsonObject,
  };
}

const toEvents = (texts: string) => JSON.parse(`[${unescapeJson(texts)}]`) as Event[];

/**
 * The events of several sessions of an application, in order, for each session in the order given; none of a session
 * that there is not. Each as {@link findHistory} reads it: a statement for all would make one string of each session.
 */
export async function listHistories(
  db: Database,
  appName: string,
  keys: { userId: string; sessionId: string }[],
): Promise<Event[][]> {
  const histories: Event[][] = [];
  for (const key of keys) histories.push((await findHistory(db, { appName, ...key }))?.events ?? []);
  return histories;
}
