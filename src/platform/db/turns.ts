import { currentContext } from '../context.ts';
import { FairQueue } from '../work/fair-queue.ts';
import { LOOK_MS, type Pace, TIMER_MS } from '../work/fair-share.ts';

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
  /** How fast a caller may take one turn after the other, and whether there are others. */
  pace: Pace;
  /** Maximum time that one waits for a free one, and the message of the error after it. */
  timeoutMs: number;
  timeoutMessage: string;
}

/**
 * So many may do something at once; the others wait, and callers are let in by turns. What a caller has used of its
 * share is looked at when it is let in and not when it comes: of many at once, the first may prove to be large.
 */
export class Turns {
  readonly #options: TurnOptions;
  #free: number;
  readonly #waiting = new FairQueue<Waiter>();
  /** Turns of each caller who has one. */
  readonly #taken = new Map<string, number>();
  /** The next look at those who wait for their share, and when it is. */
  #look: NodeJS.Timeout | undefined;
  #lookAt = Number.POSITIVE_INFINITY;

  constructor(options: TurnOptions) {
    this.#options = options;
    this.#free = options.max;
  }

  /** How many wait. */
  get waiting(): number {
    return this.#waiting.size;
  }

  /** Waits for a turn; what is returned ends it. @throws {Error} after too long a wait for a free one */
  async take(): Promise<() => void> {
    const caller = currentContext().caller ?? NOBODY;
    if (caller !== NOBODY) this.#options.pace.note(caller);
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
    const { pace } = this.#options;
    return caller === NOBODY || pace.isAlone(caller) || (this.#hasRoom(caller) && pace.waitOf(caller) < TIMER_MS);
  }

  #hasRoom = (caller: string) => (this.#taken.get(caller) ?? 0) < this.#options.maxShared;

  #grant(caller: string): void {
    this.#free -= 1;
    this.#taken.set(caller, (this.#taken.get(caller) ?? 0) + 1);
    if (caller !== NOBODY) this.#options.pace.take(caller);
  }

  #wait(caller: string): Promise<void> {
    return new Promise((resolve, reject) => {
      const waiter: Waiter = {
        caller,
        isGone: false,
        begin: () => {
          clearTimeout(timer);
          resolve();
        },
      };
      const giveUp = () => {
        // One is free: it is its own share that it waits for, and that comes.
        if (this.#free > 0) {
          timer = setTimeout(giveUp, this.#options.timeoutMs);
          return;
        }
        waiter.isGone = true;
        reject(new Error(this.#options.timeoutMessage));
      };
      let timer = setTimeout(giveUp, this.#options.timeoutMs);
      this.#waiting.push(caller, waiter);
      this.#lookLater();
    });
  }

  #handOn(caller: string): void {
    this.#free += 1;
    const left = (this.#taken.get(caller) ?? 1) - 1;
    if (left > 0) this.#taken.set(caller, left);
    else this.#taken.delete(caller);
    this.#serve();
  }

  #serve(): void {
    while (this.#free > 0) {
      // Whoever waits for having a share already has a turn, and its end comes here again.
      const next = this.#waiting.shift((owner) => this.#mayHaveOneMore(owner));
      if (!next) break;
      if (next.isGone) continue;
      this.#grant(next.caller);
      next.begin();
    }
    this.#lookLater();
  }

  /** Nothing ends when the time of a share has come, so a timer looks; none where there is nothing to give. */
  #lookLater(): void {
    if (this.#free === 0 || this.#waiting.isEmpty) return;
    const waits = [...this.#waiting.owners].filter(this.#hasRoom).map((owner) => this.#options.pace.waitOf(owner));
    const waitMs = Math.min(LOOK_MS, ...waits);
    if (performance.now() + waitMs >= this.#lookAt) return;
    clearTimeout(this.#look);
    this.#lookAt = performance.now() + waitMs;
    this.#look = setTimeout(() => {
      this.#lookAt = Number.POSITIVE_INFINITY;
      this.#serve();
    }, waitMs);
  }
}
