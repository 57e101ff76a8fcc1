import { and, asc, eq, gt, sql } from 'drizzle-orm';
import { getSession, isSession } from '../../conversation/sessions/session-row.ts';
import type { JsonObject } from '../../core/content.ts';
import type { SessionKey } from '../../core/session.ts';
import type { Database } from '../../platform/db/database.ts';
import { escapeJson } from '../../platform/json-escape.ts';
import { signals, tasks } from '../../platform/db/schema/schema.ts';
import { callFunction } from '../../platform/db/statement.ts';
import { TASK_COLUMNS, type TaskRow } from './task-store.ts';

const MAX_KEPT = 100;

export async function findWaitingTask(db: Database, key: SessionKey, name: string): Promise<TaskRow | undefined> {
  const ofUser = getSession(tasks, key.userId);
  const [row] = await db
    .select(TASK_COLUMNS)
    .from(tasks)
    .leftJoin(ofUser.table, ofUser.on)
    .where(and(isSession(key, tasks), eq(tasks.signalName, name), eq(tasks.state, 'open')))
    .orderBy(asc(tasks.createTime), asc(tasks.id))
    .limit(1);
  return row;
}

/** Finds a task by the hash of its public token; `undefined` if the token has expired. */
export async function findTaskByToken(db: Database, tokenHash: string): Promise<TaskRow | undefined> {
  const session = getSession(tasks);
  const [row] = await db
    .select(TASK_COLUMNS)
    .from(tasks)
    .leftJoin(session.table, session.on)
    .where(and(eq(tasks.tokenHash, tokenHash), gt(tasks.tokenExpireTime, sql`statement_timestamp()`)))
    .limit(1);
  return row;
}

/**
 * Stores a signal for a task that does not exist yet. `null` groups: the operator vouches for the signal. Stores
 * nothing if the session is absent, a task already waits, or the session has the maximum number of stored signals.
 */
export async function keepSignal(
  db: Database,
  { appName, userId, sessionId }: SessionKey,
  name: string,
  payload: JsonObject,
  groups: readonly string[] | null,
): Promise<'absent' | 'waiting' | 'full' | 'kept'> {
  const { outcome } = await callFunction<{ outcome: 'absent' | 'waiting' | 'full' | 'kept' }>(db, 'keep_signal', {
    p_app: appName,
    p_user: userId,
    p_session: sessionId,
    p_name: name,
    p_payload: escapeJson(payload),
    p_groups: groups,
    p_max: MAX_KEPT,
  });
  return outcome;
}

/** A stored signal. `groups` are the groups of the user who sent it; `null`: the operator vouches for the signal. */
interface KeptSignal {
  payload: JsonObject;
  groups: string[] | null;
}

/** Deletes and returns the oldest stored signal of a name. Must run in a transaction. */
export async function takeSignal(tx: Database, key: SessionKey, name: string): Promise<KeptSignal | undefined> {
  const oldest = tx
    .select({ id: signals.id })
    .from(signals)
    .where(and(isSession(key, signals), eq(signals.name, name)))
    .orderBy(asc(signals.createTime), asc(signals.id))
    .limit(1)
    .for('update');
  const [row] = await tx
    .delete(signals)
    .where(and(isSession(key, signals), eq(signals.id, sql`(${oldest})`)))
    .returning({ payload: signals.payload, groups: signals.senderGroups });
  return row as KeptSignal | undefined;
}
