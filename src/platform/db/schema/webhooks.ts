import { sql } from 'drizzle-orm';
import { check, foreignKey, index, pgTable, primaryKey, uniqueIndex } from 'drizzle-orm/pg-core';
import { identifier, ofUser, time, timeOfChange } from './columns.ts';

/** Push notification settings of an A2A client, whose webhook reports on a single task. */
export interface Push {
  sessionId: string;
  invocationId: string;
  /** True: send messages of A2A version 0.3. */
  isOld: boolean;
  shown: { id: string; taskId: string; token?: string | undefined; authentication?: { scheme: string } | undefined };
  /** Headers to send, including the client's secrets. */
  headers: Record<string, string>;
}

/** Webhook addresses registered by users, with their signing secrets. */
export const webhooks = pgTable(
  'webhooks',
  (c) => ({
    ...ofUser(),
    id: identifier('id').notNull(),
    url: c.text('url').notNull(),
    host: c.text('host').notNull(),
    includesOutput: c.boolean('includes_output').notNull(),
    secret: c.text('secret').notNull(),
    oldSecret: c.text('old_secret'),
    oldSecretExpireTime: time('old_secret_expire_time'),
    isSilent: c.boolean('is_silent').notNull().default(true),
    push: c.jsonb('push').$type<Push>(),
    createTime: timeOfChange('create_time'),
  }),
  (t) => [
    primaryKey({ name: 'webhooks_pkey', columns: [t.appName, t.userId, t.id] }),
    uniqueIndex('webhooks_url_key').on(t.appName, t.userId, t.url).where(sql`push is null`),
    check('webhooks_old_secret_check', sql`(old_secret is null) = (old_secret_expire_time is null)`),
    // Operations look up by id alone, so ids are unique across users.
    uniqueIndex('webhooks_id_idx').on(t.id),
    index('webhooks_list_idx').on(t.userId, t.createTime),
  ],
);

/**
 * Outbox of webhooks. Triggers insert rows in the statement that ends an invocation or a run. A pending delivery has a
 * job of the same id, which says when it is sent next, and by whom.
 */
export const webhookDeliveries = pgTable(
  'webhook_deliveries',
  (c) => ({
    ...ofUser(),
    id: identifier('id').notNull(),
    webhookId: identifier('webhook_id').notNull(),
    host: c.text('host').notNull(),
    payload: c.text('payload').notNull(),
    status: c.text('status', { enum: ['pending', 'delivered', 'failed'] }).notNull(),
    attempt: c.integer('attempt').notNull().default(0),
    retryEndTime: time('retry_end_time').notNull(),
    answers: c.jsonb('answers').notNull().default(sql`'[]'::jsonb`),
    createTime: timeOfChange('create_time'),
    endTime: time('end_time'),
  }),
  (t) => [
    primaryKey({ name: 'webhook_deliveries_pkey', columns: [t.appName, t.userId, t.id] }),
    check('webhook_deliveries_attempt_check', sql`attempt >= 0`),
    check('webhook_deliveries_status_check', sql`status in ('pending', 'delivered', 'failed')`),
    check('webhook_deliveries_end_check', sql`(status = 'pending') = (end_time is null)`),
    index('webhook_deliveries_pending_idx').on(t.appName, t.userId).where(sql`status = 'pending'`),
    index('webhook_deliveries_list_idx').on(
      t.appName,
      t.userId,
      t.webhookId,
      t.createTime.desc().nullsFirst(),
      t.id.desc().nullsFirst(),
    ),
    foreignKey({
      name: 'webhook_deliveries_webhook_fkey',
      columns: [t.appName, t.userId, t.webhookId],
      foreignColumns: [webhooks.appName, webhooks.userId, webhooks.id],
    }).onDelete('cascade'),
  ],
);
