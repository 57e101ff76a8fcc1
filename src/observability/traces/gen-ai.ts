import { type Attributes, SpanKind } from '@opentelemetry/api';
import type { ReadableSpan } from '@opentelemetry/sdk-trace-base';
import type { Content } from '../../core/content.ts';
import { ATTRIBUTE } from './span.ts';

/** OpenTelemetry's names of what the ADK Web UI reads under names of its own. */
const RENAMED: Record<string, string> = {
  [ATTRIBUTE.invocationId]: 'agent_runtime.invocation_id',
  [ATTRIBUTE.eventId]: 'agent_runtime.event_id',
};
/** The same as `gen_ai.conversation.id`. */
const LEFT_OUT = new Set<string>([ATTRIBUTE.sessionId]);

/** Attributes with the content of a conversation, exported only where a setting asks for it. */
const CONTENT: Record<string, (json: string) => Attributes> = {
  [ATTRIBUTE.llmRequest]: requestContent,
  [ATTRIBUTE.llmResponse]: answerContent,
  [ATTRIBUTE.toolArgs]: (json) => ({ 'gen_ai.tool.call.arguments': json }),
  [ATTRIBUTE.toolResponse]: (json) => ({ 'gen_ai.tool.call.result': json }),
};

/** Converts a span to OpenTelemetry's conventions for GenAI: `invoke_agent`, `chat`, `execute_tool` in `invocation`. */
export function toGenAiSpan(span: ReadableSpan, keepsContent: boolean): ReadableSpan {
  const isChat = span.name === 'call_llm';
  const attributes: Attributes = isChat ? { [ATTRIBUTE.operation]: 'chat' } : {};
  for (const [name, value] of Object.entries(span.attributes)) {
    const content = CONTENT[name];
    if (LEFT_OUT.has(name) || (content && !keepsContent)) continue;
    if (content) Object.assign(attributes, content(String(value)));
    else attributes[RENAMED[name] ?? name] = value;
  }
  return {
    ...toPlain(span),
    attributes,
    name: isChat ? `chat ${String(attributes['gen_ai.request.model'])}` : span.name,
    kind: isChat ? SpanKind.CLIENT : SpanKind.INTERNAL,
  };
}

/** The members of a span without its class. */
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
  const [tools] = (config?.['tools'] ?? []) as { function_declarations?: unknown }[];
  return {
    'gen_ai.system_instructions': JSON.stringify([{ type: 'text', content: config?.['system_instruction'] ?? '' }]),
    'gen_ai.input.messages': JSON.stringify((contents ?? []).map(toMessage)),
    'gen_ai.tool.definitions': JSON.stringify(tools?.function_declarations ?? []),
  };
}

function answerContent(json: string): Attributes {
  const { content, finishReason } = parseObject(json) as { content?: Content; finishReason?: string };
  const reason = finishReason ? { finish_reason: finishReason.toLowerCase() } : {};
  return content ? { 'gen_ai.output.messages': JSON.stringify([{ ...toMessage(content), ...reason }]) } : {};
}

/** A content in the shape of the conventions; what was left out of a long list stays the sentence that says so. */
function toMessage(content: Content | string): object {
  if (typeof content === 'string') return { role: 'system', parts: [{ type: 'text', content }] };
  const parts = (content.parts ?? []).map(({ text, functionCall: call, functionResponse: answer }) =>
    call
      ? { type: 'tool_call', id: call.id, name: call.name, arguments: call.args }
      : answer
        ? { type: 'tool_call_response', id: answer.id, response: answer.response }
        : { type: 'text', content: text ?? '' },
  );
  return { role: content.role === 'model' ? 'assistant' : (content.role ?? 'user'), parts };
}

/** A text that was shortened beyond being JSON has no members. */
function parseObject(json: string): object {
  try {
    return Object(JSON.parse(json)) as object;
  } catch {
    return {};
  }
}
