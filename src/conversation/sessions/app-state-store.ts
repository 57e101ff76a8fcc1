import { type SQL, eq, sql } from 'drizzle-orm';
import type { SessionKey } from '../../core/session.ts';
import type { Database } from '../../platform/db/database.ts';
import { escapeJson } from '../../platform/db/json-escape.ts';
import { appStates } from '../../platform/db/schema/schema.ts';

type User = Pick<SessionKey, 'appName' | 'userId'>;

/** The keys of an application's state that agents wrote last in the sessions of a user. */
const getKeys = (userId: string): SQL => sql`array(
  select key from jsonb_each(${appStates.writers}) where value = ${escapeJson(userId)}::jsonb)`;

/** How many keys of the state that all users share were written last by agents for this user. */
export async function countAppStateKeys(db: Database, { appName, userId }: User): Promise<number> {
  const [row] = await db
    .select({ keys: sql<number>`cardinality(${getKeys(userId)})::int` })
    .from(appStates)
    .where(eq(appStates.appName, appName));
  return row?.keys ?? 0;
}

/** Removes those keys with their values. @returns how many there were */
export async function deleteAppStateKeys(tx: Database, user: User): Promise<number> {
  const { appName, userId } = user;
  const keys = await countAppStateKeys(tx, user);
  if (keys === 0) return 0;
  await tx
    .update(appStates)
    .set({
      state: sql`${appStates.state} - ${getKeys(userId)}`,
      writers: sql`${appStates.writers} - ${getKeys(userId)}`,
      updateTime: sql`statement_timestamp()`,
    })
    .where(eq(appStates.appName, appName));
  return keys;
}
