import { z } from 'zod';
import { jsonObject } from '../../../core/content.ts';
import { HARNESS_APP } from '../../../core/names.ts';
import { identifierSchema } from '../../../core/session.ts';
import { BUSY_ERRORS } from '../../../invocations/wire-request.ts';
import { overrideDemands } from '../../../platform/http/operation/demands.ts';
import { loadOnce, type Operation, operation } from '../../../platform/http/operation/operation.ts';
import { idInPath } from '../../../platform/http/operation/parameters.ts';
import type { Principal } from '../../../platform/http/operation/principal.ts';
import { doorQuery, toDoorUser } from '../door-user.ts';
import { openAiErrorSchema, toRefusal } from './errors.ts';
import { parseId } from './ids.ts';
import * as schemas from './schemas.ts';
import type { OpenAiContext } from './start.ts';
import type { Feature } from '../../../platform/feature/feature.ts';

const chat = loadOnce(() => import('./chat.ts'));
const conversations = loadOnce(() => import('./conversations.ts'));
const responses = loadOnce(() => import('./responses.ts'));

const door = (method: Operation['method'], scope: Operation['scope'], operationId: string, summary: string) => ({
  method,
  scope,
  operationId,
  summary,
  toRefusal,
  refusal: { $ref: '#/components/schemas/OpenAiError' },
});
const run = (operationId: string, summary: string) =>
  ({
    ...door('post', 'invoke', operationId, summary),
    isStream: true,
    owner: { ...named, app: ({ body }: { body: { model: string } }) => body.model },
    parameters: { query: doorQuery, headers: schemas.doorHeaders },
    demands: ({ body }: { body: schemas.CreateResponse | schemas.ChatRequest }) =>
      overrideDemands(schemas.toOverrides(body)),
    errors: { 404: 'No such application, response or conversation.', ...BUSY_ERRORS },
  }) as const;

/** A request that starts a run or creates a conversation, with the three places at which it may name its user. */
interface Sent {
  query: z.output<typeof doorQuery>;
  headers: { 'x-openwebui-user-id'?: string | undefined };
  body?: { user?: string | null | undefined } | undefined;
}
const toNamed = ({ query, headers, body }: Sent) =>
  query.user_id ?? headers['x-openwebui-user-id'] ?? body?.user ?? undefined;
const named = {
  user: (sent: Sent) => toNamed(sent) as string,
  absent: (sent: Sent) => `User not found: ${toNamed(sent)}`,
};
const withUser = <Call extends Sent & { principal: Principal }>(call: Call) => ({
  ...call,
  userId: toDoorUser(call.principal, toNamed(call)),
});

/** Describes a JSON response whose structure OpenAI defines. */
const shown = (description: string, example: Record<string, unknown>) => ({
  schema: jsonObject.describe(description),
  description,
  example,
});
/** Describes a response that is JSON, or a stream of events if the request has `stream: true`. */
const streamed = (example: object, event: string) => ({
  schema: z.string(),
  description: 'The answer: JSON, or a stream of events where `stream` is true.',
  example: event,
  mediaType: 'text/event-stream',
  json: { schema: { type: 'object', properties: {}, description: 'The whole answer.' }, example },
});
const show = async (found: Promise<object> | object) => ({ kind: 'value' as const, value: await found });

/** Options of operations on one response or conversation. Its id contains the owner; an invalid id gets 404. */
const about = <Name extends string>(name: Name, what: string, kind: 'resp_' | 'conv_', example: { id: string }) => {
  type Path = Record<Name, string>;
  const absent = (path: Path) => `${what} not found: ${path[name]}`;
  const owner = {
    user: ({ path }: { path: Path }) => parseId(kind, path[name])?.key.userId as string,
    app: ({ path }: { path: Path }) => parseId(kind, path[name])?.key.appName as string,
    absent: ({ path }: { path: Path }) => absent(path),
  };
  const id = { [name]: idInPath(`The id of the ${what.toLowerCase()}.`) };
  const path = z.object(id as Record<Name, ReturnType<typeof idInPath>>);
  return {
    owner,
    absent,
    errors: { 404: `${what} not found.` },
    parameters: { path },
    success: shown(`${what}.`, example),
  };
};

const prompt = 'What is 17 * 23?';
const page = shown('A page of items.', { object: 'list', data: [], first_id: null, last_id: null, has_more: false });
const exampleResponse = { id: 'resp_czE', object: 'response', status: 'completed', model: HARNESS_APP, output: [] };
const someResponse = streamed(exampleResponse, 'event: response.created\ndata: {"type":"response.created"}\n\n');
const ofResponse = {
  path: '/v1/responses/{response_id}',
  ...about('responseId', 'Response', 'resp_', exampleResponse),
};
const metadata = { topic: 'sums' };
const exampleConversation = { id: 'conv_czE', object: 'conversation', created_at: 1_795_200_809, metadata };
const ofConversation = {
  path: '/v1/conversations/{conversation_id}',
  ...about('conversationId', 'Conversation', 'conv_', exampleConversation),
};
const exampleModel = { id: HARNESS_APP, object: 'model', created: 0, owned_by: 'agent-runtime' };

const operations: Operation<OpenAiContext>[] = [
  operation({
    ...run('createOpenAiResponse', 'Create a response'),
    path: '/v1/responses',
    description:
      'As the Responses API: `model` is an application, a conversation a session, a response an invocation, which ' +
      'outlives its process. Tools of the agent come as `mcp_call`, confirmations as `mcp_approval_request`.',
    body: { schema: schemas.createResponseSchema, required: true, example: { model: HARNESS_APP, input: prompt } },
    success: someResponse,
    handler: async (context: OpenAiContext, call) => (await responses()).createResponse(context, withUser(call)),
  }),
  operation({
    ...door('get', 'read', 'getOpenAiResponse', 'Get a response'),
    ...ofResponse,
    load: 'heavy',
    isStream: true,
    description:
      'As it stands, or as a stream: events and their numbers are the same each time, and never expire. Behind a ' +
      'number of text that was taken back comes the event `error`: it is read from its beginning.',
    parameters: { ...ofResponse.parameters, query: schemas.responseQuery },
    success: someResponse,
    handler: async (context: OpenAiContext, call) => (await responses()).getResponse(context, call),
  }),
  operation({
    ...door('post', 'invoke', 'cancelOpenAiResponse', 'Cancel a response'),
    ...ofResponse,
    path: `${ofResponse.path}/cancel`,
    load: 'write',
    description: 'On whatever replica it runs; one that is over stays as it is. The answer says how it stands.',
    handler: async (context: OpenAiContext, call) => (await responses()).cancelResponse(context, call),
  }),
  operation({
    ...door('delete', 'write', 'deleteOpenAiResponse', 'Delete a response'),
    ...ofResponse,
    description: 'With its conversation, where it is all of that.',
    errors: { ...ofResponse.errors, 409: 'Its conversation has others.' },
    handler: async (context: OpenAiContext, call) => show((await responses()).deleteResponse(context, call)),
  }),
  operation({
    ...door('get', 'read', 'listOpenAiInputItems', 'List the input of a response'),
    ...ofResponse,
    path: `${ofResponse.path}/input_items`,
    load: 'heavy',
    parameters: { ...ofResponse.parameters, query: schemas.pageQuery },
    success: page,
    handler: async (context: OpenAiContext, call) => show((await responses()).listInput(context, call)),
  }),
  operation({
    ...door('post', 'write', 'createOpenAiConversation', 'Create a conversation'),
    path: '/v1/conversations',
    description: 'A session of the application `app_name`; `metadata` are its labels.',
    owner: { ...named, app: ({ query }: { query: { app_name: string } }) => query.app_name },
    parameters: {
      query: doorQuery.extend({ app_name: identifierSchema.default(HARNESS_APP).describe('The application.') }),
      headers: schemas.doorHeaders.pick({ 'x-openwebui-user-id': true }),
    },
    body: { schema: schemas.conversationSchema, required: false, example: { metadata } },
    success: ofConversation.success,
    errors: { 404: 'No such application.' },
    handler: async (context: OpenAiContext, call) =>
      show((await conversations()).createConversation(context, withUser(call))),
  }),
  operation({
    ...door('get', 'read', 'getOpenAiConversation', 'Get a conversation'),
    ...ofConversation,
    handler: async (context: OpenAiContext, call) => show((await conversations()).findConversation(context, call)),
  }),
  operation({
    ...door('post', 'write', 'changeOpenAiConversation', 'Change a conversation'),
    ...ofConversation,
    description: 'Replaces its `metadata`.',
    body: { schema: schemas.metadataSchema, required: true, example: { metadata } },
    handler: async (context: OpenAiContext, call) => show((await conversations()).changeConversation(context, call)),
  }),
  operation({
    ...door('delete', 'write', 'deleteOpenAiConversation', 'Delete a conversation'),
    ...ofConversation,
    handler: async (context: OpenAiContext, call) => show((await conversations()).deleteConversation(context, call)),
  }),
  operation({
    ...door('get', 'read', 'listOpenAiItems', 'List the items of a conversation'),
    ...ofConversation,
    path: `${ofConversation.path}/items`,
    load: 'heavy',
    parameters: { ...ofConversation.parameters, query: schemas.pageQuery },
    success: page,
    handler: async (context: OpenAiContext, call) => show((await conversations()).listItems(context, call)),
  }),
  operation({
    ...door('post', 'write', 'addOpenAiItems', 'Add items to a conversation'),
    ...ofConversation,
    path: `${ofConversation.path}/items`,
    description: 'Messages, and calls of own tools with their answers; in the name of the agent: the scope `import`.',
    body: { schema: schemas.itemsSchema, required: true, example: { items: [{ role: 'user', content: prompt }] } },
    success: page,
    handler: async (context: OpenAiContext, call) => show((await conversations()).addItems(context, call)),
  }),
  operation({
    ...door('get', 'read', 'listOpenAiModels', 'List the applications as models'),
    path: '/v1/models',
    owner: 'service',
    success: shown('Those that the credential may use.', { object: 'list', data: [exampleModel] }),
    handler: ({ agents }: OpenAiContext, { principal: { apps } }) => {
      const data = [...agents.keys()].filter((id) => apps?.has(id) ?? true).map((id) => ({ ...exampleModel, id }));
      return show({ object: 'list', data });
    },
  }),
  operation({
    ...door('get', 'read', 'getOpenAiModel', 'Get an application as a model'),
    path: '/v1/models/{app_name}',
    owner: 'service',
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
    ...run('createOpenAiChatCompletion', 'Create a chat completion'),
    path: '/v1/chat/completions',
    description:
      'For clients that know nothing else. It runs in the session that `X-Session-Id`, `X-OpenWebUI-Chat-Id` or ' +
      '`metadata.session_id` names, where the messages go on with that; else nothing of it stays.',
    body: {
      schema: schemas.chatSchema,
      required: true,
      example: { model: HARNESS_APP, messages: [{ role: 'user', content: prompt }] },
    },
    success: streamed({ object: 'chat.completion', choices: [] }, 'data: {"object":"chat.completion.chunk"}\n\n'),
    handler: async (context: OpenAiContext, call) => (await chat()).completeChat(context, withUser(call)),
  }),
];

export const openAiDoor = {
  name: 'openai',
  door: 'OpenAI',
  operations,
  schemas: { OpenAiError: openAiErrorSchema },
} satisfies Feature<OpenAiContext>;
