import { expect, test } from 'vitest';
import { DEFAULT_TEST_CONFIG, parseSelectors, readTestConfig } from '../../../src/cli/test-config.ts';
import { InvalidError } from '../../../src/core/errors.ts';
import type { EvalMetric } from '../../../src/features/evals/metrics/criteria.ts';
import { EFFICIENCY_METRICS } from '../../../src/features/evals/metrics/efficiency.ts';
import { readSimulatedUser } from '../../../src/features/evals/runs/simulated-user.ts';
import { checkAll, vectorsOf } from '../features/evals/vectors.ts';

const files = vectorsOf('files') as {
  configs: { config: unknown; metrics?: EvalMetric[]; error?: string }[];
  selectors: { arguments: string[]; cases: Record<string, string[]> }[];
};

test('a test_config.json names the metrics, to which ADK adds those of efficiency', () =>
  checkAll('files.configs', files.configs, ({ config, metrics, error }) => {
    const added = EFFICIENCY_METRICS.map((metricName) => ({ metricName }));
    // The service reads the settings of the simulated user.
    const read = () => readSimulatedUser(readTestConfig(config).userSimulatorConfig);
    if (error) expect(read).toThrow(InvalidError);
    else expect([...readTestConfig(config).evalMetrics, ...added]).toEqual(metrics);
  }));

test('the command line names sets and cases', () =>
  checkAll('files.selectors', files.selectors, (vector) =>
    expect(Object.fromEntries(parseSelectors(vector.arguments))).toEqual(vector.cases),
  ));

test('a number as text, both spellings, the simulated user as it is, and the defaults', () => {
  const config = {
    criteria: { a: '0.5', b: { threshold: 1, include_intermediate_responses_in_final: true } },
    user_simulator_config: { max_allowed_invocations: 3 },
  };
  expect(readTestConfig(config)).toEqual({
    evalMetrics: [
      { metricName: 'a', threshold: 0.5, criterion: { threshold: 0.5, includeIntermediateResponsesInFinal: false } },
      { metricName: 'b', threshold: 1, criterion: { threshold: 1, includeIntermediateResponsesInFinal: true } },
    ],
    userSimulatorConfig: { max_allowed_invocations: 3 },
  });
  expect(
    readTestConfig(DEFAULT_TEST_CONFIG).evalMetrics.map(({ metricName, threshold }) => [metricName, threshold]),
  ).toEqual([
    ['tool_trajectory_avg_score', 1],
    ['response_match_score', 0.8],
  ]);
});

test('what does not hold is named', () => {
  expect(() => readTestConfig({ criteria: { m: {} } })).toThrow('test_config.json: criteria.m: threshold');
  expect(() => readTestConfig([])).toThrow('test_config.json: ');
});
