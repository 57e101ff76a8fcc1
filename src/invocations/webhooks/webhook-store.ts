import { and, desc, eq, isNull, ne, sql } from 'drizzle-orm';
import { ConflictError } from '../../core/errors.ts';
import type { Database } from '../../platform/db/database.ts';
import { webhooks } from '../../platform/db/schema/schema.ts';

/** A webhook as its row has it, with its secrets. */
export type WebhookRow = typeof webhooks.$inferSelect;
/** The primary key of a webhook. */
export type WebhookKey = Pick<WebhookRow, 'appName' | 'userId' | 'id'>;

const isWebhook = ({ appName, userId, id }: WebhookKey) =>
  and(eq(webhooks.appName, appName), eq(webhooks.userId, userId), eq(webhooks.id, id));
/** The condition that a webhook is one that its user has registered: not for the client of one task. */
const isRegistered = isNull(webhooks.push);

/**
 * Inserts a webhook, in a transaction. Its user's inserts wait for each other, so that the limit holds for requests at
 * once. @throws {ConflictError} when the user has `limit` webhooks, or this address already.
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

/** Finds the webhook of a user with an address; `undefined` where there is none. */
export async function findWebhookByUrl(
  db: Database,
  { appName, userId }: Pick<WebhookKey, 'appName' | 'userId'>,
  url: string,
): Promise<WebhookRow | undefined> {
  const [found] = await db
    .select()
    .from(webhooks)
    .where(and(eq(webhooks.appName, appName), eq(webhooks.userId, userId), eq(webhooks.url, url), isRegistered));
  return found;
}

/** Finds a webhook by its id, of one user where `userId` is given; `undefined` where there is none. */
export async function findWebhook(
  db: Database,
  id: string,
  userId: string | undefined,
): Promise<WebhookRow | undefined> {
  const own = userId === undefined ? undefined : eq(webhooks.userId, userId);
  const [found] = await db
    .select()
    .from(webhooks)
    .where(and(eq(webhooks.id, id), own, isRegistered))
    .limit(1);
  return found;
}

/** Lists the webhooks of a user over all applications, newest first; their number is limited. */
export const listWebhooks = (db: Database, userId: string): Promise<WebhookRow[]> =>
  db
    .select()
    .from(webhooks)
    .where(and(eq(webhooks.userId, userId), isRegistered))
    .orderBy(desc(webhooks.createTime), desc(webhooks.id));

/** Lists the webhooks that clients of one task of a user have made, oldest first. */
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

/** Inserts a webhook for a client of one task, in place of that with its id. */
export async function replacePush(tx: Database, webhook: typeof webhooks.$inferInsert): Promise<void> {
  await deleteWebhook(tx, webhook);
  await tx.insert(webhooks).values(webhook);
}

/** Replaces the secret of a webhook; the old one signs too for `graceSeconds`. @returns `undefined` without one. */
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

/** Notes that the last attempt at the host of a user's webhook got an answer, or none. */
export async function setSilent(db: Database, { userId, host }: WebhookRow, isSilent: boolean): Promise<void> {
  const isOther = and(eq(webhooks.userId, userId), eq(webhooks.host, host), ne(webhooks.isSilent, isSilent));
  await db.update(webhooks).set({ isSilent }).where(isOther);
}

/** Deletes a webhook with its deliveries. */
export async function deleteWebhook(db: Database, key: WebhookKey): Promise<void> {
  await db.delete(webhooks).where(isWebhook(key));
}
