import type { Config } from '../../config/config.ts';
import type { Feature } from '../../platform/feature/feature.ts';
import { webhookPath } from '../../platform/http/operation/parameters.ts';
import { toEgressPolicy } from '../../invocations/webhooks/address.ts';
import { type WebhookContext, webhookOperations } from './routes.ts';
import { type SenderContext, sendDeliveries } from './sender.ts';
import { WEBHOOK_SETTINGS, type WebhookSettings } from './settings.ts';
import { deliverySchema, webhookSchema } from './webhook.ts';

/** Time-out of one attempt to deliver a webhook, in milliseconds; `REQUEST_TIMEOUT_MS` if that is shorter. */
const DELIVERY_MS = 15_000;

export interface Context extends WebhookContext, SenderContext {
  config: WebhookSettings & Pick<Config, 'REQUEST_TIMEOUT_MS'>;
}

const runSender = (context: Context): Promise<void> | undefined => {
  const { config } = context;
  if (!config.WEBHOOKS) return undefined;
  return sendDeliveries(context, {
    policy: toEgressPolicy(config),
    maxSending: 20,
    // At most 4 of 20 concurrent webhook deliveries go to one host, or are of one user, so that others are not blocked.
    perHost: 4,
    perUser: 4,
    timeoutMs: Math.min(DELIVERY_MS, config.REQUEST_TIMEOUT_MS),
  });
};

export const webhookFeature = {
  name: 'webhooks',
  settings: { Webhooks: WEBHOOK_SETTINGS },
  servedWith: { setting: 'WEBHOOKS=true', isSet: ({ WEBHOOKS }) => WEBHOOKS },
  operations: webhookOperations,
  schemas: { Webhook: webhookSchema, WebhookDelivery: deliverySchema },
  parameters: { WebhookId: webhookPath.shape.webhookId },
  workers: [runSender],
} satisfies Feature<Context>;
