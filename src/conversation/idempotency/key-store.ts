import { and, eq, inArray, lt, sql } from 'drizzle-orm';
import { inBatches, isInBatch } from '../../platform/db/batches.ts';
import type { Database } from '../../platform/db/database.ts';
import { NotFoundError } from '../../core/errors.ts';
import { type SessionKey, sessionNotFound } from '../../core/session.ts';
import { idempotencyKeys } from '../../platform/db/schema/schema.ts';
import { isAmong } from '../sessions/session-key.ts';

export interface IdempotencyKey {
  /** The application and the user that the request concerns; empty if there is none. */
  appName: string;
  userId: string;
  scope: string;
  key: string;
  hash: string;
}

const isKey = ({ appName, userId, scope, key }: Omit<IdempotencyKey, 'hash'>) =>
  and(
    eq(idempotencyKeys.appName, appName),
    eq(idempotencyKeys.userId, userId),
    eq(idempotencyKeys.scope, scope),
    eq(idempotencyKeys.key, key),
  );

/**
 * Reserves an idempotency key until the transaction ends; a concurrent request with the same key waits here.
 * @returns the stored response, or `undefined` for a new key
 * @throws {NotFoundError} if the session of the stored response was deleted
 */
export async function reserveKey(
  tx: Database,
  key: IdempotencyKey,
): Promise<{ hash: string; answer: string } | undefined> {
  const { hash: requestHash, ...columns } = key;
  const reserved = await tx
    .insert(idempotencyKeys)
    .values({ ...columns, requestHash, responseBody: '' })
    .onConflictDoNothing()
    .returning({ key: idempotencyKeys.key });
  if (reserved.length === 1) return undefined;
  const [row] = await tx
    .select({
      hash: idempotencyKeys.requestHash,
      answer: idempotencyKeys.responseBody,
      sessionId: idempotencyKeys.sessionId,
    })
    .from(idempotencyKeys)
    .where(isKey(key));
  // The response was cleared with its session; a stored response is JSON and never empty.
  if (row?.answer === '') throw new NotFoundError(sessionNotFound(row.sessionId ?? ''));
  return row && { hash: row.hash, answer: row.answer };
}

/** Stores the response for a reserved key. It is cleared when session `sessionId` is deleted. */
export async function keepAnswer(
  tx: Database,
  key: IdempotencyKey,
  answer: string,
  sessionId: string | undefined,
): Promise<void> {
  await tx
    .update(idempotencyKeys)
    .set({ responseBody: answer, sessionId: sessionId ?? null })
    .where(isKey(key));
}

/** Clears responses about deleted sessions; the keys stay, so that a late retry cannot re-create a session. */
export async function forgetAnswers(tx: Database, keys: readonly SessionKey[]): Promise<void> {
  await tx.update(idempotencyKeys).set({ responseBody: '' }).where(isAmong(keys, idempotencyKeys));
}

/**
 * Scope of the idempotency keys of deleted invocations. A trigger inserts a key when an invocation's row is deleted.
 */
const OF_INVOCATIONS = 'invocation';

/** Refuses an idempotency key of a deleted invocation. @throws {NotFoundError} if there was one with this key */
export async function refuseForgottenKey(
  db: Database,
  { appName, userId }: Omit<SessionKey, 'sessionId'>,
  idempotencyKey: string,
): Promise<void> {
  const [row] = await db
    .select({ sessionId: idempotencyKeys.sessionId })
    .from(idempotencyKeys)
    .where(isKey({ appName, userId, scope: OF_INVOCATIONS, key: idempotencyKey }));
  if (row) throw new NotFoundError(sessionNotFound(row.sessionId ?? ''));
}

export async function deleteOldKeys(db: Database, hours: number, signal?: AbortSignal): Promise<void> {
  const isOld = lt(idempotencyKeys.createTime, sql`statement_timestamp() - ${hours} * interval '1 hour'`);
  const isNext = isInBatch(idempotencyKeys, isOld, idempotencyKeys.createTime);
  await inBatches(() => db.delete(idempotencyKeys).where(isNext), signal);
}

/** Deletes stored responses to requests that name the user in the body, not in the path. @returns their number */
export async function deleteAnswersNaming(
  db: Database,
  { appName, userId }: Pick<SessionKey, 'appName' | 'userId'>,
): Promise<number> {
  const { rowCount } = await db.delete(idempotencyKeys).where(namesUser(appName, userId));
  return rowCount ?? 0;
}

export const countAnswersNaming = (db: Database, user: Pick<SessionKey, 'appName' | 'userId'>): Promise<number> =>
  db.$count(idempotencyKeys, namesUser(user.appName, user.userId));

const namesUser = (appName: string, userId: string) =>
  and(
    inArray(idempotencyKeys.appName, [appName, '']),
    eq(idempotencyKeys.userId, ''),
    sql`strpos(${idempotencyKeys.responseBody}, ${sql.param(JSON.stringify(userId), idempotencyKeys.responseBody)}) > 0`,
  );
