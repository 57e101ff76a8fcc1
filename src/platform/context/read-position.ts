import { AsyncLocalStorage } from 'node:async_hooks';

/** A place in the primary's log of changes, as PostgreSQL writes it: `16/B374D848`. */
export const POSITION = /^[0-9A-F]{1,8}\/[0-9A-F]{1,8}$/;

/** What the statements of one read need: all that was committed before a position. */
interface Reading {
  position: string;
  /**
   * True once a statement was answered by the primary: later ones are too, since a replica, though far enough, may lack
   * what the first one saw.
   */
  isAtPrimary: boolean;
}

const reading = new AsyncLocalStorage<Reading>();

/** Does work whose plain reads may go to a replica that has all that was committed before that position. */
export const readingSince = <T>(position: string, work: () => Promise<T>): Promise<T> =>
  reading.run({ position, isAtPrimary: false }, work);

/** The read that goes on; `undefined` for work that asks the primary only. */
export const currentReading = (): Reading | undefined => reading.getStore();

/**
 * Shares work among those who want it at once. Who comes while it runs gets the next one: its result is never of a
 * moment before it was wanted.
 */
export function shared<T>(work: () => Promise<T>): () => Promise<T> {
  let running: Promise<T> | undefined;
  let next: Promise<T> | undefined;
  const run = () => {
    const started = work().finally(() => {
      if (running === started) running = undefined;
    });
    return (running = started);
  };
  const later = async (before: Promise<T>) => {
    await before.catch(() => undefined);
    next = undefined;
    return run();
  };
  return () => (running ? (next ??= later(running)) : run());
}
