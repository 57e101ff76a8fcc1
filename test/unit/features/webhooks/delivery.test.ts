import { expect, test } from 'vitest';
import { retryPauseMs } from '../../../../src/features/webhooks/delivery.ts';

const DAY_MS = 86_400_000;
/** How many attempts come within a day, when every pause is as long, or as short, as chance can make it. */
const attemptsInADay = (random: number): number => {
  let [attempts, at] = [1, 0];
  while ((at += retryPauseMs(attempts, () => random)) <= DAY_MS) attempts++;
  return attempts;
};

test('each pause is twice the one before, up to four hours, shortened at random by up to a half', () => {
  const longest = Array.from({ length: 14 }, (_, n) => retryPauseMs(n + 1, () => 1));
  expect(longest.slice(0, 4)).toEqual([5_000, 10_000, 20_000, 40_000]);
  expect(longest.slice(-2)).toEqual([14_400_000, 14_400_000]);
  expect(longest.map((_, n) => retryPauseMs(n + 1, () => 0))).toEqual(longest.map((ms) => ms / 2));
  for (let n = 0; n < 100; n++) {
    const pause = retryPauseMs(3);
    expect(pause >= 10_000 && pause <= 20_000).toBe(true);
  }
});

test('a day has between 17 and 23 attempts', () => {
  expect([attemptsInADay(1), attemptsInADay(0)]).toEqual([17, 23]);
});
