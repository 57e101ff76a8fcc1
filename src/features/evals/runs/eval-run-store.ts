import { isOnHold } from '../../../conversation/holds/hold-store.ts';
import { deleteSession } from '../../../conversation/sessions/session-store.ts';
import { type SQL, type SQLWrapper, and, desc, eq, inArray, isNotNull, lt, sql } from 'drizzle-orm';
import type { Database } from '../../../platform/db/database.ts';
import { evalCaseVersions, evalRunCases, evalRuns } from '../../../platform/db/schema/schema.ts';
import { bytesBefore, exactTime, insertSelect } from '../../../platform/db/sql.ts';
import type { Listed, ListPlace } from '../../../platform/http/operation/cursor.ts';
import { ConflictError } from '../../../core/errors.ts';
import { joinEventBytes } from '../../../conversation/sessions/history.ts';
import { estimatedBytes } from '../../../conversation/sessions/session-text.ts';
import type { SessionKey } from '../../../core/session.ts';
import { PART_BYTES, PART_ROWS } from '../sets/bounds.ts';
import type { EndedCase, EvalRun, EvalRunKey, NewEvalRun, Outcome, RunCase, RunFilter } from './eval-run.ts';

/** Maximum attempts to insert a run; one fails if another run of the application has the same timestamp. */
const MAX_TRIES = 10;

const isOpen = inArray(evalRuns.status, ['queued', 'running']);

/** @throws {ConflictError} if the requester has `maxOpen` open runs, or a run to judge has no completed case */
export async function insertEvalRun(db: Database, run: NewEvalRun, maxOpen: number): Promise<void> {
  const { appName, cases } = run;
  for (let tries = 0; tries < MAX_TRIES; tries += 1) {
    const { rows } = await db.execute<{ open: number; cases: number; created: number }>(insertion(run, maxOpen));
    const [row = { open: 0, cases: 0, created: 0 }] = rows;
    if (row.created === 1) return;
    if (row.cases === 0 && 'judgedRunId' in cases)
      throw new ConflictError(
        `No case of the evaluation run ${cases.judgedRunId} was done: there is nothing to judge.`,
      );
    if (row.open >= maxOpen)
      throw new ConflictError(
        `${maxOpen} of your evaluation runs of ${appName} have not ended yet. Wait, or cancel one.`,
      );
  }
  throw new ConflictError('Other evaluation runs began in the same moment. Try again.');
}

function insertion({ appName, runId, evalSetId, cases, ...run }: NewEvalRun, maxOpen: number): SQL {
  const requestedBy = run.requestedBy ?? null;
  const insertRun = insertSelect(evalRuns, {
    appName,
    id: sql`${runId}::uuid`,
    evalSetId,
    requestedBy,
    judgedRunId: 'judgedRunId' in cases ? sql`${cases.judgedRunId}::uuid` : null,
    metrics: run.metrics,
    userSimulator: run.userSimulator ?? null,
    modelExecutionMode: run.modelExecutionMode,
    toolExecutionMode: run.toolExecutionMode,
    trials: sql`${run.trials}::int`,
    parallelism: sql`${run.parallelism}::int`,
    maxJudgeTokens: sql`${run.maxJudgeTokens}::bigint`,
    agentHash: run.agentHash,
    modelName: run.modelName,
    resultTime: toResultTime(sql`now`),
  });
  const insertCases = insertSelect(evalRunCases, {
    appName,
    runId: sql`created.id`,
    place: sql`new_cases.place`,
    trial: sql`new_cases.trial`,
    evalSetId,
    evalId: sql`new_cases.eval_id`,
    caseVersion: sql`new_cases.case_version`,
    sessionUserId: sql`new_cases.session_user_id`,
    ownerId: requestedBy,
    sessionId: sql`new_cases.session_id`,
    sessionCount: sql`new_cases.session_count`,
    lastSequence: sql`new_cases.last_sequence`,
  });
  return sql`
    with open as (
      select count(*)::int as count from ${evalRuns} where ${isOpen} and ${evalRuns.appName} = ${appName}
        and ${evalRuns.requestedBy} is not distinct from ${requestedBy}::text),
    new_cases as (${selectNewCases(appName, cases, run.trials)}),
    created as (
      ${insertRun} from open, (select clock_timestamp() as now) moment
      where open.count < ${maxOpen} and exists (select from new_cases)
      on conflict on constraint eval_runs_result_time_key do nothing returning ${evalRuns.id} as id),
    inserted as (${insertCases} from created, new_cases returning 1)
    select open.count as open, (select count(*)::int from new_cases) as cases,
           (select count(*)::int from created) as created from open`;
}

function selectNewCases(appName: string, cases: NewEvalRun['cases'], trials: number): SQL {
  if ('judgedRunId' in cases)
    return sql`
      select place, trial, eval_id, case_version, session_user_id, session_id, 1 as session_count, last_sequence
      from ${evalRunCases} where app_name = ${appName} and run_id = ${cases.judgedRunId}::uuid and status = 'done'`;
  const column = (name: 'evalId' | 'version' | 'userId') => sql.param(cases.map((one) => one[name]));
  return sql`
    select place, trial, eval_id, case_version, session_user_id, null as session_id, 0 as session_count,
           null::int as last_sequence
    from generate_series(1, ${trials}::int) trial,
         unnest(${column('evalId')}::text[], ${column('version')}::int[], ${column('userId')}::text[])
           with ordinality as one(eval_id, case_version, session_user_id, place)`;
}

/** SQL: the time that names a result. No whole second, because only Python prints a whole second with `.0`. */
export const toResultTime = (moment: SQL) =>
  sql`(${moment} + (date_trunc('second', ${moment}) = ${moment})::int * interval '1 microsecond')`;

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

/** SQL: a run's cases by status, as stored when it was done, otherwise counted by the query. */
const runCounts = sql`coalesce(${evalRuns.summary} -> 'counts', eval_run_counts(${evalRuns.appName}, ${evalRuns.id}))`;

/** Lists runs with the counts of their cases, newest first. */
export async function listEvalRuns(db: Database, filter: RunFilter): Promise<EvalRun[]> {
  const { rows } = await db.execute<Record<keyof EvalRun, never>>(sql`
    select ${evalRuns.id} as "runId", ${evalRuns.evalSetId} as "evalSetId", ${evalRuns.status} as status,
           ${evalRuns.metrics} as metrics, ${evalRuns.userSimulator} as "userSimulator",
           ${evalRuns.modelExecutionMode} as "modelExecutionMode", ${evalRuns.toolExecutionMode} as "toolExecutionMode",
           ${evalRuns.trials} as trials, ${evalRuns.parallelism} as parallelism, ${evalRuns.agentHash} as "agentHash",
           ${evalRuns.maxJudgeTokens}::float8 as "maxJudgeTokens", ${evalRuns.judgeTokens}::float8 as "judgeTokens",
           ${evalRuns.modelName} as "modelName", ${evalRuns.judgedRunId} as "judgedRunId",
           ${microseconds}::float8 as "resultMicroseconds",
           extract(epoch from ${evalRuns.createTime})::float8 as "createTime",
           extract(epoch from ${evalRuns.endTime})::float8 as "endTime", ${runCounts} as counts
    from ${evalRuns} where ${matches(filter)} order by ${evalRuns.resultTime} desc limit ${filter.limit ?? null}`);
  return rows;
}

/** Lists results after a cursor position, newest first, without cancelled runs. No two have one time. */
export async function listResultMoments(
  db: Database,
  { after, limit, ...filter }: RunFilter & { after: ListPlace | undefined; limit: number },
): Promise<Listed<{ evalSetId: string; resultMicroseconds: number }>[]> {
  const { evalSetId, resultTime } = evalRuns;
  const isNext = after && sql`${resultTime} < ${after.time}::timestamptz`;
  const place = { time: exactTime(resultTime), id: evalSetId };
  const rows = await db
    .select({ evalSetId, resultMicroseconds: microseconds, place })
    .from(evalRuns)
    .where(and(matches(filter), eq(evalRuns.status, 'done'), isNext))
    .orderBy(desc(evalRuns.resultTime))
    .limit(limit);
  return rows.map((row) => ({ ...row, resultMicroseconds: Number(row.resultMicroseconds) }));
}

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

export const isItsVersion = sql`${evalCaseVersions.appName} = ${evalRunCases.appName}
  and ${evalCaseVersions.evalSetId} = ${evalRunCases.evalSetId}
  and ${evalCaseVersions.evalId} = ${evalRunCases.evalId}
  and ${evalCaseVersions.version} = ${evalRunCases.caseVersion}`;

const costOf = (result: SQLWrapper) => sql<number | null>`uses_cost(${result} -> 'uses')`;

/** A page of a run's ended cases, and how the run stands; `undefined` without the run. */
export interface EndedPage {
  status: EvalRun['status'] | undefined;
  cases: EndedCase[];
  isLast: boolean;
}

type CasePlace = Pick<RunCase, 'place' | 'trial'>;

/**
 * Reads the page of ended cases after a place, in the order of the set: the bytes of their content limit it.
 * @param ofDone - no cases unless the run is done, for who waits for that
 */
export async function findEndedCases(
  db: Database,
  key: EvalRunKey,
  last: CasePlace = { place: 0, trial: 0 },
  ofDone = false,
): Promise<EndedPage> {
  const { appName, place, trial, sessionUserId, sessionId, result } = evalRunCases;
  const { payload } = evalCaseVersions;
  const session = joinEventBytes({ appName, userId: sessionUserId, sessionId });
  const bytes = sql`(${estimatedBytes(payload)} + coalesce(${estimatedBytes(result)}, 0) + ${session.bytes})`;
  const hasEnded = and(isOfRun(key), inArray(evalRunCases.status, ['done', 'error']), isNotNull(sessionId));
  const isRun = and(eq(evalRuns.appName, key.appName), sql`${evalRuns.id} = ${key.runId}::uuid`);
  const isDone = sql`exists (select 1 from ${evalRuns} where ${isRun} and ${evalRuns.status} = 'done')`;
  const ended = db
    .select({
      ...RUN_CASE,
      payload,
      result,
      bytesBefore: bytesBefore(bytes, sql`${place}, ${trial}`).as('bytes_before'),
      count: sql<number>`(count(*) over ())::int`.as('count'),
    })
    .from(evalRunCases)
    .innerJoin(evalCaseVersions, isItsVersion)
    .leftJoin(session.table, session.on)
    .where(
      and(hasEnded, sql`(${place}, ${trial}) > (${last.place}::int, ${last.trial}::int)`, ofDone ? isDone : undefined),
    )
    .orderBy(place, trial)
    .limit(PART_ROWS)
    .as('ended');
  const rows = await db
    .select({
      status: evalRuns.status,
      count: ended.count,
      one: {
        place: ended.place,
        trial: ended.trial,
        evalId: ended.evalId,
        userId: ended.userId,
        sessionId: ended.sessionId,
        lastSequence: ended.lastSequence,
        failedTurn: ended.failedTurn,
        error: ended.error,
        evalCase: ended.payload,
        scored: ended.result,
        cost: costOf(ended.result),
      },
    })
    .from(evalRuns)
    .leftJoin(ended, lt(ended.bytesBefore, PART_BYTES))
    .where(isRun)
    .orderBy(ended.place, ended.trial);
  // A run without such cases has one row, without a case.
  const cases = rows.flatMap(({ one }) => (one ? [one as EndedCase] : []));
  return { status: rows[0]?.status, cases, isLast: cases.length === (rows[0]?.count ?? 0) };
}

/** Yields the ended cases of a run in the order of the set, page by page. @param first - the first page, if it is read */
export async function* listEndedCases(db: Database, key: EvalRunKey, first?: EndedPage): AsyncGenerator<EndedCase[]> {
  for (let page = first ?? (await findEndedCases(db, key)); ; ) {
    yield page.cases;
    if (page.isLast) return;
    page = await findEndedCases(db, key, page.cases.at(-1));
  }
}

const MAX_REASON = 1_000;

export async function listOutcomes(db: Database, key: EvalRunKey): Promise<(RunCase & { scored: Outcome | null })[]> {
  const { result } = evalRunCases;
  const metric = sql`jsonb_build_object('metricName', m -> 'metricName', 'score', m -> 'score',
    'status', m -> 'status', 'threshold', m -> 'threshold', 'explanation', left(m ->> 'explanation', ${MAX_REASON}))`;
  return db
    .select({
      ...RUN_CASE,
      error: sql<string | null>`left(${evalRunCases.error}, ${MAX_REASON})`.mapWith(evalRunCases.error),
      scored: sql<Outcome | null>`case when ${result} is not null then jsonb_build_object(
        'finalStatus', ${result} -> 'finalStatus', 'cost', ${costOf(result)}, 'overall',
        (select coalesce(jsonb_agg(${metric} order by n), '[]')
         from jsonb_array_elements(${result} -> 'overall') with ordinality as o(m, n))) end`,
    })
    .from(evalRunCases)
    .where(isOfRun(key))
    .orderBy(evalRunCases.place, evalRunCases.trial);
}

/** A case of a cancelled run whose current turn is to be stopped. */
export interface OpenCase {
  key: SessionKey;
  jobId: string;
}

/**
 * Cancels a run and its open cases. The jobs of these cases are deleted by a trigger.
 * @returns the cases that ran; none if the run had already ended
 */
export async function cancelEvalRun(db: Database, key: EvalRunKey): Promise<OpenCase[]> {
  const end = { status: 'cancelled' as const, endTime: sql`clock_timestamp()` };
  const run = and(eq(evalRuns.appName, key.appName), sql`${evalRuns.id} = ${key.runId}::uuid`, isOpen);
  const cancellation = db.update(evalRuns).set(end).where(run).returning({ id: evalRuns.id });
  const { runId, place, trial, sessionUserId, sessionId } = evalRunCases;
  const cases = db
    .update(evalRunCases)
    .set(end)
    .where(and(isOfRun(key), isOpenCase, sql`exists (select from cancelled)`))
    .returning({ jobId: sql`eval_case_job(${runId}, ${place}, ${trial})`.as('job_id'), sessionUserId, sessionId });
  const { rows } = await db.execute<{ jobId: string; userId: string; sessionId: string }>(sql`
    with cancelled as ${cancellation}, ended as ${cases}
    select job_id as "jobId", session_user_id as "userId", session_id as "sessionId" from ended
    where session_id is not null`);
  return rows.map(({ jobId, ...session }) => ({ jobId, key: { appName: key.appName, ...session } }));
}

/**
 * Adds a judge's tokens; negative: a refund. @returns false, and adds nothing, if the run's maximum would be exceeded
 */
export async function addJudgeTokens(db: Database, { appName, runId }: EvalRunKey, tokens: number): Promise<boolean> {
  const after = sql`${evalRuns.judgeTokens} + ${tokens}::bigint`;
  const rows = await db
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
  return rows.length > 0;
}

interface RunRetention {
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

export async function forgetOldRuns(db: Database, retention: RunRetention): Promise<void> {
  for (const key of await deleteOldRuns(db, retention)) await deleteSession(db, key);
}
