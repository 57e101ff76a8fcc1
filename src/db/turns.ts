import { currentCaller } from '../core/caller.ts';
import { FairQueue } from '../core/fair-queue.ts';

/**
 * Of the connections, those that one caller uses while others want some too: what the server does for one leaves the
 * rest of its processors to the others. Two at least in the pool whose transactions may need a second one.
 */
export const CALLER_SHARE = 0.25;

/** One who waits for a turn. */
interface Waiter {
  caller: string;
  isGone: boolean;
  begin: () => void;
}

/** Work of the process itself, which is in nobody's name. */
const NOBODY = '';

/** How many may do something at once, and what is said of a wait that was in vain. */
interface TurnOptions {
  max: number;
  /** Of those, how many of one caller while there are others (`core/fair-share.ts`). */
  maxShared: number;
  /** True of a caller while there are no others. */
  isAlone: (caller: string) => boolean;
  /** Maximum time that one waits, and the message of the error after it. */
  timeoutMs: number;
  timeoutMessage: string;
}

/** So many may do something at once; the others wait, and callers are let in by turns. */
export class Turns {
  readonly #options: TurnOptions;
  #free: number;
  readonly #waiting = new FairQueue<Waiter>();
  /** Turns of each caller who has one. */
  readonly #taken = new Map<string, number>();

  constructor(options: TurnOptions) {
    this.#options = options;
    this.#free = options.max;
  }

  /** How many wait. */
  get waiting(): number {
    return this.#waiting.size;
  }

  /** Waits for a turn; what is returned ends it. @throws {Error} after too long a wait */
  async take(): Promise<() => void> {
    const caller = currentCaller() ?? NOBODY;
    if (this.#free > 0 && this.#mayHaveOneMore(caller)) this.#grant(caller);
    else await this.#wait(caller);
    let isOver = false;
    return () => {
      if (isOver) return;
      isOver = true;
      this.#handOn(caller);
    };
  }

  /** Whoever is alone may have all; what the process does by itself is not held back. */
  #mayHaveOneMore(caller: string): boolean {
    const has = this.#taken.get(caller) ?? 0;
    return caller === NOBODY || has < this.#options.maxShared || this.#options.isAlone(caller);
  }

  #grant(caller: string): void {
    this.#free -= 1;
    this.#taken.set(caller, (this.#taken.get(caller) ?? 0) + 1);
  }

  #wait(caller: string): Promise<void> {
    const { timeoutMs, timeoutMessage } = this.#options;
    return new Promise((resolve, reject) => {
      const waiter: Waiter = {
        caller,
        isGone: false,
        begin: () => {
          clearTimeout(timer);
          resolve();
        },
      };
      const timer = setTimeout(() => {
        waiter.isGone = true;
        reject(new Error(timeoutMessage));
      }, timeoutMs);
      this.#waiting.push(caller, waiter);
    });
  }

  #handOn(caller: string): void {
    this.#free += 1;
    const left = (this.#taken.get(caller) ?? 1) - 1;
    if (left > 0) this.#taken.set(caller, left);
    else this.#taken.delete(caller);
    while (this.#free > 0) {
      // Whoever waits for having a share already has a turn, and its end comes here again.
      const next = this.#waiting.shift((owner) => this.#mayHaveOneMore(owner));
      if (!next) return;
      if (next.isGone) continue;
      this.#grant(next.caller);
      next.begin();
    }
  }
}
