import type { Model, Sampling } from '../../../agent/definition/model.ts';
import type { Spend } from '../../../conversation/budgets/reserve-call.ts';
import { getParts, type Part } from '../../../core/content.ts';
import type { Judge } from './judge.ts';

/** A judge without tools and history; its text is empty if the model's is. @param between - separator of text parts */
export function judgeWith(
  { model, spend }: { model: Model; spend: Spend },
  modelName: string,
  sampling: Record<string, unknown> | null | undefined,
  signal: AbortSignal,
  between = '\n',
): Judge {
  return async (prompt) => {
    const { content } = await spend(model, {
      modelName,
      instruction: '',
      contents: [{ role: 'user', parts: [{ text: prompt }] }],
      tools: [],
      sampling: toSampling(sampling ?? {}),
      signal,
    });
    return toText(content?.parts ? getParts(content) : [], between);
  };
}

const toText = (parts: Part[], between: string) =>
  parts.flatMap(({ text, thought }) => (text && !thought ? [text] : [])).join(between);

/** Those settings of ADK's model configuration that every provider supports, in camelCase or snake_case. */
function toSampling(config: Record<string, unknown>): Sampling {
  const settings: [keyof Sampling, unknown][] = [
    ['temperature', config['temperature']],
    ['topP', config['topP'] ?? config['top_p']],
    ['maxOutputTokens', config['maxOutputTokens'] ?? config['max_output_tokens']],
    ['presencePenalty', config['presencePenalty'] ?? config['presence_penalty']],
    ['frequencyPenalty', config['frequencyPenalty'] ?? config['frequency_penalty']],
  ];
  return Object.fromEntries(settings.filter(([, value]) => typeof value === 'number'));
}
