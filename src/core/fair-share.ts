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

/** Until when each caller has used its share, by `performance.now`. */
const used = new RecentMap<number>();
/** The two callers who did something last, the last one first. */
let latest: { caller: string; at: number }[] = [];

/** True while nobody else has done anything for a second. */
export function isAlone(caller: string): boolean {
  const since = performance.now() - RECENT_MS;
  return !latest.some((each) => each.caller !== caller && each.at > since);
}

/** Waits until a caller may have one more statement; at once while it is alone, and for the process itself. */
export async function waitForShare(caller: string | undefined): Promise<void> {
  if (caller === undefined) return;
  const now = performance.now();
  latest = [{ caller, at: now }, ...latest.filter((each) => each.caller !== caller).slice(0, 1)];
  if (isAlone(caller)) {
    used.delete(caller);
    return;
  }
  const from = Math.max(now - CREDIT_MS, used.get(caller) ?? 0);
  used.set(caller, from + STATEMENT_MS);
  if (from - now >= 1) await sleep(Math.min(from - now, MAX_WAIT_MS));
}

/** Takes the bytes that a caller has moved from its share. */
export function chargeShare(caller: string | undefined, bytes: number): void {
  if (caller === undefined || isAlone(caller)) return;
  used.set(caller, Math.max(performance.now() - CREDIT_MS, used.get(caller) ?? 0) + bytes / BYTES_PER_MS);
}
