import { type AgentDescription, listAgents } from '../../../conversation/apps/agent-description.ts';
import type { ModelPrice, ModelUse } from '../../../conversation/budgets/budget.ts';
import type { Event } from '../../../core/event.ts';
import { mapExactIntegers, toRounded } from '../../../core/exact-json.ts';

/** Tokens by model: an event counts for its agent's model, or for the root agent's if that agent is unknown. */
export function toUses(events: Event[], agent: AgentDescription): ModelUse[] {
  const models = new Map(listAgents(agent).map(({ name, model }) => [name, model]));
  const uses = new Map<string, ModelUse>();
  for (const { author, usageMetadata, modelVersion } of events) {
    if (!usageMetadata) continue;
    const model = models.get(author ?? '') ?? agent.model;
    const answeredAs = modelVersion ?? model;
    const key = JSON.stringify([model, answeredAs]);
    const before = uses.get(key) ?? { model, answeredAs, promptTokens: 0, outputTokens: 0 };
    // Token counts are converted, because a client may have sent the event with integers of any size.
    const { promptTokenCount, toolUsePromptTokenCount, candidatesTokenCount, thoughtsTokenCount } = mapExactIntegers(
      usageMetadata,
      toRounded,
    ) as typeof usageMetadata;
    uses.set(key, {
      model,
      answeredAs,
      promptTokens: before.promptTokens + (promptTokenCount ?? 0) + (toolUsePromptTokenCount ?? 0),
      outputTokens: before.outputTokens + (candidatesTokenCount ?? 0) + (thoughtsTokenCount ?? 0),
    });
  }
  return [...uses.values()];
}

/** Finds a model's price by the longest matching prefix of its name, as in the view `inspect.invocation_costs`. */
const findPrice = (name: string, prices: ModelPrice[]) =>
  prices
    .filter((one) => one.model !== '*' && name.startsWith(one.model))
    .toSorted((one, other) => other.model.length - one.model.length)[0];

/** The cost of model uses; prices are per million tokens. `undefined` if no model was used or a price is missing. */
export function computeCost(uses: ModelUse[] | undefined, prices: ModelPrice[]): number | undefined {
  if (!uses || uses.length === 0) return undefined;
  let total = 0;
  for (const { model, answeredAs, promptTokens, outputTokens } of uses) {
    const price =
      findPrice(answeredAs ?? model, prices) ?? findPrice(model, prices) ?? prices.find((one) => one.model === '*');
    if (!price) return undefined;
    total += promptTokens * price.promptPrice + outputTokens * price.outputPrice;
  }
  return total / 1_000_000;
}

export function sumOfCosts(costs: (number | undefined)[]): number | undefined {
  const knownCosts = costs.filter((cost) => cost !== undefined);
  return knownCosts.length === 0 ? undefined : knownCosts.reduce((sum, cost) => sum + cost, 0);
}
