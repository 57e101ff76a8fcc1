import { setTimeout as sleep } from 'node:timers/promises';
import { isPassingFailure } from '../../core/errors.ts';

/** Pause after a failed poll, in milliseconds. */
export const FAILURE_PAUSE_MS = 1_000;

/** Ends a pause early. A call of `wake` is remembered until `reset`, so that a call before the pause is not lost. */
export class Wakeup {
  #woken = Promise.withResolvers<void>();

  readonly wake = (): void => this.#woken.resolve();

  /** Forgets earlier calls of `wake`. Must be called before reading the state that those calls announced. */
  reset(): void {
    this.#woken = Promise.withResolvers();
  }

  /** Waits for `wake`, for `ms` (default: no limit), or until `signal` aborts. */
  async wait(ms = Infinity, signal?: AbortSignal): Promise<void> {
    if (ms === Infinity && !signal) return this.#woken.promise;
    const over = new AbortController();
    const ends = signal ? AbortSignal.any([over.signal, signal]) : over.signal;
    await Promise.race([this.#woken.promise, pause(Math.min(ms, MAX_TIMER_MS), ends)]);
    over.abort();
  }
}

/** Maximum delay of a Node timer, in milliseconds. */
const MAX_TIMER_MS = 2 ** 31 - 1;

const pause = (ms: number, signal: AbortSignal) => sleep(ms, undefined, { signal }).catch(() => undefined);

export interface PollLoop {
  /** Polls. @returns milliseconds until the next poll, unless woken; 0: poll again at once */
  poll: (wake: () => void) => Promise<number>;
  /** Subscribes to notifications, which reduce latency but may be lost. */
  notify?: ((wake: () => void) => () => void) | undefined;
  /** Minimum pause between two polls, in milliseconds. Default: 0. */
  minPauseMs?: number | undefined;
  /** Ends the loop after the current poll. */
  signal: AbortSignal;
  /** Called with errors that are not temporary failures. */
  onError: (error: unknown) => void;
}

/** Polls until the signal aborts; settles after the last poll. */
export async function runPollLoop({ poll, notify, minPauseMs = 0, signal, onError }: PollLoop): Promise<void> {
  const wakeup = new Wakeup();
  const unsubscribe = notify?.(wakeup.wake);
  while (!signal.aborted) {
    wakeup.reset();
    const pauseMs = await poll(wakeup.wake).catch((error: unknown) => {
      if (!signal.aborted && !isPassingFailure(error)) onError(error);
      return FAILURE_PAUSE_MS;
    });
    if (minPauseMs > 0) await pause(minPauseMs, signal);
    if (pauseMs > 0) await wakeup.wait(pauseMs, signal);
  }
  unsubscribe?.();
}
