import { z } from 'zod';
import { HARNESS_APP } from '../../../core/names.ts';
import { bodyText } from '../../../core/members.ts';
import { BUSY_ERRORS, invocationHeaders } from '../../../invocations/request.ts';
import { loadOnce, type Operation, operation } from '../../../platform/http/operation/operation.ts';
import { appPath, idInPath } from '../../../platform/http/operation/parameters.ts';
import { doorOwner, doorQuery } from '../start-turn.ts';
import { refusal, toRestRefusal, toRpcRefusal } from './errors.ts';
import { getParams, listParams } from './params.ts';
import type { A2aContext } from './methods.ts';
import type { Came } from './serve.ts';

const APP = '/a2a/{app_name}';
const TASKS = `${APP}/tasks`;
const TASK = `${TASKS}/{task_id}`;
const PUSHES = `${TASK}/pushNotificationConfigs`;
const CARD = '/.well-known/agent-card.json';

const load = loadOnce(() => import('./serve.ts'));
const loadCard = loadOnce(() => import('./card.ts'));
const serve = (name: string) => async (context: A2aContext, call: Came) =>
  (await load()).serveRest(context, name, call);
const taskPath = appPath.extend({ taskId: idInPath('The task.') });

const task = { id: 'YWdlbnQ.czE.ZS0x', contextId: 's1', status: { state: 'TASK_STATE_COMPLETED' } };
const push = { id: 'c1', taskId: task.id, url: 'https://client.example/told' };
const message = { messageId: 'm1', role: 'ROLE_USER', parts: [{ text: 'What is 17 * 23? Use the calculator.' }] };
const rpc = { jsonrpc: '2.0', id: 1, method: 'SendMessage', params: { message } };
const asJson = (description: string, value: object) => ({
  example: JSON.stringify(value),
  json: { schema: { type: 'object', properties: {}, description }, example: value },
});
const shown = (description: string, value: object) => ({
  ...asJson(description, value),
  schema: z.string(),
  description,
  mediaType: 'application/a2a+json',
});
const streamed = (value: object) => ({
  ...shown('The answer: JSON, or a stream of events.', value),
  mediaType: 'text/event-stream',
  example: `data: ${JSON.stringify(value)}\n\n`,
});
const sent = (value: object) => ({
  ...asJson('What is sent.', value),
  schema: bodyText.describe('What is sent, as JSON.'),
  required: true,
  isText: true as const,
});

/** The members of all operations of HTTP+JSON. */
const rest = { owner: doorOwner, refusal, toRefusal: toRestRefusal } as const;
const reading = { ...rest, method: 'get', scope: 'read' } as const;
const running = {
  ...rest,
  method: 'post',
  scope: 'invoke',
  errors: { 404: 'No such application or task.', ...BUSY_ERRORS },
  parameters: { path: appPath, query: doorQuery, headers: invocationHeaders },
  body: sent({ message }),
} as const;
const ofTask = {
  ...rest,
  parameters: { path: taskPath, query: doorQuery, headers: invocationHeaders.pick({}) },
  errors: { 400: 'It cannot be done with this task.', 404: 'No such task.' },
  success: shown('The task.', task),
};
const ofPush = { ...ofTask, success: shown('The configuration.', push) };
const onePush = {
  ...ofPush,
  path: `${PUSHES}/{config_id}`,
  parameters: { ...ofTask.parameters, path: taskPath.extend({ configId: idInPath('The configuration.') }) },
} as const;

const subscribe = (method: 'get' | 'post') =>
  operation({
    ...ofTask,
    method,
    path: `${TASK}:subscribe`,
    operationId: method === 'get' ? 'subscribeToA2aTask' : 'resubscribeToA2aTask',
    scope: 'read',
    isStream: true,
    summary: 'Follow a task',
    description: 'As it stands, then all that comes, text as it comes; from any replica.',
    success: streamed({ task }),
    handler: serve('SubscribeToTask'),
  });

/** The members of both public cards. */
const card = {
  method: 'get',
  owner: 'open',
  scope: 'none',
  refusal,
  toRefusal: toRestRefusal,
  success: {
    schema: z.looseObject({ name: z.string().describe('The name of the agent.') }).describe('An agent card.'),
    description: 'The card.',
    example: { name: HARNESS_APP },
  },
  bare: { 304: 'It has not changed.' },
  errors: { 400: 'A version that is not spoken here.', 404: 'No such application.' },
} as const;

/** The operations of this door. */
export const a2aOperations: Operation<A2aContext>[] = [
  operation({
    ...running,
    toRefusal: toRpcRefusal,
    path: APP,
    operationId: 'callA2a',
    // What a message turns out to be is counted too: a message to the agent as an invocation.
    load: 'read',
    isStream: true,
    summary: 'Serve an A2A client',
    description:
      'JSON-RPC of A2A 1.0, and of 0.3 for who names that version, or none. A context is a session, a task an ' +
      'invocation, `messageId` the `Idempotency-Key`: the same message again is the same task.',
    body: sent(rpc),
    success: streamed({ jsonrpc: '2.0', id: 1, result: { task } }),
    handler: async (context: A2aContext, call) => (await load()).serveRpc(context, call),
  }),
  operation({
    ...running,
    path: `${APP}/message:send`,
    operationId: 'sendA2aMessage',
    summary: 'Send a message',
    description: 'Waits for the end, or until the agent asks something; not with `configuration.returnImmediately`.',
    success: shown('The task.', { task }),
    handler: serve('SendMessage'),
  }),
  operation({
    ...running,
    path: `${APP}/message:stream`,
    operationId: 'streamA2aMessage',
    isStream: true,
    summary: 'Send a message, and follow its task',
    success: streamed({ task }),
    handler: serve('SendStreamingMessage'),
  }),
  operation({
    ...reading,
    path: TASKS,
    operationId: 'listA2aTasks',
    load: 'heavy',
    summary: 'List tasks',
    description: 'Of the user, with this application; those that changed last first.',
    parameters: { path: appPath, query: doorQuery.extend(listParams.shape) },
    success: shown('A page of tasks.', { tasks: [task], nextPageToken: '', pageSize: 50, totalSize: 1 }),
    handler: serve('ListTasks'),
  }),
  operation({
    ...ofTask,
    ...reading,
    path: TASK,
    operationId: 'getA2aTask',
    load: 'heavy',
    summary: 'Get a task',
    parameters: { path: taskPath, query: doorQuery.extend({ historyLength: getParams.shape.historyLength }) },
    handler: serve('GetTask'),
  }),
  operation({
    ...ofTask,
    method: 'post',
    path: `${TASK}:cancel`,
    operationId: 'cancelA2aTask',
    scope: 'invoke',
    load: 'write',
    summary: 'Cancel a task',
    description: 'On whatever replica it runs; the answer waits a few seconds for the end.',
    handler: serve('CancelTask'),
  }),
  subscribe('get'),
  subscribe('post'),
  operation({
    ...ofPush,
    method: 'post',
    path: PUSHES,
    operationId: 'createA2aPushConfig',
    scope: 'write',
    summary: 'Have an address told of a task',
    description: 'How it ends or what it waits for, sent as webhooks are, with the `token` and the credentials given.',
    body: sent(push),
    handler: serve('CreateTaskPushNotificationConfig'),
  }),
  operation({
    ...ofTask,
    ...reading,
    path: PUSHES,
    operationId: 'listA2aPushConfigs',
    summary: 'List the addresses that are told of a task',
    success: shown('The configurations.', { configs: [push] }),
    handler: serve('ListTaskPushNotificationConfigs'),
  }),
  operation({
    ...onePush,
    ...reading,
    operationId: 'getA2aPushConfig',
    summary: 'Get an address that is told of a task',
    handler: serve('GetTaskPushNotificationConfig'),
  }),
  operation({
    ...onePush,
    method: 'delete',
    operationId: 'deleteA2aPushConfig',
    scope: 'write',
    summary: 'Have an address told of a task no more',
    description: 'What waits is not sent any more.',
    success: shown('An empty object.', {}),
    handler: serve('DeleteTaskPushNotificationConfig'),
  }),
  operation({
    ...reading,
    path: `${APP}/extendedAgentCard`,
    operationId: 'getExtendedA2aCard',
    summary: 'Get the extended agent card',
    description: 'With the skills of the application.',
    parameters: { path: appPath, query: doorQuery },
    success: shown('The card.', { name: HARNESS_APP }),
    handler: serve('GetExtendedAgentCard'),
  }),
  operation({
    ...card,
    path: `${APP}${CARD}`,
    operationId: 'getA2aCard',
    summary: 'Get the agent card of an application',
    description: 'Where and how it is spoken to. Without the header `A2A-Version` clients of 0.3 can read it too.',
    parameters: { path: appPath },
    handler: async (context: A2aContext, call) => (await loadCard()).serveCard(context, call.path.appName, call),
  }),
  operation({
    ...card,
    path: CARD,
    operationId: 'getFirstA2aCard',
    summary: `Get the agent card of ${HARNESS_APP}`,
    handler: async (context: A2aContext, call) => (await loadCard()).serveCard(context, HARNESS_APP, call),
  }),
];
