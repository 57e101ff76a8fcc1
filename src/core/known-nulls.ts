import type { z } from 'zod';

type Definition = z.core.$ZodTypeDef & {
  innerType?: z.core.$ZodType;
  shape?: Record<string, z.core.$ZodType>;
  element?: z.core.$ZodType;
};

function definitionOf(schema: z.core.$ZodType): Definition {
  const definition = schema._zod.def as Definition;
  return definition.innerType ? definitionOf(definition.innerType) : definition;
}

/**
 * A value without the members that its schema names and that are null: answers leave nulls out, as ADK's do, so they
 * are not stored. Free-form objects and members that the schema does not name keep theirs: those are data.
 */
export function withoutKnownNulls<Value>(schema: z.core.$ZodType, value: Value): Value {
  return strip(definitionOf(schema), value) as Value;
}

function strip({ shape, element }: Definition, value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return element ? value.map((each) => strip(definitionOf(element), each)) : value;
  if (!shape) return value;
  // fromEntries makes own properties, also of a key named `__proto__`.
  return Object.fromEntries(
    Object.entries(value).flatMap(([name, member]) => {
      const known = Object.hasOwn(shape, name) ? shape[name] : undefined;
      if (!known) return [[name, member]];
      return member === null ? [] : [[name, strip(definitionOf(known), member)]];
    }),
  );
}
