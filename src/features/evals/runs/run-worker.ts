import { AgentError, AppError, isPassingFailure, LeaseLostError } from '../../../core/errors.ts';
import { lookWhenWoken } from '../../../platform/work/look-when-woken.ts';
import type { InvocationContext } from '../../../invocations/context.ts';
import { persist } from '../../../invocations/persist.ts';
import {
  type CaseOutcome,
  claimEvalCases,
  type ClaimedCase,
  findNextLeaseEnd,
  finishEvalCase,
  releaseEvalCase,
  renewEvalCases,
} from './claim-store.ts';
import { runCase } from './run-case.ts';
import { endFinishedRuns } from './eval-run-store.ts';
import { CANCEL_TOPIC, EVALS_TOPIC, runTopic } from './topics.ts';

/** Longest sleep: what notifications did not bring (a pooler that does not pass LISTEN) is found then. */
const LONGEST_SLEEP_MS = 30_000;
/** Those who follow a run are notified of its cases together: a notification is a statement, and they all look then. */
const PROGRESS_MS = 200;

/** What operators say about evaluation runs. */
export interface EvalWorkerSettings {
  /** Cases of this process at once. */
  maxCases: number;
  /** Judges where a metric names no model [that of the application]. */
  judgeModel: string | undefined;
}

/** A claimed case at work. */
interface ActiveCase {
  ending: AbortController;
  ended: Promise<void>;
}

/** The part of a process that works on evaluation runs. */
interface EvalWorker {
  /** Settles when it has stopped: it begins nothing once the process drains, and its cases have ended. */
  stopped: Promise<void>;
}

/**
 * Starts a worker. Every replica has one; which of them runs a case is decided by the row of the case. It sleeps until
 * it is notified of a run, until a case ends here, or until the lease of a case elsewhere is over.
 */
export function startEvalWorker(context: InvocationContext, settings: EvalWorkerSettings): EvalWorker {
  const { database, notifications, leaseTimes, log } = context;
  const active = new Map<string, ActiveCase>();
  const renew = () => {
    renewActive(context, active).catch((error: unknown) => {
      if (!isPassingFailure(error)) log.error({ err: error }, 'the leases of evaluation cases were not renewed');
    });
  };
  const announce = announcing(notifications);
  const start = (claimed: ClaimedCase, wake: () => void) => {
    const ending = new AbortController();
    const ended = endCase(context, claimed, settings.judgeModel, ending.signal).finally(() => {
      active.delete(claimed.leaseToken);
      announce(claimed.runId);
      wake();
    });
    active.set(claimed.leaseToken, { ending, ended });
  };
  const look = async (wake: () => void): Promise<number> => {
    const slots = settings.maxCases - active.size;
    const limits = { slots, appNames: [...context.agents.keys()], leaseMs: leaseTimes.durationMs };
    const claimed = slots > 0 ? await claimEvalCases(database, limits) : [];
    for (const each of claimed) start(each, wake);
    if (claimed.length > 0) return 0;
    // Not with each case: two that end at once would each see the other open.
    for (const { runId } of await endFinishedRuns(database.db)) notifications.publish(runTopic(runId));
    const leaseEndMs = await findNextLeaseEnd(database.db);
    const wait = leaseEndMs === undefined ? LONGEST_SLEEP_MS : Math.max(leaseEndMs, leaseTimes.renewalMs);
    return Math.min(wait, LONGEST_SLEEP_MS);
  };
  const work = async (): Promise<void> => {
    const timer = setInterval(renew, leaseTimes.renewalMs);
    const unsubscribe = notifications.subscribe(CANCEL_TOPIC, renew);
    await lookWhenWoken(context, EVALS_TOPIC, 'the worker of evaluation runs failed', look);
    while (active.size > 0) await Promise.all([...active.values()].map(({ ended }) => ended));
    unsubscribe();
    clearInterval(timer);
  };
  return { stopped: work() };
}

/** Publishes that cases of a run ended, once for all that end within a moment. */
function announcing(notifications: Pick<InvocationContext['notifications'], 'publish'>): (runId: string) => void {
  const changed = new Set<string>();
  return (runId) => {
    if (changed.has(runId)) return;
    changed.add(runId);
    setTimeout(() => {
      changed.delete(runId);
      notifications.publish(runTopic(runId));
    }, PROGRESS_MS).unref();
  };
}

/** Renews the leases of all active cases in one statement, and ends the work on those that are ours no more. */
async function renewActive(
  { database, leaseTimes }: InvocationContext,
  active: ReadonlyMap<string, ActiveCase>,
): Promise<void> {
  if (active.size === 0) return;
  const tokens = [...active.keys()];
  const held = new Set(await renewEvalCases(database.db, tokens, leaseTimes.durationMs));
  for (const token of tokens) {
    if (!held.has(token)) active.get(token)?.ending.abort(new AgentError('cancelled', 'The evaluation was cancelled.'));
  }
}

/** Runs a claimed case and stores how it ended. */
async function endCase(
  context: InvocationContext,
  claimed: ClaimedCase,
  judgeModel: string | undefined,
  signal: AbortSignal,
): Promise<void> {
  const { database, leaseTimes, log } = context;
  try {
    const outcome = await runCase(context, claimed, judgeModel, signal).catch((error: unknown) =>
      toOutcome(context, error, signal),
    );
    if (!outcome) return await releaseEvalCase(database.db, claimed);
    await persist(() => finishEvalCase(database.db, claimed, outcome), leaseTimes.durationMs);
  } catch (error) {
    // Its lease runs out, and whoever claims it then goes on with it.
    if (!signal.aborted && !isPassingFailure(error) && !(error instanceof LeaseLostError)) {
      log.error({ err: error, runId: claimed.runId }, 'an evaluation case failed');
    }
  }
}

/** The end of a case that could not be run. @throws the error where the case is another's, or can be tried again. */
function toOutcome({ log }: InvocationContext, error: unknown, signal: AbortSignal): CaseOutcome {
  if (signal.aborted || isPassingFailure(error) || error instanceof LeaseLostError) throw error;
  const known = error instanceof AppError;
  if (!known) log.error({ err: error }, 'an evaluation case could not be run');
  const message = known ? error.message : 'The runtime failed while it ran the case.';
  return { lastSequence: 0, error: { message, failedTurn: 0 } };
}
