import type { ModelUse } from '../../../conversation/budgets/budget.ts';
import type { Efficiency } from '../metrics/efficiency.ts';
import { type EvalStatus, type RubricScore, STATUS_NUMBERS } from '../metrics/status.ts';

/** What one metric says of a case or of one of its turns. */
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
  /** Who judged, where a model did. */
  judge?: JudgedBy | undefined;
}

/** A judge: the model, and a version that changes with the words of its prompts. */
export interface JudgedBy {
  model: string;
  promptVersion: string;
}

/** A case with its verdict; results in the order of the metrics. */
export interface ScoredCase {
  finalStatus: EvalStatus;
  overall: MetricResult[];
  turns: MetricResult[][];
  /** The metrics that say nothing: one that passed does not hide them. */
  notEvaluated: string[];
  efficiency: Efficiency;
  /** What the models of its agents used; absent in what older versions stored. */
  uses?: ModelUse[];
}

/** The means over the turns, each kind once; the time that neither model nor tool took is the rest of the total. */
export type ShownEfficiency = Record<'toolCallCount' | 'inferenceCallCount', number | null> & {
  tokenUsage: Efficiency['tokenUsage']['overallDetails'];
  invocationDuration: Efficiency['invocationDuration']['overallDetails'];
};

/** The efficiency of a case as answers show it. */
export function toShownEfficiency(of: Efficiency): ShownEfficiency {
  const { frameworkSeconds: _rest, ...durations } = of.invocationDuration.overallDetails ?? {};
  return {
    toolCallCount: of.toolCallCount.overall,
    inferenceCallCount: of.inferenceCallCount.overall,
    tokenUsage: of.tokenUsage.overallDetails,
    invocationDuration: of.invocationDuration.overallDetails && durations,
  };
}

/** What a metric says, as ADK's clients read it. */
export function toMetricResult({
  metricName,
  threshold,
  criterion,
  score,
  status,
  explanation,
  rubricScores,
}: MetricResult) {
  const details = { ...(rubricScores ? { rubricScores } : {}), ...(explanation === undefined ? {} : { explanation }) };
  return {
    metricName,
    ...(threshold === null ? {} : { threshold }),
    ...(criterion == null ? {} : { criterion }),
    ...(score === null ? {} : { score }),
    evalStatus: STATUS_NUMBERS[status],
    ...(Object.keys(details).length > 0 ? { details } : {}),
  };
}
