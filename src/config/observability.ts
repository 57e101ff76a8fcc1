import { z } from 'zod';
import { choiceOr, documented, flag, integer, rangeText, textOr, url, whole } from './setting-schemas.ts';

const PORTS: [number, number] = [0, 65_535];

/** `name=value` pairs, separated by commas, with percent-encoded values, as OpenTelemetry defines them. */
export const pairs = z
  .string()
  .transform((text, context) => {
    const matches = text.split(',').map((pair) => /^\s*([\w!#$%&'*+.^`|~-]+)\s*=\s*(.*?)\s*$/.exec(pair));
    try {
      if (matches.every((pair) => pair !== null))
        return Object.fromEntries(matches.map(([, name = '', value = '']) => [name, decodeURIComponent(value)]));
    } catch {
      // `decodeURIComponent` throws for a malformed percent-encoding.
    }
    context.addIssue({ code: 'custom', message: 'name=value pairs with commas between them' });
    return z.NEVER;
  })
  .default({});

const SAMPLERS = [
  'always_on',
  'always_off',
  'traceidratio',
  'parentbased_always_on',
  'parentbased_always_off',
  'parentbased_traceidratio',
] as const;
export type SamplerName = (typeof SAMPLERS)[number];

export const OBSERVABILITY = {
  LOG_LEVEL: choiceOr(
    'warn',
    ['silent', 'fatal', 'error', 'warn', 'info', 'debug', 'trace'],
    'Lowest level of the [log](operations.md#logs), JSON lines on standard error.',
  ),
  METRICS_PORT: documented(
    integer(PORTS).optional(),
    'Port for `/metrics` in the text format of Prometheus, without a login; 0 takes a free one.',
    rangeText(PORTS),
    'none',
  ),
  METRICS_HOST: textOr('127.0.0.1', 'Address of that port, which only the collector should reach.'),
  OTEL_EXPORTER_OTLP_ENDPOINT: url('Collector of traces and metrics, by OTLP over HTTP.', 'none'),
  OTEL_EXPORTER_OTLP_HEADERS: documented(
    pairs,
    'Headers for the collector, such as its key.',
    '`name=value`, comma-separated',
    'none',
  ),
  OTEL_EXPORTER_OTLP_PROTOCOL: choiceOr(
    'http/protobuf',
    ['http/protobuf', 'http/json'],
    'Encoding of traces and metrics.',
  ),
  OTEL_TRACES_SAMPLER: choiceOr(
    'always_on',
    SAMPLERS,
    "Invocations that are traced; `parentbased_…` follows a caller's `traceparent`. In development UI mode " +
      'all are.',
  ),
  OTEL_TRACES_SAMPLER_ARG: documented(
    z.coerce.number('a number from 0 to 1').min(0, 'a number from 0 to 1').max(1, 'a number from 0 to 1').default(1),
    'Share that `traceidratio` samples.',
    '0–1',
    '1',
  ),
  OTEL_SERVICE_NAME: textOr(
    'agent-runtime',
    'Name of this service in traces and metrics; `OTEL_RESOURCE_ATTRIBUTES` works too.',
  ),
  OTEL_METRIC_EXPORT_INTERVAL: whole(60_000, [1_000, 3_600_000], 'Milliseconds between two exports of metrics.'),
  OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT: flag(
    false,
    'Whether traces contain what people, models and tools said.',
  ),
};

export interface OtlpSettings {
  OTEL_EXPORTER_OTLP_ENDPOINT: string;
  OTEL_EXPORTER_OTLP_HEADERS: Record<string, string>;
  OTEL_EXPORTER_OTLP_PROTOCOL: 'http/protobuf' | 'http/json';
  OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT: boolean;
}

export const toOtlpOptions = (settings: OtlpSettings, signal: 'traces' | 'metrics') => ({
  url: `${settings.OTEL_EXPORTER_OTLP_ENDPOINT.replace(/\/$/, '')}/v1/${signal}`,
  headers: settings.OTEL_EXPORTER_OTLP_HEADERS,
});
