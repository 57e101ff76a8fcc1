import { and, asc, eq, lt, sql } from 'drizzle-orm';
import type { Database } from '../../platform/db/database.ts';
import { userErasures } from '../../platform/db/schema/schema.ts';
import type { Counts, User } from '../../platform/feature/feature.ts';

const belongsTo = ({ appName, userId }: User) =>
  and(eq(userErasures.appName, appName), eq(userErasures.userId, userId));

/** Marks a user as being erased; from the commit on, triggers refuse the user's new data. Waits for running inserts. */
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
  // If there is no row, another request has already ended the erasure.
  return (row?.counts as Counts | undefined) ?? counts;
}

/** Ends an erasure: new data are accepted again. @returns deleted rows by table, and the webhook to notify */
export async function endErasure(db: Database, user: User): Promise<{ counts: Counts; webhookId: string | null }> {
  const { counts, webhookId } = userErasures;
  const [row] = await db.delete(userErasures).where(belongsTo(user)).returning({ counts, webhookId });
  return { counts: (row?.counts as Counts | undefined) ?? {}, webhookId: row?.webhookId ?? null };
}

/** Lists users whose erasure has made no progress for `seconds`, the longest abandoned first. */
export const listAbandonedErasures = (db: Database, seconds: number, limit: number): Promise<User[]> =>
  db
    .select({ appName: userErasures.appName, userId: userErasures.userId })
    .from(userErasures)
    .where(lt(userErasures.updateTime, sql`clock_timestamp() - ${seconds} * interval '1 second'`))
    .orderBy(asc(userErasures.updateTime))
    .limit(limit);
