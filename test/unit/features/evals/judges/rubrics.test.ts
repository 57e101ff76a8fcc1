import { expect, test } from 'vitest';
import {
  readRubricAnswer,
  FINAL_RESPONSE_QUALITY,
  rubricsOfDialogue,
  rubricsOfTurns,
  TOOL_USE_QUALITY,
  TRAJECTORY_QUALITY,
} from '../../../../../src/features/evals/judges/rubrics.ts';
import { readCriterion } from '../../../../../src/features/evals/metrics/criteria.ts';
import { MetricError, toOverall } from '../../../../../src/features/evals/metrics/status.ts';
import type { Rubric } from '../../../../../src/features/evals/metrics/turn.ts';
import { checkAll, near, vectorsOf } from '../vectors.ts';
import {
  type Answer,
  type RubricVerdict,
  scoresOf,
  type ScoredVector,
  scriptedJudge,
  toVector,
  turn,
} from './judge-vectors.ts';

type SampleVector = ScoredVector & {
  numSamples: number;
  threshold: number;
  answersByTurn: string[][];
  overallRubricScores: RubricVerdict[];
};
type ScopeVector = ScoredVector & {
  name: string;
  metric: string;
  criterionRubrics: Rubric[];
  invocationRubrics: (Rubric[] | null)[];
  answers: Answer[];
  error?: string;
};
const vectors = vectorsOf('judge') as {
  rubricAnswers: {
    rubrics: Rubric[];
    answers: { answer: string; score: number | null; rubricScores: RubricVerdict[] }[];
  };
  rubricSamples: { rubrics: Rubric[]; cases: SampleVector[] };
  rubricScopes: ScopeVector[];
  multiTurn: { rubrics: Rubric[]; cases: (ScoredVector & { turns: number; numSamples: number; answers: Answer[] })[] };
};

const criterion = (rubrics: Rubric[], threshold: number, numSamples: number) =>
  readCriterion(
    'rubrics',
    { metricName: 'm', criterion: { threshold, rubrics, judgeModelOptions: { numSamples } } },
    { judgeModel: 'j' },
  );
const verdicts = (scores: { rubricId: string; score: number | null }[] | undefined) =>
  (scores ?? []).map(({ rubricId, score }) => ({ rubricId, score }));

test('verdicts on rubrics are read from blocks of lines', () =>
  checkAll('judge.rubricAnswers', vectors.rubricAnswers.answers, ({ answer, score, rubricScores }) => {
    const found = verdicts(readRubricAnswer(answer, vectors.rubricAnswers.rubrics));
    expect([found, toOverall(found.map((one) => one.score))]).toEqual([rubricScores, near(score)]);
  }));

const rubric = (rubricId: string, type?: string): Rubric => ({
  rubricId,
  rubricContent: { textProperty: `Rule ${rubricId}.` },
  ...(type ? { type } : {}),
});

test('our own JSON is read first; verdicts on rubrics that were not asked for are dropped', () => {
  const answer = {
    verdicts: [
      { id: 'a', reason: 'so', verdict: 'yes' },
      { id: 'b', verdict: false },
      { id: 'c', verdict: 'perhaps' },
      { id: 'x', verdict: 'yes' },
      'noise',
    ],
  };
  const asked = [rubric('a'), rubric('b'), rubric('c')];
  expect(readRubricAnswer(`\`\`\`json\n${JSON.stringify(answer)}\n\`\`\``, asked)).toEqual([
    { rubricId: 'a', score: 1, rationale: 'so' },
    { rubricId: 'b', score: 0 },
    { rubricId: 'c', score: null },
  ]);
  expect(readRubricAnswer('{"verdicts": []}', asked)).toBeUndefined();
});

test('quotes, dashes and marks of a list do not hide a property', () => {
  const asked = [{ rubricId: 'q', rubricContent: { textProperty: 'It says "no-go" - twice.' } }];
  const answer = '- Property: x\n  Property: **It says “no‑go” – twice.**\nRationale: r\nVerdict: yes';
  expect(verdicts(readRubricAnswer(answer, asked))).toEqual([{ rubricId: 'q', score: 1 }]);
});

const isThin = ({ numSamples, answersByTurn }: SampleVector) =>
  answersByTurn.some((answers) => {
    const readable = answers.filter((answer) => readRubricAnswer(answer, vectors.rubricSamples.rubrics));
    return readable.length > 0 && readable.length * 2 < numSamples;
  });

test('the majority of the samples decides a rubric, the mean of all verdicts the metric', () =>
  checkAll(
    'judge.rubricSamples',
    vectors.rubricSamples.cases,
    async (vector) => {
      const { judge } = scriptedJudge(vector.answersByTurn.flat());
      const pairs = vector.answersByTurn.map(() => ({ actual: turn() }));
      const read = criterion(vectors.rubricSamples.rubrics, vector.threshold, vector.numSamples);
      const found = await rubricsOfTurns(FINAL_RESPONSE_QUALITY)(pairs, read, judge);
      expect(toVector(found, vector)).toEqual(scoresOf(vector));
      expect(verdicts(found.rubricScores)).toEqual(
        vector.overallRubricScores.map(({ rubricId, score }) => ({ rubricId, score: near(score) })),
      );
    },
    [{ reason: 'fewer than half of the samples readable: not evaluated', holds: isThin }],
  ));

const METRICS = Object.fromEntries(
  [FINAL_RESPONSE_QUALITY, TOOL_USE_QUALITY].map((metric) => [metric.metricName, metric]),
);

const judgeScope = ({ metric, criterionRubrics, invocationRubrics, answers }: ScopeVector) => {
  const pairs = invocationRubrics.map((rubrics) => ({ actual: turn(), rubrics: rubrics ?? [] }));
  const rubricMetric = METRICS[metric] ?? FINAL_RESPONSE_QUALITY;
  return rubricsOfTurns(rubricMetric)(pairs, criterion(criterionRubrics, 0.5, 1), scriptedJudge(answers).judge);
};

test('the rubrics in force are those of the criterion and those of the turn that name the metric', () =>
  checkAll(
    'judge.rubricScopes',
    vectors.rubricScopes,
    async (vector) => {
      if (vector.error) await expect(judgeScope(vector)).rejects.toThrow(MetricError);
      else expect(toVector(await judgeScope(vector), vector)).toEqual(scoresOf(vector));
    },
    [
      {
        reason: 'each turn keeps its own rubrics',
        holds: ({ invocationRubrics }) => new Set(invocationRubrics.map((own) => JSON.stringify(own))).size > 1,
      },
    ],
  ));

test('each turn is judged with its own rubrics, and asked about no others', async () => {
  const type = 'FINAL_RESPONSE_QUALITY';
  const { judge, prompts } = scriptedJudge([
    '{"verdicts": [{"id": "b", "verdict": "yes"}, {"id": "c", "verdict": "yes"}]}',
    '{"verdicts": [{"id": "c", "verdict": "no"}]}',
  ]);
  const pairs = ['b', 'c'].map((id) => ({
    actual: turn(),
    rubrics: [rubric(id, type), rubric(`${id}-other`, 'OTHER')],
  }));
  expect(await rubricsOfTurns(FINAL_RESPONSE_QUALITY)(pairs, criterion([], 0.5, 1), judge)).toEqual({
    score: 0.5,
    turns: [
      { score: 1, rubricScores: [{ rubricId: 'b', score: 1 }] },
      { score: 0, rubricScores: [{ rubricId: 'c', score: 0 }] },
    ],
    rubricScores: [
      { rubricId: 'b', score: 1 },
      { rubricId: 'c', score: 0 },
    ],
  });
  expect(prompts.map((prompt) => ['b', 'c', 'b-other'].filter((id) => prompt.includes(`"id": "${id}"`)))).toEqual([
    ['b'],
    ['c'],
  ]);
});

test('a rubric twice and none at all are named', async () => {
  const twice = rubricsOfTurns(TOOL_USE_QUALITY)(
    [{ actual: turn() }],
    criterion([rubric('a'), rubric('a')], 1, 1),
    async () => '',
  );
  await expect(twice).rejects.toThrow('rubric_based_tool_use_quality_v1 has the rubric `a` twice.');
  const none = rubricsOfTurns(TOOL_USE_QUALITY)(
    [{ actual: turn(), rubrics: [rubric('a')] }],
    criterion([], 1, 1),
    async () => '',
  );
  await expect(none).rejects.toThrow('needs rubrics: in its criterion, or of type TOOL_USE_QUALITY in the case.');
});

test('a rubric without any verdict is not known, and counts for nothing', async () => {
  const { judge } = scriptedJudge(['{"verdicts": [{"id": "a", "verdict": "yes"}, {"id": "b", "verdict": "perhaps"}]}']);
  const read = criterion([rubric('a'), rubric('b')], 1, 1);
  expect(await rubricsOfTurns(FINAL_RESPONSE_QUALITY)([{ actual: turn() }], read, judge)).toMatchObject({
    score: 1,
    rubricScores: [
      { rubricId: 'a', score: 1 },
      { rubricId: 'b', score: null },
    ],
  });
});

test('a dialogue is judged once, on its last turn', () =>
  checkAll('judge.multiTurn', vectors.multiTurn.cases, async (vector) => {
    const { judge, left, prompts } = scriptedJudge(vector.answers);
    const pairs = Array.from({ length: vector.turns }, (_, place) => ({ actual: turn(`ASKED-${place}`) }));
    const read = criterion(vectors.multiTurn.rubrics, 0.5, vector.numSamples);
    expect(toVector(await rubricsOfDialogue(TRAJECTORY_QUALITY)(pairs, read, judge), vector)).toEqual(scoresOf(vector));
    expect(left).toEqual([]);
    for (const { actual } of pairs) expect(prompts[0]).toContain(actual.userContent.parts?.[0]?.text);
  }));

test('a dialogue without turns is not evaluated', async () => {
  const judge = async () => '';
  expect(await rubricsOfDialogue(TRAJECTORY_QUALITY)([], criterion([], 1, 1), judge)).toEqual({
    score: null,
    turns: [],
    rubricScores: [],
  });
});
