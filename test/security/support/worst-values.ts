import documentOfFile from '../../../src/platform/http/openapi/openapi.json' with { type: 'json' };
import { resolved, type Schema } from '../../fuzz/arbitrary.ts';
import type { OpenApi } from '../../fuzz/requests.ts';
import { writtenOut } from '../../support/document.ts';

const document = writtenOut(documentOfFile as unknown as OpenApi);
const { schemas } = document.components;
/** The operations of the document by their id, each with its path. */
export const documented = new Map(
  Object.entries(document.paths).flatMap(([path, item]) =>
    Object.values(item).map((one) => [one.operationId, { path, one }] as const),
  ),
);

const WORDS = 'worst wording of words ';
/** Levels within a body that may have 64. */
const LEVELS = 56;
const NEST = '['.repeat(LEVELS) + ']'.repeat(LEVELS);
/** Members of a body, which may have 100,000 values. */
const VALUES = 90_000;

/** A text of so many characters. */
export const long = (size: number): string => WORDS.repeat(Math.ceil(size / WORDS.length)).slice(0, size);
/** Lists within lists as deep as bodies may be, so often that they have this size or as many values as a body may. */
export const deep = (size: number): object => {
  const count = Math.min(size / (2 * LEVELS), VALUES / LEVELS);
  return { deep: Array.from({ length: count }, () => JSON.parse(NEST) as unknown) };
};
/** As many members as fit; of more than a megabyte with long names. */
const wide = (size: number): object => {
  const count = Math.min(size / 12, VALUES);
  const name = 'k'.repeat(Math.max(1, size / count - 8));
  return Object.fromEntries(Array.from({ length: count }, (_, n) => [`${name}${n}`, n]));
};
/** The worst objects of a size where any object may be. */
export const worstObjects = (size: number): object[] => [
  deep(size),
  wide(size),
  { text: long(size) },
  { list: Array.from({ length: Math.min(size / 6, VALUES) }, () => 1e300) },
];

/** The worst values of a schema, each of about a size: each member in turn, the others as in the example. */
export function worstOf(sent: Schema, example: unknown, size: number, depth = 0): unknown[] {
  const schema = resolved(sent, schemas);
  const choices = schema.anyOf ?? schema.oneOf;
  if (choices) return choices.flatMap((choice) => worstOf(choice, example, size, depth));
  if (schema.enum || 'const' in schema || depth > 1) return [];
  const [type] = [schema.type ?? 'object'].flat().filter((one) => one !== 'null');
  if (type === 'string') return texts(schema, size);
  if (type === 'integer' || type === 'number') return [schema.maximum ?? 2 ** 31 - 1];
  if (type === 'array') {
    const one = (Array.isArray(example) ? (example[0] as unknown) : undefined) ?? least(schema.items ?? {});
    const count = Math.min(schema.maxItems ?? Infinity, Math.ceil(size / (JSON.stringify(one).length + 1)), VALUES / 8);
    const larger = worstOf(schema.items ?? {}, one, size / Math.min(count, 64), depth + 1);
    return [Array.from({ length: count }, () => one), ...larger.map((each) => [each])];
  }
  if (type !== 'object') return [];
  const members = Object.entries(schema.properties ?? {});
  if (members.length === 0) return worstObjects(size);
  const base = (typeof example === 'object' && example !== null ? example : least(schema)) as Record<string, unknown>;
  return members.flatMap(([name, member]) =>
    worstOf(member, base[name], size, depth + 1).map((value) => ({ ...base, [name]: value })),
  );
}

function texts({ pattern, maxLength, format }: Schema, size: number): string[] {
  if (format === 'byte') return ['A'.repeat(Math.floor(size / 4) * 4)];
  const ofPattern = /\{[01],(\d+)\}\$$/.exec(pattern ?? '')?.[1];
  const longest = Math.min(ofPattern === undefined ? Infinity : Number(ofPattern), maxLength ?? Infinity, size);
  return pattern === undefined ? [long(longest), '\u0000'.repeat(longest / 8)] : ['x'.repeat(longest)];
}

/** The smallest value of a schema. */
function least(sent: Schema): unknown {
  const schema = resolved(sent, schemas);
  if ('const' in schema) return schema.const;
  if (schema.enum) return schema.enum[0];
  const choice = (schema.anyOf ?? schema.oneOf)?.[0];
  if (choice) return least(choice);
  const [type] = [schema.type ?? 'object'].flat();
  if (type === 'string') return 'x'.repeat(Math.max(1, schema.minLength ?? 1));
  if (type === 'integer' || type === 'number') return schema.minimum ?? 1;
  if (type === 'boolean') return true;
  if (type === 'array') return Array.from({ length: schema.minItems ?? 0 }, () => least(schema.items ?? {}));
  if (type === 'null') return null;
  const { required = [], properties = {} } = schema;
  return Object.fromEntries(required.map((name) => [name, least(properties[name] ?? {})]));
}
