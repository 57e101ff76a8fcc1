import {
  type Model,
  type ModelAnswer,
  type ModelRequest,
  type Sampling,
  toCallUse,
} from '../../../agent/definition/model.ts';
import { spend as countSpent } from '../../../conversation/budgets/budget-store.ts';
import { overBudgetError } from '../../../conversation/budgets/budget.ts';
import { reserveCall } from '../../../conversation/budgets/reserve-call.ts';
import { getParts, type Part } from '../../../core/content.ts';
import type { SessionKey } from '../../../core/session.ts';
import type { Database } from '../../../platform/db/database.ts';
import type { Judge } from './judge.ts';

/** Makes a model call within budgets and counts it. @throws {LimitError} where less is left than it may use */
export type Spend = (model: Model, request: ModelRequest) => Promise<ModelAnswer>;

/** Charges judges, and models in a user's place, to the user of the session that they are about. */
export const spendWith =
  (db: Database, key: SessionKey): Spend =>
  async (model, request) => {
    const reserved = await reserveCall(db, key, request);
    if ('what' in reserved) throw overBudgetError(reserved);
    try {
      const answer = model.generate(reserved.request);
      for (;;) {
        const step = await answer.next();
        if (!step.done) continue;
        await countSpent(db, key, [{ ...toCallUse(request.modelName, step.value), reservation: reserved.reservation }]);
        return step.value;
      }
    } finally {
      reserved.end();
    }
  };

/**
 * Text of a model for a prompt, without tools and without what was said before; `''` where it says nothing.
 * @param between the text between two parts
 */
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
