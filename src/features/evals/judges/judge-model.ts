import { type CallUse, type Model, type Sampling, toCallUse } from '../../../agent/definition/model.ts';
import { spend as countSpent } from '../../../conversation/budgets/budget-store.ts';
import { overBudgetError } from '../../../conversation/budgets/budget.ts';
import { getParts, type Part } from '../../../core/content.ts';
import type { SessionKey } from '../../../core/session.ts';
import type { Database } from '../../../platform/db/database.ts';
import type { Judge } from './judge.ts';

/** Counts what a call used; `undefined` before it. @throws {LimitError} then, where a budget has nothing left */
export type Spend = (use?: CallUse) => Promise<void>;

/** Charges judges, and models in a user's place, to the user of the session that they are about. */
export const spendWith =
  (db: Database, key: SessionKey): Spend =>
  async (use) => {
    const over = await countSpent(db, key, use ? [use] : []);
    // What has been answered is taken: the next call is refused.
    if (over && !use) throw overBudgetError(over);
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
    await spend();
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
      if (!step.done) continue;
      await spend(toCallUse(modelName, step.value));
      return toText(step.value.content?.parts ? getParts(step.value.content) : [], between);
    }
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
