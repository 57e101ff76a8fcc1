import { setTimeout as sleep } from 'node:timers/promises';
import { runAsSystem } from '../../platform/context.ts';
import { ConflictError } from '../../core/errors.ts';
import { EVALUATION_JOB, freeTopic, sessionTopic, stopTopic } from '../../core/names.ts';
import type { Database, DatabasePool } from '../../platform/db/database.ts';
import { deleteUserJobs } from '../../platform/jobs/job-store.ts';
import type { Notifications } from '../../platform/db/notifications.ts';
import { listHolds } from '../../conversation/holds/hold-store.ts';
import { insertDelivery } from '../../invocations/webhooks/delivery-store.ts';
import { findWebhook } from '../../invocations/webhooks/webhook-store.ts';
import { countRunning, requestStopOfUser } from '../../invocations/invocation-store.ts';
import { deleteUserStorage } from '../../conversation/storage/storage-store.ts';
import type { Log } from '../../platform/log.ts';
import type { Counts, User, UserCopies, UserTable } from '../../platform/feature/feature.ts';
import { addCounts, endErasure, listAbandonedErasures, markErasure } from './erasure-store.ts';
import { countRows, deleteRows, placeTables } from './user-tables.ts';

export interface EraseContext {
  database: DatabasePool;
  notifications: Notifications;
  log: Log;
  userTables: readonly UserTable[];
  userCopies: readonly UserCopies<never>[];
  signal?: AbortSignal | undefined;
}

export interface Erasure {
  /** `running`: the time slice of the request is over; the next request, or the sweeper, continues. */
  status: 'done' | 'running';
  /** Numbers of deleted rows since the erasure began, by table; `app_states` counts keys, `objects` stored files. */
  counts: Counts;
}

/** Maximum number of rows that a statement deletes. The number is small, because row locks must be short. */
const BATCH_ROWS = 1_000;
/** Maximum number of rows per statement for tables whose deletions cascade to other tables. */
const SMALL_BATCH_ROWS = 100;
/** Maximum time that the erasure waits for cancelled invocations; then it deletes sessions even while they run. */
const STOP_WAIT_MS = 5_000;
const STOP_LOOK_MS = 100;
/** Seconds without progress after which an erasure counts as abandoned: longer than clients pause between retries. */
const ABANDONED_SECONDS = 60;
const ABANDONED_AT_ONCE = 10;
/** Maximum time that a request spends on an erasure. It is below the timeouts of common proxies. */
const SLICE_MS = 20_000;
/** Deletes one batch of a user's data. @returns the number of deleted rows by table; all zero if nothing is left */
type Step = (context: EraseContext, user: User) => Promise<Counts>;

export async function countUserData(
  { database, userTables, userCopies }: Pick<EraseContext, 'database' | 'userTables' | 'userCopies'>,
  user: User,
): Promise<Counts> {
  const db = database.reads;
  const counts: Counts = {};
  for (const { count } of userCopies) add(counts, (await count?.(db, user)) ?? {});
  for (const table of placeTables(userTables)) add(counts, { [table.name]: await countRows(db, user, table) });
  return withoutZeros(counts);
}

/**
 * To erase a user, new data are refused and invocations cancelled first. Then rows are deleted in small batches,
 * until a pass over all tables finds none. An erasure may be interrupted at any time and repeated. The delivery to the
 * webhook is stored in the transaction that ends the erasure.
 * @throws {ConflictError} if the user or a session of the user is on legal hold
 */
export async function eraseUser(context: EraseContext, user: User, webhookId?: string): Promise<Erasure> {
  const { database, log } = context;
  const until = performance.now() + SLICE_MS;
  await begin(database, user, webhookId);
  await stopInvocations(context, user);
  for (let isClean = false; !isClean; ) {
    const { rows, isOver } = await passOver(context, user, until);
    if (isOver) return { status: 'running', counts: await addCounts(database.db, user, {}) };
    isClean = rows === 0;
  }
  await runAsSystem(() => deleteUserStorage(database.db, user));
  // Cases of evaluation runs delete their jobs themselves: a run that began meanwhile would lose them and never end.
  await deleteUserJobs(database.db, user, EVALUATION_JOB);
  const end = async (tx: Database) => {
    const erasure = await endErasure(tx, user);
    const webhook = erasure.webhookId === null ? undefined : await findWebhook(tx, erasure.webhookId, undefined);
    if (webhook) await insertDelivery(tx, webhook, 'user.erased', { ...user, counts: erasure.counts });
    return erasure.counts;
  };
  const counts = await runAsSystem(() => database.transaction(end));
  log.info({ counts }, 'a user was erased');
  return { status: 'done', counts };
}

/** Continues each abandoned erasure, as long as one request would. @throws the first error, after all were tried */
export async function continueErasures(context: EraseContext): Promise<void> {
  const users = await listAbandonedErasures(context.database.db, ABANDONED_SECONDS, ABANDONED_AT_ONCE);
  const results = [];
  for (const user of users)
    if (!context.signal?.aborted) results.push(...(await Promise.allSettled([eraseUser(context, user)])));
  const failure = results.find((result) => result.status === 'rejected');
  if (failure) throw failure.reason;
}

async function begin(database: DatabasePool, user: User, webhookId?: string): Promise<void> {
  const isMarked = await database.transaction(async (tx) => {
    if (await findHold(tx, user)) return false;
    await markErasure(tx, user, webhookId);
    return true;
  });
  if (!isMarked) await endErasure(database.db, user);
  await refuseOnHold(database.db, user);
}

const findHold = async (db: Database, { appName, userId }: User) =>
  (await listHolds(db, appName, { userId, limit: 1 }))[0];

async function refuseOnHold(db: Database, user: User): Promise<void> {
  const hold = await findHold(db, user);
  if (!hold) return;
  const what = hold.sessionId === null ? 'The user' : `Session ${hold.sessionId} of the user`;
  throw new ConflictError(`${what} is on legal hold and cannot be erased: ${hold.reason}`);
}

async function stopInvocations({ database: { db }, notifications, signal }: EraseContext, user: User): Promise<void> {
  for (const { sessionId, invocationId } of await requestStopOfUser(db, user)) {
    const key = { ...user, sessionId };
    for (const topic of [stopTopic(invocationId), sessionTopic(key), freeTopic(key)]) notifications.publish(topic);
  }
  const until = performance.now() + STOP_WAIT_MS;
  const isOver = () => performance.now() > until || signal?.aborted;
  while ((await countRunning(db, user)) > 0 && !isOver()) await sleep(STOP_LOOK_MS);
}

async function passOver(context: EraseContext, user: User, until: number): Promise<{ rows: number; isOver: boolean }> {
  let rows = 0;
  for (const step of listSteps(context)) {
    for (let batch = 1; batch > 0; rows += batch) {
      // Refuses a user on legal hold. Triggers do so only for the user's own rows, not for copies in evaluations,
      // stored responses and keys of the application's state.
      await refuseOnHold(context.database.db, user);
      const counts = await step(context, user);
      batch = Object.values(counts).reduce((sum, count) => sum + count, 0);
      if (batch > 0) await addCounts(context.database.db, user, withoutZeros(counts));
      if (performance.now() > until || context.signal?.aborted) return { rows, isOver: true };
    }
  }
  return { rows, isOver: false };
}

/** An erasure's steps: first copies of the user's data, then the user's tables, each before those that it references. */
const listSteps = ({ userTables, userCopies }: EraseContext): Step[] => [
  ...userCopies.map((each) => each.erase as Step),
  ...placeTables(userTables)
    .toReversed()
    .map((table): Step => {
      const limit = table.cascades ? SMALL_BATCH_ROWS : BATCH_ROWS;
      const remove: Step = async ({ database }, user) => ({
        [table.name]: await deleteRows(database.db, user, table, limit),
      });
      return table.isOperators ? (context, user) => runAsSystem(() => remove(context, user)) : remove;
    }),
];

const withoutZeros = (counts: Counts): Counts =>
  Object.fromEntries(Object.entries(counts).filter(([, count]) => count > 0));

function add(counts: Counts, more: Counts): void {
  for (const [name, count] of Object.entries(more)) counts[name] = (counts[name] ?? 0) + count;
}
