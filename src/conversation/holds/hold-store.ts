import { and, asc, eq, type SQL, sql, type SQLWrapper } from 'drizzle-orm';
import { z } from 'zod';
import type { Database } from '../../platform/db/database.ts';
import { escapeText, unescapeText } from '../../platform/db/json-escape.ts';
import { legalHolds } from '../../platform/db/schema/schema.ts';

/** The data to keep: a user's, or with `sessionId` one session's. */
export interface HoldKey {
  appName: string;
  userId: string;
  sessionId: string | undefined;
}

/** The columns of a table that say whose its rows are. */
interface OwnerColumns {
  appName: SQLWrapper;
  userId: SQLWrapper;
  /** The session's column, where a row belongs to a session. */
  sessionId?: SQLWrapper;
}

/** The condition that a row is on hold: cleanings leave it out, because the triggers refuse the whole statement. */
export const isOnHold = ({ appName, userId, sessionId }: OwnerColumns): SQL => sql`exists (
  select from ${legalHolds} where ${legalHolds.appName} = ${appName} and ${legalHolds.userId} = ${userId}
    and ${legalHolds.sessionId} in ('', ${sessionId ?? sql`''`}))`;

/** Sets a hold in a transaction, in the place of the one that is there; waits for statements that delete something. */
export async function saveHold(tx: Database, key: HoldKey, reason: string): Promise<void> {
  await tx.execute(sql`select pg_advisory_xact_lock(user_data_lock(${key.appName}, ${key.userId}))`);
  const values = { ...key, sessionId: key.sessionId ?? '', reason: escapeText(reason) };
  await tx
    .insert(legalHolds)
    .values(values)
    .onConflictDoUpdate({
      target: [legalHolds.appName, legalHolds.userId, legalHolds.sessionId],
      set: { reason: values.reason },
    });
}

/** Removes a hold; removing what is not there does nothing. */
export async function deleteHold(db: Database, { appName, userId, sessionId }: HoldKey): Promise<void> {
  await db
    .delete(legalHolds)
    .where(
      and(eq(legalHolds.appName, appName), eq(legalHolds.userId, userId), eq(legalHolds.sessionId, sessionId ?? '')),
    );
}

/** At most `limit` holds of an application by user and session, of one user where it is given. */
export async function listHolds(
  db: Database,
  appName: string,
  { userId, limit }: { userId?: string | undefined; limit: number },
): Promise<Hold[]> {
  const rows = await db
    .select({
      appName: legalHolds.appName,
      userId: legalHolds.userId,
      sessionId: sql<string | null>`nullif(${legalHolds.sessionId}, '')`,
      reason: legalHolds.reason,
      createTime: sql<number>`extract(epoch from ${legalHolds.createTime})::float8`,
    })
    .from(legalHolds)
    .where(and(eq(legalHolds.appName, appName), userId === undefined ? undefined : eq(legalHolds.userId, userId)))
    .orderBy(asc(legalHolds.userId), asc(legalHolds.sessionId))
    .limit(limit);
  return rows.map((row) => ({ ...row, reason: unescapeText(row.reason) }));
}

/** Data that must not be deleted. */
export const holdSchema = z
  .object({
    appName: z.string().describe('Application.'),
    userId: z.string().describe('User.'),
    sessionId: z.string().nullable().describe('The session; null for all that the user has.'),
    reason: z.string().describe('Why.'),
    createTime: z.number().describe('When it was set, Unix time in seconds.'),
  })
  .describe('A legal hold.');

/** A hold as it is sent: on all that the user has, or on one session. */
export const setHoldSchema = z
  .object({
    sessionId: z.string().min(1).max(256).nullish().describe('The session [all that the user has].'),
    reason: z.string().min(1).max(2_000).describe('Why: a sentence for later readers.'),
  })
  .describe('What must not be deleted, and why.');

/** A legal hold as it is answered. */
export type Hold = z.output<typeof holdSchema>;
