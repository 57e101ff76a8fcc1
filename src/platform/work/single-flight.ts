/** Work that runs once for all callers that want it at the same time, by key; a failure is that of all of them. */
export class SingleFlight<Result> {
  readonly #running = new Map<string, Promise<Result>>();

  /** Returns the result of the run under way, or starts one. */
  run(key: string, work: () => Promise<Result>): Promise<Result> {
    const running = this.#running.get(key) ?? work().finally(() => this.#running.delete(key));
    this.#running.set(key, running);
    return running;
  }
}

/** Returns a function that shares runs of `work`: a call during one gets the next, so no result is older than it. */
export function shareNextRun<Result>(work: () => Promise<Result>): () => Promise<Result> {
  let running: Promise<Result> | undefined;
  let next: Promise<Result> | undefined;
  const run = () => {
    const started = work().finally(() => {
      if (running === started) running = undefined;
    });
    return (running = started);
  };
  const runAfter = async (before: Promise<Result>) => {
    await before.catch(() => undefined);
    next = undefined;
    return run();
  };
  return () => (running ? (next ??= runAfter(running)) : run());
}
