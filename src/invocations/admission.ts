import { currentContext } from '../platform/context.ts';
import { UnavailableError } from '../core/errors.ts';
import { createSlots, type Slots, takeAll } from '../platform/http/limits/slots.ts';

/** Counts the invocations of this process, to shed load early and to wait for them at shutdown. */
export interface Admission {
  /**
   * Runs `work` if there is room. Counts it for the current caller, or for the user outside a request. `bytes` is the
   * size of a body that stays in memory after the response.
   * @throws {UnavailableError} at once, without a statement, if the process is full
   * @throws {LimitError} if the caller has too many invocations
   */
  admit<T>(userId: string, work: () => Promise<T>, bytes?: number): Promise<T>;
  /** Number of invocations that run or wait. */
  count(): number;
  whenIdle(): Promise<void>;
}

/** @param max - invocations that may run or wait in this process: in total, and per caller */
export function createAdmission(max: { invocations: number; perUser: number }, bodies: Slots): Admission {
  const present = new Set<Promise<unknown>>();
  const slots = createSlots('MAX_INVOCATIONS_PER_USER', max.perUser, 'invocations running or waiting');
  return {
    async admit(userId, work, bytes) {
      const caller = currentContext().caller ?? `user:${userId}`;
      const release = takeAll([() => slots.take(caller), () => bodies.take(caller, bytes)]);
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
