import type { JsonObject } from '../../../core/content.ts';
import type { ModelUse } from '../../../conversation/budgets/budget.ts';
import type { Efficiency } from '../metrics/efficiency.ts';
import { type EvalStatus, type RubricScore, STATUS_NUMBERS } from '../metrics/status.ts';

/** The result of one metric for a case or for one of its turns. */
export interface MetricResult {
  metricName: string;
  threshold: number | null;
  /** As it was sent. */
  criterion?: unknown;
  score: number | null;
  status: EvalStatus;
  /** Why it could not be evaluated. */
  explanation?: string | undefined;
  rubricScores?: RubricScore[] | undefined;
  /** The model that judged, and a version that changes with the words of its prompts. */
  judge?: { model: string; promptVersion: string } | undefined;
}

/** A case with its verdict; results in the order of the metrics. */
export interface ScoredCase {
  finalStatus: EvalStatus;
  overall: MetricResult[];
  turns: MetricResult[][];
  /** The metrics that say nothing: one that passed does not hide them. */
  notEvaluated: string[];
  efficiency: Efficiency;
  /** The model uses of its agents, from the events of the session. */
  uses?: ModelUse[];
  /** The agents that spoke, by name, with what each was given. */
  agents?: JsonObject;
}

/** The efficiency as answers show it: the rest of the total is time of neither model nor tool. */
export function toShownEfficiency({ invocationDuration, ...others }: Efficiency) {
  const { frameworkSeconds: _rest, ...durations } = invocationDuration ?? {};
  return { ...others, invocationDuration: invocationDuration && durations };
}

/** A reason where ADK's models allow a text and its clients print one: the rationale of a rubric without a score. */
export const toReason = (rubricId: string, rationale: string) => [{ rubricId, rationale }];

/** The result of a metric as ADK's clients read it. */
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
