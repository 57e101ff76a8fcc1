import type { JsonObject } from '../../core/content.ts';
import type { ModelRequest } from '../definition/model.ts';
import type { CallOptions, ProviderFacts } from '../providers/provider.ts';

type Schema = Extract<NonNullable<CallOptions['responseFormat']>, { type: 'json' }>['schema'] & JsonObject;

export interface AnswerForm {
  schema: Schema;
  /** True: the provider's structured output enforces the output schema. False: only the instruction asks for it. */
  isNative: boolean;
}

export function toForm(
  { outputSchema, tools, toolChoice }: ModelRequest,
  { outputSchemas }: ProviderFacts,
): AnswerForm | undefined {
  // A model that must call a tool gives no final answer, so the output schema does not apply.
  if (!outputSchema || toolChoice) return undefined;
  return { schema: outputSchema, isNative: outputSchemas === 'enforced' || tools.length === 0 };
}

/** Adds the output schema to the instruction, unless the provider enforces it. */
export function withForm(
  request: ModelRequest,
  { outputSchemas }: ProviderFacts,
  { schema, isNative }: AnswerForm,
): ModelRequest {
  if (isNative && outputSchemas === 'enforced') return request;
  const words = `Your last answer is one JSON value that fits this schema, and nothing else: ${JSON.stringify(schema)}`;
  return { ...request, instruction: [request.instruction, words].filter(Boolean).join('\n\n') };
}
