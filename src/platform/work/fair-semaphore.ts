/** Counts what callers have at once in this process: places, or bytes. */
export class CallerCounts {
  readonly maximum: number;
  readonly #held = new Map<string, number>();

  /** @param maximum for each caller */
  constructor(maximum = Infinity) {
    this.maximum = maximum;
  }

  /** Returns what a caller has. */
  get(caller: string): number {
    return this.#held.get(caller) ?? 0;
  }

  /** Adds some, negative for what has gone. @returns what the caller now has, which may be above the maximum */
  add(caller: string, count: number): number {
    const all = this.get(caller) + count;
    if (all > 0) this.#held.set(caller, all);
    else this.#held.delete(caller);
    return all;
  }

  /** Takes some for a caller. @returns what gives them back, once; `undefined` where it would have too many */
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

/** The part of the places that one caller holds at most while others wait. */
const MAX_SHARE_PER_CALLER = 0.25;
/** A caller may need a second place to finish what it does with the first. */
const MIN_PLACES_PER_CALLER = 2;

/** How long a caller waits for a place [without a limit], and the message of the error after that. */
interface WaitLimit {
  timeoutMs: number;
  message: string;
  /** True: a caller never holds more than its share [only while others wait]. */
  isStrict?: boolean;
}

/**
 * A number of places that callers hold for a while. A caller that is alone may hold all of them. While others wait, a
 * place that becomes free goes to the callers in turn, and first to those that hold less than their share.
 */
export class FairSemaphore {
  #free: number;
  readonly #share: number;
  readonly #limit: WaitLimit | undefined;
  readonly #held = new CallerCounts();
  /** Functions that serve the waiters, by caller; the caller whose turn comes next is the first. */
  readonly #waiting = new Map<string, (() => void)[]>();

  constructor(places: number, limit?: WaitLimit) {
    this.#free = places;
    this.#share = Math.max(MIN_PLACES_PER_CALLER, Math.floor(places * MAX_SHARE_PER_CALLER));
    this.#limit = limit;
  }

  /** The number of waiters. */
  get waiting(): number {
    return [...this.#waiting.values()].reduce((sum, waiters) => sum + waiters.length, 0);
  }

  /** Waits for a place. @returns a function that gives it back @throws {Error} after too long a wait */
  acquire(caller: string): Promise<() => void> {
    if (this.#free > 0 && !this.#isOver(caller)) return Promise.resolve(this.#grant(caller));
    return new Promise((resolve, reject) => {
      let timer: NodeJS.Timeout | undefined;
      const serve = () => {
        clearTimeout(timer);
        resolve(this.#grant(caller));
      };
      this.#waiting.set(caller, [...(this.#waiting.get(caller) ?? []), serve]);
      if (!this.#limit) return;
      const { timeoutMs, message } = this.#limit;
      timer = setTimeout(() => {
        this.#keep(
          caller,
          (this.#waiting.get(caller) ?? []).filter((each) => each !== serve),
        );
        reject(new Error(message));
      }, timeoutMs);
    });
  }

  #grant(caller: string): () => void {
    this.#free -= 1;
    this.#held.add(caller, 1);
    let isHeld = true;
    return () => {
      if (isHeld) this.#release(caller);
      isHeld = false;
    };
  }

  #release(caller: string): void {
    this.#free += 1;
    this.#held.add(caller, -1);
    this.#serveNext();
  }

  #serveNext(): void {
    const callers = [...this.#waiting.keys()];
    const next = callers.find((each) => this.#held.get(each) < this.#share) ?? callers[0];
    if (next === undefined || this.#isOver(next)) return;
    const [serve, ...others] = this.#waiting.get(next) ?? [];
    // Behind the other callers, whose turn comes first.
    this.#waiting.delete(next);
    this.#keep(next, others);
    serve?.();
  }

  #isOver(caller: string): boolean {
    return this.#limit?.isStrict === true && this.#held.get(caller) >= this.#share;
  }

  #keep(caller: string, waiters: (() => void)[]): void {
    if (waiters.length > 0) this.#waiting.set(caller, waiters);
    else this.#waiting.delete(caller);
  }
}
