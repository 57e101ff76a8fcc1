import { hash } from 'node:crypto';
import type { z } from 'zod';
import type { JsonObject } from '../../../core/content.ts';
import { enableOutbox } from '../../../invocations/invocation-store.ts';
import { toAddress, toEgressPolicy } from '../../../invocations/webhooks/address.ts';
import { insertDelivery } from '../../../invocations/webhooks/delivery-store.ts';
import { newSecret } from '../../../invocations/webhooks/webhook.ts';
import {
  deleteWebhook,
  listPushes,
  replacePush,
  type WebhookRow,
} from '../../../invocations/webhooks/webhook-store.ts';
import { requireScope } from '../../../platform/http/access/authorize.ts';
import { ValidationFailedError } from '../../../platform/http/operation/request-errors.ts';
import { A2aError } from './errors.ts';
import type { A2aCall } from './methods.ts';
import type { A2aPush, createPushParams, pushParams } from './params.ts';
import { toRef } from './task.ts';

const MAX_PUSHES = 10;

const NO_PUSH = 'Push notifications are not supported here: subscribe to the task.';
/** @throws {A2aError} if webhooks are disabled */
export function requirePush({ context }: A2aCall): void {
  if (!context.config.WEBHOOKS) throw new A2aError('PUSH_NOTIFICATION_NOT_SUPPORTED', NO_PUSH);
}

/** Validates the URL of a push configuration before the task starts. @throws {A2aError} */
export function checkPush(call: A2aCall, { url }: A2aPush): URL {
  requirePush(call);
  requireScope(call.principal, { scope: 'write', because: 'it registers an address.' });
  try {
    return toAddress(url, toEgressPolicy(call.context.config));
  } catch (error) {
    if (!(error instanceof ValidationFailedError)) throw error;
    throw new A2aError('INVALID_PARAMS', `url: ${error.details[0]?.msg}`);
  }
}

const toKey = ({ appName, userId }: A2aCall, taskId: string, id: string) => ({
  appName,
  userId,
  id: hash('sha256', JSON.stringify([userId, taskId, id])),
});

/** Replaces a push configuration of the same id. Notified when the task ends or pauses, or at once if it has. */
export async function createPush(
  call: A2aCall,
  { taskId, ...request }: z.output<typeof createPushParams>,
): Promise<JsonObject> {
  const { href: url, host } = checkPush(call, request);
  const ref = toRef(call, taskId);
  const { id = 'default', token, authentication } = request;
  const { scheme, credentials = '' } = authentication ?? {};
  const ids = { sessionId: ref.key.sessionId, invocationId: ref.invocationId };
  const push = {
    ...ids,
    isOld: call.isOld,
    shown: { id, taskId, token, ...(scheme && { authentication: { scheme } }) },
    headers: {
      ...(!call.isOld && { 'content-type': 'application/a2a+json' }),
      ...(token && { 'x-a2a-notification-token': token }),
      ...(scheme && { authorization: `${scheme} ${credentials}`.trim() }),
    },
  };
  const hook = { ...toKey(call, taskId, id), url, host, secret: newSecret(), includesOutput: false, push };
  await call.context.database.transaction(async (tx) => {
    // With the task's row locked, a task that has ended gets its delivery here, and any other when it ends.
    const status = await enableOutbox(tx, ref);
    if (!status) throw new A2aError('TASK_NOT_FOUND', 'Task not found.');
    const others = (await listPushes(tx, hook, taskId)).filter((other) => other.id !== hook.id);
    if (others.length >= MAX_PUSHES)
      throw new A2aError('INVALID_PARAMS', `The task has ${MAX_PUSHES} configurations, the most. Delete one first.`);
    await replacePush(tx, hook);
    if (status !== 'queued' && status !== 'running') await insertDelivery(tx, hook, 'task', { ...ids, status });
  });
  return toConfig(hook);
}

/** Returns a configuration without its credentials. */
const toConfig = ({ url, push }: Pick<WebhookRow, 'url' | 'push'>): JsonObject => ({ ...push?.shown, url });

export async function listPush(call: A2aCall, { taskId }: { taskId: string }): Promise<{ configs: JsonObject[] }> {
  toRef(call, taskId);
  return { configs: (await listPushes(call.context.database.reads, call, taskId)).map(toConfig) };
}

/** Finds a push configuration by id, without id the task's first. @throws {A2aError} if it does not exist */
export async function getPush(call: A2aCall, { taskId, id }: z.output<typeof pushParams>): Promise<JsonObject> {
  const config = (await listPush(call, { taskId })).configs.find((each) => id === undefined || each['id'] === id);
  if (!config) throw new A2aError('TASK_NOT_FOUND', 'The task has no such push notification configuration.');
  return config;
}

/** Deletes a push configuration and its pending deliveries. Idempotent. */
export async function deletePush(call: A2aCall, { taskId, id = '' }: z.output<typeof pushParams>): Promise<JsonObject> {
  toRef(call, taskId);
  await deleteWebhook(call.context.database.db, toKey(call, taskId, id));
  return {};
}
