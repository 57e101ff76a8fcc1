import { z } from 'zod';
import { HARNESS_APP } from '../../../core/names.ts';
import { bodyText } from '../../../core/members.ts';
import { BUSY_ERRORS, invocationHeaders } from '../../../invocations/wire-request.ts';
import { type Call, loadOnce, type Operation, operation } from '../../../platform/http/operation/operation.ts';
import { appPath, idInPath } from '../../../platform/http/operation/parameters.ts';
import { A2A_ACTIONS, type A2aMethod, ACTIONS } from '../actions.ts';
import { doorOwner, doorParameters, doorQuery } from '../door-user.ts';
import { refusal, toRefusal } from './errors.ts';
import { getParams, listParams } from './params.ts';
import type { A2aContext } from './methods.ts';
import { A2A_SETTINGS, checkSigning } from './settings.ts';
import type { Feature } from '../../../platform/feature/feature.ts';

const APP = '/a2a/{app_name}';
const TASK = '/tasks/{task_id}';
const PUSHES = `${TASK}/pushNotificationConfigs`;
const PUSH = `${PUSHES}/{config_id}`;
const CARD = '/.well-known/agent-card.json';

const load = loadOnce(() => import('./serve.ts'));
const loadCard = loadOnce(() => import('./card.ts'));

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

const running = {
  method: 'post',
  scope: 'invoke',
  owner: doorOwner,
  refusal,
  toRefusal,
  errors: { 404: 'No such application or task.', ...BUSY_ERRORS },
  parameters: { path: appPath, query: doorQuery, headers: invocationHeaders },
  body: sent({ message }),
} as const;
const inTask = appPath.extend({ taskId: idInPath('The task.') });
const ofPush = { success: shown('The configuration.', push) };
const onePush = {
  ...ofPush,
  parameters: { path: inTask.extend({ configId: idInPath('The configuration.') }), query: doorQuery },
};
const following = {
  isStream: true,
  description: 'As it stands, then all that comes, text as it comes; from any replica.',
  success: streamed({ task }),
} as const;
const { historyLength } = getParams.shape;

/** Declares a method over HTTP+JSON, by default about one task. */
function rest(
  name: A2aMethod,
  address: string,
  operationId: string,
  summary: string,
  more: Partial<Operation>,
): Operation<A2aContext> {
  const action = ACTIONS[A2A_ACTIONS[name]];
  return {
    method: action.scope === 'read' ? 'get' : name.startsWith('Delete') ? 'delete' : 'post',
    ...action,
    owner: doorOwner,
    refusal,
    toRefusal,
    path: `${APP}${address}`,
    operationId,
    summary,
    parameters: { path: inTask, query: doorQuery },
    errors: { 400: 'It cannot be done with this task.', 404: 'No such task.' },
    success: shown('The task.', task),
    ...more,
    handler: async (context, call) => (await load()).serveRest(context, name, call),
  };
}

const card = (path: string, operationId: string, more: Pick<Operation, 'summary'> & Partial<Operation>) => ({
  method: 'get' as const,
  owner: 'open' as const,
  scope: 'none' as const,
  path,
  operationId,
  refusal,
  toRefusal,
  success: {
    schema: z.looseObject({ name: z.string().describe('The name of the agent.') }).describe('An agent card.'),
    description: 'The card.',
    example: { name: HARNESS_APP },
  },
  bare: { 304: 'It has not changed.' },
  errors: { 400: 'A version that is not spoken here.', 404: 'No such application.' },
  ...more,
  handler: async (context: A2aContext, call: Call<{ appName?: string }, never, never, never>) =>
    (await loadCard()).serveCard(context, call.path.appName ?? HARNESS_APP, call),
});

const operations: Operation<A2aContext>[] = [
  operation({
    ...running,
    path: APP,
    operationId: 'callA2a',
    // A request is charged as a small read; when the JSON-RPC method is known, its rate limit is charged too.
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
  rest('SendMessage', '/message:send', 'sendA2aMessage', 'Send a message', {
    ...running,
    description: 'Waits for the end, or until the agent asks something; not with `configuration.returnImmediately`.',
    success: shown('The task.', { task }),
  }),
  rest('SendStreamingMessage', '/message:stream', 'streamA2aMessage', 'Send a message, and follow its task', {
    ...running,
    isStream: true,
    success: streamed({ task }),
  }),
  rest('ListTasks', '/tasks', 'listA2aTasks', 'List tasks', {
    description: 'Of the user, with this application; those that changed last first.',
    parameters: { path: appPath, query: doorQuery.extend(listParams.shape) },
    errors: {},
    success: shown('A page of tasks.', { tasks: [task], nextPageToken: '', pageSize: 50, totalSize: 1 }),
  }),
  rest('GetTask', TASK, 'getA2aTask', 'Get a task', {
    parameters: { path: inTask, query: doorQuery.extend({ historyLength }) },
  }),
  rest('CancelTask', `${TASK}:cancel`, 'cancelA2aTask', 'Cancel a task', {
    description:
      'On whatever replica it runs; the answer waits a few seconds for the end. It says how the task stands.',
  }),
  rest('SubscribeToTask', `${TASK}:subscribe`, 'subscribeToA2aTask', 'Follow a task', following),
  rest('SubscribeToTask', `${TASK}:subscribe`, 'resubscribeToA2aTask', 'Follow a task', {
    ...following,
    method: 'post',
  }),
  rest('CreateTaskPushNotificationConfig', PUSHES, 'createA2aPushConfig', 'Have an address told of a task', {
    ...ofPush,
    description: 'How it ends or what it waits for, sent as webhooks are, with the `token` and the credentials given.',
    body: sent(push),
  }),
  rest('ListTaskPushNotificationConfigs', PUSHES, 'listA2aPushConfigs', 'List the addresses that are told of a task', {
    success: shown('The configurations.', { configs: [push] }),
  }),
  rest('GetTaskPushNotificationConfig', PUSH, 'getA2aPushConfig', 'Get an address that is told of a task', onePush),
  rest('DeleteTaskPushNotificationConfig', PUSH, 'deleteA2aPushConfig', 'Have an address told of a task no more', {
    ...onePush,
    description: 'What waits is not sent any more.',
    success: shown('An empty object.', {}),
  }),
  rest('GetExtendedAgentCard', '/extendedAgentCard', 'getExtendedA2aCard', 'Get the extended agent card', {
    description: 'With the skills of the application.',
    parameters: { path: appPath, query: doorQuery },
    errors: {},
    success: shown('The card.', { name: HARNESS_APP }),
  }),
  card(`${APP}${CARD}`, 'getA2aCard', {
    summary: 'Get the agent card of an application',
    description: 'Where and how it is spoken to. Without the header `A2A-Version` clients of 0.3 can read it too.',
    parameters: { path: appPath },
  }),
  card(CARD, 'getFirstA2aCard', { summary: `Get the agent card of ${HARNESS_APP}` }),
];

export const a2aDoor = {
  name: 'a2a',
  door: 'A2A',
  settings: { Doors: A2A_SETTINGS },
  checkSettings: checkSigning,
  operations,
  parameters: doorParameters,
} satisfies Feature<A2aContext>;
