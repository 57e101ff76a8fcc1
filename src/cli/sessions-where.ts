import { sql } from 'drizzle-orm';
import type { Database, DatabasePool } from '../platform/db/database.ts';
import { type ChosenSession, listChosenSessions } from '../conversation/sessions/choose-sessions.ts';

/** Time limit of a query with an operator's predicate, because the predicate may read every event. */
const TIMEOUT_MS = 10_000;

/**
 * Only for the operator's command line: a predicate must never come from an HTTP request, because it is embedded in the
 * statement as SQL. It refers to the row of `sessions` as `s`, and runs in a read-only transaction with a time limit.
 * @throws PostgreSQL's error if the predicate is invalid.
 */
export function listSessionsWhere(
  database: DatabasePool,
  { appName, predicate, limit }: { appName: string; predicate: string; limit: number },
): Promise<ChosenSession[]> {
  const list = async (tx: Database) => {
    await tx.execute(sql`set transaction read only`);
    await tx.execute(sql.raw(`set local statement_timeout = ${TIMEOUT_MS}`));
    // The line feed ends an SQL comment of the predicate. The parameters let PostgreSQL refuse a second statement.
    return listChosenSessions(tx, { appName, limit, also: [sql`(${sql.raw(predicate)}\n)`] });
  };
  return database.transaction(list, { holdData: true });
}
