import { describe, expect, it } from 'vitest';
import { scanJson } from '../../../../../src/platform/http/validation/json-scan.ts';

const scan = (text: string, maxDepth = 64, maxValues = 1_000_000_000) =>
  scanJson(Buffer.from(text), { maxDepth, maxValues });

describe('scanJson', () => {
  it('finds the bracket that is one level too deep', () => {
    expect(scan('[[1]]', 2)).toEqual({ isTooDeep: false, hasTooMany: false, mayOverflow: false, members: 0 });
    expect(scan('[[[1]]]', 2)).toEqual({ isTooDeep: true, hasTooMany: false, mayOverflow: false, members: 0 });
    expect(scan('{"a":{"b":[]}}', 2)).toEqual({ isTooDeep: true, hasTooMany: false, mayOverflow: false, members: 2 });
  });

  it('counts open levels, not brackets', () => {
    expect(scan(`[${'[],{},'.repeat(1000)}1]`, 2).isTooDeep).toBe(false);
  });

  it('does not look into strings, whatever they escape', () => {
    const text = JSON.stringify(['[[[[', '{"\\', '\\\\"[[', '\\']);
    expect(scan(text, 1).isTooDeep).toBe(false);
    expect(scan(`${text.slice(0, -1)},[[]]]`, 2).isTooDeep).toBe(true);
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

  it.each([
    ['1', 1],
    ['[1,2,3]', 4],
    ['{"a":1,"b":[]}', 4],
    ['{"a,[{":"b,[{"}', 2],
    ['[[],[],{}]', 7],
  ])('%s has %s values at most', (text, values) => {
    expect(scan(text, 64, values).hasTooMany).toBe(false);
    expect(scan(text, 64, values - 1).hasTooMany).toBe(true);
  });

  it.each([
    ['{}', 0],
    ['{"a:":":","b":{"c":[1,{"c":2}]}}', 4],
    ['{"a":1,"a":1}', 2],
    ['":"', 0],
  ])('%s has %s members', (text, members) => {
    expect(scan(text).members).toBe(members);
  });

  it('takes ten million brackets and bytes that are not JSON', () => {
    expect(scan('['.repeat(10_000_000)).isTooDeep).toBe(true);
    expect(scan(']]]}"\\').isTooDeep).toBe(false);
  });
});
