import fc, { type Arbitrary } from 'fast-check';
import type { Hints } from './hints.ts';

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
/** How much more often than any other a member has the value that it has in the example, or that its name hints at. */
const FROM_EXAMPLE = 3;
const FROM_HINT = 9;
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

/** What values are made from, beside their schema. */
export interface Source {
  schemas: Schemas;
  hints: Hints;
}
/** Makes the values of a part; `example`: that part of the example. */
type Next = (schema: Schema, example?: unknown) => Arbitrary<unknown>;

/** Values that a schema accepts, its bounds among them; with an example many that differ from it in few places only. */
export function valid(schema: Schema, source: Source, example?: unknown, depth = 0): Arbitrary<unknown> {
  const next: Next = (inner, part) => valid(inner, source, part, depth + 1);
  if (schema.$ref) return valid(resolved(schema, source.schemas), source, example, depth);
  if ('const' in schema) return fc.constant(schema.const);
  if (schema.enum) return fc.constantFrom(...schema.enum);
  const choices = schema.anyOf ?? schema.oneOf;
  if (choices)
    return fc.oneof(...(depth > DEEPEST ? choices.slice(-1) : choices).map((choice) => next(choice, example)));
  if (Array.isArray(schema.type)) return fc.oneof(...schema.type.map((type) => next({ ...schema, type }, example)));
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
      return arrays(schema, depth > DEEPEST ? undefined : next(schema.items ?? {}, firstOf(example)));
    case 'object':
      return objects(schema, source.hints, next, depth, isObject(example) ? example : {});
    default:
      if (Array.isArray(example)) return next({ type: 'array' }, example);
      if (isObject(example)) return next({ type: 'object', additionalProperties: true }, example);
      return fc.oneof(fc.jsonValue({ maxDepth: 2 }), fc.constantFrom(...TEXTS), fc.constantFrom(...NUMBERS));
  }
}

/** A schema, or the one that it refers to. */
export function resolved(schema: Schema, schemas: Schemas): Schema {
  const name = schema.$ref?.split('/').at(-1);
  return name === undefined ? schema : resolved(schemas[name] ?? {}, schemas);
}

const firstOf = (example: unknown): unknown => (Array.isArray(example) ? example[0] : undefined);
const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

function integers({ minimum: min = -(2 ** 53 - 1), maximum: max = 2 ** 53 - 1 }: Schema) {
  const between = (from: number, to: number) => fc.integer({ min: Math.max(min, from), max: Math.min(max, to) });
  const near = Math.min(Math.max(0, min), max);
  return fc.oneof(fc.constantFrom(min, max), between(near - 100, near + 100), between(near, near + 5));
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
  if (format === 'clock-time') return fc.stringMatching(/^(?:[01]\d|2[0-3]):[0-5]\d$/);
  if (format === 'positive-integer')
    return fc.stringMatching(/^0*[1-9][0-9]{0,8}$/).filter((text) => text.length <= 32);
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

function objects(schema: Schema, hints: Hints, next: Next, depth: number, example: Record<string, unknown>) {
  const { properties = {}, required = [], additionalProperties: more } = schema;
  const free = more === true || more === undefined ? {} : more;
  const shown = Object.keys(example).filter((name) => name in properties || (more !== undefined && more !== false));
  const rest = Object.keys(properties).filter((name) => !required.includes(name) && !shown.includes(name));
  const member = once((name: string) => {
    const any = next(properties[name] ?? (free || {}), example[name]);
    const usual = hints[name] ?? example[name];
    if (usual === undefined || (hints[name] !== undefined && !takes(properties[name], hints[name]))) return any;
    const weight = hints[name] === undefined ? FROM_EXAMPLE : FROM_HINT;
    return fc.oneof({ arbitrary: fc.constant(usual), weight }, { arbitrary: any, weight: 1 });
  });
  const known = fc
    .tuple(
      fc.oneof(fc.constant(shown), fc.subarray(shown)),
      fc.oneof(
        fc.constant([]),
        fc.subarray(rest, { maxLength: depth > DEEPEST ? 0 : Math.min(rest.length, OPTIONAL) }),
      ),
    )
    .map((names) => [...new Set([...required, ...names.flat()])])
    .chain((names) => fc.record(Object.fromEntries(names.map((name) => [name, member(name)]))));
  if (more === undefined || more === false || depth > DEEPEST) return known;
  const name = fc.oneof(
    fc.string({ maxLength: 12 }),
    fc.constantFrom('a', 'user:a', 'temp:a', '__proto__', 'constructor'),
  );
  const extra = fc.dictionary(name, next(more === true ? {} : more), { maxKeys: 2, noNullPrototype: true });
  return fc.tuple(known, extra).map(([own, others]) => ({ ...others, ...own }));
}

/** Made when it is needed, as schemas refer to themselves, and only once: that takes longer than a value. */
function once<Made>(make: (name: string) => Made): (name: string) => Made {
  const all = new Map<string, Made>();
  return (name) => {
    const made = all.get(name) ?? make(name);
    all.set(name, made);
    return made;
  };
}

/** True for a schema that a hint may be of. */
const takes = ({ type, $ref, enum: choices }: Schema = {}, hint: string | number): boolean =>
  $ref === undefined &&
  choices === undefined &&
  (type === undefined || [type].flat().includes(typeof hint === 'string' ? 'string' : 'integer'));
