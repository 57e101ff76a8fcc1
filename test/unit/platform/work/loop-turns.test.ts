import { setImmediate } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { LoopTurns } from '../../../../src/platform/work/loop-turns.ts';

/** Keeps the event loop for longer than new work may begin in one of its turns. */
function work() {
  for (const end = performance.now() + 3; performance.now() < end; );
}

test('work begins at once where there is time, and otherwise in later turns of the loop, owners in turn', async () => {
  const turns = new LoopTurns();
  const begun: string[] = [];
  const begin = (address: string, owner: string, name: string) =>
    turns.run(address, owner, () => {
      begun.push(name);
      work();
    });
  for (const name of ['a1', 'a2', 'a3']) begin('here', 'a', name);
  begin('here', 'b', 'b1');
  expect(begun).toEqual(['a1']);
  while (begun.length < 4) await setImmediate();
  expect(begun).toEqual(['a1', 'a2', 'b1', 'a3']);
  begin('here', 'a', 'a4');
  await setImmediate();
  await setImmediate();
  expect(begun.at(-1)).toBe('a4');
});

test('of those who wait one begins in a turn: what it does later in it is not seen', async () => {
  const turns = new LoopTurns();
  const begun: number[] = [];
  turns.run('here', 'a', work);
  for (const turn of [1, 2, 3]) turns.run('here', 'a', () => void begun.push(turn));
  const seen: number[] = [];
  while (begun.length < 3) {
    await setImmediate();
    seen.push(begun.length);
  }
  expect(seen.map((count, index) => count - (seen[index - 1] ?? 0)).filter((count) => count > 1)).toEqual([]);
});

test('whoever makes up many names at one address is not before another address', async () => {
  const turns = new LoopTurns();
  const begun: string[] = [];
  for (let name = 0; name < 20; name += 1)
    turns.run('attacker', `made up ${name}`, () => {
      begun.push('attacker');
      work();
    });
  turns.run('neighbour', 'real', () => begun.push('neighbour'));
  while (begun.length < 21) await setImmediate();
  expect(begun.indexOf('neighbour')).toBe(2);
});
