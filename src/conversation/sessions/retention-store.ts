import { type SQL, sql } from 'drizzle-orm';
import type { SessionKey } from '../../core/session.ts';
import type { Database } from '../../platform/db/database.ts';
import { sessions } from '../../platform/db/schema/schema.ts';
import { userRanges } from '../../platform/db/user-ranges.ts';
import { isOnHold } from '../holds/hold-store.ts';

/** Which sessions are kept; 0 of either: all. */
export interface SessionRetention {
  /** Days since the last change of the session. */
  days: number;
  /** The newest of each user of an application. */
  count: number;
}

/** Ranges of users that together have all sessions. */
export const rangesOfSessions = (db: Database): AsyncGenerator<SQL, void, void> => userRanges(db, sessions);

const old = ({ days, count }: SessionRetention, range: SQL) => sql`
  select ranked.app_name as "appName", ranked.user_id as "userId", ranked.id as "sessionId",
         ranked.update_time::text as "updateTime"
  from (select ${sessions.appName}, ${sessions.userId}, ${sessions.id}, ${sessions.updateTime}, ${sessions.leaseToken},
               row_number() over (partition by ${sessions.appName}, ${sessions.userId}
                                  order by ${sessions.updateTime} desc, ${sessions.id} desc) as place
        from ${sessions} where not ${sessions.isEval} and ${range}) ranked
  where ((${days}::int > 0 and ranked.update_time < clock_timestamp() - ${days}::int * interval '1 day')
         or (${count}::int > 0 and ranked.place > ${count}::int))
    -- What runs stays, and so does what is on hold.
    and ranked.lease_token is null
    and not ${isOnHold({ appName: sql`ranked.app_name`, userId: sql`ranked.user_id`, sessionId: sql`ranked.id` })}`;

/** A session that is not kept, with the time of its last change as text. */
export interface OldSession extends SessionKey {
  updateTime: string;
}

/** At most `limit` sessions of a range that are not kept any more, in no order. */
export async function listOldSessions(
  db: Database,
  retention: SessionRetention,
  range: SQL,
  limit: number,
): Promise<OldSession[]> {
  const { rows } = await db.execute<Record<keyof OldSession, string>>(sql`${old(retention, range)} limit ${limit}`);
  return rows;
}

/** How many sessions of a range are not kept any more. */
export async function countOldSessions(db: Database, retention: SessionRetention, range: SQL): Promise<number> {
  const { rows } = await db.execute<{ n: number }>(
    sql`select count(*)::int as n from (${old(retention, range)}) counted`,
  );
  return rows[0]?.n ?? 0;
}

/** Deletes a session that is not kept any more, unless it was changed or runs again. @returns whether it did */
export async function deleteOldSession(
  tx: Database,
  { appName, userId, sessionId, updateTime }: OldSession,
): Promise<boolean> {
  const { rowCount } = await tx.execute(sql`
    delete from ${sessions} where ${sessions.appName} = ${appName} and ${sessions.userId} = ${userId}
      and ${sessions.id} = ${sessionId} and ${sessions.leaseToken} is null
      and ${sessions.updateTime} = ${updateTime}::timestamptz`);
  return (rowCount ?? 0) > 0;
}
