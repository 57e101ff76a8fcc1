import { and, desc, eq, isNull, ne, sql } from 'drizzle-orm';
import { ConflictError } from '../../core/errors.ts';
import type { Database } from '../../platform/db/database.ts';
import { webhooks } from '../../platform/db/schema/schema.ts';
import { setHalfOpen } from '../../platform/jobs/job-store.ts';

/** Kind of the jobs that send deliveries, as in `add_delivery_job`. A lane is a host. */
export const DELIVERY_JOB = 'delivery';

/** A row of a webhook, including its secrets. */
export type WebhookRow = typeof webhooks.$inferSelect;
export type WebhookKey = Pick<WebhookRow, 'appName' | 'userId' | 'id'>;

const isWebhook = ({ appName, userId, id }: WebhookKey) =>
  and(eq(webhooks.appName, appName), eq(webhooks.userId, userId), eq(webhooks.id, id));
/** SQL condition: the user registered the webhook. False for a webhook that an A2A client registered for one task. */
const isRegistered = isNull(webhooks.push);

/**
 * One user's concurrent inserts of webhooks run in turn, so that the maximum holds.
 * @throws {ConflictError} if the user has `limit` webhooks, or already has a webhook with this address
 */
export async function insertWebhook(
  tx: Database,
  webhook: typeof webhooks.$inferInsert,
  limit: number,
): Promise<WebhookRow> {
  await tx.execute(sql`select pg_advisory_xact_lock(hashtextextended(${`webhooks of ${webhook.userId}`}, 0))`);
  const count = await tx.$count(webhooks, and(eq(webhooks.userId, webhook.userId), isRegistered));
  if (count >= limit)
    throw new ConflictError(`The user has ${count} webhooks; WEBHOOKS_MAX_PER_USER allows ${limit}. Delete one first.`);
  const [inserted] = await tx.insert(webhooks).values(webhook).onConflictDoNothing().returning();
  if (!inserted) throw new ConflictError('The user has a webhook with this address already.');
  return inserted;
}

export async function findWebhookByUrl(
  db: Database,
  { appName, userId }: Pick<WebhookKey, 'appName' | 'userId'>,
  url: string,
): Promise<WebhookRow | undefined> {
  const [webhook] = await db
    .select()
    .from(webhooks)
    .where(and(eq(webhooks.appName, appName), eq(webhooks.userId, userId), eq(webhooks.url, url), isRegistered));
  return webhook;
}

export async function findWebhook(
  db: Database,
  id: string,
  userId: string | undefined,
): Promise<WebhookRow | undefined> {
  const own = userId === undefined ? undefined : eq(webhooks.userId, userId);
  const [webhook] = await db
    .select()
    .from(webhooks)
    .where(and(eq(webhooks.id, id), own, isRegistered))
    .limit(1);
  return webhook;
}

/** Lists the webhooks of a user in all applications, newest first. */
export const listWebhooks = (db: Database, userId: string): Promise<WebhookRow[]> =>
  db
    .select()
    .from(webhooks)
    .where(and(eq(webhooks.userId, userId), isRegistered))
    .orderBy(desc(webhooks.createTime), desc(webhooks.id));

/** Lists the webhooks that A2A clients registered for one task, oldest first. */
export const listPushes = (
  db: Database,
  { appName, userId }: Pick<WebhookKey, 'appName' | 'userId'>,
  taskId: string,
): Promise<WebhookRow[]> =>
  db
    .select()
    .from(webhooks)
    .where(
      and(
        eq(webhooks.appName, appName),
        eq(webhooks.userId, userId),
        sql`${webhooks.push} #>> '{shown,taskId}' = ${taskId}`,
      ),
    )
    .orderBy(webhooks.createTime, webhooks.id);

/** Registers a webhook of an A2A client for one task. Replaces the webhook with the same id. */
export async function replacePush(tx: Database, webhook: typeof webhooks.$inferInsert): Promise<void> {
  await deleteWebhook(tx, webhook);
  await tx.insert(webhooks).values(webhook);
}

/** A webhook's old secret also signs for `graceSeconds`. @returns `undefined` if the webhook was deleted */
export async function replaceSecret(
  db: Database,
  key: WebhookKey,
  secret: string,
  graceSeconds: number,
): Promise<WebhookRow | undefined> {
  const hasGrace = graceSeconds > 0;
  const [updated] = await db
    .update(webhooks)
    .set({
      secret,
      oldSecret: hasGrace ? sql`${webhooks.secret}` : null,
      oldSecretExpireTime: hasGrace ? sql`clock_timestamp() + ${graceSeconds} * interval '1 second'` : null,
    })
    .where(isWebhook(key))
    .returning();
  return updated;
}

/**
 * Records for all webhooks of the user at this host whether the last attempt got no HTTP response; then their lane is
 * half-open. The update waits for transactions that are adding deliveries, so that their lanes are seen afterwards.
 */
export async function setSilent(tx: Database, { userId, host }: WebhookRow, isSilent: boolean): Promise<void> {
  const isOther = and(eq(webhooks.userId, userId), eq(webhooks.host, host), ne(webhooks.isSilent, isSilent));
  await tx.update(webhooks).set({ isSilent }).where(isOther);
  await setHalfOpen(tx, DELIVERY_JOB, { userId, lane: host, isHalfOpen: isSilent });
}

export async function deleteWebhook(db: Database, key: WebhookKey): Promise<void> {
  await db.delete(webhooks).where(isWebhook(key));
}
