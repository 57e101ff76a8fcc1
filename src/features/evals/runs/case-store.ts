import { EVALUATION_JOB } from '../../../core/names.ts';
import { type SQL, and, eq, sql } from 'drizzle-orm';
import type { SessionKey } from '../../../core/session.ts';
import type { InvocationStatus } from '../../../invocations/invocation.ts';
import type { Database } from '../../../platform/db/database.ts';
import { evalCaseVersions, evalRunCases, evalRuns } from '../../../platform/db/schema/schema.ts';
import { holdsJob, type Job, jobLost } from '../../../platform/jobs/job-store.ts';
import type { RunEnd } from '../../../platform/work/leased-queue.ts';
import { MAX_SCORES, withShortTexts } from '../sets/bounds.ts';
import type { ExecutionModes } from '../sets/eval-set.ts';
import type { ScoredCase } from '../scoring/score.ts';
import { readStoredCase, type StoredCase } from '../cases/eval-case.ts';
import { type NewEvalRun, type RunCase } from './eval-run.ts';
import { isItsVersion } from './eval-run-store.ts';

/** The newest turn in a case's session. */
export interface LastTurn {
  /** From 0. */
  turn: number;
  status: InvocationStatus;
  attempt: number;
  error: string;
}

/** A case that runs, with its run. */
export interface RunningCase
  extends Pick<NewEvalRun, 'appName' | 'runId' | 'evalSetId' | 'metrics' | 'userSimulator' | keyof ExecutionModes>,
    Pick<RunCase, 'place' | 'trial' | 'evalId' | 'userId'> {
  job: Job;
  sessionId: string;
  /** Number of the case's sessions so far: one that was interrupted within a turn is replaced by a new one. */
  sessionCount: number;
  /** True if the run only judges the stored turns of another run and does not call the agent. */
  isJudging: boolean;
  /** Sequence number of the case's last event, if the run judges stored turns. */
  lastSequence: number | null;
  /** Absent if no turn has begun in the case's session. */
  lastTurn?: LastTurn | undefined;
}

const c = evalRunCases;

/** The id of a case's job: see `eval_case_job` in `migrations/repeatable/functions/evals.sql`. */
function toCaseKey({ appName, id }: Pick<Job, 'appName' | 'id'>): SQL {
  const [runId, place, trial] = id.split('.');
  return sql`${c.appName} = ${appName} and ${c.runId} = ${runId}::uuid and ${c.place} = ${place}::int
    and ${c.trial} = ${trial}::int`;
}

/** Reads the case that `evaluation_work` returned with its claimed job. */
export function toRunningCase(job: Job): RunningCase {
  const work = job.work as Omit<RunningCase, 'job' | 'lastTurn'> & { lastTurn: LastTurn | null };
  return {
    ...work,
    job,
    lastTurn: work.lastTurn ?? undefined,
  };
}

/** Reads a case as it was when its run was requested. @returns `undefined` if it was deleted */
export async function findCaseOfJob(db: Database, job: Job): Promise<StoredCase | undefined> {
  const [row] = await db
    .select({ payload: evalCaseVersions.payload })
    .from(c)
    .innerJoin(evalCaseVersions, isItsVersion)
    .where(toCaseKey(job));
  return row && readStoredCase(row.payload);
}

/** Outcome of a case: the scores, or the reason why the case could not be completed. */
export interface CaseOutcome {
  /** Sequence of the case's last event in its session. */
  lastSequence: number;
  scored?: ScoredCase | undefined;
  error?: { message: string; failedTurn: number } | undefined;
  /** True if all turns of the case are known to have ended, so that none waits for a person. */
  haveTurnsEnded?: boolean;
}

/**
 * Ends a case. A trigger ends its job and starts the next waiting case of the run, whose job is due then. The run is
 * locked first, as by a cancellation.
 * @returns the case's session, and whether the run goes on
 * @throws {LeaseLostError} if another process has the job, or the case was cancelled or deleted
 */
export async function endCase(
  db: Database,
  job: Job,
  { lastSequence, scored, error }: CaseOutcome,
): Promise<{ key: SessionKey; runEnd: RunEnd }> {
  const [runId] = job.id.split('.');
  // The cases that wait are read as they were before the lock. None is missed, because all of a run wait from its start.
  const { rows } = await db.execute<{ startsNext: boolean; userId: string; sessionId: string }>(sql`
    with run as materialized (
      select ${evalRuns.id} from ${evalRuns}
      where ${evalRuns.appName} = ${job.appName} and ${evalRuns.id} = ${runId}::uuid for no key update),
    held as materialized (select ${holdsJob(EVALUATION_JOB, job)} as is_held from (select count(*) from run) locked)
    update ${c} set
      status = ${error ? 'error' : 'done'}, last_sequence = ${lastSequence}, failed_turn = ${error?.failedTurn ?? null},
      error = ${sql.param(error?.message ?? null, c.error)}, end_time = clock_timestamp(),
      result = ${sql.param(scored ? withShortTexts(scored, MAX_SCORES) : null, c.result)}
    from held where held.is_held and ${toCaseKey(job)} and ${c.status} = 'running'
    returning ${c.sessionUserId} as "userId", ${c.sessionId} as "sessionId", exists (
      select from ${c} next
      where next.app_name = ${job.appName} and next.run_id = ${runId}::uuid and next.status = 'waiting') as "startsNext"`);
  const [row] = rows;
  if (!row) throw jobLost();
  const { startsNext, ...session } = row;
  return { key: { appName: job.appName, ...session }, runEnd: startsNext ? 'waits' : 'over' };
}

/** Gives a case a new session. @returns the session; `undefined` if the case has a newer one already */
export async function restartCase(db: Database, { job, sessionCount }: RunningCase): Promise<string | undefined> {
  const [row] = await db
    .update(c)
    .set({ sessionId: sql`new_eval_session()`, sessionCount: sessionCount + 1 })
    .where(and(toCaseKey(job), eq(c.status, 'running'), eq(c.sessionCount, sessionCount)))
    .returning({ sessionId: sql<string>`${c.sessionId}` });
  return row?.sessionId;
}
