import type { Config } from '../../config/config.ts';
import type { Feature } from '../../platform/feature/feature.ts';
import { ConfigError } from '../../core/errors.ts';
import { identifierSchema } from '../../core/session.ts';
import { webhookPath } from '../../platform/http/operation/parameters.ts';
import { webhookDeliveries, webhooks } from '../../platform/db/schema/schema.ts';
import { toEgressPolicy } from '../../invocations/webhooks/address.ts';
import { deleteOldDeliveries, deleteSessionDeliveries } from '../../invocations/webhooks/delivery-store.ts';
import { type WebhookContext, webhookOperations } from './routes.ts';
import { type SenderContext, sendDeliveries } from './sender.ts';
import { WEBHOOK_SETTINGS, type WebhookSettings } from './settings.ts';
import { deliverySchema, webhookSchema } from './webhook.ts';

/** Time-out of one attempt to deliver a webhook, in milliseconds; `REQUEST_TIMEOUT_MS` if that is shorter. */
const DELIVERY_MS = 15_000;
/** Number of days for which an ended delivery is stored, so that its owner can see why it failed. */
const DELIVERY_DAYS = 7;
/** Maximum number of stored ended deliveries of a webhook. */
const MAX_KEPT = 1_000;

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
  isServed: ({ WEBHOOKS }) => WEBHOOKS,
  operations: webhookOperations,
  schemas: { Webhook: webhookSchema, WebhookDelivery: deliverySchema },
  parameters: { WebhookId: webhookPath.shape.webhookId },
  open: async ({ config, database }) => {
    if (config.WEBHOOKS && database.db.isOnCluster)
      throw new ConfigError(
        'WEBHOOKS: the database is a cluster, whose other nodes cannot fill the outbox. Set it to false.',
      );
  },
  workers: [runSender],
  sweeps: [
    {
      group: 'retention',
      name: 'old deliveries of webhooks',
      run: ({ database, signal }) => deleteOldDeliveries(database.db, DELIVERY_DAYS, MAX_KEPT, signal),
    },
  ],
  // Exported last, because an import would otherwise notify the imported webhooks of the imported runs.
  userTables: [
    {
      table: webhooks,
      exported: 'last',
      cascades: true,
      imported: { id: identifierSchema },
      setByRuntime: { host: `substring(r.url from '^https?://([^/?#@]+)(?:[/?#]|$)')`, is_silent: 'true' },
    },
    {
      table: webhookDeliveries,
      exported: 'last',
      setByRuntime: {
        status: `case when r.status = 'pending' then 'failed' else r.status end`,
        end_time: 'coalesce(r.end_time, clock_timestamp())',
      },
    },
  ],
  forgetSessions: (_context, tx, keys) => deleteSessionDeliveries(tx, keys),
} satisfies Feature<Context>;
