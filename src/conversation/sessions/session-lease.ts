import { type SQL, and, eq, sql } from 'drizzle-orm';
import type { AnyPgColumn } from 'drizzle-orm/pg-core';
import type { Database } from '../../platform/db/database.ts';
import { sessions } from '../../platform/db/schema/schema.ts';
import { isSession } from './session-key.ts';
import type { SessionKey } from '../../core/session.ts';

/** The lease of a session, a token in its row: its holder may write. Parts of statements of several stores. */

/** A query that locks a session's row against take-over and deletion; with `leaseToken` only while that holds it. */
export const heldSession = (key: SessionKey, leaseToken?: string): SQL => {
  const fence = leaseToken === undefined ? undefined : eq(sessions.leaseToken, leaseToken);
  return sql`select ${sessions.id} from ${sessions} where ${and(isSession(key, sessions), fence)} for key share`;
};

/** The condition that a session is held with the token of a row, whose columns these are. */
export const isHeldWith = (
  row: Record<'appName' | 'userId' | 'sessionId' | 'leaseToken', AnyPgColumn>,
): SQL => sql`exists (
  select from ${sessions} where ${sessions.appName} = ${row.appName} and ${sessions.userId} = ${row.userId}
    and ${sessions.id} = ${row.sessionId} and ${sessions.leaseToken} = ${row.leaseToken})`;

/** The session of a row whose columns these are, to be joined `on` its key; `isFree`: it has no lease. */
export const getSession = (row: Record<'appName' | 'userId' | 'sessionId', AnyPgColumn>) => ({
  table: sessions,
  on: sql`${sessions.appName} = ${row.appName} and ${sessions.userId} = ${row.userId}
    and ${sessions.id} = ${row.sessionId}`,
  isFree: sql<boolean>`${sessions.leaseToken} is null`,
  changeTime: sql`${sessions.updateTime}`,
});

/** Locks a session's row until the transaction ends; `undefined` without one, or where `skipLocked` skips it. */
export async function lockSession(
  tx: Database,
  key: SessionKey,
  skipLocked = false,
): Promise<{ leaseToken: string | null } | undefined> {
  const [row] = await tx
    .select({ leaseToken: sessions.leaseToken })
    .from(sessions)
    .where(isSession(key, sessions))
    .for('update', skipLocked ? { skipLocked } : {});
  return row;
}

/** Releases a session whose token no running invocation has. */
export async function releaseSession(tx: Database, key: SessionKey, leaseToken: string): Promise<void> {
  await tx
    .update(sessions)
    .set({ leaseToken: null })
    .where(and(isSession(key, sessions), eq(sessions.leaseToken, leaseToken)));
}
