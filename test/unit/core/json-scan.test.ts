import { describe, expect, it } from 'vitest';
import { JsonScan } from '../../../src/core/json-scan.ts';

const scan = (text: string, depth = 64, values = 1_000_000_000) =>
  new JsonScan({ depth, values }).add(Buffer.from(text));

describe('JsonScan', () => {
  it('finds the bracket that is one level too deep', () => {
    expect(scan('[[1]]', 2)).toMatchObject({ excess: undefined, mayOverflow: false, members: 0 });
    expect(scan('[[[1]]]', 2)).toMatchObject({ excess: 'depth', mayOverflow: false, members: 0 });
    expect(scan('{"a":{"b":[]}}', 2)).toMatchObject({ excess: 'depth', mayOverflow: false, members: 2 });
  });

  it('counts open levels, not brackets', () => {
    expect(scan(`[${'[],{},'.repeat(1000)}1]`, 2).excess).toBeUndefined();
  });

  it('does not look into strings, whatever they escape', () => {
    const text = JSON.stringify(['[[[[', '{"\\', '\\\\"[[', '\\']);
    expect(scan(text, 1).excess).toBeUndefined();
    expect(scan(`${text.slice(0, -1)},[[]]]`, 2).excess).toBe('depth');
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
    ['[1,2,3]', 4],
    ['{"a":1,"b":[]}', 4],
    ['{"a,[{":"b,[{"}', 2],
    ['[[],[],{}]', 7],
  ])('%s has %s values at most', (text, values) => {
    expect(scan(text, 64, values).excess).toBeUndefined();
    expect(scan(text, 64, values - 1).excess).toBe('values');
  });

  it.each([
    ['{}', 0],
    ['{"a:":":","b":{"c":[1,{"c":2}]}}', 4],
    ['{"a":1,"a":1}', 2],
    ['":"', 0],
  ])('%s has %s members', (text, members) => {
    expect(scan(text).members).toBe(members);
  });

  it.each(['{"a:":":","b":{"c":[1,{"c":2}]}}', '["\\\\","\\"[[[[",{"a":[1e5]}]', '[[],[],{}]'])(
    'finds the same in %s, in whatever pieces it comes',
    (text) => {
      const { excess, members, elements, mayOverflow } = scan(text, 3);
      for (let size = 1; size < text.length; size += 1) {
        const pieces = new JsonScan({ depth: 3, values: 1_000 });
        for (let at = 0; at < text.length; at += size) pieces.add(Buffer.from(text).subarray(at, at + size));
        expect(pieces).toMatchObject({ excess, members, elements, mayOverflow });
      }
    },
  );

  it('counts the elements of the outermost value, and no level that closes nothing', () => {
    expect(scan('[{"a":1,"b":2},[1,2],3]').elements).toBe(3);
    expect(scan(']]]]]][[[', 2).excess).toBe('depth');
  });

  it('takes ten million brackets and bytes that are not JSON', () => {
    expect(scan('['.repeat(10_000_000)).excess).toBe('depth');
    expect(scan(']]]}"\\').excess).toBeUndefined();
  });
});
