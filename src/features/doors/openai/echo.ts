import { getParts, type JsonObject, type Part } from '../../../core/content.ts';
import type { Event } from '../../../core/event.ts';
import type { SessionKey } from '../../../core/session.ts';
import { toConversationId } from './ids.ts';

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
export function withEcho([first, ...others]: Part[], request: JsonObject): Part[] {
  const given = Object.keys(DEFAULTS).filter((name) => request[name] != null);
  const echo = Object.fromEntries(given.map((name) => [name, request[name]]));
  return [{ ...first, partMetadata: { ...first?.partMetadata, [NOTE]: echo } }, ...others];
}

/** Returns what a response repeats of its request, with the model and the conversation. */
export function readEcho(key: SessionKey, first: Event | undefined): JsonObject {
  const [part] = getParts(first?.content);
  const echo = (part?.partMetadata?.[NOTE] ?? {}) as JsonObject;
  const absent = { description: null, parameters: null, strict: null };
  const tools = ((echo['tools'] ?? []) as JsonObject[]).map((tool) => ({ ...absent, ...tool }));
  return { model: key.appName, ...DEFAULTS, ...echo, tools, conversation: { id: toConversationId(key) } };
}
