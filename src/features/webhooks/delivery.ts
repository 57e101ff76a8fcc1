import { backOffMs } from '../../platform/work/leased-queue.ts';
import type { z } from 'zod';
import type { DeliveryAnswer, DeliveryRow } from '../../invocations/webhooks/delivery-store.ts';
import type { deliverySchema, webhookSchema } from './webhook.ts';
import type { WebhookRow } from '../../invocations/webhooks/webhook-store.ts';
import { parseExactJson } from '../../core/exact-json.ts';

const FIRST_PAUSE_MS = 5_000;
const MAX_PAUSE_MS = 4 * 3_600_000;
const MAX_ANSWERS = 20;

/** Milliseconds after an attempt (from 1), with jitter. 24 hours of retries take 17 to 23 attempts. */
export const retryPauseMs = (attempt: number, random?: () => number): number =>
  backOffMs(attempt, { firstMs: FIRST_PAUSE_MS, maxMs: MAX_PAUSE_MS }, random);

/** Appends the result of an attempt, and drops the oldest results beyond the maximum. */
export const withAnswer = (delivery: DeliveryRow, answer: DeliveryAnswer): DeliveryAnswer[] =>
  [...(delivery.answers as DeliveryAnswer[]), answer].slice(-MAX_ANSWERS);

export const toDeliveryWire = (row: DeliveryRow): z.infer<typeof deliverySchema> => ({
  deliveryId: row.id,
  webhookId: row.webhookId,
  status: row.status,
  attempt: row.attempt,
  payload: parseExactJson(row.payload) as Record<string, unknown>,
  answers: row.answers as z.infer<typeof deliverySchema>['answers'],
  createdAt: row.createTime.toISOString(),
  ...(row.nextAttemptTime ? { nextAttemptAt: row.nextAttemptTime.toISOString() } : {}),
  ...(row.endTime ? { finishedAt: row.endTime.toISOString() } : {}),
});

/** Returns the webhook as JSON, without its secrets. */
export const toWebhookWire = (row: WebhookRow): z.infer<typeof webhookSchema> => ({
  webhookId: row.id,
  ownerId: row.userId,
  appName: row.appName,
  url: row.url,
  includeOutput: row.includesOutput,
  createdAt: row.createTime.toISOString(),
  ...(row.oldSecretExpireTime ? { oldSecretExpiresAt: row.oldSecretExpireTime.toISOString() } : {}),
});
