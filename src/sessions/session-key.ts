import { type SQL, sql } from 'drizzle-orm';
import type { AnyPgColumn } from 'drizzle-orm/pg-core';
import type { SessionKey } from '../core/session.ts';

/** The columns that name a session: in the rows of what belongs to it, or `id` in the row of the session itself. */
type SessionColumns = Record<'appName' | 'userId', AnyPgColumn> & ({ sessionId: AnyPgColumn } | { id: AnyPgColumn });

/** The condition that rows of a table, or of an alias of it, are one session's. */
export const isSession = ({ appName, userId, sessionId }: SessionKey, table: SessionColumns): SQL => {
  const id = 'sessionId' in table ? table.sessionId : table.id;
  return sql`${table.appName} = ${appName} and ${table.userId} = ${userId} and ${id} = ${sessionId}`;
};
