/** A queue of values for one waiting reader. */
export class WaitingQueue<Value> {
  readonly #values: Value[] = [];
  #changed = Promise.withResolvers<void>();

  get size(): number {
    return this.#values.length;
  }

  push(value: Value): void {
    this.#values.push(value);
    this.#changed.resolve();
  }

  ready(): Promise<void> {
    return this.#values.length > 0 ? Promise.resolve() : this.#changed.promise;
  }

  peek(): Value | undefined {
    return this.#values[0];
  }

  shift(): Value | undefined {
    const value = this.#values.shift();
    if (this.#values.length === 0) this.#changed = Promise.withResolvers();
    return value;
  }
}
