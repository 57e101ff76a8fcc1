import { Ajv, type ValidateFunction } from 'ajv';
import { Ajv2020 } from 'ajv/dist/2020.js';
import type { JsonObject } from '../../core/content.ts';
import { mapExactIntegers, toRounded } from '../../core/exact-json.ts';

/** Compiles a `pattern` of a JSON Schema, or throws. */
export type ToPattern = (pattern: string) => { test: (text: string) => boolean };

const options = { strict: false, validateFormats: false, addUsedSchema: false, logger: false } as const;
const validators = new WeakMap<JsonObject, ValidateFunction>();

/** Uses a new Ajv each time, because an Ajv keeps every schema, and MCP servers bring new ones with each invocation. */
function compile(parameters: JsonObject, toPattern?: ToPattern): ValidateFunction {
  const { $schema, ...schema } = parameters;
  const isOldDraft = typeof $schema === 'string' && /draft-0[467]/.test($schema);
  // `code` is needed only to print a validator as source code, which does not happen here.
  const more = toPattern ? { code: { regExp: Object.assign(toPattern, { code: '' }) } } : {};
  const Compilers = isOldDraft ? [Ajv, Ajv2020] : [Ajv2020, Ajv];
  const [first, second] = Compilers.map((Compiler) => new Compiler({ ...options, ...more }));
  try {
    return (first as Ajv).compile(schema);
  } catch {
    // Few servers declare the version of JSON Schema, so the other version is tried: a list in `items` is a tuple in
    // draft 7 and invalid in 2020-12.
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

/** Safe for the operator's schemas only, because the check of a malicious schema may never end. */
export const schemaError = (schema: JsonObject, value: unknown, what: Checked): string | undefined =>
  findViolation(() => getValidator(schema), value, what);

/** Checks against an untrusted schema, which is not cached. `toPattern` compiles its patterns. */
export const schemaErrorOnce = (schema: JsonObject, value: unknown, what: Checked, toPattern: ToPattern) =>
  findViolation(() => compile(schema, toPattern), value, what);

/** The arguments of a tool call, the result of a tool (`answer`), or an agent's final answer (`output`). */
export type Checked = 'arguments' | 'answer' | 'output';

/** Message for every final answer if the output schema itself is invalid. */
export const UNUSABLE_OUTPUT = 'The schema of the answer cannot be used';

const WORDS = {
  arguments: {
    // A schema whose version or `$ref` is not supported accepts all arguments, because the tool's owner checks them.
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

/** Maximum length of text that is quoted from a schema or from arguments, in characters. */
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
