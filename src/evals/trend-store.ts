import { sql } from 'drizzle-orm';
import type { Database } from '../db/database.ts';
import { isOnHold } from '../holds/hold-store.ts';
import { evalRunCases, evalRuns } from '../db/schema.ts';

/** What one run of a set gave. */
export interface TrendPoint {
  runId: string;
  /** Unix seconds. */
  createTime: number;
  modelName: string;
  agentHash: string;
  total: number;
  passed: number;
  failed: number;
  notEvaluated: number;
  errors: number;
  /** The mean score of each metric; null where none gave one. */
  scores: Record<string, number | null>;
}

/** The last runs of a set that were done, oldest first; of one requester where it is given. */
export async function listTrend(
  db: Database,
  { appName, evalSetId }: { appName: string; evalSetId: string },
  requestedBy: string | undefined,
  limit: number,
): Promise<TrendPoint[]> {
  const c = evalRunCases;
  const isOfRun = sql`${c.appName} = run.app_name and ${c.runId} = run.id`;
  const count = (status: string) => sql`count(*) filter (where ${c.result} ->> 'finalStatus' = ${status})::int`;
  const isTheirs = requestedBy === undefined ? sql`true` : sql`${evalRuns.requestedBy} = ${requestedBy}`;
  const { rows } = await db.execute<Record<keyof TrendPoint, never>>(sql`
    select run.id as "runId", extract(epoch from run.create_time)::float8 as "createTime",
           run.model_name as "modelName", run.agent_hash as "agentHash", counted.*,
           coalesce(scored.scores, '{}') as scores
    from (select * from ${evalRuns}
          where ${evalRuns.appName} = ${appName} and ${evalRuns.evalSetId} = ${evalSetId}
            and ${evalRuns.status} = 'done' and ${isTheirs}
          order by ${evalRuns.createTime} desc limit ${limit}) run
    cross join lateral (
      select count(*)::int as total, ${count('PASSED')} as passed, ${count('FAILED')} as failed,
             ${count('NOT_EVALUATED')} as "notEvaluated",
             count(*) filter (where ${c.status} = 'error')::int as errors
      from ${c} where ${isOfRun}) counted
    cross join lateral (
      select jsonb_object_agg(means.name, means.mean) as scores
      from (select m ->> 'metricName' as name, avg((m ->> 'score')::float8) as mean
            from ${c} cross join lateral jsonb_array_elements(${c.result} -> 'overall') m
            where ${isOfRun} group by 1) means) scored
    order by run.create_time`);
  return rows;
}

/** What is kept of runs that have ended. */
export interface RunRetention {
  /** Days since their end. */
  days: number;
  /** The newest of each set. */
  count: number;
}

/**
 * Deletes runs that ended long ago or of which a set has too many. Their cases
 * go with them. @returns the sessions that no other run is about, for their owner to delete.
 */
export async function deleteOldRuns(
  db: Database,
  { days, count }: RunRetention,
): Promise<{ appName: string; userId: string; sessionId: string }[]> {
  const c = evalRunCases;
  const { rows } = await db.execute<{ appName: string; userId: string; sessionId: string }>(sql`
    with ranked as (
      select ${evalRuns.appName} as app_name, ${evalRuns.id} as id, ${evalRuns.endTime} as end_time,
             row_number() over (partition by ${evalRuns.appName}, ${evalRuns.evalSetId}
                                order by ${evalRuns.createTime} desc) as place
      from ${evalRuns} where ${evalRuns.endTime} is not null),
    old as (
      select app_name, id from ranked
      where place > ${count}::int or end_time < clock_timestamp() - ${days}::int * interval '1 day' limit 100),
    deleted as (
      delete from ${evalRuns} using old where ${evalRuns.appName} = old.app_name and ${evalRuns.id} = old.id)
    select distinct ${c.appName} as "appName", ${c.sessionUserId} as "userId", ${c.sessionId} as "sessionId"
    from ${c} join old on ${c.appName} = old.app_name and ${c.runId} = old.id
    where ${c.sessionId} is not null
      and not ${isOnHold({ appName: c.appName, userId: c.sessionUserId, sessionId: c.sessionId })}
      and not exists (
      select from ${c} other
      where other.app_name = ${c.appName} and other.session_user_id = ${c.sessionUserId}
        and other.session_id = ${c.sessionId}
        and not exists (select from old o where o.app_name = other.app_name and o.id = other.run_id))`);
  return rows;
}
