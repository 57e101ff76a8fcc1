import { and, eq, isNotNull, type Placeholder, type SQL, sql, type SQLWrapper } from 'drizzle-orm';
import type { AnyPgColumn, PgTable } from 'drizzle-orm/pg-core';
import { ForbiddenError } from '../../core/errors.ts';
import type { SessionKey } from '../../core/session.ts';
import type { Database } from '../../platform/db/database.ts';
import { sessions } from '../../platform/db/schema/schema.ts';
import { getKey } from '../../platform/db/sql.ts';
import { value } from '../../platform/db/statement.ts';

/** The columns of a session's key: its id is the column `id` in the table of sessions, `sessionId` in others. */
type SessionColumns = Record<'appName' | 'userId', AnyPgColumn> & ({ sessionId: AnyPgColumn } | { id: AnyPgColumn });

/** A session's key in SQL: values, placeholders, or columns of another table. */
export type SessionRef = Record<keyof SessionKey, string | Placeholder | AnyPgColumn>;
export type UserRef = Omit<SessionRef, 'sessionId'>;

/**
 * SQL condition: a row belongs to the session. Each table of a statement needs its own condition on application and
 * user, because a distributed database routes by their values; otherwise it would query the table on every node.
 */
export const isSession = ({ appName, userId, sessionId }: SessionRef, table: SessionColumns): SQL => {
  const id = 'sessionId' in table ? table.sessionId : table.id;
  return sql`${table.appName} = ${appName} and ${table.userId} = ${userId} and ${id} = ${sessionId}`;
};

const toRows = (keys: readonly SessionKey[]): SQL => {
  const column = (name: keyof SessionKey) => sql`${sql.param(keys.map((key) => key[name]))}::text[]`;
  return sql`unnest(${column('appName')}, ${column('userId')}, ${column('sessionId')})`;
};

/** SQL condition: a row belongs to one of the sessions. A single session is compared like in `isSession`. */
export const isAmong = (
  keys: readonly SessionKey[],
  table: Record<'appName' | 'userId' | 'sessionId', AnyPgColumn>,
): SQL => {
  const [key] = keys;
  if (key && keys.length === 1) return isSession(key, table);
  return sql`(${table.appName}, ${table.userId}, ${table.sessionId}) in (select * from ${toRows(keys)})`;
};

/** Like {@link isAmong}, for a table whose index contains only application and user: each user's rows are read once. */
export const isOneOfUsers = (
  keys: readonly SessionKey[],
  table: PgTable & Record<'appName' | 'userId', AnyPgColumn>,
  sessionId: AnyPgColumn | SQL,
): SQL => {
  const row = sql.join(getKey(table), sql`, `);
  return sql`(${row}) in (
    select ${row}
    from (select app, owner, array_agg(id) as ids from ${toRows(keys)} given(app, owner, id) group by 1, 2) s
    join ${table} on ${table.appName} = s.app and ${table.userId} = s.owner where ${sessionId} = any(s.ids))`;
};

/** Placeholders for a session's key in prepared statements, named like the members of the key. */
export const KEY = { appName: value('appName'), userId: value('userId'), sessionId: value('sessionId') };

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

/**
 * A left join of a row's session. `isFree`: no invocation holds the session's lease. `isGone`: there is none. `root`: the
 * session above a child session.
 */
export const getSession = (row: Record<'appName' | 'userId' | 'sessionId', AnyPgColumn>, userId?: string) => ({
  table: sessions,
  // With the user by value, if the statement has it: a distributed database asks one node then.
  on: sql`${sessions.appName} = ${row.appName} and ${sessions.userId} = ${userId ?? row.userId}
    and ${sessions.id} = ${row.sessionId}`,
  isFree: sql<boolean>`${sessions.leaseToken} is null`,
  isGone: sql<boolean>`${sessions.id} is null`,
  changeTime: sql`${sessions.updateTime}`,
  root: sql<string | null>`${sessions.rootSessionId}`,
});

/** True for a session in which an agent works that another one called like a tool. */
export const isChildSession = async (db: Database, key: SessionKey): Promise<boolean> =>
  (await db.$count(sessions, and(isSession(key, sessions), isNotNull(sessions.parentSessionId)))) > 0;

/** @throws {ForbiddenError} if the session is a child session, which its agent alone writes */
export async function refuseChildSession(db: Database, key: SessionKey): Promise<void> {
  if (await isChildSession(db, key))
    throw new ForbiddenError(
      `Session ${key.sessionId} is that of an agent that another one called, which alone writes there.`,
    );
}

/** SQL condition: a row is of a child session, and `isMeant` holds for the session of the user above it. */
export const isBelow = (
  row: Record<'appName' | 'userId' | 'sessionId', SQLWrapper>,
  isMeant: (root: Record<keyof SessionKey, SQLWrapper>) => SQL,
): SQL => sql`exists (
  select 1 from ${sessions} where ${sessions.appName} = ${row.appName} and ${sessions.userId} = ${row.userId}
    and ${sessions.id} = ${row.sessionId} and ${sessions.rootSessionId} is not null
    and ${isMeant({ appName: sessions.appName, userId: sessions.userId, sessionId: sessions.rootSessionId })})`;

/** SQL condition: a row belongs to the child session of a call. */
export const isChildOf = (
  call: Record<'appName' | 'userId' | 'sessionId' | 'invocationId' | 'callId', SQLWrapper>,
  row: Record<'appName' | 'userId' | 'sessionId', SQLWrapper>,
): SQL => sql`exists (
  select 1 from ${sessions} where ${sessions.appName} = ${call.appName} and ${sessions.userId} = ${call.userId}
    and ${sessions.parentSessionId} = ${call.sessionId} and ${sessions.parentInvocationId} = ${call.invocationId}
    and ${sessions.parentCallId} = ${call.callId} and ${sessions.appName} = ${row.appName}
    and ${sessions.userId} = ${row.userId} and ${sessions.id} = ${row.sessionId})`;

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
