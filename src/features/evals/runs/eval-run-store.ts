import { type SQL, and, desc, eq, inArray, sql } from 'drizzle-orm';
import type { Database } from '../../../platform/db/database.ts';
import { escapeJson, unescapeJson } from '../../../platform/db/json-escape.ts';
import { evalCaseVersions, evalRunCases, evalRuns } from '../../../platform/db/schema/schema.ts';
import { insertSelect } from '../../../platform/db/sql.ts';
import { ConflictError } from '../../../core/errors.ts';
import { joinEventBytes } from '../../../conversation/sessions/history-store.ts';
import { estimatedBytes } from '../../../conversation/sessions/session-text.ts';
import type { EvalMetric } from '../metrics/criteria.ts';
import { selectCounts, meanScores, runCounts } from './trend-store.ts';
import type { EvalRunKey, NewEvalRun, EvalRun, RunFilter, CaseTexts, Outcome, RunCase } from './eval-run.ts';

/** How often a moment is taken anew where another run of the application has it. */
export const MAX_TRIES = 10;

/** The condition that a run has not ended. */
export const isOpen = inArray(evalRuns.status, ['queued', 'running']);

/** The error where a requester has as many open runs in an application as are allowed. */
export const tooManyOpen = (appName: string, maxOpen: number) =>
  new ConflictError(`${maxOpen} of your evaluation runs of ${appName} have not ended yet. Wait, or cancel one.`);
/** The number of runs of a requester in an application that have not ended. */
export const countOpen = (appName: string, requestedBy: string | undefined): SQL => sql`(
  select count(*)::int as count from ${evalRuns} where ${isOpen} and ${evalRuns.appName} = ${appName}
    and ${evalRuns.requestedBy} is not distinct from ${requestedBy ?? null}::text)`;
/** The error where each of {@link MAX_TRIES} moments was another run's. */
export const sameMoment = () => new ConflictError('Other evaluation runs began in the same moment. Try again.');
/** The time that names a result, never a whole second: Python prints `.0` after it, JavaScript does not. */
export const toResultTime = (now: SQL): SQL => sql`${now} + case when date_trunc('second', ${now}) = ${now}
                                      then interval '1 microsecond' else interval '0' end`;

/** Inserts a run with its cases, waiting. @throws {ConflictError} where its requester has `maxOpen` open runs. */
export async function insertEvalRun(db: Database, run: NewEvalRun, maxOpen: number): Promise<void> {
  for (let tries = 0; tries < MAX_TRIES; tries += 1) {
    const { rows } = await db.execute<{ open: number; created: number }>(insertion(run, maxOpen));
    if (rows[0]?.created === 1) return;
    if ((rows[0]?.open ?? 0) >= maxOpen) throw tooManyOpen(run.appName, maxOpen);
  }
  throw sameMoment();
}

function insertion({ appName, runId, evalSetId, cases, ...run }: NewEvalRun, maxOpen: number): SQL {
  const insertRun = insertSelect(evalRuns, {
    appName,
    id: sql`${runId}::uuid`,
    evalSetId,
    requestedBy: run.requestedBy ?? null,
    metrics: sql`${escapeJson(run.metrics)}::jsonb`,
    userSimulator: run.userSimulator == null ? null : sql`${escapeJson(run.userSimulator)}::jsonb`,
    modelExecutionMode: run.modelExecutionMode,
    toolExecutionMode: run.toolExecutionMode,
    trials: sql`${run.trials}::int`,
    parallelism: sql`${run.parallelism}::int`,
    maxJudgeTokens: sql`${run.maxJudgeTokens}::bigint`,
    agentHash: run.agentHash,
    modelName: run.modelName,
    resultTime: toResultTime(sql`moment.now`),
  });
  const insertCases = insertSelect(evalRunCases, {
    appName,
    runId: sql`created.id`,
    place: sql`given.place`,
    trial: sql`trial`,
    evalSetId,
    evalId: sql`given.eval_id`,
    caseVersion: sql`given.version`,
    sessionUserId: sql`given.user_id`,
    ownerId: run.requestedBy ?? null,
  });
  const column = (of: (one: NewEvalRun['cases'][number]) => unknown) => sql.param(cases.map(of));
  return sql`
    with open as ${countOpen(appName, run.requestedBy)},
    created as (
      ${insertRun} from open, (select clock_timestamp() as now) moment where open.count < ${maxOpen}
      on conflict on constraint eval_runs_result_time_key do nothing returning ${evalRuns.id} as id),
    filled as (
      ${insertCases}
      from created, generate_series(1, ${run.trials}::int) trial,
           unnest(${column(({ evalId }) => evalId)}::text[], ${column(({ version }) => version)}::int[],
                  ${column(({ userId }) => userId)}::text[]) with ordinality as given(eval_id, version, user_id, place)
      returning 1)
    select open.count as open, (select count(*)::int from created) as created from open`;
}

/** The condition that a case of a run has not ended. */
export const isOpenCase = inArray(evalRunCases.status, ['waiting', 'running']);

const microseconds = sql<string>`(extract(epoch from ${evalRuns.resultTime}) * 1000000)::bigint`;

const toMoment = (since: number) => sql`('epoch'::timestamptz + ${since}::bigint * interval '1 microsecond')`;

const matches = ({ appName, requestedBy, runId, resultMicroseconds, evalSetId }: RunFilter) =>
  and(
    eq(evalRuns.appName, appName),
    requestedBy === undefined ? undefined : eq(evalRuns.requestedBy, requestedBy),
    runId === undefined ? undefined : sql`${evalRuns.id} = ${runId}::uuid`,
    resultMicroseconds === undefined ? undefined : sql`${evalRuns.resultTime} = ${toMoment(resultMicroseconds)}`,
    evalSetId === undefined ? undefined : eq(evalRuns.evalSetId, evalSetId),
  );

/** Runs with the counts of their cases, newest first. */
export async function listEvalRuns(db: Database, filter: RunFilter): Promise<EvalRun[]> {
  const { rows } = await db.execute<Record<keyof EvalRun, never>>(sql`
    select ${evalRuns.id} as "runId", ${evalRuns.evalSetId} as "evalSetId", ${evalRuns.status} as status,
           ${evalRuns.metrics}::text as metrics, ${evalRuns.userSimulator}::text as "userSimulator",
           ${evalRuns.modelExecutionMode} as "modelExecutionMode", ${evalRuns.toolExecutionMode} as "toolExecutionMode",
           ${evalRuns.trials} as trials, ${evalRuns.parallelism} as parallelism, ${evalRuns.agentHash} as "agentHash",
           ${evalRuns.maxJudgeTokens}::float8 as "maxJudgeTokens", ${evalRuns.judgeTokens}::float8 as "judgeTokens",
           ${evalRuns.modelName} as "modelName", ${evalRuns.judgedRunId} as "judgedRunId",
           ${microseconds}::float8 as "resultMicroseconds",
           extract(epoch from ${evalRuns.createTime})::float8 as "createTime",
           extract(epoch from ${evalRuns.endTime})::float8 as "endTime", ${runCounts} as counts
    from ${evalRuns} where ${matches(filter)} order by ${evalRuns.resultTime} desc limit ${filter.limit ?? null}`);
  const parsed = (text: string | null): unknown => (text === null ? undefined : JSON.parse(unescapeJson(text)));
  return rows.map((row: Record<string, unknown>) => ({
    ...(row as unknown as EvalRun),
    metrics: parsed(row['metrics'] as string) as EvalMetric[],
    userSimulator: parsed(row['userSimulator'] as string | null),
  }));
}

/** Lists the sets and moments of results, newest first, of runs that were not cancelled; those before a moment. */
export async function listResultMoments(
  db: Database,
  { before, limit, ...filter }: RunFilter & { before: number | undefined; limit: number },
): Promise<{ evalSetId: string; resultMicroseconds: number }[]> {
  const isBefore = before === undefined ? undefined : sql`${evalRuns.resultTime} < ${toMoment(before)}`;
  const rows = await db
    .select({ evalSetId: evalRuns.evalSetId, resultMicroseconds: microseconds })
    .from(evalRuns)
    .where(and(matches(filter), eq(evalRuns.status, 'done'), isBefore))
    .orderBy(desc(evalRuns.resultTime))
    .limit(limit);
  return rows.map((row) => ({ ...row, resultMicroseconds: Number(row.resultMicroseconds) }));
}

/** The columns of a case of a run. */
const RUN_CASE = {
  place: evalRunCases.place,
  trial: evalRunCases.trial,
  evalId: evalRunCases.evalId,
  userId: evalRunCases.sessionUserId,
  sessionId: evalRunCases.sessionId,
  status: evalRunCases.status,
  lastSequence: evalRunCases.lastSequence,
  failedTurn: evalRunCases.failedTurn,
  error: evalRunCases.error,
};

const isOfRun = ({ appName, runId }: EvalRunKey) =>
  sql`${evalRunCases.appName} = ${appName} and ${evalRunCases.runId} = ${runId}::uuid`;

/** The condition that joins a case of a run to the version that it is about. */
export const isItsVersion = sql`${evalCaseVersions.appName} = ${evalRunCases.appName}
  and ${evalCaseVersions.evalSetId} = ${evalRunCases.evalSetId}
  and ${evalCaseVersions.evalId} = ${evalRunCases.evalId}
  and ${evalCaseVersions.version} = ${evalRunCases.caseVersion}`;

/** The cases of a run by place, then by trial, without what they say, and about how many bytes that has. */
export function listRunCases(db: Database, key: EvalRunKey): Promise<(RunCase & { bytes: number })[]> {
  const { appName, sessionUserId, sessionId, result } = evalRunCases;
  const session = joinEventBytes({ appName, userId: sessionUserId, sessionId });
  const own = sql`${estimatedBytes(evalCaseVersions.payload)} + coalesce(${estimatedBytes(result)}, 0)`;
  return db
    .select({ ...RUN_CASE, bytes: sql<number>`(${own} + ${session.bytes})::float8` })
    .from(evalRunCases)
    .innerJoin(evalCaseVersions, isItsVersion)
    .leftJoin(session.table, session.on)
    .where(isOfRun(key))
    .orderBy(evalRunCases.place, evalRunCases.trial);
}

/** The texts of some cases of a run, in their order. */
export async function readRunCases<Some extends RunCase>(
  db: Database,
  key: EvalRunKey,
  cases: Some[],
): Promise<(Some & CaseTexts)[]> {
  const column = (name: 'place' | 'trial') => sql`${sql.param(cases.map((one) => one[name]))}::int[]`;
  const wanted = sql`select * from unnest(${column('place')}, ${column('trial')})`;
  const rows = await db
    .select({
      place: evalRunCases.place,
      trial: evalRunCases.trial,
      caseText: sql<string>`${evalCaseVersions.payload}::text`,
      resultText: sql<string | null>`${evalRunCases.result}::text`,
    })
    .from(evalRunCases)
    .innerJoin(evalCaseVersions, isItsVersion)
    .where(and(isOfRun(key), sql`(${evalRunCases.place}, ${evalRunCases.trial}) in (${wanted})`));
  const texts = new Map(rows.map((row) => [`${row.place}.${row.trial}`, row]));
  return cases.flatMap((one) => {
    const { caseText, resultText } = texts.get(`${one.place}.${one.trial}`) ?? { caseText: null, resultText: null };
    if (caseText === null) return [];
    const result = resultText === null ? null : unescapeJson(resultText);
    return [{ ...one, caseText: unescapeJson(caseText), resultText: result }];
  });
}

/** Characters of a reason in a summary. */
const MAX_REASON = 1_000;

/** The cases of a run with what their summary is made of. */
export async function listOutcomes(db: Database, key: EvalRunKey): Promise<(RunCase & { scored: Outcome | null })[]> {
  const { result } = evalRunCases;
  const metric = sql`jsonb_build_object('metricName', m -> 'metricName', 'score', m -> 'score',
    'status', m -> 'status', 'threshold', m -> 'threshold', 'explanation', left(m ->> 'explanation', ${MAX_REASON}))`;
  const rows = await db
    .select({
      ...RUN_CASE,
      error: sql<string | null>`left(${evalRunCases.error}, ${MAX_REASON})`,
      scored: sql<Outcome | null>`case when ${result} is not null then jsonb_build_object(
        'finalStatus', ${result} -> 'finalStatus', 'uses', ${result} -> 'uses', 'overall',
        (select coalesce(jsonb_agg(${metric} order by n), '[]')
         from jsonb_array_elements(${result} -> 'overall') with ordinality as o(m, n))) end`,
    })
    .from(evalRunCases)
    .where(isOfRun(key))
    .orderBy(evalRunCases.place, evalRunCases.trial);
  return rows.map((row) => ({ ...row, scored: unescapedJson(row.scored) }));
}

const unescapedJson = <Value>(value: Value): Value => JSON.parse(unescapeJson(JSON.stringify(value))) as Value;

/** Ends a run and its cases that have not ended; what works on them loses its claim. False where it had ended. */
export async function cancelEvalRun(db: Database, key: EvalRunKey): Promise<boolean> {
  const end = { status: 'cancelled' as const, endTime: sql`clock_timestamp()` };
  const run = and(eq(evalRuns.appName, key.appName), sql`${evalRuns.id} = ${key.runId}::uuid`, isOpen);
  const cancelled = db.update(evalRuns).set(end).where(run).returning({ id: evalRuns.id });
  const cases = db
    .update(evalRunCases)
    .set({ ...end, leaseToken: null, leaseExpireTime: null })
    .where(and(isOfRun(key), isOpenCase, sql`exists (select from cancelled)`));
  const { rows } = await db.execute(sql`
    with cancelled as ${cancelled}, ended as ${cases.returning({ place: evalRunCases.place })} select from cancelled`);
  return rows.length > 0;
}

/** Ends the runs whose cases have all ended, with a summary for lists of runs. @returns those that it ended. */
export async function endFinishedRuns(db: Database): Promise<EvalRunKey[]> {
  const hasOpenCase = sql`exists (select from ${evalRunCases}
    where ${evalRunCases.appName} = ${evalRuns.appName} and ${evalRunCases.runId} = ${evalRuns.id} and ${isOpenCase})`;
  return db
    .update(evalRuns)
    .set({
      status: 'done',
      endTime: sql`clock_timestamp()`,
      summary: sql`jsonb_build_object('counts', (${selectCounts()}), 'scores', (${meanScores}))`,
    })
    .where(and(isOpen, sql`not ${hasOpenCase}`))
    .returning({ appName: evalRuns.appName, runId: evalRuns.id });
}

/** Adds tokens of judges to those of a run, or takes some back. @returns false, and adds none, beyond its maximum */
export async function addJudgeTokens(db: Database, { appName, runId }: EvalRunKey, tokens: number): Promise<boolean> {
  const after = sql`${evalRuns.judgeTokens} + ${tokens}::bigint`;
  const added = await db
    .update(evalRuns)
    .set({ judgeTokens: after })
    .where(
      and(
        eq(evalRuns.appName, appName),
        sql`${evalRuns.id} = ${runId}::uuid`,
        tokens > 0 ? sql`${after} <= ${evalRuns.maxJudgeTokens}` : undefined,
      ),
    )
    .returning({ runId: evalRuns.id });
  return added.length > 0;
}
