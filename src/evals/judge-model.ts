import type { Model, Sampling } from '../agent/definition/model.ts';
import { partsOf } from '../core/content.ts';
import type { Judge } from './judges/judge.ts';

/** Text of a model for a prompt, without tools and without what was said before; `''` where it says nothing. */
export function judgeWith(
  model: Model,
  modelName: string,
  sampling: Record<string, unknown> | null | undefined,
  signal: AbortSignal,
): Judge {
  return async (prompt) => {
    const answer = model.generate({
      modelName,
      instruction: '',
      contents: [{ role: 'user', parts: [{ text: prompt }] }],
      tools: [],
      sampling: toSampling(sampling ?? {}),
      signal,
    });
    for (;;) {
      const step = await answer.next();
      if (step.done) return toText(step.value.content?.parts ? partsOf(step.value.content) : []);
    }
  };
}

const toText = (parts: { text?: string | null | undefined; thought?: boolean | null | undefined }[]) =>
  parts.flatMap(({ text, thought }) => (text && !thought ? [text] : [])).join('\n');

/** The members of ADK's model configuration that every provider knows, in either spelling. */
function toSampling(config: Record<string, unknown>): Sampling {
  const named: [keyof Sampling, unknown][] = [
    ['temperature', config['temperature']],
    ['topP', config['topP'] ?? config['top_p']],
    ['maxOutputTokens', config['maxOutputTokens'] ?? config['max_output_tokens']],
    ['presencePenalty', config['presencePenalty'] ?? config['presence_penalty']],
    ['frequencyPenalty', config['frequencyPenalty'] ?? config['frequency_penalty']],
  ];
  return Object.fromEntries(named.filter(([, value]) => typeof value === 'number'));
}
