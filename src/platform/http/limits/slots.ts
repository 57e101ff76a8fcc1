import { LimitError } from '../../../core/errors.ts';

/** Counts what each caller has of something at once. */
export interface Slots {
  /** Takes one for a caller; what is returned gives it back. @throws {LimitError} where it has the maximum already */
  take(caller: string): () => void;
}

/** @param limit the setting that says `max` @param things what is counted, as in "50 streams open" */
export function createSlots(limit: string, max: number, things: string): Slots {
  const taken = new Map<string, number>();
  return {
    take(caller) {
      const count = taken.get(caller) ?? 0;
      if (count >= max) {
        throw new LimitError(
          limit,
          `You have ${max} ${things} already, the maximum: ${limit}. Try again when one has ended.`,
        );
      }
      taken.set(caller, count + 1);
      return () => {
        const left = (taken.get(caller) ?? 1) - 1;
        if (left > 0) taken.set(caller, left);
        else taken.delete(caller);
      };
    },
  };
}
