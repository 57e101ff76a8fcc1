import type { JsonObject } from '../../core/content.ts';
import type { ModelRequest, ProviderName } from '../definition/model.ts';
import type { CallOptions } from './provider.ts';

type Schema = Extract<NonNullable<CallOptions['responseFormat']>, { type: 'json' }>['schema'] & JsonObject;

export interface AnswerForm {
  schema: Schema;
  /** True: the provider's structured output enforces the output schema. False: only the instruction asks for it. */
  isNative: boolean;
}

/** OpenAI-compatible servers call no tools in structured output. If there are tools, the instruction has the schema. */
export function toForm(
  { outputSchema, tools, toolChoice }: ModelRequest,
  provider: ProviderName,
): AnswerForm | undefined {
  // A model that must call a tool gives no final answer, so the output schema does not apply.
  if (!outputSchema || toolChoice) return undefined;
  return { schema: outputSchema, isNative: provider !== 'openai-compatible' || tools.length === 0 };
}

/** Adds the output schema to the instruction, unless the provider's structured output is reliable. */
export function withForm(
  request: ModelRequest,
  provider: ProviderName,
  { schema, isNative }: AnswerForm,
): ModelRequest {
  if (isNative && provider !== 'openai-compatible') return request;
  const words = `Your last answer is one JSON value that fits this schema, and nothing else: ${JSON.stringify(schema)}`;
  return { ...request, instruction: [request.instruction, words].filter(Boolean).join('\n\n') };
}

/** JSON Schema keywords that OpenAI supports in strict mode. */
const STRICT = new Set(
  'type properties required additionalProperties items enum const anyOf $ref $defs description title'.split(' '),
);

/** True if OpenAI can enforce the schema. Any other is sent without strict mode, which would reject it. */
export function isStrict(schema: JsonObject): boolean {
  try {
    return schema['type'] === 'object' && isStrictPart(schema);
  } catch {
    // A keyword of the schema has a value of the wrong type.
    return false;
  }
}

function isStrictPart(value: unknown): boolean {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return false;
  const schema = value as JsonObject;
  const { type, properties = {}, required = [], additionalProperties, items = {}, anyOf = [], $defs = {} } = schema;
  const parts = [...Object.values(properties as JsonObject), ...Object.values($defs as JsonObject)];
  const all = [...parts, ...(anyOf as unknown[]), ...(Object.hasOwn(schema, 'items') ? [items] : [])];
  const allRequired = Object.keys(properties as JsonObject).every((name) => (required as unknown[]).includes(name));
  const isClosed = type !== 'object' || (additionalProperties === false && allRequired);
  return isClosed && Object.keys(schema).every((name) => STRICT.has(name)) && all.every(isStrictPart);
}
