import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** A process that does nothing starts in 40 ms on an idle machine, in a second on one that others use. */
const IDLE_START_MS = 40;
const STARTS = 3;
const MOST_TIMES = 5;

async function measureStart(): Promise<number> {
  const startedAt = performance.now();
  await run(process.execPath, ['-e', '0']);
  return performance.now() - startedAt;
}

/** Measures how many times slower than an idle machine this one starts a process now, at least 1. */
async function measureLoad(): Promise<number> {
  let slowest = IDLE_START_MS;
  for (let start = 0; start < STARTS; start++) slowest = Math.max(slowest, await measureStart());
  return slowest / IDLE_START_MS;
}

const loadAtStart = Math.min(MOST_TIMES, await measureLoad());

/**
 * Returns the milliseconds that a lease of `idleMs` on an idle machine is given at the load of the moment at which the
 * file was begun: one that is shorter than this machine can renew ends invocations of the living.
 */
export const paced = (idleMs: number): number => Math.round(idleMs * loadAtStart);

/**
 * Returns the milliseconds in which what takes `idleMs` on an idle machine has to be over at the load of now; never
 * fewer than {@link paced}, because what waits for a lease takes as long as that lease.
 */
export const boundNow = async (idleMs: number): Promise<number> =>
  Math.round(idleMs * Math.max(loadAtStart, await measureLoad()));
