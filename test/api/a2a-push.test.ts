import { Message, type Task } from '@a2a-js/sdk';
import { ClientFactory, ClientFactoryOptions } from '@a2a-js/sdk/client';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { getFunctionResponses } from '../../src/core/content.ts';
import { hostAgent } from '../support/agents.ts';
import { startApp, startOn, type TestApp } from '../support/app.ts';
import { callPart, scriptedModel } from '../support/scripted-model.ts';
import { type Receiver, startReceiver } from '../support/webhook-receiver.ts';

/** Push notifications of A2A: the official client against two replicas of the service, and a receiver. */

const model = scriptedModel([
  ({ contents }) =>
    getFunctionResponses(contents.at(-1)).length > 0 ? [{ text: 'Thanks.' }] : [callPart('ask', { city: 'Bern' })],
]);
const ask = {
  name: 'ask',
  description: '',
  parameters: { type: 'object' },
  needsConfirmation: false,
  longRunning: true,
  run: () => Promise.resolve(undefined),
};
const APP = '/a2a/harness_agent';
const CARD = `${APP}/.well-known/agent-card.json`;
let app: TestApp;
let other: Awaited<ReturnType<typeof startOn>>;
let receiver: Receiver;
beforeAll(async () => {
  receiver = await startReceiver();
  const settings = { DOORS: 'a2a', WEBHOOKS: 'true', WEBHOOKS_ALLOWED_HOSTS: receiver.origin };
  const agents = hostAgent(model, [ask]);
  app = await startApp(settings, { agents });
  other = await startOn(app.databaseUrl, settings, { agents });
});
afterAll(async () => {
  await other.close();
  await app.close();
  await receiver.close();
});

const BINDINGS = ['JSONRPC', 'HTTP+JSON'] as const;
const connect = (url: string, binding: (typeof BINDINGS)[number]) =>
  new ClientFactory(
    ClientFactoryOptions.createFrom(ClientFactoryOptions.default, { preferredTransports: [binding] }),
  ).createFromUrl(url, CARD);
const say = (text: string, more: object = {}) => ({
  tenant: '',
  message: Message.fromJSON({ messageId: crypto.randomUUID(), role: 'ROLE_USER', parts: [{ text }], ...more }),
  configuration: undefined,
  metadata: undefined,
});

test.each(BINDINGS)('%s: an address is told what becomes of a task, by any replica', async (binding) => {
  const client = await connect(app.url, binding);
  const path = `/${binding.slice(0, 4)}`;
  const authentication = { scheme: 'Bearer', credentials: 'secret' };
  const config = { tenant: '', id: 'c', taskId: '', url: `${receiver.origin}${path}`, token: 'mine', authentication };
  const configuration = { acceptedOutputModes: [], taskPushNotificationConfig: config, returnImmediately: false };
  const { id: taskId, contextId } = (await client.sendMessage({ ...say('Hello'), configuration })) as Task;
  // Deliveries that wait together are sent together, in any order.
  await receiver.until(path, 1);
  await (await connect(other.url, binding)).sendMessage(say('Rain.', { taskId }));
  const told = await receiver.until(path, 2);
  expect(told.map(({ message }) => message)).toMatchObject(
    ['TASK_STATE_INPUT_REQUIRED', 'TASK_STATE_COMPLETED'].map((state) => ({
      statusUpdate: { taskId, contextId, status: { state } },
    })),
  );
  expect(told[1]?.headers).toMatchObject({
    'content-type': 'application/a2a+json',
    'x-a2a-notification-token': 'mine',
    authorization: 'Bearer secret',
  });
  const ofTask = { tenant: '', taskId };
  const late = { ...config, ...ofTask, id: 'late', url: `${receiver.origin}${path}-late` };
  const made = await client.createTaskPushNotificationConfig(late);
  expect(made).toMatchObject({ id: 'late', url: late.url, authentication: { scheme: 'Bearer', credentials: '' } });
  // The task is over by now: it is told at once, and only there.
  await receiver.until(`${path}-late`, 1);
  expect(receiver.at(path)).toHaveLength(2);
  const list = async () =>
    (await client.listTaskPushNotificationConfig({ ...ofTask, pageSize: 0, pageToken: '' })).configs.map(
      (each) => each.id,
    );
  expect(await list()).toEqual(['c', 'late']);
  expect(await client.getTaskPushNotificationConfig({ ...ofTask, id: 'late' })).toEqual(made);
  expect((await app.get('/harness/webhooks?ownerId=user')).body).toEqual({ items: [] });
  await client.deleteTaskPushNotificationConfig({ ...ofTask, id: 'late' });
  await client.deleteTaskPushNotificationConfig({ ...ofTask, id: 'late' });
  await expect(client.getTaskPushNotificationConfig({ ...ofTask, id: 'late' })).rejects.toThrow(/no such/);
  for (let n = 1; n < 10; n++) await client.createTaskPushNotificationConfig({ ...late, id: `c${n}` });
  await expect(client.createTaskPushNotificationConfig({ ...late, id: 'c10' })).rejects.toThrow(/the most/);
  const inside = { ...late, id: 'c1', url: 'http://169.254.169.254/' };
  await expect(client.createTaskPushNotificationConfig(inside)).rejects.toThrow(/url/);
  await app.send('DELETE', `/apps/harness_agent/users/user/sessions/${contextId}`);
  expect(await list()).toEqual([]);
});

test('0.3: an address is told of the task in its words', async () => {
  const rpc = async (method: string, params: object) =>
    (await app.post(APP, { jsonrpc: '2.0', id: 7, method, params })).body as Record<string, unknown>;
  const authentication = { schemes: ['Basic'] };
  const config = { id: 'c', url: `${receiver.origin}/old`, authentication };
  const message = { kind: 'message', messageId: 'old', role: 'user', parts: [{ kind: 'text', text: 'Hello' }] };
  const pushNotificationConfig = { ...config, authentication: { ...authentication, credentials: 'dTpw' } };
  const { result } = await rpc('message/send', { message, configuration: { pushNotificationConfig } });
  const { id, contextId } = result as { id: string; contextId: string };
  const [told] = await receiver.until('/old', 1);
  expect(told?.message).toMatchObject({ kind: 'task', id, contextId, status: { state: 'input-required' } });
  expect(told?.headers.authorization).toBe('Basic dTpw');
  const kept = { taskId: id, pushNotificationConfig: config };
  const named = { id, pushNotificationConfigId: 'c' };
  expect(await rpc('tasks/pushNotificationConfig/get', named)).toMatchObject({ result: kept });
  const again = { taskId: id, pushNotificationConfig: { url: config.url } };
  expect(await rpc('tasks/pushNotificationConfig/set', again)).toMatchObject({ result: again });
  expect(await rpc('tasks/pushNotificationConfig/get', { id })).toMatchObject({ result: kept });
  expect(await rpc('tasks/pushNotificationConfig/delete', named)).toEqual({ jsonrpc: '2.0', id: 7, result: null });
  expect(await rpc('tasks/pushNotificationConfig/list', { id })).toMatchObject({ result: [again] });
});
