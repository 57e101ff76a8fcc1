import { type SQL, sql } from 'drizzle-orm';
import type { SessionKey } from '../../core/session.ts';
import { events } from '../../platform/db/schema/schema.ts';
import { isSession } from './session-key.ts';

/**
 * The piece of a statement that reads what was said in a session: `(id, author, event_time, content, text)`, thoughts
 * left out.
 */
export const saidInSession = (key: SessionKey): SQL => sql`
  select ${events.id} as id, ${events.author} as author, ${events.eventTime} as event_time,
         ${events.payload} -> 'content' as content,
         (select string_agg(part ->> 'text', ' ') from jsonb_array_elements(${parts}) part
          where coalesce(part ->> 'thought', 'false') <> 'true') as text
  from ${events} where ${isSession(key, events)} and jsonb_typeof(${parts}) = 'array'`;

const parts = sql`${events.payload} -> 'content' -> 'parts'`;
