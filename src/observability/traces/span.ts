import { z } from 'zod';
import { getBreak } from '../../agent/loop/prefix.ts';
import type { ModelRequest } from '../../agent/definition/model.ts';
import type { JsonObject } from '../../core/content.ts';
import type { Event } from '../../core/event.ts';
import type { SessionKey } from '../../core/session.ts';
import { looseObject } from '../../core/members.ts';
import { toProviderName, toTokens } from '../tokens.ts';
import { isExactInteger, parseExactJson } from '../../core/exact-json.ts';

export interface Span {
  key: SessionKey;
  traceId: string;
  id: string;
  parentId: string | undefined;
  /** The event that the step produced; `undefined` for spans of invocations and agents. */
  eventId: string | undefined;
  name: string;
  startNs: bigint;
  endNs: bigint;
  attributes: Attributes;
  /** The runs that came before this one, and why; absent on steps. */
  links?: SpanLink[] | undefined;
}

/** A link of a span, as it is stored and answered. */
export interface SpanLink {
  trace_id: string;
  span_id: string;
  attributes: Attributes;
}

/** A run that a later one is linked to. */
export interface RunLink {
  /** Its trace context (W3C `traceparent`). */
  trace: string;
  /**
   * Why there is a later one: the kind of the task that woke it, `answer`, `hand_over` or `take_over`; `parent` if it is
   * that of an agent that the other one called.
   */
  reason: string;
}

/** Attributes must never be null, because with a single null the Web UI drops the whole list of spans. */
export type Attributes = Record<string, string | number | boolean | string[]>;

/** A span in the format that the ADK Web UI reads. */
export const spanSchema = looseObject('One step of an invocation: the whole, an agent, a model call or a tool call.', {
  name: z.string().describe('`invocation`, `invoke_agent <agent>`, `call_llm` or `execute_tool <tool>`.'),
  span_id: z.string().describe('Unique within the trace, 16 hexadecimal digits.'),
  trace_id: z.string().describe('One for each invocation, 32 hexadecimal digits.'),
  start_time: z.number().describe('Unix nanoseconds, an integer beyond what a double holds exactly.'),
  end_time: z.number().describe('Unix nanoseconds, as `start_time`.'),
  attributes: z
    .record(z.string(), z.unknown())
    .describe("OpenTelemetry's GenAI attributes and those of the ADK Web UI; never null, long ones shortened."),
  parent_span_id: z.string().nullable().describe('The span that this is a step of; null on the whole invocation.'),
  links: z
    .array(
      z.looseObject({
        trace_id: z.string().describe('The trace of the earlier run.'),
        span_id: z.string().describe('Its span.'),
        attributes: z.record(z.string(), z.unknown()).describe('`agent_runtime.link.reason` says why.'),
      }),
    )
    .describe(
      'The run that an invocation goes on from, after a wait or another process, and the call that made it, of an agent that another one calls; empty on all other spans.',
    ),
});

const LLM_REQUEST = 'gcp.vertex.agent.llm_request';

/** Attribute names read by the Web UI; the others follow OpenTelemetry's GenAI conventions. */
export const ATTRIBUTE = {
  appName: 'agent_runtime.app_name',
  userId: 'user.id',
  sessionId: 'gcp.vertex.agent.session_id',
  invocationId: 'gcp.vertex.agent.invocation_id',
  eventId: 'gcp.vertex.agent.event_id',
  llmRequest: LLM_REQUEST,
  llmResponse: 'gcp.vertex.agent.llm_response',
  toolArgs: 'gcp.vertex.agent.tool_call_args',
  toolResponse: 'gcp.vertex.agent.tool_response',
  operation: 'gen_ai.operation.name',
  stream: 'gen_ai.request.stream',
  conversationId: 'gen_ai.conversation.id',
  stack: 'exception.stacktrace',
  promptBreak: 'agent_runtime.prompt_break',
  linkReason: 'agent_runtime.link.reason',
  message: 'agent_runtime.message',
} as const;

/** Maximum length of span names and ids, in characters, because models invent tool names and call ids. */
const MAX_NAME_CHARACTERS = 200;
export const shortName = (text: string) => text.slice(0, MAX_NAME_CHARACTERS);

export const SCORE_SPAN = 'evaluation';

/** Attributes of every span of an invocation; `invocationId` is '' for a span of a whole session. */
export const invocationAttributes = (key: SessionKey, invocationId: string): Attributes => ({
  [ATTRIBUTE.appName]: key.appName,
  [ATTRIBUTE.userId]: key.userId,
  [ATTRIBUTE.sessionId]: key.sessionId,
  [ATTRIBUTE.conversationId]: key.sessionId,
  ...(invocationId && { [ATTRIBUTE.invocationId]: invocationId }),
});

/**
 * A model request in ADK's format. It has no operation name: the Web UI requires an event id with one, and an
 * interrupted call has no event.
 */
export const modelRequestAttributes = (
  {
    modelName,
    instruction,
    contents,
    tools,
    sampling,
    asWhole,
  }: Pick<ModelRequest, 'modelName' | 'instruction' | 'contents' | 'tools' | 'sampling' | 'asWhole'>,
  provider: string,
  keepsContent = true,
): Attributes => ({
  'gen_ai.request.model': modelName,
  [ATTRIBUTE.stream]: asWhole !== true,
  'gen_ai.provider.name': toProviderName(provider),
  ...toSamplingAttributes(sampling),
  ...(keepsContent && {
    [ATTRIBUTE.llmRequest]: boundedJson({
      model: modelName,
      config: { ...sampling, system_instruction: instruction, tools: [{ function_declarations: tools }] },
      contents,
    }),
  }),
});

/** Attributes of a `call_llm` span from the event with the model's response or error. */
export function modelAnswerAttributes(event: Event, keepsContent = true): Attributes {
  const { id, content, modelVersion, finishReason, usageMetadata, groundingMetadata, errorCode, errorMessage } = event;
  const answer = { content, modelVersion, finishReason, usageMetadata, groundingMetadata, errorCode, errorMessage };
  const reason = errorCode ? 'error' : finishReason?.toLowerCase();
  const tokens = Object.entries(toTokens(event)).flatMap(([name, count]) =>
    count > 0 ? [[`gen_ai.usage.${name}`, count] as const] : [],
  );
  const broken = getBreak(event);
  return {
    ...(broken && { [ATTRIBUTE.promptBreak]: shortName(`${broken.part}: ${broken.why}`) }),
    ...(id ? { [ATTRIBUTE.eventId]: id } : {}),
    ...(keepsContent && { [ATTRIBUTE.llmResponse]: boundedJson(answer) }),
    ...(modelVersion ? { 'gen_ai.response.model': modelVersion } : {}),
    ...(reason ? { 'gen_ai.response.finish_reasons': [reason] } : {}),
    ...Object.fromEntries(tokens),
  };
}

function toSamplingAttributes(sampling: ModelRequest['sampling']): Attributes {
  const { temperature, topP, maxOutputTokens, presencePenalty, frequencyPenalty, seed } = sampling;
  const all = {
    'gen_ai.request.temperature': temperature,
    'gen_ai.request.top_p': topP,
    'gen_ai.request.max_tokens': maxOutputTokens,
    'gen_ai.request.presence_penalty': presencePenalty,
    'gen_ai.request.frequency_penalty': frequencyPenalty,
    'gen_ai.request.seed': seed,
  };
  return Object.fromEntries(
    Object.entries(all).flatMap(([name, value]) => (value === undefined ? [] : [[name, value]])),
  );
}

export interface TracedCall {
  id: string;
  name: string;
  args: JsonObject;
}

export const toolCallAttributes = ({ id, name, args }: TracedCall, keepsContent = true): Attributes => ({
  [ATTRIBUTE.operation]: 'execute_tool',
  'gen_ai.tool.name': shortName(name),
  'gen_ai.tool.call.id': shortName(id),
  'gen_ai.tool.type': 'function',
  ...(keepsContent && { [ATTRIBUTE.toolArgs]: boundedJson(args) }),
});

const MAX_JSON_BYTES = 32 * 1024;
/** Limits tried in turn until the JSON fits: characters per string, and elements per array (the last are kept). */
const SHORTER: [characters: number, elements: number][] = [
  [8192, 200],
  [1024, 50],
  [256, 20],
  [64, 5],
];

/** Returns JSON of at most 32 KB: long strings lose their ends and long arrays their beginnings, with a note. */
export function boundedJson(value: unknown): string {
  const whole = JSON.stringify(value) ?? 'null';
  if (fits(whole)) return whole;
  for (const [characters, elements] of SHORTER) {
    const text = JSON.stringify(value, (_name, member: unknown) => shorten(member, characters, elements));
    if (fits(text)) return text;
  }
  return JSON.stringify({ left_out: `${whole.length} characters` });
}

const fits = (text: string) => Buffer.byteLength(text) <= MAX_JSON_BYTES;

function shorten(member: unknown, characters: number, elements: number): unknown {
  if (typeof member === 'string' && member.length > characters)
    return `${member.slice(0, characters)}… [${member.length - characters} characters left out]`;
  if (Array.isArray(member) && member.length > elements)
    return [`[${member.length - elements} elements left out] …`, ...(member.slice(-elements) as unknown[])];
  return member;
}

/** Removes the operator's prompt, tool definitions and stack traces from JSON of spans or their attributes. */
export function withoutPrompts(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutPrompts);
  if (typeof value !== 'object' || value === null || isExactInteger(value)) return value;
  const members = Object.entries(value).flatMap(([name, member]): [string, unknown][] => {
    if (name === ATTRIBUTE.stack) return [];
    if (name !== LLM_REQUEST) return [[name, withoutPrompts(member)]];
    const request = withoutConfig(member);
    return request === undefined ? [] : [[name, request]];
  });
  return Object.fromEntries(members);
}

/** Removes instruction and tools from a model request's JSON; `undefined` if the text was cut and is no JSON. */
function withoutConfig(text: unknown): string | undefined {
  try {
    const { config: _config, ...request } = parseExactJson(String(text)) as Record<string, unknown>;
    return JSON.stringify(request);
  } catch {
    return undefined;
  }
}
