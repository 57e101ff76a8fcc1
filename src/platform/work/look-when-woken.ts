import { setTimeout as sleep } from 'node:timers/promises';
import { isPassingFailure } from '../../core/errors.ts';
import type { Log } from '../log.ts';

/** Pause after a failure of the database. */
const FAILURE_PAUSE_MS = 1_000;

/** Time between two cleanings of one process. */
const CLEANING_INTERVAL_MS = 3_600_000;

/** What looking needs of the process. */
export interface LookContext {
  /** Calls the function when the topic may have changed; the answer ends that. */
  notifications: { subscribe(topic: string, listener: () => void): () => void };
  log: Log;
  /** Aborted when the process begins to stop: nobody looks any more. */
  draining: AbortSignal;
}

/**
 * Looks for work in the database until the process drains: at once, then when the topic may have changed, when `wake`
 * was called, and when the pause is over that the look before asked for, in milliseconds.
 * @param failure what the log says when a look fails for a reason that does not pass
 * @returns a promise that settles after the last look
 */
export async function lookWhenWoken(
  { notifications, log, draining }: LookContext,
  topic: string,
  failure: string,
  look: (wake: () => void) => Promise<number>,
): Promise<void> {
  let woken = Promise.withResolvers<void>();
  const wake = () => woken.resolve();
  draining.addEventListener('abort', wake, { once: true });
  const unsubscribe = notifications.subscribe(topic, wake);
  while (!draining.aborted) {
    woken = Promise.withResolvers<void>();
    const pauseMs = await look(wake).catch((error: unknown) => {
      const isExpected = draining.aborted || isPassingFailure(error);
      if (!isExpected) log.error({ err: error }, failure);
      return FAILURE_PAUSE_MS;
    });
    if (pauseMs <= 0) continue;
    const over = new AbortController();
    const pause = sleep(pauseMs, undefined, { signal: over.signal }).catch(() => undefined);
    await Promise.race([woken.promise, pause]);
    over.abort();
  }
  unsubscribe();
}

/** Cleans at most once an hour, when it is called; the replicas of a deployment start together and clean apart. */
export function hourly(clean: () => Promise<unknown>): () => Promise<void> {
  let cleanAt = performance.now() + Math.random() * CLEANING_INTERVAL_MS;
  return async () => {
    if (performance.now() < cleanAt) return;
    cleanAt = performance.now() + CLEANING_INTERVAL_MS;
    await clean();
  };
}
