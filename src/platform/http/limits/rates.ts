import { createHash } from 'node:crypto';
import type { QueryConfig } from 'pg';
import type { RateLimiterRes } from 'rate-limiter-flexible';
import { runAsSystem } from '../../context.ts';
import type { DatabasePool } from '../../db/database.ts';

const MINUTE = 60;

/** Counters per minute, over all replicas. */
export interface RateCounter {
  /**
   * Takes some of what a key may do in this minute.
   * @returns `isOver` where that is more than there is left, and when the minute ends, by `performance.now`
   */
  take(key: string, points: number): Promise<{ isOver: boolean; until: number }>;
}

/**
 * Counts in PostgreSQL, by windows of a minute that begin with the first use of a key; while the database cannot be
 * used each process counts for itself, with the same limit. The windows follow the clocks of the processes: that is
 * how the library does it. Keys are digests, so the table names no caller.
 */
export function createRateCounter(
  { query }: Pick<DatabasePool, 'query'>,
  { name, points }: { name: string; points: number },
): RateCounter {
  let opening: ReturnType<typeof openLimiter> | undefined;
  const toEnd = ({ msBeforeNext }: RateLimiterRes) => performance.now() + msBeforeNext;
  return {
    async take(key, wanted) {
      const { limiter, Refusal } = await (opening ??= openLimiter(query, { name, points }));
      try {
        return { isOver: false, until: toEnd(await limiter.consume(toDigest(key), wanted)) };
      } catch (error) {
        if (error instanceof Refusal) return { isOver: true, until: toEnd(error) };
        throw error;
      }
    },
  };
}

/** Loads the library, which has a limiter for each kind of store, with the first counted request. */
async function openLimiter(query: DatabasePool['query'], { name, points }: { name: string; points: number }) {
  const { RateLimiterMemory, RateLimiterPostgres, RateLimiterRes: Refusal } = await import('rate-limiter-flexible');
  const options = { points, duration: MINUTE, keyPrefix: name };
  const limiter = new RateLimiterPostgres({
    ...options,
    // Live sessions count their turns within the work of a user, whose role may not write here.
    storeClient: { query: (statement: QueryConfig) => runAsSystem(() => query(statement)) },
    storeType: 'pool',
    tableName: 'rate_limits',
    tableCreated: true,
    insuranceLimiter: new RateLimiterMemory(options),
  });
  return { limiter, Refusal };
}

const toDigest = (key: string) => createHash('sha256').update(key).digest('base64url');

/** Seconds from now to a time of `performance.now`. */
export const secondsUntil = (time: number): number => Math.max(1, Math.ceil((time - performance.now()) / 1000));
