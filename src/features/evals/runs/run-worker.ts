import { AgentError, AppError, isPassingFailure, LeaseLostError } from '../../../core/errors.ts';
import { type Claim, type ClaimRequest, pauseUntil, runLeasedQueue } from '../../../platform/work/leased-queue.ts';
import type { InvocationContext } from '../../../invocations/context.ts';
import { findCurrent } from '../../../invocations/invocation-store.ts';
import { persist } from '../../../invocations/persist.ts';
import {
  type CaseOutcome,
  claimEvalCases,
  type ClaimedCase,
  findNextLeaseEnd,
  finishEvalCase,
  releaseEvalCase,
  renewEvalCases,
  takeBackCaseLoss,
} from './claim-store.ts';
import type { EvalContext } from '../sets/context.ts';
import { runCase } from './run-case.ts';
import { toSessionKey } from './run-turns.ts';
import { endFinishedRuns } from './eval-run-store.ts';
import { CANCEL_TOPIC, EVALS_TOPIC, MAX_PARALLELISM, runTopic } from './eval-run.ts';

/** Maximum pause between polls. Workers poll, because a connection pooler may not pass on notifications (LISTEN). */
const MAX_PAUSE_MS = 30_000;
/** Milliseconds between notices of a run's progress: each is a statement, and makes every follower poll. */
const PROGRESS_MS = 200;

/**
 * Every replica runs evaluation cases until it drains; a lease on a case's row decides which replica runs it.
 * @returns a promise that settles when the last case has ended.
 */
export function runEvalCases(context: EvalContext): Promise<void> {
  const { database, notifications, leaseTimes, agents } = context;
  const announce = createAnnouncer(notifications);
  const claim = async ({ slots, held }: ClaimRequest<ClaimedCase>): Promise<Claim<ClaimedCase>> => {
    const limits = { slots, held, appNames: [...agents.keys()], leaseMs: leaseTimes.durationMs };
    const jobs = slots > 0 ? await claimEvalCases(database, limits) : [];
    if (jobs.length > 0) return { jobs, pauseMs: 0 };
    // Runs end here, because two last cases that end concurrently would each see the other as still open.
    for (const { runId } of await endFinishedRuns(database.db)) notifications.publish(runTopic(runId));
    const leaseEndMs = await findNextLeaseEnd(database.db);
    const untilLeaseEnd = leaseEndMs === undefined ? undefined : Math.max(leaseEndMs, leaseTimes.renewalMs);
    return { jobs, pauseMs: pauseUntil(MAX_PAUSE_MS, untilLeaseEnd) };
  };
  const run = (claimed: ClaimedCase, signal: AbortSignal) =>
    endCase(context, claimed, context.config.EVALS_JUDGE_MODEL, signal).finally(() => announce(claimed.runId));
  return runLeasedQueue<ClaimedCase>(context, {
    name: 'evaluation cases',
    topic: EVALS_TOPIC,
    maxJobs: MAX_PARALLELISM,
    claim,
    lease: {
      renewalMs: leaseTimes.renewalMs,
      cancelTopic: CANCEL_TOPIC,
      renew: async (cases, stop) => {
        const tokens = cases.map(({ leaseToken }) => leaseToken);
        const validTokens = new Set(await renewEvalCases(database.db, tokens, leaseTimes.durationMs));
        const cancelled = new AgentError('cancelled', 'The evaluation was cancelled.');
        const lostCases = cases.filter(({ leaseToken }) => !validTokens.has(leaseToken));
        for (const each of lostCases) stop(each, cancelled);
        return lostCases;
      },
    },
    losses: {
      count: ({ losses }) => losses,
      // An invocation has its own limit of crashes, so a case with a running one is not given up.
      giveUp: async (claimed, message, signal) =>
        (await findCurrent(database.db, toSessionKey(claimed)))
          ? run(claimed, signal)
          : finishEvalCase(database.db, claimed, { lastSequence: 0, error: { message, failedTurn: 0 } }),
      takeBack: (claimed) => takeBackCaseLoss(database.db, claimed),
    },
    run,
    toLogFields: ({ runId }) => ({ runId }),
  });
}

/** Announces a run's ended cases once for all that end within the interval. */
function createAnnouncer(notifications: Pick<InvocationContext['notifications'], 'publish'>): (runId: string) => void {
  const pendingRunIds = new Set<string>();
  return (runId) => {
    if (pendingRunIds.has(runId)) return;
    pendingRunIds.add(runId);
    setTimeout(() => {
      pendingRunIds.delete(runId);
      notifications.publish(runTopic(runId));
    }, PROGRESS_MS).unref();
  };
}

async function endCase(
  context: InvocationContext,
  claimed: ClaimedCase,
  judgeModel: string | undefined,
  signal: AbortSignal,
): Promise<void> {
  const { database, leaseTimes, notifications } = context;
  try {
    const outcome = await runCase(context, claimed, judgeModel, signal).catch((error: unknown) =>
      toOutcome(context, error, signal),
    );
    if (!outcome) {
      await releaseEvalCase(database.db, claimed);
      return notifications.publish(EVALS_TOPIC);
    }
    const isMine = await persist(() => finishEvalCase(database.db, claimed, outcome), leaseTimes.durationMs);
    if (!isMine) throw new LeaseLostError('The evaluation case is run by another process.');
  } catch (error) {
    if (!signal.aborted) throw error;
  }
}

/** A case's outcome from an error. @throws the error if another process took the case over, or a retry may succeed */
function toOutcome({ log }: InvocationContext, error: unknown, signal: AbortSignal): CaseOutcome {
  if (signal.aborted || isPassingFailure(error) || error instanceof LeaseLostError) throw error;
  const isExpected = error instanceof AppError;
  if (!isExpected) log.error({ err: error }, 'an evaluation case could not be run');
  const message = isExpected ? error.message : 'The runtime failed while it ran the case.';
  return { lastSequence: 0, error: { message, failedTurn: 0 } };
}
