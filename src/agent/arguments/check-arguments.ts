import { Ajv, type ValidateFunction } from 'ajv';
import { Ajv2020 } from 'ajv/dist/2020.js';
import type { JsonObject } from '../../core/content.ts';
import { mapExactIntegers, toRounded } from '../../core/exact-json.ts';

/** Compiles the regular expression `pattern` of a JSON Schema, or throws. */
export type ToPattern = (pattern: string) => { test: (text: string) => boolean };

const options = { strict: false, validateFormats: false, addUsedSchema: false, logger: false } as const;
const validators = new WeakMap<JsonObject, ValidateFunction | undefined>();

/**
 * Returns `undefined` for a schema that cannot be used. A new Ajv for each schema, because an Ajv never releases
 * schemas, and MCP servers send new ones all the time.
 */
function compile(parameters: JsonObject, toPattern?: ToPattern): ValidateFunction | undefined {
  const { $schema, ...schema } = parameters;
  const isOldDraft = typeof $schema === 'string' && /draft-0[467]/.test($schema);
  // Ajv's types require `code`, which Ajv reads only to print a validator as source code.
  const more = toPattern ? { code: { regExp: Object.assign(toPattern, { code: '' }) } } : {};
  for (const Compiler of isOldDraft ? [Ajv, Ajv2020] : [Ajv2020, Ajv]) {
    try {
      return new Compiler({ ...options, ...more }).compile(schema);
    } catch {
      // If the schema is invalid in one version of JSON Schema, the other is tried, because few MCP servers declare the
      // version. For example, a list in `items` is a tuple in draft 7 and invalid in 2020-12.
    }
  }
  return undefined;
}

/** For the operator's schemas only, because on this thread the check of a malicious schema might never end. */
export function schemaError(schema: JsonObject, value: unknown, what: Checked): string | undefined {
  if (!validators.has(schema)) validators.set(schema, compile(schema));
  return findViolation(validators.get(schema), value, what);
}

/** For untrusted schemas, which are not cached. `toPattern` compiles the schema's regular expressions. */
export const schemaErrorOnce = (schema: JsonObject, value: unknown, what: Checked, toPattern: ToPattern) =>
  findViolation(compile(schema, toPattern), value, what);

/** A schema checks a tool call's arguments, a tool's result (`answer`), or an agent's final answer (`output`). */
export type Checked = 'arguments' | 'answer' | 'output';

/** Error message for each final answer if the output schema itself is invalid. */
export const UNUSABLE_OUTPUT = 'The schema of the answer cannot be used';

const WORDS = {
  arguments: {
    // If the schema's version or `$ref` is not supported, all arguments pass here, because the tool itself checks them.
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

function findViolation(validate: ValidateFunction | undefined, value: unknown, what: Checked): string | undefined {
  if (!validate) return WORDS[what].unusable;
  if (validate(mapExactIntegers(value, toRounded))) return undefined;
  const [violation] = validate.errors ?? [];
  const place = violation?.instancePath ? `\`${violation.instancePath.slice(0, MAX_QUOTED)}\`` : `The ${what}`;
  const property = violation?.params['additionalProperty'];
  const extra = typeof property === 'string' ? ` (${property.slice(0, MAX_QUOTED)})` : '';
  return WORDS[what].toText(`${place} ${(violation?.message ?? 'do not fit').slice(0, MAX_QUOTED)}${extra}`);
}
