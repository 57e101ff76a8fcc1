import type { z } from 'zod';
import { definitionOf, unwrapped } from './zod-graph.ts';

/**
 * A value without the members that its schema names and that are null: answers leave nulls out, as ADK's do, so they
 * are not stored. Free-form objects and members that the schema does not name keep theirs: those are data.
 */
export const withoutKnownNulls = <Value>(schema: z.core.$ZodType, value: Value): Value => strip(schema, value) as Value;

function strip(schema: z.core.$ZodType, value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value;
  const { shape, element } = definitionOf(unwrapped(schema));
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
