import { expect, test } from 'vitest';
import { runWith } from '../../../../src/platform/context.ts';
import { type Pace, Shares } from '../../../../src/platform/work/fair-share.ts';
import { Turns } from '../../../../src/platform/db/turns.ts';

const newTurns = (pace: Partial<Pace>) =>
  new Turns({
    max: 4,
    maxShared: 2,
    pace: { isAlone: () => false, note: () => undefined, waitOf: () => 0, take: () => undefined, ...pace },
    timeoutMs: 60_000,
    timeoutMessage: 'too long',
  });
/** Takes a turn in the name of a caller and notes it. */
const taker = (turns: Turns, begun: string[]) => (caller: string, name: string) =>
  runWith({ caller }, async () => {
    const end = await turns.take();
    begun.push(name);
    return end;
  });
const settled = () => new Promise((resolve) => setImmediate(resolve));

test('whoever is alone has all turns', async () => {
  const begun: string[] = [];
  const take = taker(newTurns({ isAlone: () => true, waitOf: () => 1e9 }), begun);
  await Promise.all([1, 2, 3, 4].map((place) => take('only', `o${place}`)));
  expect(begun).toEqual(['o1', 'o2', 'o3', 'o4']);
});

test('beside others a caller has its share, and the rest stays free for them', async () => {
  const begun: string[] = [];
  const turns = newTurns({});
  const take = taker(turns, begun);
  const ends = [1, 2, 3].map((place) => take('one', `a${place}`));
  await settled();
  expect(begun).toEqual(['a1', 'a2']);
  await take('other', 'b1');
  await turns.take();
  expect(begun).toEqual(['a1', 'a2', 'b1']);
  expect(turns.waiting).toBe(1);
  (await ends[0])?.();
  await ends[2];
  expect(begun).toEqual(['a1', 'a2', 'b1', 'a3']);
});

test('what the first of many turns out to cost holds up the others, though they came before it was known', async () => {
  const shares = new Shares();
  let now = 10_000;
  const begun: string[] = [];
  const turns = newTurns({
    isAlone: (caller) => shares.isAlone(caller, now),
    note: (caller) => shares.note(caller, now),
    waitOf: (caller) => shares.waitOf(caller, now),
    take: (caller) => shares.take(caller, now),
  });
  const take = taker(turns, begun);
  const neighbour = await take('neighbour', 'n1');
  neighbour();
  const ends = [1, 2, 3].map((place) => take('greedy', `g${place}`));
  await settled();
  expect(begun).toEqual(['n1', 'g1', 'g2']);
  shares.charge('greedy', 10_000_000, now);
  (await ends[0])?.();
  (await ends[1])?.();
  await settled();
  expect([begun.length, turns.waiting]).toEqual([3, 1]);
  // The neighbour is let in meanwhile, and a timer lets in who waits once the time has come.
  (await take('neighbour', 'n2'))();
  now += 600;
  await ends[2];
  expect(begun).toEqual(['n1', 'g1', 'g2', 'n2', 'g3']);
});

test('whoever waits for the share while others leave waits no longer than until the next look', async () => {
  let isAlone = false;
  const begun: string[] = [];
  const take = taker(newTurns({ isAlone: () => isAlone, waitOf: () => 1e9 }), begun);
  const waiting = take('one', 'a1');
  await settled();
  expect(begun).toEqual([]);
  isAlone = true;
  await waiting;
  expect(begun).toEqual(['a1']);
});
