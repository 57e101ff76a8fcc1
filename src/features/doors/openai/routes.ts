import { z } from 'zod';
import { HARNESS_APP } from '../../../core/names.ts';
import { identifierSchema } from '../../../core/session.ts';
import { BUSY_ERRORS } from '../../../invocations/request.ts';
import { overrideDemands } from '../../../platform/http/operation/demands.ts';
import { type Operation, operation } from '../../../platform/http/operation/operation.ts';
import { idInPath } from '../../../platform/http/operation/parameters.ts';
import { doorQuery } from '../start-turn.ts';
import { about, answer, beginner, door, doorHeaders, paged, show, shown, toUser } from './declare.ts';
import { parseConversationId, parseResponseId } from './ids.ts';
import { chatSchema, conversationSchema, createResponseSchema, itemsSchema, metadataSchema } from './schemas.ts';
import { type OpenAiContext, toHarness } from './start.ts';

const ONE_RESPONSE = '/v1/responses/{response_id}';
const ONE_CONVERSATION = '/v1/conversations/{conversation_id}';

const exampleResponse = { id: 'resp_czE', object: 'response', status: 'completed', model: HARNESS_APP, output: [] };
const streamed = answer(exampleResponse, 'event: response.created\ndata: {"type":"response.created"}\n\n');
const loadResponses = () => import('./responses.ts');
const responsePath = z.object({ responseId: idInPath('The response.') });
const ofResponse = {
  ...about('responseId', 'Response', (id) => parseResponseId(id)?.key),
  parameters: { path: responsePath },
  success: shown('The response.', exampleResponse),
};

const exampleConversation = { id: 'conv_czE', object: 'conversation', created_at: 1_795_200_809, metadata: {} };
const loadConversations = () => import('./conversations.ts');
const conversationPath = z.object({ conversationId: idInPath('The conversation.') });
const ofConversation = {
  ...about('conversationId', 'Conversation', parseConversationId),
  parameters: { path: conversationPath },
  success: shown('The conversation.', exampleConversation),
};

/** The members of operations that run an agent. */
const running = {
  ...door,
  method: 'post',
  scope: 'invoke',
  isStream: true,
  owner: { ...beginner, app: ({ body }: { body: { model: string } }) => body.model },
  parameters: { query: doorQuery, headers: doorHeaders },
  errors: { 404: 'No such application, response or conversation.', ...BUSY_ERRORS },
} as const;

const createResponse = operation({
  ...running,
  path: '/v1/responses',
  operationId: 'createOpenAiResponse',
  summary: 'Create a response',
  description:
    'As the Responses API: `model` is an application, a conversation a session, a response an invocation, which ' +
    'outlives its process. Tools of the agent come as `mcp_call`, confirmations as `mcp_approval_request`.',
  demands: ({ body }) => overrideDemands(toHarness(body)),
  body: {
    schema: createResponseSchema,
    required: true,
    example: { model: HARNESS_APP, input: 'What is 17 * 23? Use the calculator.' },
  },
  success: streamed,
  handler: async (context: OpenAiContext, call) =>
    (await loadResponses()).createResponse(context, { ...call, userId: toUser(call) }),
});

const getResponse = operation({
  ...ofResponse,
  method: 'get',
  path: ONE_RESPONSE,
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
  success: streamed,
  handler: async (context: OpenAiContext, call) => (await loadResponses()).getResponse(context, call),
});

const cancelResponse = operation({
  ...ofResponse,
  method: 'post',
  path: `${ONE_RESPONSE}/cancel`,
  operationId: 'cancelOpenAiResponse',
  scope: 'invoke',
  load: 'write',
  summary: 'Cancel a response',
  description: 'On whatever replica it runs; one that is over stays as it is.',
  handler: async (context: OpenAiContext, call) => show((await loadResponses()).cancelResponse(context, call)),
});

const deleteResponse = operation({
  ...ofResponse,
  method: 'delete',
  path: ONE_RESPONSE,
  operationId: 'deleteOpenAiResponse',
  scope: 'write',
  summary: 'Delete a response',
  description: 'With its conversation, where it is all of that.',
  errors: { ...ofResponse.errors, 409: 'Its conversation has others.' },
  handler: async (context: OpenAiContext, call) => show((await loadResponses()).deleteResponse(context, call)),
});

const listInputItems = operation({
  ...ofResponse,
  method: 'get',
  path: `${ONE_RESPONSE}/input_items`,
  operationId: 'listOpenAiInputItems',
  scope: 'read',
  load: 'heavy',
  summary: 'List the input of a response',
  parameters: { path: responsePath, query: paged.query },
  success: paged.page,
  handler: async (context: OpenAiContext, call) => show((await loadResponses()).listInput(context, call)),
});

const createConversation = operation({
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
    headers: doorHeaders.pick({ 'x-openwebui-user-id': true }),
  },
  body: { schema: conversationSchema, required: false, example: { metadata: { topic: 'sums' } } },
  success: ofConversation.success,
  errors: { 404: 'No such application.' },
  handler: async (context: OpenAiContext, call) => {
    const key = { appName: call.query.app_name, userId: toUser(call), sessionId: context.newId() };
    return show((await loadConversations()).createConversation(context, key, call.body ?? {}, call.principal));
  },
});

const getConversation = operation({
  ...ofConversation,
  method: 'get',
  path: ONE_CONVERSATION,
  operationId: 'getOpenAiConversation',
  scope: 'read',
  summary: 'Get a conversation',
  handler: async (context: OpenAiContext, call) => show((await loadConversations()).findConversation(context, call)),
});

const changeConversation = operation({
  ...ofConversation,
  method: 'post',
  path: ONE_CONVERSATION,
  operationId: 'changeOpenAiConversation',
  scope: 'write',
  summary: 'Change a conversation',
  description: 'Replaces its `metadata`.',
  body: { schema: metadataSchema, required: true, example: { metadata: { topic: 'sums' } } },
  handler: async (context: OpenAiContext, call) =>
    show((await loadConversations()).changeConversation(context, call, call.body.metadata)),
});

const deleteConversation = operation({
  ...ofConversation,
  method: 'delete',
  path: ONE_CONVERSATION,
  operationId: 'deleteOpenAiConversation',
  scope: 'write',
  summary: 'Delete a conversation',
  handler: async (context: OpenAiContext, call) => show((await loadConversations()).deleteConversation(context, call)),
});

const listItems = operation({
  ...ofConversation,
  method: 'get',
  path: `${ONE_CONVERSATION}/items`,
  operationId: 'listOpenAiItems',
  scope: 'read',
  load: 'heavy',
  summary: 'List the items of a conversation',
  parameters: { path: conversationPath, query: paged.query },
  success: paged.page,
  handler: async (context: OpenAiContext, call) => show((await loadConversations()).listItems(context, call)),
});

const addItems = operation({
  ...ofConversation,
  method: 'post',
  path: `${ONE_CONVERSATION}/items`,
  operationId: 'addOpenAiItems',
  scope: 'write',
  summary: 'Add items to a conversation',
  description: 'Messages, and calls of own tools with their answers; in the name of the agent: the scope `import`.',
  body: { schema: itemsSchema, required: true, example: { items: [{ role: 'user', content: 'I live in Bern.' }] } },
  success: paged.page,
  handler: async (context: OpenAiContext, call) =>
    show((await loadConversations()).addItems(context, call, call.body.items)),
});

const exampleModel = { id: HARNESS_APP, object: 'model', created: 0, owned_by: 'agent-runtime' };
const models = { ...door, method: 'get', scope: 'read', owner: 'service' } as const;

const listModels = operation({
  ...models,
  path: '/v1/models',
  operationId: 'listOpenAiModels',
  summary: 'List the applications as models',
  success: shown('Those that the credential may use.', { object: 'list', data: [exampleModel] }),
  handler: ({ agents }: OpenAiContext, { principal: { apps } }) => {
    const data = [...agents.keys()].filter((id) => apps?.has(id) ?? true).map((id) => ({ ...exampleModel, id }));
    return show({ object: 'list', data });
  },
});

const getModel = operation({
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
});

const completeChat = operation({
  ...running,
  path: '/v1/chat/completions',
  operationId: 'createOpenAiChatCompletion',
  summary: 'Create a chat completion',
  description:
    'For clients that know nothing else. It runs in the session that `X-Session-Id`, `X-OpenWebUI-Chat-Id` or ' +
    '`metadata.session_id` names, where the messages go on with that; else nothing of it stays.',
  demands: ({ body }) => overrideDemands(toHarness(body)),
  body: {
    schema: chatSchema,
    required: true,
    example: { model: HARNESS_APP, messages: [{ role: 'user', content: 'What is 17 * 23?' }] },
  },
  success: answer({ object: 'chat.completion', choices: [] }, 'data: {"object":"chat.completion.chunk"}\n\n'),
  handler: async (context: OpenAiContext, call) =>
    (await import('./chat.ts')).completeChat(context, { ...call, userId: toUser(call) }),
});

/** The operations of this door. */
export const openAiOperations: Operation<OpenAiContext>[] = [
  createResponse,
  getResponse,
  cancelResponse,
  deleteResponse,
  listInputItems,
  createConversation,
  getConversation,
  changeConversation,
  deleteConversation,
  listItems,
  addItems,
  listModels,
  getModel,
  completeChat,
];
