import { type SQL, sql } from 'drizzle-orm';
import type { AnyPgColumn, PgTable } from 'drizzle-orm/pg-core';
import type { Database } from './database.ts';

/** A user of an application. */
interface User extends Record<string, unknown> {
  appName: string;
  userId: string;
}

/** A table whose primary key begins with application and user. */
type OfUsers = PgTable & { appName: AnyPgColumn; userId: AnyPgColumn };

/** Rows of one range; one user's are never divided. */
const RANGE_ROWS = 10_000;

/**
 * Conditions that together hold for all rows of a table, each for those of some users in the order of its primary key:
 * what looks at everything reads no more than `rows` [10,000], or one user's, in a statement, until `signal` aborts.
 */
export async function* userRanges(
  db: Database,
  table: OfUsers,
  { rows = RANGE_ROWS, signal }: { rows?: number; signal?: AbortSignal | undefined } = {},
): AsyncGenerator<SQL, void, void> {
  const user = sql`(${table.appName}, ${table.userId})`;
  // No application has an empty name.
  let after: User | undefined = { appName: '', userId: '' };
  while (after && !signal?.aborted) {
    const { appName, userId } = after;
    const isAfter: SQL = sql`${user} > (${appName}, ${userId})`;
    const found: { rows: User[] } = await db.execute<User>(sql`
      select ${table.appName} as "appName", ${table.userId} as "userId" from ${table} where ${isAfter}
      order by ${table.appName}, ${table.userId} limit 1 offset ${rows - 1}`);
    after = found.rows[0];
    yield after ? sql`${isAfter} and ${user} <= (${after.appName}, ${after.userId})` : isAfter;
  }
}
