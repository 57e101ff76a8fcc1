import type { Request, Response } from 'express';
import type { UserLimits } from '../../../config/limits.ts';
import { InvalidError } from '../../../core/errors.ts';
import type { DatabasePool } from '../../db/database.ts';
import { type Load, loadFor, type Operation } from '../operation/operation.ts';
import { createRateCounter, createRateLimit, type RateLimit } from './rates.ts';
import { createBodySlots, createSlots, takeAll } from './slots.ts';

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
        const release = takeAll([
          () => requests.take(caller),
          ...(operation.isStream ? [() => streams.take(caller)] : []),
          ...(isHeavy ? [() => beginHeavyRead(caller, request, response)] : []),
          () => bodies.take(caller, getBodyBytes(request)),
        ]);
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

/** Returns the length of a request's body in bytes; Infinity if no header tells it. */
export function getBodyBytes({ headers }: Request): number {
  if (headers['transfer-encoding'] !== undefined || headers['content-encoding'] !== undefined) return Infinity;
  return Number(headers['content-length'] ?? 0);
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
