import type { z } from 'zod';
import { safeParse } from 'zod/v4/core';
import { getDefinition, unwrap } from '../../../core/zod-graph.ts';
import { camelCase, snakeCase } from '../operation/paths.ts';
import type { UnknownName } from './unknown-names.ts';

/**
 * Path and query parameters and headers are sent as text. It is parsed by pydantic's rules and not by a coercing
 * validator: Ajv reads `1e2` as 100, and express-openapi-validator passes `0` on as text.
 */

export type ScalarType = 'string' | 'integer' | 'number' | 'boolean';

/** Pydantic's name for the error of a text that cannot be parsed. */
export type ScalarRefusal = 'int_parsing' | 'int_parsing_size' | 'float_parsing' | 'bool_parsing';

const TRUE_TEXTS: ReadonlySet<string> = new Set(['true', 't', 'yes', 'y', 'on', '1']);
const FALSE_TEXTS: ReadonlySet<string> = new Set(['false', 'f', 'no', 'n', 'off', '0']);
const INTEGER_TEXT = /^[+-]?\d+(?:_\d+)*(?:\.0+)?$/;
const NUMBER_TEXT = /^[+-]?(?:\d+(?:_\d+)*(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?$/;
/** Python's limit on the digits of an integer (CVE-2020-10735). */
const MAX_INTEGER_DIGITS = 4300;

const toNumber = (text: string) => Number(text.replaceAll('_', ''));
const toInteger = (text: string) =>
  Math.max(Number.MIN_SAFE_INTEGER, Math.min(Number.MAX_SAFE_INTEGER, toNumber(text)));

/**
 * Parses text as pydantic does. Integers: `5`, ` 7 `, `+7`, `-1`, `1.0`, `1_000`, but not `1.5`, `1e2`, `0x1` or an
 * empty text. An integer beyond 2^53 becomes the nearest integer that a double represents. Booleans: true/false, t/f,
 * yes/no, y/n, on/off, 1/0, ignoring case.
 */
export function parseScalar(type: ScalarType, text: string): { value: unknown } | { refusal: ScalarRefusal } {
  switch (type) {
    case 'string':
      return { value: text };
    case 'integer':
      if (!INTEGER_TEXT.test(text.trim())) return { refusal: 'int_parsing' };
      return text.length > MAX_INTEGER_DIGITS ? { refusal: 'int_parsing_size' } : { value: toInteger(text) };
    case 'number': {
      const value = NUMBER_TEXT.test(text.trim()) ? toNumber(text) : Number.NaN;
      return Number.isFinite(value) ? { value } : { refusal: 'float_parsing' };
    }
    default: {
      const word = text.toLowerCase();
      const isTrue = TRUE_TEXTS.has(word);
      return isTrue || FALSE_TEXTS.has(word) ? { value: isTrue } : { refusal: 'bool_parsing' };
    }
  }
}

export interface RefusedParameter {
  loc: (string | number)[];
  schema: z.core.$ZodType;
  /** The text that was sent; `undefined` if the parameter is missing. */
  text: string | undefined;
  /** The value that the text was parsed to. */
  value?: unknown;
  refusal?: ScalarRefusal;
}

/**
 * Returns the declared parameters' values, and appends the invalid ones to `refused`, in the schema's order. Of a
 * repeated parameter the last value counts, as in FastAPI, unless it is an array. Undeclared parameters are ignored.
 * @param sent what was sent, by name: a text, several texts in order, or an object (`a[b]=1`), which counts as missing
 */
type ReadParameters = (sent: Record<string, unknown>, refused: RefusedParameter[]) => Record<string, unknown>;

interface Parameter {
  name: string;
  spelling: string;
  loc: (string | number)[];
  /** The schema of the parameter's text; for an array, the schema of an element. */
  schema: z.core.$ZodType;
  type: ScalarType;
  isArray: boolean;
  /** The value if the parameter is missing; `undefined` if it is required. */
  absent: { value: unknown } | undefined;
  /** Aliases of the parameter's values → the values. */
  synonyms: ReadonlyMap<unknown, string> | undefined;
}

/**
 * @param spell returns how a schema's name is spelt in the request
 * @param appAliases alias of an application → the application's name
 */
export function parameterReader(
  place: 'path' | 'query' | 'header',
  declared: z.ZodObject | undefined,
  spell: (name: string) => string,
  appAliases: ReadonlyMap<string, string>,
): ReadParameters {
  const parameters = Object.entries(declared?.shape ?? {}).map(([name, schema]): Parameter => {
    const spelling = spell(name);
    const { element } = getDefinition(unwrap(schema));
    const text = element ?? schema;
    return {
      name,
      spelling,
      loc: [place, spelling],
      schema: text,
      type: scalarTypeFor(text),
      isArray: element !== undefined,
      absent: absentValue(schema),
      synonyms: spelling === 'app_name' ? appAliases : undefined,
    };
  });
  return (sent, refused) => {
    const values: Record<string, unknown> = {};
    for (const parameter of parameters) {
      const { name, absent, isArray, loc, synonyms } = parameter;
      const texts = toTexts(sent[parameter.spelling]);
      if (texts.length === 0 && (isArray || absent)) {
        if (absent?.value !== undefined) values[name] = absent.value;
        continue;
      }
      const value = isArray
        ? texts.map((text, index) => readText(parameter, [...loc, index], text, refused))
        : readText(parameter, loc, texts.at(-1), refused);
      if (value !== undefined) values[name] = synonyms?.get(value) ?? value;
    }
    return values;
  };
}

const NO_TEXTS: string[] = [];

function toTexts(sent: unknown): string[] {
  if (sent === undefined) return NO_TEXTS;
  return typeof sent === 'string' ? [sent] : [sent].flat().filter((text) => typeof text === 'string');
}

/**
 * Returns the value of a missing parameter. Computed once, because most parameters are missing and zod takes 1 µs for
 * each. `undefined` for a required parameter, and for an object, which a request could modify.
 */
function absentValue(schema: z.core.$ZodType): { value: unknown } | undefined {
  const { success, data } = safeParse(schema, undefined);
  return !success || typeof data === 'object' ? undefined : { value: data };
}

function readText(
  { schema, type }: Parameter,
  loc: (string | number)[],
  text: string | undefined,
  refused: RefusedParameter[],
): unknown {
  const parsed = text === undefined ? { value: undefined } : parseScalar(type, text);
  const result = 'value' in parsed ? safeParse(schema, parsed.value) : undefined;
  if (result?.success) return result.data;
  refused.push({ loc, schema, text, ...parsed });
  return undefined;
}

function scalarTypeFor(schema: z.core.$ZodType): ScalarType {
  const { type, format } = getDefinition(unwrap(schema));
  if (type === 'number') return format?.includes('int') ? 'integer' : 'number';
  return type === 'boolean' ? 'boolean' : 'string';
}

/** The declared parameters of a query by their schema names, and the unknown names. */
interface SentQuery {
  values: Record<string, unknown>;
  /** Parameter's name → the spelling that was sent, if it differs. */
  spellings: ReadonlyMap<string, string>;
  unknown: UnknownName[];
}

const NOTHING: SentQuery = { values: {}, spellings: new Map(), unknown: [] };

/**
 * Prepares an operation's query names. camelCase and snake_case are valid; the schema's spelling wins if both are sent.
 * @param single the parameters with a single value
 * @param elsewhere the member names of the body
 */
export function queryNames(
  declared: readonly string[],
  single: ReadonlySet<string>,
  elsewhere: UnknownName['elsewhere'],
): (sent: Record<string, unknown>) => SentQuery {
  const others = declared.flatMap((name) =>
    [snakeCase(name), camelCase(name)]
      .filter((other) => !declared.includes(other))
      .map((other) => [other, name] as const),
  );
  const names = new Map<string, string>([...others, ...declared.map((name) => [name, name] as const)]);
  return (sent) => {
    const keys = Object.keys(sent);
    if (keys.length === 0) return NOTHING;
    const values: Record<string, unknown> = {};
    const spellings = new Map<string, string>();
    const unknown: UnknownName[] = [];
    for (const key of keys) {
      const input = sent[key];
      const place = { loc: ['query', key], input, known: declared };
      const name = names.get(key);
      if (name === undefined) unknown.push({ ...place, ...(elsewhere && { elsewhere }) });
      else if (name !== key && name in sent) unknown.push({ ...place, counts: name });
      else {
        values[name] = input;
        if (name !== key) spellings.set(name, key);
        if (Array.isArray(input) && single.has(name)) unknown.push({ ...place, isRepeated: true });
      }
    }
    return { values, spellings, unknown };
  };
}
