import { type SQL, sql } from 'drizzle-orm';
import type { AnyPgColumn, PgTable } from 'drizzle-orm/pg-core';
import type { Database } from './database.ts';

interface User extends Record<string, unknown> {
  appName: string;
  userId: string;
}

/** A table whose primary key begins with application and user. */
type OfUsers = PgTable & { appName: AnyPgColumn; userId: AnyPgColumn };

/** Target number of rows per range; the rows of a user are never split. */
const RANGE_ROWS = 10_000;

/**
 * Splits a table by user into SQL conditions, in primary key order. Each selects about `rows` rows (default: 10,000),
 * or all rows of a single user if there are more.
 */
export async function* userRanges(
  db: Database,
  table: OfUsers,
  { rows = RANGE_ROWS, signal }: { rows?: number; signal?: AbortSignal | undefined } = {},
): AsyncGenerator<SQL, void, void> {
  const user = sql`(${table.appName}, ${table.userId})`;
  // The position before every application, because no application has an empty name.
  let after: User | undefined = { appName: '', userId: '' };
  while (after && !signal?.aborted) {
    const { appName, userId } = after;
    const isAfter: SQL = sql`${user} > (${appName}, ${userId})`;
    const ends: { rows: User[] } = await db.execute<User>(sql`
      select ${table.appName} as "appName", ${table.userId} as "userId" from ${table} where ${isAfter}
      order by ${table.appName}, ${table.userId} limit 1 offset ${rows - 1}`);
    after = ends.rows[0];
    yield after ? sql`${isAfter} and ${user} <= (${after.appName}, ${after.userId})` : isAfter;
  }
}
