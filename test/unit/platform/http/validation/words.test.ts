import { describe, expect, test } from 'vitest';
import { textFormat } from '../../../../../src/core/text-format.ts';
import { explain, type JsonSchema } from '../../../../../src/platform/http/validation/words.ts';

const DEFINITIONS: Record<string, JsonSchema> = {
  tree: { type: 'object', properties: { name: { type: 'string' }, below: { type: 'array', items: { $ref: 'tree' } } } },
};
const resolve = (schema: JsonSchema) => DEFINITIONS[String(schema['$ref'])] ?? schema;
const mistakes = (schema: JsonSchema, value: unknown, most = 100) =>
  explain(schema, value, resolve, most).map(({ path, words }) => [path.join('.'), words.type]);

const text: JsonSchema = { type: 'string' };
const constant = (value: unknown): JsonSchema => ({ type: 'string', const: value });
const object = (properties: Record<string, JsonSchema>, required = Object.keys(properties)): JsonSchema => ({
  type: 'object',
  properties,
  required,
});

describe('of a union, the branch is explained that was meant', () => {
  const tagged: JsonSchema = {
    oneOf: [
      object({ type: constant('once'), at: text }),
      object({ type: { type: 'string', enum: ['hourly', 'daily'] }, minute: { type: 'integer' } }),
    ],
  };
  const mixed: JsonSchema = { anyOf: [{ type: 'string', enum: ['auto'] }, object({ name: text }), { type: 'null' }] };
  test.each<[string, JsonSchema, unknown, unknown[]]>([
    ['by its tag', tagged, { type: 'daily', minute: 'x' }, [['minute', 'int_parsing']]],
    ['by a constant tag', tagged, { type: 'once' }, [['at', 'missing']]],
    ['a missing tag', tagged, { at: 'x' }, [['type', 'missing']]],
    ['an unknown tag', tagged, { type: 'weekly' }, [['type', 'value_error']]],
    ['by its type: an object', mixed, {}, [['name', 'missing']]],
    ['by its type: a text', mixed, 'none', [['', 'enum']]],
    ['of no type: the first branch', mixed, 5, [['', 'enum']]],
    ['null', mixed, null, []],
    [
      'of one type: the branch with the fewest mistakes',
      { anyOf: [object({ a: text, b: text }), object({ a: text, c: text })] },
      { a: 1, c: 'x' },
      [['a', 'string_type']],
    ],
  ])('%s', (_what, schema, value, expected) => {
    expect(mistakes(schema, value)).toEqual(expected);
  });

  test('an unknown tag is refused with all known ones', () => {
    const [mistake] = explain(tagged, { type: 'weekly' }, resolve, 1);
    expect(mistake?.words.msg).toBe("Value error, the type is one of 'once', 'hourly' and 'daily'");
  });
});

describe('bounds', () => {
  const tree = (depth: number): unknown => ({ name: 1, below: depth === 0 ? [] : [tree(depth - 1)] });

  test('it follows references, and stops at the number of mistakes that is wanted', () => {
    expect(mistakes({ $ref: 'tree' }, tree(2), 2)).toEqual([
      ['name', 'string_type'],
      ['below.0.name', 'string_type'],
    ]);
  });

  test('a mistake behind 20,000 values is not found, in branches neither', () => {
    const numbers = (length: number) => [...Array.from({ length }, () => 1), 'x'];
    const list: JsonSchema = { type: 'array', items: { type: 'integer' } };
    expect(mistakes(list, numbers(10_000))).toEqual([['10000', 'int_parsing']]);
    expect(mistakes(list, numbers(20_000))).toEqual([]);
    const lists: JsonSchema = { anyOf: Array.from({ length: 50 }, () => list) };
    expect(mistakes(lists, numbers(10_000))).toEqual([]);
  });
});

describe('formats', () => {
  const even = (sent: string) => (sent.length % 2 === 0 ? undefined : 'an even number of characters');
  textFormat('test-even', even);

  test('a rule of code is said, after what JSON Schema refuses', () => {
    const schema: JsonSchema = { type: 'string', maxLength: 4, pattern: '^a*$', format: 'test-even' };
    const said = (value: string) => explain(schema, value, resolve, 100).map(({ words }) => words.msg);
    expect(said('aaa')).toEqual(['Value error, an even number of characters']);
    expect(said('b')).toEqual(["String should match pattern '^a*$'"]);
    expect(said('bbbbb')).toEqual(['String should have at most 4 characters']);
    expect(said('aaaa')).toEqual([]);
  });

  test('zod asks the same function', () => {
    const { error } = textFormat('test-even', even).safeParse('abc');
    expect(error?.issues.map(({ message }) => message)).toEqual(['an even number of characters']);
  });

  test('two rules of one name end the start', () => {
    expect(() => textFormat('test-even', () => undefined)).toThrow('Two rules have the format test-even.');
  });

  test('a format that is only a name to readers refuses nothing', () => {
    expect(mistakes({ type: 'string', format: 'date-time' }, 'x')).toEqual([]);
  });
});
