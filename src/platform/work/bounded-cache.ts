const MAX_ENTRIES = 10_000;

/** A first-in, first-out cache of at most 10,000 entries. */
export class BoundedCache<Value> extends Map<string, Value> {
  override set(key: string, value: Value): this {
    this.delete(key);
    const [oldest] = this.keys();
    if (this.size >= MAX_ENTRIES && oldest !== undefined) this.delete(oldest);
    return super.set(key, value);
  }
}
