import type { z } from 'zod';
import { getDefinition, unwrap } from '../../../core/zod-graph.ts';
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

/**
 * Reads declared parameters; `sentAs` gives what was sent under a spelling of the request: a text, several in order, or
 * what is no text and counts as nothing (`a[b]=1`). Of one that is no array the last counts, as in FastAPI. Undeclared
 * ones are left out.
 */
export type ReadParameters = (sentAs: (spelling: string) => unknown) => Parameters;

/**
 * Prepares the reading of one place of an operation's requests.
 * @param wireName how a name of the schema is spelt in the request
 */
export function parameterReader(
  place: 'path' | 'query' | 'header',
  declared: z.ZodObject | undefined,
  wireName: (name: string) => string,
): ReadParameters {
  const parameters = Object.entries(declared?.shape ?? {}).map(([name, schema]) => {
    const spelling = wireName(name);
    const loc = [place, spelling];
    const { element } = getDefinition(unwrap(schema));
    return { name, spelling, loc, schema, element, absent: absentValue(schema) };
  });
  return (sentAs) => {
    const values: Record<string, unknown> = {};
    const details: ValidationDetail[] = [];
    for (const { name, spelling, loc, schema, element, absent } of parameters) {
      const texts = textsOf(sentAs(spelling));
      if (texts.length === 0 && (element || absent)) {
        if (absent?.value !== undefined) values[name] = absent.value;
        continue;
      }
      const reads = element
        ? texts.map((text, index) => read(element, [...loc, index], text))
        : [read(schema, loc, texts.at(-1))];
      for (const each of reads) details.push(...each.details);
      const value = element ? reads.map((each) => each.value) : reads[0]?.value;
      if (value !== undefined) values[name] = value;
    }
    return { values, details };
  };
}

const NO_TEXTS: string[] = [];

function textsOf(sent: unknown): string[] {
  if (sent === undefined) return NO_TEXTS;
  return typeof sent === 'string' ? [sent] : [sent].flat().filter((text) => typeof text === 'string');
}

/**
 * What a parameter is where it was not sent, which is most often: found once, since zod takes 1 µs for each of them.
 * `undefined` where it has to be sent, or is an object that a request could change.
 */
function absentValue(schema: z.core.$ZodType): { value: unknown } | undefined {
  const { value, details } = read(schema, [], undefined);
  return details.length > 0 || typeof value === 'object' ? undefined : { value };
}

function read(
  schema: z.core.$ZodType,
  loc: (string | number)[],
  text: string | undefined,
): ReturnType<typeof readWith> {
  const parsed = text === undefined ? { value: undefined } : parseScalar(scalarTypeOf(schema), text);
  if (!('refused' in parsed)) return readWith(schema, loc, { text, value: parsed.value });
  const { type, msg, ctx } = parsed.refused;
  return { value: undefined, details: [{ type, loc, msg, input: text, ...(ctx ? { ctx } : {}) }] };
}

function scalarTypeOf(schema: z.core.$ZodType): ScalarType {
  const { type, format } = getDefinition(unwrap(schema));
  if (type === 'number') return format?.includes('int') ? 'integer' : 'number';
  return type === 'boolean' ? 'boolean' : 'string';
}
