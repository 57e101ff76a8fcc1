import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** A process that does nothing starts in 40 ms on an idle machine, in a second on one that others use. */
const LEASE_PER_START = 15;
const [SHORTEST_MS, LONGEST_MS] = [600, 6_000];
const STARTS = 3;
const IDLE_START_MS = 40;

async function measureStart(): Promise<number> {
  const startedAt = performance.now();
  await run(process.execPath, ['-e', '0']);
  return performance.now() - startedAt;
}

async function slowestStart(): Promise<number> {
  let slowest = 0;
  for (let start = 0; start < STARTS; start++) slowest = Math.max(slowest, await measureStart());
  return slowest;
}

/** Measures how many times slower than an idle machine this one starts a process now, at least 1. */
export const measureLoad = async (): Promise<number> => Math.max(1, (await slowestStart()) / IDLE_START_MS);

/**
 * The lease of tests that wait for the end of many, milliseconds: as short as this machine can renew three times at its
 * load of the moment. One that is shorter ends invocations of the living.
 */
export const SHORT_LEASE_MS = Math.round(
  Math.min(LONGEST_MS, Math.max(SHORTEST_MS, LEASE_PER_START * (await slowestStart()))),
);
