import { findDead } from '../invocations/take-over.ts';
import { isPassingFailure } from '../core/errors.ts';
import type { DatabaseAddress } from '../platform/db/connection.ts';
import { ifAlone } from '../platform/db/advisory-lock.ts';
import type { SweepGroup } from '../platform/feature/feature.ts';
import type { Log } from '../platform/log.ts';
import { runPollLoop } from '../platform/work/poll-loop.ts';
import { FEATURES, type FeatureContext } from './context.ts';

export interface SweepContext extends FeatureContext {
  /** The address of the connection that holds the advisory locks. */
  address: DatabaseAddress;
  connectTimeoutMs: number;
  /** When aborted, each sweep ends after its current batch. */
  signal?: AbortSignal | undefined;
}

/** A group of clean-up jobs that run in sequence, in one process at a time. */
interface Sweep {
  /** The number of the advisory lock, the same in all versions of the runtime. */
  lock: number;
  /** Milliseconds between two sweeps. */
  pauseMs: number;
  /** Checks without the lock whether the jobs have work. `nextMs` is the maximum time until the next check. */
  look?: () => Promise<{ isDue: boolean; nextMs: number }>;
  jobs: [name: string, run: () => Promise<unknown>][];
}

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;

/**
 * Lists the sweeps. Each runs under an advisory lock, in one of all processes, mostly until nothing old is left. Within
 * a process the sweeps run one after the other, on one connection outside of the pool. The sweep with `look` does not
 * wait for its turn, because its work is urgent; it connects only if `look` has found work, which is rare.
 */
function listSweeps(context: SweepContext, intervalMs: number): Sweep[] {
  const minutely = Math.max(intervalMs, MINUTE_MS);
  const look = () => findDead(context.database.db);
  const jobsOf = (group: SweepGroup): Sweep['jobs'] =>
    FEATURES.flatMap(({ sweeps = [] }) => sweeps)
      .filter((sweep) => sweep.group === group)
      .map(({ name, run }) => [name, () => run(context)]);
  return [
    { lock: 7_240_003, pauseMs: intervalMs, look, jobs: jobsOf('takeOver') },
    { lock: 7_240_004, pauseMs: minutely, jobs: jobsOf('minutely') },
    { lock: 7_240_005, pauseMs: minutely, jobs: jobsOf('erasures') },
    // These two read whole tables, in batches.
    { lock: 7_240_006, pauseMs: HOUR_MS, jobs: jobsOf('retention') },
    { lock: 7_240_007, pauseMs: HOUR_MS, jobs: jobsOf('audit') },
  ];
}

/** Runs one sweep if it is due. @returns the time until its next run, in milliseconds */
async function sweepOnce(context: SweepContext, { lock, pauseMs, look, jobs }: Sweep): Promise<number> {
  const { log, signal, sweeps } = context;
  const { isDue, nextMs } = (await look?.()) ?? { isDue: true, nextMs: pauseMs };
  if (isDue) {
    await ifAlone(context, lock, async () => {
      for (const [job, run] of jobs) {
        const keep = () => sweeps?.set(job, performance.now());
        if (!signal?.aborted) await run().then(keep, (error) => report(log, job, error));
      }
    });
  }
  return Math.min(pauseMs, nextMs);
}

/** Runs all sweeps once. Skips sweeps that another process is running. */
export async function sweepAll(context: SweepContext): Promise<void> {
  for (const sweep of listSweeps(context, 0)) await sweepOnce(context, sweep);
}

/** Runs all sweeps until `signal` is aborted. After a database failure a sweep is tried again at its next interval. */
export async function sweepRegularly(context: SweepContext, intervalMs: number, signal: AbortSignal): Promise<void> {
  const all = { ...context, signal };
  const onError = (error: unknown) => report(context.log, 'locking', error);
  let turn: Promise<unknown> = Promise.resolve();
  const loops = listSweeps(all, intervalMs).map((sweep) => {
    const sweepOrReport = () =>
      sweepOnce(all, sweep).catch((error: unknown) => {
        onError(error);
        return Math.min(sweep.pauseMs, intervalMs);
      });
    const takeTurn = () => {
      const swept = turn.then(sweepOrReport);
      turn = swept;
      return swept;
    };
    const poll = sweep.look ? sweepOrReport : takeTurn;
    return runPollLoop({ poll, signal, onError });
  });
  await Promise.all(loops);
}

function report(log: Log, job: string, error: unknown): void {
  log[isPassingFailure(error) ? 'warn' : 'error']({ err: error, job }, 'a job of the sweep failed');
}
