export type EvalStatus = 'PASSED' | 'FAILED' | 'NOT_EVALUATED' | 'INFORMATIONAL';

/** A judge's verdict on one rubric: 1, 0, or null if it was unreadable. */
export interface RubricScore {
  rubricId: string;
  score: number | null;
  rationale?: string | undefined;
}

/** One turn's score for a metric; null, with an explanation, if it could not be evaluated. */
export interface TurnScore {
  score: number | null;
  explanation?: string | undefined;
  /** Set if a part of the turn could not be computed although the rest has a score. */
  failure?: string | undefined;
  rubricScores?: RubricScore[] | undefined;
}

/** Score of a metric for a conversation, with one score per turn. */
export interface MetricScore {
  score: number | null;
  turns: TurnScore[];
  /** The mean over the turns, by rubric. */
  rubricScores?: RubricScore[] | undefined;
}

export const STATUS_NUMBERS: Record<EvalStatus, number> = { PASSED: 1, FAILED: 2, NOT_EVALUATED: 3, INFORMATIONAL: 4 };

/** A score passes at the threshold exactly, without tolerance; a null score is never evaluated. */
export function toStatus(score: number | null, threshold: number): EvalStatus {
  if (score === null) return 'NOT_EVALUATED';
  return score >= threshold ? 'PASSED' : 'FAILED';
}

/** Mean of the scores that are not null; null if there are none. */
export function toOverall(scores: (number | null)[]): number | null {
  const valid = scores.filter((score) => score !== null);
  return valid.length === 0 ? null : valid.reduce((sum, score) => sum + score, 0) / valid.length;
}

/** A case fails if one metric fails, and otherwise passes if one passes; other statuses do not count. */
export function toFinalStatus(statuses: EvalStatus[]): EvalStatus {
  if (statuses.includes('FAILED')) return 'FAILED';
  return statuses.includes('PASSED') ? 'PASSED' : 'NOT_EVALUATED';
}

/** Explains a turn with nothing to score. Any other explanation of a turn without a score is a failure. */
export const NOTHING_SAID = 'The agent said nothing.';

/**
 * Returns why a turn, or a part of it, could not be computed. A metric with a failure prevents its case from passing.
 */
export const getFailure = ({ score, explanation, failure }: TurnScore): string | undefined =>
  failure ?? (score === null && explanation !== NOTHING_SAID ? explanation : undefined);

/** A case with metrics that could not be computed may fail, but not pass. */
export const withoutPass = (status: EvalStatus): EvalStatus => (status === 'PASSED' ? 'NOT_EVALUATED' : status);

/** A metric that cannot be evaluated: its status is NOT_EVALUATED, and the other metrics are still scored. */
export class MetricError extends Error {
  override name = 'MetricError';
}
