import { and, asc, eq, type SQL, sql, type SQLWrapper } from 'drizzle-orm';
import { z } from 'zod';
import type { Database } from '../../platform/db/database.ts';
import { legalHolds } from '../../platform/db/schema/schema.ts';

/** The data under a legal hold: a session's, or all data of a user if `sessionId` is undefined. */
interface HoldKey {
  appName: string;
  userId: string;
  sessionId: string | undefined;
}

interface OwnerColumns {
  appName: SQLWrapper;
  userId: SQLWrapper;
  /** Column of the session's id; absent if the rows belong to no session. */
  sessionId?: SQLWrapper;
}

/** SQL condition: the row is under a legal hold. Clean-ups skip it, because a trigger would fail the statement. */
export const isOnHold = ({ appName, userId, sessionId }: OwnerColumns): SQL => sql`exists (
  select from ${legalHolds} where ${legalHolds.appName} = ${appName} and ${legalHolds.userId} = ${userId}
    and ${legalHolds.sessionId} in ('', ${sessionId ?? sql`''`}))`;

/** Upserts a legal hold. Waits for running statements that delete the user's data. */
export async function saveHold(tx: Database, key: HoldKey, reason: string): Promise<void> {
  await tx.execute(sql`select pg_advisory_xact_lock(user_data_lock(${key.appName}, ${key.userId}))`);
  const values = { ...key, sessionId: key.sessionId ?? '', reason };
  await tx
    .insert(legalHolds)
    .values(values)
    .onConflictDoUpdate({
      target: [legalHolds.appName, legalHolds.userId, legalHolds.sessionId],
      set: { reason: values.reason },
    });
}

export async function deleteHold(db: Database, { appName, userId, sessionId }: HoldKey): Promise<void> {
  await db
    .delete(legalHolds)
    .where(
      and(eq(legalHolds.appName, appName), eq(legalHolds.userId, userId), eq(legalHolds.sessionId, sessionId ?? '')),
    );
}

export async function listHolds(
  db: Database,
  appName: string,
  { userId, limit }: { userId?: string | undefined; limit: number },
): Promise<Hold[]> {
  return db
    .select({
      appName: legalHolds.appName,
      userId: legalHolds.userId,
      sessionId: sql<string | null>`nullif(${legalHolds.sessionId}, '')`,
      reason: legalHolds.reason,
      createTime: legalHolds.createTime,
    })
    .from(legalHolds)
    .where(and(eq(legalHolds.appName, appName), userId === undefined ? undefined : eq(legalHolds.userId, userId)))
    .orderBy(asc(legalHolds.userId), asc(legalHolds.sessionId))
    .limit(limit);
}

export const holdSchema = z
  .object({
    appName: z.string().describe('Application.'),
    userId: z.string().describe('User.'),
    sessionId: z.string().nullable().describe('The session; null for all that the user has.'),
    reason: z.string().describe('Why.'),
    createTime: z.number().describe('When it was set, Unix time in seconds.'),
  })
  .describe('A legal hold.');

export const setHoldSchema = z
  .object({
    sessionId: z.string().min(1).max(256).nullish().describe('The session [all that the user has].'),
    reason: z.string().min(1).max(2_000).describe('Why: a sentence for later readers.'),
  })
  .describe('What must not be deleted, and why.');

export type Hold = z.output<typeof holdSchema>;
