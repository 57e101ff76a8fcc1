import { type SQL, eq, sql } from 'drizzle-orm';
import type { SessionKey } from '../../core/session.ts';
import type { Database } from '../../platform/db/database.ts';
import { appStates, events, sessions } from '../../platform/db/schema/schema.ts';
import { names } from '../../platform/db/sql.ts';

type User = Pick<SessionKey, 'appName' | 'userId'>;

/** SQL: the keys of the application's shared state that were last written by agents in this user's sessions. */
const getKeys = (userId: string): SQL => sql`array(
  select key from jsonb_each(${appStates.writers}) where value = to_jsonb(${userId}::text))`;

export async function countAppStateKeys(db: Database, { appName, userId }: User): Promise<number> {
  const [row] = await db
    .select({ keys: sql<number>`cardinality(${getKeys(userId)})::int` })
    .from(appStates)
    .where(eq(appStates.appName, appName));
  return row?.keys ?? 0;
}

/**
 * Removes the keys of the application's shared state that agents last wrote in this user's sessions.
 * @returns their number
 */
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

/** Recomputes sessions' last sequence and size after an import of events, so that appends continue after them. */
export async function countEvents(tx: Database, user: User, sessionIds: string[]): Promise<void> {
  const { appName, userId, id, lastSequence, eventBytes } = sessions;
  await tx.execute(sql`
    update ${sessions} set
      ${names(lastSequence)} = greatest(${lastSequence}, newest.sequence), ${names(eventBytes)} = newest.bytes
    from (
      select ${events.sessionId} as id, max(${events.sequence}) as sequence, sum(${events.bytes}) as bytes
      from ${events}
      where ${events.appName} = ${user.appName} and ${events.userId} = ${user.userId}
        and ${events.sessionId} = any(${sql.param(sessionIds)}::text[]) group by 1) newest
    where ${appName} = ${user.appName} and ${userId} = ${user.userId} and ${id} = newest.id`);
}
