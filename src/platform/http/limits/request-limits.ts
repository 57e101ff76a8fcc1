import { InvalidError } from '../../../core/errors.ts';
import type { UserLimits } from '../../../config/limits.ts';
import type { DatabasePool } from '../../db/database.ts';
import { type Load, loadOf } from '../operation/operation.ts';
import type { RequestLimits } from '../operation/request-limits.ts';
import { createRateLimit, type RateLimit } from './rate-limit.ts';
import { createRateCounter } from './rates.ts';
import { createSlots, type Slots } from './slots.ts';

/** A large read uses one of its rate, and one more for each of these bytes. */
const MEGABYTE = 1_048_576;

/** Limits of each caller: what it does at once, counted in this process, and in a minute, counted in the database. */
export function createRequestLimits(database: Pick<DatabasePool, 'query'>, limits: UserLimits): RequestLimits {
  const rates = createRates(database, limits);
  const requests = createSlots('MAX_REQUESTS_PER_USER', limits.MAX_REQUESTS_PER_USER, 'requests under way');
  const streams = createSlots('MAX_STREAMS_PER_USER', limits.MAX_STREAMS_PER_USER, 'streams open');
  const heavy = createSlots('MAX_HEAVY_READS_PER_USER', limits.MAX_HEAVY_READS_PER_USER, 'large reads under way');
  return {
    async admit(caller, operation, request, response) {
      const load = loadOf(operation);
      await rates[load].use(caller);
      const wanted = [requests, ...(operation.isStream ? [streams] : []), ...(load === 'heavy' ? [heavy] : [])];
      if (response.destroyed || request.socket.destroyed) {
        // Who has gone already gives nothing back: nothing is read for nobody, however often that is wanted.
        if (operation.method === 'get') throw new InvalidError('The client has gone.');
        return;
      }
      const release = takeAll(wanted, caller);
      const before = request.socket.bytesWritten;
      response.once('close', () => {
        release();
        if (load === 'heavy') rates.heavy.charge(caller, Math.floor((request.socket.bytesWritten - before) / MEGABYTE));
      });
      // A WebSocket leaves its response behind, open.
      if (operation.success?.status === 101) request.socket.once('close', release);
    },
    count: (caller, operation) => rates[loadOf(operation)].use(caller),
  };
}

function createRates(database: Pick<DatabasePool, 'query'>, limits: UserLimits): Record<Load, RateLimit> {
  const rate = (load: Load, limit: keyof UserLimits) => {
    const points = limits[limit];
    if (points === Number.POSITIVE_INFINITY) return { use: () => Promise.resolve(), charge: () => undefined };
    return createRateLimit(limit, points, createRateCounter(database, { name: load, points }));
  };
  return {
    read: rate('read', 'MAX_READS_PER_MINUTE'),
    write: rate('write', 'MAX_WRITES_PER_MINUTE'),
    heavy: rate('heavy', 'MAX_HEAVY_READS_PER_MINUTE'),
    invoke: rate('invoke', 'MAX_INVOCATIONS_PER_MINUTE'),
  };
}

/** All or none of them. */
function takeAll(wanted: Slots[], caller: string): () => void {
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
