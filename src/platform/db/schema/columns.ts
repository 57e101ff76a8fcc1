import { type SQL, sql } from 'drizzle-orm';
import { customType, pgPolicy, timestamp } from 'drizzle-orm/pg-core';
import { escapeJson, escapeText, unescapeJson, unescapeText } from '../../json-escape.ts';

/** An identifier, compared by code point in any locale, as the specification sorts case ids. */
export const identifier = customType<{ data: string }>({ dataType: () => 'text collate "C"' });
/** Text that a client or a model chose, with what PostgreSQL refuses: U+0000 and lone surrogates. */
export const anyText = customType<{ data: string }>({
  dataType: () => 'text',
  toDriver: escapeText,
  fromDriver: (stored) => unescapeText(stored as string),
});
/** An identifier that a model chose, as that of a tool call; otherwise like {@link anyText}. */
export const anyIdentifier = customType<{ data: string }>({
  dataType: () => 'text collate "C"',
  toDriver: escapeText,
  fromDriver: (stored) => unescapeText(stored as string),
});
/** Any JSON. A value that is read is already parsed by the driver (`client.ts`). */
export const json = customType<{ data: unknown }>({ dataType: () => 'jsonb', toDriver: escapeJson });
/** JSON whose text is kept byte for byte. */
export const jsonText = customType<{ data: string }>({
  dataType: () => 'text',
  fromDriver: (stored) => unescapeJson(stored as string),
});
export const bytes = customType<{ data: Buffer }>({ dataType: () => 'bytea' });
/** Words for full-text search in the `simple` configuration, which assumes no language. */
export const searchVector = customType<{ data: string }>({ dataType: () => 'tsvector' });
export const time = (name: string) => timestamp(name, { withTimezone: true, precision: 6 });
/** Day, second, fraction and zone of a time that PostgreSQL prints with the date style ISO, e.g. `+00` or `+05:30`. */
const PRINTED = /^(\S+) ([\d:]+)(\.\d+)?([+-]\d\d)(:\d\d)?$/;
/** A time that is read as the API has times: Unix seconds with microseconds, of which a `Date` would lose three digits. */
const secondsColumn = customType<{ data: number; driverData: string }>({
  dataType: () => 'timestamp (6) with time zone',
  fromDriver: (printed) => {
    const [, day, second, fraction = '0', hours, minutes = ':00'] = PRINTED.exec(printed) ?? [];
    const seconds = Date.parse(`${day}T${second}${hours}${minutes}`) / 1_000 + Number(fraction);
    return Math.round(seconds * 1e6) / 1e6;
  },
});
export const secondsOfChange = (name: string) => secondsColumn(name).notNull().default(sql`clock_timestamp()`);
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
