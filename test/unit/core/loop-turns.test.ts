import { setImmediate } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { LoopTurns } from '../../../src/core/loop-turns.ts';

/** Keeps the event loop for longer than new work may begin in one of its turns. */
function work() {
  for (const end = performance.now() + 3; performance.now() < end; );
}

test('work begins at once where there is time, and otherwise in later turns of the loop, owners in turn', async () => {
  const turns = new LoopTurns();
  const begun: string[] = [];
  const begin = (owner: string, name: string) =>
    turns.run(owner, () => {
      begun.push(name);
      work();
    });
  for (const name of ['a1', 'a2', 'a3']) begin('a', name);
  begin('b', 'b1');
  expect(begun).toEqual(['a1']);
  while (begun.length < 4) await setImmediate();
  expect(begun).toEqual(['a1', 'a2', 'b1', 'a3']);
  begin('a', 'a4');
  await setImmediate();
  await setImmediate();
  expect(begun.at(-1)).toBe('a4');
});
