import { type SQL, sql } from 'drizzle-orm';
import type { AnyPgColumn, PgTable } from 'drizzle-orm/pg-core';
import { getKey } from './sql.ts';

/** Rows of one statement: short enough never to hold locks for long. */
const BATCH_ROWS = 1_000;

/**
 * The condition for the next rows to delete or update: those that meet `condition`, by a column that has an index.
 * They are chosen by key, since a cluster has no other name for a row of another node and cannot lock rows of many;
 * so `condition` is looked at again where a row was changed meanwhile.
 */
export function isInBatch(table: PgTable, condition: SQL, orderBy: AnyPgColumn): SQL {
  const key = sql.join(getKey(table), sql`, `);
  return sql`(${key}) in (
    select ${key} from ${table} where ${condition} order by ${orderBy} limit ${BATCH_ROWS}) and ${condition}`;
}

/** Repeats a statement that changes one batch until one is not full, or `signal` aborts. @returns how many rows. */
export async function inBatches(
  statement: () => Promise<{ rowCount: number | null }>,
  signal?: AbortSignal,
): Promise<number> {
  for (let total = 0; ; ) {
    const { rowCount } = await statement();
    total += rowCount ?? 0;
    if ((rowCount ?? 0) < BATCH_ROWS || signal?.aborted) return total;
  }
}
