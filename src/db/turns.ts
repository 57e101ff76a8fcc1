import { currentCaller } from '../core/caller.ts';
import { FairQueue } from '../core/fair-queue.ts';

/** One who waits for a turn. */
interface Waiter {
  isGone: boolean;
  begin: () => void;
}

/** So many may do something at once; the others wait, and callers are let in by turns. */
export class Turns {
  #free: number;
  readonly #timeoutMs: number;
  readonly #timeoutMessage: string;
  readonly #waiting = new FairQueue<Waiter>();

  /** @param timeout maximum time that one waits, and the message of the error after it */
  constructor(max: number, timeout: { ms: number; message: string }) {
    this.#free = max;
    this.#timeoutMs = timeout.ms;
    this.#timeoutMessage = timeout.message;
  }

  /** How many wait. */
  get waiting(): number {
    return this.#waiting.size;
  }

  /** Waits for a turn; what is returned ends it. @throws {Error} after too long a wait */
  async take(): Promise<() => void> {
    if (this.#free > 0) this.#free -= 1;
    else await this.#wait();
    let isOver = false;
    return () => {
      if (isOver) return;
      isOver = true;
      this.#handOn();
    };
  }

  #wait(): Promise<void> {
    return new Promise((resolve, reject) => {
      const waiter: Waiter = {
        isGone: false,
        begin: () => {
          clearTimeout(timer);
          resolve();
        },
      };
      const timer = setTimeout(() => {
        waiter.isGone = true;
        reject(new Error(this.#timeoutMessage));
      }, this.#timeoutMs);
      this.#waiting.push(currentCaller() ?? '', waiter);
    });
  }

  #handOn(): void {
    let next = this.#waiting.shift();
    while (next?.isGone) next = this.#waiting.shift();
    if (next) next.begin();
    else this.#free += 1;
  }
}
