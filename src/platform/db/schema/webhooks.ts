import { sql } from 'drizzle-orm';
import { check, foreignKey, index, primaryKey, uniqueIndex } from 'drizzle-orm/pg-core';
import { identifier, json, jsonText, ofUser, ofUserPolicy, time, timeOfChange } from './columns.ts';
import { table } from './table.ts';

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

export const webhooks = table(
  'webhooks',
  'Webhook addresses registered by users.',
  (c) => ({
    ...ofUser('Owner.'),
    id: identifier('id').notNull().comment('Webhook identifier.'),
    url: c.text('url').notNull().comment('Normalised URL; requests and cronjobs refer to it.'),
    host: c.text('host').notNull().comment('Host and port of the address.'),
    includesOutput: c.boolean('includes_output').notNull().comment('True: deliveries include the start of the answer.'),
    secret: c.text('secret').notNull().comment('Signing secret; starts with whsec_. Shown only once, and in no view.'),
    oldSecret: c.text('old_secret').comment('Previous secret; also signs until old_secret_expire_time. Null for none.'),
    oldSecretExpireTime: time('old_secret_expire_time').comment('When the old secret stops signing.'),
    isSilent: c
      .boolean('is_silent')
      .notNull()
      .default(true)
      .comment(
        'True if the host did not answer the last attempt, or was never tried: one delivery at a time until it answers.',
      ),
    push: json('push')
      .$type<Push>()
      .comment('A2A push configuration: the task and the headers to send; null for an ordinary webhook.'),
    createTime: timeOfChange('create_time').comment('When it was registered.'),
  }),
  (t) => [
    primaryKey({ name: 'webhooks_pkey', columns: [t.appName, t.userId, t.id] }),
    uniqueIndex('webhooks_url_key').on(t.appName, t.userId, t.url).where(sql`push is null`),
    check('webhooks_old_secret_check', sql`(old_secret is null) = (old_secret_expire_time is null)`),
    // Operations look up by id alone, so ids are unique across users.
    uniqueIndex('webhooks_id_idx').on(t.id),
    index('webhooks_list_idx').on(t.userId, t.createTime),
    ofUserPolicy(),
  ],
);

/** A pending delivery has a job of the same id, which says when it is sent next, and by whom. */
export const webhookDeliveries = table(
  'webhook_deliveries',
  'Outbox of webhook deliveries. Triggers insert rows in the statement that ends an invocation or a run.',
  (c) => ({
    ...ofUser('Owner.'),
    id: identifier('id').notNull().comment('Delivery identifier, the header webhook-id of every attempt.'),
    webhookId: identifier('webhook_id').notNull().comment('Target webhook.'),
    host: c.text('host').notNull().comment('Host and port of the webhook, for the limit per host.'),
    payload: jsonText('payload').notNull().comment('Signed JSON text.'),
    status: c
      .text('status', { enum: ['pending', 'delivered', 'failed'] })
      .notNull()
      .comment('pending, delivered or failed.'),
    attempt: c
      .integer('attempt')
      .notNull()
      .default(0)
      .comment('Number of attempts, written at the end; the job of a pending delivery counts them.'),
    retryEndTime: time('retry_end_time').notNull().comment('No more attempts after this time.'),
    answers: json('answers')
      .notNull()
      .default(sql`'[]'::jsonb`)
      .comment('Answers to the attempts, newest last: time, and status with the start of the body, or error.'),
    createTime: timeOfChange('create_time').comment('Time of the reported event.'),
    endTime: time('end_time').comment('When it was delivered or given up.'),
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
    ofUserPolicy(),
  ],
);
