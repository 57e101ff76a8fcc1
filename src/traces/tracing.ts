import {
  AlwaysOnSampler,
  BasicTracerProvider,
  type ReadableSpan,
  type SpanProcessor,
} from '@opentelemetry/sdk-trace-base';
import type { Database } from '../db/database.ts';
import type { Log } from '../core/log.ts';
import { InvocationTrace, type TracedInvocation } from './invocation-trace.ts';
import { ATTRIBUTE, type Span } from './span.ts';
import { insertSpans } from './span-store.ts';

/** Traces of invocations, kept in PostgreSQL: prompts and answers stand in them, so only the development UI mode has them. */
export interface Tracing {
  startInvocation(invocation: TracedInvocation): InvocationTrace;
  /** Resolves when every span that has ended by now is stored, or given up; never rejects. */
  flush(): Promise<void>;
  /** Stores what is left; spans that end later are lost. Never rejects. */
  close(): Promise<void>;
}

/** How spans are stored. */
export interface TracingOptions {
  /** How long spans are gathered for one statement [200]. */
  lingerMs?: number;
  /** Most spans that wait; what comes beyond is dropped and counted in the log [5000]. */
  maxWaiting?: number;
}

/** Most spans of one statement; each holds 64 KB of JSON at most. */
const MAX_BATCH = 100;

/** Starts to trace with an OpenTelemetry tracer of its own, beside whatever tracer the process may have. */
export function createTracing(db: Database, log: Log, options: TracingOptions = {}): Tracing {
  const processor = storingProcessor(db, log, options);
  // Everything is said here: the provider would read the OTEL_* variables for what is left out.
  const provider = new BasicTracerProvider({
    sampler: new AlwaysOnSampler(),
    spanLimits: { attributeValueLengthLimit: Number.POSITIVE_INFINITY, attributeCountLimit: 64 },
    spanProcessors: [processor],
  });
  const tracer = provider.getTracer('agent-runtime');
  return {
    startInvocation: (invocation) => new InvocationTrace(tracer, invocation),
    flush: () => processor.forceFlush(),
    close: () => processor.shutdown(),
  };
}

/**
 * Gathers ended spans and stores them in the background: an invocation never waits for them. A batch that cannot be stored is
 * logged and dropped.
 */
function storingProcessor(
  db: Database,
  log: Log,
  { lingerMs = 200, maxWaiting = 5_000 }: TracingOptions,
): SpanProcessor {
  let waiting: Span[] = [];
  let dropped = 0;
  let closed = false;
  let storing = Promise.resolve();
  let timer: NodeJS.Timeout | undefined;

  const store = () => {
    clearTimeout(timer);
    timer = undefined;
    storing = storing.then(storeWaiting);
    return storing;
  };
  const storeWaiting = async () => {
    for (;;) {
      const batch = waiting.slice(0, MAX_BATCH);
      if (batch.length === 0) return;
      waiting = waiting.slice(MAX_BATCH);
      await insertSpans(db, batch).catch((error: unknown) => {
        log.warn({ err: error, spans: batch.length }, 'spans of a trace could not be stored');
      });
      if (dropped > 0) log.warn({ spans: dropped }, 'spans of traces were dropped: more ended than could be stored');
      dropped = 0;
    }
  };
  return {
    onStart: () => undefined,
    onEnd(readable) {
      if (closed) return;
      if (waiting.length >= maxWaiting) dropped += 1;
      else waiting.push(toSpan(readable));
      timer ??= setTimeout(() => void store(), lingerMs).unref();
    },
    forceFlush: store,
    shutdown() {
      closed = true;
      return store();
    },
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
