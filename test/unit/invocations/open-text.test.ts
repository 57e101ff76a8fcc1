import { expect, test } from 'vitest';
import type { Delta } from '../../../src/conversation/sessions/delta-store.ts';
import { OpenText } from '../../../src/invocations/follow.ts';

const upTo = (last: number): Delta[] =>
  Array.from({ length: last }, (_, place) => ({ number: place + 1, text: `word ${place + 1}`, eventId: 'e1' }));

test('a read that is older than the one before brings nothing, and nothing comes twice behind it', () => {
  const open = new OpenText(0);
  const numbers = [3, 1, 4].map((last) => open.take(upTo(last)).map(({ number }) => number));
  expect(numbers).toEqual([[1, 2, 3], [], [4]]);
});

test('a reader that goes on at a server that is behind has nothing twice', () => {
  const open = new OpenText(3);
  expect(open.matches(upTo(2))).toBe(true);
  const numbers = [2, 4].map((last) => open.take(upTo(last)).map(({ number }) => number));
  expect(numbers).toEqual([[], [4]]);
});
