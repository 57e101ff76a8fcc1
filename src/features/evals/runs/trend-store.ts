import { sql } from 'drizzle-orm';
import type { SessionKey } from '../../../core/session.ts';
import type { Database } from '../../../platform/db/database.ts';
import { isOnHold } from '../../../conversation/holds/hold-store.ts';
import { evalRunCases, evalRuns } from '../../../platform/db/schema/schema.ts';
import type { EvalRun } from './eval-run.ts';
import { deleteSession } from '../../../conversation/sessions/session-store.ts';

/** A set's last completed runs, oldest first; only of the requester `requestedBy`, if given. */
export async function listTrend(
  db: Database,
  { appName, evalSetId }: { appName: string; evalSetId: string },
  requestedBy: string | undefined,
  limit: number,
) {
  const isTheirs = requestedBy === undefined ? sql`true` : sql`${evalRuns.requestedBy} = ${requestedBy}`;
  const { rows } = await db.execute<
    Pick<EvalRun, 'runId' | 'createTime' | 'modelName' | 'agentHash' | 'counts'> & {
      scores: Record<string, number | null>;
    }
  >(sql`
    select ${evalRuns.id} as "runId", extract(epoch from ${evalRuns.createTime})::float8 as "createTime",
           ${evalRuns.modelName} as "modelName", ${evalRuns.agentHash} as "agentHash", ${runCounts} as counts,
           coalesce(${evalRuns.summary} -> 'scores', eval_run_scores(${evalRuns.appName}, ${evalRuns.id})) as scores
    from ${evalRuns}
    where ${evalRuns.appName} = ${appName} and ${evalRuns.evalSetId} = ${evalSetId}
      and ${evalRuns.status} = 'done' and ${isTheirs}
    order by ${evalRuns.createTime} desc limit ${limit}`);
  return rows
    .toReversed()
    .map(({ counts: { total, passed, failed, notEvaluated, errors }, scores, ...run }) =>
      Object.assign(run, { total, passed, failed, notEvaluated, errors, scores }),
    );
}

export interface RunRetention {
  /** Number of days after its end for which a run is kept. */
  days: number;
  /** Maximum number of runs per set that are kept. */
  count: number;
}

/** Deletes expired runs and their cases. @returns the sessions of these cases that no other run references */
async function deleteOldRuns(db: Database, { days, count }: RunRetention): Promise<SessionKey[]> {
  const c = evalRunCases;
  const { rows } = await db.execute<Record<keyof SessionKey, string>>(sql`
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

/** Sessions without a legal hold, by a statement of its own: Citus distributes holds and runs differently. */
async function listNotHeld(db: Database, keys: SessionKey[]): Promise<SessionKey[]> {
  if (keys.length === 0) return [];
  const column = (name: keyof SessionKey) => sql`${sql.param(keys.map((key) => key[name]))}::text[]`;
  const appName = sql`key.app_name`;
  const userId = sql`key.user_id`;
  const sessionId = sql`key.session_id`;
  const { rows } = await db.execute<Record<keyof SessionKey, string>>(sql`
    select ${appName} as "appName", ${userId} as "userId", ${sessionId} as "sessionId"
    from unnest(${column('appName')}, ${column('userId')}, ${column('sessionId')}) key(app_name, user_id, session_id)
    where not ${isOnHold({ appName, userId, sessionId })}`);
  return rows;
}

/** SQL: a run's cases by status, as stored at its end, otherwise counted by the query. */
export const runCounts = sql`coalesce(${evalRuns.summary} -> 'counts', eval_run_counts(${evalRuns.appName}, ${evalRuns.id}))`;

export async function forgetOldRuns(db: Database, retention: RunRetention): Promise<void> {
  for (const key of await deleteOldRuns(db, retention)) await deleteSession(db, key);
}
