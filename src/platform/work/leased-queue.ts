import { setTimeout as sleep } from 'node:timers/promises';
import { AppError, isPassingFailure } from '../../core/errors.ts';
import type { Log } from '../log.ts';
import { FAILURE_PAUSE_MS, hourly, runPollLoop } from './poll-loop.ts';

/** Pause while jobs are due and blocked by limits that other processes share, which tell nothing when they end one. */
const BLOCKED_PAUSE_MS = 1_000;

/** Processes that may end while they hold a job; after that it is not begun again, since it may be what ends them. */
const MAX_LOSSES = 2;
const GIVEN_UP = 'Given up after two processes ended while they ran it.';

/** A request of the queue for jobs. */
export interface ClaimRequest<Job> {
  /** At most so many; 0 where the process is full. */
  slots: number;
  /** Jobs that this process holds. */
  held: readonly Job[];
  /** Makes the queue poll again. */
  wake: () => void;
}

/** The answer to a {@link ClaimRequest}. */
export interface Claim<Job> {
  jobs: Job[];
  /** Milliseconds until the next claim, unless the queue is woken; 0 where there may be more. */
  pauseMs: number;
}

/**
 * One kind of job that the processes of a deployment share, with the statements of the store that owns its rows.
 *
 * ```
 *            claim             run stores its end
 *  waiting ─────────▶ held ────────────────────────▶ ended
 *     ▲              ▲    │
 *     │        renew └────┤ cancelled: a renewal aborts its signal, and it ends as its owner says
 *     │                   │
 *     ├── put back ◀──────┤ after a pause (`backOffMs`), or at once where the process stops
 *     └── lease over ◀────┘ the process died or could not store the end
 *           loss + 1        with two losses it is given up; a holder that lives takes its loss back
 * ```
 *
 * A lease is a token and a time in the row, by the clock of the database. Every write of a holder asks for its token,
 * so a process that lost a job writes nothing. Limits over all processes and turns between users belong to `claim`.
 */
export interface LeasedQueue<Job> {
  /** Plural of the job, for the log. */
  name: string;
  /** Topic that is published when there may be jobs. */
  topic: string;
  /** Maximum of jobs in this process at once. */
  maxJobs: number;
  /** Shortest pause between two claims [0]. */
  minPauseMs?: number;
  claim: (request: ClaimRequest<Job>) => Promise<Claim<Job>>;
  /** Renewal, for jobs without a time limit below their lease. */
  lease?: {
    /** Time between renewals; at most a third of the lease, so that two may fail. */
    renewalMs: number;
    /** Topic that is published when jobs are cancelled: renews at once. */
    cancelTopic: string;
    /**
     * Renews the leases of all jobs in one statement, and stops those that were cancelled or are held elsewhere.
     * @returns those whose lease is no longer held.
     */
    renew: (jobs: Job[], stop: (job: Job, reason: Error) => void) => Promise<Job[]>;
  };
  /** Counted by the claim of a job whose lease is over, in its row. Without it jobs are begun without end. */
  losses?: {
    count: (job: Job) => number;
    /** Ends a job that this process holds, instead of beginning it; or follows what it has begun, with a bound of its own. */
    giveUp: (job: Job, reason: string, signal: AbortSignal) => Promise<unknown>;
    /** Takes one loss from a job that has not ended: this holder was frozen or cut off and lives. One statement. */
    takeBack: (job: Job) => Promise<unknown>;
  };
  /** Does a job and stores its end, or puts it back. Where it throws, the job waits for the end of its lease. */
  run: (job: Job, signal: AbortSignal) => Promise<void>;
  /** Names a job in the log. */
  toLogFields: (job: Job) => object;
  /** Deletes ended jobs: called about once an hour when nothing else is to do. */
  deleteOld?: () => Promise<unknown>;
}

/** A process as a queue needs it. */
export interface QueueContext {
  notifications: { subscribe(topic: string, listener: () => void): () => void };
  log: Log;
  /** Aborted when the process begins to stop: nothing is claimed any more. */
  draining: AbortSignal;
}

/** A running job. */
interface ActiveJob {
  stopping: AbortController;
  ended: Promise<void>;
  /** True once its loss was taken back. */
  lives?: boolean;
}

/**
 * Claims and runs jobs until the process drains.
 * @returns a promise that settles when the last job has ended.
 */
export async function runLeasedQueue<Job>(context: QueueContext, queue: LeasedQueue<Job>): Promise<void> {
  const { notifications, log, draining: signal } = context;
  const { name, minPauseMs, lease, losses } = queue;
  const active = new Map<Job, ActiveJob>();
  // The first time at random within the hour, since replicas start together.
  const clean = queue.deleteOld && hourly(queue.deleteOld, Math.random());
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
    const run = async () => {
      if (losses && losses.count(job) >= MAX_LOSSES) await losses.giveUp(job, GIVEN_UP, stopping.signal);
      else await queue.run(job, stopping.signal);
    };
    const ended = run()
      .catch(async (error: unknown) => {
        await takeBack(job);
        throw error;
      })
      .finally(() => active.delete(job))
      .then(wake, (error: unknown) => {
        const isExpected = error instanceof AppError || isPassingFailure(error);
        if (!isExpected) log.error({ err: error, ...queue.toLogFields(job) }, `one of the ${name} failed`);
        setTimeout(wake, FAILURE_PAUSE_MS).unref();
      });
    active.set(job, { stopping, ended });
  };
  const poll = async (wake: () => void): Promise<number> => {
    const slots = Math.max(0, queue.maxJobs - active.size);
    const { jobs, pauseMs } = await queue.claim({ slots, held: [...active.keys()], wake });
    for (const job of jobs) start(job, wake);
    if (pauseMs > 0) await clean?.();
    return pauseMs;
  };
  const stopRenewing = lease && keepRenewing(context, name, lease, active, takeBack);
  const notify = (wake: () => void) => notifications.subscribe(queue.topic, wake);
  const onError = (error: unknown) => log.error({ err: error }, `the queue of ${name} could not be polled`);
  await runPollLoop({ poll, notify, minPauseMs, signal, onError });
  while (active.size > 0) await Promise.all([...active.values()].map(({ ended }) => ended));
  stopRenewing?.();
}

/** Renews the leases of the active jobs, regularly and when some were cancelled. @returns what ends it. */
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
 * Milliseconds to pause until the first of some times, each in milliseconds from now by the clock of the database. One
 * that is over belongs to a job that could not be claimed; `undefined` stands for none.
 * @param maxMs longest pause: finds what no notification told
 */
export const pauseUntil = (maxMs: number, ...times: (number | undefined)[]): number =>
  Math.min(maxMs, ...times.map((ms = maxMs) => (ms > 0 ? ms : BLOCKED_PAUSE_MS)));

/**
 * Pause after an attempt (from 1), in milliseconds: twice as long each time, up to a limit; between a half and the
 * whole of it at random, so that many jobs do not come back at once.
 */
export function backOffMs(
  attempt: number,
  { firstMs, maxMs }: { firstMs: number; maxMs: number },
  random: () => number = Math.random,
): number {
  const longest = Math.min(firstMs * 2 ** (attempt - 1), maxMs);
  return Math.round(longest * (0.5 + random() / 2));
}
