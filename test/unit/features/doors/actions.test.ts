import { expect, test } from 'vitest';
import { A2A_ACTIONS, ACTIONS, MCP_ACTIONS } from '../../../../src/features/doors/actions.ts';
import { loadFor } from '../../../../src/platform/http/operation/operation.ts';
import { listAllOperations } from '../../../../src/process/app.ts';

/** What a call of a door does decides its scope and its class, whatever way it came. */

/** The operations of all doors, and those of our own that do the same, by what they do. */
const OPERATIONS: Record<keyof typeof ACTIONS, string> = {
  run:
    'sendA2aMessage streamA2aMessage sendAiSdkMessage runAgUi createOpenAiResponse createOpenAiChatCompletion ' +
    'runAgent runAgentSse invokeLegacy harnessInvoke startInvocation',
  cancel: 'cancelA2aTask stopAiSdkChat cancelOpenAiResponse cancelInvocation',
  // What a message turns out to be is counted beside it.
  offer: 'callA2a callMcp callMcpApp',
  look:
    'getExtendedA2aCard listA2aPushConfigs getA2aPushConfig getOpenAiConversation listOpenAiModels getOpenAiModel ' +
    'getInvocation getSessionLabels',
  read:
    'listA2aTasks getA2aTask subscribeToA2aTask resubscribeToA2aTask streamAiSdkChat listAiSdkMessages connectAgUi ' +
    'streamAgUi getOpenAiResponse listOpenAiInputItems listOpenAiItems getSession listEvents listArtifacts loadArtifact',
  change:
    'createA2aPushConfig deleteA2aPushConfig deleteOpenAiResponse createOpenAiConversation changeOpenAiConversation ' +
    'deleteOpenAiConversation addOpenAiItems createSession appendEvent createWebhook',
};
/** A page of theirs is counted as `read` beside it; what follows reads small pages as fast as its client. */
const FOLLOWED = 'readSessionStream readInvocationStream';
/** Operations that do what a method does. */
const SAME: Record<string, string> = {
  SendMessage: 'sendA2aMessage',
  SendStreamingMessage: 'streamA2aMessage',
  GetTask: 'getA2aTask',
  ListTasks: 'listA2aTasks',
  CancelTask: 'cancelA2aTask',
  SubscribeToTask: 'resubscribeToA2aTask',
  CreateTaskPushNotificationConfig: 'createA2aPushConfig',
  GetTaskPushNotificationConfig: 'getA2aPushConfig',
  ListTaskPushNotificationConfigs: 'listA2aPushConfigs',
  DeleteTaskPushNotificationConfig: 'deleteA2aPushConfig',
  GetExtendedAgentCard: 'getExtendedA2aCard',
  'tools/list': 'callMcp',
  'tools/call': 'runAgent',
  'resources/list': 'listArtifacts',
  'resources/read': 'loadArtifact',
  'resources/templates/list': 'listApps',
  'prompts/list': 'getAppInfo',
  'prompts/get': 'getAppInfo',
  'tasks/get': 'getA2aTask',
  'tasks/update': 'runAgent',
  'tasks/cancel': 'cancelInvocation',
};

const operations = listAllOperations();
const find = (id: string) => operations.find(({ operationId }) => operationId === id);
const toAction = (id: string) => {
  const found = find(id);
  return [id, found?.scope, found && loadFor(found)];
};

test('each operation of a door needs and counts as what it does, as our own that do the same', () => {
  const expected = Object.entries(OPERATIONS).flatMap(([action, ids]) => {
    const { scope, load } = ACTIONS[action as keyof typeof ACTIONS];
    return ids.split(' ').map((id) => [id, scope, load]);
  });
  expect(expected.map(([id]) => toAction(id as string))).toEqual(expected);
  const inDoors = operations
    .filter(
      ({ area, path, owner }) =>
        area === 'Compatibility endpoints' && /^\/(?:a2a|ai-sdk|ag-ui|mcp|v1|durable)/.test(path) && owner !== 'open',
    )
    .map(({ operationId }) => operationId);
  const listed = new Set([...Object.values(OPERATIONS), FOLLOWED].flatMap((ids) => ids.split(' ')));
  expect(inDoors.filter((id) => !listed.has(id))).toEqual([]);
});

test.each(Object.entries({ ...A2A_ACTIONS, ...MCP_ACTIONS }))('%s is %s, as elsewhere', (method, action) => {
  const { scope, load } = ACTIONS[action];
  expect(toAction(SAME[method] ?? '').slice(1)).toEqual([scope, load]);
});
