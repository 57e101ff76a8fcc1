import { expect, test } from 'vitest';
import { asCaller } from '../../../src/core/caller.ts';
import { Turns } from '../../../src/db/turns.ts';

const newTurns = (isAlone: boolean) =>
  new Turns({ max: 4, maxShared: 2, isAlone: () => isAlone, timeoutMs: 60_000, timeoutMessage: 'too long' });
/** Takes a turn in the name of a caller and notes it. */
const taker = (turns: Turns, begun: string[]) => (caller: string, name: string) =>
  asCaller(caller, async () => {
    const end = await turns.take();
    begun.push(name);
    return end;
  });
const settled = () => new Promise((resolve) => setImmediate(resolve));

test('whoever is alone has all turns', async () => {
  const begun: string[] = [];
  const take = taker(newTurns(true), begun);
  await Promise.all([1, 2, 3, 4].map((place) => take('only', `o${place}`)));
  expect(begun).toEqual(['o1', 'o2', 'o3', 'o4']);
});

test('beside others a caller has its share, and the rest stays free for them', async () => {
  const begun: string[] = [];
  const turns = newTurns(false);
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
