import { LimitError } from '../../core/errors.ts';
import { MAX_JOB_PAUSE_ON_CLUSTER_MS } from '../db/cluster.ts';
import type { DatabasePool } from '../db/database.ts';
import {
  claimJobs,
  endJob,
  type Job,
  type JobLimits,
  jobLost,
  putBackJob,
  renewJobs,
  takeBackLoss,
} from './job-store.ts';
import {
  backOffMs,
  type LeasedQueue,
  pauseUntil,
  type QueueContext,
  type RunEnd,
  runLeasedQueue,
} from '../work/leased-queue.ts';

/** A kind that yields claims at most so many jobs at once, and at most 20 a second. */
const YIELDING = { slots: 2, minPauseMs: 100 };
/** Such a kind pauses 20 times as long as a claim took, because a slow claim means that the database is under load. */
const REST = 20;
const MAX_REST_MS = 1_000;

/**
 * What becomes of a job after its run: it ends (`done`), or takes another turn after a pause in milliseconds. A
 * {@link RunEnd}: the run has ended the job or put it back itself, in the statement that stored its result.
 */
export type JobEnd = 'done' | { againInMs: number } | RunEnd;

/** A kind of job of the table `jobs`. `Work` is a claimed job with the rows that it is about. */
export interface JobKind<Work extends { job: Job }> extends Pick<LeasedQueue<Work>, 'name' | 'topic' | 'maxJobs'> {
  kind: string;
  /** Applications that this process serves. Default: all. */
  appNames?: readonly string[];
  /**
   * Time in milliseconds after which the process of a job counts as dead. Default, for jobs that may run for long: the
   * lease of a session, which is renewed.
   */
  leaseMs?: number;
  /** Notification topic that is published when jobs that run are cancelled; it triggers a renewal. Default: `topic`. */
  cancelTopic?: string;
  limits?: JobLimits;
  /** Maximum pause in milliseconds between two polls, because notifications may be lost. */
  maxPauseMs: number;
  /** True: jobs wait while the database is busy, because requests of users come first. */
  yields?: boolean;
  /** SQL function that reads what a claimed job is about: see `claim_jobs`. Absent: the id says it all. */
  work?: string;
  /** Turns a claimed job into what `run` takes. Default: the job alone. */
  toWork?: (job: Job) => Work;
  /** Runs a job; the signal aborts if the job is lost to another process. */
  run: (work: Work, signal: AbortSignal) => Promise<JobEnd>;
  /** Attempts at a job whose runs fail, and the pauses between them. Default: any number, each after the lease. */
  retry?: { attempts: number; firstMs: number; maxMs: number };
  /** Ends a poison job, or one whose attempts all failed. Default: it is ended, and nothing is stored. */
  giveUp?: (work: Work, reason: string) => Promise<RunEnd>;
}

export type JobContext = QueueContext & {
  notifications: { publish(topic: string): void };
  database: DatabasePool;
  /** The lease of sessions, in milliseconds. */
  leaseTimes: { durationMs: number; renewalMs: number };
};

/** Claims and runs jobs of a kind until the process drains. @returns a promise that settles when the last has ended */
export function runJobs<Work extends { job: Job }>(
  context: JobContext,
  { kind, appNames, limits, maxPauseMs: longestMs, work: reader, run, retry, yields = false, ...queue }: JobKind<Work>,
): Promise<void> {
  const { database, leaseTimes, draining, log, notifications } = context;
  const { db } = database;
  const maxPauseMs = db.isOnCluster ? Math.min(longestMs, MAX_JOB_PAUSE_ON_CLUSTER_MS) : longestMs;
  const {
    leaseMs = leaseTimes.durationMs,
    cancelTopic = queue.topic,
    giveUp = ({ job }: Work) => endJob(db, kind, job),
    toWork = (job) => ({ job }) as Work,
  } = queue;
  const toLogFields = ({ job }: Work) => ({ app: job.appName, jobId: job.id });
  let restsUntil = 0;
  const claim = async (slots: number) => {
    const choice = { kind, appNames, slots, leaseMs, limits, work: reader };
    const { claimed, wasDue, pause_ms: nextMs } = await claimJobs(db, choice);
    const jobs = claimed.map(toWork);
    // The process has begun to stop meanwhile: the claim is undone, because the attempts have not begun, and a job that
    // kept its lease would count as crashed. Settled, so that the failure of one does not keep the others.
    const undo = (job: Job) => putBackJob(db, kind, job, { attempts: job.attempt - 1 });
    if (draining.aborted && claimed.length > 0) {
      await Promise.allSettled(claimed.map(undo));
      notifications.publish(queue.topic);
    }
    draining.throwIfAborted();
    return {
      jobs,
      pauseMs: pauseUntil(maxPauseMs, nextMs ?? undefined),
      // A job that is due although this claim has ended waits behind a limit.
      mayMore: claimed.length >= slots || (nextMs !== null && nextMs <= 0),
      isVain: wasDue && claimed.length === 0,
    };
  };
  const fail = async (work: Work, error: unknown): Promise<JobEnd> => {
    const { job } = work;
    if (draining.aborted) {
      // This process stops: another one can run the job at once.
      await putBackJob(db, kind, job, {});
      notifications.publish(queue.topic);
      return 'waits';
    }
    if (!retry) throw error;
    const isLast = job.attempt >= retry.attempts;
    const pauseMs = error instanceof LimitError ? error.retryAfterSeconds * 1_000 : backOffMs(job.attempt, retry);
    // A job that is gone, for instance because it was cancelled, has not failed.
    if (!isLast && !(await putBackJob(db, kind, job, { pauseMs }))) return 'over';
    log.warn({ ...toLogFields(work), reason: String(error) }, `one of the ${queue.name} failed`);
    return isLast ? giveUp(work, String(error)) : 'waits';
  };
  return runLeasedQueue<Work>(context, {
    ...queue,
    ...(yields && { minPauseMs: YIELDING.minPauseMs }),
    claim: async ({ slots }) => {
      // Without a free slot, the end of a job wakes this loop.
      if (slots === 0) return { jobs: [], pauseMs: maxPauseMs, mayMore: true };
      if (!yields) return claim(slots);
      const startedAt = performance.now();
      if (startedAt < restsUntil) return { jobs: [], pauseMs: restsUntil - startedAt, mayMore: true };
      const claimed = await claim(Math.min(slots, YIELDING.slots));
      restsUntil = performance.now() + Math.min(MAX_REST_MS, REST * (performance.now() - startedAt));
      return claimed.jobs.length > 0 ? { ...claimed, pauseMs: 0 } : claimed;
    },
    ...(queue.leaseMs === undefined && {
      lease: {
        renewalMs: leaseTimes.renewalMs,
        cancelTopic,
        renew: async (works: Work[], stop: (work: Work, reason: Error) => void) => {
          const jobs = works.map(({ job }) => job);
          const lost = new Set(await renewJobs(db, kind, jobs, leaseMs));
          const lostWorks = works.filter(({ job }) => lost.has(job));
          for (const work of lostWorks) stop(work, jobLost());
          return lostWorks;
        },
      },
    }),
    run: async (work, signal) => {
      const end = await run(work, signal).catch((error: unknown) => fail(work, error));
      if (end === 'done') return endJob(db, kind, work.job);
      if (typeof end === 'string') return end;
      await putBackJob(db, kind, work.job, { pauseMs: end.againInMs, attempts: 0 });
      return 'waits';
    },
    losses: {
      count: ({ job }) => job.losses,
      giveUp,
      takeBack: ({ job }) => takeBackLoss(db, kind, job),
    },
    toLogFields,
  });
}
