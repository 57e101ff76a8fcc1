import { LimitError } from '../../core/errors.ts';
import type { Database, DatabasePool } from '../db/database.ts';
import {
  claimJobs,
  endJobs,
  type Job,
  type JobLimits,
  jobLost,
  putBackJob,
  renewJobs,
  takeBackLoss,
} from './job-store.ts';
import { backOffMs, type LeasedQueue, pauseUntil, type QueueContext, runLeasedQueue } from '../work/leased-queue.ts';

/**
 * What becomes of a job after its run: it is `done`; it takes another turn, because there is `more` to do; or the run
 * has `stored` that itself, in the statement that stored its result.
 */
export type JobEnd = 'done' | 'more' | 'stored';

/** A kind of job of the table `jobs`. `Work` is a claimed job with the rows that it is about. */
export interface JobKind<Work extends { job: Job }>
  extends Pick<LeasedQueue<Work>, 'name' | 'topic' | 'maxJobs' | 'deleteOld'> {
  kind: string;
  /** Applications that this process serves. Default: all. */
  appNames?: readonly string[];
  /** Time in milliseconds after which the process of a job counts as dead. */
  leaseMs: number;
  /**
   * Renews leases, for jobs that may run longer: at most a third of the lease, so that two renewals may fail. A job that
   * another process has, or that was deleted, is stopped: at the next renewal, or at a notification of `cancelTopic`.
   */
  renewal?: { renewalMs: number; cancelTopic: string };
  limits?: JobLimits;
  /** Maximum pause in milliseconds between two polls, because notifications may be lost. */
  maxPauseMs: number;
  /**
   * Reads what claimed jobs are about, in the transaction of their claim. A job that is missing in the result has nothing
   * to do any more and is ended.
   */
  load: (tx: Database, jobs: Job[]) => Work[] | Promise<Work[]>;
  run: (work: Work, signal: AbortSignal) => Promise<JobEnd>;
  /** Attempts at a job whose runs fail, and the pauses between them. Default: any number, each after the lease. */
  retry?: { attempts: number; firstMs: number; maxMs: number };
  /** Ends a poison job, or one whose attempts all failed. Default: it is ended, and nothing is stored. */
  giveUp?: (work: Work, reason: string) => Promise<unknown>;
}

/** Claims and runs jobs of a kind until the process drains. @returns a promise that settles when the last has ended */
export function runJobs<Work extends { job: Job }>(
  context: QueueContext & { database: DatabasePool },
  { kind, appNames, leaseMs, renewal, limits, maxPauseMs, load, run, retry, giveUp, ...queue }: JobKind<Work>,
): Promise<void> {
  const { database, draining, log } = context;
  const { db } = database;
  const abandon = giveUp ?? (({ job }: Work) => endJobs(db, kind, [job]));
  const toLogFields = ({ job }: Work) => ({ app: job.appName, jobId: job.id });
  const fail = async (work: Work, error: unknown) => {
    // Another process runs at once what this one left because it stops.
    if (draining.aborted) return putBackJob(db, kind, work.job, {});
    if (!retry) throw error;
    log.warn({ ...toLogFields(work), reason: String(error) }, `one of the ${queue.name} failed`);
    if (work.job.attempt >= retry.attempts) return abandon(work, String(error));
    const pauseMs = error instanceof LimitError ? error.retryAfterSeconds * 1_000 : backOffMs(work.job.attempt, retry);
    return putBackJob(db, kind, work.job, { pauseMs });
  };
  return runLeasedQueue<Work>(context, {
    ...queue,
    claim: async ({ slots }) => {
      // Without a free slot, the end of a job wakes this loop.
      if (slots === 0) return { jobs: [], pauseMs: maxPauseMs };
      return database.transaction(async (tx) => {
        const { claimed, pause_ms: nextMs } = await claimJobs(tx, { kind, appNames, slots, leaseMs, limits });
        const jobs = claimed.length > 0 ? await load(tx, claimed) : [];
        const loaded = new Set(jobs.map(({ job }) => job));
        await endJobs(
          tx,
          kind,
          claimed.filter((job) => !loaded.has(job)),
        );
        // If shutdown has begun meanwhile, roll the claim back, so that another process claims these jobs.
        draining.throwIfAborted();
        return { jobs, pauseMs: pauseUntil(maxPauseMs, nextMs ?? undefined) };
      });
    },
    run: async (work, signal) => {
      const end = await run(work, signal).catch((error: unknown) => fail(work, error).then((): JobEnd => 'stored'));
      if (end === 'done') await endJobs(db, kind, [work.job]);
      if (end === 'more') await putBackJob(db, kind, work.job, { isNew: true });
    },
    ...(renewal && {
      lease: {
        ...renewal,
        renew: async (works, stop) => {
          const jobs = works.map(({ job }) => job);
          const lost = new Set(await renewJobs(db, kind, jobs, leaseMs));
          const lostWorks = works.filter(({ job }) => lost.has(job));
          for (const work of lostWorks) stop(work, jobLost());
          return lostWorks;
        },
      },
    }),
    losses: {
      count: ({ job }) => job.losses,
      giveUp: abandon,
      takeBack: ({ job }) => takeBackLoss(db, kind, job),
    },
    toLogFields,
  });
}
