import type { JsonObject } from '../../core/content.ts';
import type { ModelRequest } from '../definition/model.ts';
import type { CallOptions, ProviderName } from './provider.ts';

type Schema = Extract<NonNullable<CallOptions['responseFormat']>, { type: 'json' }>['schema'] & JsonObject;

/** The form of an answer on its way to a provider. */
export interface AnswerForm {
  schema: Schema;
  /** True where the provider is asked in its own way: it lets the model say nothing else. */
  isNative: boolean;
}

/** Returns the form that a request wants. Servers of the compatible wire would call no tools under a form. */
export function toForm(
  { outputSchema, tools, toolChoice }: ModelRequest,
  provider: ProviderName,
): AnswerForm | undefined {
  // An answer that has to be a call has no form.
  if (!outputSchema || toolChoice) return undefined;
  return { schema: outputSchema, isNative: provider !== 'openai-compatible' || tools.length === 0 };
}

/** Returns the request with words for the form, where the provider's own way is not sure to work. */
export function withForm(
  request: ModelRequest,
  provider: ProviderName,
  { schema, isNative }: AnswerForm,
): ModelRequest {
  if (isNative && provider !== 'openai-compatible') return request;
  const words = `Your last answer is one JSON value that fits this schema, and nothing else: ${JSON.stringify(schema)}`;
  return { ...request, instruction: [request.instruction, words].filter(Boolean).join('\n\n') };
}

/** Keywords that OpenAI knows in its strict form. */
const STRICT = new Set(
  'type properties required additionalProperties items enum const anyOf $ref $defs description title'.split(' '),
);

/** True for a schema that OpenAI can enforce: it refuses others, but as a hint. */
export function isStrict(schema: JsonObject): boolean {
  try {
    return schema['type'] === 'object' && isStrictPart(schema);
  } catch {
    // A member of another type than the keyword's.
    return false;
  }
}

function isStrictPart(value: unknown): boolean {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return false;
  const schema = value as JsonObject;
  const { type, properties = {}, required = [], additionalProperties, items = {}, anyOf = [], $defs = {} } = schema;
  const parts = [...Object.values(properties as JsonObject), ...Object.values($defs as JsonObject)];
  const all = [...parts, ...(anyOf as unknown[]), ...(Object.hasOwn(schema, 'items') ? [items] : [])];
  const named = Object.keys(properties as JsonObject).every((name) => (required as unknown[]).includes(name));
  const isClosed = type !== 'object' || (additionalProperties === false && named);
  return isClosed && Object.keys(schema).every((name) => STRICT.has(name)) && all.every(isStrictPart);
}
