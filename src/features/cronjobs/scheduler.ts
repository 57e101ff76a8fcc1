import { AgentError } from '../../core/errors.ts';
import { type Claim, type ClaimRequest, pauseUntil, runLeasedQueue } from '../../platform/work/leased-queue.ts';
import type { InvocationContext } from '../../invocations/context.ts';
import { stoppedMessage } from '../../invocations/invocation.ts';
import { type ClaimedRun, claimRuns, findAgenda, renewRuns } from './claim-store.ts';
import { executeRun, giveUpRun } from './execute-run.ts';
import { CRONJOBS_TOPIC } from './cronjob-store.ts';
import { fireDueCronjobs } from './fire.ts';
import { CANCEL_TOPIC, deleteOldRuns, takeBackRunLoss } from './run-store.ts';

/** Maximum pause between polls: notifications may be lost, as through a connection pooler without LISTEN. */
const MAX_PAUSE_MS = 30_000;
const CLEANING_BATCH = 10_000;

export interface SchedulerSettings {
  maxRuns: number;
  /** Maximum number of concurrent runs per user, over all processes. */
  maxRunsPerUser: number;
  /** Number of days for which ended runs are kept, and maximum number of ended runs per cronjob. */
  retentionDays: number;
  retentionCount: number;
}

/**
 * Every replica runs cronjobs until it drains; row locks decide which gets a cronjob or a run.
 * @returns a promise that settles when the last run has ended
 */
export function runCronjobs(context: InvocationContext, settings: SchedulerSettings): Promise<void> {
  const { database, leaseTimes } = context;
  return runLeasedQueue<ClaimedRun>(context, {
    name: 'cronjob runs',
    topic: CRONJOBS_TOPIC,
    maxJobs: settings.maxRuns,
    claim: (request) => fireAndClaim(context, settings, request),
    lease: {
      renewalMs: leaseTimes.renewalMs,
      cancelTopic: CANCEL_TOPIC,
      // A run taken over by another process goes on here: both processes wait for the same invocation's result.
      renew: async (claimed, stop) => {
        const runs = claimed.map(({ run }) => run);
        const renewed = await renewRuns(database.db, runs, leaseTimes.durationMs);
        const held = new Set(renewed.map(({ id }) => id));
        const cancelled = new Set(renewed.filter(({ isCancelled }) => isCancelled).map(({ id }) => id));
        const reason = new AgentError('cancelled', stoppedMessage('cancelled'));
        for (const each of claimed) if (cancelled.has(each.run.id)) stop(each, reason);
        return claimed.filter(({ run }) => !held.has(run.id));
      },
    },
    losses: {
      count: ({ run }) => run.losses,
      giveUp: (claimed, message, signal) => giveUpRun(context, claimed, message, signal),
      takeBack: ({ run }) => takeBackRunLoss(database.db, run),
    },
    run: (claimed, signal) => executeRun(context, claimed, signal),
    toLogFields: ({ run }) => ({ runId: run.id }),
    deleteOld: () => deleteOldRuns(database.db, settings.retentionDays, settings.retentionCount, CLEANING_BATCH),
  });
}

async function fireAndClaim(
  context: InvocationContext,
  { maxRunsPerUser: perUser }: SchedulerSettings,
  { slots, held }: ClaimRequest<ClaimedRun>,
): Promise<Claim<ClaimedRun>> {
  const { database, notifications, leaseTimes, draining } = context;
  const { dueMs, waitingMs, leaseMs } = await findAgenda(database.db);
  const fired = isNow(dueMs) ? await fireDueCronjobs(context) : 0;
  if (fired > slots) notifications.publish(CRONJOBS_TOPIC);
  const takesOver = isNow(leaseMs);
  let jobs: ClaimedRun[] = [];
  if (slots > 0 && (fired > 0 || isNow(waitingMs) || takesOver)) {
    const active = held.map(({ run }) => run.id);
    jobs = await database.transaction(async (tx) => {
      const runs = await claimRuns(tx, { slots, perUser, active, takesOver, leaseMs: leaseTimes.durationMs });
      // If shutdown has begun in the meantime, the claims are rolled back, and another process claims these runs.
      draining.throwIfAborted();
      return runs;
    });
  }
  if (fired > 0 || jobs.length > 0) return { jobs, pauseMs: 0 };
  // Without a free slot only the next due cronjob determines the pause. The end of a run wakes the scheduler.
  return { jobs, pauseMs: pauseUntil(MAX_PAUSE_MS, dueMs, ...(slots > 0 ? [waitingMs, leaseMs] : [])) };
}

const isNow = (ms: number | undefined) => ms !== undefined && ms <= 0;
