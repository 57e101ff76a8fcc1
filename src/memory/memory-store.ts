import { sql } from 'drizzle-orm';
import type { Database } from '../db/database.ts';
import { fromJsonb, toText } from '../db/json-escape.ts';
import type { Content } from '../core/content.ts';
import type { SessionKey } from '../core/session.ts';

/** What was said once, found again. `timestamp` is ISO 8601. */
export interface Memory {
  author: string;
  timestamp: string;
  content: Content;
}

/** How much of one event's text is indexed, in characters: PostgreSQL refuses a tsvector over 1 MiB. */
const INDEXED_CHARACTERS = 200_000;

/**
 * Adds what was said in a session to its user's memory; events that are there already stay as they are. One statement, which
 * holds the session meanwhile: nothing is added of one that is being forgotten.
 * @returns false when there is no such session.
 */
export async function addSessionToMemory(db: Database, { appName, userId, sessionId }: SessionKey): Promise<boolean> {
  const { rows } = await db.execute(sql`
    with held as materialized (
      select id from sessions where app_name = ${appName} and user_id = ${userId} and id = ${sessionId} for key share),
    said as (
      select e.id, e.author, e.event_time, e.payload -> 'content' as content,
             (select string_agg(part ->> 'text', ' ') from jsonb_array_elements(e.payload -> 'content' -> 'parts') part
              where coalesce(part ->> 'thought', 'false') <> 'true') as text
      from events e join held on held.id = e.session_id
      where e.app_name = ${appName} and e.user_id = ${userId} and e.session_id = ${sessionId}
        and jsonb_typeof(e.payload -> 'content' -> 'parts') = 'array'),
    added as (
      insert into memories (app_name, user_id, session_id, event_id, author, content, event_time, words)
      select ${appName}, ${userId}, ${sessionId}, id, author, content, event_time,
             to_tsvector('simple', left(text, ${INDEXED_CHARACTERS}))
      from said where text is not null
      on conflict do nothing)
    select from held`);
  return rows.length === 1;
}

/** Forgets what was said in a session; forgetting what is not there does nothing. */
export async function deleteMemories(db: Database, { appName, userId, sessionId }: SessionKey): Promise<void> {
  await db.execute(sql`
    delete from memories where app_name = ${appName} and user_id = ${userId} and session_id = ${sessionId}`);
}

/** Memories of this user of this app that hold any of the words, best first, then newest; at most `limit`. */
export async function searchMemories(
  db: Database,
  { appName, userId }: Pick<SessionKey, 'appName' | 'userId'>,
  query: string,
  limit: number,
): Promise<Memory[]> {
  const { rows } = await db.execute<{ text: string }>(sql`
    select json_build_object('author', m.author, 'content', m.content, 'timestamp',
             to_char(m.event_time at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))::text as text
    from memories m,
         -- plainto_tsquery asks for all words; any of them is enough here.
         cast(replace(plainto_tsquery('simple', ${toText(query)})::text, ' & ', ' | ') as tsquery) as wanted
    where m.app_name = ${appName} and m.user_id = ${userId} and m.words @@ wanted
    order by ts_rank(m.words, wanted) desc, m.event_time desc, m.session_id, m.event_id
    limit ${limit}`);
  return rows.map(({ text }) => JSON.parse(fromJsonb(text)) as Memory);
}
