import { AsyncResource } from 'node:async_hooks';
import { FairQueue } from './fair-queue.ts';

/** How long new work may begin within one turn of the event loop, milliseconds. */
const BUDGET_MS = 2;

/**
 * Lets work begin: at once while a turn of the event loop has time for it, otherwise one a turn, addresses in turn and
 * of each its owners in turn. So many requests of one caller that arrive together do not all come before the next step
 * of somebody else's. One only, because what a request does between its first promises runs when the turn is over, and
 * no clock that is looked at within it sees that.
 */
export class LoopTurns {
  /** An item for each that waits, which takes the next one of its address. */
  readonly #waiting = new FairQueue<() => void>();
  readonly #byAddress = new Map<string, FairQueue<() => void>>();
  /** When the turn of the loop began in which work began last; `undefined` where none has in this one. */
  #since: number | undefined;

  /**
   * @param address comes before the owner, which nobody has checked yet and anybody can make up
   * @param begin must not throw
   */
  run(address: string, owner: string, begin: () => void): void {
    if (this.#waiting.isEmpty && this.#hasTime()) {
      begin();
      return;
    }
    const owners = this.#byAddress.get(address) ?? new FairQueue();
    this.#byAddress.set(address, owners);
    // It is begun from the turn that somebody else's request asked for.
    owners.push(owner, AsyncResource.bind(begin));
    this.#waiting.push(address, () => this.#beginNextOf(address, owners));
  }

  #beginNextOf(address: string, owners: FairQueue<() => void>): void {
    const begin = owners.shift();
    if (owners.isEmpty) this.#byAddress.delete(address);
    begin?.();
  }

  #hasTime(): boolean {
    if (this.#since !== undefined) return performance.now() - this.#since < BUDGET_MS;
    this.#since = performance.now();
    setImmediate(() => this.#nextTurn());
    return true;
  }

  #nextTurn(): void {
    this.#since = undefined;
    if (!this.#waiting.isEmpty && this.#hasTime()) this.#waiting.shift()?.();
  }
}
