import { type Placeholder, type SQL, sql } from 'drizzle-orm';
import type { AnyPgColumn } from 'drizzle-orm/pg-core';
import type { SessionKey } from '../core/session.ts';
import { value } from '../db/statement.ts';

/** The columns that name a session: in the rows of what belongs to it, or `id` in the row of the session itself. */
type SessionColumns = Record<'appName' | 'userId', AnyPgColumn> & ({ sessionId: AnyPgColumn } | { id: AnyPgColumn });

/** The condition that rows of a table, or of an alias of it, are one session's. */
export const isSession = (
  { appName, userId, sessionId }: SessionKey | Record<keyof SessionKey, Placeholder>,
  table: SessionColumns,
): SQL => {
  const id = 'sessionId' in table ? table.sessionId : table.id;
  return sql`${table.appName} = ${appName} and ${table.userId} = ${userId} and ${id} = ${sessionId}`;
};

/** The key of a statement whose text is made once: it is given with the values, under its own names. */
export const KEY = { appName: value('appName'), userId: value('userId'), sessionId: value('sessionId') };
