import { abortError } from '../../core/abort.ts';

/** Counts the slots or bytes that each caller uses in this process. */
export class CallerCounts {
  readonly maximum: number;
  readonly #counts = new Map<string, number>();

  /** @param maximum - maximum count per caller; default: unlimited */
  constructor(maximum = Infinity) {
    this.maximum = maximum;
  }

  get(caller: string): number {
    return this.#counts.get(caller) ?? 0;
  }

  /** Adds to a caller's count; `count` may be negative. @returns the new count, which may exceed the maximum */
  add(caller: string, count: number): number {
    const all = this.get(caller) + count;
    if (all > 0) this.#counts.set(caller, all);
    else this.#counts.delete(caller);
    return all;
  }

  /**
   * Adds `count` (default: 1) to a caller's count.
   * @returns a function that subtracts it once; `undefined` if the maximum would be exceeded
   */
  take(caller: string, count = 1): (() => void) | undefined {
    if (this.add(caller, count) > this.maximum) {
      this.add(caller, -count);
      return undefined;
    }
    let isHeld = true;
    return () => {
      if (isHeld) this.add(caller, -count);
      isHeld = false;
    };
  }
}

/** Maximum share of the slots that a caller may hold while others wait. */
const MAX_SHARE_PER_CALLER = 0.25;
/** Minimum number of slots of a caller's share: two, because with a single slot nested acquires would deadlock. */
const MIN_PLACES_PER_CALLER = 2;

/** Time-out of waiting for a slot, and the message of the error. */
interface WaitLimit {
  timeoutMs: number;
  message: string;
  /** True: the share per caller always applies. Default: only while others wait. */
  isStrict?: boolean;
}

/**
 * A semaphore that is fair between callers. A caller alone may hold all slots; while others wait, a released slot goes
 * to callers round-robin, first to those who hold less than their share.
 */
export class FairSemaphore {
  #free: number;
  readonly #share: number;
  readonly #limit: WaitLimit | undefined;
  readonly #counts = new CallerCounts();
  /** Waiters by caller; the first caller in the map is next. */
  readonly #waiting = new Map<string, (() => void)[]>();

  constructor(places: number, limit?: WaitLimit) {
    this.#free = places;
    this.#share = Math.max(MIN_PLACES_PER_CALLER, Math.floor(places * MAX_SHARE_PER_CALLER));
    this.#limit = limit;
  }

  get waiting(): number {
    return [...this.#waiting.values()].reduce((sum, waiters) => sum + waiters.length, 0);
  }

  /**
   * Waits for a slot. @returns a function that releases it
   * @throws {Error} after the time-out @throws {AgentError} the reason of the abort, if it is aborted before
   */
  acquire(caller: string, signal?: AbortSignal): Promise<() => void> {
    if (signal?.aborted) return Promise.reject(abortError(signal));
    if (this.#free > 0 && !this.#isOver(caller)) return Promise.resolve(this.#grant(caller));
    return new Promise((resolve, reject) => {
      let timer: NodeJS.Timeout | undefined;
      const end = () => {
        clearTimeout(timer);
        signal?.removeEventListener('abort', onAbort);
      };
      const serve = () => {
        end();
        resolve(this.#grant(caller));
      };
      const giveUp = (error: Error) => {
        end();
        this.#keep(
          caller,
          (this.#waiting.get(caller) ?? []).filter((each) => each !== serve),
        );
        reject(error);
      };
      const onAbort = () => signal && giveUp(abortError(signal));
      signal?.addEventListener('abort', onAbort);
      const waiters = this.#waiting.get(caller);
      if (waiters) waiters.push(serve);
      else this.#waiting.set(caller, [serve]);
      if (!this.#limit) return;
      const { timeoutMs, message } = this.#limit;
      timer = setTimeout(() => giveUp(new Error(message)), timeoutMs);
    });
  }

  #grant(caller: string): () => void {
    this.#free -= 1;
    this.#counts.add(caller, 1);
    let isHeld = true;
    return () => {
      if (isHeld) this.#release(caller);
      isHeld = false;
    };
  }

  #release(caller: string): void {
    this.#free += 1;
    this.#counts.add(caller, -1);
    if (this.#waiting.size > 0) this.#serveNext();
  }

  #serveNext(): void {
    const callers = [...this.#waiting.keys()];
    const next = callers.find((each) => this.#counts.get(each) < this.#share) ?? callers[0];
    if (next === undefined || this.#isOver(next)) return;
    const waiters = this.#waiting.get(next) ?? [];
    const serve = waiters.shift();
    // The caller is re-inserted at the end, so that the other callers' turns come first.
    if (callers.length > 1) this.#waiting.delete(next);
    this.#keep(next, waiters);
    serve?.();
  }

  #isOver(caller: string): boolean {
    return this.#limit?.isStrict === true && this.#counts.get(caller) >= this.#share;
  }

  #keep(caller: string, waiters: (() => void)[]): void {
    if (waiters.length > 0) this.#waiting.set(caller, waiters);
    else this.#waiting.delete(caller);
  }
}
