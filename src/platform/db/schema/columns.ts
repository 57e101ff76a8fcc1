import { type SQL, sql } from 'drizzle-orm';
import { customType, pgPolicy, timestamp } from 'drizzle-orm/pg-core';

/** An identifier, compared by code point in any locale, as the specification sorts case ids. */
export const identifier = customType<{ data: string }>({ dataType: () => 'text collate "C"' });
export const bytes = customType<{ data: Buffer }>({ dataType: () => 'bytea' });
/** Words for full-text search in the `simple` configuration, which assumes no language. */
export const searchVector = customType<{ data: string }>({ dataType: () => 'tsvector' });
export const time = (name: string) => timestamp(name, { withTimezone: true, precision: 6 });
export const timeOfChange = (name: string) => time(name).notNull().default(sql`clock_timestamp()`);
/** The first key columns of every table with user data. The arguments are their comments. */
export const ofUser = (user = 'User.', app = 'Application.') => ({
  appName: identifier('app_name').notNull().comment(app),
  userId: identifier('user_id').notNull().comment(user),
});
export const ofSession = (session = 'Session.', user = 'Owner of the session.') => ({
  ...ofUser(user),
  sessionId: identifier('session_id').notNull().comment(session),
});
export const emptyObject = sql`'{}'::jsonb`;

/** The user of a statement, in a policy. A subquery, so that it is evaluated once and not for each row. */
export const currentUser = sql`(select current_setting('agent_runtime.user', true))`;
/**
 * Row-level security, a second line of defence: a statement of one user sees and writes only the rows of that user,
 * whatever its own conditions. Without either setting no row is visible. The migrator forces it on the tables' owner.
 */
export const ofUserPolicy = (isTheirs: SQL = sql`user_id = ${currentUser}`) =>
  pgPolicy('of_user', {
    using: sql`${isTheirs} or (select current_setting('agent_runtime.all_users', true)) = 'on'`,
  });
