import { setTimeout as sleep } from 'node:timers/promises';
import { BoundedCache } from './bounded-cache.ts';

/**
 * The processors are shared by all callers of a process. While there are others, what one of them has done is paced: so
 * much time for a statement, so much for the bytes that go to the database and come from it. A statement of an
 * invocation costs 1 ms of this process on average and about as much of the server, a megabyte of a history 20 ms.
 */
const STATEMENT_MS = 3;
const BYTES_PER_MS = 20_000;
/** What a caller may do at once who has done nothing before, and the longest wait of one who has done too much. */
const CREDIT_MS = 15;
const MAX_WAIT_MS = 1_000;
/** Who has done something within this time shares with the others. */
const RECENT_MS = 1_000;

/** What callers have done lately. Times are those of `performance.now`, given to each call: tests need no clock. */
export class Shares {
  /** Until when each caller has used its share. */
  readonly #used = new BoundedCache<number>();
  /** The two callers who wanted something last, the last one first. */
  #latest: { caller: string; at: number }[] = [];

  /** True while nobody else has wanted anything for a second. */
  isAlone(caller: string, now: number): boolean {
    return !this.#latest.some((each) => each.caller !== caller && each.at > now - RECENT_MS);
  }

  /** Notes that a caller wants something: from now on it shares with the others. */
  note(caller: string, now: number): void {
    const [last] = this.#latest;
    if (last?.caller === caller) last.at = now;
    else this.#latest = [{ caller, at: now }, ...this.#latest.slice(0, 1)];
  }

  /** How long a caller has to wait for its next statement as things are, milliseconds. What is charged adds to it. */
  waitOf(caller: string, now: number): number {
    return this.isAlone(caller, now) ? 0 : Math.max(0, (this.#used.get(caller) ?? 0) - now);
  }

  /** Takes one statement from a caller's share. */
  take(caller: string, now: number): void {
    this.#use(caller, STATEMENT_MS, now);
  }

  /** Takes bytes that a caller has moved from its share. */
  charge(caller: string, bytes: number, now: number): void {
    this.#use(caller, bytes / BYTES_PER_MS, now);
  }

  #use(caller: string, ms: number, now: number): void {
    if (this.isAlone(caller, now)) {
      // What was done alone does not count later.
      this.#used.delete(caller);
      return;
    }
    const from = Math.max(now - CREDIT_MS, this.#used.get(caller) ?? 0);
    this.#used.set(caller, Math.min(from + ms, now + MAX_WAIT_MS));
  }
}

/** What callers have done in this process. */
const shares = new Shares();

/** What {@link Shares} says of this process, now. */
export interface Pace {
  isAlone(caller: string): boolean;
  note(caller: string): void;
  waitOf(caller: string): number;
  take(caller: string): void;
}

/** The pace of this process. */
export const pace: Pace = {
  isAlone: (caller) => shares.isAlone(caller, performance.now()),
  note: (caller) => shares.note(caller, performance.now()),
  waitOf: (caller) => shares.waitOf(caller, performance.now()),
  take: (caller) => shares.take(caller, performance.now()),
};

/** Takes the bytes that a caller has moved from its share. */
export function chargeShare(caller: string | undefined, bytes: number): void {
  if (caller !== undefined) shares.charge(caller, bytes, performance.now());
}

/** Longest time between two looks of one who waits: whoever is alone by then waits no longer. */
const LOOK_MS = 100;
/** A shorter wait is none: no timer measures it. */
const TIMER_MS = 1;

/** Takes bytes from a caller's share once it has some left; at once while the caller is alone. */
export async function payShare(caller: string, bytes: number): Promise<void> {
  pace.note(caller);
  for (let waitMs = pace.waitOf(caller); waitMs >= TIMER_MS; waitMs = pace.waitOf(caller)) {
    await sleep(Math.min(waitMs, LOOK_MS));
  }
  chargeShare(caller, bytes);
}
