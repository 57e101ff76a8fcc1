/** Counts what callers have at once in this process: places, or bytes. */
export class CallerCounts {
  readonly maximum: number;
  readonly #held = new Map<string, number>();

  /** @param maximum for each caller */
  constructor(maximum = Infinity) {
    this.maximum = maximum;
  }

  /** Adds some, negative for what has gone. @returns what the caller now has, which may be above the maximum */
  add(caller: string, count: number): number {
    const all = (this.#held.get(caller) ?? 0) + count;
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
