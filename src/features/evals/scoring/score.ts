import type { JsonObject } from '../../../core/content.ts';
import type { ModelUse } from '../../../conversation/budgets/budget.ts';
import type { Efficiency } from '../metrics/efficiency.ts';
import { type EvalStatus, type RubricScore, STATUS_NUMBERS } from '../metrics/status.ts';

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
