import { createHash } from 'node:crypto';
import type { QueryConfig } from 'pg';
import type { RateLimiterRes } from 'rate-limiter-flexible';
import { runAsSystem } from '../../context.ts';
import type { DatabasePool } from '../../db/database.ts';
import { LimitError } from '../../../core/errors.ts';
import { BoundedCache } from '../../work/bounded-cache.ts';
import { SingleFlight } from '../../work/single-flight.ts';

const MINUTE = 60;

/** Counters per minute, shared by all replicas. */
export interface RateCounter {
  /** Takes points of a key. @returns `isOver` if too few are left in this minute, and its end by `performance.now` */
  take(key: string, points: number): Promise<{ isOver: boolean; until: number }>;
}

/**
 * Counts in PostgreSQL, in windows of a minute from a key's first use, by the processes' clocks (rate-limiter-flexible
 * uses them). While the database is unavailable each process counts for itself. Keys are digests, so that the table
 * names no caller.
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

/** Loads rate-limiter-flexible with the first counted request, because it has a limiter for each kind of store. */
async function openLimiter(query: DatabasePool['query'], { name, points }: { name: string; points: number }) {
  const { RateLimiterMemory, RateLimiterPostgres, RateLimiterRes: Refusal } = await import('rate-limiter-flexible');
  const options = { points, duration: MINUTE, keyPrefix: name };
  const limiter = new RateLimiterPostgres({
    ...options,
    // The query runs as system: live sessions count turns while restricted to one user, whose database role may not
    // write here. The library's statement name is dropped, because the pool decides which statements are prepared.
    storeClient: { query: ({ text, values }: QueryConfig) => runAsSystem(() => query({ text, values: values ?? [] })) },
    storeType: 'pool',
    tableName: 'rate_limits',
    tableCreated: true,
    insuranceLimiter: new RateLimiterMemory(options),
  });
  return { limiter, Refusal };
}

const toDigest = (key: string) => createHash('sha256').update(key).digest('base64url');

/** Limits how often each caller may do something per minute, over all replicas. */
export interface RateLimit {
  /** Counts one use. @throws {LimitError} if the caller has no use left in this minute */
  use(caller: string): Promise<void>;
  /** Returns the error for the next use, if this process already knows that the caller has no use left. */
  refusal(caller: string): LimitError | undefined;
  /** Charges a caller for a use that turned out to be large; the points are taken with the next use. */
  charge(caller: string, points: number): void;
}

/** A replica reserves a caller's uses per minute in this many parts, so that requests seldom wait for a statement. */
const BATCHES = 20;

/** The uses that this replica has reserved for a caller, valid until a time of `performance.now`. */
interface Bucket {
  left: number;
  until: number;
  /** True if the database has no uses left for the caller. */
  isOver: boolean;
}

const UNLIMITED: RateLimit = {
  use: () => Promise.resolve(),
  refusal: () => undefined,
  charge: () => undefined,
};

/**
 * @param limit name of the setting for `points`, the uses of a caller per minute
 * @param sentence the error message, before the time after which to retry
 */
export function createRateLimit(
  limit: string,
  points: number,
  counter: RateCounter,
  sentence = `You have used all ${points} of this minute: ${limit}.`,
): RateLimit {
  if (points === Infinity) return UNLIMITED;
  const batch = Math.max(1, Math.floor(points / BATCHES));
  const buckets = new BoundedCache<Bucket>();
  const filling = new SingleFlight<void>();
  const fill = async (caller: string) => {
    const { isOver, until } = await counter.take(caller, batch);
    const debt = Math.min(findCurrent(caller)?.left ?? 0, 0);
    buckets.set(caller, { left: debt + (isOver ? 0 : batch), until, isOver });
  };
  const findCurrent = (caller: string) => {
    const bucket = buckets.get(caller);
    return bucket && bucket.until > performance.now() ? bucket : undefined;
  };
  const refusal = (caller: string) => {
    const bucket = findCurrent(caller);
    if (!bucket?.isOver || bucket.left > 0) return undefined;
    const seconds = Math.max(1, Math.ceil((bucket.until - performance.now()) / 1000));
    return new LimitError(limit, `${sentence} Try again in ${seconds} s.`, seconds);
  };
  return {
    refusal,
    async use(caller) {
      for (;;) {
        const bucket = findCurrent(caller);
        if (bucket && bucket.left > 0) {
          bucket.left -= 1;
          return;
        }
        const refused = refusal(caller);
        if (refused) throw refused;
        await filling.run(caller, () => fill(caller));
      }
    },
    charge(caller, charged) {
      const bucket = buckets.get(caller);
      if (bucket) bucket.left -= charged;
    },
  };
}
