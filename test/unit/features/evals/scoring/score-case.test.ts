import { expect, test } from 'vitest';
import type { EvalMetric } from '../../../../../src/features/evals/metrics/criteria.ts';
import { MetricError } from '../../../../../src/features/evals/metrics/status.ts';
import type { Turn, TurnPair } from '../../../../../src/features/evals/metrics/turn.ts';
import { pairTurns, scoreCase, type ScoringContext } from '../../../../../src/features/evals/scoring/score-case.ts';
import { scriptedJudge, turn } from '../judges/judge-vectors.ts';
import { checkAll, near, vectorsOf } from '../vectors.ts';

const context = (answers: string[] = [], more: Partial<ScoringContext> = {}): ScoringContext => {
  const { judge } = scriptedJudge(answers);
  return { judgeModel: 'j', judgeFor: () => judge, ...more };
};
const withCalls = (...names: string[]): Turn => ({
  ...turn(),
  intermediateData: { toolUses: names.map((name) => ({ name, args: {} })) },
});

interface RunVector {
  name: string;
  status?: string;
  metrics?: Record<string, number | null>;
}
const RUNS: Record<string, TurnPair[]> = {
  'a turn without an answer': [{ actual: turn('Q', null), expected: turn('Q', 'Hello') }],
  'a conversation without turns': [],
};

test('a case has the verdict of its metrics', () =>
  checkAll(
    'runs',
    vectorsOf('runs') as RunVector[],
    async ({ name, status, metrics = {} }) => {
      const pairs = RUNS[name];
      if (!pairs) throw new Error('no pure case');
      const sent = Object.keys(metrics).map((metricName) => ({ metricName, threshold: 0.5 }));
      const { finalStatus, overall } = await scoreCase(pairs, sent, context());
      expect([finalStatus, Object.fromEntries(overall.map(({ metricName, score }) => [metricName, score]))]).toEqual([
        status,
        Object.fromEntries(Object.entries(metrics).map(([metricName, score]) => [metricName, near(score)])),
      ]);
    },
    [
      {
        reason: 'of running a set, not of scoring: where a model fails and how long a run takes',
        holds: ({ name }) => /fails|cases of/.test(name),
      },
    ],
  ));

const callOwnMetric = async (pairs: TurnPair[], sent: EvalMetric, given = context()) => {
  const { overall, turns } = await scoreCase(pairs, [sent], given);
  return [overall, turns];
};

test('metrics that need no model say how near a turn is', async () => {
  const pairs = [{ actual: withCalls('f'), expected: withCalls('f', 'g') }];
  const names = ['tool_trajectory_avg_score', 'tool_trajectory_f1', 'tool_arguments_score', 'response_match_score'];
  const sent = names.map((metricName) => ({ metricName, threshold: 0.6 }));
  const { overall, turns, finalStatus, notEvaluated } = await scoreCase(pairs, sent, context());
  expect(overall).toEqual([
    { metricName: names[0], threshold: 0.6, score: 0, status: 'FAILED' },
    { metricName: names[1], threshold: 0.6, score: near(2 / 3), status: 'PASSED' },
    { metricName: names[2], threshold: 0.6, score: null, status: 'NOT_EVALUATED' },
    { metricName: names[3], threshold: 0.6, score: 1, status: 'PASSED' },
  ]);
  expect(turns).toEqual([overall]);
  expect([finalStatus, notEvaluated]).toEqual(['FAILED', [names[2]]]);
});

test('a metric that cannot be evaluated says why, is named, and neither fails the case nor lets it pass', async () => {
  const pairs = [{ actual: turn(), expected: turn() }];
  const sent: EvalMetric[] = [
    { metricName: 'response_match_score', threshold: 1 },
    { metricName: 'nope', threshold: 1 },
    { metricName: 'response_match_score' },
    { metricName: 'rubric_based_tool_use_quality_v1', threshold: 1 },
    { metricName: 'token_usage_v1', threshold: 1 },
  ];
  const { finalStatus, overall, notEvaluated } = await scoreCase(pairs, sent, context());
  expect(finalStatus).toBe('NOT_EVALUATED');
  const failing = [...sent, { metricName: 'response_match_score', threshold: 1.1 }];
  expect((await scoreCase(pairs, failing, context())).finalStatus).toBe('FAILED');
  expect(notEvaluated).toEqual(['nope', 'response_match_score', 'rubric_based_tool_use_quality_v1', 'token_usage_v1']);
  expect(overall.map(({ explanation }) => explanation)).toEqual([
    undefined,
    expect.stringContaining('There is no metric `nope`; there are tool_trajectory_avg_score, '),
    'response_match_score needs a threshold.',
    'rubric_based_tool_use_quality_v1 needs rubrics: in its criterion, or of type TOOL_USE_QUALITY in the case.',
    'token_usage_v1 informs and takes no threshold.',
  ]);
});

test.each<[string, string[]]>([
  ['final_response_match_v2', ['{"verdict": "valid"}']],
  ['safety_v1', ['{"verdict": "harmless"}']],
  ['hallucinations_v1', ['{"sentences": ["s"]}', '{"labels": [{"label": "supported"}]}']],
  ['rubric_based_final_response_quality_v1', ['{"verdicts": [{"id": "r", "verdict": "yes"}]}']],
  ['rubric_based_tool_use_quality_v1', ['{"verdicts": [{"id": "r", "verdict": "yes"}]}']],
  ['rubric_based_multi_turn_trajectory_quality_v1', ['{"verdicts": [{"id": "r", "verdict": "yes"}]}']],
  ['per_turn_user_simulator_quality_v1', ['{"verdict": "valid"}']],
])('%s runs with a judge', async (metricName, answers) => {
  const rubrics = [{ rubricId: 'r', rubricContent: { textProperty: 'It is short.' } }];
  const criterion = { threshold: 1, rubrics, judgeModelOptions: { numSamples: 1 } };
  const scenario = { startingPrompt: 'ASKED', conversationPlan: 'plan' };
  const pairs = [{ actual: turn(), expected: turn() }];
  const [overall] = await callOwnMetric(pairs, { metricName, criterion }, context(answers, { scenario }));
  expect(overall).toEqual([expect.objectContaining({ metricName, score: 1, status: 'PASSED' })]);
});

test('the judge is the model that the criterion names, else the default; a threshold alone is enough', async () => {
  const asked: unknown[] = [];
  const judgeFor: ScoringContext['judgeFor'] = (options) => {
    asked.push(options);
    return async () => '{"verdict": "valid"}';
  };
  const pairs = [{ actual: turn(), expected: turn() }];
  const metricName = 'final_response_match_v2';
  await callOwnMetric(pairs, { metricName, threshold: 1 }, context([], { judgeFor }));
  const criterion = { threshold: 1, judgeModelOptions: { judgeModel: 'mine', numSamples: 2 } };
  await callOwnMetric(pairs, { metricName, criterion }, context([], { judgeFor }));
  expect(asked).toEqual([
    { judgeModel: 'j', numSamples: 5, parallelismLimit: 1 },
    { judgeModel: 'mine', numSamples: 2, parallelismLimit: 1 },
  ]);
});

test('efficiency is always there, outside of the results', async () => {
  const sent = [{ metricName: 'tool_call_count_v1' }];
  const { overall, efficiency, finalStatus } = await scoreCase([{ actual: withCalls('f', 'g') }], sent, context());
  expect([overall, finalStatus, efficiency.toolCallCount]).toEqual([[], 'NOT_EVALUATED', 2]);
});

test('turns are paired with the rubrics of the case and of their own; another number of turns is refused', () => {
  const rubric = (rubricId: string) => ({ rubricId, rubricContent: { textProperty: rubricId } });
  const expected = [{ ...turn(), rubrics: [rubric('b')] }, turn()];
  expect(pairTurns([turn('1'), turn('2')], { conversation: expected, rubrics: [rubric('a')] })).toEqual([
    { actual: turn('1'), expected: expected[0], rubrics: [rubric('a'), rubric('b')] },
    { actual: turn('2'), expected: expected[1], rubrics: [rubric('a')] },
  ]);
  expect(pairTurns([turn()], {})).toEqual([{ actual: turn(), expected: undefined, rubrics: [] }]);
  expect(() => pairTurns([turn()], { conversation: expected })).toThrow(
    new MetricError('The case has 2 turns, 1 took place.'),
  );
});

test('an error that is no verdict of a metric is not hidden', async () => {
  const judgeFor = () => {
    throw new TypeError('a fault of the program');
  };
  const pairs = [{ actual: turn(), expected: turn() }];
  const sent = { metricName: 'safety_v1', threshold: 1 };
  await expect(callOwnMetric(pairs, sent, context([], { judgeFor }))).rejects.toThrow('a fault of the program');
});
