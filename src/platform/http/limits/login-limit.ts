import { createHash } from 'node:crypto';
import { LimitError } from '../../../core/errors.ts';
import { BoundedCache } from '../../work/bounded-cache.ts';
import { type RateCounter, secondsUntil } from './rates.ts';

/** A credential on its way in. */
export interface Login {
  credential: string;
  /** The names whose failures it counts with: its address, the id of its key. */
  names: string[];
}

/** How often a credential may be wrong. */
export interface LoginLimit {
  /** Comes before a credential is checked. @throws {LimitError} where there were too many wrong ones */
  check(login: Login): void;
  succeeded(login: Login): void;
  /** Counts a wrong one. @throws {LimitError} where that is one too many */
  failed(login: Login): Promise<void>;
}

const LIMIT = 'MAX_FAILED_LOGINS_PER_MINUTE';

/**
 * Counts wrong credentials by address and by key id. Only a wrong one costs a statement. At the limit a credential is
 * refused unchecked, unless it was right in this process before: a neighbour's guesses shut out no other caller.
 */
export function createLoginLimit(points: number, counter: RateCounter): LoginLimit {
  const blocked = new BoundedCache<number>();
  const right = new BoundedCache<true>();
  const isBlocked = (key: string) => (blocked.get(key) ?? 0) > performance.now();
  return {
    check({ names, credential }) {
      const name = names.find(isBlocked);
      if (name !== undefined && !right.has(toDigest(credential))) throw overLimit(points, blocked.get(name) ?? 0);
    },
    succeeded({ credential }) {
      const digest = toDigest(credential);
      if (!right.has(digest)) right.set(digest, true);
    },
    async failed({ names, credential }) {
      right.delete(toDigest(credential));
      const results = await Promise.all(
        names.map(async (name) => {
          const { isOver, until } = await counter.take(name, 1);
          if (isOver) blocked.set(name, until);
          return { isOver, until };
        }),
      );
      const over = results.find(({ isOver }) => isOver);
      if (over) throw overLimit(points, over.until);
    },
  };
}

const toDigest = (credential: string) => createHash('sha256').update(credential).digest('base64url');

const overLimit = (points: number, until: number) => {
  const seconds = secondsUntil(until);
  return new LimitError(
    LIMIT,
    `There were more than ${points} wrong credentials in a minute: ${LIMIT}. Try again in ${seconds} s.`,
    seconds,
  );
};
