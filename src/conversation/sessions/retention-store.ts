import { type SQL, sql } from 'drizzle-orm';
import type { SessionKey } from '../../core/session.ts';
import type { Database } from '../../platform/db/database.ts';
import { sessions } from '../../platform/db/schema/schema.ts';
import { userRanges } from '../../platform/db/user-ranges.ts';
import { isOnHold } from '../holds/hold-store.ts';

/** Returns the condition under which something else keeps a session, by the expressions of its key. */
export type KeepsSession = (key: Record<keyof SessionKey, SQL>) => SQL;

/** Which sessions are kept; 0 of either: all. */
export interface SessionRetention {
  /** Days since the last change of the session. */
  days: number;
  /** The newest of each user of an application. */
  count: number;
}

/** Ranges of users that together have all sessions. */
export const rangesOfSessions = (db: Database, signal?: AbortSignal): AsyncGenerator<SQL, void, void> =>
  userRanges(db, sessions, { signal });

const ranked = { appName: sql`ranked.app_name`, userId: sql`ranked.user_id`, sessionId: sql`ranked.id` };

const old = ({ days, count }: SessionRetention, range: SQL, isKept: KeepsSession) => sql`
  select ranked.app_name as "appName", ranked.user_id as "userId", ranked.id as "sessionId",
         ranked.update_time, ranked.last_sequence
  from (select ${sessions.appName}, ${sessions.userId}, ${sessions.id}, ${sessions.updateTime}, ${sessions.leaseToken},
               ${sessions.lastSequence},
               row_number() over (partition by ${sessions.appName}, ${sessions.userId}
                                  order by ${sessions.updateTime} desc, ${sessions.id} desc) as place
        from ${sessions} where not ${sessions.isEval} and ${range}) ranked
  where ((${days}::int > 0 and ranked.update_time < statement_timestamp() - ${days}::int * interval '1 day')
         or (${count}::int > 0 and ranked.place > ${count}::int))
    -- What runs stays, and so does what is on hold, or kept.
    and ranked.lease_token is null and not ${isKept(ranked)} and not ${isOnHold(ranked)}`;

/** How many sessions of a range are not kept any more. */
export async function countOldSessions(
  db: Database,
  retention: SessionRetention,
  range: SQL,
  isKept: KeepsSession,
): Promise<number> {
  const { rows } = await db.execute<{ n: number }>(
    sql`select count(*)::int as n from (${old(retention, range, isKept)}) counted`,
  );
  return rows[0]?.n ?? 0;
}

/** Sessions of one statement, and events of all but a first session: less than a second. */
const SESSIONS = 500;
const EVENTS = 10_000;

/** Deletes the next sessions of a range that are not kept any more, unless they were changed or run again. */
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
        from (${old(retention, range, isKept)} limit ${SESSIONS}) next) counted
      where events_before < ${EVENTS})
      and ${leaseToken} is null
    returning ${appName} as "appName", ${userId} as "userId", ${id} as "sessionId"`);
  return rows;
}
