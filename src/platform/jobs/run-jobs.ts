import type { Database, DatabasePool } from '../db/database.ts';
import { claimJobs, endJobs, type Job, type JobLimits, takeBackLoss } from './job-store.ts';
import { type LeasedQueue, pauseUntil, type QueueContext, runLeasedQueue } from '../work/leased-queue.ts';

/** A kind of job of the table `jobs`. `Work` is a claimed job with the rows that it is about. */
export interface JobKind<Work extends { job: Job }>
  extends Pick<LeasedQueue<Work>, 'name' | 'topic' | 'maxJobs' | 'run' | 'deleteOld'> {
  kind: string;
  /** Time in milliseconds after which the process of a job counts as dead. */
  leaseMs: number;
  limits: JobLimits;
  /** Maximum pause in milliseconds between two polls, because notifications may be lost. */
  maxPauseMs: number;
  /**
   * Reads what claimed jobs are about, in the transaction of their claim. A job that is missing in the result has nothing
   * to do any more and is ended.
   */
  load: (tx: Database, jobs: Job[]) => Promise<Work[]>;
  /** Ends a poison job. */
  giveUp: (work: Work, reason: string) => Promise<unknown>;
}

/** Claims and runs jobs of a kind until the process drains. @returns a promise that settles when the last has ended */
export function runJobs<Work extends { job: Job }>(
  context: QueueContext & { database: DatabasePool },
  { kind, leaseMs, limits, maxPauseMs, load, giveUp, ...queue }: JobKind<Work>,
): Promise<void> {
  const { database, draining } = context;
  return runLeasedQueue<Work>(context, {
    ...queue,
    claim: async ({ slots }) => {
      // Without a free slot, the end of a job wakes this loop.
      if (slots === 0) return { jobs: [], pauseMs: maxPauseMs };
      return database.transaction(async (tx) => {
        const { claimed, pause_ms: nextMs } = await claimJobs(tx, { kind, slots, leaseMs, limits });
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
    losses: {
      count: ({ job }) => job.losses,
      giveUp,
      takeBack: ({ job }) => takeBackLoss(database.db, kind, job),
    },
    toLogFields: ({ job }) => ({ jobId: job.id }),
  });
}
