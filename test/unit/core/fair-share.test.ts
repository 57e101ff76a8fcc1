import { expect, test } from 'vitest';
import { chargeShare, isAlone, waitForShare } from '../../../src/core/fair-share.ts';

/** Time that a caller waits for a statement, milliseconds. */
async function waited(caller: string | undefined): Promise<number> {
  const startedAt = performance.now();
  await waitForShare(caller);
  return performance.now() - startedAt;
}

test('whoever is alone waits for nothing; beside others, whoever has moved much waits', async () => {
  await waitForShare('greedy');
  expect(isAlone('greedy')).toBe(true);
  chargeShare('greedy', 1e9);
  expect(await waited('greedy')).toBeLessThan(200);

  await waitForShare('modest');
  expect([isAlone('greedy'), isAlone('modest')]).toEqual([false, false]);
  chargeShare('greedy', 8_000_000);
  // 8 MB are 400 ms, less what one may do at once.
  expect(await waited('greedy')).toBeGreaterThan(300);
  expect(await waited('modest')).toBeLessThan(200);
});

test('many statements of one caller at once are spread over time, those of the process itself are not', async () => {
  await waitForShare('neighbour');
  const startedAt = performance.now();
  await Promise.all(Array.from({ length: 60 }, () => waitForShare('busy')));
  // 60 statements of 3 ms each, less what one may do at once.
  expect(performance.now() - startedAt).toBeGreaterThan(120);
  await Promise.all(Array.from({ length: 60 }, () => waitForShare(undefined)));
  expect(isAlone('busy')).toBe(false);
});
