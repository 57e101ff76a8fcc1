import {
  AlwaysOffSampler,
  AlwaysOnSampler,
  BatchSpanProcessor,
  ParentBasedSampler,
  type ReadableSpan,
  type Sampler,
  type SpanExporter,
  type SpanProcessor,
  TraceIdRatioBasedSampler,
} from '@opentelemetry/sdk-trace-base';
import { type OtlpSettings, type SamplerName, toOtlpOptions } from '../../config/observability.ts';
import type { Log } from '../../platform/log.ts';
import { toGenAiSpan } from './gen-ai.ts';

/** Time in which spans are gathered for one request to the collector. */
const LINGER_MS = 1_000;
/** Maximum of spans that wait for a collector that is slow or away; what comes beyond is dropped and counted. */
const MAX_WAITING = 2_048;
const MAX_BATCH = 256;
/** Maximum time of a request to the collector, its retries included. */
const TIMEOUT_MS = 5_000;
/** `ExportResultCode.SUCCESS` of @opentelemetry/core, which only OpenTelemetry's packages need. */
const SUCCESS = 0;

/** Sends spans to the collector of the settings in the background, so that an unreachable one delays nothing. */
export async function createOtlpProcessor(settings: OtlpSettings, log: Log): Promise<SpanProcessor> {
  const { OTLPTraceExporter } =
    settings.OTEL_EXPORTER_OTLP_PROTOCOL === 'http/json'
      ? await import('@opentelemetry/exporter-trace-otlp-http')
      : await import('@opentelemetry/exporter-trace-otlp-proto');
  const exporter = new OTLPTraceExporter({ ...toOtlpOptions(settings, 'traces'), timeoutMillis: TIMEOUT_MS });
  const keepsContent = settings.OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT;
  return new BatchSpanProcessor(withConventions(exporter, keepsContent, log), {
    scheduledDelayMillis: LINGER_MS,
    maxQueueSize: MAX_WAITING,
    maxExportBatchSize: MAX_BATCH,
    exportTimeoutMillis: TIMEOUT_MS,
  });
}

/** Exports spans as the conventions have them. A failure is logged here: its text may quote what was sent. */
function withConventions(exporter: SpanExporter, keepsContent: boolean, log: Log): SpanExporter {
  return {
    export(spans: ReadableSpan[], done) {
      exporter.export(
        spans.map((span) => toGenAiSpan(span, keepsContent)),
        ({ error }) => {
          if (error) log.warn({ reason: 'no answer of the collector' }, 'traces could not be exported');
          done({ code: SUCCESS });
        },
      );
    },
    forceFlush: async () => exporter.forceFlush?.(),
    shutdown: () => exporter.shutdown(),
  };
}

/** Which invocations are traced, by OpenTelemetry's name; `ratio` is the share of traces, from 0 to 1. */
export function toSampler(name: SamplerName, ratio: number): Sampler {
  const [, isParentBased, rule] = /^(parentbased_)?(.*)$/.exec(name) ?? [];
  const root =
    rule === 'always_on'
      ? new AlwaysOnSampler()
      : rule === 'always_off'
        ? new AlwaysOffSampler()
        : new TraceIdRatioBasedSampler(ratio);
  return isParentBased === undefined ? root : new ParentBasedSampler({ root });
}
