import { and, eq, inArray, lt, sql } from 'drizzle-orm';
import { inBatches, isInBatch } from '../../platform/db/batches.ts';
import type { Database } from '../../platform/db/database.ts';
import { escapeText, unescapeText } from '../../platform/db/json-escape.ts';
import { NotFoundError } from '../../core/errors.ts';
import { type SessionKey, sessionNotFound } from '../../core/session.ts';
import { idempotencyKeys } from '../../platform/db/schema/schema.ts';
import { isAmong } from '../sessions/session-key.ts';

/** An idempotency key with its owner and the hash of its request. */
export interface IdempotencyKey {
  /** Application and user that the request is about; empty where it is about none. */
  appName: string;
  userId: string;
  /** Operation and caller. */
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
 * Reserves a key in a transaction; while it lasts another request with the key waits here. Two statements where it is
 * not fresh.
 * @returns what was kept for the key before; `undefined` where it is fresh.
 * @throws {NotFoundError} where the session that it was about has been deleted.
 */
export async function reserveKey(
  tx: Database,
  key: IdempotencyKey,
): Promise<{ hash: string; answer: string } | undefined> {
  const { hash: requestHash, ...named } = key;
  const reserved = await tx
    .insert(idempotencyKeys)
    .values({ ...named, requestHash, responseBody: '' })
    .onConflictDoNothing()
    .returning({ key: idempotencyKeys.key });
  if (reserved.length === 1) return undefined;
  const [kept] = await tx
    .select({
      hash: idempotencyKeys.requestHash,
      answer: idempotencyKeys.responseBody,
      sessionId: idempotencyKeys.sessionId,
    })
    .from(idempotencyKeys)
    .where(isKey(key));
  // A kept answer is JSON, and so never empty.
  if (kept?.answer === '') throw new NotFoundError(sessionNotFound(kept.sessionId ?? ''));
  return kept && { hash: kept.hash, answer: unescapeText(kept.answer) };
}

/** Keeps the answer of a reserved key, with the session that it is about: it is forgotten with that. */
export async function keepAnswer(
  tx: Database,
  key: IdempotencyKey,
  answer: string,
  sessionId: string | undefined,
): Promise<void> {
  await tx
    .update(idempotencyKeys)
    .set({ responseBody: escapeText(answer), sessionId: sessionId ?? null })
    .where(isKey(key));
}

/** Forgets the answers that are kept about sessions. Their keys stay: a late retry must not bring one back. */
export async function forgetKeptAnswers(tx: Database, keys: readonly SessionKey[]): Promise<void> {
  await tx.update(idempotencyKeys).set({ responseBody: '' }).where(isAmong(keys, idempotencyKeys));
}

/** The scope of keys of invocations whose session is gone: a trigger keeps them as their rows go. */
const OF_INVOCATIONS = 'invocation';

/** @throws {NotFoundError} where an invocation of a user had the key and went with its session */
export async function refuseForgottenKey(
  db: Database,
  { appName, userId }: Omit<SessionKey, 'sessionId'>,
  idempotencyKey: string,
): Promise<void> {
  const [kept] = await db
    .select({ sessionId: idempotencyKeys.sessionId })
    .from(idempotencyKeys)
    .where(isKey({ appName, userId, scope: OF_INVOCATIONS, key: idempotencyKey }));
  if (kept) throw new NotFoundError(sessionNotFound(kept.sessionId ?? ''));
}

/** Deletes the keys that are older than `hours`, with their answers, in short statements. */
export async function deleteOldKeys(db: Database, hours: number, signal?: AbortSignal): Promise<void> {
  const isOld = lt(idempotencyKeys.createTime, sql`statement_timestamp() - ${hours} * interval '1 hour'`);
  const isNext = isInBatch(idempotencyKeys, isOld, idempotencyKeys.createTime);
  await inBatches(() => db.delete(idempotencyKeys).where(isNext), signal);
}

/** Deletes the answers kept under no user whose operation names this one in its body. @returns how many */
export async function deleteAnswersNaming(
  db: Database,
  { appName, userId }: Pick<SessionKey, 'appName' | 'userId'>,
): Promise<number> {
  const { rowCount } = await db.delete(idempotencyKeys).where(namesUser(appName, userId));
  return rowCount ?? 0;
}

/** How many kept answers {@link deleteAnswersNaming} would delete. */
export const countAnswersNaming = (db: Database, user: Pick<SessionKey, 'appName' | 'userId'>): Promise<number> =>
  db.$count(idempotencyKeys, namesUser(user.appName, user.userId));

const namesUser = (appName: string, userId: string) =>
  and(
    inArray(idempotencyKeys.appName, [appName, '']),
    eq(idempotencyKeys.userId, ''),
    sql`strpos(${idempotencyKeys.responseBody}, ${escapeText(JSON.stringify(userId))}) > 0`,
  );
