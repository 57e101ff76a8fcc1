import { setTimeout as sleep } from 'node:timers/promises';
import { AppError, isPassingFailure } from '../../core/errors.ts';
import type { Log } from '../log.ts';
import { FAILURE_PAUSE_MS, runPollLoop } from './poll-loop.ts';

/**
 * Pause in milliseconds while limits across processes block due jobs, because no notification tells when a job ends.
 */
const BLOCKED_PAUSE_MS = 1_000;

/** Pause in milliseconds after the second claim in a row that found no job; it doubles up to `BLOCKED_PAUSE_MS`. */
const FIRST_VAIN_PAUSE_MS = 20;

/** Number of crashed holders after which a job is given up as a poison job, which may be what crashes them. */
const MAX_LOSSES = 2;
const GIVEN_UP = 'Given up after two processes ended while they ran it.';

/**
 * How the run of a job has ended. `waits`: a job waits now, the same or one that this end has added, so that another claim
 * has to find out when it is due.
 */
export type RunEnd = 'over' | 'waits';

interface ClaimRequest<Job> {
  /** Maximum number of jobs to claim; 0 if the process is at its limit. */
  slots: number;
  held: readonly Job[];
  wake: () => void;
}

interface Claim<Job> {
  jobs: Job[];
  /** Milliseconds until the next claim, unless woken; 0 if more jobs may be due. */
  pauseMs: number;
  /** True if jobs may wait that this claim had no place for: the end of a job makes another claim. */
  mayMore: boolean;
  /** True if a job was due and this claim got none. Default: false. */
  isVain?: boolean;
}

/**
 * One kind of job shared by the processes of a deployment. The statements belong to the store that owns the rows; a
 * kind of the table `jobs` needs none of its own (`platform/jobs`).
 *
 * ```
 *            claim             run stores the result
 *  waiting ─────────▶ held ────────────────────────▶ ended
 *     ▲              ▲    │
 *     │        renew └────┤ cancelled: a renewal aborts the signal, and `run` ends the job
 *     │                   │
 *     ├── put back ◀──────┤ after a back-off (`backOffMs`), or at once if the process stops
 *     └── lease over ◀────┘ the process died or could not store the result
 *           loss + 1        given up after two losses; a holder that only stalled undoes its loss
 * ```
 *
 * A lease is a token and an expiry time in the row, by the database's clock. Every write of a holder checks its token,
 * so a process that lost a job cannot write. `claim` enforces limits across processes and takes users in turn.
 */
export interface LeasedQueue<Job> {
  /** Plural name of the jobs, for log messages. */
  name: string;
  /** Notification topic that is published when there may be new jobs. */
  topic: string;
  maxJobs: number;
  /** Minimum pause between two claims, in milliseconds. Default: 0. */
  minPauseMs?: number;
  claim: (request: ClaimRequest<Job>) => Promise<Claim<Job>>;
  /** Lease renewal; needed if a job may run longer than its lease. */
  lease?: {
    /** Renewal interval in milliseconds; at most a third of the lease, so that two renewals may fail. */
    renewalMs: number;
    /** Notification topic that is published when jobs are cancelled; it triggers a renewal at once. */
    cancelTopic: string;
    /**
     * Renews all leases in one statement; stops jobs that were cancelled or lost to another holder.
     * @returns the lost jobs
     */
    renew: (jobs: Job[], stop: (job: Job, reason: Error) => void) => Promise<Job[]>;
  };
  /** Crash counter in the job's row, increased when an expired lease is claimed. Without it poison jobs run forever. */
  losses?: {
    count: (job: Job) => number;
    /**
     * Ends a poison job instead of running it, or waits, with a separate time limit, for work that it already started.
     */
    giveUp: (job: Job, reason: string, signal: AbortSignal) => Promise<RunEnd>;
    /** Decrements the job's crash counter in one statement, if the process whose lease expired had only stalled. */
    takeBack: (job: Job) => Promise<unknown>;
  };
  /** Runs a job and stores its result, or puts it back. If it throws, the job is retried after its lease expires. */
  run: (job: Job, signal: AbortSignal) => Promise<RunEnd>;
  toLogFields: (job: Job) => object;
}

export interface QueueContext {
  notifications: { subscribe(topic: string, listener: () => void): () => void };
  log: Log;
  /** Aborted when the process starts to stop, after which no more jobs are claimed. */
  draining: AbortSignal;
}

interface ActiveJob {
  stopping: AbortController;
  ended: Promise<void>;
  /** True after the job's crash count was corrected. */
  lives?: boolean;
}

/** Claims and runs jobs until the process drains. @returns a promise that settles when the last job has ended */
export async function runLeasedQueue<Job>(context: QueueContext, queue: LeasedQueue<Job>): Promise<void> {
  const { notifications, log, draining: signal } = context;
  const { name, minPauseMs, lease, losses } = queue;
  const active = new Map<Job, ActiveJob>();
  /** True if a claim must follow the end of a job; also during a claim, because it has counted the free places before. */
  let mayMore = true;
  // Claims in a row that got no job although one was due.
  let vain = 0;
  const takeBack = async (job: Job) => {
    const holder = active.get(job);
    if (!losses || !holder || holder.lives) return;
    holder.lives = true;
    const once = async () =>
      losses.takeBack(job).then(
        () => true,
        (error: unknown) => !isPassingFailure(error),
      );
    while (!(await once()) && !signal.aborted) await sleep(FAILURE_PAUSE_MS);
  };
  const start = (job: Job, wake: () => void) => {
    const stopping = new AbortController();
    const run = async () =>
      losses && losses.count(job) >= MAX_LOSSES
        ? losses.giveUp(job, GIVEN_UP, stopping.signal)
        : queue.run(job, stopping.signal);
    const ended = run()
      .catch(async (error: unknown) => {
        await takeBack(job);
        throw error;
      })
      .finally(() => active.delete(job))
      .then(
        (end) => (mayMore || end === 'waits') && wake(),
        (error: unknown) => {
          const isExpected = error instanceof AppError || isPassingFailure(error);
          if (!isExpected) log.error({ err: error, ...queue.toLogFields(job) }, `one of the ${name} failed`);
          setTimeout(wake, FAILURE_PAUSE_MS).unref();
        },
      )
      .then(() => undefined);
    active.set(job, { stopping, ended });
  };
  const poll = async (wake: () => void): Promise<number> => {
    const slots = Math.max(0, queue.maxJobs - active.size);
    mayMore = true;
    const claim = await queue.claim({ slots, held: [...active.keys()], wake });
    const { jobs, pauseMs } = claim;
    ({ mayMore } = claim);
    for (const job of jobs) start(job, wake);
    vain = claim.isVain ? vain + 1 : 0;
    // Back off, because a long transaction may have locked the due job, and a claim skips locked rows.
    return vain < 2 ? pauseMs : Math.max(pauseMs, Math.min(FIRST_VAIN_PAUSE_MS * 2 ** (vain - 2), BLOCKED_PAUSE_MS));
  };
  const stopRenewing = lease && keepRenewing(context, name, lease, active, takeBack);
  const notify = (wake: () => void) => notifications.subscribe(queue.topic, wake);
  const onError = (error: unknown) => log.error({ err: error }, `the queue of ${name} could not be polled`);
  await runPollLoop({ poll, notify, minPauseMs, signal, onError });
  while (active.size > 0) await Promise.all([...active.values()].map(({ ended }) => ended));
  stopRenewing?.();
}

/** Renews the leases of active jobs, at intervals and after cancellations. @returns a function that stops it */
function keepRenewing<Job>(
  { notifications, log }: QueueContext,
  name: string,
  { renewalMs, cancelTopic, renew }: NonNullable<LeasedQueue<Job>['lease']>,
  active: ReadonlyMap<Job, ActiveJob>,
  onLost: (job: Job) => Promise<void>,
): () => void {
  const stop = (job: Job, reason: Error) => active.get(job)?.stopping.abort(reason);
  const renewNow = () => {
    if (active.size === 0) return;
    const renewed = renew([...active.keys()], stop).then((lost) => Promise.all(lost.map(onLost)));
    renewed.catch((error: unknown) => {
      if (!isPassingFailure(error)) log.error({ err: error }, `the leases of ${name} were not renewed`);
    });
  };
  const timer = setInterval(renewNow, renewalMs);
  const unsubscribe = notifications.subscribe(cancelTopic, renewNow);
  return () => {
    unsubscribe();
    clearInterval(timer);
  };
}

/**
 * Returns the pause until the earliest due time, each in milliseconds from now by the database's clock. A past time
 * means that a job is due but blocked.
 * @param maxMs - maximum pause, for jobs that no notification announced
 */
export const pauseUntil = (maxMs: number, ...times: (number | undefined)[]): number =>
  Math.min(maxMs, ...times.map((ms = maxMs) => (ms > 0 ? ms : BLOCKED_PAUSE_MS)));

/**
 * Exponential back-off in milliseconds, with jitter between half and full, so that many failed jobs are not retried at
 * the same moment.
 * @param attempt - number of the failed attempt, starting at 1
 */
export function backOffMs(
  attempt: number,
  { firstMs, maxMs }: { firstMs: number; maxMs: number },
  random: () => number = Math.random,
): number {
  const longest = Math.min(firstMs * 2 ** (attempt - 1), maxMs);
  return Math.round(longest * (0.5 + random() / 2));
}
