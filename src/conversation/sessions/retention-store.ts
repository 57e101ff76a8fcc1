import { type SQL, sql } from 'drizzle-orm';
import type { SessionKey } from '../../core/session.ts';
import type { Database } from '../../platform/db/database.ts';
import { sessions } from '../../platform/db/schema/schema.ts';
import { userRanges } from '../../platform/db/user-ranges.ts';
import { isOnHold } from '../holds/hold-store.ts';

/** Returns an SQL condition on a session's key, which is true if another feature forbids the session's deletion. */
type KeepsSession = (key: Record<keyof SessionKey, SQL>) => SQL;

/** Limits after which sessions are deleted; 0 disables a limit. */
export interface SessionRetention {
  /** Maximum number of days since the session's last update. */
  days: number;
  /** Maximum number of sessions per user and application; the newest are kept. */
  count: number;
}

export const rangesOfSessions = (db: Database, signal?: AbortSignal): AsyncGenerator<SQL, void, void> =>
  userRanges(db, sessions, { signal });

const ranked = { appName: sql`ranked.app_name`, userId: sql`ranked.user_id`, sessionId: sql`ranked.id` };

const oldSessions = ({ days, count }: SessionRetention, range: SQL, isKept: KeepsSession) => sql`
  select ranked.app_name as "appName", ranked.user_id as "userId", ranked.id as "sessionId",
         ranked.update_time, ranked.last_sequence
  from (select ${sessions.appName}, ${sessions.userId}, ${sessions.id}, ${sessions.updateTime}, ${sessions.leaseToken},
               ${sessions.lastSequence},
               row_number() over (partition by ${sessions.appName}, ${sessions.userId}
                                  order by ${sessions.updateTime} desc, ${sessions.id} desc) as place
        from ${sessions} where not ${sessions.isEval} and ${sessions.parentSessionId} is null and ${range}) ranked
  where ((${days}::int > 0 and ranked.update_time < statement_timestamp() - ${days}::int * interval '1 day')
         or (${count}::int > 0 and ranked.place > ${count}::int))
    -- Not sessions that run, that another feature needs, or that are under a legal hold.
    and ranked.lease_token is null and not ${isKept(ranked)} and not ${isOnHold(ranked)}`;

export async function countOldSessions(
  db: Database,
  retention: SessionRetention,
  range: SQL,
  isKept: KeepsSession,
): Promise<number> {
  const { rows } = await db.execute<{ n: number }>(
    sql`select count(*)::int as n from (${oldSessions(retention, range, isKept)}) counted`,
  );
  return rows[0]?.n ?? 0;
}

/**
 * Maximum sessions and maximum events per delete, so that it takes less than a second; the first session may exceed it.
 */
const SESSIONS = 500;
const EVENTS = 10_000;

/** Deletes the next expired sessions, except those that were updated or started to run meanwhile. */
export async function deleteOldSessions(
  tx: Database,
  retention: SessionRetention,
  range: SQL,
  isKept: KeepsSession,
): Promise<SessionKey[]> {
  const { appName, userId, id, updateTime, leaseToken } = sessions;
  const { rows } = await tx.execute<Record<keyof SessionKey, string>>(sql`
    delete from ${sessions} where (${appName}, ${userId}, ${id}, ${updateTime}) in (
      select "appName", "userId", "sessionId", update_time from (
        select *, sum(last_sequence) over (rows unbounded preceding) - last_sequence as events_before
        from (${oldSessions(retention, range, isKept)} limit ${SESSIONS}) next) counted
      where events_before < ${EVENTS})
      and ${leaseToken} is null
    returning ${appName} as "appName", ${userId} as "userId", ${id} as "sessionId"`);
  return rows;
}
