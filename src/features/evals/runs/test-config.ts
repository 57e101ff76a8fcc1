import { z } from 'zod';
import { InvalidError } from '../../../core/errors.ts';
import { keyAliases } from '../../../platform/http/validation/key-aliases.ts';
import { type EvalMetric, laxNumber } from '../metrics/criteria.ts';
import { readSimulatedUser, type SimulatedUser } from './simulated-user.ts';

const criterion = z.looseObject({
  threshold: laxNumber,
  includeIntermediateResponsesInFinal: z.boolean().default(false),
});
const criterionSpelling = keyAliases(criterion);

const configSchema = z.looseObject({
  criteria: z.record(z.string(), z.unknown()).default({}),
  customMetrics: z.record(z.string(), z.looseObject({ codeConfig: z.looseObject({ name: z.string() }) })).nullish(),
  userSimulatorConfig: z.unknown().optional(),
});
const spelling = keyAliases(configSchema);

/** ADK's defaults, where there is no `test_config.json`. */
export const DEFAULT_TEST_CONFIG = { criteria: { tool_trajectory_avg_score: 1, response_match_score: 0.8 } };

/**
 * Reads a `test_config.json`, in either spelling: the metrics in its order, and the simulated user where it names one.
 * A number stands for a criterion of that threshold.
 * @throws {InvalidError} for a criterion or simulated user that does not hold, naming it.
 */
export function readTestConfig(json: unknown): { metrics: EvalMetric[]; userSimulator?: SimulatedUser } {
  const read = configSchema.safeParse(spelling.toSchema(json));
  if (!read.success) throw new InvalidError(`test_config.json: ${toReason(read.error)}`);
  const { criteria, customMetrics, userSimulatorConfig } = read.data;
  const metrics = Object.entries(criteria).map(([metricName, sent]): EvalMetric => {
    const custom = customMetrics && Object.hasOwn(customMetrics, metricName) ? customMetrics[metricName] : undefined;
    return {
      ...toMetric(metricName, sent),
      ...(custom ? { customFunctionPath: custom.codeConfig.name } : {}),
    };
  });
  return {
    metrics,
    ...(userSimulatorConfig == null ? {} : { userSimulator: readSimulatedUser(userSimulatorConfig) }),
  };
}

function toMetric(metricName: string, sent: unknown): EvalMetric {
  const number = laxNumber.safeParse(sent);
  const read = criterion.safeParse(number.success ? { threshold: number.data } : criterionSpelling.toSchema(sent));
  if (!read.success) throw new InvalidError(`test_config.json: criteria.${metricName}: ${toReason(read.error)}`);
  return { metricName, threshold: read.data.threshold, criterion: read.data };
}

const toReason = (error: z.ZodError) =>
  error.issues.map(({ path, message }) => [path.join('.'), message].filter(Boolean).join(': ')).join('; ');

/**
 * The cases that a command line names as `set[:case[,case…]]`, by set in the order given; no cases means all. Blanks
 * around ids are part of them, as in ADK; a set named twice gets the cases of both.
 */
export function parseSelectors(selectors: string[]): Map<string, string[]> {
  const selected = new Map<string, string[]>();
  for (const selector of selectors) {
    const [evalSetId = '', cases = ''] = selector.split(':');
    const ids = cases.split(',').filter((id) => id.trim() !== '');
    selected.set(evalSetId, [...(selected.get(evalSetId) ?? []), ...ids]);
  }
  return selected;
}
