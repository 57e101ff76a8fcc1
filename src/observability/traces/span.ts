import { z } from 'zod';
import type { ModelRequest } from '../../agent/definition/model.ts';
import { getFunctionCalls, type JsonObject } from '../../core/content.ts';
import type { Event } from '../../core/event.ts';
import type { SessionKey } from '../../core/session.ts';
import { looseObject } from '../../core/members.ts';
import { toProviderName, toTokens } from '../tokens.ts';
import { isExactInteger, parseExactJson } from '../../core/exact-json.ts';

/** A finished span of an invocation's trace. Times are Unix nanoseconds. */
export interface Span {
  key: SessionKey;
  traceId: string;
  id: string;
  parentId: string | undefined;
  /** The event that the step made; none on spans of whole invocations and agents. */
  eventId: string | undefined;
  name: string;
  startNs: bigint;
  endNs: bigint;
  attributes: Attributes;
}

/** Attributes as OpenTelemetry and the Web UI take them: never null, one null drops the UI's whole list of spans. */
export type Attributes = Record<string, string | number | boolean | string[]>;

/** A span as the ADK Web UI reads it. */
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
});

/** The attribute with the whole request of a model call. */
const LLM_REQUEST = 'gcp.vertex.agent.llm_request';

/** Names of attributes that the Web UI reads; the others follow OpenTelemetry's GenAI conventions. */
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
  conversationId: 'gen_ai.conversation.id',
  stack: 'exception.stacktrace',
} as const;

/** Longest name of a span and longest id in an attribute, in characters: models make up names and ids of tool calls. */
const MAX_NAME_CHARACTERS = 200;
const shortName = (text: string) => text.slice(0, MAX_NAME_CHARACTERS);

/** Name of the span of a score, which is no step of an invocation. */
export const SCORE_SPAN = 'evaluation';

/** Attributes of every span of an invocation, or of a whole session where that is `''`. */
export const invocationAttributes = (key: SessionKey, invocationId: string): Attributes => ({
  [ATTRIBUTE.appName]: key.appName,
  [ATTRIBUTE.userId]: key.userId,
  [ATTRIBUTE.sessionId]: key.sessionId,
  [ATTRIBUTE.conversationId]: key.sessionId,
  ...(invocationId && { [ATTRIBUTE.invocationId]: invocationId }),
});

/** Attributes of a span `invoke_agent <name>`. */
export const agentAttributes = (agentName: string): Attributes => ({
  [ATTRIBUTE.operation]: 'invoke_agent',
  'gen_ai.agent.name': agentName,
});

/**
 * Attributes of a span `call_llm`: the request in ADK's shape. They have no operation name: that of a model call makes
 * the UI insist on an event id, which a call that is cut off does not have.
 */
export const modelRequestAttributes = (
  {
    modelName,
    instruction,
    contents,
    tools,
    sampling,
  }: Pick<ModelRequest, 'modelName' | 'instruction' | 'contents' | 'tools' | 'sampling'>,
  provider: string,
  keepsContent = true,
): Attributes => ({
  'gen_ai.request.model': modelName,
  'gen_ai.request.stream': true,
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

/** Attributes of a span `call_llm` from the event that stores the answer or the error. */
export function modelAnswerAttributes(event: Event, keepsContent = true): Attributes {
  const { id, content, modelVersion, finishReason, usageMetadata, groundingMetadata, errorCode, errorMessage } = event;
  const answer = { content, modelVersion, finishReason, usageMetadata, groundingMetadata, errorCode, errorMessage };
  const reason = errorCode ? 'error' : finishReason?.toLowerCase();
  const tokens = Object.entries(toTokens(event)).filter(([, count]) => count > 0);
  return {
    ...(id ? { [ATTRIBUTE.eventId]: id } : {}),
    ...(keepsContent && { [ATTRIBUTE.llmResponse]: boundedJson(answer) }),
    ...(modelVersion ? { 'gen_ai.response.model': modelVersion } : {}),
    ...(reason ? { 'gen_ai.response.finish_reasons': [reason] } : {}),
    ...Object.fromEntries(tokens.map(([name, count]) => [`gen_ai.usage.${name}`, count])),
  };
}

/** The sampling parameters that are set. */
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

/** A tool call as the trace keeps it. */
export interface TracedCall {
  id: string;
  name: string;
  args: JsonObject;
}

/** Name of the span of a tool call. */
export const toolSpanName = ({ name }: TracedCall): string => `execute_tool ${shortName(name)}`;

/** Attributes of a span `execute_tool <name>`. */
export const toolCallAttributes = ({ id, name, args }: TracedCall, keepsContent = true): Attributes => ({
  [ATTRIBUTE.operation]: 'execute_tool',
  'gen_ai.tool.name': shortName(name),
  'gen_ai.tool.call.id': shortName(id),
  'gen_ai.tool.type': 'function',
  ...(keepsContent && { [ATTRIBUTE.toolArgs]: boundedJson(args) }),
});

/** Attributes of a span `execute_tool <name>` from the tool's answer. */
export const toolResponseAttributes = (response: JsonObject): Attributes => ({
  [ATTRIBUTE.toolResponse]: boundedJson(response),
});

/** Ids of the function calls that an event holds. */
export const getCallIds = (event: Event): string[] => getFunctionCalls(event.content).map(({ id }) => id ?? '');

/** Most bytes (UTF-8) of one JSON text in an attribute. */
const MAX_JSON_BYTES = 32 * 1024;
/** Limits that are tried until the text fits: characters of a string, elements of an array (its last ones). */
const SHORTER: [characters: number, elements: number][] = [
  [8192, 200],
  [1024, 50],
  [256, 20],
  [64, 5],
];

/** The JSON of a value in at most 32 KB: long strings lose their ends and long arrays their beginnings, and say so. */
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

/** JSON with spans or their attributes in it, without the operator's prompt, tools and places in code. */
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

/** A model request, as text, without its instruction and tools; `undefined` where it was shortened and is no JSON. */
function withoutConfig(text: unknown): string | undefined {
  try {
    const { config: _config, ...request } = parseExactJson(String(text)) as Record<string, unknown>;
    return JSON.stringify(request);
  } catch {
    return undefined;
  }
}
