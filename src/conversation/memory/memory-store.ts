import { sql } from 'drizzle-orm';
import type { Database } from '../../platform/db/database.ts';
import { escapeText, unescapeJson } from '../../platform/db/json-escape.ts';
import { memories } from '../../platform/db/schema/schema.ts';
import { insertSelect } from '../../platform/db/sql.ts';
import { saidInSession } from '../sessions/event-store.ts';
import { isSession } from '../sessions/session-key.ts';
import { heldSession } from '../sessions/session-lease.ts';
import type { Content } from '../../core/content.ts';
import type { SessionKey } from '../../core/session.ts';

/** A text of an earlier conversation. `timestamp` is ISO 8601. */
export interface Memory {
  author: string;
  timestamp: string;
  content: Content;
}

/** How much of one event's text is indexed, in characters: PostgreSQL refuses a tsvector over 1 MiB. */
const INDEXED_CHARACTERS = 200_000;

/**
 * Adds what was said in a session to its user's memory; events that are there already stay as they are. One
 * statement, which holds the session meanwhile: nothing is added of one that is being deleted.
 * @returns false when there is no such session.
 */
export async function addSessionToMemory(db: Database, key: SessionKey): Promise<boolean> {
  const insert = insertSelect(memories, {
    appName: key.appName,
    userId: key.userId,
    sessionId: key.sessionId,
    eventId: sql`said.id`,
    author: sql`said.author`,
    content: sql`said.content`,
    eventTime: sql`said.event_time`,
    searchVector: sql`to_tsvector('simple', left(said.text, ${INDEXED_CHARACTERS}))`,
  });
  const { rows } = await db.execute(sql`
    with held as materialized (${heldSession(key)}),
    said as (${saidInSession(key)}),
    added as (${insert} from held, said where said.text is not null on conflict do nothing)
    select from held`);
  return rows.length === 1;
}

/** Forgets what was said in a session; forgetting what is not there does nothing. */
export async function deleteMemories(db: Database, key: SessionKey): Promise<void> {
  await db.delete(memories).where(isSession(key, memories));
}

/** Memories of this user of this app that hold any of the words, best first, then newest; at most `limit`. */
export async function searchMemories(
  db: Database,
  { appName, userId }: Pick<SessionKey, 'appName' | 'userId'>,
  query: string,
  limit: number,
): Promise<Memory[]> {
  const time = sql`to_char(${memories.eventTime} at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`;
  const { rows } = await db.execute<{ text: string }>(sql`
    select json_build_object(
             'author', ${memories.author}, 'content', ${memories.content}, 'timestamp', ${time})::text as text
    from ${memories},
         -- plainto_tsquery asks for all words; any of them is enough here.
         cast(replace(plainto_tsquery('simple', ${escapeText(query)})::text, ' & ', ' | ') as tsquery) as wanted
    where ${memories.appName} = ${appName} and ${memories.userId} = ${userId} and ${memories.searchVector} @@ wanted
    order by ts_rank(${memories.searchVector}, wanted) desc, ${memories.eventTime} desc,
             ${memories.sessionId}, ${memories.eventId}
    limit ${limit}`);
  return rows.map(({ text }) => JSON.parse(unescapeJson(text)) as Memory);
}
