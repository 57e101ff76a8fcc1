import { sql } from 'drizzle-orm';
import { customType, timestamp } from 'drizzle-orm/pg-core';

/** An identifier: compared by code point, whatever the locale of the database (the specification sorts case ids so). */
export const identifier = customType<{ data: string }>({ dataType: () => 'text collate "C"' });
/** Bytes of any length. */
export const bytes = customType<{ data: Buffer }>({ dataType: () => 'bytea' });
/** Words for full-text search in the `simple` configuration: no language is assumed. */
export const searchVector = customType<{ data: string }>({ dataType: () => 'tsvector' });
/** A moment, in microseconds. */
export const time = (name: string) => timestamp(name, { withTimezone: true, precision: 6 });
/** The moment of a creation or a change, the database's by default. */
export const timeOfChange = (name: string) => time(name).notNull().default(sql`clock_timestamp()`);
/** The columns that the key of every table of user data begins with. */
export const ofUser = () => ({ appName: identifier('app_name').notNull(), userId: identifier('user_id').notNull() });
/** As {@link ofUser}, for what belongs to a session. */
export const ofSession = () => ({ ...ofUser(), sessionId: identifier('session_id').notNull() });
/** The default of a column of JSON objects. */
export const emptyObject = sql`'{}'::jsonb`;
