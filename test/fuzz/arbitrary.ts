import fc, { type Arbitrary } from 'fast-check';

/** A JSON schema of the document, as far as its keywords are used there. */
export interface Schema {
  $ref?: string;
  type?: string | string[];
  const?: unknown;
  enum?: unknown[];
  anyOf?: Schema[];
  oneOf?: Schema[];
  format?: string;
  pattern?: string;
  minLength?: number;
  maxLength?: number;
  minimum?: number;
  maximum?: number;
  items?: Schema;
  minItems?: number;
  maxItems?: number;
  properties?: Record<string, Schema>;
  required?: string[];
  additionalProperties?: boolean | Schema;
}

/** The named schemas of the document. */
export type Schemas = Record<string, Schema>;

/** Longer texts than this are not worth their time; the limits of bodies have tests of their own. */
const LONGEST = 2_048;
const DEEPEST = 7;
/** Members of an object that it may leave out, at most so many at once. */
const OPTIONAL = 4;
/** What JSON has and programs stumble over. */
const TEXTS = [
  '',
  ' ',
  '\u0000',
  'a\u0000b',
  '\u001f',
  '\u2028',
  '�',
  '𝄞',
  '../..',
  '%2F',
  "'; --",
  '{app:x}',
  'null',
  '-0',
];
const NUMBERS = [0, -0, 1, -1, 2 ** 31 - 1, 2 ** 31, 2 ** 53 - 1, -(2 ** 53 - 1), 1e-7, 5e-324, 1.7976931348623157e308];

/** What values of members with these names usually are, so that requests name things that exist. */
export type Hints = Record<string, string>;

/** Values that a schema accepts, its bounds among them. */
export function valid(schema: Schema, schemas: Schemas, hints: Hints = {}, depth = 0): Arbitrary<unknown> {
  const next = (inner: Schema) => valid(inner, schemas, hints, depth + 1);
  if (schema.$ref) return valid(resolved(schema, schemas), schemas, hints, depth);
  if ('const' in schema) return fc.constant(schema.const);
  if (schema.enum) return fc.constantFrom(...schema.enum);
  const choices = schema.anyOf ?? schema.oneOf;
  if (choices) return fc.oneof(...(depth > DEEPEST ? choices.slice(-1) : choices).map(next));
  if (Array.isArray(schema.type)) return fc.oneof(...schema.type.map((type) => next({ ...schema, type })));
  switch (schema.type) {
    case 'null':
      return fc.constant(null);
    case 'boolean':
      return fc.boolean();
    case 'integer':
      return integers(schema);
    case 'number':
      return numbers(schema);
    case 'string':
      return texts(schema);
    case 'array':
      return arrays(schema, depth > DEEPEST ? undefined : next(schema.items ?? {}));
    case 'object':
      return objects(schema, hints, next, depth);
    default:
      return fc.oneof(fc.jsonValue({ maxDepth: 2 }), fc.constantFrom(...TEXTS), fc.constantFrom(...NUMBERS));
  }
}

/** A schema, or the one that it refers to. */
export function resolved(schema: Schema, schemas: Schemas): Schema {
  const name = schema.$ref?.split('/').at(-1);
  return name === undefined ? schema : resolved(schemas[name] ?? {}, schemas);
}

function integers({ minimum: min = -(2 ** 53 - 1), maximum: max = 2 ** 53 - 1 }: Schema) {
  return fc.oneof(fc.constantFrom(min, max), fc.integer({ min: Math.max(min, -100), max: Math.min(max, 100) }));
}

function numbers({ minimum: min, maximum: max }: Schema) {
  const inside = NUMBERS.filter((each) => each >= (min ?? -Infinity) && each <= (max ?? Infinity));
  const any = fc.double({
    noNaN: true,
    noDefaultInfinity: true,
    ...(min === undefined ? {} : { min }),
    ...(max === undefined ? {} : { max }),
  });
  return inside.length > 0 ? fc.oneof(fc.constantFrom(...inside), any) : any;
}

function texts({ format, pattern, minLength = 0, maxLength = LONGEST }: Schema): Arbitrary<string> {
  if (format === 'date-time') return fc.date({ noInvalidDate: true }).map((date) => date.toISOString());
  if (format === 'byte') return fc.base64String();
  const fits = (text: string) => {
    const { length } = Array.from(text);
    return length >= minLength && length <= maxLength && (!pattern || new RegExp(pattern, 'u').test(text));
  };
  if (pattern) return fc.stringMatching(new RegExp(pattern, 'u')).filter(fits);
  const longest = Math.min(maxLength, LONGEST);
  const plain = fc.string({ minLength, maxLength: Math.max(minLength, Math.min(longest, 20)), unit: 'binary' });
  const edges = [...TEXTS, 'x'.repeat(minLength), 'x'.repeat(longest), 'é'.repeat(Math.min(longest, 300))].filter(fits);
  return fc.oneof(plain.filter(fits), fc.constantFrom(...edges));
}

function arrays({ minItems = 0, maxItems = 3 }: Schema, item: Arbitrary<unknown> | undefined) {
  if (!item) return fc.constant([]);
  return fc.array(item, { minLength: minItems, maxLength: Math.max(minItems, Math.min(maxItems, 3)) });
}

function objects(schema: Schema, hints: Hints, next: (inner: Schema) => Arbitrary<unknown>, depth: number) {
  const { properties = {}, required = [], additionalProperties: more } = schema;
  const optional = Object.keys(properties).filter((name) => !required.includes(name));
  const member = (name: string) => {
    const hint = hints[name];
    const any = next(properties[name] ?? {});
    return hint === undefined
      ? any
      : fc.oneof({ arbitrary: fc.constant(hint), weight: 9 }, { arbitrary: any, weight: 1 });
  };
  const known = fc
    .subarray(optional, { maxLength: depth > DEEPEST ? 0 : Math.min(optional.length, OPTIONAL) })
    .chain((names) => fc.record(Object.fromEntries([...required, ...names].map((name) => [name, member(name)]))));
  if (more === undefined || more === false || depth > DEEPEST) return known;
  const name = fc.oneof(
    fc.string({ maxLength: 12 }),
    fc.constantFrom('a', 'user:a', 'temp:a', '__proto__', 'constructor'),
  );
  const extra = fc.dictionary(name, next(more === true ? {} : more), { maxKeys: 2, noNullPrototype: true });
  return fc.tuple(known, extra).map(([own, others]) => ({ ...others, ...own }));
}
