/** The verdict on a metric, a turn or a case. */
export type EvalStatus = 'PASSED' | 'FAILED' | 'NOT_EVALUATED' | 'INFORMATIONAL';

/** A judge's verdict on one rubric: 1, 0, or null where none could be read. */
export interface RubricScore {
  rubricId: string;
  score: number | null;
  rationale?: string | undefined;
}

/** One turn's share of a metric; null with the reason where it could not be evaluated. */
export interface TurnScore {
  score: number | null;
  explanation?: string | undefined;
  /** Why a part of it could not be computed, where the rest has a score. */
  failure?: string | undefined;
  rubricScores?: RubricScore[] | undefined;
}

/** A metric over a conversation, one score for each of its turns. */
export interface MetricScore {
  score: number | null;
  turns: TurnScore[];
  /** Per rubric the mean over the turns. */
  rubricScores?: RubricScore[] | undefined;
}

/** The statuses as numbers of the wire. */
export const STATUS_NUMBERS: Record<EvalStatus, number> = { PASSED: 1, FAILED: 2, NOT_EVALUATED: 3, INFORMATIONAL: 4 };

/** Passed at the threshold and above, without tolerance; a null score is not evaluated whatever the threshold. */
export function toStatus(score: number | null, threshold: number): EvalStatus {
  if (score === null) return 'NOT_EVALUATED';
  return score >= threshold ? 'PASSED' : 'FAILED';
}

/** The mean of the scores that are not null; null without any. */
export function toOverall(scores: (number | null)[]): number | null {
  const known = scores.filter((score) => score !== null);
  return known.length === 0 ? null : known.reduce((sum, score) => sum + score, 0) / known.length;
}

/** The status of a case: one failed metric fails it; else one that passed passes it; the others do not count. */
export function toFinalStatus(statuses: EvalStatus[]): EvalStatus {
  if (statuses.includes('FAILED')) return 'FAILED';
  return statuses.includes('PASSED') ? 'PASSED' : 'NOT_EVALUATED';
}

/** The explanation of a turn that has nothing to score; any other one of a turn without a score is a failure. */
export const NOTHING_SAID = 'The agent said nothing.';

/** Returns why a turn, or a part of it, could not be computed: such a metric does not let its case pass. */
export const getFailure = ({ score, explanation, failure }: TurnScore): string | undefined =>
  failure ?? (score === null && explanation !== NOTHING_SAID ? explanation : undefined);

/** The status of a case in which metrics could not be computed: it may fail, and not pass. */
export const withoutPass = (status: EvalStatus): EvalStatus => (status === 'PASSED' ? 'NOT_EVALUATED' : status);

/** A metric that cannot be evaluated, with the reason in words: the metric is then NOT_EVALUATED, others go on. */
export class MetricError extends Error {
  override name = 'MetricError';
}
