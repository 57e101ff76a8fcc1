import type { UserLimits } from '../../../config/limits.ts';
import { LimitError } from '../../../core/errors.ts';
import { LARGE_BYTES } from '../../../core/parse-json.ts';
import { CallerCounts } from '../../work/fair-semaphore.ts';

/** Limits how much of a resource each caller uses concurrently, counted in this process. */
export interface Slots {
  /** Takes `count` (default: 1) of a caller's slots; the returned function releases them, once. @throws {LimitError} */
  take(caller: string, count?: number): () => void;
}

/** @param limit name of the setting for `max` @param things noun in the error message, e.g. "streams open" */
export function createSlots(limit: string, max: number, things: string): Slots {
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
  const max = MAX_REQUESTS_PER_USER < Infinity ? BODIES_PER_CALLER * maxBytes : Infinity;
  const slots = createSlots('MAX_BODY_BYTES', max, 'bytes of bodies under way');
  return { take: (caller, bytes = 0) => slots.take(caller, bytes > LARGE_BYTES ? Math.min(bytes, maxBytes) : 0) };
}

/** Takes all slots or none. @param takes calls of `take` @returns a function that releases all of them */
export function takeAll(takes: (() => () => void)[]): () => void {
  const taken: (() => void)[] = [];
  const release = () => {
    for (const give of taken) give();
  };
  try {
    for (const take of takes) taken.push(take());
    return release;
  } catch (error) {
    release();
    throw error;
  }
}
