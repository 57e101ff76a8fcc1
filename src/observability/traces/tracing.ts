import { setTimeout as sleep } from 'node:timers/promises';
import { diag, type SpanContext } from '@opentelemetry/api';
import type { Resource } from '@opentelemetry/resources';
import {
  AlwaysOnSampler,
  BasicTracerProvider,
  BatchSpanProcessor,
  type IdGenerator,
  RandomIdGenerator,
  type ReadableSpan,
  type Sampler,
  type SpanExporter,
  type SpanProcessor,
} from '@opentelemetry/sdk-trace-base';
import { runAsSystem } from '../../platform/context.ts';
import type { Database } from '../../platform/db/database.ts';
import type { Log } from '../../platform/log.ts';
import { InvocationTrace, planTrace, toSpanContext, type TracedInvocation } from './invocation-trace.ts';
import { type TracedScore, traceScore } from './score-trace.ts';
import { ATTRIBUTE, SCORE_SPAN, type Span, type SpanLink } from './span.ts';
import { insertSpans } from './span-store.ts';

/** Records traces of invocations. Stored traces contain prompts, so they are stored only with the development UI. */
export interface Tracing {
  /** With `trace`, which `plan` returned, the root span has the ids of that. */
  startInvocation: (invocation: TracedInvocation) => InvocationTrace;
  /**
   * Returns the trace context (W3C `traceparent`) that the root span of a run will have, so that it is stored before the
   * run begins: a process that is killed stores nothing more. `undefined` if the run is not sampled.
   */
  plan: () => string | undefined;
  /** Sends an evaluation score to the collector; absent without a collector. */
  traceScore?: (score: TracedScore) => void;
  /** Resolves when all finished spans are stored or dropped; never rejects. */
  flush(): Promise<void>;
  /** Stores the remaining spans; spans that finish later are lost. Never rejects. */
  close(): Promise<void>;
}

export interface TracingOptions {
  /** Time for which spans are collected into one statement, in milliseconds. Default: 200. */
  lingerMs?: number;
  /** Maximum number of spans waiting to be stored; further spans are dropped and counted in the log. Default: 5000. */
  maxWaiting?: number;
  /** Exports spans in addition to storing them. Default: no export. */
  exporting?: SpanProcessor | undefined;
  sampler?: Sampler;
  resource?: Resource;
  /** True: spans contain content of users, models and tools. Default: true. */
  keepsContent?: boolean;
}

/** Maximum number of spans per statement; each has at most 64 KB of JSON. */
const MAX_BATCH = 100;
/** Maximum wait for a batch in milliseconds; normally the database's time-outs end it earlier. */
const EXPORT_TIMEOUT_MS = 30_000;
/** Maximum wait for the collector when the process stops, in milliseconds. */
const CLOSE_MS = 2_000;
/** `ExportResultCode.SUCCESS` of @opentelemetry/core, which is not a dependency of this project. */
const SUCCESS = 0;

/** Starts tracing with its own OpenTelemetry tracer, independent of any other tracer in the process. */
export function createTracing(db: Database | undefined, log: Log, options: TracingOptions = {}): Tracing {
  const { exporting, keepsContent = true, sampler = new AlwaysOnSampler() } = options;
  const storing = db && storeSpans(db, log, options);
  const processors = [storing?.processor, exporting].filter((each) => each !== undefined);
  const ids = new PlannedIds();
  const provider = new BasicTracerProvider({
    sampler,
    idGenerator: ids,
    spanLimits: { attributeValueLengthLimit: Number.POSITIVE_INFINITY, attributeCountLimit: 64 },
    ...(options.resource ? { resource: options.resource } : {}),
    spanProcessors: processors,
  });
  logDropped(log);
  const tracer = provider.getTracer('agent-runtime');
  const flush = async () => storing?.flush();
  return {
    startInvocation: (invocation) =>
      ids.use(invocation.trace, () => new InvocationTrace(tracer, invocation, keepsContent)),
    plan: () => planTrace(tracer),
    ...(exporting && { traceScore: (score: TracedScore) => traceScore(tracer, score, keepsContent) }),
    flush,
    close: async () => {
      await flush();
      const ended = Promise.allSettled(processors.map((processor) => processor.shutdown()));
      // The wait is limited, because an unreachable collector must not delay the stop.
      await Promise.race([ended, sleep(CLOSE_MS, undefined, { ref: false })]);
    },
  };
}

/** Random ids, but for the span that starts while a trace context is in use. */
class PlannedIds implements IdGenerator {
  readonly #random = new RandomIdGenerator();
  #next: SpanContext | undefined;

  generateTraceId = () => this.#next?.traceId ?? this.#random.generateTraceId();
  generateSpanId = () => this.#next?.spanId ?? this.#random.generateSpanId();

  use<T>(trace: string | undefined, start: () => T): T {
    this.#next = toSpanContext(trace);
    try {
      return start();
    } finally {
      this.#next = undefined;
    }
  }
}

function storeSpans(db: Database, log: Log, { lingerMs = 200, maxWaiting = 5_000 }: TracingOptions) {
  const exporter = createStoringExporter(db, log);
  // All options are set explicitly, because defaults would be read from OTEL_* variables.
  const processor = new BatchSpanProcessor(exporter, {
    scheduledDelayMillis: lingerMs,
    maxQueueSize: maxWaiting,
    maxExportBatchSize: Math.min(MAX_BATCH, maxWaiting),
    exportTimeoutMillis: EXPORT_TIMEOUT_MS,
  });
  const flush = async () => {
    // `forceFlush` does not wait for a batch that the timer started, so the exporter is flushed too.
    await processor.forceFlush().catch(() => undefined);
    await exporter.forceFlush();
  };
  return { processor, flush };
}

/** Logs how many spans were dropped; span processors report it only to OpenTelemetry's own log. */
function logDropped(log: Log): void {
  const ignore = () => undefined;
  const warn = (message: string) => log.warn({ reason: message }, 'traces are incomplete');
  diag.setLogger(
    { warn, error: ignore, info: ignore, debug: ignore, verbose: ignore },
    { suppressOverrideMessage: true },
  );
}

/**
 * Stores spans in the background, one statement at a time, so that traces use at most one connection. A lost batch is
 * logged here and dropped, because its error quotes prompts, which must not reach OpenTelemetry's log.
 */
function createStoringExporter(db: Database, log: Log): SpanExporter & { forceFlush(): Promise<void> } {
  let storing = Promise.resolve();
  const store = async (spans: ReadableSpan[], done: Parameters<SpanExporter['export']>[1]) => {
    const stored = spans.filter(({ name }) => name !== SCORE_SPAN);
    // Row-level security is off (`runAsSystem`), because a batch has spans of several users but starts within one's
    // request.
    await runAsSystem(() => insertSpans(db, stored.map(toSpan))).catch((error: unknown) => {
      log.warn({ err: error, spans: spans.length }, 'spans of a trace could not be stored');
    });
    done({ code: SUCCESS });
  };
  return {
    export(spans, done) {
      storing = storing.then(() => store(spans, done));
    },
    forceFlush: () => storing,
    shutdown: () => storing,
  };
}

function toSpan(span: ReadableSpan): Span {
  const attributes = span.attributes as Span['attributes'];
  const text = (name: string) => String(attributes[name] ?? '');
  return {
    key: { appName: text(ATTRIBUTE.appName), userId: text(ATTRIBUTE.userId), sessionId: text(ATTRIBUTE.sessionId) },
    traceId: span.spanContext().traceId,
    id: span.spanContext().spanId,
    // A span of the HTTP client is no parent: it is not stored, and the Web UI shows only spans without a parent as
    // roots.
    parentId: span.parentSpanContext?.isRemote === true ? undefined : span.parentSpanContext?.spanId,
    eventId: text(ATTRIBUTE.eventId) || undefined,
    name: span.name,
    startNs: toNs(span.startTime),
    endNs: toNs(span.endTime),
    attributes,
    links: span.links.length > 0 ? span.links.map(toLink) : undefined,
  };
}

const toLink = ({ context, attributes = {} }: ReadableSpan['links'][number]): SpanLink => ({
  trace_id: context.traceId,
  span_id: context.spanId,
  attributes: attributes as SpanLink['attributes'],
});

const toNs = ([seconds, nanoseconds]: ReadableSpan['startTime']) =>
  BigInt(seconds) * 1_000_000_000n + BigInt(nanoseconds);
