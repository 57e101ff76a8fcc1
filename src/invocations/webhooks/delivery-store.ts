import { type SQL, and, eq, getTableColumns, gt, inArray, or, sql } from 'drizzle-orm';
import { LeaseLostError } from '../../core/errors.ts';
import { notifyOnCommit } from '../../platform/db/notifications.ts';
import type { SessionKey } from '../../core/session.ts';
import type { Database } from '../../platform/db/database.ts';
import { escapeJson } from '../../platform/db/json-escape.ts';
import { webhookDeliveries, webhooks } from '../../platform/db/schema/schema.ts';
import { exactTime, fitsPage, isAfterPlace } from '../../platform/db/sql.ts';
import { callFunction } from '../../platform/db/statement.ts';
import type { Listed, ListPlace } from '../../platform/http/operation/cursor.ts';
import { isOnHold } from '../../conversation/holds/hold-store.ts';
import { isOneOfUsers } from '../../conversation/sessions/session-key.ts';
import type { DeliveryAnswer } from './webhook.ts';
import type { WebhookKey, WebhookRow } from './webhook-store.ts';

/** Channel that is notified when a delivery is due. The triggers that fill the outbox use the same name. */
export const WEBHOOKS_TOPIC = 'webhooks';

export type DeliveryRow = typeof webhookDeliveries.$inferSelect;

const d = webhookDeliveries;
const now = sql`statement_timestamp()`;
const RETRY_TIME = sql`interval '24 hours'`;

const isOfUser = ({ appName, userId }: Pick<SessionKey, 'appName' | 'userId'>) =>
  and(eq(d.appName, appName), eq(d.userId, userId));
const isItsWebhook = and(eq(webhooks.appName, d.appName), eq(webhooks.userId, d.userId), eq(webhooks.id, d.webhookId));
const isForWebhook = (webhook: WebhookKey) => and(isOfUser(webhook), eq(d.webhookId, webhook.id));
const isDelivery = (delivery: DeliveryRow) => and(isOfUser(delivery), eq(d.id, delivery.id));

export async function insertDelivery(
  tx: Database,
  webhook: WebhookKey & Pick<WebhookRow, 'url' | 'push'>,
  type: string,
  data: object,
): Promise<void> {
  const { appName: app, userId: owner, push, id, url } = webhook;
  const address = push ? id : url;
  await callFunction(tx, 'insert_webhook_delivery', { app, owner, address, type, data: escapeJson(data) });
}

/** Milliseconds until a delivery is due, by the database's clock; `undefined` if none waits. */
export async function findNextDueMs(db: Database): Promise<number | undefined> {
  const { rows } = await db.execute<{ ms: string | null }>(sql`
    select ceil(extract(epoch from min(${d.nextAttemptTime}) - ${now}) * 1000) as ms from ${d}
    where ${d.status} = 'pending'`);
  const ms = rows[0]?.ms;
  return ms == null ? undefined : Number(ms);
}

export interface SendLimits {
  slots: number;
  /** Maximum number of concurrent deliveries per host, over all processes. */
  perHost: number;
  /** Maximum number of concurrent deliveries per user, over all processes. */
  perUser: number;
  /** Time in milliseconds after which the process of a delivery attempt counts as dead. */
  leaseMs: number;
}

export interface ClaimedDelivery {
  delivery: DeliveryRow;
  webhook: WebhookRow;
  /** Time of the claim by the database's clock. */
  now: Date;
}

/**
 * Claims due deliveries. Must run in a transaction. An advisory lock, taken by its own statement, lets only one process
 * claim at a time, because a process could not see the uncommitted claims of others for the same host.
 */
export async function claimDeliveries(tx: Database, limits: SendLimits): Promise<ClaimedDelivery[]> {
  await tx.execute(sql`select pg_advisory_xact_lock(hashtextextended('webhook deliveries', 0))`);
  const rows = await takeDue(tx, limits);
  if (rows.length === 0) return [];
  const column = (of: (row: TakenRow) => string) => sql.param(rows.map(of));
  return tx
    .select({ delivery: d, webhook: webhooks, now: sql`${now}`.mapWith(d.createTime) })
    .from(d)
    .innerJoin(webhooks, isItsWebhook)
    .where(
      sql`(${d.appName}, ${d.userId}, ${d.id}) in (
        select * from unnest(${column(({ app }) => app)}::text[], ${column(({ owner }) => owner)}::text[],
                             ${column(({ id }) => id)}::text[]))`,
    );
}

interface TakenRow extends Record<string, unknown> {
  app: string;
  owner: string;
  id: string;
}

/**
 * Claims deliveries, fair among hosts and users. `n` numbers a user's to one host; `user_n` the others of a user,
 * alternating between hosts; `host_n` those to a host, alternating between users; deliveries in progress come first. A
 * host that did not respond to the last attempt gets one slot. No host gets all slots of a user, and no user more than
 * are left for all others. An expired lease is claimed again, because its process has died.
 */
async function takeDue(tx: Database, { slots, perHost, perUser, leaseMs }: SendLimits): Promise<TakenRow[]> {
  const lease = sql`${leaseMs} * interval '1 millisecond'`;
  const isKey = (row: SQL) =>
    sql`${d.appName} = ${row}.app_name and ${d.userId} = ${row}.user_id and ${d.id} = ${row}.id`;
  const { rows } = await tx.execute<TakenRow>(sql`
    with open as (
      select ${d.appName}, ${d.userId}, ${d.id}, ${d.host}, ${d.nextAttemptTime} as due, ${webhooks.isSilent},
             ${d.leaseToken} is not null and ${d.nextAttemptTime} > ${now} as is_sent
      from ${d} join ${webhooks} on ${isItsWebhook}
      where ${d.status} = 'pending' and ${d.nextAttemptTime} <= ${now} + ${lease}
        and (${d.leaseToken} is not null or ${d.nextAttemptTime} <= ${now})),
    for_host as (
      select *, row_number() over (partition by user_id, host order by is_sent desc, due, id) as n,
             bool_and(is_silent) over (partition by user_id, host) as owes_answer from open),
    of_user as (
      select *, row_number() over (partition by user_id order by is_sent desc, n, due, id) as user_n
      from for_host where is_sent or n <= case when owes_answer then 1 else ${perUser}::int - 1 end),
    to_host as (
      select *, row_number() over (partition by host order by is_sent desc, user_n, due, id) as host_n
      from of_user where is_sent or user_n <= ${perUser}),
    in_turn as (
      select *, row_number() over (order by user_n, due, id) as turn
      from to_host where not is_sent and host_n <= ${perHost}),
    chosen as (
      select ${d.appName}, ${d.userId}, ${d.id} from in_turn join ${d} on ${isKey(sql`in_turn`)}
      where turn + user_n <= ${slots}::int + 1 order by turn for update of ${d} skip locked)
    update ${d} set
      attempt = ${d.attempt} + 1, losses = ${d.losses} + (${d.leaseToken} is not null)::int,
      lease_token = gen_random_uuid(), next_attempt_time = ${now} + ${lease}
    from chosen where ${isKey(sql`chosen`)}
    returning ${d.appName} as app, ${d.userId} as owner, ${d.id} as id`);
  return rows;
}

const hasToken = (delivery: DeliveryRow) => eq(d.leaseToken, delivery.leaseToken ?? '');
const isHeld = (delivery: DeliveryRow) => and(isDelivery(delivery), eq(d.status, 'pending'), hasToken(delivery));
const lost = () => new LeaseLostError('The delivery is sent by another process.');
const answersColumn = (answers: DeliveryAnswer[]) => sql`${escapeJson(answers)}::jsonb`;

/** Ends a delivery. @throws {LeaseLostError} if another process has claimed it; then it stays unchanged */
export async function endDelivery(
  db: Database,
  delivery: DeliveryRow,
  status: 'delivered' | 'failed',
  answers: DeliveryAnswer[],
): Promise<void> {
  const rows = await db
    .update(d)
    .set({ status, answers: answersColumn(answers), endTime: now, nextAttemptTime: null, leaseToken: null })
    .where(isHeld(delivery))
    .returning({ id: d.id });
  if (rows.length === 0) throw lost();
}

/** Undoes one increment of the crash counter, because the process was only slow and did not die. */
export async function takeBackDeliveryLoss(db: Database, delivery: DeliveryRow): Promise<void> {
  const isCounted = or(hasToken(delivery), gt(d.losses, 0));
  await db
    .update(d)
    .set({ losses: sql`${d.losses} - 1` })
    .where(and(isDelivery(delivery), eq(d.status, 'pending'), isCounted));
}

/**
 * Postpones a delivery, or fails it if its time for retries would be over by then.
 * @throws {LeaseLostError} if another process has claimed the delivery, which then stays unchanged
 */
export async function postponeDelivery(
  db: Database,
  delivery: DeliveryRow,
  pauseMs: number,
  answers: DeliveryAnswer[],
): Promise<'postponed' | 'failed'> {
  const next = sql`${now} + ${pauseMs} * interval '1 millisecond'`;
  const isOver = sql`${next} > ${d.retryEndTime}`;
  const [row] = await db
    .update(d)
    .set({
      answers: answersColumn(answers),
      status: sql`case when ${isOver} then 'failed' else 'pending' end`,
      nextAttemptTime: sql`case when not ${isOver} then ${next} end`,
      endTime: sql`case when ${isOver} then ${now} end`,
      leaseToken: null,
    })
    .where(isHeld(delivery))
    .returning({ status: d.status });
  if (!row) throw lost();
  return row.status === 'failed' ? 'failed' : 'postponed';
}

/** Returns a page of a webhook's deliveries after a position. The newest comes first; equal times are ordered by id. */
export async function listDeliveries(
  db: Database,
  webhook: WebhookKey,
  limit: number,
  { status, after }: { status: DeliveryRow['status'] | undefined; after: ListPlace | undefined },
): Promise<Listed<DeliveryRow>[]> {
  const order = sql`${d.createTime} desc, ${d.id} desc`;
  const fits = fitsPage(order, d.payload);
  const payload = sql<string>`case when ${fits} then ${d.payload} else '{}' end`;
  return db
    .select({ ...getTableColumns(d), payload, place: { time: exactTime(d.createTime), id: d.id }, fits })
    .from(d)
    .where(
      and(isForWebhook(webhook), status && eq(d.status, status), isAfterPlace({ time: d.createTime, id: d.id }, after)),
    )
    .orderBy(order)
    .limit(limit);
}

export async function findDelivery(db: Database, webhook: WebhookKey, id: string): Promise<DeliveryRow | undefined> {
  const [delivery] = await db
    .select()
    .from(d)
    .where(and(isForWebhook(webhook), eq(d.id, id)));
  return delivery;
}

export const countPending = (db: Database, user: WebhookKey): Promise<number> =>
  db.$count(d, and(isOfUser(user), eq(d.status, 'pending')));

/** Schedules an ended delivery again and wakes the senders. A waiting delivery stays unchanged. */
export async function replayDelivery(tx: Database, delivery: DeliveryRow): Promise<void> {
  await tx
    .update(d)
    .set({
      status: 'pending',
      attempt: 0,
      losses: 0,
      nextAttemptTime: now,
      retryEndTime: sql`${now} + ${RETRY_TIME}`,
      endTime: null,
    })
    .where(and(isDelivery(delivery), inArray(d.status, ['delivered', 'failed'])));
  await notifyOnCommit(tx, WEBHOOKS_TOPIC);
}

/** Deletes deliveries about these sessions, waiting ones included, and webhooks of A2A clients for their tasks. */
export async function deleteSessionDeliveries(tx: Database, keys: readonly SessionKey[]): Promise<void> {
  await tx.delete(webhooks).where(isOneOfUsers(keys, webhooks, sql`${webhooks.push} ->> 'sessionId'`));
  await tx.delete(d).where(isOneOfUsers(keys, d, sql`${d.payload}::json #>> '{data,sessionId}'`));
}

/** Deletes at most `limit` deliveries that ended more than `days` ago, or are beyond a webhook's newest `count`. */
export async function deleteOldDeliveries(db: Database, days: number, count: number, limit: number): Promise<void> {
  const old = sql`
    select app_name, user_id, id from (
      select ${d.appName}, ${d.userId}, ${d.id}, ${d.endTime},
             row_number() over (partition by ${d.appName}, ${d.userId}, ${d.webhookId}
                                order by ${d.createTime} desc) as place
      from ${d} where ${d.endTime} is not null) ended
    where (end_time < ${now} - ${days} * interval '1 day' or place > ${count})
      and not ${isOnHold({ appName: sql`ended.app_name`, userId: sql`ended.user_id` })}
    limit ${limit}`;
  await db.delete(d).where(sql`(${d.appName}, ${d.userId}, ${d.id}) in (${old})`);
}
