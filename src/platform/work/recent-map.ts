/** What is kept in memory; what falls out is found out again. */
const MAX_KEPT = 10_000;

/** A map that forgets what it has had longest. */
export class RecentMap<Value> extends Map<string, Value> {
  override set(key: string, value: Value): this {
    this.delete(key);
    const [oldest] = this.keys();
    if (this.size >= MAX_KEPT && oldest !== undefined) this.delete(oldest);
    return super.set(key, value);
  }
}
