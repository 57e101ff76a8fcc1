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
  /** @returns `isOver` if a key has fewer points left in this minute, and when that ends, by `performance.now` */
  take(key: string, points: number): Promise<{ isOver: boolean; until: number }>;
}

/**
 * Counts in PostgreSQL, by windows of a minute that begin with the first use of a key. They follow the clocks of the
 * processes, because the library does. While the database cannot be used each process counts for itself, with the same
 * limit. Keys are digests, so the table names no caller.
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

/** How often each caller may do something in a minute, over all replicas. */
export interface RateLimit {
  /** Uses one. @throws {LimitError} if the caller has none left in this minute */
  use(caller: string): Promise<void>;
  /** Returns the refusal of the next use, if this process knows already that none is left. */
  refusal(caller: string): LimitError | undefined;
  /** Takes more for what turned out to be large, without a statement; the next use pays it. */
  charge(caller: string, points: number): void;
}

/** A replica takes this share of a minute's uses with one statement, so that a request seldom waits for one. */
const BATCHES = 20;

/** The uses of a caller that this replica may still admit, until a time of `performance.now`. */
interface Bucket {
  left: number;
  until: number;
  /** True if the database has no more of it. */
  isOver: boolean;
}

const UNLIMITED: RateLimit = {
  use: () => Promise.resolve(),
  refusal: () => undefined,
  charge: () => undefined,
};

/**
 * @param limit the setting that says `points`, which are what a caller may use in a minute
 * @param sentence of the refusal, before the time after which to try again
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
