import {
  type Context,
  type HrTime,
  type Link,
  ROOT_CONTEXT,
  type Span,
  type SpanContext,
  SpanStatusCode,
  trace,
  TraceFlags,
  type Tracer,
} from '@opentelemetry/api';
import type { ModelRequest } from '../../agent/definition/model.ts';
import type { InvocationObserver, ObservedAgent, ObservedStep } from '../../agent/loop/run.ts';
import { getFunctionCalls, getFunctionResponses, type JsonObject } from '../../core/content.ts';
import { type Event, isSteer } from '../../core/event.ts';
import type { SessionKey } from '../../core/session.ts';
import { currentContext } from '../../platform/context.ts';
import {
  ATTRIBUTE,
  type Attributes,
  boundedJson,
  invocationAttributes,
  modelAnswerAttributes,
  modelRequestAttributes,
  type RunLink,
  shortName,
  toolCallAttributes,
  type TracedCall,
} from './span.ts';

export interface TracedInvocation {
  key: SessionKey;
  invocationId: string;
  /** The trace context that was stored before this run began; absent if it has none. */
  trace?: string | undefined;
  /** The runs that this one goes on from, or that made it. */
  links?: readonly RunLink[];
}

/**
 * A span with its last end time so far. It is ended later: an agent may get another turn, which extends its span, and
 * the event whose id a tool call's span names is not stored yet.
 */
interface EndedSpan {
  span: Span;
  endTime: HrTime;
}

/** Turns the steps of an invocation into spans, without delaying it. Steps that never finish are dropped. */
export class InvocationTrace implements InvocationObserver {
  readonly #tracer: Tracer;
  /** False: spans contain no content of users, models or tools. */
  readonly #keepsContent: boolean;
  readonly #attributes: Attributes;
  readonly #now = startClock();
  readonly #root: Span;
  readonly #agents = new Map<string, EndedSpan>();
  /** The agent of the latest step: if the invocation fails, its span gets the error. */
  #latest: string | undefined;
  readonly #answeredCalls = new Map<string, EndedSpan>();
  /** Id of a tool call → span of the model call that requested it. */
  readonly #requestedBy = new Map<string, Span>();

  constructor(tracer: Tracer, { key, invocationId, links = [] }: TracedInvocation, keepsContent = true) {
    this.#tracer = tracer;
    this.#keepsContent = keepsContent;
    this.#attributes = invocationAttributes(key, invocationId);
    this.#root = this.#start(ROOT_SPAN, undefined, {}, links.flatMap(toLink));
  }

  modelCall(
    { name, model }: Pick<ObservedAgent, 'name' | 'model'>,
    request: ModelRequest,
    sent = request,
  ): ObservedStep<Event> {
    const attributes = modelRequestAttributes(sent, model.provider, this.#keepsContent);
    const span = this.#start('call_llm', this.#agent(name), attributes);
    const startedAt = performance.now();
    const ask = (asWhole: boolean) => void span.setAttribute(ATTRIBUTE.stream, !asWhole);
    const begin = () => {
      span.setAttribute('gen_ai.response.time_to_first_chunk', (performance.now() - startedAt) / 1000);
    };
    const end = (event: Event | undefined) => {
      if (event) span.setAttributes(modelAnswerAttributes(event, this.#keepsContent));
      if (event?.errorCode) fail(span, event.errorCode);
      if (event?.errorCode) span.addEvent('gen_ai.client.operation.exception', { 'exception.type': event.errorCode });
      for (const { id } of getFunctionCalls(event?.content)) this.#requestedBy.set(id ?? '', span);
      span.end(this.#now());
      this.#agent(name);
    };
    return { ask, begin, end, traceparent: toTraceparent(span) };
  }

  toolCall(agentName: string, call: TracedCall): ObservedStep<JsonObject> {
    const parent = this.#requestedBy.get(call.id) ?? this.#agent(agentName);
    const attributes = toolCallAttributes(call, this.#keepsContent);
    const span = this.#start(`execute_tool ${shortName(call.name)}`, parent, attributes);
    const end = (response: JsonObject | undefined, stack?: string) => {
      if (response && this.#keepsContent) span.setAttribute(ATTRIBUTE.toolResponse, boundedJson(response));
      if (stack !== undefined && this.#keepsContent) span.setAttribute(ATTRIBUTE.stack, stack);
      if (typeof response?.['error'] === 'string') fail(span, 'tool_error');
      this.#answeredCalls.set(call.id, { span, endTime: this.#now() });
      this.#agent(agentName);
    };
    return { end, traceparent: toTraceparent(span) };
  }

  event(event: Event): void {
    if (isSteer(event)) {
      const content = this.#keepsContent ? { [ATTRIBUTE.message]: boundedJson(event.content ?? {}) } : {};
      this.#root.addEvent(MESSAGE_TAKEN, { [ATTRIBUTE.eventId]: event.id ?? '', ...content }, this.#now());
    }
    for (const { id } of getFunctionResponses(event.content)) {
      const call = this.#answeredCalls.get(id ?? '');
      if (!call) continue;
      if (event.id) call.span.setAttribute(ATTRIBUTE.eventId, event.id);
      call.span.end(call.endTime);
      this.#answeredCalls.delete(id ?? '');
    }
  }

  end(ending: Parameters<InvocationObserver['end']>[0]): void {
    const error = ending ? ending.error : UNKNOWN_END;
    const agent = this.#agents.get(this.#latest ?? '');
    if (error && agent) fail(agent.span, error.code);
    for (const { span, endTime } of [...this.#answeredCalls.values(), ...this.#agents.values()]) span.end(endTime);
    if (error) fail(this.#root, error.code);
    this.#root.end(this.#now());
  }

  /** Starts an agent's span; if it exists, moves its end to now. */
  #agent(name: string): Span {
    const attributes = { [ATTRIBUTE.operation]: 'invoke_agent', 'gen_ai.agent.name': name };
    const span = this.#agents.get(name)?.span ?? this.#start(`invoke_agent ${name}`, this.#root, attributes);
    this.#latest = name;
    this.#agents.set(name, { span, endTime: this.#now() });
    return span;
  }

  /** Starts a span below a span of this trace; the first one, which has none, below the caller's. */
  #start(name: string, parent: Span | undefined, attributes: Attributes, links: Link[] = []): Span {
    const context = parent ? trace.setSpan(ROOT_CONTEXT, parent) : toContext(currentContext().callerTrace);
    const all = { ...this.#attributes, ...attributes };
    return this.#tracer.startSpan(name, { startTime: this.#now(), attributes: all, links }, context);
  }
}

const ROOT_SPAN = 'invocation';
/** Event of the root span: the run took a message of the user, which has the id of the invocation that began with it. */
const MESSAGE_TAKEN = 'agent_runtime.message_taken';

/** Trace context of a root span that is started now; `undefined` if it is not sampled. The span itself is dropped. */
export function planTrace(tracer: Tracer): string | undefined {
  const span = tracer.startSpan(ROOT_SPAN, {}, toContext(currentContext().callerTrace));
  return isSampled(span) ? toTraceparent(span) : undefined;
}

const isSampled = (span: Span) => (span.spanContext().traceFlags & TraceFlags.SAMPLED) !== 0;

/** The link to another run; none if its stored trace context is not one. */
function toLink({ trace: traceparent, reason }: RunLink): Link[] {
  const context = toSpanContext(traceparent);
  return context ? [{ context, attributes: { [ATTRIBUTE.linkReason]: shortName(reason) } }] : [];
}

/** Error code of the trace in this process if another process has continued or ended the invocation. */
const UNKNOWN_END = { code: 'unknown_end' };

/** Sets OpenTelemetry's error status, and the error code as an attribute that people see. */
function fail(span: Span, code: string): void {
  span.setStatus({ code: SpanStatusCode.ERROR });
  span.setAttribute('error.type', code);
}

/** Returns a clock that starts at the system time and never goes back, whatever happens to the system time. */
function startClock(): () => HrTime {
  const offsetMs = Date.now() - performance.now();
  return () => {
    const ms = offsetMs + performance.now();
    return [Math.floor(ms / 1000), Math.floor((ms % 1000) * 1e6)];
  };
}

/** W3C Trace Context, level 1: version, trace id, parent id, flags. Later versions may append fields. */
const TRACEPARENT = /^(?!ff)([\da-f]{2})-(?!0{32})([\da-f]{32})-(?!0{16})([\da-f]{16})-([\da-f]{2})(?:$|-)/;

/** Returns the caller's trace context; the root context if `traceparent` is absent or invalid, as W3C recommends. */
function toContext(traceparent: string | undefined): Context {
  const parent = toSpanContext(traceparent);
  return parent ? trace.setSpanContext(ROOT_CONTEXT, parent) : ROOT_CONTEXT;
}

export function toSpanContext(traceparent: string | undefined): SpanContext | undefined {
  const [, version, traceId = '', spanId = '', flags = ''] = TRACEPARENT.exec(traceparent ?? '') ?? [];
  if (version === undefined || (version === '00' && traceparent?.length !== 55)) return undefined;
  return { traceId, spanId, traceFlags: Number.parseInt(flags, 16), isRemote: true };
}

function toTraceparent(span: Span): string {
  const { traceId, spanId } = span.spanContext();
  return `00-${traceId}-${spanId}-${isSampled(span) ? '01' : '00'}`;
}
