/** A queue that serves its owners in turn, however many items one of them has. */
export class FairQueue<Item> {
  /** By owner, those who are served next first. */
  readonly #waiting = new Map<string, Item[]>();

  push(owner: string, item: Item): void {
    const items = this.#waiting.get(owner);
    if (items) items.push(item);
    else this.#waiting.set(owner, [item]);
  }

  /**
   * Takes the next one; `undefined` where nothing waits that may be served.
   * @param mayServe false for owners who are passed over and keep their place [all may be served]
   */
  shift(mayServe: (owner: string) => boolean = () => true): Item | undefined {
    for (const [owner, items] of this.#waiting) {
      if (!mayServe(owner)) continue;
      const item = items.shift();
      if (items.length > 0 && this.#waiting.size === 1) return item;
      this.#waiting.delete(owner);
      // The turn goes on to the next owner.
      if (items.length > 0) this.#waiting.set(owner, items);
      return item;
    }
    return undefined;
  }

  /** Those of whom something waits, who is served next first. */
  get owners(): IterableIterator<string> {
    return this.#waiting.keys();
  }

  /** Number of items of all owners. */
  get size(): number {
    return [...this.#waiting.values()].reduce((sum, items) => sum + items.length, 0);
  }

  get isEmpty(): boolean {
    return this.#waiting.size === 0;
  }
}
