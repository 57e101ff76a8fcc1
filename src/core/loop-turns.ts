import { AsyncResource } from 'node:async_hooks';
import { FairQueue } from './fair-queue.ts';

/** How long new work may begin within one turn of the event loop, milliseconds. */
const BUDGET_MS = 2;

/**
 * Lets work begin: at once while a turn of the event loop has time for it, otherwise in a later turn, owners in turn.
 * So many requests of one caller that arrive together do not all come before the next step of somebody else's.
 */
export class LoopTurns {
  readonly #waiting = new FairQueue<() => void>();
  /** When the turn of the loop began in which work began last; `undefined` where none has in this one. */
  #since: number | undefined;

  /** @param begin must not throw */
  run(owner: string, begin: () => void): void {
    if (this.#waiting.isEmpty && this.#hasTime()) begin();
    // It is begun from the turn that somebody else's request asked for.
    else this.#waiting.push(owner, AsyncResource.bind(begin));
  }

  #hasTime(): boolean {
    if (this.#since !== undefined) return performance.now() - this.#since < BUDGET_MS;
    this.#since = performance.now();
    setImmediate(() => this.#nextTurn());
    return true;
  }

  #nextTurn(): void {
    this.#since = undefined;
    while (!this.#waiting.isEmpty && this.#hasTime()) this.#waiting.shift()?.();
  }
}
