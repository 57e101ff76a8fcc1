import { hash } from 'node:crypto';
import type { Request, Response } from 'express';
import type { QueryConfig } from 'pg';
import type { RateLimiterRes } from 'rate-limiter-flexible';
import { InvalidError, LimitError } from '../../../core/errors.ts';
import { LARGE_BYTES } from '../../../core/parse-json.ts';
import { runAsSystem } from '../../context.ts';
import type { DatabasePool } from '../../db/database.ts';
import { BoundedCache } from '../../work/bounded-cache.ts';
import { CallerCounts } from '../../work/fair-semaphore.ts';
import { SingleFlight } from '../../work/single-flight.ts';
import { type Load, loadFor, type Operation } from '../operation/operation.ts';

/**
 * Limits per caller: slots, counted in this process, for what a caller does at once; rates, counted in the database, for
 * what a caller does in a minute.
 */

/** The limits of one caller, by their settings; a limit that does not apply is infinite. */
export type UserLimits = Record<
  | 'MAX_INVOCATIONS_PER_USER'
  | 'MAX_REQUESTS_PER_USER'
  | 'MAX_HEAVY_READS_PER_USER'
  | 'MAX_CONNECTIONS_PER_ADDRESS'
  | 'MAX_READS_PER_MINUTE'
  | 'MAX_WRITES_PER_MINUTE'
  | 'MAX_INVOCATIONS_PER_MINUTE'
  | 'MAX_USER_BYTES',
  number
>;

/** Limits how much of a resource each caller uses concurrently, counted in this process. */
export interface Slots {
  /** Takes `count` (default: 1) of a caller's slots; the returned function releases them, once. @throws {LimitError} */
  take(caller: string, count?: number): () => void;
}

const NOTHING_TO_RELEASE = () => undefined;
const UNLIMITED_SLOTS: Slots = { take: () => NOTHING_TO_RELEASE };

/** @param limit name of the setting for `max` @param things noun in the error message, e.g. "streams open" */
export function createSlots(limit: string, max: number, things: string): Slots {
  if (max === Infinity) return UNLIMITED_SLOTS;
  const counts = new CallerCounts(max);
  const refusal = `You may have ${max} ${things} at once: ${limit}. Try again when one has ended.`;
  return {
    take(caller, count) {
      const give = counts.take(caller, count);
      if (!give) throw new LimitError(limit, refusal);
      return give;
    },
  };
}

/** Maximum number of largest bodies that a caller may send at once; a parsed body stays in memory during its work. */
const BODIES_PER_CALLER = 8;

/** Limits the total bytes of large bodies that each caller has in flight. @param maxBytes maximum size of one body */
export function createBodySlots({ MAX_REQUESTS_PER_USER }: UserLimits, maxBytes: number): Slots {
  if (MAX_REQUESTS_PER_USER === Infinity) return UNLIMITED_SLOTS;
  const slots = createSlots('MAX_BODY_BYTES', BODIES_PER_CALLER * maxBytes, 'bytes of bodies under way');
  return { take: (caller, bytes = 0) => slots.take(caller, bytes > LARGE_BYTES ? Math.min(bytes, maxBytes) : 0) };
}

type WantedSlots = [slots: Slots, count?: number | undefined];

/** Takes a caller's slots of all kinds or none. @returns a function that releases all of them @throws {LimitError} */
export function takeAll(caller: string, wanted: WantedSlots[]): () => void {
  const taken: (() => void)[] = [];
  const release = () => {
    for (const give of taken) give();
  };
  try {
    for (const [slots, count] of wanted) taken.push(slots.take(caller, count));
    return release;
  } catch (error) {
    release();
    throw error;
  }
}

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
        return { isOver: false, until: toEnd(await limiter.consume(hash('sha256', key, 'base64url'), wanted)) };
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

interface OperationLimits {
  /**
   * Admits a request before it costs anything, and counts it until its response ends or its connection closes.
   * @throws {LimitError} if the caller is at a limit
   */
  admit(caller: string, request: Request, response: Response): Promise<void>;
  /**
   * Counts one more action of an open stream, such as a turn of a live session, or a request that turned out to be
   * large. `as` is the class in which it counts; default: the operation's. A large read occupies a slot until its
   * response ends.
   * @throws {LimitError} if the caller is at a limit
   */
  count(caller: string, request: Request, response: Response, as?: Load): Promise<void>;
  /** Releases the slot of a large read when its response has sent all stored data and only waits for new data. */
  hasRead(response: Response): void;
}

export type RequestLimits = (operation: Operation) => OperationLimits;

/** Maximum share of a caller's concurrent requests for streams and live sessions, because these stay open for long. */
const STREAM_SHARE = 0.5;
/** Share of a caller's reads per minute that may be large reads. */
const HEAVY_SHARE = 0.1;
/** A large read takes one point of its rate limit, and another for each megabyte of its response. */
const MEGABYTE = 1_048_576;

/**
 * Limits each caller's concurrent requests, counted in this process, and requests per minute, counted in the database.
 */
export function createRequestLimits(
  database: Pick<DatabasePool, 'query'>,
  limits: UserLimits,
  maxBodyBytes: number,
): RequestLimits {
  const rates = createRates(database, limits);
  const { MAX_REQUESTS_PER_USER: maxRequests, MAX_HEAVY_READS_PER_USER: maxHeavyReads } = limits;
  const requests = createSlots('MAX_REQUESTS_PER_USER', maxRequests, 'requests under way');
  const streams = createSlots('MAX_REQUESTS_PER_USER', Math.ceil(maxRequests * STREAM_SHARE), 'streams open');
  const heavyReads = createSlots('MAX_HEAVY_READS_PER_USER', maxHeavyReads, 'large reads under way');
  const bodies = createBodySlots(limits, maxBodyBytes);
  const endReading = new WeakMap<Response, () => void>();
  const beginHeavyRead = (caller: string, { socket }: Request, response: Response) => {
    const end = heavyReads.take(caller);
    endReading.set(response, end);
    const before = socket.bytesWritten;
    response.once('close', () => rates.heavy.charge(caller, Math.floor((socket.bytesWritten - before) / MEGABYTE)));
    return end;
  };
  return (operation) => {
    const load = loadFor(operation);
    const isHeavy = load === 'heavy';
    return {
      async admit(caller, request, response) {
        await rates[load].use(caller);
        if (hasClosed(request, response)) {
          // A read whose client has gone is refused: its slots would never be released. A change is still executed.
          if (operation.method === 'get') throw new InvalidError('The client has gone.');
          return;
        }
        const wanted: WantedSlots[] = [[requests]];
        if (operation.isStream) wanted.push([streams]);
        if (isHeavy) wanted.push([{ take: () => beginHeavyRead(caller, request, response) }]);
        wanted.push([bodies, getBodyBytes(request)]);
        const release = takeAll(caller, wanted);
        response.once('close', release);
        // A WebSocket stays open after its response has ended.
        if (operation.success?.status === 101) request.socket.once('close', release);
      },
      async count(caller, request, response, as = load) {
        await rates[as].use(caller);
        if (as === 'heavy' && !isHeavy && !hasClosed(request, response))
          response.once('close', beginHeavyRead(caller, request, response));
      },
      hasRead: (response) => endReading.get(response)?.(),
    };
  };
}

const hasClosed = (request: Request, response: Response) => response.destroyed || request.socket.destroyed;

/**
 * Returns the length of a request's body in bytes; Infinity if no header tells it. A length of 0 is no body, because
 * Angular sends `null` as an empty body without media type.
 */
export function getBodyBytes({ headers }: Pick<Request, 'headers'>): number {
  if (headers['transfer-encoding'] !== undefined) return Infinity;
  const length = Number(headers['content-length'] ?? 0);
  return length > 0 && headers['content-encoding'] !== undefined ? Infinity : length;
}

function createRates(database: Pick<DatabasePool, 'query'>, limits: UserLimits): Record<Load, RateLimit> {
  const rate = (load: Load, limit: keyof UserLimits, share = 1) => {
    const points = Math.ceil(limits[limit] * share);
    return createRateLimit(limit, points, createRateCounter(database, { name: load, points }));
  };
  return {
    read: rate('read', 'MAX_READS_PER_MINUTE'),
    write: rate('write', 'MAX_WRITES_PER_MINUTE'),
    heavy: rate('heavy', 'MAX_READS_PER_MINUTE', HEAVY_SHARE),
    invoke: rate('invoke', 'MAX_INVOCATIONS_PER_MINUTE'),
  };
}
