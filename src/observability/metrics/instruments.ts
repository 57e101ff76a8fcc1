import type { Attributes, Meter, MetricOptions } from '@opentelemetry/api';
import type { toTokens } from '../tokens.ts';

type Kind = 'counter' | 'gauge' | 'histogram';

export interface Instrument {
  name: string;
  kind: Kind;
  unit: string;
  description: string;
  labels: string[];
  /** Upper bounds of the histogram's buckets. Default: {@link SECONDS}. */
  buckets?: number[];
}

/** Bucket bounds in seconds, from a cached read to the longest response of an agent. */
const SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600];
/** Bucket bounds in seconds for waits on the connection pool, most of which are near 0. */
const SHORT_SECONDS = [0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5];
const LONG_SECONDS = [0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600];
/** Bucket bounds in seconds that OpenTelemetry's conventions recommend for model calls. */
const CALL_SECONDS = Array.from({ length: 14 }, (_, index) => 0.01 * 2 ** index);
const AGENT_SECONDS = Array.from({ length: 13 }, (_, index) => 0.1 * 2 ** index);
const TOKENS = Array.from({ length: 14 }, (_, index) => 4 ** index);

const counter = (name: string, labels: string[], description: string): Instrument => ({
  name,
  kind: 'counter',
  unit: '',
  labels,
  description,
});
const gauge = (name: string, labels: string[], description: string, unit = ''): Instrument => ({
  name,
  kind: 'gauge',
  unit,
  labels,
  description,
});
const seconds = (name: string, labels: string[], description: string, buckets = SECONDS): Instrument => ({
  name,
  kind: 'histogram',
  unit: 's',
  labels,
  description,
  buckets,
});

const MODEL_LABELS = ['gen_ai_operation_name', 'gen_ai_provider_name', 'gen_ai_request_model'];
const usedTokens = (tokens: keyof ReturnType<typeof toTokens>, description: string): Instrument => ({
  ...counter(`gen_ai.client.inference.usage.${tokens}`, [...MODEL_LABELS, 'gen_ai_token_modality'], description),
  unit: '{token}',
});
const tokensOfCalls = (name: string, description: string): Instrument => ({
  name,
  kind: 'histogram',
  unit: '{token}',
  labels: [...MODEL_LABELS, 'error_type'],
  description,
  buckets: TOKENS,
});

export const TOKEN_COUNTERS = {
  input_tokens: usedTokens('input_tokens', 'Prompt tokens of model calls, cached ones included.'),
  'cache_read.input_tokens': usedTokens('cache_read.input_tokens', "Those from a provider's cache."),
  output_tokens: usedTokens('output_tokens', 'Tokens of answers, thoughts included.'),
  'reasoning.output_tokens': usedTokens('reasoning.output_tokens', 'Those of thoughts.'),
};

/** Metrics of agents, models and tools have OpenTelemetry names, all others Prometheus names. */
export const INSTRUMENTS = {
  request: seconds(
    'agent_runtime_http_request_duration_seconds',
    ['operation', 'status'],
    'Requests, from their headers to the end of the answer; 499: the client left first.',
  ),
  streams: gauge('agent_runtime_streams', ['operation'], 'Open streams and live sessions.'),
  invocation: seconds(
    'agent_runtime_invocation_duration_seconds',
    ['outcome'],
    'Invocations from claim to end: succeeded, paused, lost (ended elsewhere), or an error code.',
  ),
  active: gauge('agent_runtime_invocations_active', [], 'Invocations that run or wait in this process.'),
  queue: seconds('agent_runtime_queue_wait_seconds', ['outcome'], 'Waits of invocations for a busy session.'),
  turnRefused: counter(
    'agent_runtime_queue_refusals_total',
    ['reason'],
    'Turns of waiting invocations that were refused: by a budget, for room in the process, for their request, as no ' +
      'process serves their application, or by a failure.',
  ),
  forgotten: counter(
    'agent_runtime_tasks_forgotten_total',
    [],
    'Answers that nothing would have brought to their paused invocation, found and brought: 0 where all is well.',
  ),
  takeOver: counter('agent_runtime_lease_takeovers_total', [], 'Sessions taken from processes that died or slept.'),
  agent: seconds(
    'gen_ai.invoke_agent.duration',
    ['gen_ai_agent_name', 'error_type'],
    'Agents within an invocation.',
    AGENT_SECONDS,
  ),
  modelCall: seconds(
    'gen_ai.client.inference.duration',
    [...MODEL_LABELS, 'error_type'],
    'Model calls of agents, with their retries.',
    CALL_SECONDS,
  ),
  firstChunk: seconds(
    'gen_ai.client.inference.time_to_first_chunk',
    MODEL_LABELS,
    'Time until the first piece of an answer.',
    CALL_SECONDS,
  ),
  passedOver: counter(
    'agent_runtime_answer_parts_passed_over_total',
    ['provider'],
    'Parts of answers of models that were not understood.',
  ),
  ...TOKEN_COUNTERS,
  callInput: tokensOfCalls('gen_ai.client.inference.operation.input_tokens', 'Prompt tokens of a call.'),
  callOutput: tokensOfCalls('gen_ai.client.inference.operation.output_tokens', 'Its output tokens.'),
  toolCall: seconds(
    'gen_ai.execute_tool.duration',
    ['gen_ai_agent_name', 'gen_ai_tool_name', 'gen_ai_tool_type', 'error_type'],
    'Tool calls that were answered.',
    CALL_SECONDS,
  ),
  unknownCalls: counter('agent_runtime_tool_calls_unknown_total', [], 'Tool calls that may have acted.'),
  connections: gauge('agent_runtime_db_connections', ['pool', 'state'], 'Connections of the database, by pool.'),
  connectionWaiters: gauge('agent_runtime_db_waiting', ['pool'], 'Statements that wait for a connection.'),
  connectionWait: seconds('agent_runtime_db_wait_seconds', ['pool'], 'Waits for a connection.', SHORT_SECONDS),
  loopDelay: gauge(
    'agent_runtime_event_loop_delay_seconds',
    ['percentile'],
    'Delay of the event loop: percentiles 50, 99 and 100.',
    's',
  ),
  lateness: seconds(
    'agent_runtime_cronjob_lateness_seconds',
    [],
    'Time from when a cronjob was due until it was fired.',
    LONG_SECONDS,
  ),
  delivery: counter(
    'agent_runtime_webhook_attempts_total',
    ['outcome'],
    'Attempts to send a delivery: delivered, postponed, failed for good.',
  ),
  score: counter(
    'agent_runtime_scores_total',
    ['outcome'],
    'Scores by rules: passed, failed, not_evaluated, skipped at the bound of a day.',
  ),
  cpu: counter('process_cpu_seconds_total', [], 'CPU time of the process, user and system.'),
  memory: gauge('process_resident_memory_bytes', [], 'Memory of the process.', 'By'),
  startTime: gauge('process_start_time_seconds', [], 'Unix time at which the process started.', 's'),
} as const satisfies Record<string, Instrument>;

/** Returns a metric's Prometheus name, with its unit, as OpenTelemetry collectors write it. */
export function toPrometheusName({ name, unit }: Pick<Instrument, 'name' | 'unit'>): string {
  const plain = name.replaceAll('.', '_');
  if (plain.startsWith('gen_ai_client_inference_usage_')) return `${plain}_total`;
  return unit === 's' && !plain.endsWith('_seconds') ? `${plain}_seconds` : plain;
}

const toOptions = ({ unit, description, buckets }: Instrument): MetricOptions => ({
  unit,
  description,
  ...(buckets ? { advice: { explicitBucketBoundaries: buckets } } : {}),
});

/** Creates a histogram. @returns a function that records one value */
export function toRecorder(meter: Meter, instrument: Instrument): (value: number, labels: Attributes) => void {
  const histogram = meter.createHistogram(instrument.name, toOptions(instrument));
  return (value, labels) => histogram.record(value, labels);
}

/** Creates a counter; the given label sets start at 0. @returns a function that adds a number, by default 1 */
export function toCounter(
  meter: Meter,
  instrument: Instrument,
  all: Attributes[] = [{}],
): (labels?: Attributes, count?: number) => void {
  const created = meter.createCounter(instrument.name, toOptions(instrument));
  for (const labels of all) created.add(0, labels);
  return (labels, count = 1) => created.add(count, labels);
}

export function observeValue(
  meter: Meter,
  instrument: Instrument,
  look: () => [value: number, labels?: Attributes][],
): void {
  const options = toOptions(instrument);
  const created =
    instrument.kind === 'counter'
      ? meter.createObservableCounter(instrument.name, options)
      : meter.createObservableGauge(instrument.name, options);
  created.addCallback((result) => {
    for (const [value, labels] of look()) result.observe(value, labels);
  });
}
