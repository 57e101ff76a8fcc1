/** A first-in, first-out cache. Default: at most 10,000 entries. */
export class BoundedCache<Value> extends Map<string, Value> {
  readonly #maximum: number;

  constructor(maximum = 10_000) {
    super();
    this.#maximum = maximum;
  }

  override set(key: string, value: Value): this {
    this.delete(key);
    const [oldest] = this.keys();
    if (this.size >= this.#maximum && oldest !== undefined) this.delete(oldest);
    return super.set(key, value);
  }
}
