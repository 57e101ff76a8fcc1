import { sql } from 'drizzle-orm';
import { customType, timestamp } from 'drizzle-orm/pg-core';

/** An identifier, compared by code point in any locale, as the specification sorts case ids. */
export const identifier = customType<{ data: string }>({ dataType: () => 'text collate "C"' });
export const bytes = customType<{ data: Buffer }>({ dataType: () => 'bytea' });
/** Words for full-text search in the `simple` configuration, which assumes no language. */
export const searchVector = customType<{ data: string }>({ dataType: () => 'tsvector' });
export const time = (name: string) => timestamp(name, { withTimezone: true, precision: 6 });
export const timeOfChange = (name: string) => time(name).notNull().default(sql`clock_timestamp()`);
/** The first key columns of every table with user data. */
export const ofUser = () => ({ appName: identifier('app_name').notNull(), userId: identifier('user_id').notNull() });
export const ofSession = () => ({ ...ofUser(), sessionId: identifier('session_id').notNull() });
export const emptyObject = sql`'{}'::jsonb`;
