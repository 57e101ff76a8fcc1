import { sql } from 'drizzle-orm';
import type { Database } from '../db/database.ts';
import { fromText, toText } from '../db/json-escape.ts';

/** Whose key it is, the key, and the hash of the request it came with. */
export interface IdempotencyKey {
  scope: string;
  key: string;
  hash: string;
}

/**
 * Reserves a key in a transaction; while it lasts another request with the key waits here.
 * @returns what was kept for the key before; `undefined` where it is fresh.
 */
export async function reserveKey(
  tx: Database,
  { scope, key, hash }: IdempotencyKey,
): Promise<{ hash: string; answer: string } | undefined> {
  const { rows } = await tx.execute(sql`
    insert into idempotency_keys (scope, key, request_hash, answer) values (${scope}, ${key}, ${hash}, '')
    on conflict do nothing returning key`);
  if (rows.length === 1) return undefined;
  const found = await tx.execute<{ request_hash: string; answer: string }>(
    sql`select request_hash, answer from idempotency_keys where scope = ${scope} and key = ${key}`,
  );
  const row = found.rows[0];
  return row && { hash: row.request_hash, answer: fromText(row.answer) };
}

/** Keeps the answer of a reserved key. */
export async function keepAnswer(tx: Database, { scope, key }: IdempotencyKey, answer: string): Promise<void> {
  await tx.execute(sql`update idempotency_keys set answer = ${toText(answer)} where scope = ${scope} and key = ${key}`);
}
