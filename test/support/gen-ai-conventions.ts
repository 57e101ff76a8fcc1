import * as published from '@opentelemetry/semantic-conventions/incubating';
import type { CollectedMetric, CollectedSpan } from './collector.ts';

/**
 * What OpenTelemetry's conventions for GenAI say of the spans and metrics that this runtime sends, written down from
 * github.com/open-telemetry/semantic-conventions-genai, which has made no release yet: docs/gen-ai/client-inference.md
 * (024a4f94), gen-ai-token-metrics.md (066d4a7f), gen-ai-metrics.md (004902b8), gen-ai-spans.md and gen-ai-events.md
 * (002c8a6e).
 */

type Type = 'string' | 'int' | 'double' | 'boolean' | 'string[]';
const TYPES: Record<string, Type> = {
  'error.type': 'string',
  'gen_ai.agent.name': 'string',
  'gen_ai.conversation.id': 'string',
  'gen_ai.evaluation.explanation': 'string',
  'gen_ai.evaluation.name': 'string',
  'gen_ai.evaluation.score.label': 'string',
  'gen_ai.evaluation.score.value': 'double',
  'gen_ai.input.messages': 'string',
  'gen_ai.operation.name': 'string',
  'gen_ai.output.messages': 'string',
  'gen_ai.provider.name': 'string',
  'gen_ai.request.frequency_penalty': 'double',
  'gen_ai.request.max_tokens': 'int',
  'gen_ai.request.model': 'string',
  'gen_ai.request.presence_penalty': 'double',
  'gen_ai.request.stream': 'boolean',
  'gen_ai.request.temperature': 'double',
  'gen_ai.request.top_p': 'double',
  'gen_ai.response.finish_reasons': 'string[]',
  'gen_ai.response.model': 'string',
  'gen_ai.response.time_to_first_chunk': 'double',
  'gen_ai.system_instructions': 'string',
  'gen_ai.token.modality': 'string',
  'gen_ai.tool.call.arguments': 'string',
  'gen_ai.tool.call.id': 'string',
  'gen_ai.tool.call.result': 'string',
  'gen_ai.tool.definitions': 'string',
  'gen_ai.tool.name': 'string',
  'gen_ai.tool.type': 'string',
  'gen_ai.usage.cache_read.input_tokens': 'int',
  'gen_ai.usage.input_tokens': 'int',
  'gen_ai.usage.output_tokens': 'int',
  'gen_ai.usage.reasoning.output_tokens': 'int',
};
/** Attributes that the package of the published registry does not have yet. */
const NEWER = new Set(['gen_ai.token.modality']);

/** How OTLP writes a type; a double without a fraction is an integer to JavaScript. */
const WIRE: Record<Type, string[]> = {
  string: ['stringValue'],
  int: ['intValue'],
  double: ['doubleValue', 'intValue'],
  boolean: ['boolValue'],
  'string[]': ['arrayValue'],
};

const INTERNAL = 1;
const CLIENT = 3;
/** Kind, what the name has after the operation, and the attributes that are there in every span without an error. */
const SPANS: Record<string, { kind: number; named: string; required: string[] }> = {
  chat: {
    kind: CLIENT,
    named: 'gen_ai.request.model',
    required: ['gen_ai.provider.name', 'gen_ai.request.model', 'gen_ai.request.stream', 'gen_ai.conversation.id'],
  },
  invoke_agent: {
    kind: INTERNAL,
    named: 'gen_ai.agent.name',
    required: ['gen_ai.agent.name', 'gen_ai.conversation.id'],
  },
  execute_tool: { kind: INTERNAL, named: 'gen_ai.tool.name', required: ['gen_ai.tool.name'] },
};

/** Attributes that each event of the evaluation of an answer has, and those of which it has one. */
const EVALUATION = 'gen_ai.evaluation.result';
const OF_EVALUATION = { required: ['gen_ai.evaluation.name'], oneOf: ['gen_ai.evaluation.score.label', 'error.type'] };

const OF_CALLS = ['gen_ai.operation.name', 'gen_ai.provider.name', 'gen_ai.request.model'];
const doubling = (first: number, count: number) => Array.from({ length: count }, (_, index) => first * 2 ** index);
const tokens = Array.from({ length: 14 }, (_, index) => 4 ** index);
const calls = { unit: 's', bounds: doubling(0.01, 14) };
const counted = { unit: '{token}', required: [...OF_CALLS, 'gen_ai.token.modality'] };
const metric = 'gen_ai.client.inference';
/** Unit, bounds (a counter has none), and the attributes of every point; `error.type` may be there too. */
const METRICS: Record<string, { unit: string; bounds?: number[]; required: string[] }> = {
  [`${metric}.duration`]: { ...calls, required: OF_CALLS },
  [`${metric}.time_to_first_chunk`]: { ...calls, required: OF_CALLS },
  [`${metric}.usage.input_tokens`]: counted,
  [`${metric}.usage.output_tokens`]: counted,
  [`${metric}.usage.cache_read.input_tokens`]: counted,
  [`${metric}.usage.reasoning.output_tokens`]: counted,
  [`${metric}.operation.input_tokens`]: { unit: '{token}', bounds: tokens, required: OF_CALLS },
  [`${metric}.operation.output_tokens`]: { unit: '{token}', bounds: tokens, required: OF_CALLS },
  'gen_ai.invoke_agent.duration': { unit: 's', bounds: doubling(0.1, 13), required: ['gen_ai.agent.name'] },
  'gen_ai.execute_tool.duration': {
    ...calls,
    required: ['gen_ai.agent.name', 'gen_ai.tool.name', 'gen_ai.tool.type'],
  },
};
/** Names of providers: those that the conventions have, and of the others ours. A provider's is its `telemetryName`. */
const PROVIDERS = new Set(['anthropic', 'openai', 'gcp.gemini', 'openai-compatible', 'offline', 'scripted']);
const MODALITIES = new Set<unknown>([undefined, 'audio', 'image', 'text', 'unknown']);

const isOfConventions = (name: string) => /^(?:gen_ai|error)\./.test(name);

/** Finds names here that the package of the published registry does not know. */
export function findUnpublished(): string[] {
  const known = new Set<unknown>([...Object.values(published), ...NEWER]);
  return [...Object.keys(TYPES), EVALUATION].filter((name) => !known.has(name));
}

/** Finds attributes that the conventions do not know, or have with another type. */
const findAttributeFaults = ({ attributes, types }: Pick<CollectedSpan, 'attributes' | 'types'>): string[] =>
  Object.keys(attributes)
    .filter(isOfConventions)
    .flatMap((each) => {
      const type = TYPES[each];
      if (!type) return [`${each} is not known`];
      return WIRE[type].includes(types[each] ?? '') ? [] : [`${each} is ${types[each]}`];
    });

/** Finds what the events of a score have against the conventions. */
function findEvaluationFaults({ kind, events }: CollectedSpan): string[] {
  const faults = events.flatMap((event) => {
    const has = (each: string) => event.attributes[each] !== undefined;
    const { required, oneOf } = OF_EVALUATION;
    return [
      ...(event.name === EVALUATION ? [] : [`event ${event.name}`]),
      ...required.filter((each) => !has(each)).map((each) => `lacks ${each}`),
      ...(oneOf.filter(has).length === 1 ? [] : [`has not one of ${String(oneOf)}`]),
      ...findAttributeFaults(event),
    ];
  });
  return [...(kind === INTERNAL && events.length > 0 ? [] : ['has no event']), ...faults].map(
    (what) => `evaluation: ${what}`,
  );
}

/** Finds what a span has against the conventions; nothing where it has no operation of theirs. */
export function findSpanFaults(span: CollectedSpan): string[] {
  const { name, kind, attributes, status } = span;
  if (name === 'evaluation') return findEvaluationFaults(span);
  const operation = String(attributes['gen_ai.operation.name']);
  const rule = SPANS[operation];
  if (!rule) return name === 'invocation' ? [] : [`${name}: no operation`];
  const missing = rule.required.filter((each) => attributes[each] === undefined).map((each) => `lacks ${each}`);
  const wrong = [
    [kind === rule.kind, `kind ${kind}`],
    [name === `${operation} ${String(attributes[rule.named])}`, `named ${name}`],
    [(status.code === 2) === (attributes['error.type'] !== undefined), 'status and error.type differ'],
    [operation !== 'chat' || PROVIDERS.has(String(attributes['gen_ai.provider.name'])), 'provider'],
  ] as const;
  const broken = wrong.filter(([holds]) => !holds).map(([, what]) => what);
  return [...missing, ...findAttributeFaults(span), ...broken].map((what) => `${name}: ${what}`);
}

/** Finds what a metric of GenAI has against the conventions. */
export function findMetricFaults({ name, unit, kind, bounds, points }: CollectedMetric): string[] {
  const rule = METRICS[name];
  if (!rule) return [`${name} is not known`];
  const wrong = [
    [unit === rule.unit, `unit ${unit}`],
    [kind === (rule.bounds ? 'histogram' : 'sum'), `is a ${kind}`],
    [JSON.stringify(bounds) === JSON.stringify(rule.bounds), `bounds ${String(bounds)}`],
    [points.every((point) => rule.required.every((each) => each in point)), `lacks one of ${String(rule.required)}`],
    [points.every((point) => MODALITIES.has(point['gen_ai.token.modality'])), 'modality'],
    [
      points.flatMap(Object.keys).every((each) => each === 'error.type' || rule.required.includes(each)),
      'has other attributes',
    ],
  ] as const;
  return wrong.filter(([holds]) => !holds).map(([, what]) => `${name}: ${what}`);
}

/** Names of all metrics of GenAI that are to come. */
export const GEN_AI_METRICS = Object.keys(METRICS);
