import { type Placeholder, type SQL, sql } from 'drizzle-orm';
import type { AnyPgColumn, PgTable } from 'drizzle-orm/pg-core';
import type { SessionKey } from '../../core/session.ts';
import { getKey } from '../../platform/db/sql.ts';
import { value } from '../../platform/db/statement.ts';

/** The columns that name a session: in the rows of what belongs to it, or `id` in the row of the session itself. */
type SessionColumns = Record<'appName' | 'userId', AnyPgColumn> & ({ sessionId: AnyPgColumn } | { id: AnyPgColumn });

/** A session as statements name it: by values, by the places of later ones, or by the columns of another table. */
export type GivenSession = Record<keyof SessionKey, string | Placeholder | AnyPgColumn>;
/** The user of a {@link GivenSession}. */
export type GivenUser = Omit<GivenSession, 'sessionId'>;

/**
 * The condition that rows of a table are one session's. Every table of a statement is given the user by value: a
 * distributed database sends it to the node that the values name, and to all of them where a table has none.
 */
export const isSession = ({ appName, userId, sessionId }: GivenSession, table: SessionColumns): SQL => {
  const id = 'sessionId' in table ? table.sessionId : table.id;
  return sql`${table.appName} = ${appName} and ${table.userId} = ${userId} and ${id} = ${sessionId}`;
};

/** The members of session keys as arrays. */
const toRows = (keys: readonly SessionKey[]): SQL => {
  const column = (name: keyof SessionKey) => sql`${sql.param(keys.map((key) => key[name]))}::text[]`;
  return sql`unnest(${column('appName')}, ${column('userId')}, ${column('sessionId')})`;
};

/** The condition that rows of a table are those of some sessions; one alone is named by value as in `isSession`. */
export const isAmong = (
  keys: readonly SessionKey[],
  table: Record<'appName' | 'userId' | 'sessionId', AnyPgColumn>,
): SQL => {
  const [key] = keys;
  if (key && keys.length === 1) return isSession(key, table);
  return sql`(${table.appName}, ${table.userId}, ${table.sessionId}) in (select * from ${toRows(keys)})`;
};

/** As {@link isAmong} for a table whose index ends at the user: the rows of each user are read once. */
export const isOneOfUsers = (
  keys: readonly SessionKey[],
  table: PgTable & Record<'appName' | 'userId', AnyPgColumn>,
  sessionId: AnyPgColumn | SQL,
): SQL => {
  const row = sql.join(getKey(table), sql`, `);
  return sql`(${row}) in (
    select ${row}
    from (select app, owner, array_agg(id) as ids from ${toRows(keys)} given(app, owner, id) group by 1, 2) s
    join ${table} on ${table.appName} = s.app and ${table.userId} = s.owner where ${sessionId} = any(s.ids))`;
};

/** The key of a statement whose text is made once: it is given with the values, under its own names. */
export const KEY = { appName: value('appName'), userId: value('userId'), sessionId: value('sessionId') };
