import { expect, test } from 'vitest';
import { Shares } from '../../../src/core/fair-share.ts';

/** The time of a test's beginning, milliseconds. */
const T = 10_000;

test('whoever is alone waits for nothing, however much it does', () => {
  const shares = new Shares();
  expect([shares.take('only', T), shares.isAlone('only', T)]).toEqual([0, true]);
  shares.charge('only', 1e9, T);
  expect(Array.from({ length: 100 }, () => shares.take('only', T))).toEqual(Array(100).fill(0));
});

test('beside others, whoever has moved much waits, and they do not', () => {
  const shares = new Shares();
  shares.take('greedy', T);
  expect([shares.take('modest', T), shares.isAlone('greedy', T), shares.isAlone('modest', T)]).toEqual([
    0,
    false,
    false,
  ]);
  shares.charge('greedy', 8_000_000, T);
  // 8 MB are 400 ms, less what one may do at once.
  expect([shares.take('greedy', T), shares.take('modest', T)]).toEqual([385, 0]);
  shares.charge('greedy', 1e9, T);
  // No request is held up for longer, whatever was done before.
  expect(shares.take('greedy', T)).toBe(1_000);
});

test('a caller has a statement for every 3 ms, and some at once that has done nothing before', () => {
  const shares = new Shares();
  shares.take('neighbour', T);
  expect(Array.from({ length: 10 }, () => shares.take('busy', T))).toEqual([0, 0, 0, 0, 0, 0, 3, 6, 9, 12]);
  expect(shares.take('busy', T + 15)).toBe(0);
});

test('whoever has done nothing for a second is not there, and what was done alone does not count', () => {
  const shares = new Shares();
  shares.take('neighbour', T);
  shares.take('busy', T + 999);
  expect(shares.isAlone('busy', T + 999)).toBe(false);
  shares.charge('busy', 8_000_000, T + 999);
  expect([shares.isAlone('busy', T + 1_000), shares.take('busy', T + 1_000)]).toEqual([true, 0]);
  shares.take('neighbour', T + 1_001);
  expect(shares.take('busy', T + 1_001)).toBe(0);
});
