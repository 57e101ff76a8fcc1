import { type SQL, sql } from 'drizzle-orm';
import type { AnyPgColumn, PgTable } from 'drizzle-orm/pg-core';
import { getKey } from './sql.ts';

/** Maximum number of rows per statement, so that locks are held only briefly. */
const BATCH_ROWS = 1_000;

/**
 * SQL condition that selects the next batch of rows that meet `condition`, ordered by an indexed column. Rows are
 * selected by primary key, because a distributed database has no other row id and cannot lock rows on many nodes.
 * `condition` is checked again on the selected rows, because they may have changed meanwhile.
 */
export function isInBatch(table: PgTable, condition: SQL, orderBy: AnyPgColumn): SQL {
  const key = sql.join(getKey(table), sql`, `);
  return sql`(${key}) in (
    select ${key} from ${table} where ${condition} order by ${orderBy} limit ${BATCH_ROWS}) and ${condition}`;
}

/** Repeats a statement until a batch is not full or `signal` aborts. @returns the number of changed rows */
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
