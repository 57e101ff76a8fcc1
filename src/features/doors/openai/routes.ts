import { z } from 'zod';
import { identifierSchema } from '../../../core/session.ts';
import { BUSY_ERRORS } from '../../../invocations/request.ts';
import { overrideDemands } from '../../../platform/http/operation/demands.ts';
import { type Operation, operation } from '../../../platform/http/operation/operation.ts';
import { idInPath } from '../../../platform/http/operation/parameters.ts';
import { doorQuery } from '../start-turn.ts';
import { conversationOperations } from './conversation-routes.ts';
import {
  about,
  answer,
  beginner,
  door,
  doorHeaders,
  EXAMPLE_APP,
  pageQuery,
  shown,
  shownList,
  toUser,
  show,
} from './declare.ts';
import { parseResponseId } from './ids.ts';
import { chatSchema, createResponseSchema } from './schemas.ts';
import { type OpenAiContext, toHarness } from './start.ts';

const RESPONSES = '/v1/responses';
const ONE_RESPONSE = `${RESPONSES}/{response_id}`;

const responsePath = z.object({ responseId: idInPath('The response.') });
const ofResponse = about('responseId', 'Response', (id) => parseResponseId(id)?.key);
const load = () => import('./responses.ts');
const exampleResponse = { id: 'resp_WyJo', object: 'response', status: 'completed', model: EXAMPLE_APP, output: [] };
const response = shown('The response.', exampleResponse);
const streamed = answer(exampleResponse, 'event: response.created\ndata: {"type":"response.created"}\n\n');

/** The members of operations that run an agent. */
const running = {
  ...door,
  method: 'post',
  scope: 'invoke',
  isStream: true,
  owner: { ...beginner, app: ({ body }: { body: { model: string } }) => body.model },
  errors: { 404: 'No such application, response or conversation.', ...BUSY_ERRORS },
} as const;

const createResponse = operation({
  ...running,
  path: RESPONSES,
  operationId: 'createOpenAiResponse',
  summary: 'Create a response',
  description:
    'As the Responses API: `model` is an application, a conversation a session, a response an invocation, which ' +
    'outlives its process. Tools of the agent come as `mcp_call`, confirmations as `mcp_approval_request`.',
  demands: ({ body }) => overrideDemands(toHarness(body)),
  parameters: { query: doorQuery, headers: doorHeaders },
  body: {
    schema: createResponseSchema,
    required: true,
    example: { model: EXAMPLE_APP, input: 'What is 17 * 23? Use the calculator.' },
  },
  success: streamed,
  handler: async (context: OpenAiContext, call) =>
    (await load()).createResponse(context, { ...call, userId: toUser(call) }),
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
  handler: async (context: OpenAiContext, call) => (await load()).getResponse(context, call),
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
  parameters: { path: responsePath },
  success: response,
  handler: async (context: OpenAiContext, call) => show((await load()).cancelResponse(context, call)),
});

const deleteResponse = operation({
  ...ofResponse,
  method: 'delete',
  path: ONE_RESPONSE,
  operationId: 'deleteOpenAiResponse',
  scope: 'write',
  summary: 'Delete a response',
  description: 'With its conversation, where it is all of that.',
  parameters: { path: responsePath },
  success: response,
  errors: { 404: 'No such response.', 409: 'Its conversation has others.' },
  handler: async (context: OpenAiContext, call) => show((await load()).deleteResponse(context, call)),
});

const listInputItems = operation({
  ...ofResponse,
  method: 'get',
  path: `${ONE_RESPONSE}/input_items`,
  operationId: 'listOpenAiInputItems',
  scope: 'read',
  load: 'heavy',
  summary: 'List the input of a response',
  parameters: { path: responsePath, query: pageQuery },
  success: shownList,
  handler: async (context: OpenAiContext, call) => show((await load()).listInput(context, call)),
});

const exampleModel = { id: EXAMPLE_APP, object: 'model', created: 0, owned_by: 'agent-runtime' };
const models = { ...door, method: 'get', scope: 'read', owner: 'service' } as const;

const listModels = operation({
  ...models,
  path: '/v1/models',
  operationId: 'listOpenAiModels',
  summary: 'List the applications as models',
  success: shown('Those that the credential may use.', { object: 'list', data: [exampleModel] }),
  handler: ({ agents }: OpenAiContext, { principal: { apps } }) => {
    const data = [...agents.keys()].filter((id) => apps?.has(id) ?? true).map((id) => ({ ...exampleModel, id }));
    return show(Promise.resolve({ object: 'list', data }));
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
    return show(Promise.resolve({ ...exampleModel, id }));
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
  parameters: { query: doorQuery, headers: doorHeaders },
  body: {
    schema: chatSchema,
    required: true,
    example: { model: EXAMPLE_APP, messages: [{ role: 'user', content: 'What is 17 * 23?' }] },
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
  ...conversationOperations,
  listModels,
  getModel,
  completeChat,
];
