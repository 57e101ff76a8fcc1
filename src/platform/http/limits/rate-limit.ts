import { LimitError } from '../../../core/errors.ts';
import { BoundedCache } from '../../work/bounded-cache.ts';
import { SingleFlight } from '../../work/single-flight.ts';
import { type RateCounter, secondsUntil } from './rates.ts';

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
