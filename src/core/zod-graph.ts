import { z } from 'zod';

type Schema = z.core.$ZodType;

interface Children {
  members: Record<string, Schema>;
  /** Schemas of the elements of an array or tuple, or of the values of a record. */
  elements: readonly Schema[];
  /** Schemas that a union or intersection combines. */
  branches: readonly Schema[];
}

type Definition = z.core.$ZodTypeDef & {
  /** The format of a number or string, e.g. `safeint`. */
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

/** One type with optional members, because zod has a separate type for each kind of schema. */
export const getDefinition = (schema: Schema): Definition => schema._zod.def;
const present = (schemas: (Schema | undefined)[]) => schemas.filter((schema) => schema !== undefined);

/** Returns the inner schema if the schema is a wrapper (optional, default, readonly, lazy, the input of a pipe …). */
function getInner(schema: Schema): Schema | undefined {
  const { innerType, getter, in: input } = getDefinition(schema);
  return innerType ?? getter?.() ?? input;
}

export function unwrap(schema: Schema): Schema {
  const inner = getInner(schema);
  return inner ? unwrap(inner) : schema;
}

/** Returns the child schemas of a schema that is not a wrapper. */
export function getChildren(schema: Schema): Children {
  const { shape, element, valueType, items, options, left, right } = getDefinition(schema);
  return {
    members: shape ?? {},
    elements: present([element, valueType, ...(items ?? [])]),
    branches: present([left, right, ...(options ?? [])]),
  };
}

/**
 * True if a rule of the schema, or of a schema inside it, is code, such as `refine`, which JSON Schema cannot express.
 */
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
 * Returns the part of a schema whose rules are code, of an object only those members; `undefined` if there are none.
 * The result is for values that JSON Schema has accepted already.
 */
export function pickRefined(schema: Schema): Schema | undefined {
  if (!hasRefinement(schema)) return undefined;
  const { shape, checks } = getDefinition(schema);
  if (!shape || checks?.length) return schema;
  const members = Object.entries(shape).map(([name, member]) => [name, pickRefined(member)] as const);
  return z.object(Object.fromEntries(members.filter(([, member]) => member)) as z.core.$ZodShape);
}

/**
 * Removes null members that the schema names, because responses leave them out, as ADK's do. Nulls in free-form objects
 * and unknown members stay, because they are data.
 */
export const withoutKnownNulls = <Value>(schema: z.core.$ZodType, value: Value): Value => strip(schema, value) as Value;

function strip(schema: z.core.$ZodType, value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value;
  const { shape, element } = getDefinition(unwrap(schema));
  if (Array.isArray(value)) return element ? value.map((each) => strip(element, each)) : value;
  if (!shape) return value;
  // `fromEntries` creates own properties, even for a key named `__proto__`.
  return Object.fromEntries(
    Object.entries(value).flatMap(([name, member]) => {
      const known = Object.hasOwn(shape, name) ? shape[name] : undefined;
      if (!known) return [[name, member]];
      return member === null ? [] : [[name, strip(known, member)]];
    }),
  );
}
