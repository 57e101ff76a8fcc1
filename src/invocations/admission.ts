import { UnavailableError } from '../core/errors.ts';

/** Counts the invocations of this process, so that it sheds load early and can wait for their end. */
export interface Admission {
  /**
   * Runs `work` if there is room.
   * @throws {UnavailableError} at once, without touching the database, when there is none.
   */
  admit<T>(work: () => Promise<T>): Promise<T>;
  /** Settles when no invocation is left. */
  whenIdle(): Promise<void>;
}

/** Counts from zero. @param maxInvocations that may run or wait in this process at once. */
export function createAdmission(maxInvocations: number): Admission {
  const present = new Set<Promise<unknown>>();
  return {
    async admit(work) {
      if (present.size >= maxInvocations)
        throw new UnavailableError(`The service holds ${maxInvocations} invocations already. Try again later.`);
      const running = work();
      present.add(running);
      try {
        return await running;
      } finally {
        present.delete(running);
      }
    },
    async whenIdle() {
      while (present.size > 0) await Promise.allSettled(present);
    },
  };
}
