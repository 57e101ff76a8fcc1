import { sql } from 'drizzle-orm';
import type { Database, DatabasePool } from '../../../platform/db/database.ts';
import { type ChosenSession, listChosenSessions } from '../../../conversation/sessions/choose-sessions.ts';

/** Time that a predicate of an operator may take: it may read every event. */
const TIMEOUT_MS = 10_000;

/**
 * The sessions of an application for which a predicate in SQL is true, last updated first; `s` is the row of
 * `sessions`. For the operator's command line alone: nothing that came over HTTP may get here. It is one expression of
 * one statement, in a transaction that can only read and that has a time limit.
 * @throws the error of PostgreSQL for a predicate that does not hold.
 */
export function listSessionsWhere(
  database: DatabasePool,
  { appName, predicate, limit }: { appName: string; predicate: string; limit: number },
): Promise<ChosenSession[]> {
  const list = async (tx: Database) => {
    await tx.execute(sql`set transaction read only`);
    await tx.execute(sql.raw(`set local statement_timeout = ${TIMEOUT_MS}`));
    // The line feed ends a comment. A second statement is refused: this one has parameters.
    return listChosenSessions(tx, { appName, limit, also: [sql`(${sql.raw(predicate)}\n)`] });
  };
  return database.transaction(list, { holdData: true });
}
