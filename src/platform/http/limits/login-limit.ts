import { createHash } from 'node:crypto';
import type { LimitError } from '../../../core/errors.ts';
import { BoundedCache } from '../../work/bounded-cache.ts';
import { CallerCounts, FairSemaphore } from '../../work/fair-semaphore.ts';
import { createRateLimit, type RateCounter } from './rates.ts';

export interface Login {
  credential: string;
  /** Failures are counted by these names: the address, the id of the key. */
  names: string[];
}

/** How often a credential may be wrong. */
export interface LoginLimit {
  /**
   * Comes before a credential is checked, and waits if there were too many wrong ones.
   * @returns a function to call after the check @throws {LimitError} if too many wait already
   */
  admit(login: Login): Promise<() => void>;
  succeeded(login: Login): void;
  /** @throws {LimitError} if that is one too many */
  failed(login: Login): Promise<void>;
}

/** Wrong credentials in a minute, in all processes, from one address and for one key id: more than people mistype. */
export const MAX_FAILED_LOGINS = 30;
/** After too many wrong ones of a name: the number that is checked at once, and the time that each keeps its place. */
const CHECKED_AT_ONCE = 4;
const PLACE_MS = 20;
/** Maximum of one name that are checked or wait for it. */
const MAX_WAITING = 100;

/**
 * Counts wrong credentials by address and by key id. Only a wrong one costs a statement. At the limit, wrong ones are
 * refused, and credentials that were not right in this process before are checked at 200 a second, all names in turn.
 * So a neighbour's guesses shut out no other caller.
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

const toDigest = (credential: string) => createHash('sha256').update(credential).digest('base64url');
