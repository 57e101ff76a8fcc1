import { z } from 'zod';
import { jsonObject, freeForm } from '../../../core/content.ts';
import { keyAliases } from '../../../platform/http/validation/key-aliases.ts';
import { nearestName } from '../../../core/nearest-name.ts';
import { textFormat } from '../../../core/text-format.ts';
import { MetricError } from './status.ts';
import type { MatchType } from './trajectory.ts';
import { number, looseObject } from '../../../core/members.ts';

/** A metric that a request names. The criterion's own threshold has precedence over `threshold`. */
export interface EvalMetric {
  metricName: string;
  threshold?: number | null | undefined;
  criterion?: unknown;
  /** Python path of the function that implements a custom metric of ADK. */
  customFunctionPath?: string | null | undefined;
}

/** Default judge model, used by criteria that name no model. */
export interface JudgeDefaults {
  judgeModel: string;
}

/** Maximum samples per prompt, and at once. Each sample is a model call that costs money. */
const MAX_SAMPLES = 25;
const MAX_OPEN_SAMPLES = 5;

/** A number, or a text that contains a number, because files of ADK contain both. */
const laxNumber = z.union([z.number(), z.string().trim().min(1).pipe(z.coerce.number<string>())]);
const laxCount = (maximum: number) =>
  z
    .union([
      z.int(),
      z
        .string()
        .regex(/^\s*\+?\d+\s*$/)
        .transform(Number),
    ])
    .refine((count) => count >= 1 && count <= maximum, `must be from 1 to ${maximum}`);
const laxBoolean = z.union([z.boolean(), z.stringbool()]);

const MATCH_TYPES: MatchType[] = ['EXACT', 'IN_ORDER', 'ANY_ORDER'];
/** A trajectory's match type: 0, 1, 2, or a name in any case, whose blanks and hyphens count as underscores. */
const matchType = z.union([z.int(), z.string()]).transform((value, context): MatchType => {
  const name = typeof value === 'number' ? undefined : value.trim().toUpperCase().replaceAll(/[- ]/g, '_');
  const match = MATCH_TYPES.find((type, index) => index === value || type === name);
  if (!match) context.addIssue(`is no match type: 0, 1, 2, ${MATCH_TYPES.join(', ')}`);
  return match ?? 'EXACT';
});

/** Types of rubrics. Each type is judged by one metric. */
export const RUBRIC_TYPES = ['FINAL_RESPONSE_QUALITY', 'TOOL_USE_QUALITY', 'TRAJECTORY_QUALITY'] as const;

/** The type of a rubric. Unknown types are refused, because no metric would ever judge such a rubric. */
export const rubricType = textFormat('rubric-type', rubricTypeError, z.string().max(1_024, { abort: true }));

function rubricTypeError(type: string): string | undefined {
  if (RUBRIC_TYPES.some((known) => known === type)) return undefined;
  const nearest = nearestName(type, RUBRIC_TYPES);
  const hint = nearest === undefined ? '' : ` Did you mean ${nearest}?`;
  return `No metric reads rubrics of this type; there are ${RUBRIC_TYPES.join(', ')}.${hint}`;
}

/** A rubric with ADK's properties. Unknown properties are kept. */
export const rubricSchema = z.looseObject({
  rubricId: z.string(),
  rubricContent: z.looseObject({ textProperty: z.string().nullish() }),
  description: z.string().nullish(),
  type: z.string().nullish(),
});

const base = { threshold: laxNumber, includeIntermediateResponsesInFinal: laxBoolean.default(false) };
/** Placeholder for the default judge model, until the criterion is read. No model has this name. */
const BY_DEFAULT = '\u0000';
const judgeMembers = {
  ...base,
  judgeModelOptions: z
    .strictObject({
      judgeModel: z.string().default(BY_DEFAULT),
      judgeModelConfig: jsonObject.nullish(),
      numSamples: laxCount(MAX_SAMPLES).default(5),
      parallelismLimit: laxCount(MAX_OPEN_SAMPLES).default(1),
    })
    .prefault({}),
};

/** Schemas of criteria by kind, with ADK's properties and defaults. Unknown properties are kept. */
const CRITERIA = {
  plain: z.looseObject(base),
  trajectory: z.looseObject({
    ...base,
    matchType: matchType.default('EXACT'),
    ignoreArgs: laxBoolean.default(false),
  }),
  judge: z.looseObject(judgeMembers),
  rubrics: z.looseObject({ ...judgeMembers, rubrics: z.array(rubricSchema).default([]) }),
  hallucinations: z.looseObject({ ...judgeMembers, evaluateIntermediateNlResponses: laxBoolean.default(false) }),
  simulator: z.looseObject({ ...judgeMembers, stopSignal: z.string().default('</finished>') }),
};

export type CriterionKind = keyof typeof CRITERIA;
export type Criterion<Kind extends CriterionKind> = z.infer<(typeof CRITERIA)[Kind]>;

/**
 * Adds defaults to a criterion, because a client such as the ADK Web UI may send only a threshold.
 * @throws {MetricError} if there is no threshold, or if the criterion is invalid.
 */
export function readCriterion<Kind extends CriterionKind>(
  kind: Kind,
  { metricName, threshold, criterion }: EvalMetric,
  { judgeModel }: JudgeDefaults,
): Criterion<Kind> {
  const schema = CRITERIA[kind];
  if (criterion == null && threshold == null) throw new MetricError(`${metricName} needs a threshold.`);
  const result = schema.safeParse(keyAliases(schema).toSchema(criterion ?? { threshold }));
  if (!result.success) {
    const problems = result.error.issues.map(({ path, message }) => `${path.join('.') || 'criterion'}: ${message}`);
    throw new MetricError(`The criterion of ${metricName} cannot be used: ${problems.join('; ')}`);
  }
  const { judgeModelOptions: options } = result.data as Partial<Criterion<'judge'>>;
  if (options?.judgeModel === BY_DEFAULT) options.judgeModel = judgeModel;
  return result.data as Criterion<Kind>;
}

/** False if a criterion wants more samples than allowed. Its other errors are reported when the metric parses it. */
function isAffordable(criterion: Record<string, unknown> | null | undefined): boolean {
  const options = (criterion?.['judgeModelOptions'] ?? criterion?.['judge_model_options'] ?? {}) as Record<
    string,
    unknown
  >;
  const isOver = (name: string, other: string, maximum: number) => Number(options[name] ?? options[other]) > maximum;
  return (
    !isOver('numSamples', 'num_samples', MAX_SAMPLES) &&
    !isOver('parallelismLimit', 'parallelism_limit', MAX_OPEN_SAMPLES)
  );
}

export const evalMetricSchema = looseObject('What the turns are scored by.', {
  metricName: z.string().max(256).describe('A name of the list of metrics.'),
  threshold: number('From which score on it passes; here or in the criterion.'),
  criterion: freeForm(
    'Further settings of the metric, its threshold among them; what is left out has its default.',
  ).refine(isAffordable, `numSamples is at most ${MAX_SAMPLES}, parallelismLimit at most ${MAX_OPEN_SAMPLES}`),
});

export const exampleMetrics = [{ metricName: 'tool_trajectory_avg_score', threshold: 1 }];
