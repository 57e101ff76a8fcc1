import { expect, test } from 'vitest';
import { type Message, toNewest } from '../../../../src/features/doors/ag-ui/messages.ts';

/** A snapshot of a thread is one frame: it has the newest messages. */

const say = (id: number, content = 'x'): Message => ({ id: `m${id}`, role: 'user', content });
const answer = (id: number): Message => ({ id: `t${id}`, role: 'tool', toolCallId: 'c', content: 'x' });
const idsOf = (messages: Message[]) => toNewest(messages).newest.map(({ id }) => id);

test('a small thread is whole', () => {
  const messages = [say(1), answer(1), say(2)];
  expect(toNewest(messages)).toEqual({ newest: messages, omitted: 0 });
  expect(toNewest([])).toEqual({ newest: [], omitted: 0 });
});

test('at most 1,000 messages', () => {
  const messages = Array.from({ length: 1_500 }, (_, place) => say(place));
  expect(toNewest(messages)).toEqual({ newest: messages.slice(500), omitted: 500 });
});

test('at most so many characters, but for the last message', () => {
  const large = 'x'.repeat(3_000_000);
  expect(idsOf([say(1, large), say(2, large), say(3)])).toEqual(['m2', 'm3']);
  expect(toNewest([say(1), say(2, large.repeat(2))])).toMatchObject({ newest: [{ id: 'm2' }], omitted: 1 });
});

test('does not begin with the answer to a call that it leaves out', () => {
  const messages = Array.from({ length: 1_200 }, (_, place) => (place < 300 ? answer(place) : say(place)));
  expect(idsOf(messages)[0]).toBe('m300');
});
