import { EVALUATION_JOB } from '../../../core/names.ts';
import { AppError } from '../../../core/errors.ts';
import { publishStops } from '../../../invocations/cancel.ts';
import { requestStopOfSteps } from '../../../invocations/invocation-store.ts';
import { persist } from '../../../invocations/persist.ts';
import { mayBeginLater } from '../../../invocations/retry.ts';
import type { Job } from '../../../platform/jobs/job-store.ts';
import { type JobEnd, runJobs } from '../../../platform/jobs/run-jobs.ts';
import type { RunEnd } from '../../../platform/work/leased-queue.ts';
import type { EvalContext } from '../sets/context.ts';
import { type CaseOutcome, endCase, type RunningCase, toRunningCase } from './case-store.ts';
import { CANCEL_TOPIC, MAX_PARALLELISM } from './eval-run.ts';
import { runCase } from './run-case.ts';

/** Maximum pause between polls. Workers poll, because a connection pooler may not pass on notifications (LISTEN). */
const MAX_PAUSE_MS = 30_000;
/** Back-off of a turn that could not begin: the session is busy, or this process or the database has no room. */
const RETRY = { attempts: Infinity, firstMs: 250, maxMs: 10_000 };

/** Milliseconds of retrying to store an outcome, because judges would have to be asked again. */
const PATIENCE_MS = 10_000;

/**
 * Runs the cases of evaluation runs until the process drains. A case is a job, whose process takes the turns of the case
 * as invocations and scores them. If another process takes over a turn, its end makes the job due again. A job keeps its
 * place in this process during its turns, so that evaluations never have all of the process's invocations.
 */
export function runEvalCases(context: EvalContext): Promise<void> {
  return runJobs<RunningCase>(context, {
    kind: EVALUATION_JOB,
    name: 'evaluation cases',
    topic: EVALUATION_JOB,
    cancelTopic: CANCEL_TOPIC,
    appNames: [...context.agents.keys()],
    maxJobs: MAX_PARALLELISM,
    maxPauseMs: MAX_PAUSE_MS,
    retry: RETRY,
    work: 'evaluation_work',
    toWork: toRunningCase,
    run: (running, signal) => runJob(context, running, signal),
    giveUp: ({ job }, message) => end(context, job, { lastSequence: 0, error: { message, failedTurn: 0 } }),
  });
}

async function runJob(context: EvalContext, running: RunningCase, signal: AbortSignal): Promise<JobEnd> {
  const outcome = await runCase(context, running, signal).catch((error: unknown) => toOutcome(context, error, signal));
  return outcome ? end(context, running.job, outcome) : 'done';
}

/**
 * Ends a case, then its turns that wait for a person, because nobody answers in an evaluation. Not before, because a
 * cancelled turn would begin the case again in a new session.
 */
async function end({ database: { db }, notifications }: EvalContext, job: Job, outcome: CaseOutcome): Promise<RunEnd> {
  const { key, runEnd } = await persist(() => endCase(db, job, outcome), PATIENCE_MS);
  if (outcome.haveTurnsEnded) return runEnd;
  const stop = () => requestStopOfSteps(db, EVALUATION_JOB, [{ key, jobId: job.id }]);
  const stopped = await persist(stop, PATIENCE_MS);
  publishStops(
    notifications,
    stopped.map((invocationId) => ({ ...key, invocationId })),
  );
  return runEnd;
}

/** A case's outcome from an error. @throws the error if another process has the case, or a retry may succeed */
function toOutcome({ log, draining }: EvalContext, error: unknown, signal: AbortSignal): CaseOutcome {
  if (signal.aborted || draining.aborted || mayBeginLater(error)) throw error;
  const isExpected = error instanceof AppError;
  if (!isExpected) log.error({ err: error }, 'an evaluation case could not be run');
  const message = isExpected ? error.message : 'The runtime failed while it ran the case.';
  return { lastSequence: 0, error: { message, failedTurn: 0 } };
}
