import { z } from 'zod';
import { InvalidError } from '../core/errors.ts';
import { keyAliases } from '../platform/http/validation/key-aliases.ts';

/** A number, or a text that contains a number, because files of ADK contain both. */
const laxNumber = z.union([z.number(), z.string().trim().min(1).pipe(z.coerce.number<string>())]);

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

/** Criteria that ADK uses if there is no file `test_config.json`. */
export const DEFAULT_TEST_CONFIG = { criteria: { tool_trajectory_avg_score: 1, response_match_score: 0.8 } };

interface Metric {
  metricName: string;
  threshold: number;
  criterion: z.output<typeof criterion>;
  customFunctionPath?: string;
}

/**
 * Parses `test_config.json`, in snake_case or camelCase, as members of a request for a run. Metrics keep the order of
 * the file. A number in place of a criterion is its threshold. The service checks the settings of a simulated user.
 */
export function readTestConfig(json: unknown): { evalMetrics: Metric[]; userSimulatorConfig?: unknown } {
  const result = configSchema.safeParse(spelling.toSchema(json));
  if (!result.success) throw new InvalidError(`test_config.json: ${toReason(result.error)}`);
  const { criteria, customMetrics, userSimulatorConfig } = result.data;
  const evalMetrics = Object.entries(criteria).map(([metricName, criterionValue]): Metric => {
    const custom = customMetrics && Object.hasOwn(customMetrics, metricName) ? customMetrics[metricName] : undefined;
    return {
      ...toMetric(metricName, criterionValue),
      ...(custom ? { customFunctionPath: custom.codeConfig.name } : {}),
    };
  });
  return { evalMetrics, ...(userSimulatorConfig == null ? {} : { userSimulatorConfig }) };
}

function toMetric(metricName: string, value: unknown): Metric {
  const number = laxNumber.safeParse(value);
  const result = criterion.safeParse(number.success ? { threshold: number.data } : criterionSpelling.toSchema(value));
  if (!result.success) throw new InvalidError(`test_config.json: criteria.${metricName}: ${toReason(result.error)}`);
  return { metricName, threshold: result.data.threshold, criterion: result.data };
}

const toReason = (error: z.ZodError) =>
  error.issues.map(({ path, message }) => [path.join('.'), message].filter(Boolean).join(': ')).join('; ');

/** Case ids by set, from selectors `set[:case[,case…]]`; an empty list means all. As in ADK, blanks belong to ids. */
export function parseSelectors(selectors: string[]): Map<string, string[]> {
  const idsBySet = new Map<string, string[]>();
  for (const selector of selectors) {
    const [evalSetId = '', cases = ''] = selector.split(':');
    const ids = cases.split(',').filter((id) => id.trim() !== '');
    idsBySet.set(evalSetId, [...(idsBySet.get(evalSetId) ?? []), ...ids]);
  }
  return idsBySet;
}
