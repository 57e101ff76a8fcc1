import { setTimeout as sleep } from 'node:timers/promises';
import { DatabaseError } from 'pg';

/** Serialization failure, deadlock, lock not available: nothing was done, and the same work can succeed at once. */
const REPEATABLE = new Set(['40001', '40P01', '55P03']);
const MAX_REPEATS = 3;
const MAX_PAUSE_MS = 200;

/**
 * Does `work` again, at most three times and after a random pause, when it failed in a way that leaves nothing
 * behind.
 */
export async function repeated<T>(work: () => Promise<T>): Promise<T> {
  for (let repeats = 0; ; repeats++) {
    try {
      return await work();
    } catch (error) {
      if (repeats >= MAX_REPEATS || !REPEATABLE.has(sqlState(error)?.code ?? '')) throw error;
      await sleep(Math.random() * MAX_PAUSE_MS);
    }
  }
}

/**
 * SQLSTATE, constraint and words of a failed statement, wherever drizzle put the driver's error; `undefined` for any
 * other error.
 */
export function sqlState(
  error: unknown,
): { code: string; constraint: string | undefined; message: string } | undefined {
  for (let at = error; at instanceof Error; at = at.cause) {
    if (at instanceof DatabaseError && at.code) {
      return { code: at.code, constraint: at.constraint, message: at.message };
    }
  }
  return undefined;
}
