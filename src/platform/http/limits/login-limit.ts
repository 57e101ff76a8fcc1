import { hash } from 'node:crypto';
import type { LimitError } from '../../../core/errors.ts';
import { BoundedCache } from '../../work/bounded-cache.ts';
import { CallerCounts, FairSemaphore } from '../../work/fair-semaphore.ts';
import { createRateLimit, type RateCounter } from './caller-limits.ts';

export interface Login {
  credential: string;
  /** Names under which failures are counted: the address, and the id of the key. */
  names: string[];
}

export interface LoginLimit {
  /**
   * Called before a credential is checked; waits if there were too many wrong credentials under its names.
   * @returns a function to call after the check
   * @throws {LimitError} if too many requests wait already
   */
  admit(login: Login): Promise<() => void>;
  succeeded(login: Login): void;
  /** Counts a wrong credential. @throws {LimitError} if the limit is exceeded */
  failed(login: Login): Promise<void>;
}

/** Maximum number of wrong credentials per minute of an address or key id, over all processes; people mistype less. */
export const MAX_FAILED_LOGINS = 30;
/** Above the limit of wrong credentials: how many of a name are checked at once, and how long each keeps its slot. */
const CHECKED_AT_ONCE = 4;
const PLACE_MS = 20;
/** Maximum number of requests of one address or key id whose credential is checked or waits for its check. */
const MAX_WAITING = 100;

/**
 * Counts wrong credentials by address and by key id; a right one costs no statement. Above the limit, credentials that
 * this process has not accepted before are checked at 200 a second, names in turn, so that one caller's guesses do not
 * lock out other callers behind the same address.
 */
export function createLoginLimit(points: number, counter: RateCounter): LoginLimit {
  const sentence = `There were more than ${points} wrong credentials in a minute.`;
  const failures = createRateLimit('wrong credentials per minute', points, counter, sentence);
  const right = new BoundedCache<true>();
  const places = new FairSemaphore(CHECKED_AT_ONCE);
  const waiting = new CallerCounts(MAX_WAITING);
  const findRefused = (names: string[]): { name: string; refusal: LimitError } | undefined => {
    for (const name of names) {
      const refusal = failures.refusal(name);
      if (refusal) return { name, refusal };
    }
    return undefined;
  };
  return {
    async admit({ names, credential }) {
      const refused = findRefused(names);
      if (!refused || right.has(toDigest(credential))) return () => undefined;
      const leave = waiting.take(refused.name);
      if (!leave) throw refused.refusal;
      const release = await places.acquire(refused.name);
      return () => {
        setTimeout(release, PLACE_MS).unref();
        leave();
      };
    },
    succeeded({ credential }) {
      const digest = toDigest(credential);
      if (!right.has(digest)) right.set(digest, true);
    },
    async failed({ names, credential }) {
      right.delete(toDigest(credential));
      const refused = findRefused(names);
      if (refused) throw refused.refusal;
      await Promise.all(names.map((name) => failures.use(name)));
    },
  };
}

const toDigest = (credential: string) => hash('sha256', credential, 'base64url');
