import { z } from 'zod';
import { jsonObject } from '../../../core/content.ts';
import { HARNESS_APP } from '../../../core/names.ts';
import { identifierSchema, type SessionKey } from '../../../core/session.ts';
import { BUSY_ERRORS } from '../../../invocations/request.ts';
import { overrideDemands } from '../../../platform/http/operation/demands.ts';
import { loadOnce, type Operation, operation } from '../../../platform/http/operation/operation.ts';
import { idInPath } from '../../../platform/http/operation/parameters.ts';
import type { Principal } from '../../../platform/http/operation/principal.ts';
import { doorQuery, toClientUser } from '../start-turn.ts';
import { toRefusal } from './errors.ts';
import { parseConversationId, parseResponseId } from './ids.ts';
import * as schemas from './schemas.ts';
import { type OpenAiContext, toHarness } from './start.ts';

const chat = loadOnce(() => import('./chat.ts'));
const conversations = loadOnce(() => import('./conversations.ts'));
const responses = loadOnce(() => import('./responses.ts'));

/** The members that all operations of this door share. */
const door = { refusal: { $ref: '#/components/schemas/OpenAiError' }, toRefusal };

/** A request that begins something, with the places at which it may name its user. */
interface Named {
  query: z.output<typeof doorQuery>;
  headers: { 'x-openwebui-user-id'?: string | undefined };
  body?: { user?: string | null | undefined } | undefined;
}
const toNamed = ({ query, headers, body }: Named) => query.user_id ?? headers['x-openwebui-user-id'] ?? body?.user;
const beginner = {
  user: (sent: Named) => toNamed(sent) as string,
  absent: (sent: Named) => `User not found: ${toNamed(sent)}`,
};
const withUser = <Sent extends Named & { principal: Principal }>(call: Sent) => ({
  ...call,
  userId: toClientUser(call.principal, toNamed(call) ?? undefined),
});

/** Returns the members of all operations about one thing: its id says whose it is, or nothing that is found. */
const about = <Name extends string>(name: Name, what: string, parse: (id: string) => SessionKey | undefined) => {
  type Path = Record<Name, string>;
  const absent = (path: Path) => `${what} not found: ${path[name]}`;
  const owner = {
    user: ({ path }: { path: Path }) => parse(path[name])?.userId as string,
    app: ({ path }: { path: Path }) => parse(path[name])?.appName as string,
    absent: ({ path }: { path: Path }) => absent(path),
  };
  return { ...door, owner, absent, errors: { 404: `${what} not found.` } };
};

/** Returns the schema of an answer, which is as the protocol has it, with an example. */
const shown = (description: string, example: Record<string, unknown>) => ({
  schema: jsonObject.describe(description),
  description,
  example,
});
const show = async (found: Promise<object> | object) => ({ kind: 'value' as const, value: await found });

/** Returns what describes an answer that is whole, or a stream where `stream` is true. */
const streamed = (example: object, event: string) =>
  ({
    schema: z.string(),
    description: 'The answer: JSON, or a stream of events where `stream` is true.',
    example: event,
    mediaType: 'text/event-stream',
    json: { schema: { type: 'object', properties: {}, description: 'The whole answer.' }, example },
  }) as const;

const pageQuery = z.object({
  after: z.string().max(4_096).optional().describe('Id of the item behind which the page begins.'),
  limit: z.int().min(1).max(100).default(20).describe('Most items of the page.'),
  order: z.enum(['asc', 'desc']).default('desc').describe('Oldest or newest first.'),
});
const page = shown('A page of items.', { object: 'list', data: [], first_id: null, last_id: null, has_more: false });

const ONE_RESPONSE = '/v1/responses/{response_id}';
const exampleResponse = { id: 'resp_czE', object: 'response', status: 'completed', model: HARNESS_APP, output: [] };
const someResponse = streamed(exampleResponse, 'event: response.created\ndata: {"type":"response.created"}\n\n');
const responsePath = z.object({ responseId: idInPath('The response.') });
const ofResponse = {
  path: ONE_RESPONSE,
  ...about('responseId', 'Response', (id) => parseResponseId(id)?.key),
  parameters: { path: responsePath },
  success: shown('The response.', exampleResponse),
};

const ONE_CONVERSATION = '/v1/conversations/{conversation_id}';
const exampleConversation = { id: 'conv_czE', object: 'conversation', created_at: 1_795_200_809, metadata: {} };
const conversationPath = z.object({ conversationId: idInPath('The conversation.') });
const ofConversation = {
  path: ONE_CONVERSATION,
  ...about('conversationId', 'Conversation', parseConversationId),
  parameters: { path: conversationPath },
  success: shown('The conversation.', exampleConversation),
};

const exampleModel = { id: HARNESS_APP, object: 'model', created: 0, owned_by: 'agent-runtime' };
const models = { ...door, method: 'get', scope: 'read', owner: 'service' } as const;

/** The members of operations that run an agent. */
const running = {
  ...door,
  method: 'post',
  scope: 'invoke',
  isStream: true,
  owner: { ...beginner, app: ({ body }: { body: { model: string } }) => body.model },
  parameters: { query: doorQuery, headers: schemas.doorHeaders },
  errors: { 404: 'No such application, response or conversation.', ...BUSY_ERRORS },
} as const;

/** The operations of this door. */
export const openAiOperations: Operation<OpenAiContext>[] = [
  operation({
    ...running,
    path: '/v1/responses',
    operationId: 'createOpenAiResponse',
    summary: 'Create a response',
    description:
      'As the Responses API: `model` is an application, a conversation a session, a response an invocation, which ' +
      'outlives its process. Tools of the agent come as `mcp_call`, confirmations as `mcp_approval_request`.',
    demands: ({ body }) => overrideDemands(toHarness(body)),
    body: {
      schema: schemas.createResponseSchema,
      required: true,
      example: { model: HARNESS_APP, input: 'What is 17 * 23? Use the calculator.' },
    },
    success: someResponse,
    handler: async (context: OpenAiContext, call) => (await responses()).createResponse(context, withUser(call)),
  }),
  operation({
    ...ofResponse,
    method: 'get',
    operationId: 'getOpenAiResponse',
    scope: 'read',
    load: 'heavy',
    isStream: true,
    summary: 'Get a response',
    description:
      'As it stands, or as a stream: events and their numbers are the same each time, and never expire. Behind a ' +
      'number of text that was taken back comes the event `error`: it is read from its beginning.',
    parameters: {
      path: responsePath,
      query: z.object({
        stream: z.boolean().default(false).describe('True: its events.'),
        starting_after: z.int().min(-1).optional().describe('Only events after this number.'),
      }),
    },
    success: someResponse,
    handler: async (context: OpenAiContext, call) => (await responses()).getResponse(context, call),
  }),
  operation({
    ...ofResponse,
    method: 'post',
    path: `${ONE_RESPONSE}/cancel`,
    operationId: 'cancelOpenAiResponse',
    scope: 'invoke',
    load: 'write',
    summary: 'Cancel a response',
    description: 'On whatever replica it runs; one that is over stays as it is.',
    handler: async (context: OpenAiContext, call) => (await responses()).cancelResponse(context, call),
  }),
  operation({
    ...ofResponse,
    method: 'delete',
    operationId: 'deleteOpenAiResponse',
    scope: 'write',
    summary: 'Delete a response',
    description: 'With its conversation, where it is all of that.',
    errors: { ...ofResponse.errors, 409: 'Its conversation has others.' },
    handler: async (context: OpenAiContext, call) => show((await responses()).deleteResponse(context, call)),
  }),
  operation({
    ...ofResponse,
    method: 'get',
    path: `${ONE_RESPONSE}/input_items`,
    operationId: 'listOpenAiInputItems',
    scope: 'read',
    load: 'heavy',
    summary: 'List the input of a response',
    parameters: { path: responsePath, query: pageQuery },
    success: page,
    handler: async (context: OpenAiContext, call) => show((await responses()).listInput(context, call)),
  }),
  operation({
    ...door,
    method: 'post',
    path: '/v1/conversations',
    operationId: 'createOpenAiConversation',
    scope: 'write',
    summary: 'Create a conversation',
    description: 'A session of the application `app_name`; `metadata` are its labels.',
    owner: { ...beginner, app: ({ query }: { query: { app_name: string } }) => query.app_name },
    parameters: {
      query: doorQuery.extend({ app_name: identifierSchema.default(HARNESS_APP).describe('The application.') }),
      headers: schemas.doorHeaders.pick({ 'x-openwebui-user-id': true }),
    },
    body: { schema: schemas.conversationSchema, required: false, example: { metadata: { topic: 'sums' } } },
    success: ofConversation.success,
    errors: { 404: 'No such application.' },
    handler: async (context: OpenAiContext, call) =>
      show((await conversations()).createConversation(context, withUser(call))),
  }),
  operation({
    ...ofConversation,
    method: 'get',
    operationId: 'getOpenAiConversation',
    scope: 'read',
    summary: 'Get a conversation',
    handler: async (context: OpenAiContext, call) => show((await conversations()).findConversation(context, call)),
  }),
  operation({
    ...ofConversation,
    method: 'post',
    operationId: 'changeOpenAiConversation',
    scope: 'write',
    summary: 'Change a conversation',
    description: 'Replaces its `metadata`.',
    body: { schema: schemas.metadataSchema, required: true, example: { metadata: { topic: 'sums' } } },
    handler: async (context: OpenAiContext, call) => show((await conversations()).changeConversation(context, call)),
  }),
  operation({
    ...ofConversation,
    method: 'delete',
    operationId: 'deleteOpenAiConversation',
    scope: 'write',
    summary: 'Delete a conversation',
    handler: async (context: OpenAiContext, call) => show((await conversations()).deleteConversation(context, call)),
  }),
  operation({
    ...ofConversation,
    method: 'get',
    path: `${ONE_CONVERSATION}/items`,
    operationId: 'listOpenAiItems',
    scope: 'read',
    load: 'heavy',
    summary: 'List the items of a conversation',
    parameters: { path: conversationPath, query: pageQuery },
    success: page,
    handler: async (context: OpenAiContext, call) => show((await conversations()).listItems(context, call)),
  }),
  operation({
    ...ofConversation,
    method: 'post',
    path: `${ONE_CONVERSATION}/items`,
    operationId: 'addOpenAiItems',
    scope: 'write',
    summary: 'Add items to a conversation',
    description: 'Messages, and calls of own tools with their answers; in the name of the agent: the scope `import`.',
    body: {
      schema: schemas.itemsSchema,
      required: true,
      example: { items: [{ role: 'user', content: 'I live in Bern.' }] },
    },
    success: page,
    handler: async (context: OpenAiContext, call) => show((await conversations()).addItems(context, call)),
  }),
  operation({
    ...models,
    path: '/v1/models',
    operationId: 'listOpenAiModels',
    summary: 'List the applications as models',
    success: shown('Those that the credential may use.', { object: 'list', data: [exampleModel] }),
    handler: ({ agents }: OpenAiContext, { principal: { apps } }) => {
      const data = [...agents.keys()].filter((id) => apps?.has(id) ?? true).map((id) => ({ ...exampleModel, id }));
      return show({ object: 'list', data });
    },
  }),
  operation({
    ...models,
    path: '/v1/models/{app_name}',
    operationId: 'getOpenAiModel',
    summary: 'Get an application as a model',
    parameters: { path: z.object({ appName: identifierSchema.describe('The application.') }) },
    success: shown('The model.', exampleModel),
    absent: ({ appName }) => `App not found: ${appName}`,
    errors: { 404: 'No such application.' },
    handler: ({ agents }: OpenAiContext, { path: { appName: id }, notFound }) => {
      if (!agents.has(id)) throw notFound();
      return show({ ...exampleModel, id });
    },
  }),
  operation({
    ...running,
    path: '/v1/chat/completions',
    operationId: 'createOpenAiChatCompletion',
    summary: 'Create a chat completion',
    description:
      'For clients that know nothing else. It runs in the session that `X-Session-Id`, `X-OpenWebUI-Chat-Id` or ' +
      '`metadata.session_id` names, where the messages go on with that; else nothing of it stays.',
    demands: ({ body }) => overrideDemands(toHarness(body)),
    body: {
      schema: schemas.chatSchema,
      required: true,
      example: { model: HARNESS_APP, messages: [{ role: 'user', content: 'What is 17 * 23?' }] },
    },
    success: streamed({ object: 'chat.completion', choices: [] }, 'data: {"object":"chat.completion.chunk"}\n\n'),
    handler: async (context: OpenAiContext, call) => (await chat()).completeChat(context, withUser(call)),
  }),
];
