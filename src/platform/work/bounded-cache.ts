/** Entries of a cache. */
const MAX_ENTRIES = 10_000;

/** A cache of at most 10,000 entries, first in, first out; what it drops has to be computed again. */
export class BoundedCache<Value> extends Map<string, Value> {
  override set(key: string, value: Value): this {
    this.delete(key);
    const [oldest] = this.keys();
    if (this.size >= MAX_ENTRIES && oldest !== undefined) this.delete(oldest);
    return super.set(key, value);
  }
}
