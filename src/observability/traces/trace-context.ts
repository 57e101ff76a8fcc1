import { type Context, ROOT_CONTEXT, type Span, trace, TraceFlags } from '@opentelemetry/api';

/** W3C Trace Context, level 1: version, trace id, parent id, flags. Later versions may have more behind. */
const TRACEPARENT = /^(?!ff)([\da-f]{2})-(?!0{32})([\da-f]{32})-(?!0{16})([\da-f]{16})-([\da-f]{2})(?:$|-)/;

/** The context of a caller's span; the root where `traceparent` is none or not valid, as the recommendation says. */
export function toContext(traceparent: string | undefined): Context {
  const [, version, traceId = '', spanId = '', flags = ''] = TRACEPARENT.exec(traceparent ?? '') ?? [];
  if (version === undefined || (version === '00' && traceparent?.length !== 55)) return ROOT_CONTEXT;
  const parent = { traceId, spanId, traceFlags: Number.parseInt(flags, 16), isRemote: true };
  return trace.setSpanContext(ROOT_CONTEXT, parent);
}

/** The `traceparent` header for a callee, with the span as its parent. */
export function toTraceparent(span: Span): string {
  const { traceId, spanId, traceFlags } = span.spanContext();
  return `00-${traceId}-${spanId}-${(traceFlags & TraceFlags.SAMPLED) === 0 ? '00' : '01'}`;
}
