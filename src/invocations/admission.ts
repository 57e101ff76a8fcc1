import { currentContext } from '../platform/context.ts';
import { UnavailableError } from '../core/errors.ts';
import { createSlots, type Slots, takeAll } from '../platform/http/limits/request-limits.ts';

/** Counts the invocations of this process, so that it sheds load early and can wait for their end. */
export interface Admission {
  /**
   * Runs `work` if there is room. It counts for the caller, and for the user where no request is being answered, with
   * the `bytes` of a body that outlasts its request.
   * @throws {UnavailableError} at once, without touching the database, when there is none.
   * @throws {LimitError} when the caller has as many as one may have
   */
  admit<T>(userId: string, work: () => Promise<T>, bytes?: number): Promise<T>;
  /** How many run or wait. */
  count(): number;
  /** Settles when no invocation is left. */
  whenIdle(): Promise<void>;
}

/** Counts from zero. @param max that may run or wait in this process at once: all in all, and of one caller */
export function createAdmission(max: { invocations: number; perUser: number }, bodies: Slots): Admission {
  const present = new Set<Promise<unknown>>();
  const slots = createSlots('MAX_INVOCATIONS_PER_USER', max.perUser, 'invocations running or waiting');
  return {
    async admit(userId, work, bytes) {
      const caller = currentContext().caller ?? `user:${userId}`;
      const release = takeAll([slots, { take: () => bodies.take(caller, bytes) }], caller);
      try {
        if (present.size >= max.invocations)
          throw new UnavailableError(`The service holds ${max.invocations} invocations already. Try again later.`);
        const running = work();
        present.add(running);
        return await running.finally(() => present.delete(running));
      } finally {
        release();
      }
    },
    count: () => present.size,
    async whenIdle() {
      while (present.size > 0) await Promise.allSettled(present);
    },
  };
}
