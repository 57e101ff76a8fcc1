import { expect, test } from 'vitest';
import { findByPath } from '../../../src/core/json-path.ts';

const value = {
  a: { 'b c': [1, { d: 'x"y\\', e: null }, [2, 3]], 'ü\n': true },
  items: [{ id: 0 }, { id: 1 }, { id: 2 }],
  'a.b': '{"not":"looked into"}',
};

test.each([
  ['$', value],
  ['', value],
  ['a', value.a],
  ['a["b c"][1].d', 'x"y\\'],
  ["a['b c'][0]", 1],
  ['a["\\u00fc\\n"]', true],
  ['$.items[2].id', 2],
  ['items.1', { id: 1 }],
  ['items[1:]', [{ id: 1 }, { id: 2 }]],
  ['items[:1]', [{ id: 0 }]],
  ['items[1:9]', [{ id: 1 }, { id: 2 }]],
  ['items[7:9]', []],
  ['items[2:1]', []],
  ['["a.b"]', '{"not":"looked into"}'],
])('%s leads to its value, with and without white space', (path, expected) => {
  for (const space of [0, 2])
    expect(JSON.parse(findByPath(JSON.stringify(value, null, space), path))).toEqual(expected);
});

test.each([
  ['b', 'There is nothing at `b`.'],
  ['items[3]', 'There is nothing at `items[3]`.'],
  ['items.id', 'There is nothing at `items.id`.'],
  ['a[0:1]', 'There is no array at `a[0:1]`.'],
  ['items[0:1].id', 'Only the last step of a path may be a slice.'],
  ['items[*]', 'The path cannot be read at character 6. Write it as `items[0].name`.'],
  ['..id', 'The path cannot be read at character 1. Write it as `items[0].name`.'],
  ['a'.repeat(501), 'The path is longer than 500 characters.'],
  ['[0]'.repeat(33), 'The path has more than 32 steps.'],
])('%s is refused', (path, message) => {
  expect(() => findByPath(JSON.stringify(value), path)).toThrow(message);
});

test('text that is no JSON ends, whatever the path', () => {
  for (const text of ['', '{', '[', '{"a', '{"a"', '{"a":', '[[[[', '{"a":}', '[,,,]', '"', '{"items":[1,2'])
    for (const path of ['a', '[3]', '[1:5]', 'items[1]', 'items[5]'])
      try {
        expect(typeof findByPath(text, path)).toBe('string');
      } catch (error) {
        expect(String(error)).toMatch(/There is no/);
      }
});
