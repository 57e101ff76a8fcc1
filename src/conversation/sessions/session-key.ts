import { type Placeholder, type SQL, sql } from 'drizzle-orm';
import type { AnyPgColumn } from 'drizzle-orm/pg-core';
import type { SessionKey } from '../../core/session.ts';
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

/** The key of a statement whose text is made once: it is given with the values, under its own names. */
export const KEY = { appName: value('appName'), userId: value('userId'), sessionId: value('sessionId') };
