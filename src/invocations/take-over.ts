import type { Log } from '../platform/log.ts';
import type { Notifications } from '../platform/db/notifications.ts';
import { freeTopic, QUEUE_TOPIC, sessionTopic } from '../core/names.ts';
import type { OverBudget } from '../conversation/budgets/budget.ts';
import type { Metrics } from '../platform/metrics.ts';
import type { Database, DatabasePool } from '../platform/db/database.ts';
import type { InvocationLimits } from './context.ts';
import { endingEvents, type InvocationError, stoppedMessage, type InvocationStatus } from './invocation.ts';
import { listInvocationEvents } from '../conversation/sessions/event-store.ts';
import { holdsSession, isSession, lockSession, releaseSession } from '../conversation/sessions/session-row.ts';
import type { SessionKey } from '../core/session.ts';
import {
  type DeadRun,
  findLockHolder,
  isAskedToStop,
  type Lease,
  type LeaseTimes,
  type LockHolder,
  putBack,
} from './lock-store.ts';
import { finishInvocation } from './finish-store.ts';
import { listKeptResponses } from './invocation-ledger.ts';
import { openBudgetTask } from './waits/task-store.ts';
import { type SQL, and, eq, isNull, lt, not, sql } from 'drizzle-orm';
import type { PgUpdateSetSource } from 'drizzle-orm/pg-core';
import { invocations } from '../platform/db/schema/schema.ts';

/** Returns the error of an invocation whose process died; `undefined` if another process may resume it. */
function toError(run: DeadRun, attempts: number): InvocationError | undefined {
  if (run.stopAs) return { code: run.stopAs, message: stoppedMessage(run.stopAs) };
  const died = (more: string) => ({
    code: 'interrupted' as const,
    message: `The invocation was interrupted: its process stopped before the answer${more}.`,
  });
  if (!run.hasRequest || attempts === 1) return died('');
  if (run.endsBecause !== null) return died(`, and ${run.endsBecause}`);
  return run.attempt < attempts ? undefined : died(`, which happened ${run.attempt} times`);
}

/** Back-off in milliseconds: none after the first death of a process, then exponential, as for a poison job. */
const toPause = ({ attempt }: DeadRun, { durationMs }: TakeOverContext['leaseTimes']) =>
  attempt === 1 ? 0 : durationMs * 2 ** (attempt - 1);

export interface TakeOverContext {
  database: DatabasePool;
  notifications: Pick<Notifications, 'publish'>;
  newId: () => string;
  metrics?: Metrics | undefined;
  limits: Pick<InvocationLimits, 'attempts'>;
  leaseTimes: Pick<LeaseTimes, 'durationMs'>;
}

/**
 * Takes a session from an invocation whose process is dead, and puts that back at the front of the queue. If it cannot
 * be resumed, its open calls get a response and it ends. One transaction locks the session row: only one process wins,
 * and the old one finds another token if it still tries to write.
 * @returns the holder of the session afterwards; `absent` also if `skipLocked` is set and the session row is locked
 */
export async function takeOver(
  context: TakeOverContext,
  key: SessionKey,
  { skipLocked = false } = {},
): Promise<LockHolder> {
  const { holder, wasDead } = await context.database.transaction((tx) => endIfDead(tx, context, key, skipLocked));
  if (!wasDead) return holder;
  context.metrics?.count('agent_runtime_lease_takeovers_total', {});
  context.notifications.publish(QUEUE_TOPIC);
  return holder;
}

/**
 * Any process may resume the invocation: at once or, with an exhausted budget, after a person has answered the budget's
 * task; at once too if it was asked to stop, because nobody ends a paused one. Does nothing if another process has taken
 * the invocation over.
 */
export async function leaveRun(
  { database, notifications, newId }: Pick<TakeOverContext, 'database' | 'notifications' | 'newId'>,
  lease: Lease,
  over?: OverBudget,
): Promise<void> {
  await database.transaction(async (tx) => {
    if (!(await lockSession(tx, lease.key))) return;
    const awaited = over && !(await isAskedToStop(tx, lease)) ? over : undefined;
    const isLeft = await putBack(tx, lease, newId(), { isHandedOver: true, isPaused: awaited !== undefined });
    if (awaited && isLeft) await openBudgetTask(tx, lease, awaited);
  });
  notifications.publish(QUEUE_TOPIC);
}

async function endIfDead(
  tx: Database,
  { newId, limits, leaseTimes, metrics }: TakeOverContext,
  key: SessionKey,
  skipLocked: boolean,
): Promise<{ holder: LockHolder; wasDead: boolean }> {
  const holder = await findLockHolder(tx, key, skipLocked);
  if (holder.kind !== 'dead') return { holder, wasDead: false };
  const { run, token } = holder;
  const free = { holder: { kind: 'free' }, wasDead: true } as const;
  if (!run) {
    await releaseSession(tx, key, token);
    return free;
  }
  const { invocationId } = run;
  const lease = { key, invocationId, token, durationMs: 0 };
  const error = toError(run, limits.attempts);
  if (!error) {
    await putBack(tx, lease, newId(), { pauseMs: toPause(run, leaseTimes) });
    return free;
  }
  const { code } = error;
  const events = await listInvocationEvents(tx, key, invocationId);
  const author = events.findLast((event) => event.author !== 'user')?.author ?? key.appName;
  const responses = await listKeptResponses(tx, key, invocationId);
  const ending = endingEvents(invocationId, author, events, error, newId, responses);
  const status = code === 'cancelled' ? code : 'interrupted';
  await finishInvocation(tx, lease, ending, { status, error, metrics, hasDeltas: true, revokesToken: true });
  return free;
}

interface EndingContext extends TakeOverContext {
  log: Log;
}

const PAGE_SIZE = 100;

/** Takes over all sessions of dead processes, but skips locked or unreadable ones until the next call. */
export async function takeOverAll(context: EndingContext): Promise<void> {
  // Ended invocations disappear from the list, so the offset of the next page is the number of skipped sessions.
  for (let skipped = 0; ; ) {
    const keys = await listDeadHolders(context.database.db, PAGE_SIZE, skipped);
    for (const key of keys) if (!(await takeOverOne(context, key))) skipped += 1;
    if (keys.length < PAGE_SIZE) return;
  }
}

async function takeOverOne(context: EndingContext, key: SessionKey): Promise<boolean> {
  const { notifications, log } = context;
  try {
    const holder = await takeOver(context, key, { skipLocked: true });
    if (holder.kind === 'absent') return false;
    for (const topic of [sessionTopic(key), freeTopic(key)]) notifications.publish(topic);
    return true;
  } catch (error) {
    log.error({ err: error, ...key }, 'the dead invocation of a session could not be taken over');
    return false;
  }
}

/** Error message of a queued invocation whose process died. Its idempotency key is freed for a retry. */
const STOPPED_WHILE_QUEUED = 'The invocation was interrupted: its process stopped before it began.';
/** Error message of an invocation with the status `running` whose session is held by another invocation. */
const LOST_ITS_SESSION = 'The invocation was interrupted: its process lost the session.';

const interrupted = (errorMessage: string) => ({
  status: 'interrupted' as const,
  endTime: sql`statement_timestamp()`,
  errorCode: 'interrupted',
  errorMessage,
});

const isDead = lt(invocations.leaseExpireTime, sql`statement_timestamp()`);

/**
 * Ends the dead invocations of a status that meet `more`, the longest dead first. Each has a statement of its own, because
 * a cluster loses what a statement of several nodes tells the coordinator: deliveries of webhooks and jobs.
 */
async function endDead(
  db: Database,
  status: InvocationStatus,
  more: SQL,
  values: PgUpdateSetSource<typeof invocations>,
): Promise<void> {
  const { appName, userId, sessionId, id, leaseToken, leaseExpireTime } = invocations;
  const hasDied = and(eq(invocations.status, status), isDead);
  for (;;) {
    const dead = await db
      .select({ appName, userId, sessionId, id, leaseToken })
      .from(invocations)
      .where(and(hasDied, more))
      .orderBy(leaseExpireTime)
      .limit(PAGE_SIZE);
    for (const { id: deadId, leaseToken: token, ...key } of dead)
      await db
        .update(invocations)
        .set(values)
        .where(and(isSession(key, invocations), eq(id, deadId), eq(leaseToken, token), hasDied));
    if (dead.length < PAGE_SIZE) return;
  }
}

/** Tells whether any lease has expired, and in how many milliseconds the next lease of a running invocation expires. */
export async function findDead(db: Database): Promise<{ isDue: boolean; nextMs: number }> {
  const { status, leaseExpireTime, request } = invocations;
  // Citus refuses `exists` with a subquery that selects no column.
  const exists = (condition: SQL) => sql`exists (select 1 from ${invocations} where ${condition})`;
  const running = sql`${status} = 'running'`;
  const { rows } = await db.execute<{ isDue: boolean; nextMs: number | null }>(sql`
    select ${exists(sql`${running} and ${isDead}`)}
             or ${exists(sql`${status} = 'queued' and ${request} is null and ${isDead}`)} as "isDue",
      (select 1000 * extract(epoch from min(${leaseExpireTime}) - statement_timestamp()) from ${invocations}
       where ${running} and not ${isDead})::float8 as "nextMs"`);
  return { isDue: rows[0]?.isDue === true, nextMs: Math.ceil(rows[0]?.nextMs ?? Infinity) + 1 };
}

/** Ends queued invocations whose process died; background ones stay queued, because they need no process. */
export async function endDeadWaiters(db: Database): Promise<void> {
  const values = { ...interrupted(STOPPED_WHILE_QUEUED), idempotencyKey: null };
  await endDead(db, 'queued', isNull(invocations.request), values);
}

/** Ends invocations with the status `running` whose session is held under another lease token. */
export async function endLostInvocations(db: Database): Promise<void> {
  const values = { ...interrupted(LOST_ITS_SESSION), request: null };
  await endDead(db, 'running', not(holdsSession(invocations)), values);
}

/** The sessions whose holder's process died, the longest dead first, without the first `offset`. */
function listDeadHolders(db: Database, limit: number, offset: number): Promise<SessionKey[]> {
  const { appName, userId, sessionId, leaseExpireTime } = invocations;
  return db
    .select({ appName, userId, sessionId })
    .from(invocations)
    .where(and(eq(invocations.status, 'running'), isDead, holdsSession(invocations)))
    .orderBy(leaseExpireTime, appName, userId, sessionId)
    .limit(limit)
    .offset(offset);
}
