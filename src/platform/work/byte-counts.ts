/** Counts bytes that callers have under way in this process, with a maximum for each caller. */
export class ByteCounts {
  readonly maximum: number;
  readonly #held = new Map<string, number>();

  constructor(maximum: number) {
    this.maximum = maximum;
  }

  /** Adds bytes, negative ones for what has gone. @returns false where the caller now has more than the maximum */
  add(caller: string, bytes: number): boolean {
    const all = (this.#held.get(caller) ?? 0) + bytes;
    if (all > 0) this.#held.set(caller, all);
    else this.#held.delete(caller);
    return all <= this.maximum;
  }
}
