import { type SQL, and, eq, isNotNull, sql } from 'drizzle-orm';
import type { AnyPgColumn } from 'drizzle-orm/pg-core';
import type { Database } from '../../platform/db/database.ts';
import { sessions } from '../../platform/db/schema/schema.ts';
import { isSession } from './session-key.ts';
import type { SessionKey } from '../../core/session.ts';

// SQL fragments that lock a session's row or check the lease in it, a token: only its holder may write to the session.

/** Locks a session's row against take-over and deletion; with `leaseToken`, only if that is the current lease. */
export const sessionLock = (key: SessionKey, leaseToken?: string): SQL => {
  const fence = leaseToken === undefined ? undefined : eq(sessions.leaseToken, leaseToken);
  return sql`select ${sessions.id} from ${sessions} where ${and(isSession(key, sessions), fence)} for key share`;
};

/** SQL condition: the row's lease token is the current lease of its session. */
export const holdsSession = (
  row: Record<'appName' | 'userId' | 'sessionId' | 'leaseToken', AnyPgColumn>,
): SQL => sql`exists (
  select from ${sessions} where ${sessions.appName} = ${row.appName} and ${sessions.userId} = ${row.userId}
    and ${sessions.id} = ${row.sessionId} and ${sessions.leaseToken} = ${row.leaseToken})`;

/** A left join of a row's session. `isFree`: no invocation holds the session's lease. */
export const getSession = (row: Record<'appName' | 'userId' | 'sessionId', AnyPgColumn>) => ({
  table: sessions,
  on: sql`${sessions.appName} = ${row.appName} and ${sessions.userId} = ${row.userId}
    and ${sessions.id} = ${row.sessionId}`,
  isFree: sql<boolean>`${sessions.leaseToken} is null`,
  changeTime: sql`${sessions.updateTime}`,
});

/** True if an invocation of the session runs. */
export const isBusy = async (db: Database, key: SessionKey): Promise<boolean> =>
  (await db.$count(sessions, and(isSession(key, sessions), isNotNull(sessions.leaseToken)))) > 0;

/** Locks the session's row until the transaction ends. @returns `undefined` if it does not exist or was skipped */
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

/** Releases a session's lease if no running invocation has it. */
export async function releaseSession(tx: Database, key: SessionKey, leaseToken: string): Promise<void> {
  await tx
    .update(sessions)
    .set({ leaseToken: null })
    .where(and(isSession(key, sessions), eq(sessions.leaseToken, leaseToken)));
}
