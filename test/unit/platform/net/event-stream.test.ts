import fc from 'fast-check';
import { expect, test } from 'vitest';
import { mapEvents } from '../../../../src/platform/net/event-stream.ts';

async function mapped(pieces: string[]): Promise<string> {
  async function* text() {
    yield* pieces;
  }
  const toData = (data: string) => (data.includes('end') ? undefined : data.includes('drop') ? [] : [`${data}!`]);
  let all = '';
  for await (const piece of mapEvents(text(), toData, () => ['last'])) all += piece;
  return all;
}

test('events are rewritten, dropped and ended; all else passes', async () => {
  expect(await mapped([': hi\ndata: a\ndata:b\n\ndata: drop\n\nevent: x\r\ndata: c\r\r'])).toBe(
    ': hi\ndata: a\nb!\n\n\nevent: x\ndata: c!\n\ndata: last\n\n',
  );
  expect(await mapped(['data: a\n\ndata: end\n\ndata: b\n\n'])).toBe('data: a!\n\n\n');
});

test('it does not matter in which pieces a stream comes', () => {
  const part = fc.constantFrom('data: a', 'data:b', 'data', 'event: x', ': c', 'drop', '\n', '\n', '\r', '\r\n');
  const pieces = fc.array(fc.array(part, { maxLength: 4 }).map((parts) => parts.join('')));
  return fc.assert(
    fc.asyncProperty(pieces, async (cut) => {
      expect(await mapped(cut)).toBe(await mapped([cut.join('')]));
    }),
    { numRuns: 500 },
  );
});
