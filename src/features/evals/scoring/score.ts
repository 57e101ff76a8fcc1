import type { JsonObject } from '../../../core/content.ts';
import type { ModelUse } from '../../../conversation/budgets/budget.ts';
import type { Efficiency } from '../metrics/efficiency.ts';
import { type EvalStatus, type RubricScore, STATUS_NUMBERS } from '../metrics/status.ts';
import { type AgentDescription, listAgents } from '../../../conversation/apps/hosted-agent.ts';
import type { Event } from '../../../core/event.ts';
import { mapExactIntegers, toRounded } from '../../../core/exact-json.ts';

export interface MetricResult {
  metricName: string;
  threshold: number | null;
  /** The metric's criterion, as the client sent it. */
  criterion?: unknown;
  score: number | null;
  status: EvalStatus;
  explanation?: string | undefined;
  rubricScores?: RubricScore[] | undefined;
  /** The judge model, and a version of its prompts that changes with their text. */
  judge?: { model: string; promptVersion: string } | undefined;
}

/** The scores of a case. `results` has the order of the requested metrics. */
export interface ScoredCase {
  finalStatus: EvalStatus;
  overall: MetricResult[];
  turns: MetricResult[][];
  /** Metrics that could not be evaluated: the case may have passed by its other metrics. */
  notEvaluated: string[];
  efficiency: Efficiency;
  /** Token use of the case's agents by model, computed from the events of the session. */
  uses?: ModelUse[];
  agents?: JsonObject;
}

/** Converts efficiency metrics for a response: omits the time outside models and tools. */
export function toEfficiencyView({ invocationDuration, ...others }: Efficiency) {
  const { frameworkSeconds: _rest, ...durations } = invocationDuration ?? {};
  return { ...others, invocationDuration: invocationDuration && durations };
}

/** An explanation as a rubric's rationale, because in ADK's schema this is the only text that ADK's clients print. */
export const toReason = (rubricId: string, rationale: string) => [{ rubricId, rationale }];

export function toMetricResult(result: MetricResult) {
  const { metricName, threshold, criterion, score, status, explanation } = result;
  const reason = explanation === undefined ? [] : toReason(metricName, explanation);
  const rubricScores = [...(result.rubricScores ?? []), ...reason];
  return {
    metricName,
    ...(threshold === null ? {} : { threshold }),
    ...(criterion == null ? {} : { criterion }),
    ...(score === null ? {} : { score }),
    evalStatus: STATUS_NUMBERS[status],
    ...(rubricScores.length > 0 ? { details: { rubricScores } } : {}),
  };
}

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

export function sumOfCosts(costs: (number | undefined)[]): number | undefined {
  const knownCosts = costs.filter((cost) => cost !== undefined);
  return knownCosts.length === 0 ? undefined : knownCosts.reduce((sum, cost) => sum + cost, 0);
}
