import type { Judge } from '../../../../../src/features/evals/judges/judge.ts';
import { type MetricScore, toStatus } from '../../../../../src/features/evals/metrics/status.ts';
import type { Turn } from '../../../../../src/features/evals/metrics/turn.ts';
import { near } from '../vectors.ts';

/** What a judge of the vectors answers: a text, texts of several parts, nothing, or a failure. */
export type Answer = string | string[] | null;

export interface ScoredVector {
  threshold?: number;
  overallScore: number | null;
  overallStatus: string;
  perInvocation: { score: number | null; status: string; rubricScores?: RubricVerdict[] }[];
}
export interface RubricVerdict {
  rubricId: string;
  score: number | null;
}

/** A judge that gives these answers in turn. A failure fails the second call too, as a model that is down does. */
export function scriptedJudge(answers: Answer[]) {
  const left = [...answers];
  const prompts: string[] = [];
  let failed = false;
  const judge: Judge = async (prompt) => {
    prompts.push(prompt);
    if (left[0] === '__error__') {
      if (failed) left.shift();
      failed = !failed;
      throw new Error('the model is down');
    }
    const answer = left.shift();
    if (answer === undefined) throw new Error('the script has ended');
    return answer === '__nothing__' || answer === null ? '' : [answer].flat().join('\n');
  };
  return { judge, prompts, left };
}

export const content = (text: string, role = 'model') => ({ role, parts: [{ text }] });

/** A turn in which the user and the agent said something. */
export const turn = (asked = 'ASKED', answered: string | null = 'ANSWERED'): Turn => ({
  userContent: content(asked, 'user'),
  ...(answered === null ? {} : { finalResponse: content(answered) }),
});

const verdictsOf = (scores: RubricVerdict[] | undefined) =>
  (scores ?? []).map(({ rubricId, score }) => ({ rubricId, score }));

/** What a metric found, in the words of the vectors: scores, statuses, and the rubrics where the vector has them. */
export function toVector(found: MetricScore, { threshold = 0.5, perInvocation }: ScoredVector) {
  return {
    overallScore: found.score,
    overallStatus: toStatus(found.score, threshold),
    perInvocation: found.turns.map(({ score, rubricScores }, place) => ({
      score,
      status: toStatus(score, threshold),
      ...(perInvocation[place]?.rubricScores ? { rubricScores: verdictsOf(rubricScores) } : {}),
    })),
  };
}

/** What {@link toVector} must give for a vector. */
export const scoresOf = ({ overallScore, overallStatus, perInvocation }: ScoredVector) => ({
  overallScore: near(overallScore),
  overallStatus,
  perInvocation: perInvocation.map((one) => ({ ...one, score: near(one.score) })),
});
