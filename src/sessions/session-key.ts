import { type SQL, sql } from 'drizzle-orm';
import type { SessionKey } from '../core/session.ts';

/** The condition that rows belong to one session; `id` is the column that holds the session's id. */
export const isSession = ({ appName, userId, sessionId }: SessionKey, id: SQL): SQL =>
  sql`app_name = ${appName} and user_id = ${userId} and ${id} = ${sessionId}`;

/** The condition for the row of one invocation. */
export const isInvocation = ({ key, invocationId }: { key: SessionKey; invocationId: string }): SQL =>
  sql`${isSession(key, sql`session_id`)} and id = ${invocationId}`;
