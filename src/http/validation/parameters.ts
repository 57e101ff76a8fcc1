import type { z } from 'zod';
import { definitionOf, unwrapped } from '../../core/zod-graph.ts';
import type { ValidationDetail } from '../operation/error-bodies.ts';
import { parseScalar, type ScalarType } from './pydantic-messages.ts';
import { readWith } from './zod-to-pydantic.ts';

/**
 * Path parameters, query parameters and headers arrive as text. They are read here by pydantic's rules and not by a
 * coercing validator: Ajv takes `1e2` for 100, and express-openapi-validator hands on `0` as text (stack notes §5,
 * traps 3 and 4).
 */

/** What was read of one place of a request, and what is wrong with the rest, in the order of the schema. */
interface Parameters {
  values: Record<string, unknown>;
  details: ValidationDetail[];
}

/** Reads declared parameters; `textOf` gives what was sent under a name of the schema. Undeclared ones are left out. */
export type ReadParameters = (textOf: (name: string) => string | undefined) => Parameters;

/**
 * Prepares the reading of one place of an operation's requests.
 * @param wireName how a name of the schema is spelt in the request
 */
export function parameterReader(
  place: 'path' | 'query' | 'header',
  declared: z.ZodObject | undefined,
  wireName: (name: string) => string,
): ReadParameters {
  const parameters = Object.entries(declared?.shape ?? {}).map(([name, schema]) => ({
    name,
    schema,
    type: scalarTypeOf(schema),
    loc: [place, wireName(name)],
  }));
  return (textOf) => {
    const values: Record<string, unknown> = {};
    const details: ValidationDetail[] = [];
    for (const { name, schema, type, loc } of parameters) {
      const text = textOf(name);
      const parsed = text === undefined ? { value: undefined } : parseScalar(type, text);
      if ('refused' in parsed) {
        const { type: rule, msg, ctx } = parsed.refused;
        details.push({ type: rule, loc, msg, input: text, ...(ctx ? { ctx } : {}) });
        continue;
      }
      const read = readWith(schema, loc, { text, value: parsed.value });
      details.push(...read.details);
      if (read.value !== undefined) values[name] = read.value;
    }
    return { values, details };
  };
}

function scalarTypeOf(schema: z.core.$ZodType): ScalarType {
  const { type, format } = definitionOf(unwrapped(schema));
  if (type === 'number') return format?.includes('int') ? 'integer' : 'number';
  return type === 'boolean' ? 'boolean' : 'string';
}
