import type { Request, Response } from 'express';
import { setTimeout as sleep } from 'node:timers/promises';
import { InvalidError, LimitError } from '../../../core/errors.ts';
import { LARGE_BYTES } from '../../../core/parse-json.ts';
import type { UserLimits } from '../../../config/limits.ts';
import type { DatabasePool } from '../../db/database.ts';
import { CallerCounts } from '../../work/fair-semaphore.ts';
import { type Load, loadFor, type Operation } from '../operation/operation.ts';
import { createRateLimit, type RateLimit, createRateCounter } from './rates.ts';

/** Limits of each caller, for the requests of one operation. */
interface OperationLimits {
  /**
   * Lets a request in, before it costs anything, and counts it until its answer or its connection ends.
   * @throws {LimitError} where the caller is at a limit
   */
  admit(caller: string, request: Request, response: Response): Promise<void>;
  /**
   * Counts a further action of an open stream, or what a request turns out to be, as if it were another request of a
   * class [the operation's]: a large read is one of those at once until its answer ends.
   * @throws {LimitError} where the caller is at a limit
   */
  count(caller: string, request: Request, response: Response, as?: Load): Promise<void>;
  /** Says that an answer has read what there is: one that waits for more is no large read any more. */
  hasRead(response: Response): void;
}

/** Returns the limits of an operation. */
export type RequestLimits = (operation: Operation) => OperationLimits;

/** Counts what each caller has of something at once. */
export interface Slots {
  /** Takes some for a caller [1]; the returned function gives them back. @throws {LimitError} at the maximum */
  take(caller: string, count?: number): () => void;
}

/** The largest bodies of one caller under way: parsed, they stay in memory until their work is done. */
const BODIES_PER_CALLER = 8;
/** The share of a caller's requests under way that may be streams or live sessions, which stay for long. */
const STREAM_SHARE = 0.5;
/** A large read uses one of its rate, and one more for each of these bytes. */
const MEGABYTE = 1_048_576;
/** The wait of a refusal for each refusal of the same caller that waits already, and the longest wait. */
const PAUSE_MS = 100;
const MAX_PAUSE_MS = 30_000;

/** Limits of each caller: of requests at once, counted in this process, and in a minute, counted in the database. */
export function createRequestLimits(
  database: Pick<DatabasePool, 'query'>,
  limits: UserLimits,
  maxBodyBytes: number,
): RequestLimits {
  const rates = createRates(database, limits);
  const requests = createSlots('MAX_REQUESTS_PER_USER', limits.MAX_REQUESTS_PER_USER, 'requests under way');
  const maxStreams = Math.ceil(limits.MAX_REQUESTS_PER_USER * STREAM_SHARE);
  const streams = createSlots('MAX_REQUESTS_PER_USER', maxStreams, 'streams open');
  const heavy = createSlots('MAX_HEAVY_READS_PER_USER', limits.MAX_HEAVY_READS_PER_USER, 'large reads under way');
  const bodies = createBodySlots(limits, maxBodyBytes);
  const reading = new WeakMap<Response, () => void>();
  /** Takes a place of a large read, which its end gives back, or the moment from which on it only waits. */
  const takeHeavy = (caller: string, response: Response) => {
    const give = heavy.take(caller);
    const giveOnce = () => {
      if (reading.delete(response)) give();
    };
    reading.set(response, giveOnce);
    return giveOnce;
  };
  return (operation) => {
    const load = loadFor(operation);
    const rate = rates[load];
    const isHeavy = load === 'heavy';
    const wanted = [requests, ...(operation.isStream ? [streams] : [])];
    const chargeBytes = (caller: string, request: Request, response: Response) => {
      const before = request.socket.bytesWritten;
      response.once('close', () =>
        rates.heavy.charge(caller, Math.floor((request.socket.bytesWritten - before) / MEGABYTE)),
      );
    };
    return {
      async admit(caller, request, response) {
        await rate.use(caller);
        if (response.destroyed || request.socket.destroyed) {
          // Its slots would never be released. A change is made all the same.
          if (operation.method === 'get') throw new InvalidError('The client has gone.');
          return;
        }
        const own = [{ take: () => bodies.take(caller, getBodyBytes(request)) }];
        const large = isHeavy ? [{ take: () => takeHeavy(caller, response) }] : [];
        const release = takeAll([...wanted, ...large, ...own], caller);
        response.once('close', release);
        if (isHeavy) chargeBytes(caller, request, response);
        // A WebSocket leaves its response behind, open.
        if (operation.success?.status === 101) request.socket.once('close', release);
      },
      async count(caller, request, response, as = load) {
        await rates[as].use(caller);
        if (as !== 'heavy' || isHeavy || response.destroyed || request.socket.destroyed) return;
        response.once('close', takeHeavy(caller, response));
        chargeBytes(caller, request, response);
      },
      hasRead: (response) => reading.get(response)?.(),
    };
  };
}

/** Returns the bytes of a body, endless where no length says. */
export function getBodyBytes({ headers }: Request): number {
  if (headers['transfer-encoding'] !== undefined || headers['content-encoding'] !== undefined) return Infinity;
  return Number(headers['content-length'] ?? 0);
}

/** Counts bytes of the large bodies that each caller has at once. @param maxBytes of one body */
export function createBodySlots({ MAX_REQUESTS_PER_USER }: UserLimits, maxBytes: number): Slots {
  const max = MAX_REQUESTS_PER_USER < Infinity ? BODIES_PER_CALLER * maxBytes : Infinity;
  const slots = createSlots('MAX_BODY_BYTES', max, 'bytes of bodies under way');
  return { take: (caller, bytes = 0) => slots.take(caller, bytes > LARGE_BYTES ? Math.min(bytes, maxBytes) : 0) };
}

/** The share of a caller's reads of a minute that may be large ones. */
const HEAVY_SHARE = 0.1;

function createRates(database: Pick<DatabasePool, 'query'>, limits: UserLimits): Record<Load, RateLimit> {
  const rate = (load: Load, limit: keyof UserLimits, share = 1) => {
    const points = Math.ceil(limits[limit] * share);
    if (points === Number.POSITIVE_INFINITY) return { use: () => Promise.resolve(), charge: () => undefined };
    return createRateLimit(limit, points, createRateCounter(database, { name: load, points }));
  };
  return {
    read: rate('read', 'MAX_READS_PER_MINUTE'),
    write: rate('write', 'MAX_WRITES_PER_MINUTE'),
    heavy: rate('heavy', 'MAX_READS_PER_MINUTE', HEAVY_SHARE),
    invoke: rate('invoke', 'MAX_INVOCATIONS_PER_MINUTE'),
  };
}

/** @param limit the setting that says `max` @param things the counted things, as in "50 streams open" */
export function createSlots(limit: string, max: number, things: string): Slots {
  const taken = new CallerCounts(max);
  const refusal = `You may have ${max} ${things} at once: ${limit}. Try again when one has ended.`;
  return {
    take(caller, count) {
      const give = taken.take(caller, count);
      if (give) return give;
      throw new LimitError(limit, refusal);
    },
  };
}

/** Takes all or none of them. */
export function takeAll(wanted: Slots[], caller: string): () => void {
  const taken: (() => void)[] = [];
  const release = () => {
    for (const give of taken.splice(0)) give();
  };
  try {
    for (const slots of wanted) taken.push(slots.take(caller));
    return release;
  } catch (error) {
    release();
    throw error;
  }
}

/** Does work of a caller; where a limit refuses it, the refusal comes late. */
export type WithTarpit = <T>(caller: string, work: () => Promise<T>) => Promise<T>;

/** Slows down callers at a limit: one that asks again and again, on any connections, is refused ten times a second. */
export function createTarpit(): WithTarpit {
  const waiting = new CallerCounts();
  return async (caller, work) => {
    try {
      return await work();
    } catch (error) {
      if (error instanceof LimitError) {
        await sleep(Math.min(waiting.add(caller, 1) * PAUSE_MS, MAX_PAUSE_MS));
        waiting.add(caller, -1);
      }
      throw error;
    }
  };
}
