import { expect, test } from 'vitest';
import {
  cloneJson,
  hasExactIntegers,
  isExactInteger,
  mapExactIntegers,
  parseExactJson,
  toExactInteger,
  toRounded,
} from '../../../src/core/exact-json.ts';

test.each([
  '{"id":1234567890123456789}',
  '[9007199254740993,-9007199254740993,123456789012345678901234567890]',
  '{"a":{"b":[{"c":18446744073709551615}]},"text":"1234567890123456789"}',
  '9007199254740993',
  // A float holds it, and is written as 1152921504606847000.
  '1152921504606846976',
  '[1000000000000000000000]',
  `{"huge":${'9'.repeat(400)}}`,
])('comes back digit by digit: %s', (text) => {
  expect(JSON.stringify(parseExactJson(text))).toBe(text);
});

test.each([
  ['9007199254740991', 9007199254740991],
  ['9007199254740992', 9007199254740992],
  ['123456789012345680000', 123456789012345680000],
  ['1e30', 1e30],
  [`1${'0'.repeat(308)}`, 1e308],
  [`-125${'0'.repeat(298)}`, -1.25e300],
  ['0.12345678901234567890', 0.12345678901234568],
  ['1795200809.1234567890123456789', 1795200809.1234567],
])('a number that a float holds, or that is a float by its spelling, is a number: %s', (text, number) => {
  expect(parseExactJson(text)).toBe(number);
  expect(isExactInteger(parseExactJson(text))).toBe(false);
});

test('what is no JSON is refused as by JSON.parse', () => {
  expect(() => parseExactJson('{"id":1234567890123456789')).toThrow(SyntaxError);
  expect(() => parseExactJson('9'.repeat(1_001))).toThrow(SyntaxError);
});

test('keys are data: __proto__ is a member', () => {
  const value = parseExactJson('{"__proto__":{"id":1234567890123456789}}') as object;
  expect(Object.keys(value)).toEqual(['__proto__']);
  expect(JSON.stringify(mapExactIntegers(value, toRounded))).toBe('{"__proto__":{"id":1234567890123456800}}');
});

test('a value without exact integers is itself, another is copied', () => {
  const plain = { a: [1, { b: 'x' }] };
  expect(mapExactIntegers(plain, toRounded)).toBe(plain);
  const exact = { a: [toExactInteger('1234567890123456789'), toExactInteger('12')] };
  expect(mapExactIntegers(exact, ({ rawJSON }) => rawJSON)).toEqual({ a: ['1234567890123456789', 12] });
  expect(isExactInteger(exact.a[0])).toBe(true);
});

test('a copy of a value shares nothing with it and keeps its integers; a bigint becomes one', () => {
  const value = { a: [toExactInteger('1234567890123456789'), { b: null }], ['__proto__']: 1 };
  const copy = cloneJson(value);
  expect(JSON.stringify(copy)).toBe(JSON.stringify(value));
  expect(copy.a[1]).not.toBe(value.a[1]);
  expect(JSON.stringify(cloneJson([1n, 1234567890123456789n]))).toBe('[1,1234567890123456789]');
  expect([hasExactIntegers(value), hasExactIntegers([{ a: '1234567890123456789' }])]).toEqual([true, false]);
});
