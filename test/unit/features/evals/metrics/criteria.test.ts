import { expect, test } from 'vitest';
import {
  type CriterionKind,
  type EvalMetric,
  readCriterion,
} from '../../../../../src/features/evals/metrics/criteria.ts';
import { MetricError } from '../../../../../src/features/evals/metrics/status.ts';
import { checkAll, vectorsOf } from '../vectors.ts';

const defaults = { judgeModel: 'gemini-2.5-flash' };
interface CriterionVector {
  metric: EvalMetric;
  matchType?: string;
  ignoreArgs?: boolean;
  threshold?: number;
  error?: string;
}
const { criteria } = vectorsOf('trajectory') as { criteria: CriterionVector[] };
const judge = vectorsOf('judge') as {
  criterionDefaults: Record<string, { threshold: number; matchType?: number }>;
  options: { options: unknown; value?: unknown; errors?: string[] }[];
};

test('the criterion of a trajectory is read in every spelling', () =>
  checkAll('trajectory.criteria', criteria, ({ metric, error, matchType, ignoreArgs, threshold }) => {
    const read = () => readCriterion('trajectory', metric, defaults);
    if (error) expect(read).toThrow(MetricError);
    else expect(read()).toMatchObject({ matchType, ignoreArgs, threshold });
  }));

const KINDS: Record<string, CriterionKind> = {
  LlmAsAJudgeCriterion: 'judge',
  RubricsBasedCriterion: 'rubrics',
  HallucinationsCriterion: 'hallucinations',
  ToolTrajectoryCriterion: 'trajectory',
  LlmBackedUserSimulatorCriterion: 'simulator',
};

test('a threshold is enough: the defaults fill the criterion', () =>
  checkAll('judge.criterionDefaults', Object.entries(judge.criterionDefaults), ([name, { matchType, ...expected }]) => {
    const kind = KINDS[name] ?? 'plain';
    const read = readCriterion(kind, { metricName: 'm', threshold: expected.threshold }, defaults);
    expect(read).toEqual({ ...expected, ...(matchType === undefined ? {} : { matchType: 'EXACT' }) });
  }));

test('the options of a judge are closed', () =>
  checkAll('judge.options', judge.options, ({ options, value }) => {
    const criterion = { threshold: 0.5, judge_model_options: options };
    const read = () => readCriterion('judge', { metricName: 'm', criterion }, defaults).judgeModelOptions;
    if (value === undefined) expect(read).toThrow(MetricError);
    else expect(read()).toEqual(value);
  }));

test('an unknown option of a judge is refused by its name, an unknown member of a criterion is kept', () => {
  const metricName = 'm';
  expect(() =>
    readCriterion('judge', { metricName, criterion: { threshold: 1, judgeModelOptions: { nope: 1 } } }, defaults),
  ).toThrow('The criterion of m cannot be used: judgeModelOptions: Unrecognized key: "nope"');
  expect(readCriterion('plain', { metricName, criterion: { threshold: '0.5', mine: 1 } }, defaults)).toEqual({
    threshold: 0.5,
    includeIntermediateResponsesInFinal: false,
    mine: 1,
  });
});

test('the threshold of the criterion wins; without any the metric cannot be evaluated', () => {
  const metric = { metricName: 'm', threshold: 0.1, criterion: { threshold: 0.9 } };
  expect(readCriterion('plain', metric, defaults).threshold).toBe(0.9);
  expect(readCriterion('plain', { metricName: 'm', threshold: 0 }, defaults).threshold).toBe(0);
  expect(() => readCriterion('plain', { metricName: 'm' }, defaults)).toThrow(new MetricError('m needs a threshold.'));
});
