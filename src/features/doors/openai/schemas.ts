import { z } from 'zod';
import type { AgentOverrides } from '../../../agent/definition/agent.ts';
import { harnessOverridesSchema, toAgentOverrides } from '../../../agent/definition/overrides.ts';
import { bodyList, bodyText, flag, looseObject, name, optional, text } from '../../../core/members.ts';
import { identifierSchema } from '../../../core/session.ts';
import { newLabelsSchema } from '../../../conversation/sessions/labels.ts';
import { invocationHeaders } from '../../../invocations/wire-request.ts';

/** Headers of requests that run an agent, including the headers in which front ends name a user and a chat. */
export const doorHeaders = invocationHeaders.extend({
  'x-session-id': identifierSchema.optional().describe('The session of a chat [one that goes with the answer].'),
  'x-openwebui-chat-id': identifierSchema.optional().describe('The same, as Open WebUI names it.'),
  'x-openwebui-user-id': identifierSchema.optional().describe('The owner, as Open WebUI names it.'),
});

export const pageQuery = z.object({
  after: z.string().max(4_096).optional().describe('Id of the item behind which the page begins.'),
  limit: z.int().min(1).max(100).default(20).describe('Most items of the page.'),
  order: z.enum(['asc', 'desc']).default('desc').describe('Oldest or newest first.'),
});

export const responseQuery = z.object({
  stream: z.boolean().default(false).describe('True: its events.'),
  starting_after: z.int().min(-1).optional().describe('Only events after this number.'),
});

const content = looseObject('A part of a message; its `type` says which members it has.', {
  type: z.string().max(64).describe('For instance `input_text`, `input_image`, `input_file`, `text`, `image_url`.'),
});
const contents = optional(z.union([bodyText, bodyList(content)]), 'A text, or parts in order: text, images, files.');
const callMembers = { name: name('The tool of a call.'), arguments: text('The arguments of a call, as JSON text.') };
const call = looseObject('A call in a chat.', {
  id: name('Its id.'),
  function: looseObject('What it calls.', callMembers),
});
const item = looseObject('An item or a message; its `type` says which members it has.', {
  type: text('Its kind: `message` [where it has a `role`], `function_call_output`, `mcp_approval_response`.', 64),
  role: text('Of a message: `user`, `assistant`, `system`, `developer`; in a chat also `tool`.', 64),
  content: contents.describe('Of a message: what is said.'),
  call_id: name('Of a call or its output: the call.'),
  ...callMembers,
  output: contents.describe('Of the output of a call.'),
  approval_request_id: name('Of an approval: what was asked.'),
  approve: flag('Of an approval: the decision.'),
  reason: text('Of an approval: why.'),
  tool_call_id: name('Of a tool in a chat: the call that it answers.'),
  tool_calls: optional(bodyList(call), 'Of the assistant in a chat: calls of tools of the client.'),
});

const tool = looseObject('A tool of the client: only `function` is taken.', {
  type: z.string().max(64).describe('`function`; tools that the original hosts are refused.'),
  server_label: name('Of `mcp`: `model`, for clients that take calls only of servers that they name.'),
});

const choice = {
  name: name('Of `function`: the tool.'),
  mode: z.enum(['auto', 'required']).nullish().describe('Of `allowed_tools`: whether one of them has to be called.'),
  tools: optional(bodyList(looseObject('A tool.', { type: z.string().max(64).describe('`function`.') })), 'Those.'),
};
const toolChoice = looseObject('A tool to call, or those that may be called.', {
  type: z.string().max(64).describe('`function` or `allowed_tools`.'),
  ...choice,
  function: optional(looseObject('The tool.', { name: choice.name }), 'Of a chat: the tool.'),
  allowed_tools: optional(
    looseObject('The tools.', { mode: choice.mode, tools: choice.tools }),
    'Of a chat: the tools.',
  ),
});

const { temperature, top_p, presence_penalty, frequency_penalty, max_tokens, output_schema } =
  harnessOverridesSchema.shape;
/** Parameters that override the deployed agent, named as in this service's own API; they need the scope `override`. */
const samplingSchema = z.object({ temperature, top_p, presence_penalty, frequency_penalty });
const schema = { schema: output_schema };
const format = looseObject('The form of the answer.', {
  type: z.enum(['text', 'json_object', 'json_schema']).describe('What the answer is.'),
  ...schema,
  json_schema: optional(looseObject('Its schema.', schema), 'Of a chat: its schema.'),
});

const user = optional(
  identifierSchema,
  'The owner [of a token: its user; of a key that acts for all, and locally: `user`].',
);

const common = {
  model: identifierSchema.describe('The application that answers: an `id` of `/v1/models`.'),
  stream: flag('True: the answer comes as a stream.'),
  metadata: optional(
    z.record(z.string().max(64), z.string().max(512)).meta({ maxProperties: 16 }),
    'Notes, by name; 16 at most.',
  ),
  tools: optional(bodyList(tool), 'Tools that the client runs: calls of them are answered with the next request.'),
  tool_choice: optional(
    z.union([z.enum(['auto', 'none', 'required']), toolChoice]),
    'What the first call of the model has to call: a tool, or one of `tools` by its name; never one of the agent.',
  ),
  ...samplingSchema.shape,
  user,
};

/** A request of the Responses API may have unsupported parameters, because OpenAI's clients send them. */
export const createResponseSchema = looseObject('A request of the Responses API.', {
  ...common,
  input: z.union([bodyText, bodyList(item)]).describe('What is new: a text, or items.'),
  instructions: text("Replaces the agent's instruction for this answer."),
  previous_response_id: text('The response to go on from; where that went on since, from a copy of then.', 4_096),
  conversation: optional(
    z.union([z.string().max(4_096), looseObject('A conversation.', { id: z.string().max(4_096).describe('Its id.') })]),
    'The conversation to go on with; not beside `previous_response_id`.',
  ),
  background: flag('True: it is answered at once, and runs on.'),
  store: flag('False: nothing is kept once it is answered.'),
  text: optional(looseObject('Its text.', { format: optional(format, 'Its form [text].') }), 'The text of the answer.'),
  max_output_tokens: max_tokens,
});

const metadata = optional(newLabelsSchema, 'Notes, by name: the labels of its session.');

export const conversationSchema = looseObject('A conversation.', {
  items: optional(z.array(item).max(20), 'Messages to begin with, 20 at most.'),
  metadata,
  user,
});

export const itemsSchema = looseObject('Items of a conversation.', {
  items: z.array(item).min(1).max(20).describe('Messages, 20 at most.'),
});

export const metadataSchema = looseObject('What changes.', { metadata });

const streamOptions = looseObject('How it streams.', { include_usage: flag('True: the last piece has the usage.') });

export const chatSchema = looseObject('A request of the Chat Completions API.', {
  ...common,
  messages: bodyList(item).min(1).describe('The whole conversation, oldest first.'),
  n: z.literal(1).nullish().describe('There is one answer.'),
  stream_options: optional(streamOptions, 'How it streams.'),
  response_format: optional(format, 'The form of the answer [text].'),
  max_tokens,
  max_completion_tokens: max_tokens,
});

export type CreateResponse = z.input<typeof createResponseSchema>;
export type ChatRequest = z.input<typeof chatSchema>;
export type Page = z.output<typeof pageQuery>;
export type InputItem = z.input<typeof item>;

/** The parameters of a request that override the agent and therefore require the scope `override`. */
export function toOverrides(request: CreateResponse | ChatRequest): AgentOverrides {
  const body: Partial<CreateResponse & ChatRequest> = request;
  const { type, schema: own, json_schema: chat } = body.text?.format ?? body.response_format ?? {};
  const form = type === 'json_schema' ? (own ?? chat?.schema ?? {}) : undefined;
  // `required` forces a tool of the agent only if the client has no tools. Otherwise it refers to the client's tools.
  const isOfAgent = body.tool_choice === 'required' && !body.tools?.some((each) => each.type === 'function');
  const changes = toAgentOverrides({
    ...samplingSchema.parse(body),
    system_prompt: body.instructions,
    max_tokens: body.max_output_tokens ?? body.max_completion_tokens ?? body.max_tokens,
    output_schema: type === 'json_object' ? { type: 'object' } : form,
  });
  return isOfAgent ? { ...changes, toolChoice: 'required' } : changes;
}
