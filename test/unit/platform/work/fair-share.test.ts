import { expect, test } from 'vitest';
import { Shares } from '../../../../src/platform/work/fair-share.ts';

/** The time of a test's beginning, milliseconds. */
const T = 10_000;

/** Wants a statement. @returns how long it has to wait for it; where it has not, the statement is taken */
function want(shares: Shares, caller: string, now: number): number {
  shares.note(caller, now);
  const waitMs = shares.waitOf(caller, now);
  if (waitMs === 0) shares.take(caller, now);
  return waitMs;
}

test('whoever is alone waits for nothing, however much it does', () => {
  const shares = new Shares();
  expect([want(shares, 'only', T), shares.isAlone('only', T)]).toEqual([0, true]);
  shares.charge('only', 1e9, T);
  expect(Array.from({ length: 100 }, () => want(shares, 'only', T))).toEqual(Array(100).fill(0));
});

test('beside others, whoever has moved much waits, and they do not', () => {
  const shares = new Shares();
  want(shares, 'greedy', T);
  expect([want(shares, 'modest', T), shares.isAlone('greedy', T), shares.isAlone('modest', T)]).toEqual([
    0,
    false,
    false,
  ]);
  shares.charge('greedy', 8_000_000, T);
  // 8 MB are 400 ms, less what one may do at once.
  expect([want(shares, 'greedy', T), want(shares, 'modest', T)]).toEqual([385, 0]);
  shares.charge('greedy', 1e9, T);
  // The next one is not held up for longer, whatever was done before.
  expect(want(shares, 'greedy', T)).toBe(1_000);
});

test('a caller has a statement for every 3 ms, and some at once that has done nothing before', () => {
  const shares = new Shares();
  want(shares, 'neighbour', T);
  expect(Array.from({ length: 8 }, () => want(shares, 'busy', T))).toEqual([0, 0, 0, 0, 0, 0, 3, 3]);
  expect([want(shares, 'busy', T + 3), want(shares, 'busy', T + 4)]).toEqual([0, 2]);
});

test('whoever has done nothing for a second is not there, and what was done alone does not count', () => {
  const shares = new Shares();
  want(shares, 'neighbour', T);
  want(shares, 'busy', T + 999);
  expect(shares.isAlone('busy', T + 999)).toBe(false);
  shares.charge('busy', 8_000_000, T + 999);
  expect([shares.isAlone('busy', T + 1_000), want(shares, 'busy', T + 1_000)]).toEqual([true, 0]);
  want(shares, 'neighbour', T + 1_001);
  expect(want(shares, 'busy', T + 1_001)).toBe(0);
});
