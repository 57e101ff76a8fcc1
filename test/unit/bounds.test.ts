import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { writtenOut } from '../support/document.ts';

/** The document's requests: nothing in them is as long as its sender likes. */

type Schema = { [key: string]: unknown; $ref?: string; type?: string | string[]; pattern?: string };
interface Documented {
  operationId: string;
  parameters?: { name: string; in: string; schema: Schema }[];
  requestBody?: { content: Record<string, { schema: Schema }> };
}
interface Document {
  paths: Record<string, Record<string, Documented>>;
  components: { schemas: Record<string, Schema> };
}

// Any text is taken, and most mean nothing, so its bound is that of headers: 16 KiB.
const ANY_TEXT = ['X-Requested-With'];

const document = writtenOut(
  JSON.parse(
    readFileSync(new URL('../../src/platform/http/openapi/openapi.json', import.meta.url), 'utf8'),
  ) as Document,
);

/** Formats of texts of one length. */
const BOUNDING_FORMATS = new Set<unknown>(['clock-time']);
/** A pattern bounds a text where it covers all of it and repeats nothing without end. */
const isBounding = (pattern: string) =>
  /^\^.*\$$/.test(pattern) && !/[*+]|\{\d+,\}/.test(pattern.replaceAll(/\[(?:\\.|[^\]\\])*\]|\\./g, ''));

/** What a schema lacks to be bounded by itself. */
function lacks(schema: Schema): string[] {
  if ('enum' in schema || 'const' in schema) return [];
  const types = [schema.type].flat();
  const isMap = types.includes('object') && (schema['additionalProperties'] !== undefined || !('properties' in schema));
  const rules: [boolean, string][] = [
    [
      types.includes('string') && !isBounding(schema.pattern ?? '') && !BOUNDING_FORMATS.has(schema['format']),
      'maxLength',
    ],
    [types.includes('array'), 'maxItems'],
    [isMap && schema['additionalProperties'] !== false, 'maxProperties'],
  ];
  return rules.filter(([applies, bound]) => applies && schema[bound] === undefined).map(([, bound]) => bound);
}

/** Lists the places of a schema that have no bound; a named schema is looked at once. Any JSON is its body's. */
function unbounded(schema: Schema, place: string, { components }: Document, seen: Set<string>): string[] {
  if (schema.$ref !== undefined) {
    const name = schema.$ref.split('/').at(-1) ?? '';
    if (seen.has(name)) return [];
    seen.add(name);
    return unbounded(components.schemas[name] as Schema, name, document, seen);
  }
  const inside: [string, unknown][] = [
    ...Object.entries(schema['properties'] ?? {}).map(([name, each]): [string, unknown] => [`.${name}`, each]),
    ['[]', schema['items']],
    ['{}', schema['additionalProperties']],
    ...['anyOf', 'oneOf', 'allOf'].flatMap((kind) =>
      ((schema[kind] ?? []) as Schema[]).map((each, index): [string, unknown] => [`|${index}`, each]),
    ),
  ];
  return [
    ...lacks(schema).map((bound) => `${place}: ${bound}`),
    ...inside.flatMap(([step, each]) =>
      typeof each === 'object' && each !== null
        ? unbounded(each as Schema, place + step, { ...document, components }, seen)
        : [],
    ),
  ];
}

function walk(whole: Document): string[] {
  const seen = new Set<string>();
  return Object.values(whole.paths).flatMap((item) =>
    Object.values(item).flatMap(({ operationId, parameters = [], requestBody }) => [
      ...parameters
        .filter(({ name }) => !ANY_TEXT.includes(name))
        .flatMap((each) => unbounded(each.schema, `${operationId} ${each.in} ${each.name}`, whole, seen)),
      ...Object.values(requestBody?.content ?? {}).flatMap(({ schema }) => unbounded(schema, operationId, whole, seen)),
    ]),
  );
}

describe('every text, list and map of a request has a bound', () => {
  test('in the document', () => {
    expect(walk(document)).toEqual([]);
  });

  test.each([
    [{ type: 'string' }, ['maxLength']],
    [{ type: ['string', 'null'], pattern: '^a+$' }, ['maxLength']],
    [{ type: 'string', pattern: '^[a+]{1,9}$' }, []],
    [{ type: 'array', items: { type: 'string', maxLength: 1 } }, ['maxItems']],
    [{ type: 'object', additionalProperties: {} }, ['maxProperties']],
    [{ type: 'object', properties: { a: { type: 'string' } } }, ['maxLength']],
    [{ anyOf: [{ type: 'integer' }, { type: 'string' }] }, ['maxLength']],
    [{ type: 'string', enum: ['a'] }, []],
  ])('a planted %j is found', (schema, missing) => {
    const found = unbounded(schema, 'planted', document, new Set());
    expect(found.map((line) => line.split(': ').at(-1))).toEqual(missing);
  });
});
