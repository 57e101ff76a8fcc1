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
import { type Attributes, SpanKind } from '@opentelemetry/api';
import type { Content, Part } from '../../core/content.ts';
import { ATTRIBUTE } from './span.ts';
import { parseExactJson } from '../../core/exact-json.ts';

/** Time for which spans are collected into one request, in milliseconds. */
const LINGER_MS = 1_000;
/** Maximum number of spans waiting for the collector; further spans are dropped and counted. */
const MAX_WAITING = 2_048;
const MAX_BATCH = 256;
/** Time-out of a request to the collector, including retries, in milliseconds. */
const TIMEOUT_MS = 5_000;
/** `ExportResultCode.SUCCESS` of @opentelemetry/core, which is not a dependency of this project. */
const SUCCESS = 0;

export async function createOtlpProcessor(settings: OtlpSettings, log: Log): Promise<SpanProcessor> {
  const { OTLPTraceExporter } =
    settings.OTEL_EXPORTER_OTLP_PROTOCOL === 'http/json'
      ? await import('@opentelemetry/exporter-trace-otlp-http')
      : await import('@opentelemetry/exporter-trace-otlp-proto');
  const exporter = new OTLPTraceExporter({ ...toOtlpOptions(settings, 'traces'), timeoutMillis: TIMEOUT_MS });
  return new BatchSpanProcessor(withConventions(exporter, settings, log), {
    scheduledDelayMillis: LINGER_MS,
    maxQueueSize: MAX_WAITING,
    maxExportBatchSize: MAX_BATCH,
    exportTimeoutMillis: TIMEOUT_MS,
  });
}

/** Exports spans by OpenTelemetry's conventions. Failures are logged without their message, which may quote content. */
function withConventions(exporter: SpanExporter, settings: OtlpSettings, log: Log): SpanExporter {
  const keepsContent = settings.OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT;
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

/** Creates the sampler with OpenTelemetry's `name`. `ratio`: share of traces to keep, 0 to 1. */
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

/** Attribute name that the ADK Web UI reads → OpenTelemetry's name for export. */
const RENAMED: Record<string, string> = {
  [ATTRIBUTE.invocationId]: 'agent_runtime.invocation_id',
  [ATTRIBUTE.eventId]: 'agent_runtime.event_id',
};
/** Attributes that are not exported, because `gen_ai.conversation.id` has the same value. */
const LEFT_OUT = new Set<string>([ATTRIBUTE.sessionId]);

/** Attributes with content of the conversation, with their conversion; exported only if configured. */
const CONTENT: Record<string, (json: string) => Attributes> = {
  [ATTRIBUTE.llmRequest]: requestContent,
  [ATTRIBUTE.llmResponse]: answerContent,
  [ATTRIBUTE.toolArgs]: (json) => ({ 'gen_ai.tool.call.arguments': json }),
  [ATTRIBUTE.toolResponse]: (json) => ({ 'gen_ai.tool.call.result': json }),
  [ATTRIBUTE.message]: (json) => ({ 'gen_ai.input.messages': JSON.stringify([toMessage(parseObject(json))]) }),
};

/**
 * Converts a span to OpenTelemetry's GenAI conventions: `invoke_agent`, `chat` or `execute_tool`, below `invocation`.
 */
function toGenAiSpan(span: ReadableSpan, keepsContent: boolean): ReadableSpan {
  const isChat = span.name === 'call_llm';
  const attributes: Attributes = {
    ...(isChat && { [ATTRIBUTE.operation]: 'chat' }),
    ...toGenAiAttributes(span.attributes, keepsContent),
  };
  return {
    ...toPlain(span),
    attributes,
    events: span.events.map((event) => ({
      ...event,
      attributes: toGenAiAttributes(event.attributes ?? {}, keepsContent),
    })),
    name: isChat ? `chat ${String(attributes['gen_ai.request.model'])}` : span.name,
    kind: isChat ? SpanKind.CLIENT : SpanKind.INTERNAL,
  };
}

function toGenAiAttributes(own: Attributes, keepsContent: boolean): Attributes {
  const attributes: Attributes = {};
  for (const [name, value] of Object.entries(own)) {
    const content = CONTENT[name];
    if (LEFT_OUT.has(name) || (content && !keepsContent)) continue;
    if (content) Object.assign(attributes, content(String(value)));
    else attributes[RENAMED[name] ?? name] = value;
  }
  return attributes;
}

/** Copies a span's members explicitly, because its class has getters, which a spread does not copy. */
function toPlain(span: ReadableSpan): ReadableSpan {
  const { kind, name, parentSpanContext, startTime, endTime, duration, status, attributes, links, events } = span;
  const { ended, resource, instrumentationScope } = span;
  const { droppedAttributesCount, droppedEventsCount, droppedLinksCount } = span;
  const counts = { droppedAttributesCount, droppedEventsCount, droppedLinksCount };
  return {
    ...counts,
    kind,
    name,
    startTime,
    endTime,
    duration,
    status,
    attributes,
    links,
    events,
    ended,
    resource,
    ...(parentSpanContext ? { parentSpanContext } : {}),
    instrumentationScope,
    spanContext: () => span.spanContext(),
  };
}

function requestContent(json: string): Attributes {
  const { config, contents } = parseObject(json) as {
    config?: Record<string, unknown>;
    contents?: (Content | string)[];
  };
  const [tools] = (config?.['tools'] ?? []) as { function_declarations?: (object | string)[] }[];
  return {
    'gen_ai.system_instructions': JSON.stringify([{ type: 'text', content: config?.['system_instruction'] ?? '' }]),
    'gen_ai.input.messages': JSON.stringify((contents ?? []).map(toMessage)),
    'gen_ai.tool.definitions': JSON.stringify((tools?.function_declarations ?? []).map(toDefinition)),
  };
}

function answerContent(json: string): Attributes {
  const { content, finishReason } = parseObject(json) as { content?: Content; finishReason?: string };
  const reason = finishReason ? { finish_reason: finishReason.toLowerCase() } : {};
  return content ? { 'gen_ai.output.messages': JSON.stringify([{ ...toMessage(content), ...reason }]) } : {};
}

/** Converts a tool definition; a string stands for definitions that were left out, and says how many. */
const toDefinition = (tool: object | string) => ({
  type: 'function',
  ...(typeof tool === 'string' ? { name: tool } : tool),
});

/** Converts a message to OpenTelemetry's format; a string stands for messages that were left out. */
function toMessage(content: Content | string): object {
  if (typeof content === 'string') return { role: 'system', parts: [{ type: 'text', content }] };
  const parts = (content.parts ?? []).map(toPart);
  const isOfTools = parts.length > 0 && parts.every(({ type }) => type === 'tool_call_response');
  return { role: isOfTools ? 'tool' : content.role === 'model' ? 'assistant' : (content.role ?? 'user'), parts };
}

function toPart({ text, thought, functionCall: call, functionResponse: answer, inlineData, fileData }: Part) {
  if (call) return { type: 'tool_call', id: call.id, name: call.name, arguments: call.args };
  if (answer) return { type: 'tool_call_response', id: answer.id, response: answer.response };
  const { mimeType } = inlineData ?? fileData ?? {};
  const [kind = ''] = mimeType?.split('/') ?? [];
  const media = { mime_type: mimeType, modality: ['image', 'video', 'audio'].includes(kind) ? kind : 'document' };
  if (inlineData) return { type: 'blob', ...media, content: inlineData.data };
  if (fileData) return { type: 'uri', ...media, uri: fileData.fileUri };
  return { type: thought ? 'reasoning' : 'text', content: text ?? '' };
}

/** Parses JSON; returns `{}` if the text was cut and is no longer JSON. */
function parseObject(json: string): object {
  try {
    return Object(parseExactJson(json)) as object;
  } catch {
    return {};
  }
}
