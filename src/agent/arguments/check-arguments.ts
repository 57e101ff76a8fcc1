import { Ajv, type ValidateFunction } from 'ajv';
import { Ajv2020 } from 'ajv/dist/2020.js';
import type { JsonObject } from '../../core/content.ts';

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
  return (isOldDraft ? new Ajv({ ...options, ...more }) : new Ajv2020({ ...options, ...more })).compile(schema);
}

function getValidator(parameters: JsonObject): ValidateFunction {
  const known = validators.get(parameters);
  if (known) return known;
  const validator = compile(parameters);
  validators.set(parameters, validator);
  return validator;
}

/** Returns the first violation of the tool's JSON Schema in words; only for the operator's: a hostile one may hang. */
export function argumentsError(parameters: JsonObject, args: JsonObject): string | undefined {
  return errorBy(() => getValidator(parameters), args);
}

/** As {@link argumentsError}, with patterns made by `toPattern` and nothing kept. */
export const argumentsErrorOnce = (parameters: JsonObject, args: JsonObject, toPattern: ToPattern) =>
  errorBy(() => compile(parameters, toPattern), args);

/** Maximum length of a part of a sentence that schema or arguments wrote. */
const MAX_QUOTED = 500;

function errorBy(validator: () => ValidateFunction, args: JsonObject): string | undefined {
  let validate: ValidateFunction;
  try {
    validate = validator();
  } catch {
    return 'The schema of this tool cannot be used, so it cannot be called.';
  }
  if (validate(args)) return undefined;
  const [first] = validate.errors ?? [];
  const place = first?.instancePath ? `\`${first.instancePath.slice(0, MAX_QUOTED)}\`` : 'The arguments';
  const more = first?.params['additionalProperty'];
  const extra = typeof more === 'string' ? ` (${more.slice(0, MAX_QUOTED)})` : '';
  const problem = `${place} ${(first?.message ?? 'do not fit').slice(0, MAX_QUOTED)}${extra}`;
  return `Invalid arguments: ${problem}. Call the tool again with arguments that fit its schema.`;
}
