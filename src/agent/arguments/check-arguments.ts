import { Ajv, type ValidateFunction } from 'ajv';
import { Ajv2020 } from 'ajv/dist/2020.js';
import type { JsonObject } from '../../core/content.ts';
import { mapExactIntegers, toRounded } from '../../core/exact-json.ts';

/** Compiles a `pattern` of JSON Schema. @throws if the pattern cannot be compiled */
export type ToPattern = (pattern: string) => { test: (text: string) => boolean };

const options = { strict: false, validateFormats: false, addUsedSchema: false, logger: false } as const;
const validators = new WeakMap<JsonObject, ValidateFunction>();

/**
 * Compiles with a new Ajv per schema. Ajv keeps every schema it compiles, and MCP servers bring new ones with each
 * invocation.
 */
function compile(parameters: JsonObject, toPattern?: ToPattern): ValidateFunction {
  const { $schema, ...schema } = parameters;
  const isOldDraft = typeof $schema === 'string' && /draft-0[467]/.test($schema);
  // `code` matters only for validators printed as source, which never happens here.
  const more = toPattern ? { code: { regExp: Object.assign(toPattern, { code: '' }) } } : {};
  const Compilers = isOldDraft ? [Ajv, Ajv2020] : [Ajv2020, Ajv];
  const [first, second] = Compilers.map((Compiler) => new Compiler({ ...options, ...more }));
  try {
    return (first as Ajv).compile(schema);
  } catch {
    // Few servers declare their draft, so the other dialect is tried: an `items` array is a tuple in draft 7 and
    // invalid in 2020-12.
    return (second as Ajv).compile(schema);
  }
}

function getValidator(parameters: JsonObject): ValidateFunction {
  const cached = validators.get(parameters);
  if (cached) return cached;
  const validator = compile(parameters);
  validators.set(parameters, validator);
  return validator;
}

/**
 * Returns the first violation of a schema, as a sentence. For schemas of the operator only, because a hostile one may
 * never return.
 */
export const schemaError = (schema: JsonObject, value: unknown, what: Checked): string | undefined =>
  findViolation(() => getValidator(schema), value, what);

/**
 * Returns the first violation of an untrusted schema, as a sentence. `toPattern` compiles its patterns; no compiled
 * schema is cached.
 */
export const schemaErrorOnce = (schema: JsonObject, value: unknown, what: Checked, toPattern: ToPattern) =>
  findViolation(() => compile(schema, toPattern), value, what);

/** The value that is checked: a call's arguments, a tool's answer, or an agent's output. */
export type Checked = 'arguments' | 'answer' | 'output';

/** Problem reported for every output if its schema is invalid. */
export const UNUSABLE_OUTPUT = 'The schema of the answer cannot be used';

const WORDS = {
  arguments: {
    // The draft or a reference of the schema is not supported, so the tool's owner checks the call.
    unusable: undefined,
    toText: (problem: string) =>
      `Invalid arguments: ${problem}. Call the tool again with arguments that fit its schema.`,
  },
  answer: {
    unusable: undefined,
    toText: (problem: string) => `The tool answered what its output schema refuses: ${problem}.`,
  },
  output: { unusable: UNUSABLE_OUTPUT, toText: (problem: string) => problem },
};

/** Maximum length of text quoted from a schema or arguments, in characters. */
const MAX_QUOTED = 500;

function findViolation(validator: () => ValidateFunction, value: unknown, what: Checked): string | undefined {
  let validate: ValidateFunction;
  try {
    validate = validator();
  } catch {
    return WORDS[what].unusable;
  }
  if (validate(mapExactIntegers(value, toRounded))) return undefined;
  const [violation] = validate.errors ?? [];
  const place = violation?.instancePath ? `\`${violation.instancePath.slice(0, MAX_QUOTED)}\`` : `The ${what}`;
  const property = violation?.params['additionalProperty'];
  const extra = typeof property === 'string' ? ` (${property.slice(0, MAX_QUOTED)})` : '';
  return WORDS[what].toText(`${place} ${(violation?.message ?? 'do not fit').slice(0, MAX_QUOTED)}${extra}`);
}
