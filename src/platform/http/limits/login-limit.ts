import { createHash } from 'node:crypto';
import { LimitError } from '../../../core/errors.ts';
import { BoundedCache } from '../../work/bounded-cache.ts';
import type { LoginLimit } from '../operation/request-limits.ts';
import { type RateCounter, secondsUntil } from './rates.ts';

const LIMIT = 'MAX_FAILED_LOGINS_PER_MINUTE';

/**
 * Wrong credentials by address and by key id. Only a wrong one costs a statement; who is over is refused without a
 * look at what is sent, unless that was right in this process before: nobody is shut out by a neighbour's guesses.
 */
export function createLoginLimit(points: number, counter: RateCounter): LoginLimit {
  const blocked = new BoundedCache<number>();
  const right = new BoundedCache<true>();
  const isBlocked = (key: string) => (blocked.get(key) ?? 0) > performance.now();
  return {
    check({ names, credential }) {
      const name = names.find(isBlocked);
      if (name !== undefined && !right.has(digestOf(credential))) throw overLimit(points, blocked.get(name) ?? 0);
    },
    succeeded({ credential }) {
      const digest = digestOf(credential);
      if (!right.has(digest)) right.set(digest, true);
    },
    async failed({ names, credential }) {
      right.delete(digestOf(credential));
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

const digestOf = (credential: string) => createHash('sha256').update(credential).digest('base64url');

const overLimit = (points: number, until: number) => {
  const seconds = secondsUntil(until);
  return new LimitError(
    LIMIT,
    `There were more than ${points} wrong credentials in a minute: ${LIMIT}. Try again in ${seconds} s.`,
    seconds,
  );
};
