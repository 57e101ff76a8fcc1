import { currentContext } from '../platform/context.ts';
import { UnavailableError } from '../core/errors.ts';
import { createSlots, type Slots, takeAll } from '../platform/http/limits/caller-limits.ts';

/** Counts this process's invocations, to refuse new ones when it is full, and to await all of them at shutdown. */
export interface Admission {
  /**
   * Counts the invocation for the caller of the current request, or outside a request for the user `userId`. `bytes` is
   * the size of a request body that stays in memory after the response.
   * @throws {UnavailableError} at once, without an SQL statement, if the process is full
   * @throws {LimitError} if the caller has too many invocations
   */
  admit<T>(userId: string, work: () => Promise<T>, bytes?: number): Promise<T>;
  /**
   * Counts a request that steers until it is answered, apart from invocations: it has none here while its message waits,
   * and what it waits for needs room to begin. The limits are the same.
   * @throws {UnavailableError} if the process is full
   * @throws {LimitError} if the caller has too many
   */
  admitSteering<T>(userId: string, work: () => Promise<T>): Promise<T>;
  /** Number of invocations that run or are queued in this process. */
  count(): number;
  whenIdle(): Promise<void>;
}

/** @param max - maximum number of invocations that run or are queued in this process: in total, and per caller */
export function createAdmission(max: { invocations: number; perUser: number }, bodies: Slots): Admission {
  const present = new Set<Promise<unknown>>();
  const slots = createSlots('MAX_INVOCATIONS_PER_USER', max.perUser, 'invocations running or waiting');
  const steers = createSlots('MAX_INVOCATIONS_PER_USER', max.perUser, 'requests that steer');
  let steering = 0;
  const toCaller = (userId: string) => currentContext().caller ?? `user:${userId}`;
  return {
    async admitSteering(userId, work) {
      const release = steers.take(toCaller(userId));
      steering += 1;
      try {
        if (steering > max.invocations)
          throw new UnavailableError(
            `The service holds ${max.invocations} requests that steer already. Try again later.`,
          );
        return await work();
      } finally {
        steering -= 1;
        release();
      }
    },
    async admit(userId, work, bytes) {
      const caller = toCaller(userId);
      const release = takeAll(caller, [[slots], [bodies, bytes]]);
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
