import { type Placeholder, type SQL, sql } from 'drizzle-orm';
import type { AnyPgColumn, PgTable } from 'drizzle-orm/pg-core';
import type { SessionKey } from '../../core/session.ts';
import { getKey } from '../../platform/db/sql.ts';
import { value } from '../../platform/db/statement.ts';

/** The columns of a session's key: its id is the column `id` in the table of sessions, `sessionId` in others. */
type SessionColumns = Record<'appName' | 'userId', AnyPgColumn> & ({ sessionId: AnyPgColumn } | { id: AnyPgColumn });

/** A session's key in SQL: values, placeholders, or columns of another table. */
export type SessionRef = Record<keyof SessionKey, string | Placeholder | AnyPgColumn>;
export type UserRef = Omit<SessionRef, 'sessionId'>;

/**
 * SQL condition: a row belongs to the session. Each table of a statement needs its own condition on application and
 * user, because a distributed database routes by their values; otherwise it would query the table on every node.
 */
export const isSession = ({ appName, userId, sessionId }: SessionRef, table: SessionColumns): SQL => {
  const id = 'sessionId' in table ? table.sessionId : table.id;
  return sql`${table.appName} = ${appName} and ${table.userId} = ${userId} and ${id} = ${sessionId}`;
};

const toRows = (keys: readonly SessionKey[]): SQL => {
  const column = (name: keyof SessionKey) => sql`${sql.param(keys.map((key) => key[name]))}::text[]`;
  return sql`unnest(${column('appName')}, ${column('userId')}, ${column('sessionId')})`;
};

/** SQL condition: a row belongs to one of the sessions. A single session is compared like in `isSession`. */
export const isAmong = (
  keys: readonly SessionKey[],
  table: Record<'appName' | 'userId' | 'sessionId', AnyPgColumn>,
): SQL => {
  const [key] = keys;
  if (key && keys.length === 1) return isSession(key, table);
  return sql`(${table.appName}, ${table.userId}, ${table.sessionId}) in (select * from ${toRows(keys)})`;
};

/** Like {@link isAmong}, for a table whose index contains only application and user: each user's rows are read once. */
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

/** Placeholders for a session's key in prepared statements, named like the members of the key. */
export const KEY = { appName: value('appName'), userId: value('userId'), sessionId: value('sessionId') };
