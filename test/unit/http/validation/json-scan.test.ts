import { describe, expect, it } from 'vitest';
import { scanJson, walkJson } from '../../../../src/http/validation/json-scan.ts';

const scan = (text: string, maxDepth = 64) => scanJson(Buffer.from(text), maxDepth);

describe('scanJson', () => {
  it('finds the bracket that is one level too deep', () => {
    expect(scan('[[1]]', 2)).toEqual({ tooDeepAt: undefined, mayOverflow: false });
    expect(scan('[[[1]]]', 2)).toEqual({ tooDeepAt: 2, mayOverflow: false });
    expect(scan('{"a":{"b":[]}}', 2)).toEqual({ tooDeepAt: 10, mayOverflow: false });
  });

  it('counts open levels, not brackets', () => {
    expect(scan(`[${'[],{},'.repeat(1000)}1]`, 2).tooDeepAt).toBeUndefined();
  });

  it('does not look into strings, whatever they escape', () => {
    const text = JSON.stringify(['[[[[', '{"\\', '\\\\"[[', '\\']);
    expect(scan(text, 1).tooDeepAt).toBeUndefined();
    expect(scan(`${text.slice(0, -1)},[[]]]`, 2).tooDeepAt).toBe(text.length + 1);
  });

  it.each([
    ['1e400', true],
    ['[1E5]', true],
    ['-1.5e+9', true],
    ['9'.repeat(400), true],
    ['9'.repeat(300), false],
    ['[true,false,null]', false],
    ['"1e400"', false],
    ['{"1e5":1}', false],
  ])('%s may overflow: %s', (text, mayOverflow) => {
    expect(scan(text).mayOverflow).toBe(mayOverflow);
  });

  it('takes ten million brackets and bytes that are not JSON', () => {
    expect(scan('['.repeat(10_000_000)).tooDeepAt).toBe(64);
    expect(scan(']]]}"\\').tooDeepAt).toBeUndefined();
  });
});

/** What CPython 3.11's json.loads says, position in UTF-16 units; trailing commas as 3.13 words them. */
const MISTAKES: [string, number, string][] = [
  ['', 0, 'Expecting value'],
  [' ', 1, 'Expecting value'],
  ['{', 1, 'Expecting property name enclosed in double quotes'],
  ['[', 1, 'Expecting value'],
  ['[1', 2, "Expecting ',' delimiter"],
  ['[1,', 3, 'Expecting value'],
  ['[1,]', 2, 'Illegal trailing comma before end of array'],
  ['{"a":1,}', 6, 'Illegal trailing comma before end of object'],
  ['{"a"', 4, "Expecting ':' delimiter"],
  ['{"a":', 5, 'Expecting value'],
  ['{"a":1', 6, "Expecting ',' delimiter"],
  ['{"a" 1}', 5, "Expecting ':' delimiter"],
  ['{a:1}', 1, 'Expecting property name enclosed in double quotes'],
  ["{'a':1}", 1, 'Expecting property name enclosed in double quotes'],
  ['[1 2]', 3, "Expecting ',' delimiter"],
  ['{"a":1 "b":2}', 7, "Expecting ',' delimiter"],
  ['1 2', 2, 'Extra data'],
  ['{} x', 3, 'Extra data'],
  ['"abc', 0, 'Unterminated string starting at'],
  ['"a\nb"', 2, 'Invalid control character at'],
  ['"\\x"', 1, 'Invalid \\escape'],
  ['"\\u12"', 2, 'Invalid \\uXXXX escape'],
  ['"\\u12zz"', 2, 'Invalid \\uXXXX escape'],
  ['"\\', 0, 'Unterminated string starting at'],
  ['nul', 0, 'Expecting value'],
  ['-', 0, 'Expecting value'],
  ['01', 1, 'Extra data'],
  ['1.', 1, 'Extra data'],
  ['1e', 1, 'Extra data'],
  ['.5', 0, 'Expecting value'],
  ['+1', 0, 'Expecting value'],
  ['[,1]', 1, 'Expecting value'],
  ['{,}', 1, 'Expecting property name enclosed in double quotes'],
  ['}', 0, 'Expecting value'],
  ['{"a":[1,{"b":}]}', 13, 'Expecting value'],
  ['[1}', 2, "Expecting ',' delimiter"],
  ['{"a":1]', 6, "Expecting ',' delimiter"],
  ['// c', 0, 'Expecting value'],
  ['\u00a01', 0, 'Expecting value'],
  ['{"k":"v', 5, 'Unterminated string starting at'],
];

describe('walkJson', () => {
  it.each(MISTAKES)('%j: mistake at %d: %s', (text, at, error) => {
    expect(() => JSON.parse(text)).toThrow(SyntaxError);
    expect(walkJson(text)).toMatchObject({ at, error });
  });

  it.each(['1', ' {} ', '[]', '{"a":[1,-0.5e9,"x\\u00e9\\n",true,false,null,{"b":{}}]}', '"\u2028"'])(
    '%s has none',
    (text) => {
      expect(walkJson(text)).toBeUndefined();
    },
  );

  it('says which keys lead to a place', () => {
    const text = '{"a":[0,{"b\\u0021":[[1],[2,x]]}]}';
    expect(walkJson(text)).toEqual({ at: text.indexOf('x'), error: 'Expecting value', path: ['a', 1, 'b!', 1, 1] });
    expect(walkJson(text, text.indexOf('[2'))).toEqual({
      at: text.indexOf('[2'),
      error: undefined,
      path: ['a', 1, 'b!', 1],
    });
  });

  it('needs no stack for a million levels', () => {
    const text = '['.repeat(1_000_000);
    expect(walkJson(text)).toMatchObject({ at: 1_000_000, error: 'Expecting value' });
  });
});
