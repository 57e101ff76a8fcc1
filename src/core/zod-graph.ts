import { z } from 'zod';

type Schema = z.core.$ZodType;

interface Children {
  /** Of an object, by name. */
  members: Record<string, Schema>;
  /** Of an array or tuple, or the values of a record. */
  elements: readonly Schema[];
  /** Of a union or intersection. */
  branches: readonly Schema[];
}

type Definition = z.core.$ZodTypeDef & {
  /** Format of a number or string, e.g. `safeint`. */
  format?: string;
  innerType?: Schema;
  getter?: () => Schema;
  in?: Schema;
  shape?: Record<string, Schema>;
  element?: Schema;
  valueType?: Schema;
  items?: readonly Schema[];
  options?: readonly Schema[];
  left?: Schema;
  right?: Schema;
};

/** zod types each kind of schema separately; here the members of all kinds are optional. */
export const getDefinition = (schema: Schema): Definition => schema._zod.def;
const present = (schemas: (Schema | undefined)[]) => schemas.filter((schema) => schema !== undefined);

/** Returns the schema inside a wrapper (optional, default, readonly, lazy, a pipe's input …), if it is one. */
function getInner(schema: Schema): Schema | undefined {
  const { innerType, getter, in: input } = getDefinition(schema);
  return innerType ?? getter?.() ?? input;
}

export function unwrap(schema: Schema): Schema {
  const inner = getInner(schema);
  return inner ? unwrap(inner) : schema;
}

/** Returns the children of an unwrapped schema. */
export function getChildren(schema: Schema): Children {
  const { shape, element, valueType, items, options, left, right } = getDefinition(schema);
  return {
    members: shape ?? {},
    elements: present([element, valueType, ...(items ?? [])]),
    branches: present([left, right, ...(options ?? [])]),
  };
}

/** True if a schema, or one inside it, has a rule of code (`refine`, a transformation) beyond JSON Schema. */
function hasRefinement(schema: Schema, seen = new Set<Schema>()): boolean {
  if (seen.has(schema)) return false;
  seen.add(schema);
  const { checks, type } = getDefinition(schema);
  if (type === 'transform' || type === 'custom') return true;
  if (checks?.some((check) => check._zod.def.check === 'custom')) return true;
  const inner = getInner(schema);
  if (inner) return hasRefinement(inner, seen);
  const { members, elements, branches } = getChildren(schema);
  return [...Object.values(members), ...elements, ...branches].some((child) => hasRefinement(child, seen));
}

/**
 * Returns the part of a schema that has rules of code, for values that satisfy JSON Schema already: of objects only the
 * members with such a rule. `undefined` if there is none.
 */
export function pickRefined(schema: Schema): Schema | undefined {
  if (!hasRefinement(schema)) return undefined;
  const { shape, checks } = getDefinition(schema);
  if (!shape || checks?.length) return schema;
  const members = Object.entries(shape).map(([name, member]) => [name, pickRefined(member)] as const);
  return z.object(Object.fromEntries(members.filter(([, member]) => member)) as z.core.$ZodShape);
}

/**
 * Removes null members that the schema names: answers leave nulls out, as ADK's do, so they are not stored. Nulls in
 * free-form objects and in unknown members are data and stay.
 */
export const withoutKnownNulls = <Value>(schema: z.core.$ZodType, value: Value): Value => strip(schema, value) as Value;

function strip(schema: z.core.$ZodType, value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value;
  const { shape, element } = getDefinition(unwrap(schema));
  if (Array.isArray(value)) return element ? value.map((each) => strip(element, each)) : value;
  if (!shape) return value;
  // fromEntries makes own properties, also of a key named `__proto__`.
  return Object.fromEntries(
    Object.entries(value).flatMap(([name, member]) => {
      const known = Object.hasOwn(shape, name) ? shape[name] : undefined;
      if (!known) return [[name, member]];
      return member === null ? [] : [[name, strip(known, member)]];
    }),
  );
}
