import { resolved, type Schema, type Schemas } from './arbitrary.ts';

/** A value with one fault in it. */
export interface Faulty {
  value: unknown;
  /** Where the fault is: members and indexes from the outside in. */
  place: (string | number)[];
}

const WRONG: Record<string, unknown[]> = {
  string: [12, true, [], {}],
  integer: ['x', 1.5, [], {}],
  number: ['x', true, {}],
  boolean: ['maybe', 2, []],
  array: ['x', 3, { a: 1 }],
  object: ['x', 3, [1]],
};

/** Every way to break a value that its schema accepts at one place, as far as the schema is plain there. */
export function faultsOf(value: unknown, schema: Schema, schemas: Schemas): Faulty[] {
  const union = resolved(schema, schemas);
  const others = union.anyOf?.filter((each) => each.type !== 'null') ?? [];
  const plain = others.length === 1 && others[0] ? resolved(others[0], schemas) : union;
  const types = [plain.type ?? []].flat();
  // Of a union several members may be to blame: the place is certain for one type only, beside null.
  const [type] = types.filter((each) => each !== 'null');
  if (type === undefined || types.length - Number(types.includes('null')) > 1 || plain.anyOf || plain.oneOf) return [];
  const here = [...(WRONG[type] ?? []), ...outOfBounds(plain, type)].map((wrong) => ({ value: wrong, place: [] }));
  if (type === 'object') return [...here, ...objectFaults(value, plain, schemas)];
  if (type !== 'array' || !Array.isArray(value) || !plain.items) return here;
  const { items } = plain;
  return [
    ...here,
    ...value.flatMap((each, index) =>
      faultsOf(each, items, schemas).map((fault) => ({
        value: value.with(index, fault.value),
        place: [index, ...fault.place],
      })),
    ),
  ];
}

function outOfBounds(schema: Schema, type: string): unknown[] {
  const { minimum, maximum, minLength, maxLength, pattern, minItems, maxItems, enum: choices } = schema;
  if (choices) return ['not one of them'];
  if (type === 'array') {
    return [
      ...(minItems === undefined ? [] : [[]]),
      ...(maxItems === undefined || maxItems > 1_000 ? [] : [Array.from({ length: maxItems + 1 }, () => 'x')]),
    ];
  }
  if (type === 'string') {
    return [
      ...(pattern === undefined ? [] : ['a\u0001b', '']),
      ...(minLength !== undefined && minLength > 0 ? ['x'.repeat(minLength - 1)] : []),
      ...(maxLength !== undefined && maxLength < 100_000 ? ['x'.repeat(maxLength + 1)] : []),
    ];
  }
  if (type !== 'integer' && type !== 'number') return [];
  return [...(minimum === undefined ? [] : [minimum - 1]), ...(maximum === undefined ? [] : [maximum + 1])];
}

function objectFaults(value: unknown, schema: Schema, schemas: Schemas): Faulty[] {
  const { properties = {}, required = [], additionalProperties } = schema;
  if (typeof value !== 'object' || value === null) return [];
  const members = value as Record<string, unknown>;
  const missing = required.map((name) => {
    const { [name]: _left, ...rest } = members;
    return { value: rest, place: [name] };
  });
  const unknown = additionalProperties === false ? [{ value: { ...members, nobody: 1 }, place: ['nobody'] }] : [];
  const inner = Object.entries(properties).flatMap(([name, inside]) =>
    Object.hasOwn(members, name) && members[name] !== null
      ? faultsOf(members[name], inside, schemas).map((fault) => ({
          value: { ...members, [name]: fault.value },
          place: [name, ...fault.place],
        }))
      : [],
  );
  return [...missing, ...unknown, ...inner];
}
