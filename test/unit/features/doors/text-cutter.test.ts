import { expect, test } from 'vitest';
import type { Part } from '../../../../src/core/content.ts';
import { type Piece, TextCutter } from '../../../../src/features/doors/text-cutter.ts';

const whole = (parts: Part[]): Piece[] => [...new TextCutter().finish({ role: 'model', parts })];
const textOf = (pieces: Piece[]) => pieces.map(({ text }) => text).join('');

/** A small generator of its own: a failure names its seed. */
function random(seed: number) {
  let state = seed;
  return (below: number) => {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
    return Math.floor((state / 2_147_483_648) * below);
  };
}

test.each(Array.from({ length: 200 }, (_, seed) => seed + 1))(
  'the pieces do not depend on how text came (%i)',
  (seed) => {
    const next = random(seed);
    const letters = ['a', 'word', ' ', '\n', '😀', 'é', 'x'.repeat(70), '. '];
    const parts: Part[] = Array.from({ length: 1 + next(4) }, () => ({
      text: Array.from({ length: next(60) }, () => letters[next(letters.length)]).join(''),
      ...(next(2) === 0 ? { thought: true } : {}),
    }));
    const expected = whole(parts);
    const cutter = new TextCutter();
    const pieces: Piece[] = [];
    for (const part of parts) {
      for (let at = 0; at < (part.text ?? '').length; ) {
        const end = at + 1 + next(50);
        pieces.push(...cutter.add({ parts: [{ ...part, text: part.text?.slice(at, end) }] }));
        at = end;
      }
    }
    const call = { functionCall: { id: '1', name: 'tool', args: {} } };
    expect(cutter.isBeginningOf({ parts: [call, ...parts] })).toBe(true);
    pieces.push(...cutter.finish({ parts: [call, ...parts] }));
    expect(pieces).toEqual(expected);
    expect(textOf(pieces)).toBe(parts.map(({ text }) => text).join(''));
    expect(pieces.map(({ number }) => number)).toEqual(pieces.map((_, place) => place + 1));
    for (const { text } of pieces) {
      expect(text.length).toBeLessThanOrEqual(64);
      expect(text.isWellFormed()).toBe(true);
    }
  },
);

test('text that the whole event does not begin with is none of it', () => {
  const cutter = new TextCutter();
  expect(textOf([...cutter.add({ parts: [{ text: 'Once upon a time there was ' }] })])).toBe('Once upon a time ');
  expect(cutter.isBeginningOf({ parts: [{ text: 'Once upon a time there was a king.' }] })).toBe(true);
  expect(cutter.isBeginningOf({ parts: [{ text: 'Once upon a time' }] })).toBe(false);
  expect(cutter.isBeginningOf({ parts: [{ text: 'Once upon a time there was a king.', thought: true }] })).toBe(false);
  expect(cutter.isBeginningOf(undefined)).toBe(false);
});

test('no piece has half a character', () => {
  for (let before = 60; before < 66; before += 1) {
    const text = `${'a'.repeat(before)}😀${'b'.repeat(80)}`;
    const pieces = [...new TextCutter().finish({ parts: [{ text }] })].map((piece) => piece.text);
    expect(pieces.filter((piece) => !piece.isWellFormed())).toEqual([]);
    expect(pieces.join('')).toBe(text);
  }
});

test('the first pieces of each text are short, later ones longer', () => {
  const text = 'One two three four five six seven eight nine ten eleven twelve.';
  const pieces = whole([{ text, thought: true }, { text }]).map((piece) => piece.text);
  const expected = ['One two ', 'three ', 'four five six seven ', 'eight nine ten eleven ', 'twelve.'];
  expect(pieces).toEqual([...expected, ...expected]);
  expect(textOf([...new TextCutter().add({ parts: [{ text: 'Hello everybody' }] })])).toBe('Hello ');
});
