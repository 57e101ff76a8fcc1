import { sql } from 'drizzle-orm';
import type { Database } from '../../../platform/db/database.ts';
import { unescapeText } from '../../../platform/json-escape.ts';
import { evalRunCases, evalRuns, evalVerdicts } from '../../../platform/db/schema/schema.ts';
import { insertSelect } from '../../../platform/db/sql.ts';
import type { Verdicts } from '../metrics/statistics.ts';
import type { EvalRun, EvalRunKey } from './eval-run.ts';

export interface Verdict {
  evalId: string;
  trial: number;
  /** Index of the turn in its conversation, from 0. */
  turn: number;
  metricName: string;
  author: string;
  passed: boolean;
  comment: string | null;
}

/** Replaces the same person's earlier verdict on a turn. @returns false if the case or the turn does not exist */
export async function saveVerdict(db: Database, { appName, runId }: EvalRunKey, verdict: Verdict): Promise<boolean> {
  const insert = insertSelect(evalVerdicts, {
    appName,
    userId: sql`c.session_user_id`,
    sessionId: sql`c.session_id`,
    turn: sql`${verdict.turn}::int`,
    metricName: verdict.metricName,
    author: verdict.author,
    passed: sql`${verdict.passed}::boolean`,
    comment: verdict.comment,
  });
  const { rows } = await db.execute(sql`
    ${insert} from ${evalRunCases} c
    where c.app_name = ${appName} and c.run_id = ${runId}::uuid and c.eval_id = ${verdict.evalId}
      and c.trial = ${verdict.trial}::int and c.status = 'done'
      and ${verdict.turn}::int < jsonb_array_length(c.result -> 'turns')
    on conflict on constraint eval_verdicts_pkey
    do update set passed = excluded.passed, comment = excluded.comment, create_time = excluded.create_time
    returning 1`);
  return rows.length > 0;
}

const PAGE_ROWS = 1_000;

/** Yields people's verdicts on a run as JSON, page by page, ordered by case, trial, turn, metric and author. */
export async function* listVerdicts(db: Database, { appName, runId }: EvalRunKey): AsyncGenerator<string[]> {
  for (let after: (Verdict & { place: number }) | undefined; ; ) {
    const result = await db.execute<Record<string, never>>(sql`
      select * from (
        select c.place as place, c.eval_id as "evalId", c.trial as trial, v.turn as turn,
               v.metric_name as "metricName", v.author as author, v.passed as passed, v.comment as comment
        from ${evalRunCases} c
        join ${evalVerdicts} v
          on v.app_name = c.app_name and v.user_id = c.session_user_id and v.session_id = c.session_id
        where c.app_name = ${appName} and c.run_id = ${runId}::uuid) verdict
      where ${after === undefined} or (place, trial, turn, "metricName", author) > (
        ${after?.place ?? 0}::int, ${after?.trial ?? 0}::int, ${after?.turn ?? 0}::int,
        ${after?.metricName ?? ''}, ${after?.author ?? ''})
      order by place, trial, turn, "metricName", author limit ${PAGE_ROWS}`);
    const rows = result.rows as unknown as (Verdict & { place: number })[];
    yield rows.map(({ place: _place, comment, ...verdict }) =>
      JSON.stringify({ ...verdict, ...(comment === null ? {} : { comment: unescapeText(comment) }) }),
    );
    if (rows.length < PAGE_ROWS) return;
    after = rows.at(-1);
  }
}

/** Maximum rows of a set, one per metric, judge model and prompt version, because requests can name ever new models. */
const MAX_JUDGES = 1_000;

/** Counts agreements of judges and people by metric, judge model and prompt version; of one requester, if given. */
export async function listJudgeCounts(
  db: Database,
  { appName, evalSetId }: { appName: string; evalSetId: string },
  requestedBy: string | undefined,
) {
  const count = (passed: boolean, status: 'PASSED' | 'FAILED') =>
    sql`count(*) filter (where v.passed = ${passed}::boolean and t ->> 'status' = ${status})::int`;
  const isTheirs = requestedBy === undefined ? sql`true` : sql`r.requested_by = ${requestedBy}`;
  const { rows } = await db.execute<{
    metricName: string;
    judgeModel: string;
    promptVersion: string;
    verdicts: Verdicts;
  }>(sql`
    select m ->> 'metricName' as "metricName", m -> 'judge' ->> 'model' as "judgeModel",
           m -> 'judge' ->> 'promptVersion' as "promptVersion",
           json_build_object('bothPass', ${count(true, 'PASSED')}, 'onlyJudgePasses', ${count(false, 'PASSED')},
             'onlyHumanPasses', ${count(true, 'FAILED')}, 'bothFail', ${count(false, 'FAILED')}) as verdicts
    from ${evalRuns} r
    join ${evalRunCases} c on c.app_name = r.app_name and c.run_id = r.id and c.status = 'done'
    join ${evalVerdicts} v
      on v.app_name = c.app_name and v.user_id = c.session_user_id and v.session_id = c.session_id
    cross join lateral jsonb_array_elements(c.result -> 'overall') m
    cross join lateral jsonb_array_elements(c.result -> 'turns' -> v.turn) t
    where r.app_name = ${appName} and r.eval_set_id = ${evalSetId} and ${isTheirs} and m ? 'judge'
      and m ->> 'metricName' = v.metric_name and t ->> 'metricName' = v.metric_name
    group by 1, 2, 3 order by 1, 2, 3 limit ${MAX_JUDGES}`);
  return rows;
}

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
           ${evalRuns.modelName} as "modelName", ${evalRuns.agentHash} as "agentHash",
           ${evalRuns.summary} -> 'counts' as counts, ${evalRuns.summary} -> 'scores' as scores
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
