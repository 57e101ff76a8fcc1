import { z } from 'zod';
import { sessionNotFound } from '../../../core/session.ts';
import { NEXT_CURSOR_HEADER } from '../../../platform/http/operation/cursor.ts';
import type { InvocationContext } from '../../../invocations/context.ts';
import { BUSY_ERRORS, invocationHeaders } from '../../../invocations/wire-request.ts';
import { loadOnce, type Operation, operation } from '../../../platform/http/operation/operation.ts';
import { afterSequence, appPath, appSessionPath, INT32_MAX } from '../../../platform/http/operation/parameters.ts';
import { ACTIONS } from '../actions.ts';
import { doorOwner as owner, doorParameters, doorQuery, toDoorKey } from '../door-user.ts';
import { chatSchema, messageSchema } from './schemas.ts';
import type { Feature } from '../../../platform/feature/feature.ts';

const CHAT_PATH = '/ai-sdk/{app_name}/chat';
const ONE_CHAT = `${CHAT_PATH}/{session_id}`;

const version = z.enum(['5', '6', '7']).default('6');
const query = doorQuery.extend({
  version: version.describe('Major version of the package `ai`: 7 knows chunks that 6 refuses; approvals need 6.'),
});
const chunkNumber = z.int().min(-INT32_MAX).max(INT32_MAX).optional();
const resumeQuery = query.extend({
  startIndex: chunkNumber.describe('Number of the first chunk; negative: counted back from the end.'),
});
const ofChat = { owner, absent: ({ sessionId }: { sessionId: string }) => sessionNotFound(sessionId) };

const exampleMessage = { id: 'm1', role: 'user' as const, parts: [{ type: 'text', text: 'What is 17 * 23?' }] };
const stream = {
  schema: z.string(),
  description: 'Chunks of the UI message stream.',
  example: 'data: {"type":"start","messageId":"e-7d444840-9dc0-11d1-b245-5ffdce74fad2"}\n\n',
  mediaType: 'text/event-stream',
  headers: {
    'X-Workflow-Run-Id': 'What the stream is of; it may stand in place of the id of a chat.',
    'X-Workflow-Stream-Tail-Index': 'Of a negative `startIndex`: number of the last chunk, from 0.',
  },
} as const;

const loadPrompt = loadOnce(() => import('./prompt.ts'));
const loadChat = loadOnce(() => import('./read-chat.ts'));

const sendChat = operation({
  method: 'post',
  path: CHAT_PATH,
  operationId: 'sendAiSdkMessage',
  scope: 'invoke',
  isStream: true,
  summary: 'Send a message of the AI SDK',
  description:
    'For `useChat` with its `DefaultChatTransport`. The last message counts: a prompt of the user, or an answer ' +
    'whose calls the client has decided on or run; they are matched with what the session has stored.',
  parameters: { path: appPath, query, headers: invocationHeaders },
  owner,
  body: { schema: chatSchema, required: true, example: { id: 's1', messages: [exampleMessage] } },
  success: stream,
  errors: { 404: 'No such application, user or invocation.', ...BUSY_ERRORS },
  handler: async (context: InvocationContext, call) => (await loadPrompt()).answerChat(context, call),
});

const resumeChat = operation({
  ...ofChat,
  method: 'get',
  path: `${ONE_CHAT}/stream`,
  operationId: 'streamAiSdkChat',
  ...ACTIONS.read,
  isStream: true,
  summary: 'Resume a stream of the AI SDK',
  description:
    'What runs in a chat from its first chunk, or from `startIndex` on, from any replica: the chunks are the same ' +
    'each time. With `startIndex` the last answer where nothing runs.',
  parameters: { path: appSessionPath, query: resumeQuery },
  success: stream,
  bare: { 204: 'Nothing runs.' },
  errors: { 404: 'No such run.' },
  handler: async (context: InvocationContext, { path, ...call }) => {
    const { findRun, sendRun } = await loadChat();
    const run = await findRun(context, toDoorKey(path, call), call.query.startIndex !== undefined);
    if (run) return sendRun(context, run, call.query, call.response);
    call.response.writeHead(204).end();
    return { kind: 'sent' };
  },
});

const listChatMessages = operation({
  ...ofChat,
  method: 'get',
  path: `${ONE_CHAT}/messages`,
  operationId: 'listAiSdkMessages',
  ...ACTIONS.read,
  summary: 'List the messages of a chat',
  description:
    'As `useChat` takes them, oldest first: what streaming built. A page ends between invocations; the header ' +
    `\`${NEXT_CURSOR_HEADER}\` is the \`afterSequence\` of the next one.`,
  parameters: { path: appSessionPath, query: query.extend({ afterSequence: afterSequence.default(0) }) },
  success: { schema: z.array(messageSchema), description: 'The messages.', example: [exampleMessage] },
  errors: { 404: 'No such session.', 413: 'An invocation is too large for a message.' },
  handler: async ({ database }: InvocationContext, { path, ...call }) => {
    const [{ listMessages }, { parseRunId }] = await Promise.all([import('./messages.ts'), loadChat()]);
    const named = toDoorKey(path, call);
    const key = parseRunId(named, path.sessionId)?.key ?? named;
    const page = await listMessages(database.reads, key, call.query.afterSequence, call.query.version);
    if (!page) throw call.notFound();
    if (page.next !== undefined) call.response.setHeader(NEXT_CURSOR_HEADER, page.next);
    return { kind: 'value', value: page.messages };
  },
});

const stopChat = operation({
  ...ofChat,
  method: 'post',
  path: `${ONE_CHAT}/stop`,
  operationId: 'stopAiSdkChat',
  ...ACTIONS.cancel,
  summary: 'Stop what runs in a chat',
  description: "The SDK's own `stop()` only leaves the stream.",
  parameters: { path: appSessionPath, query: doorQuery },
  success: {
    schema: z.looseObject({ stopped: z.boolean().describe('False where nothing ran.') }).describe('Whether it ran.'),
    description: 'It stops, or nothing ran.',
    example: { stopped: true },
  },
  errors: { 404: 'No such run.' },
  handler: async (context: InvocationContext, { path, ...call }) => {
    const { findRun, stopRun } = await loadChat();
    const run = await findRun(context, toDoorKey(path, call));
    const stopped = run !== undefined && (await stopRun(context, run));
    return { kind: 'value', value: { stopped } };
  },
});

const operations: Operation<InvocationContext>[] = [sendChat, resumeChat, listChatMessages, stopChat];

export const aiSdkDoor = {
  name: 'ai-sdk',
  door: 'AI SDK',
  operations,
  parameters: doorParameters,
} satisfies Feature<InvocationContext>;
