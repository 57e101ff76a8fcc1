import type { UserLimits } from '../../../config/limits.ts';
import { LimitError } from '../../../core/errors.ts';
import { LARGE_BYTES } from '../../../core/parse-json.ts';
import { CallerCounts } from '../../work/fair-semaphore.ts';

/** Counts what each caller has of something at once, in this process. */
export interface Slots {
  /** Takes some for a caller [1]; the returned function gives them back, once. @throws {LimitError} at the maximum */
  take(caller: string, count?: number): () => void;
}

/** @param limit the setting that says `max` @param things the counted things, as in "50 streams open" */
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

/** The largest bodies of one caller under way: parsed, they stay in memory until their work is done. */
const BODIES_PER_CALLER = 8;

/** Counts bytes of the large bodies that each caller has at once. @param maxBytes of one body */
export function createBodySlots({ MAX_REQUESTS_PER_USER }: UserLimits, maxBytes: number): Slots {
  const max = MAX_REQUESTS_PER_USER < Infinity ? BODIES_PER_CALLER * maxBytes : Infinity;
  const slots = createSlots('MAX_BODY_BYTES', max, 'bytes of bodies under way');
  return { take: (caller, bytes = 0) => slots.take(caller, bytes > LARGE_BYTES ? Math.min(bytes, maxBytes) : 0) };
}

/** Takes all or none. @param takes calls of `take` @returns a function that gives all of them back */
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
