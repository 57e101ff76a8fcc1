import { createHash } from 'node:crypto';
import type { QueryConfig } from 'pg';
import type { RateLimiterRes } from 'rate-limiter-flexible';
import { runAsSystem } from '../../context.ts';
import type { DatabasePool } from '../../db/database.ts';
import { LimitError } from '../../../core/errors.ts';
import { BoundedCache } from '../../work/bounded-cache.ts';
import { SingleFlight } from '../../work/single-flight.ts';

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
    // Live sessions count their turns within the work of a user, whose role may not write here. The name that the
    // library gives a statement is left out, because the pool decides whether it is prepared.
    storeClient: { query: ({ text, values }: QueryConfig) => runAsSystem(() => query({ text, values: values ?? [] })) },
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

/** How often each caller may do something in a minute, over all replicas. */
export interface RateLimit {
  /** Uses one. @throws {LimitError} when the caller has none left in this minute */
  use(caller: string): Promise<void>;
  /** Takes more for what turned out to be large, without a statement; the next use pays it. */
  charge(caller: string, points: number): void;
}

/** A replica takes this share of a minute's uses with one statement, so that a request seldom waits for one. */
const BATCHES = 20;

/** The uses of a caller that this replica may still admit, until a time of `performance.now`. */
interface Bucket {
  left: number;
  until: number;
  /** True where the database has no more of it. */
  isOver: boolean;
}

/** @param limit the setting that says `points`, which are what a caller may use in a minute */
export function createRateLimit(limit: string, points: number, counter: RateCounter): RateLimit {
  const batch = Math.max(1, Math.floor(points / BATCHES));
  const buckets = new BoundedCache<Bucket>();
  const filling = new SingleFlight<void>();
  const fill = async (caller: string) => {
    const { isOver, until } = await counter.take(caller, batch);
    const before = buckets.get(caller);
    const debt = before && before.until > performance.now() ? Math.min(before.left, 0) : 0;
    buckets.set(caller, { left: debt + (isOver ? 0 : batch), until, isOver });
  };
  return {
    async use(caller) {
      for (;;) {
        const bucket = buckets.get(caller);
        if (bucket && bucket.until > performance.now()) {
          if (bucket.left > 0) {
            bucket.left -= 1;
            return;
          }
          if (bucket.isOver) throw overRate(limit, points, bucket.until);
        }
        await filling.run(caller, () => fill(caller));
      }
    },
    charge(caller, charged) {
      const bucket = buckets.get(caller);
      if (bucket) bucket.left -= charged;
    },
  };
}

const overRate = (limit: string, points: number, until: number) => {
  const seconds = secondsUntil(until);
  return new LimitError(
    limit,
    `You have used all ${points} of this minute: ${limit}. Try again in ${seconds} s.`,
    seconds,
  );
};
