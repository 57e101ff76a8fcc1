import { setTimeout as sleep } from 'node:timers/promises';
import { sql } from 'drizzle-orm';
import { runAsSystem } from '../../platform/context.ts';
import { deleteVersionsInObjects } from '../../conversation/artifacts/artifact-store.ts';
import type { ContentStore } from '../../conversation/artifacts/content-store.ts';
import { ConflictError } from '../../core/errors.ts';
import { freeTopic, sessionTopic, stopTopic } from '../../core/names.ts';
import { type CredentialContext, deleteGrants } from '../../conversation/credentials/credentials.ts';
import type { Database, DatabasePool } from '../../platform/db/database.ts';
import type { Notifications } from '../../platform/db/notifications.ts';
import { listHolds } from '../../conversation/holds/hold-store.ts';
import { countAnswersNaming, deleteAnswersNaming } from '../../conversation/idempotency/key-store.ts';
import { insertDelivery } from '../../invocations/webhooks/delivery-store.ts';
import { findWebhook } from '../../invocations/webhooks/webhook-store.ts';
import { forgetInTasks } from '../../invocations/waits/task-store.ts';
import { countRunning, requestStopOfUser } from '../../invocations/invocation-store.ts';
import { countAppStateKeys, deleteAppStateKeys } from '../../conversation/sessions/user-data-store.ts';
import { deleteUserStorage } from '../../conversation/storage/storage-store.ts';
import { deleteSession } from '../../conversation/sessions/session-store.ts';
import { deleteSessionSpans } from '../../observability/traces/span-store.ts';
import type { Tracing } from '../../observability/traces/tracing.ts';
import type { SessionKey } from '../../core/session.ts';
import { addCounts, type Counts, endErasure, listLeftErasures, markErasure } from './erasure-store.ts';
import { countRows, deleteRows, OPERATORS_TABLES, type User, USER_TABLES } from './user-tables.ts';

/** Finds and deletes what evaluation holds of a user. */
interface EvaluationData {
  countEvaluations(db: Database, user: User): Promise<Counts>;
  /** Deletes a batch; of the sessions that these cases of runs made, the caller deletes the rest. */
  deleteRunCases(tx: Database, user: User): Promise<{ count: number; sessions: SessionKey[] }>;
  deleteEvaluations(tx: Database, user: User): Promise<Counts>;
}

/** The parts of the process that an erasure uses. */
export interface EraseContext extends CredentialContext {
  evaluations: EvaluationData;
  contentStore: ContentStore;
  notifications: Notifications;
  tracing?: Tracing | undefined;
  /** Cuts an erasure off after the batch under way. */
  signal?: AbortSignal | undefined;
}

/** The progress of an erasure. */
export interface Erasure {
  /** `running`: the time for one request is over; the next one goes on, or the sweeper does. */
  status: 'done' | 'running';
  /** Rows deleted since it began, by table; `app_states` counts keys, `objects` those of a bucket. */
  counts: Counts;
}

/** Rows of one statement: short enough never to hold locks for long. */
const BATCH_ROWS = 1_000;
/** Rows that take others with them. */
const SMALL_BATCH_ROWS = 100;
const OBJECTS_AT_ONCE = 10;
const CASCADING = new Set(['sessions', 'invocations', 'artifacts', 'cronjobs', 'webhooks']);
/** How long running invocations get to end after they were cancelled; later they find that their session is gone. */
const STOP_WAIT_MS = 5_000;
const STOP_LOOK_MS = 100;
/** Seconds after which an erasure counts as cut off, longer than a client that repeats its request pauses. */
const LEFT_SECONDS = 60;
const LEFT_AT_ONCE = 10;
/** Time of one slice, shorter than the time-outs of common proxies. */
const SLICE_MS = 20_000;
/** Deletes one batch. @returns the rows by table; none where nothing is left */
type Step = (context: EraseContext, user: User) => Promise<Counts>;

/** Counts the rows that an erasure would delete, by table. Changes nothing. */
export async function countUserData(
  context: Pick<EraseContext, 'database' | 'evaluations'>,
  user: User,
): Promise<Counts> {
  const db = context.database.reads;
  const counts: Counts = await runAsSystem(() => context.evaluations.countEvaluations(db, user));
  for (const table of USER_TABLES) add(counts, { [table.name]: await countRows(db, user, table) });
  add(counts, { idempotency_keys: await countAnswersNaming(db, user), app_states: await countAppStateKeys(db, user) });
  return withoutZeros(counts);
}

/**
 * Erases a user from every table and the object store: no new data is taken, running invocations are cancelled, then
 * rows go in short statements, until a pass over all tables finds none. It can be cut off at any place and repeated;
 * when its time is over it answers `running`. A webhook is told of the end, in the transaction that ends it.
 * @throws {ConflictError} where something of the user is on legal hold
 */
export async function eraseUser(context: EraseContext, user: User, webhookId?: string): Promise<Erasure> {
  const { database, tracing, log } = context;
  const until = performance.now() + SLICE_MS;
  await begin(database, user, webhookId);
  await stopInvocations(context, user);
  for (let isClean = false; !isClean; ) {
    // Spans that this process has not stored yet would come after the deletion.
    await tracing?.flush();
    const { rows, isOver } = await passOver(context, user, until);
    if (isOver) return { status: 'running', counts: await addCounts(database.db, user, {}) };
    isClean = rows === 0;
  }
  await runAsSystem(() => deleteUserStorage(database.db, user));
  const end = async (tx: Database) => {
    const ended = await endErasure(tx, user);
    const webhook = ended.webhookId === null ? undefined : await findWebhook(tx, ended.webhookId, undefined);
    if (webhook) await insertDelivery(tx, webhook, 'user.erased', { ...user, counts: ended.counts });
    return ended.counts;
  };
  const counts = await runAsSystem(() => database.transaction(end));
  log.info({ counts }, 'a user was erased');
  return { status: 'done', counts };
}

/** Goes on with erasures that were cut off, a slice each. @throws the first failure, after all were tried */
export async function goOnErasing(context: EraseContext): Promise<void> {
  const left = await listLeftErasures(context.database.db, LEFT_SECONDS, LEFT_AT_ONCE);
  const results = [];
  for (const user of left)
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
  for (const step of STEPS) {
    for (let batch = 1; batch > 0; rows += batch) {
      // Copies, kept answers and `app:` keys have no trigger that looks.
      await refuseOnHold(context.database.db, user);
      const counts = await step(context, user);
      batch = Object.values(counts).reduce((sum, count) => sum + count, 0);
      if (batch > 0) await addCounts(context.database.db, user, withoutZeros(counts));
      if (performance.now() > until || context.signal?.aborted) return { rows, isOver: true };
    }
  }
  return { rows, isOver: false };
}

/**
 * Deletes copies that evaluation made, with the sessions in which its runs repeated them. As the system, since runs of
 * other users are among them, whose rows a key that is bound to this user does not see.
 */
const deleteCopies: Step = ({ database, evaluations }, user) =>
  runAsSystem(() =>
    database.transaction(async (tx) => {
      const { count, sessions } = await evaluations.deleteRunCases(tx, user);
      for (const key of sessions) await deleteSession(tx, key);
      await deleteSessionSpans(tx, sessions);
      return count > 0 ? { eval_run_cases: count } : evaluations.deleteEvaluations(tx, user);
    }),
  );

/**
 * Rows, and before their commit their objects: what is cut off finds its objects named by rows when it is repeated, and
 * a hold waits until both are gone, however long the object store takes.
 */
const deleteObjects: Step = ({ database, contentStore }, user) =>
  database.transaction(async (tx) => {
    const keys = await deleteVersionsInObjects(tx, user, OBJECTS_AT_ONCE);
    if (keys.length === 0) return {};
    await tx.execute(sql`set local idle_in_transaction_session_timeout = 0`);
    await contentStore.remove(keys);
    return { objects: keys.length, artifact_versions: keys.length };
  });

/** The steps of an erasure: copies elsewhere, then the tables of users, those first that nothing refers to. */
const STEPS: readonly Step[] = [
  deleteCopies,
  async ({ database }, user) => ({ idempotency_keys: await deleteAnswersNaming(database.db, user) }),
  ({ database }, user) =>
    runAsSystem(() => database.transaction(async (tx) => ({ app_states: await deleteAppStateKeys(tx, user) }))),
  ({ database }, user) => runAsSystem(async () => ({ tasks: await forgetInTasks(database.db, user) })),
  deleteObjects,
  // Revoked at their issuers first.
  async (context, user) => ({ user_credentials: await deleteGrants(context, user) }),
  ...USER_TABLES.toReversed().map((table): Step => {
    const limit = CASCADING.has(table.name) ? SMALL_BATCH_ROWS : BATCH_ROWS;
    const remove: Step = async ({ database }, user) => ({
      [table.name]: await deleteRows(database.db, user, table, limit),
    });
    return OPERATORS_TABLES.has(table.name) ? (context, user) => runAsSystem(() => remove(context, user)) : remove;
  }),
];

const withoutZeros = (counts: Counts): Counts =>
  Object.fromEntries(Object.entries(counts).filter(([, count]) => count > 0));

function add(counts: Counts, more: Counts): void {
  for (const [name, count] of Object.entries(more)) counts[name] = (counts[name] ?? 0) + count;
}
