import { AsyncLocalStorage } from 'node:async_hooks';

/** The user that work is limited to; `undefined` for what may touch the rows of all. */
const acting = new AsyncLocalStorage<string | undefined>();

/**
 * Does work whose statements see and write the rows of one user only, by row-level security. It is awaited within: a
 * statement of drizzle begins when it is awaited, and not before.
 */
export const actingFor = <T>(userId: string, work: () => PromiseLike<T>): Promise<T> =>
  acting.run(userId, async () => await work());

/** Does work for all users, whoever's request happened to begin it: shared looks, batches. */
export const actingForAll = <T>(work: () => PromiseLike<T>): Promise<T> =>
  acting.run(undefined, async () => await work());

/** The user that the running work is limited to; `undefined` for work for all. */
export const actingUser = (): string | undefined => acting.getStore();

/** A function that is limited as the code that calls this is, whoever calls it. */
export const actingAsHere = (wake: () => void): (() => void) => {
  const userId = acting.getStore();
  return () => acting.run(userId, wake);
};
