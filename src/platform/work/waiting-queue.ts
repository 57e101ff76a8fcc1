/** Values in order, for one reader that waits for them. */
export class WaitingQueue<Value> {
  readonly #values: Value[] = [];
  #changed = Promise.withResolvers<void>();

  /** Number of values that wait. */
  get size(): number {
    return this.#values.length;
  }

  push(value: Value): void {
    this.#values.push(value);
    this.#changed.resolve();
  }

  /** Settles when there is a value. */
  ready(): Promise<void> {
    return this.#values.length > 0 ? Promise.resolve() : this.#changed.promise;
  }

  /** The oldest value, which stays; `undefined` where none waits. */
  peek(): Value | undefined {
    return this.#values[0];
  }

  /** Takes the oldest value; `undefined` where none waits. */
  shift(): Value | undefined {
    const value = this.#values.shift();
    if (this.#values.length === 0) this.#changed = Promise.withResolvers();
    return value;
  }
}
