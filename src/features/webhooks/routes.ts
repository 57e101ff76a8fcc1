import { z } from 'zod';
import type { WebhookSettings } from './settings.ts';
import { ConflictError } from '../../core/errors.ts';
import { HARNESS_APP } from '../../core/names.ts';
import type { DatabasePool } from '../../platform/db/database.ts';
import { area } from '../../platform/http/operation/area.ts';
import { pageQuery, readPage } from '../../platform/http/operation/cursor.ts';
import { deliveryPath, ownerQuery, webhookPath } from '../../platform/http/operation/parameters.ts';
import { requireOwner, visibleTo } from '../../platform/http/operation/principal.ts';
import { newSecret, toAddress, toEgressPolicy } from '../../invocations/webhooks/address.ts';
import { toDeliveryWire, toWebhookWire } from './delivery.ts';
import {
  countPending,
  findDelivery,
  listDeliveries,
  MAX_PENDING_DELIVERIES,
  replayDelivery,
} from '../../invocations/webhooks/delivery-store.ts';
import {
  createWebhookSchema,
  DEFAULT_GRACE_SECONDS,
  DELIVERY_EXAMPLE,
  DELIVERY_STATUSES,
  deliveryPageSchema,
  deliverySchema,
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
} from '../../invocations/webhooks/webhook-store.ts';

export interface WebhookContext {
  database: DatabasePool;
  newId: () => string;
  config: Pick<WebhookSettings, 'WEBHOOKS_ALLOWED_HOSTS' | 'WEBHOOKS_MAX_PER_USER'>;
}

const SECRET_EXAMPLE = { ...WEBHOOK_EXAMPLE, secret: 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo=' };

const room = area<WebhookContext>('Agent execution', {
  read: 'read',
  write: 'write',
  owner: 'caller',
  isIdempotent: true,
});

const webhook = room.resource({
  noun: 'webhook',
  path: '/harness/webhooks',
  key: webhookPath,
  schema: webhookSchema,
  example: WEBHOOK_EXAMPLE,
  find: (db, path, principal) => findWebhook(db, path.webhookId, visibleTo(principal)),
});

// The resource has no `find`: one transaction reads a delivery, counts the waiting deliveries and schedules it again.
const delivery = room.resource({
  noun: 'webhook delivery',
  plural: 'deliveries',
  id: 'WebhookDelivery',
  path: `${webhook.onePath}/deliveries`,
  within: webhookPath,
  key: deliveryPath,
  schema: deliverySchema,
  example: DELIVERY_EXAMPLE,
});

export const webhookOperations = [
  webhook.create({
    summary: 'Register a webhook',
    description:
      'The answer has the secret that verifies deliveries (Standard Webhooks); it is not answered again. How a start ' +
      'in the background, or a run of a cronjob, ends is sent there, where it gives this address as `webhookUrl`.',
    body: {
      schema: createWebhookSchema,
      aliases: { userId: 'ownerId', user_id: 'ownerId' },
      example: { ownerId: 'u1', url: WEBHOOK_EXAMPLE.url },
    },
    success: { example: SECRET_EXAMPLE },
    errors: { 404: 'No such application.', 409: 'It exists, or the user has as many as WEBHOOKS_MAX_PER_USER allows.' },
    run: async ({ database, config, newId }, { body, principal }) => {
      const userId = requireOwner(principal, body.ownerId, 'body');
      const appName = body.appName ?? HARNESS_APP;
      const { href: url, host } = toAddress(body.url, toEgressPolicy(config));
      const secret = newSecret();
      const includesOutput = body.includeOutput ?? false;
      const newWebhook = { appName, userId, id: newId(), url, host, secret, includesOutput };
      const row = await database.transaction((tx) => insertWebhook(tx, newWebhook, config.WEBHOOKS_MAX_PER_USER));
      return { ...toWebhookWire(row), secret };
    },
  }),
  webhook.list({
    description: 'Of one user, over all applications, newest first.',
    query: ownerQuery,
    success: { schema: webhookListSchema, example: { items: [WEBHOOK_EXAMPLE] } },
    run: async ({ database }, { query, principal }) => {
      const rows = await listWebhooks(database.reads, requireOwner(principal, query.ownerId, 'query'));
      return { items: rows.map(toWebhookWire) };
    },
  }),
  webhook.remove({
    description: 'With its deliveries; what waits is not sent any more.',
    run: ({ database }, _call, row) => deleteWebhook(database.db, row),
  }),
  webhook.action('rotate-secret')({
    operationId: 'rotateWebhookSecret',
    summary: 'Replace the secret of a webhook',
    description: 'The answer has the new one. The old one signs too for a time: deliveries carry both signatures.',
    body: { schema: rotateSecretSchema, required: false, example: { graceSeconds: DEFAULT_GRACE_SECONDS } },
    success: { description: 'The webhook with its new secret.', example: SECRET_EXAMPLE },
    run: async ({ database }, { body }, row) => {
      const secret = newSecret();
      const replaced = await replaceSecret(database.db, row, secret, body?.graceSeconds ?? DEFAULT_GRACE_SECONDS);
      return { ...toWebhookWire(replaced ?? row), secret };
    },
  }),
  delivery.list({
    load: 'heavy',
    summary: 'List the deliveries of a webhook',
    description: 'Newest first, with what the receiver answered; fewer where bodies are large.',
    query: z.object({
      status: z.enum(DELIVERY_STATUSES).optional().describe('Only deliveries with this status.'),
      ...pageQuery('deliveries').shape,
    }),
    success: { schema: deliveryPageSchema, example: { items: [DELIVERY_EXAMPLE] } },
    errors: { 404: 'No such webhook.' },
    run: async ({ database: { reads } }, call) => {
      const { status, limit, cursor } = call.query;
      const row = await webhook.get(reads, call);
      return readPage(
        { limit, cursor },
        (most, after) => listDeliveries(reads, row, most, { status, after }),
        toDeliveryWire,
      );
    },
  }),
  delivery.action('replay')({
    operationId: 'replayWebhookDelivery',
    summary: 'Send a delivery again',
    description: 'With the same id and body, and again for up to 24 hours. One that waits stays as it is.',
    success: { description: 'The delivery.', status: 202 },
    errors: { 404: 'No such webhook or delivery.', 409: 'Too many deliveries of the user wait.' },
    run: ({ database }, call) =>
      database.transaction(async (tx) => {
        const row = await webhook.get(tx, call);
        const deliveryRow = await findDelivery(tx, row, call.path.deliveryId);
        if (!deliveryRow) throw call.notFound();
        if (deliveryRow.status !== 'pending' && (await countPending(tx, row)) >= MAX_PENDING_DELIVERIES)
          throw new ConflictError(`${MAX_PENDING_DELIVERIES} deliveries of the user wait, the maximum.`);
        await replayDelivery(tx, deliveryRow);
        const replayed = await findDelivery(tx, row, call.path.deliveryId);
        return replayed && toDeliveryWire(replayed);
      }),
  }),
];
