import { Ajv, type ValidateFunction } from 'ajv';
import { Ajv2020 } from 'ajv/dist/2020.js';
import type { JsonObject } from '../../core/content.ts';
import { mapExactIntegers, toRounded } from '../../core/exact-json.ts';

/** Makes the test of one `pattern`. @throws where it cannot. */
export type ToPattern = (pattern: string) => { test: (text: string) => boolean };

const options = { strict: false, validateFormats: false, addUsedSchema: false, logger: false } as const;
const validators = new WeakMap<JsonObject, ValidateFunction>();

/** One compiler per schema: Ajv keeps every schema it compiled, and MCP servers bring new ones with each invocation. */
function compile(parameters: JsonObject, toPattern?: ToPattern): ValidateFunction {
  const { $schema, ...schema } = parameters;
  const isOldDraft = typeof $schema === 'string' && /draft-0[467]/.test($schema);
  // `code` is only for validators that are written out as text, which none is here.
  const more = toPattern ? { code: { regExp: Object.assign(toPattern, { code: '' }) } } : {};
  const Compilers = isOldDraft ? [Ajv, Ajv2020] : [Ajv2020, Ajv];
  const [first, second] = Compilers.map((Compiler) => new Compiler({ ...options, ...more }));
  try {
    return (first as Ajv).compile(schema);
  } catch {
    // Few servers name the draft that they mean: `items` of a tuple is a list in draft 7 and none in 2020-12.
    return (second as Ajv).compile(schema);
  }
}

function getValidator(parameters: JsonObject): ValidateFunction {
  const known = validators.get(parameters);
  if (known) return known;
  const validator = compile(parameters);
  validators.set(parameters, validator);
  return validator;
}

/** Returns the first violation of a JSON Schema in words; only for the operator's: a hostile one may hang. */
export const schemaError = (schema: JsonObject, value: unknown, what: Checked): string | undefined =>
  errorBy(() => getValidator(schema), value, what);

/** Returns the first violation of any schema, with patterns made by `toPattern` and nothing kept. */
export const schemaErrorOnce = (schema: JsonObject, value: unknown, what: Checked, toPattern: ToPattern) =>
  errorBy(() => compile(schema, toPattern), value, what);

/** The value that a schema is for: the arguments of a call, its answer, or what an agent answers. */
export type Checked = 'arguments' | 'answer' | 'output';

/** The problem of every output where its schema is none. */
export const UNUSABLE_OUTPUT = 'The schema of the answer cannot be used';

const WORDS = {
  arguments: {
    // A draft or a reference that is not known here: whoever declared the tool checks the call.
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

/** Maximum length of a part of a sentence that schema or arguments wrote. */
const MAX_QUOTED = 500;

function errorBy(validator: () => ValidateFunction, value: unknown, what: Checked): string | undefined {
  let validate: ValidateFunction;
  try {
    validate = validator();
  } catch {
    return WORDS[what].unusable;
  }
  if (validate(mapExactIntegers(value, toRounded))) return undefined;
  const [first] = validate.errors ?? [];
  const place = first?.instancePath ? `\`${first.instancePath.slice(0, MAX_QUOTED)}\`` : `The ${what}`;
  const more = first?.params['additionalProperty'];
  const extra = typeof more === 'string' ? ` (${more.slice(0, MAX_QUOTED)})` : '';
  return WORDS[what].toText(`${place} ${(first?.message ?? 'do not fit').slice(0, MAX_QUOTED)}${extra}`);
}
