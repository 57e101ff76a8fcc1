import { type SQL, sql } from 'drizzle-orm';
import type { AnyPgColumn } from 'drizzle-orm/pg-core';
import type { NewEvent } from '../../core/event.ts';
import { escapeText } from '../../platform/db/json-escape.ts';
import type { SessionKey } from '../../core/session.ts';
import { events, sessions } from '../../platform/db/schema/schema.ts';
import { type GivenSession, type GivenUser, isSession } from './session-key.ts';

/** Code points that are kept of the first text. */
const MAX_LENGTH = 200;

/** The beginning of the first text of a user among events, for a text column; empty where there is none. */
export function firstTextIn(given: readonly NewEvent[]): string {
  for (const { author, content } of given) {
    if (author !== 'user') continue;
    const texts = (content?.parts ?? []).flatMap(({ text }) => text || []);
    // Of a long text no more is taken apart than can be needed: a code point is at most two UTF-16 units.
    if (texts.length > 0) {
      const start = texts.join(' ').slice(0, 2 * MAX_LENGTH);
      return escapeText(Array.from(start).slice(0, MAX_LENGTH).join(''));
    }
  }
  return '';
}

/** The columns that tell the first text of a session. */
type SessionColumns = Record<'id' | 'firstText', AnyPgColumn>;

/** Of a session that an earlier version wrote, the events tell the first text; null where there is none. */
const textOfEvents = (isWanted: SQL) => sql`(
  select left(said.text, ${sql.raw(String(MAX_LENGTH))})
  from ${events}, lateral (
    select string_agg(part ->> 'text', ' ') as text
    from jsonb_array_elements(${events.payload} #> '{content,parts}') part) said
  where ${isWanted} and ${events.author} = 'user'
    and jsonb_typeof(${events.payload} #> '{content,parts}') = 'array' and said.text <> ''
  order by ${events.sequence} limit 1)`;

/** The first text of a user's session; null or empty where there is none. */
export const firstTextOf = (row: SessionColumns, { appName, userId }: GivenUser): SQL => {
  const isOfRow = sql`${events.appName} = ${appName} and ${events.userId} = ${userId}
    and ${events.sessionId} = ${row.id}`;
  return sql`coalesce(${row.firstText}, ${textOfEvents(isOfRow)})`;
};

/** The first text of a session as it was after event `n`; null where there is none. */
export const firstTextAt = (key: GivenSession, n: SQL): SQL =>
  textOfEvents(sql`${isSession(key, events)} and ${events.sequence} <= ${n}`);

/** As {@link nextFirstText}, without a look at the events: of a session of an earlier version it stays unknown. */
export const keptFirstText = (text: string): SQL => sql`
  case when ${sessions.firstText} = '' then ${text} else ${sessions.firstText} end`;

/** The first text of a session to which `text` is added, for an update of its row. */
export const nextFirstText = (key: SessionKey, text: string): SQL => sql`
  case when ${sessions.firstText} = '' then ${text}
       else coalesce(${sessions.firstText}, ${textOfEvents(isSession(key, events))}, ${text}) end`;
