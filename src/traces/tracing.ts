import { diag } from '@opentelemetry/api';
import {
  AlwaysOnSampler,
  BasicTracerProvider,
  BatchSpanProcessor,
  type ReadableSpan,
  type SpanExporter,
} from '@opentelemetry/sdk-trace-base';
import { actingForAll } from '../db/acting-user.ts';
import type { Database } from '../db/database.ts';
import type { Log } from '../core/log.ts';
import { InvocationTrace, type TracedInvocation } from './invocation-trace.ts';
import { ATTRIBUTE, type Span } from './span.ts';
import { insertSpans } from './span-store.ts';

/**
 * Traces of invocations, kept in PostgreSQL: prompts and answers stand in them, so only the development UI mode has
 * them.
 */
export interface Tracing {
  startInvocation: (invocation: TracedInvocation) => InvocationTrace;
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
}

/** Maximum of spans of one statement; each holds 64 KB of JSON at most. */
const MAX_BATCH = 100;
/** Longest wait for one batch; the database's own time-outs end it earlier. */
const EXPORT_TIMEOUT_MS = 30_000;
/** `ExportResultCode.SUCCESS` of @opentelemetry/core, which only OpenTelemetry's packages need. */
const SUCCESS = 0;

/** Starts to trace with an OpenTelemetry tracer of its own, beside whatever tracer the process may have. */
export function createTracing(db: Database, log: Log, options: TracingOptions = {}): Tracing {
  const { lingerMs = 200, maxWaiting = 5_000 } = options;
  const exporter = storingExporter(db, log);
  // Everything is set here: provider and processor would read the OTEL_* variables for what is left out.
  const processor = new BatchSpanProcessor(exporter, {
    scheduledDelayMillis: lingerMs,
    maxQueueSize: maxWaiting,
    maxExportBatchSize: Math.min(MAX_BATCH, maxWaiting),
    exportTimeoutMillis: EXPORT_TIMEOUT_MS,
  });
  const provider = new BasicTracerProvider({
    sampler: new AlwaysOnSampler(),
    spanLimits: { attributeValueLengthLimit: Number.POSITIVE_INFINITY, attributeCountLimit: 64 },
    spanProcessors: [processor],
  });
  // The processor says here how many spans it had to drop.
  const ignore = () => undefined;
  const warn = (message: string) => log.warn({ reason: message }, 'traces are incomplete');
  diag.setLogger(
    { warn, error: ignore, info: ignore, debug: ignore, verbose: ignore },
    { suppressOverrideMessage: true },
  );
  const tracer = provider.getTracer('agent-runtime');
  const flush = async () => {
    // The processor does not wait for a batch that its timer began, so the exporter is waited for too.
    await processor.forceFlush().catch(ignore);
    await exporter.forceFlush();
  };
  return {
    startInvocation: (invocation) => new InvocationTrace(tracer, invocation),
    flush,
    close: async () => {
      await flush();
      await processor.shutdown().catch(ignore);
    },
  };
}

/**
 * Stores spans in the background, one statement at a time, so that traces never take the pool from invocations. A
 * batch that cannot be stored is logged here and dropped: reported to OpenTelemetry, the error's text, which quotes
 * prompts, would reach OpenTelemetry's own log.
 */
function storingExporter(db: Database, log: Log): SpanExporter & { forceFlush(): Promise<void> } {
  let storing = Promise.resolve();
  const store = async (spans: ReadableSpan[], done: Parameters<SpanExporter['export']>[1]) => {
    // A batch holds the spans of several users, and begins within the request of one.
    await actingForAll(() => insertSpans(db, spans.map(toSpan))).catch((error: unknown) => {
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
    parentId: span.parentSpanContext?.spanId,
    eventId: text(ATTRIBUTE.eventId) || undefined,
    name: span.name,
    startNs: toNs(span.startTime),
    endNs: toNs(span.endTime),
    attributes,
  };
}

const toNs = ([seconds, nanoseconds]: ReadableSpan['startTime']) =>
  BigInt(seconds) * 1_000_000_000n + BigInt(nanoseconds);
