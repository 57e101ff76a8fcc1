import { Ajv, type ValidateFunction } from 'ajv';
import { Ajv2020 } from 'ajv/dist/2020.js';
import type { JsonObject } from '../../core/content.ts';

const options = { strict: false, validateFormats: false, addUsedSchema: false, logger: false } as const;
const validators = new WeakMap<JsonObject, ValidateFunction>();

/** One compiler per schema: Ajv keeps every schema it compiled, and MCP servers bring new ones with each invocation. */
function compile(parameters: JsonObject): ValidateFunction {
  const { $schema, ...schema } = parameters;
  const isOldDraft = typeof $schema === 'string' && /draft-0[467]/.test($schema);
  return (isOldDraft ? new Ajv(options) : new Ajv2020(options)).compile(schema);
}

function validatorOf(parameters: JsonObject): ValidateFunction {
  const known = validators.get(parameters);
  if (known) return known;
  const validator = compile(parameters);
  validators.set(parameters, validator);
  return validator;
}

/**
 * What is wrong with the arguments by the tool's JSON Schema, as a sentence for the model; `undefined` if nothing is.
 */
export function argumentsError(parameters: JsonObject, args: JsonObject): string | undefined {
  let validate: ValidateFunction;
  try {
    validate = validatorOf(parameters);
  } catch {
    return 'The schema of this tool cannot be used, so it cannot be called.';
  }
  if (validate(args)) return undefined;
  const [first] = validate.errors ?? [];
  const place = first?.instancePath ? `\`${first.instancePath}\`` : 'The arguments';
  const extra =
    typeof first?.params['additionalProperty'] === 'string' ? ` (${first.params['additionalProperty']})` : '';
  const problem = `${place} ${first?.message ?? 'do not fit'}${extra}`;
  return `Invalid arguments: ${problem}. Call the tool again with arguments that fit its schema.`;
}
