import { and, asc, eq, lt, sql } from 'drizzle-orm';
import type { Database } from '../../platform/db/database.ts';
import { userErasures } from '../../platform/db/schema/schema.ts';
import type { User } from './user-tables.ts';

/** Deleted rows by table. */
export type Counts = Record<string, number>;

const belongsTo = ({ appName, userId }: User) =>
  and(eq(userErasures.appName, appName), eq(userErasures.userId, userId));

/**
 * Marks a user as being erased, in a transaction: from its end on triggers refuse new data. It waits for statements
 * that add some. What is marked already stays so.
 * @param webhookId - the webhook that is told of its end
 */
export async function markErasure(tx: Database, { appName, userId }: User, webhookId?: string): Promise<void> {
  await tx.execute(sql`select pg_advisory_xact_lock(user_data_lock(${appName}, ${userId}))`);
  await tx
    .insert(userErasures)
    .values({ appName, userId, webhookId })
    .onConflictDoUpdate({
      target: [userErasures.appName, userErasures.userId],
      set: {
        updateTime: sql`excluded.update_time`,
        webhookId: sql`coalesce(excluded.webhook_id, ${userErasures.webhookId})`,
      },
    });
}

/** Adds to what was deleted so far. @returns the sums */
export async function addCounts(db: Database, user: User, counts: Counts): Promise<Counts> {
  const added = JSON.stringify(counts);
  const [row] = await db
    .update(userErasures)
    .set({
      updateTime: sql`statement_timestamp()`,
      counts: sql`(
        select coalesce(jsonb_object_agg(name, rows), '{}') from (
          select key as name, sum(value::bigint) as rows
          from (select * from jsonb_each_text(${userErasures.counts}) union all
                select * from jsonb_each_text(${added}::jsonb)) every group by key) sums)`,
    })
    .where(belongsTo(user))
    .returning({ counts: userErasures.counts });
  // Another request may have come to the end first; then these rows are all that this one knows of.
  return (row?.counts as Counts | undefined) ?? counts;
}

/** Removes the mark: the user may come again. @returns what was deleted, by table, and who is told of it */
export async function endErasure(db: Database, user: User): Promise<{ counts: Counts; webhookId: string | null }> {
  const { counts, webhookId } = userErasures;
  const [row] = await db.delete(userErasures).where(belongsTo(user)).returning({ counts, webhookId });
  return { counts: (row?.counts as Counts | undefined) ?? {}, webhookId: row?.webhookId ?? null };
}

/** Users whose erasure has not moved on for so many seconds, the longest first; at most `limit`. */
export const listLeftErasures = (db: Database, seconds: number, limit: number): Promise<User[]> =>
  db
    .select({ appName: userErasures.appName, userId: userErasures.userId })
    .from(userErasures)
    .where(lt(userErasures.updateTime, sql`clock_timestamp() - ${seconds} * interval '1 second'`))
    .orderBy(asc(userErasures.updateTime))
    .limit(limit);
