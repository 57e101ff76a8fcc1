import { setImmediate } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { createRateLimit } from '../../../../../src/platform/http/limits/caller-limits.ts';

const later = () => performance.now() + 60_000;

test('uses that wait for the counter at the same time share one statement', async () => {
  const counted = Promise.withResolvers<{ isOver: boolean; until: number }>();
  let statements = 0;
  const take = () => {
    statements += 1;
    return counted.promise;
  };
  const limit = createRateLimit('MAX_READS_PER_MINUTE', 200, { take });
  const uses = Array.from({ length: 5 }, () => limit.use('busy'));
  counted.resolve({ isOver: false, until: later() });
  await Promise.all(uses);
  expect(statements).toBe(1);
});

test('more than a batch who wait at once are all counted, and those beyond the limit refused', async () => {
  let left = 40;
  const limit = createRateLimit('MAX_READS_PER_MINUTE', 40, {
    take: async (_caller, points) => ({ isOver: (left -= points) < 0, until: later() }),
  });
  const ends = await Promise.allSettled(Array.from({ length: 50 }, () => limit.use('busy')));
  expect(ends.map(({ status }) => status === 'fulfilled')).toEqual([...Array(40).fill(true), ...Array(10).fill(false)]);
});

test('a counter that fails is a failure of all who wait, and of nobody later', async () => {
  let fails = true;
  const limit = createRateLimit('MAX_READS_PER_MINUTE', 200, {
    take: async () => {
      if (fails) throw new Error('away');
      return { isOver: false, until: later() };
    },
  });
  const ends = await Promise.allSettled([limit.use('busy'), limit.use('busy')]);
  expect(ends.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
  await setImmediate();
  fails = false;
  expect(await limit.use('busy')).toBeUndefined();
});
