import { and, eq, getTableColumns, inArray, sql } from 'drizzle-orm';
import { LeaseLostError } from '../../core/errors.ts';
import { notifyOnCommit } from '../../platform/db/notifications.ts';
import { identifierSchema, type SessionKey } from '../../core/session.ts';
import type { Database, DatabasePool } from '../../platform/db/database.ts';
import type { Feature } from '../../platform/feature/feature.ts';
import { escapeJson } from '../../platform/json-escape.ts';
import { webhookDeliveries, webhooks } from '../../platform/db/schema/schema.ts';
import { fitsPage, fromJsonRow, type JsonRow, newestFirst } from '../../platform/db/sql.ts';
import { callFunction } from '../../platform/db/statement.ts';
import { endsJob, type Job, type JobLimits, jobOf, putsBackJob } from '../../platform/jobs/job-store.ts';
import type { Listed, ListPlace } from '../../platform/http/operation/cursor.ts';
import { isOnHold } from '../../conversation/holds/hold-store.ts';
import { isOneOfUsers } from '../../conversation/sessions/session-row.ts';
import { DELIVERY_JOB, type WebhookKey, type WebhookRow } from './webhook-store.ts';

/**
 * Maximum waiting deliveries per user and application; further ones are dropped. It is reached if a receiver is down
 * for a day, during which deliveries are retried, and there is one each 86 seconds.
 */
export const MAX_PENDING_DELIVERIES = 1_000;

/** The result of an attempt to deliver. */
export interface DeliveryAnswer {
  at: string;
  attempt?: number | undefined;
  status?: number | undefined;
  body?: string | undefined;
  error?: string | undefined;
  durationMs?: number | undefined;
}

/** Channel that is notified when a delivery is due. The triggers that fill the outbox use the same name. */
export const WEBHOOKS_TOPIC = 'webhooks';

/** A delivery's row, with the time of the next attempt from the row of its job; null if the delivery has ended. */
export type DeliveryRow = typeof webhookDeliveries.$inferSelect & { nextAttemptTime: Date | null };

const d = webhookDeliveries;
const now = sql`statement_timestamp()`;
const RETRY_TIME = sql`interval '24 hours'`;

const isOfUser = ({ appName, userId }: Pick<SessionKey, 'appName' | 'userId'>) =>
  and(eq(d.appName, appName), eq(d.userId, userId));
const isItsWebhook = and(eq(webhooks.appName, d.appName), eq(webhooks.userId, d.userId), eq(webhooks.id, d.webhookId));
const isForWebhook = (webhook: WebhookKey) => and(isOfUser(webhook), eq(d.webhookId, webhook.id));
const isDelivery = (delivery: DeliveryRow) => and(isOfUser(delivery), eq(d.id, delivery.id));
const job = jobOf(DELIVERY_JOB, d);
const deliveryColumns = {
  ...getTableColumns(d),
  attempt: sql`coalesce(${job.attempt}, ${d.attempt})`.mapWith(d.attempt),
  nextAttemptTime: job.nextTime,
};

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

export interface ClaimedDelivery {
  job: Job;
  delivery: DeliveryRow;
  webhook: WebhookRow;
  /** Time of the claim by the database's clock. */
  now: Date;
}

/** Limits per host and per user, over all processes. No host gets all slots of a user. */
export const toJobLimits = ({ perHost, perUser }: { perHost: number; perUser: number }): JobLimits => ({
  user: perUser,
  lane: perHost,
  pair: Math.max(1, perUser - 1),
});

/** What `delivery_work` returns of a claimed job: rows of tables as JSON. */
interface DeliveryWork {
  delivery: JsonRow;
  webhook: JsonRow;
  now: string;
}

export function toClaimedDelivery(claimed: Job): ClaimedDelivery {
  const { delivery, webhook, now: time } = claimed.work as DeliveryWork;
  return {
    job: claimed,
    delivery: { ...fromJsonRow(d, delivery), nextAttemptTime: null },
    webhook: fromJsonRow(webhooks, webhook),
    now: new Date(time),
  };
}

const lost = () => new LeaseLostError('The delivery is sent by another process.');
const answersColumn = (answers: DeliveryAnswer[]) => sql.param(answers, d.answers);

/**
 * Ends a claimed delivery and its job.
 * @throws {LeaseLostError} if another process has claimed the delivery, which then stays unchanged
 */
export async function endDelivery(
  db: Database,
  { delivery, job: held }: Claimed,
  status: 'delivered' | 'failed',
  answers: DeliveryAnswer[],
): Promise<void> {
  const { rowCount } = await db.execute(sql`
    with locked as materialized (${lockDelivery(delivery)}),
    ended as materialized (select ${endsJob(DELIVERY_JOB, held)} is not null as is_held from locked)
    update ${d} set status = ${status}, attempt = ${held.attempt}, answers = ${answersColumn(answers)}, end_time = ${now}
    from ended where ended.is_held and ${isDelivery(delivery)}`);
  if (rowCount === 0) throw lost();
}

/**
 * Puts the job of a claimed delivery back for the next attempt. Ends the delivery as failed if its time for retries
 * would be over by then.
 * @throws {LeaseLostError} if another process has claimed the delivery, which then stays unchanged
 */
export async function postponeDelivery(
  db: Database,
  { delivery, job: held }: Claimed,
  pauseMs: number,
  answers: DeliveryAnswer[],
): Promise<'postponed' | 'failed'> {
  const isOver = sql`${now} + ${pauseMs} * interval '1 millisecond' > locked.retry_end_time`;
  const { rows } = await db.execute<{ status: string }>(sql`
    with locked as materialized (${lockDelivery(delivery)}),
    put_back as materialized (
      select ${isOver} as is_over,
             case when ${isOver} then ${endsJob(DELIVERY_JOB, held)} is not null
                  else ${putsBackJob(DELIVERY_JOB, held, pauseMs, sql`locked.is_silent`)} end as is_held
      from locked)
    update ${d} set
      answers = ${answersColumn(answers)}, status = case when is_over then 'failed' else 'pending' end,
      attempt = ${held.attempt}, end_time = case when is_over then ${now} end
    from put_back where put_back.is_held and ${isDelivery(delivery)}
    returning ${d.status} as status`);
  const [row] = rows;
  if (!row) throw lost();
  return row.status === 'failed' ? 'failed' : 'postponed';
}

type Claimed = Pick<ClaimedDelivery, 'delivery' | 'job'>;

/** Locks a webhook, its delivery and, after both, the job, in the order of a deletion. */
const lockDelivery = (delivery: DeliveryRow) => sql`
  select ${d.retryEndTime}, ${webhooks.isSilent} from ${d} join ${webhooks} on ${isItsWebhook}
  where ${isDelivery(delivery)} for share of ${webhooks} for update of ${d}`;

/** Returns a page of a webhook's deliveries after a position. The newest comes first; equal times are ordered by id. */
export async function listDeliveries(
  db: Database,
  webhook: WebhookKey,
  limit: number,
  { status, after }: { status: DeliveryRow['status'] | undefined; after: ListPlace | undefined },
): Promise<Listed<DeliveryRow>[]> {
  const { place, order, isAfter } = newestFirst(d.createTime, d.id);
  const fits = fitsPage(order, d.payload);
  const payload = sql`case when ${fits} then ${d.payload} else '{}' end`.mapWith(d.payload);
  return db
    .select({ ...deliveryColumns, payload, place, fits })
    .from(d)
    .leftJoin(job.table, job.on)
    .where(and(isForWebhook(webhook), status && eq(d.status, status), isAfter(after)))
    .orderBy(order)
    .limit(limit);
}

export async function findDelivery(db: Database, webhook: WebhookKey, id: string): Promise<DeliveryRow | undefined> {
  const [delivery] = await db
    .select(deliveryColumns)
    .from(d)
    .leftJoin(job.table, job.on)
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
      retryEndTime: sql`${now} + ${RETRY_TIME}`,
      endTime: null,
    })
    .where(and(isDelivery(delivery), inArray(d.status, ['delivered', 'failed'])));
  await notifyOnCommit(tx, WEBHOOKS_TOPIC);
}

/** Deletes deliveries about these sessions, waiting ones included, and webhooks of A2A clients for their tasks. */
async function deleteSessionDeliveries(tx: Database, keys: readonly SessionKey[]): Promise<void> {
  await tx.delete(webhooks).where(isOneOfUsers(keys, webhooks, sql`${webhooks.push} ->> 'sessionId'`));
  await tx.delete(d).where(isOneOfUsers(keys, d, sql`${d.payload}::json #>> '{data,sessionId}'`));
}

/** Number of deliveries that one statement deletes. */
const BATCH = 10_000;

/** Deletes deliveries that ended more than `days` ago, or are beyond a webhook's newest `count`, in batches. */
export async function deleteOldDeliveries(
  db: Database,
  days: number,
  count: number,
  signal?: AbortSignal,
): Promise<void> {
  const old = sql`
    select app_name, user_id, id from (
      select ${d.appName}, ${d.userId}, ${d.id}, ${d.endTime},
             row_number() over (partition by ${d.appName}, ${d.userId}, ${d.webhookId}
                                order by ${d.createTime} desc) as place
      from ${d} where ${d.endTime} is not null) ended
    where (end_time < ${now} - ${days} * interval '1 day' or place > ${count})
      and not ${isOnHold({ appName: sql`ended.app_name`, userId: sql`ended.user_id` })}
    limit ${BATCH}`;
  const isOld = sql`(${d.appName}, ${d.userId}, ${d.id}) in (${old})`;
  while (!signal?.aborted && (await db.delete(d).where(isOld)).rowCount === BATCH);
}

/** Number of days for which an ended delivery is stored, so that its owner can see why it failed. */
const DELIVERY_DAYS = 7;
/** Maximum number of stored ended deliveries of a webhook. */
const MAX_KEPT = 1_000;

/** What the database sends to webhooks. `src/features/webhooks` lets users register them, and sends. */
export const outboxFeature = {
  name: 'outbox',
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
} satisfies Feature<{ database: DatabasePool }>;
