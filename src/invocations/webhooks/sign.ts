import { randomBytes } from 'node:crypto';
import { Webhook } from 'standardwebhooks';
import { bodyOf } from './delivery.ts';
import type { ClaimedDelivery } from './delivery-store.ts';

const SECRET_BYTES = 32;

/** A fresh secret, as Standard Webhooks writes them. */
export const newSecret = (): string => `whsec_${randomBytes(SECRET_BYTES).toString('base64')}`;

/**
 * The headers of an attempt: id, time and signatures of Standard Webhooks. While the secret that was replaced is
 * valid, it signs too: a receiver accepts either.
 */
export function signedHeaders({ delivery, webhook, now }: ClaimedDelivery): Record<string, string> {
  const { secret, oldSecret, oldSecretExpireTime } = webhook;
  const isOldValid = oldSecret !== null && oldSecretExpireTime !== null && oldSecretExpireTime > now;
  const secrets = isOldValid ? [secret, oldSecret] : [secret];
  const body = bodyOf(delivery);
  return {
    'content-type': 'application/json',
    'user-agent': 'agent-runtime',
    'webhook-id': delivery.id,
    'webhook-timestamp': String(Math.floor(now.getTime() / 1000)),
    'webhook-signature': secrets.map((each) => new Webhook(each).sign(delivery.id, now, body)).join(' '),
  };
}
