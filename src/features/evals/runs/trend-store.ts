import { sql } from 'drizzle-orm';
import type { SessionKey } from '../../../core/session.ts';
import type { Database } from '../../../platform/db/database.ts';
import { isOnHold } from '../../../conversation/holds/hold-store.ts';
import { evalRunCases, evalRuns } from '../../../platform/db/schema/schema.ts';
import type { EvalRun } from './eval-run-store.ts';
import { meanScores, runCounts } from './run-summary-store.ts';

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
  const isTheirs = requestedBy === undefined ? sql`true` : sql`${evalRuns.requestedBy} = ${requestedBy}`;
  const { rows } = await db.execute<Omit<TrendPoint, keyof EvalRun['counts']> & Pick<EvalRun, 'counts'>>(sql`
    select ${evalRuns.id} as "runId", extract(epoch from ${evalRuns.createTime})::float8 as "createTime",
           ${evalRuns.modelName} as "modelName", ${evalRuns.agentHash} as "agentHash", ${runCounts} as counts,
           coalesce(${evalRuns.summary} -> 'scores', (${meanScores})) as scores
    from ${evalRuns}
    where ${evalRuns.appName} = ${appName} and ${evalRuns.evalSetId} = ${evalSetId}
      and ${evalRuns.status} = 'done' and ${isTheirs}
    order by ${evalRuns.createTime} desc limit ${limit}`);
  return rows.toReversed().map(({ counts: { total, passed, failed, notEvaluated, errors }, scores, ...run }) => ({
    ...run,
    total,
    passed,
    failed,
    notEvaluated,
    errors,
    scores,
  }));
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
      and not exists (
      select from ${c} other
      where other.app_name = ${c.appName} and other.session_user_id = ${c.sessionUserId}
        and other.session_id = ${c.sessionId}
        and not exists (select from old o where o.app_name = other.app_name and o.id = other.run_id))`);
  return await listNotHeld(db, rows);
}

/** Those of some sessions that are not on hold. A statement of its own: a cluster has holds and runs apart. */
async function listNotHeld(db: Database, keys: SessionKey[]): Promise<SessionKey[]> {
  if (keys.length === 0) return [];
  const column = (name: keyof SessionKey) => sql`${sql.param(keys.map((key) => key[name]))}::text[]`;
  const [appName, userId, sessionId] = [sql`wanted.app_name`, sql`wanted.user_id`, sql`wanted.session_id`];
  const { rows } = await db.execute<Record<keyof SessionKey, string>>(sql`
    select ${appName} as "appName", ${userId} as "userId", ${sessionId} as "sessionId"
    from unnest(${column('appName')}, ${column('userId')}, ${column('sessionId')}) wanted(app_name, user_id, session_id)
    where not ${isOnHold({ appName, userId, sessionId })}`);
  return rows;
}
