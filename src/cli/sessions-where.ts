import { sql } from 'drizzle-orm';
import { processEnvironment } from '../config/environment.ts';
import { type ChosenSession, listChosenSessions } from '../conversation/sessions/session-list.ts';
import type { Database, DatabasePool } from '../platform/db/database.ts';
import { createLog } from '../platform/log.ts';
import { readConfig } from '../process/config.ts';
import { findDatabase, migrate, openPool } from '../process/open-database.ts';
import { CommandError } from './output.ts';

/**
 * Chooses sessions by a predicate in SQL. The database is that of the settings, which must be the service's.
 * @throws {CommandError} with exit code 2 if the predicate fails
 */
export async function chooseSessions(predicate: string, appName: string, limit: number) {
  const config = readConfig(processEnvironment());
  const source = await findDatabase(config);
  try {
    await migrate(source.access, 'check');
    const database = await openPool(config, source.access.serving, createLog('silent'));
    try {
      const chosen = await listSessionsWhere(database, { appName, predicate, limit });
      return chosen.map(({ userId, sessionId }) => ({ userId, sessionId }));
    } catch (error) {
      throw new CommandError(`--where: ${toReason(error)}.`, 2);
    } finally {
      await database.close();
    }
  } finally {
    await source.stop();
  }
}

/** Returns PostgreSQL's error message, which the query builder's error has as its cause. */
function toReason(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause instanceof Error ? toReason(error.cause) : error.message;
}

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
