import type { JsonObject } from '../../../core/content.ts';
import type { ModelUse } from '../../../conversation/budgets/budget.ts';
import type { Efficiency } from '../metrics/efficiency.ts';
import { type EvalStatus, type RubricScore, STATUS_NUMBERS } from '../metrics/status.ts';

export interface MetricResult {
  metricName: string;
  threshold: number | null;
  /** As sent by the client. */
  criterion?: unknown;
  score: number | null;
  status: EvalStatus;
  explanation?: string | undefined;
  rubricScores?: RubricScore[] | undefined;
  /** The judge model, and a version that changes with the wording of its prompts. */
  judge?: { model: string; promptVersion: string } | undefined;
}

/** The verdict on a case; results in the order of the metrics. */
export interface ScoredCase {
  finalStatus: EvalStatus;
  overall: MetricResult[];
  turns: MetricResult[][];
  /** Metrics without a result, so that a passed metric does not hide them. */
  notEvaluated: string[];
  efficiency: Efficiency;
  /** Model use of the case's agents, from the events of the session. */
  uses?: ModelUse[];
  agents?: JsonObject;
}

/** Drops the time of neither model nor tool from an answer. */
export function toEfficiencyView({ invocationDuration, ...others }: Efficiency) {
  const { frameworkSeconds: _rest, ...durations } = invocationDuration ?? {};
  return { ...others, invocationDuration: invocationDuration && durations };
}

/**
 * Returns an explanation as the rationale of a rubric without a score, because ADK's models have no other text that its
 * clients print.
 */
export const toReason = (rubricId: string, rationale: string) => [{ rubricId, rationale }];

/** Converts a metric's result to ADK's form. */
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
