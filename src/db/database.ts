import { drizzle, type NodePgDatabase } from 'drizzle-orm/node-postgres';
import { DatabaseError, Pool } from 'pg';

/** A pool or a transaction: the first argument of every store function. */
export type Database = NodePgDatabase;

/** The pool with what closes it. */
export interface DatabasePool {
  db: Database;
  /** Runs `work` in one transaction and commits; any throw rolls back. */
  transaction<T>(work: (tx: Database) => Promise<T>): Promise<T>;
  close(): Promise<void>;
}

/** How the pool behaves. */
export interface PoolOptions {
  url: string;
  /** Most connections of this process. */
  size: number;
  /** Longest one statement may take. */
  statementTimeoutMs: number;
  /** Longest wait for a row lock. */
  lockTimeoutMs: number;
  /** Longest wait for a free connection, and for a new one to open. */
  connectTimeoutMs: number;
  /** An idle connection broke; the pool has dropped it and goes on. */
  onIdleError: (error: Error) => void;
}

/** Opens a pool; nothing connects before the first query. */
export function openDatabase(options: PoolOptions): DatabasePool {
  const pool = new Pool({
    connectionString: options.url,
    max: options.size,
    statement_timeout: options.statementTimeoutMs,
    lock_timeout: options.lockTimeoutMs,
    idle_in_transaction_session_timeout: 10_000,
    connectionTimeoutMillis: options.connectTimeoutMs,
    application_name: 'agent-runtime',
  });
  // Without a listener an idle connection that breaks ends the process (node-postgres#2439).
  pool.on('error', options.onIdleError);
  return {
    db: drizzle({ client: pool }),
    transaction: (work) => transaction(pool, work),
    close: () => pool.end(),
  };
}

/**
 * One transaction on one connection. Not drizzle's own `transaction`: in 0.45.4 it loses the connection for good when BEGIN
 * fails and hides the first error when ROLLBACK fails (drizzle-orm#6023, #6241). A connection whose state is unsure is closed.
 */
async function transaction<T>(pool: Pool, work: (tx: Database) => Promise<T>): Promise<T> {
  const client = await pool.connect();
  let unsure = true;
  try {
    await client.query('begin');
    try {
      const result = await work(drizzle({ client }));
      await client.query('commit');
      unsure = false;
      return result;
    } catch (error) {
      await client.query('rollback').then(
        () => (unsure = false),
        () => undefined,
      );
      throw error;
    }
  } finally {
    client.release(unsure);
  }
}

/** SQLSTATE and constraint of a failed statement, wherever drizzle put the driver's error; `undefined` for any other error. */
export function sqlState(error: unknown): { code: string; constraint: string | undefined } | undefined {
  for (let at = error; at instanceof Error; at = at.cause) {
    if (at instanceof DatabaseError && at.code) return { code: at.code, constraint: at.constraint };
  }
  return undefined;
}

/** Awaits a statement; a violation of the named constraint (an expected conflict) becomes the error that `toError` makes. */
export async function onConflict<T>(statement: Promise<T>, constraint: string, toError: () => Error): Promise<T> {
  try {
    return await statement;
  } catch (error) {
    if (sqlState(error)?.constraint === constraint) throw toError();
    throw error;
  }
}
