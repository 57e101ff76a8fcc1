import type { JsonObject, Part } from '../../../core/content.ts';
import { getParts } from '../../../core/content.ts';
import type { Event } from '../../../core/event.ts';
import type { SessionKey } from '../../../core/session.ts';
import { toConversationId } from './ids.ts';
import type { CreateResponse } from './schemas.ts';

/** Member of the notes of a first part: what a response repeats of its request. */
const NOTE = 'openAiRequest';

/** The members that a response repeats, with what they are where the request has none. */
const DEFAULTS: JsonObject = {
  background: false,
  frequency_penalty: 0,
  instructions: null,
  max_output_tokens: null,
  max_tool_calls: null,
  metadata: {},
  parallel_tool_calls: true,
  presence_penalty: 0,
  previous_response_id: null,
  prompt_cache_key: null,
  reasoning: null,
  safety_identifier: null,
  service_tier: 'default',
  store: true,
  temperature: 1,
  text: { format: { type: 'text' } },
  tool_choice: 'auto',
  tools: [],
  top_logprobs: 0,
  top_p: 1,
  truncation: 'disabled',
};

/** Notes what a response repeats of its request on the first part of what the user says: a replay has it too. */
export function withEcho(parts: Part[], request: CreateResponse): Part[] {
  const sent = request as JsonObject;
  const differing = Object.entries(DEFAULTS).filter(([name]) => sent[name] != null);
  const echo = Object.fromEntries(differing.map(([name]) => [name, sent[name]]));
  return parts.map((part, index) =>
    index === 0 ? { ...part, partMetadata: { ...part.partMetadata, [NOTE]: echo } } : part,
  );
}

/** Returns what a response repeats of its request, with the model and the conversation. */
export function readEcho(key: SessionKey, first: Event | undefined): JsonObject {
  const [part] = getParts(first?.content);
  const echo = (part?.partMetadata?.[NOTE] ?? {}) as JsonObject;
  const tools = ((echo['tools'] ?? []) as JsonObject[]).map((tool) => ({
    description: null,
    parameters: null,
    strict: null,
    ...tool,
  }));
  return { model: key.appName, ...DEFAULTS, ...echo, tools, conversation: { id: toConversationId(key) } };
}
