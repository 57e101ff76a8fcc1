import { type SQL, and, eq, sql } from 'drizzle-orm';
import type { AnyPgColumn } from 'drizzle-orm/pg-core';
import type { SessionKey } from '../../core/session.ts';
import type { Database } from '../../platform/db/database.ts';
import { userStorage as u } from '../../platform/db/schema/schema.ts';

type User = Pick<SessionKey, 'appName' | 'userId'>;
const belongsTo = ({ appName, userId }: User) => and(eq(u.appName, appName), eq(u.userId, userId));

/**
 * The bytes that a statement adds for a user, as SQL; it fails where the user kept more than the limit with them.
 * `begins`: its transaction adds more. What it locks beside the session, it locks afterwards.
 */
export const limitedBytes = ({ limits }: Database, { appName, userId }: User, added: SQL, begins = false): SQL =>
  sql`assert_user_storage(${appName}, ${userId}, ${added}, ${limits.maxUserBytes}::bigint, ${begins})`;

/** The bytes that the writes of a user have counted so far. */
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

/** Deletes the counts of a user of whom nothing is left. */
export const deleteUserStorage = (db: Database, user: User) => db.delete(u).where(belongsTo(user));
