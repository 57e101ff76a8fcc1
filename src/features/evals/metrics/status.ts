export type EvalStatus = 'PASSED' | 'FAILED' | 'NOT_EVALUATED' | 'INFORMATIONAL';

/** A judge's verdict on a rubric. The score is 1 or 0, or null if the judge's answer was unreadable. */
export interface RubricScore {
  rubricId: string;
  score: number | null;
  rationale?: string | undefined;
}

/** A metric's score of a turn. The score is null, with an explanation, if the turn could not be evaluated. */
export interface TurnScore {
  score: number | null;
  explanation?: string | undefined;
  /** Message, if a part of the turn could not be evaluated although the turn has a score. */
  failure?: string | undefined;
  rubricScores?: RubricScore[] | undefined;
}

/** A metric's score of a conversation, with a score per turn. */
export interface MetricScore {
  score: number | null;
  turns: TurnScore[];
  /** Mean score over the turns, for each rubric. */
  rubricScores?: RubricScore[] | undefined;
}

export const STATUS_NUMBERS: Record<EvalStatus, number> = { PASSED: 1, FAILED: 2, NOT_EVALUATED: 3, INFORMATIONAL: 4 };

/** A score passes if it is at least the threshold, without tolerance. A null score is not evaluated. */
export function toStatus(score: number | null, threshold: number): EvalStatus {
  if (score === null) return 'NOT_EVALUATED';
  return score >= threshold ? 'PASSED' : 'FAILED';
}

/** Mean of the scores that are not null; null if there are none. */
export function toOverall(scores: (number | null)[]): number | null {
  const valid = scores.filter((score) => score !== null);
  return valid.length === 0 ? null : valid.reduce((sum, score) => sum + score, 0) / valid.length;
}

/** A case failed if any metric failed, otherwise passed if any passed. Other statuses are ignored. */
export function toFinalStatus(statuses: EvalStatus[]): EvalStatus {
  if (statuses.includes('FAILED')) return 'FAILED';
  return statuses.includes('PASSED') ? 'PASSED' : 'NOT_EVALUATED';
}

/** A turn without text to score is no failure; any other explanation of a missing score is one. */
export const NOTHING_SAID = 'The agent said nothing.';

/** Why a turn could not be evaluated in whole or in part. A case with such a failure of a metric does not pass. */
export const getFailure = ({ score, explanation, failure }: TurnScore): string | undefined =>
  failure ?? (score === null && explanation !== NOTHING_SAID ? explanation : undefined);

/** Replaces the status "passed" of a case by "not evaluated", for cases with metrics that could not be evaluated. */
export const withoutPass = (status: EvalStatus): EvalStatus => (status === 'PASSED' ? 'NOT_EVALUATED' : status);

/** A metric with this error gets the status NOT_EVALUATED; the case's other metrics are still scored. */
export class MetricError extends Error {
  override name = 'MetricError';
}
