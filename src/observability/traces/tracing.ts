import { setTimeout as sleep } from 'node:timers/promises';
import { diag } from '@opentelemetry/api';
import type { Resource } from '@opentelemetry/resources';
import {
  AlwaysOnSampler,
  BasicTracerProvider,
  BatchSpanProcessor,
  type ReadableSpan,
  type Sampler,
  type SpanExporter,
  type SpanProcessor,
} from '@opentelemetry/sdk-trace-base';
import { runAsSystem } from '../../platform/context.ts';
import type { Database } from '../../platform/db/database.ts';
import type { Log } from '../../platform/log.ts';
import { InvocationTrace, type TracedInvocation } from './invocation-trace.ts';
import { type TracedScore, traceScore } from './score-trace.ts';
import { ATTRIBUTE, SCORE_SPAN, type Span } from './span.ts';
import { insertSpans } from './span-store.ts';

/** Traces of invocations; those kept in PostgreSQL hold prompts, so only the development UI mode keeps them. */
export interface Tracing {
  startInvocation: (invocation: TracedInvocation) => InvocationTrace;
  /** Sends a score to the collector; absent without one. */
  traceScore?: (score: TracedScore) => void;
  /** Resolves when every span that has ended by now is stored, or given up; never rejects. */
  flush(): Promise<void>;
  /** Stores what is left; spans that end later are lost. Never rejects. */
  close(): Promise<void>;
}

/** How spans are stored. */
export interface TracingOptions {
  /** How long spans are gathered for one statement, milliseconds [200]. */
  lingerMs?: number;
  /** Maximum of spans that wait; what comes beyond is dropped and counted in the log [5000]. */
  maxWaiting?: number;
  /** Sends the spans elsewhere too [nowhere]. */
  exporting?: SpanProcessor | undefined;
  /** Which invocations are traced [all]. */
  sampler?: Sampler;
  /** The resource that exported spans name. */
  resource?: Resource;
  /** Whether spans hold what people, models and tools said [true]. */
  keepsContent?: boolean;
}

/** Maximum of spans of one statement; each holds 64 KB of JSON at most. */
const MAX_BATCH = 100;
/** Longest wait for one batch; the database's own time-outs end it earlier. */
const EXPORT_TIMEOUT_MS = 30_000;
/** Longest wait for a collector when the process ends. */
const CLOSE_MS = 2_000;
/** `ExportResultCode.SUCCESS` of @opentelemetry/core, which only OpenTelemetry's packages need. */
const SUCCESS = 0;

/** Starts to trace with an OpenTelemetry tracer of its own, beside whatever tracer the process may have. */
export function createTracing(db: Database | undefined, log: Log, options: TracingOptions = {}): Tracing {
  const { exporting, keepsContent = true, sampler = new AlwaysOnSampler() } = options;
  const storing = db && storeSpans(db, log, options);
  const processors = [storing?.processor, exporting].filter((each) => each !== undefined);
  const provider = new BasicTracerProvider({
    sampler,
    spanLimits: { attributeValueLengthLimit: Number.POSITIVE_INFINITY, attributeCountLimit: 64 },
    ...(options.resource ? { resource: options.resource } : {}),
    spanProcessors: processors,
  });
  logDropped(log);
  const tracer = provider.getTracer('agent-runtime');
  const flush = async () => storing?.flush();
  return {
    startInvocation: (invocation) => new InvocationTrace(tracer, invocation, keepsContent),
    ...(exporting && { traceScore: (score: TracedScore) => traceScore(tracer, score, keepsContent) }),
    flush,
    close: async () => {
      await flush();
      const ended = Promise.allSettled(processors.map((processor) => processor.shutdown()));
      // An unreachable collector does not delay the end of the process.
      await Promise.race([ended, sleep(CLOSE_MS, undefined, { ref: false })]);
    },
  };
}

/** Keeps spans in the database, a moment after they have ended. */
function storeSpans(db: Database, log: Log, { lingerMs = 200, maxWaiting = 5_000 }: TracingOptions) {
  const exporter = createStoringExporter(db, log);
  // Everything is set here: provider and processor would read the OTEL_* variables for what is left out.
  const processor = new BatchSpanProcessor(exporter, {
    scheduledDelayMillis: lingerMs,
    maxQueueSize: maxWaiting,
    maxExportBatchSize: Math.min(MAX_BATCH, maxWaiting),
    exportTimeoutMillis: EXPORT_TIMEOUT_MS,
  });
  const flush = async () => {
    // The processor does not wait for a batch that its timer began, so the exporter is waited for too.
    await processor.forceFlush().catch(() => undefined);
    await exporter.forceFlush();
  };
  return { processor, flush };
}

/** The processors say through OpenTelemetry's own log how many spans they had to drop. */
function logDropped(log: Log): void {
  const ignore = () => undefined;
  const warn = (message: string) => log.warn({ reason: message }, 'traces are incomplete');
  diag.setLogger(
    { warn, error: ignore, info: ignore, debug: ignore, verbose: ignore },
    { suppressOverrideMessage: true },
  );
}

/**
 * Stores spans in the background, one statement at a time, so that traces never take the pool from invocations. A lost
 * batch is logged here and dropped: the error quotes prompts, and OpenTelemetry's own log must not.
 */
function createStoringExporter(db: Database, log: Log): SpanExporter & { forceFlush(): Promise<void> } {
  let storing = Promise.resolve();
  const store = async (spans: ReadableSpan[], done: Parameters<SpanExporter['export']>[1]) => {
    const kept = spans.filter(({ name }) => name !== SCORE_SPAN);
    // A batch holds the spans of several users, and begins within the request of one.
    await runAsSystem(() => insertSpans(db, kept.map(toSpan))).catch((error: unknown) => {
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
    // The caller's own span is not here; the Web UI takes spans without a parent for the beginning.
    parentId: span.parentSpanContext?.isRemote === true ? undefined : span.parentSpanContext?.spanId,
    eventId: text(ATTRIBUTE.eventId) || undefined,
    name: span.name,
    startNs: toNs(span.startTime),
    endNs: toNs(span.endTime),
    attributes,
  };
}

const toNs = ([seconds, nanoseconds]: ReadableSpan['startTime']) =>
  BigInt(seconds) * 1_000_000_000n + BigInt(nanoseconds);
