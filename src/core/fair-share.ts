import { setTimeout as sleep } from 'node:timers/promises';
import { RecentMap } from './recent-map.ts';

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
  readonly #used = new RecentMap<number>();
  /** The two callers who did something last, the last one first. */
  #latest: { caller: string; at: number }[] = [];

  /** True while nobody else has done anything for a second. */
  isAlone(caller: string, now: number): boolean {
    return !this.#latest.some((each) => each.caller !== caller && each.at > now - RECENT_MS);
  }

  /** Takes one statement from a caller's share. @returns how long it has to wait for it, milliseconds */
  take(caller: string, now: number): number {
    this.#latest = [{ caller, at: now }, ...this.#latest.filter((each) => each.caller !== caller).slice(0, 1)];
    if (this.isAlone(caller, now)) {
      this.#used.delete(caller);
      return 0;
    }
    const from = Math.max(now - CREDIT_MS, this.#used.get(caller) ?? 0);
    this.#used.set(caller, from + STATEMENT_MS);
    return Math.min(Math.max(0, from - now), MAX_WAIT_MS);
  }

  /** Takes bytes that a caller has moved from its share. */
  charge(caller: string, bytes: number, now: number): void {
    if (this.isAlone(caller, now)) return;
    this.#used.set(caller, Math.max(now - CREDIT_MS, this.#used.get(caller) ?? 0) + bytes / BYTES_PER_MS);
  }
}

const shares = new Shares();

/** True while nobody but this caller has done anything in this process for a second. */
export const isAlone = (caller: string): boolean => shares.isAlone(caller, performance.now());

/** Waits until a caller may have one more statement; at once while it is alone, and for the process itself. */
export async function waitForShare(caller: string | undefined): Promise<void> {
  const waitMs = caller === undefined ? 0 : shares.take(caller, performance.now());
  if (waitMs >= 1) await sleep(waitMs);
}

/** Takes the bytes that a caller has moved from its share. */
export function chargeShare(caller: string | undefined, bytes: number): void {
  if (caller !== undefined) shares.charge(caller, bytes, performance.now());
}
