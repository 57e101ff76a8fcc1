import { z } from 'zod';
import { identifierSchema } from '../../../core/session.ts';
import { type Operation, operation } from '../../../platform/http/operation/operation.ts';
import { idInPath } from '../../../platform/http/operation/parameters.ts';
import { doorQuery } from '../start-turn.ts';
import {
  about,
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
import { parseConversationId } from './ids.ts';
import { conversationSchema, itemsSchema, metadataSchema } from './schemas.ts';
import type { OpenAiContext } from './start.ts';

const CONVERSATIONS = '/v1/conversations';
const ONE_CONVERSATION = `${CONVERSATIONS}/{conversation_id}`;
const ITEMS = `${ONE_CONVERSATION}/items`;

const path = z.object({ conversationId: idInPath('The conversation.') });
const ofConversation = about('conversationId', 'Conversation', parseConversationId);
const success = shown('The conversation.', {
  id: 'conv_WyJo',
  object: 'conversation',
  created_at: 1_795_200_809,
  metadata: {},
});
const load = () => import('./conversations.ts');

/** The operations of conversations, which are sessions. */
export const conversationOperations: Operation<OpenAiContext>[] = [
  operation({
    ...door,
    method: 'post',
    path: CONVERSATIONS,
    operationId: 'createOpenAiConversation',
    scope: 'write',
    summary: 'Create a conversation',
    description: 'A session of the application `app_name`; `metadata` are its labels.',
    owner: { ...beginner, app: ({ query }: { query: { app_name: string } }) => query.app_name },
    parameters: {
      query: doorQuery.extend({ app_name: identifierSchema.default(EXAMPLE_APP).describe('The application.') }),
      headers: doorHeaders.pick({ 'x-openwebui-user-id': true }),
    },
    body: { schema: conversationSchema, required: false, example: { metadata: { topic: 'sums' } } },
    success,
    errors: { 404: 'No such application.' },
    handler: async (context: OpenAiContext, call) => {
      const key = { appName: call.query.app_name, userId: toUser(call), sessionId: context.newId() };
      return show((await load()).createConversation(context, key, call.body ?? {}, call.principal));
    },
  }),
  operation({
    ...ofConversation,
    method: 'get',
    path: ONE_CONVERSATION,
    operationId: 'getOpenAiConversation',
    scope: 'read',
    summary: 'Get a conversation',
    parameters: { path },
    success,
    handler: async (context: OpenAiContext, call) => show((await load()).findConversation(context, call)),
  }),
  operation({
    ...ofConversation,
    method: 'post',
    path: ONE_CONVERSATION,
    operationId: 'changeOpenAiConversation',
    scope: 'write',
    summary: 'Change a conversation',
    description: 'Replaces its `metadata`.',
    parameters: { path },
    body: { schema: metadataSchema, required: true, example: { metadata: { topic: 'sums' } } },
    success,
    handler: async (context: OpenAiContext, call) =>
      show((await load()).changeConversation(context, call, call.body.metadata)),
  }),
  operation({
    ...ofConversation,
    method: 'delete',
    path: ONE_CONVERSATION,
    operationId: 'deleteOpenAiConversation',
    scope: 'write',
    summary: 'Delete a conversation',
    parameters: { path },
    success,
    handler: async (context: OpenAiContext, call) => show((await load()).deleteConversation(context, call)),
  }),
  operation({
    ...ofConversation,
    method: 'get',
    path: ITEMS,
    operationId: 'listOpenAiItems',
    scope: 'read',
    load: 'heavy',
    summary: 'List the items of a conversation',
    parameters: { path, query: pageQuery },
    success: shownList,
    handler: async (context: OpenAiContext, call) => show((await load()).listItems(context, call)),
  }),
  operation({
    ...ofConversation,
    method: 'post',
    path: ITEMS,
    operationId: 'addOpenAiItems',
    scope: 'write',
    summary: 'Add items to a conversation',
    description: 'Messages, and calls of own tools with their answers; in the name of the agent: the scope `import`.',
    parameters: { path },
    body: { schema: itemsSchema, required: true, example: { items: [{ role: 'user', content: 'I live in Bern.' }] } },
    success: shownList,
    handler: async (context: OpenAiContext, call) => show((await load()).addItems(context, call, call.body.items)),
  }),
  operation({
    ...ofConversation,
    method: 'get',
    path: `${ITEMS}/{item_id}`,
    operationId: 'getOpenAiItem',
    scope: 'read',
    load: 'heavy',
    summary: 'Get an item of a conversation',
    parameters: { path: path.extend({ itemId: idInPath('The item.') }) },
    success: shown('The item.', { id: 'msg_1', type: 'message' }),
    handler: async (context: OpenAiContext, call) => show((await load()).findItem(context, call)),
  }),
];
