import type { DatabasePool } from '../../platform/db/database.ts';
import { KeyReusedError } from '../../core/errors.ts';
import { type IdempotencyKey, keepAnswer, reserveKey } from './key-store.ts';

/**
 * Does a request once per key: the work, its key and its answer are one transaction, so that a retry finds all of it
 * or nothing. The work gets the transaction in place of the pool. A request that fails leaves the key free.
 * `sessionOf` says which session an answer is about: it is forgotten with that.
 * @throws {KeyReusedError} when the key came with another request before.
 */
export function doOnce(
  database: DatabasePool,
  key: IdempotencyKey,
  sessionOf: (answer: string) => string | undefined,
  work: (inside: DatabasePool) => Promise<string>,
): Promise<string> {
  return database.transaction(async (tx) => {
    const kept = await reserveKey(tx, key);
    if (kept && kept.hash !== key.hash) throw new KeyReusedError('the Idempotency-Key was used for another request');
    if (kept) return kept.answer;
    const inside = {
      ...database,
      db: tx,
      reads: tx,
      transaction: <T>(more: (db: typeof tx) => Promise<T>) => more(tx),
    };
    const answer = await work(inside);
    await keepAnswer(tx, key, answer, sessionOf(answer));
    return answer;
  });
}
