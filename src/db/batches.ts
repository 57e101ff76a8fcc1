import { type SQL, sql } from 'drizzle-orm';
import type { AnyPgColumn, PgTable } from 'drizzle-orm/pg-core';

/** Rows of one statement: short enough never to hold locks for long. */
const BATCH_ROWS = 1_000;

/**
 * The condition that picks the next rows to delete or update: those that meet `condition`, in the order of a column
 * that has an index, without those that somebody else has locked.
 */
export const isInBatch = (table: PgTable, condition: SQL, orderBy: AnyPgColumn): SQL => sql`ctid = any(array(
  select ctid from ${table} where ${condition} order by ${orderBy} limit ${BATCH_ROWS} for update skip locked))`;

/**
 * Repeats a statement that changes one batch until there is no full one any more. @returns how many rows there were.
 */
export async function inBatches(statement: () => Promise<{ rowCount: number | null }>): Promise<number> {
  for (let total = 0; ; ) {
    const { rowCount } = await statement();
    total += rowCount ?? 0;
    if ((rowCount ?? 0) < BATCH_ROWS) return total;
  }
}
