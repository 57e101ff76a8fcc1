type LabelValues = readonly string[];
/** Any value that the runtime chooses. It is never a name that a request, a model or a server chose. */
const ANY: LabelValues = [];

/** A row of the table of metrics. */
export interface Metric {
  kind: 'counter' | 'gauge' | 'histogram';
  /** What sets the value: `count`, `record` or `observe` of {@link Metrics}. */
  source: 'counted' | 'recorded' | 'observed';
  unit: string;
  /** Labels with their values. A counter starts at 0 for each value. */
  labels: Readonly<Record<string, LabelValues>>;
  help: string;
  /** Upper bounds of a histogram's buckets. */
  buckets?: readonly number[];
  /** True if the counter starts at 0 without labels, because the values of its labels are not known. */
  startsUnlabelled?: true;
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

const counter = <const Known extends Metric['labels']>(labels: Known, help: string, unit = '') =>
  ({ kind: 'counter', source: 'counted', unit, labels, help }) as const;
const gauge = <const Known extends Metric['labels']>(labels: Known, help: string, unit = '') =>
  ({ kind: 'gauge', source: 'observed', unit, labels, help }) as const;
const histogram = <const Known extends Metric['labels']>(
  labels: Known,
  help: string,
  buckets: readonly number[] = SECONDS,
  unit = 's',
) => ({ kind: 'histogram', source: 'recorded', unit, labels, help, buckets }) as const;

const MODEL = { 'gen_ai.operation.name': ANY, 'gen_ai.provider.name': ANY, 'gen_ai.request.model': ANY };
const USED_TOKENS = { ...MODEL, 'gen_ai.token.modality': ANY };
const POOLS = ['main', 'reads'] as const;
/** Queues of the service, by the names of `service_state` in the database. */
const QUEUES = [
  'cronjob runs',
  'evaluation cases',
  'invocations',
  'memories',
  'scores',
  'tasks',
  'webhook deliveries',
] as const;
const ERROR = { 'error.type': ANY };

/**
 * All metrics by their names: OpenTelemetry's for agents, models and tools, Prometheus names for all others.
 * `docs/operations.md` is written from this table.
 */
export const METRICS = {
  agent_runtime_http_request_duration_seconds: histogram(
    { operation: ANY, status: ANY },
    'Requests, from their headers to the end of the answer; 499: the client left first.',
  ),
  agent_runtime_streams: gauge({ operation: ANY }, 'Open streams and live sessions.'),
  agent_runtime_invocation_duration_seconds: histogram(
    { outcome: ANY },
    'Invocations from claim to end: succeeded, paused, lost (ended elsewhere), or an error code.',
  ),
  agent_runtime_invocations_active: gauge({}, 'Invocations that run or wait in this process.'),
  agent_runtime_queue_wait_seconds: histogram(
    { outcome: ['claimed', 'refused'] },
    'Waits of invocations for a busy session.',
  ),
  agent_runtime_queue_refusals_total: counter(
    { reason: ['budget', 'room', 'request', 'unserved', 'failure'] },
    'Turns of waiting invocations that were refused: by a budget, for room in the process, for their request, as no ' +
      'process serves their application, or by a failure.',
  ),
  agent_runtime_steers_total: counter(
    { outcome: ['taken', 'next_turn'] },
    'Messages that steered: taken by the invocation that ran, or begun as the next turn, as it had ended.',
  ),
  agent_runtime_queue_waiting: gauge(
    { queue: QUEUES },
    'What waits in each queue of the service, the same in every process: 1000 stands for more, too.',
  ),
  agent_runtime_queue_oldest_seconds: gauge(
    { queue: QUEUES },
    'How long what was due first in each queue has waited, the same in every process; 0 if nothing waits.',
    's',
  ),
  agent_runtime_invocations_stranded: gauge(
    {},
    'Paused invocations that nothing will resume, as their tasks are gone, the same in every process: 0 where all is well.',
  ),
  agent_runtime_tasks_forgotten_total: counter(
    {},
    'Answers that nothing would have brought to their paused invocation, found and brought: 0 where all is well.',
  ),
  agent_runtime_lease_takeovers_total: counter({}, 'Sessions taken from processes that died or slept.'),
  'gen_ai.invoke_agent.duration': histogram(
    { 'gen_ai.agent.name': ANY, ...ERROR },
    'Agents within an invocation.',
    AGENT_SECONDS,
  ),
  'gen_ai.client.inference.duration': histogram(
    { ...MODEL, ...ERROR },
    'Model calls of agents, with their retries.',
    CALL_SECONDS,
  ),
  'gen_ai.client.inference.time_to_first_chunk': histogram(
    MODEL,
    'Time until the first piece of an answer that is streamed.',
    CALL_SECONDS,
  ),
  agent_runtime_answer_parts_passed_over_total: {
    ...counter({ provider: ANY }, 'Parts of answers of models that were not understood.'),
    startsUnlabelled: true,
  },
  agent_runtime_prompt_breaks_total: counter(
    { part: ['model', 'instruction', 'tools', 'contents'] },
    'Model calls whose request does not begin with the one before it, by the part that differs first.',
  ),
  'gen_ai.client.inference.usage.input_tokens': counter(
    USED_TOKENS,
    'Prompt tokens of model calls, cached ones included.',
    '{token}',
  ),
  'gen_ai.client.inference.usage.cache_read.input_tokens': counter(
    USED_TOKENS,
    "Those from a provider's cache.",
    '{token}',
  ),
  'gen_ai.client.inference.usage.output_tokens': counter(
    USED_TOKENS,
    'Tokens of answers, thoughts included.',
    '{token}',
  ),
  'gen_ai.client.inference.usage.reasoning.output_tokens': counter(USED_TOKENS, 'Those of thoughts.', '{token}'),
  'gen_ai.client.inference.operation.input_tokens': histogram(
    { ...MODEL, ...ERROR },
    'Prompt tokens of a call.',
    TOKENS,
    '{token}',
  ),
  'gen_ai.client.inference.operation.output_tokens': histogram(
    { ...MODEL, ...ERROR },
    'Its output tokens.',
    TOKENS,
    '{token}',
  ),
  'gen_ai.execute_tool.duration': histogram(
    { 'gen_ai.agent.name': ANY, 'gen_ai.tool.name': ANY, 'gen_ai.tool.type': ANY, ...ERROR },
    'Tool calls that were answered.',
    CALL_SECONDS,
  ),
  agent_runtime_tool_calls_unknown_total: counter({}, 'Tool calls that may have acted.'),
  agent_runtime_db_connections: gauge(
    { pool: POOLS, state: ['used', 'idle'] },
    'Connections of the database, by pool.',
  ),
  agent_runtime_db_waiting: gauge({ pool: POOLS }, 'Statements that wait for a connection.'),
  agent_runtime_db_wait_seconds: histogram({ pool: POOLS }, 'Waits for a connection.', SHORT_SECONDS),
  agent_runtime_event_loop_delay_seconds: gauge(
    { percentile: ['50', '99', '100'] },
    'Delay of the event loop: percentiles 50, 99 and 100.',
    's',
  ),
  agent_runtime_cronjob_lateness_seconds: histogram(
    {},
    'Time from when a cronjob was due until it was fired.',
    LONG_SECONDS,
  ),
  agent_runtime_webhook_attempts_total: counter(
    { outcome: ['delivered', 'postponed', 'failed'] },
    'Attempts to send a delivery: delivered, postponed, failed for good.',
  ),
  agent_runtime_scores_total: counter(
    { outcome: ['passed', 'failed', 'not_evaluated', 'skipped'] },
    'Scores by rules: passed, failed, not_evaluated, skipped at the bound of a day.',
  ),
  process_cpu_seconds_total: {
    ...counter({}, 'CPU time of the process, user and system.'),
    source: 'observed',
  },
  process_resident_memory_bytes: gauge({}, 'Memory of the process.', 'By'),
  process_start_time_seconds: gauge({}, 'Unix time at which the process started.', 's'),
} as const satisfies Record<string, Metric>;

type Rows = typeof METRICS;
type NameOf<Source extends Metric['source']> = {
  [Name in keyof Rows]: Rows[Name]['source'] extends Source ? Name : never;
}[keyof Rows];
/** Labels are optional, because a success has no `error.type`. */
export type Labels<Name extends keyof Rows> = {
  [Label in keyof Rows[Name]['labels']]?: Rows[Name]['labels'][Label] extends LabelValues
    ? Rows[Name]['labels'][Label][number]
    : never;
};

/** The methods never wait or throw. */
export interface Metrics {
  /** Adds to a counter, by default 1. */
  count<Name extends NameOf<'counted'>>(name: Name, labels: Labels<Name>, count?: number): void;
  /** Records a value in a histogram. */
  record<Name extends NameOf<'recorded'>>(name: Name, value: number, labels: Labels<Name>): void;
  /** Reads values whenever metrics are collected. */
  observe<Name extends NameOf<'observed'>>(name: Name, read: () => [value: number, labels: Labels<Name>][]): void;
  /** Raises an observed value by 1. @returns a function that lowers it again */
  raise<Name extends NameOf<'observed'>>(name: Name, labels: Labels<Name>): () => void;
}
