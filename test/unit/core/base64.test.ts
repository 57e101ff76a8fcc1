import { expect, test } from 'vitest';
import { base64Error } from '../../../src/core/base64.ts';

/** What pydantic 2.14 says of these texts, recorded; 20,000 random ones agreed too. */
const REFUSED: [text: string, error: string][] = [
  ['A', 'Invalid input length: 1'],
  ['AAAAA', 'Invalid input length: 5'],
  ['+AAAA', 'Invalid input length: 5'],
  ['***', 'Invalid symbol 42, offset 0.'],
  ['a b=', 'Invalid symbol 32, offset 1.'],
  ['AAAA\n', 'Invalid symbol 10, offset 4.'],
  ['-_+/', 'Invalid symbol 45, offset 0.'],
  ['é', 'Invalid symbol 195, offset 0.'],
  ['+é', 'Invalid symbol 195, offset 1.'],
  ['AAAA*****', 'Invalid symbol 42, offset 8.'],
  ['A****', 'Invalid symbol 42, offset 4.'],
  ['=', 'Invalid symbol 61, offset 0.'],
  ['====', 'Invalid symbol 61, offset 0.'],
  ['A=', 'Invalid symbol 61, offset 1.'],
  ['A===', 'Invalid symbol 61, offset 1.'],
  ['AAAA=', 'Invalid symbol 61, offset 4.'],
  ['AAA==', 'Invalid symbol 61, offset 3.'],
  ['AA=A', 'Invalid symbol 61, offset 2.'],
  ['AAAA=AAA', 'Invalid symbol 61, offset 4.'],
  ['AB', "Invalid last symbol 0x42 ('B') at offset 1, decoded as 0b00000001."],
  ['AB==', "Invalid last symbol 0x42 ('B') at offset 1, decoded as 0b00000001."],
  ['AAB', "Invalid last symbol 0x42 ('B') at offset 2, decoded as 0b00000001."],
  ['A-==', "Invalid last symbol 0x2d ('-') at offset 1, decoded as 0b00111110."],
  ['A+', "Invalid last symbol 0x2b ('+') at offset 1, decoded as 0b00111110."],
];

test.each(['', 'AA', 'AAA', 'AAAA', 'AA=', 'AA==', 'AAA=', '+/8=', '-_8=', '-_8', '+/8', 'AAAAAAA='])(
  '%j is base64',
  (text) => {
    expect(base64Error(text)).toBeUndefined();
  },
);

test.each(REFUSED)('%j is not: %s', (text, error) => {
  expect(base64Error(text)).toBe(error);
});

test('a wrong symbol is found behind groups that are right', () => {
  const text = 'AAAA'.repeat(1000);
  expect(base64Error(`${text}AA==`)).toBeUndefined();
  expect(base64Error(`${text}A===`)).toBe('Invalid symbol 61, offset 4001.');
  expect(base64Error(`-${text}AA/`)).toBe('Invalid symbol 45, offset 0.');
});
