import { type SQL, and, eq, inArray, sql } from 'drizzle-orm';
import type { Database } from '../../../platform/db/database.ts';
import { escapeJson, unescapeJson } from '../../../platform/db/json-escape.ts';
import { evalCaseVersions, evalRunCases, evalRuns } from '../../../platform/db/schema/schema.ts';
import { insertSelect } from '../../../platform/db/sql.ts';
import { ConflictError } from '../../../core/errors.ts';
import type { EvalMetric } from '../metrics/criteria.ts';
import { selectCounts, meanScores, runCounts } from './trend-store.ts';
import type { EvalRunKey, NewEvalRun, EvalRun, RunFilter, RunCase } from './eval-run.ts';

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

const matches = ({ appName, requestedBy, runId, resultMicroseconds, evalSetId }: RunFilter) =>
  and(
    eq(evalRuns.appName, appName),
    requestedBy === undefined ? undefined : eq(evalRuns.requestedBy, requestedBy),
    runId === undefined ? undefined : sql`${evalRuns.id} = ${runId}::uuid`,
    resultMicroseconds === undefined
      ? undefined
      : sql`${evalRuns.resultTime} = 'epoch'::timestamptz + ${resultMicroseconds}::bigint * interval '1 microsecond'`,
    evalSetId === undefined ? undefined : eq(evalRuns.evalSetId, evalSetId),
  );

/** Runs with the counts of their cases, newest first. */
export async function listEvalRuns(db: Database, filter: RunFilter): Promise<EvalRun[]> {
  const { rows } = await db.execute<Record<keyof EvalRun, never>>(sql`
    select ${evalRuns.id} as "runId", ${evalRuns.evalSetId} as "evalSetId", ${evalRuns.status} as status,
           ${evalRuns.metrics}::text as metrics, ${evalRuns.userSimulator}::text as "userSimulator",
           ${evalRuns.modelExecutionMode} as "modelExecutionMode", ${evalRuns.toolExecutionMode} as "toolExecutionMode",
           ${evalRuns.trials} as trials, ${evalRuns.parallelism} as parallelism, ${evalRuns.agentHash} as "agentHash",
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

/** The sets and moments of the results of an application, oldest first: those of runs that were not cancelled. */
export async function listResultMoments(
  db: Database,
  filter: RunFilter,
): Promise<{ evalSetId: string; resultMicroseconds: number }[]> {
  const rows = await db
    .select({ evalSetId: evalRuns.evalSetId, resultMicroseconds: microseconds })
    .from(evalRuns)
    .where(and(matches(filter), eq(evalRuns.status, 'done')))
    .orderBy(evalRuns.resultTime);
  return rows.map((row) => ({ ...row, resultMicroseconds: Number(row.resultMicroseconds) }));
}

const isOfRun = ({ appName, runId }: EvalRunKey) =>
  sql`${evalRunCases.appName} = ${appName} and ${evalRunCases.runId} = ${runId}::uuid`;

/** The condition that joins a case of a run to the version that it is about. */
export const isItsVersion = sql`${evalCaseVersions.appName} = ${evalRunCases.appName}
  and ${evalCaseVersions.evalSetId} = ${evalRunCases.evalSetId}
  and ${evalCaseVersions.evalId} = ${evalRunCases.evalId}
  and ${evalCaseVersions.version} = ${evalRunCases.caseVersion}`;

/** The cases of a run by place, then by trial. */
export async function listRunCases(db: Database, key: EvalRunKey): Promise<RunCase[]> {
  const rows = await db
    .select({
      place: evalRunCases.place,
      trial: evalRunCases.trial,
      evalId: evalRunCases.evalId,
      userId: evalRunCases.sessionUserId,
      sessionId: evalRunCases.sessionId,
      status: evalRunCases.status,
      lastSequence: evalRunCases.lastSequence,
      failedTurn: evalRunCases.failedTurn,
      error: evalRunCases.error,
      caseText: sql<string>`${evalCaseVersions.payload}::text`,
      resultText: sql<string | null>`${evalRunCases.result}::text`,
    })
    .from(evalRunCases)
    .innerJoin(evalCaseVersions, isItsVersion)
    .where(isOfRun(key))
    .orderBy(evalRunCases.place, evalRunCases.trial);
  return rows.map((row) => ({
    ...row,
    caseText: unescapeJson(row.caseText),
    resultText: row.resultText === null ? null : unescapeJson(row.resultText),
  }));
}

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
