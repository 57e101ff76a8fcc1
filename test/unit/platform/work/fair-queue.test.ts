import { expect, test } from 'vitest';
import { FairQueue } from '../../../../src/platform/work/fair-queue.ts';

test('owners are served in turn, and what one owner has in its order', () => {
  const queue = new FairQueue<string>();
  for (const item of ['a1', 'a2', 'a3']) queue.push('a', item);
  queue.push('b', 'b1');
  const served = [queue.shift()];
  queue.push('c', 'c1');
  queue.push('b', 'b2');
  while (!queue.isEmpty) served.push(queue.shift());
  expect(served).toEqual(['a1', 'b1', 'a2', 'c1', 'b2', 'a3']);
  expect(queue.shift()).toBeUndefined();
  queue.push('a', 'a4');
  queue.push('b', 'b3');
  expect([queue.shift((owner) => owner !== 'a'), queue.shift(() => false), queue.shift()]).toEqual([
    'b3',
    undefined,
    'a4',
  ]);
});
