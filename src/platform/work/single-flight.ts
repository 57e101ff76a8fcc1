/** Runs work once for all concurrent callers with the same key; they share its result, even a failure. */
export class SingleFlight<Result> {
  readonly #running = new Map<string, Promise<Result>>();

  run(key: string, work: () => Promise<Result>): Promise<Result> {
    const running = this.#running.get(key) ?? work().finally(() => this.#running.delete(key));
    this.#running.set(key, running);
    return running;
  }
}

/**
 * Returns a function that shares runs of `work` between callers. A call during a run waits for the next run, so that
 * its result is never older than the call.
 */
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
