import { type SQL, and, eq, sql } from 'drizzle-orm';
import type { AnyPgColumn } from 'drizzle-orm/pg-core';
import type { SessionKey } from '../../core/session.ts';
import type { Database } from '../../platform/db/database.ts';
import { userStorage as u } from '../../platform/db/schema/schema.ts';

type User = Pick<SessionKey, 'appName' | 'userId'>;
const belongsTo = ({ appName, userId }: User) => and(eq(u.appName, appName), eq(u.userId, userId));

/**
 * SQL: the bytes that a statement adds to a user's storage. Fails if the storage would exceed its limit. A user's large
 * writes wait for each other here; a row that was locked before could deadlock with them, except the session's.
 * @param begins - true if later statements of the transaction add data too: then the wait is here whatever the size
 */
export const limitedBytes = ({ limits }: Database, { appName, userId }: User, added: SQL, begins = false): SQL =>
  sql`assert_user_storage(${appName}, ${userId}, ${added}, ${limits.maxUserBytes}::bigint, ${begins})`;

export async function findUserStorage(db: Database, user: User) {
  const total = (...columns: AnyPgColumn[]) =>
    sql<number>`coalesce(sum(${sql.join(columns, sql` + `)}), 0)`.mapWith(Number);
  const { eventBytes, artifactBytes, memoryBytes } = u;
  const [row] = await db
    .select({
      bytes: total(eventBytes, artifactBytes, memoryBytes),
      eventBytes: total(eventBytes),
      artifactBytes: total(artifactBytes),
      memoryBytes: total(memoryBytes),
    })
    .from(u)
    .where(belongsTo(user));
  return row;
}

/** Deletes the storage counters of a user who has no data. */
export const deleteUserStorage = (db: Database, user: User) => db.delete(u).where(belongsTo(user));
