import { z } from 'zod';
import type { Config } from '../../config/config.ts';
import { ConflictError, NotFoundError } from '../../core/errors.ts';
import { HARNESS_APP } from '../../core/names.ts';
import type { Database, DatabasePool } from '../../platform/db/database.ts';
import { pageQuery, toPage, toPlace } from '../../platform/http/operation/cursor.ts';
import { operation } from '../../platform/http/operation/operation.ts';
import { type Principal, requireOwner, visibleTo } from '../../platform/http/operation/principal.ts';
import { deliveryPath, webhookPath } from '../../platform/http/operation/parameters.ts';
import { toAddress, toEgressPolicy } from './address.ts';
import { MAX_PENDING_DELIVERIES, toDeliveryWire, toWebhookWire } from './delivery.ts';
import { countPending, findDelivery, listDeliveries, replayDelivery } from './delivery-store.ts';
import {
  createWebhookSchema,
  DEFAULT_GRACE_SECONDS,
  DELIVERY_EXAMPLE,
  DELIVERY_STATUSES,
  deliveryPageSchema,
  deliverySchema,
  newSecret,
  rotateSecretSchema,
  WEBHOOK_EXAMPLE,
  webhookListSchema,
  webhookSchema,
} from './webhook.ts';
import {
  deleteWebhook,
  findWebhook,
  insertWebhook,
  listWebhooks,
  replaceSecret,
  type WebhookRow,
} from './webhook-store.ts';

interface WebhookContext {
  database: DatabasePool;
  newId: () => string;
  config: Pick<Config, 'WEBHOOKS_ALLOWED_HOSTS' | 'WEBHOOKS_MAX_PER_USER'>;
}

const LIST_PATH = '/harness/webhooks';
const ONE_PATH = `${LIST_PATH}/{webhook_id}`;
const DELIVERIES_PATH = `${ONE_PATH}/deliveries`;
const owner = 'caller';
const SECRET_EXAMPLE = { ...WEBHOOK_EXAMPLE, secret: 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo=' };

/** Finds a webhook that the caller may see. @throws {NotFoundError} also for a webhook of another user */
async function getWebhook(db: Database, principal: Principal, webhookId: string): Promise<WebhookRow> {
  const found = await findWebhook(db, webhookId, visibleTo(principal));
  if (!found) throw new NotFoundError(`Webhook not found: ${webhookId}`);
  return found;
}

const createWebhook = operation({
  method: 'post',
  path: LIST_PATH,
  operationId: 'createWebhook',
  scope: 'write',
  summary: 'Register a webhook',
  description:
    'The answer has the secret that verifies deliveries (Standard Webhooks); it is not answered again. How a start ' +
    'in the background, or a run of a cronjob, ends is sent there, where it gives this address as `webhookUrl`.',
  owner,
  body: {
    schema: createWebhookSchema,
    required: true,
    aliases: { userId: 'ownerId', user_id: 'ownerId' },
    example: { ownerId: 'u1', url: WEBHOOK_EXAMPLE.url },
  },
  success: { schema: webhookSchema, description: 'The webhook.', example: SECRET_EXAMPLE, status: 201 },
  errors: { 404: 'No such application.', 409: 'It exists, or the user has as many as WEBHOOKS_MAX_PER_USER allows.' },
  handler: async ({ database, config, newId }: WebhookContext, { body, principal }) => {
    const userId = requireOwner(principal, body.ownerId, 'body');
    const appName = body.appName ?? HARNESS_APP;
    const { href: url, host } = toAddress(body.url, toEgressPolicy(config));
    const secret = newSecret();
    const includesOutput = body.includeOutput ?? false;
    const made = { appName, userId, id: newId(), url, host, secret, includesOutput };
    const row = await database.transaction((tx) => insertWebhook(tx, made, config.WEBHOOKS_MAX_PER_USER));
    return { kind: 'value', value: { ...toWebhookWire(row), secret } };
  },
});

const listAll = operation({
  method: 'get',
  path: LIST_PATH,
  operationId: 'listWebhooks',
  scope: 'read',
  summary: 'List webhooks',
  description: 'Of one user, over all applications, newest first.',
  owner,
  parameters: {
    query: z.object({
      ownerId: z.string().max(256).optional().describe('Whose they are. Needed where no user is logged in.'),
    }),
  },
  success: { schema: webhookListSchema, description: 'The webhooks.', example: { items: [WEBHOOK_EXAMPLE] } },
  handler: async ({ database }: WebhookContext, { query, principal }) => {
    const rows = await listWebhooks(database.reads, requireOwner(principal, query.ownerId, 'query'));
    return { kind: 'value', value: { items: rows.map(toWebhookWire) } };
  },
});

const deleteOne = operation({
  method: 'delete',
  path: ONE_PATH,
  operationId: 'deleteWebhook',
  scope: 'write',
  summary: 'Delete a webhook',
  description: 'With its deliveries; what waits is not sent any more.',
  owner,
  parameters: { path: webhookPath },
  errors: { 404: 'No such webhook.' },
  handler: async ({ database }: WebhookContext, { path, principal }) => {
    await deleteWebhook(database.db, await getWebhook(database.db, principal, path.webhookId));
  },
});

const rotateSecret = operation({
  method: 'post',
  path: `${ONE_PATH}/rotate-secret`,
  operationId: 'rotateWebhookSecret',
  scope: 'write',
  summary: 'Replace the secret of a webhook',
  description: 'The answer has the new one. The old one signs too for a time: deliveries carry both signatures.',
  owner,
  parameters: { path: webhookPath },
  body: { schema: rotateSecretSchema, required: false, example: { graceSeconds: DEFAULT_GRACE_SECONDS } },
  success: { schema: webhookSchema, description: 'The webhook with its new secret.', example: SECRET_EXAMPLE },
  errors: { 404: 'No such webhook.' },
  handler: async ({ database }: WebhookContext, { path, body, principal }) => {
    const webhook = await getWebhook(database.db, principal, path.webhookId);
    const secret = newSecret();
    const grace = body?.graceSeconds ?? DEFAULT_GRACE_SECONDS;
    const replaced = await replaceSecret(database.db, webhook, secret, grace);
    return { kind: 'value', value: { ...toWebhookWire(replaced ?? webhook), secret } };
  },
});

const listOfOne = operation({
  method: 'get',
  path: DELIVERIES_PATH,
  operationId: 'listWebhookDeliveries',
  load: 'heavy',
  scope: 'read',
  summary: 'List the deliveries of a webhook',
  description: 'Newest first, with what the receiver answered; fewer where bodies are large.',
  owner,
  parameters: {
    path: webhookPath,
    query: z.object({
      status: z.enum(DELIVERY_STATUSES).optional().describe('Only deliveries with this status.'),
      ...pageQuery('deliveries').shape,
    }),
  },
  success: { schema: deliveryPageSchema, description: 'The deliveries.', example: { items: [DELIVERY_EXAMPLE] } },
  errors: { 404: 'No such webhook.' },
  handler: async ({ database }: WebhookContext, { path, query, principal }) => {
    const webhook = await getWebhook(database.reads, principal, path.webhookId);
    const wanted = { status: query.status, after: toPlace(query.cursor) };
    const found = await listDeliveries(database.reads, webhook, query.limit + 1, wanted);
    return { kind: 'value', value: toPage(found, query.limit, toDeliveryWire) };
  },
});

const replay = operation({
  method: 'post',
  path: `${DELIVERIES_PATH}/{delivery_id}/replay`,
  operationId: 'replayWebhookDelivery',
  scope: 'write',
  summary: 'Send a delivery again',
  description: 'With the same id and body, and again for up to 24 hours. One that waits stays as it is.',
  owner,
  parameters: { path: deliveryPath },
  success: { schema: deliverySchema, description: 'The delivery.', example: DELIVERY_EXAMPLE, status: 202 },
  errors: { 404: 'No such webhook or delivery.', 409: 'Too many deliveries of the user wait.' },
  handler: async ({ database }: WebhookContext, { path, principal }) => {
    const delivery = await database.transaction(async (tx) => {
      const webhook = await getWebhook(tx, principal, path.webhookId);
      const found = await findDelivery(tx, webhook, path.deliveryId);
      if (!found) throw new NotFoundError(`Webhook delivery not found: ${path.deliveryId}`);
      if (found.status !== 'pending' && (await countPending(tx, webhook)) >= MAX_PENDING_DELIVERIES)
        throw new ConflictError(`${MAX_PENDING_DELIVERIES} deliveries of the user wait, the maximum.`);
      await replayDelivery(tx, found);
      return findDelivery(tx, webhook, path.deliveryId);
    });
    return { kind: 'value', value: delivery ? toDeliveryWire(delivery) : null };
  },
});

export const webhookOperations = [createWebhook, listAll, deleteOne, rotateSecret, listOfOne, replay];
