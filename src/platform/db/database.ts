import { drizzle, type NodePgDatabase } from 'drizzle-orm/node-postgres';
import type { Pool, QueryConfig, QueryResult } from 'pg';
import { isPassingFailure } from '../../core/errors.ts';
import { ServerChoice, sqlState } from './client.ts';
import { listServers } from './connection.ts';
import { connectionSettings, type PoolOptions, type RowLimits, settingsFor } from './pool-options.ts';
import { PrimaryPool, type PrimaryPoolOptions, withRepeats } from './pool.ts';

/**
 * A pool or a transaction, the first argument of every store function. `isOnCluster`: the database is distributed.
 *
 * Statements on one table use the query builder; `sql` is for CTEs, JSON text, lateral joins and the queue. There,
 * write tables and columns as `${events}` and `${events.sessionId}`, so that a renamed column fails to compile;
 * `sql.ts` has helpers where SQL requires unqualified names. Only the feature that owns a table may name it
 * (test/unit/table-owners.test.ts); it exports SQL fragments for others.
 */
export type Database = NodePgDatabase & {
  readonly limits: RowLimits;
  readonly isOnCluster?: boolean;
  readonly $client: { query: Send };
};

type Query = (statement: QueryConfig) => Promise<QueryResult>;
/** Like {@link Query}; drizzle passes the values separately. */
type Send = (statement: QueryConfig, values?: unknown[]) => Promise<QueryResult>;

interface Texts {
  /** True: the texts contain data, as SQL written by an operator may, so their plans are not cached. Default: false. */
  holdData?: boolean;
}

export interface DatabasePool {
  db: Database;
  /** Separate connections for plain reads, so that reads are answered while invocations use all other connections. */
  reads: Database;
  /** Runs a statement of a library that writes its own SQL. The text must contain no data. */
  query: Query;
  /** Runs `work` in a transaction, which rolls back if `work` throws. Retries after a deadlock. */
  transaction<T>(work: (tx: Database) => Promise<T>, texts?: Texts): Promise<T>;
  use(): PoolUse[];
  close(): Promise<void>;
}

/** Usage of a connection pool: open connections, how many of them are idle, and waiting callers. */
interface PoolUse {
  pool: 'main' | 'reads';
  open: number;
  idle: number;
  waiting: number;
}

const READ_SHARE = 0.25;
/** Margin of the client's time-out over the server's, in milliseconds, so that the server's error arrives first. */
const CLIENT_SLACK_MS = 1_000;
/** Maximum age of a connection, so that it does not stay with a server to which the host name no longer resolves. */
const MAX_LIFETIME_SECONDS = 300;
/** SQLSTATEs after which a connection must be closed: read-only transaction, server shutdown. */
const MOVED = /^(?:25006|57P0\d)$/;

/** Opens the pools; the first query connects. @throws {ConfigError} for an invalid URL */
export function openDatabase(options: PoolOptions): DatabasePool {
  const forReads = Math.max(1, Math.floor(options.size * READ_SHARE));
  const forWrites = Math.max(1, options.size - forReads);
  const servers = new ServerChoice(listServers(options, connectionSettings(options)));
  const main = new PrimaryPool(poolOptions(options, forWrites, 'main'), servers);
  const reads = new PrimaryPool(poolOptions(options, forReads, 'reads'), servers, { acceptsReadOnly: true });
  return {
    db: toDatabase(main, options, options.isOnCluster),
    reads: toDatabase(reads, options, options.isOnCluster),
    query: (statement) => main.query(statement),
    transaction: (work, texts) => withRepeats(() => transaction(main, options, work, texts)),
    use: () => [
      { pool: 'main', ...main.use() },
      { pool: 'reads', ...reads.use() },
    ],
    close: async () => void (await Promise.all([main.end(), reads.end()])),
  };
}

/** @param client - has the one member that drizzle uses */
const toDatabase = (client: { query: Send }, limits: RowLimits, isOnCluster = false): Database =>
  Object.assign(drizzle({ client: client as unknown as Pool & { query: Send } }), { limits, isOnCluster });

export const poolOptions = (options: PoolOptions, max: number, name?: 'main' | 'reads'): PrimaryPoolOptions => ({
  config: {
    max,
    maxLifetimeSeconds: MAX_LIFETIME_SECONDS,
    connectionTimeoutMillis: options.connectTimeoutMs,
    // The client's time-out, in addition to the server's, because a network failure may swallow all messages.
    query_timeout: options.statementTimeoutMs + CLIENT_SLACK_MS,
    keepAlive: true,
    application_name: 'agent-runtime',
  },
  settings: settingsFor(options),
  preparesStatements: options.preparesStatements,
  onIdleError: name ? options.onIdleError : () => undefined,
  name,
  onLent: options.onLent,
});

/**
 * Runs a transaction, and closes the connection if its state is uncertain. Drizzle's `transaction` (0.45.4) leaks the
 * connection if BEGIN fails and hides the first error if ROLLBACK fails (drizzle-orm#6023, #6241).
 * @param signal - ends the wait for a connection
 */
export async function transaction<T>(
  pool: PrimaryPool,
  limits: RowLimits,
  work: (tx: Database) => Promise<T>,
  { holdData = false }: Texts = {},
  signal?: AbortSignal,
): Promise<T> {
  const { client, release } = await pool.lend(signal);
  let unsure = true;
  try {
    await pool.begin(client);
    try {
      const query: Send = (statement, values = statement.values ?? []) => {
        const whole = { ...statement, values };
        return client.query(holdData ? whole : pool.named(client, whole));
      };
      const result = await work(toDatabase({ query }, limits));
      await client.query('commit');
      // The transaction is committed, so a later failure of the connection is ignored.
      await pool.clear(client).then(
        () => (unsure = false),
        () => undefined,
      );
      return result;
    } catch (error) {
      // No ROLLBACK on a lost connection: the server rolls back by itself, and a query would wait for another time-out.
      if (sqlState(error) === undefined && isPassingFailure(error)) throw error;
      await client
        .query('rollback')
        .then(() => pool.clear(client))
        .then(
          () => (unsure = MOVED.test(sqlState(error)?.code ?? '')),
          () => undefined,
        );
      throw error;
    }
  } finally {
    release(unsure);
  }
}

/** Throws the error of `toError` if the statement violates the named constraint, an expected conflict. */
export async function onConflict<T>(statement: Promise<T>, constraint: string, toError: () => Error): Promise<T> {
  try {
    return await statement;
  } catch (error) {
    if (violatedConstraint(error) === constraint) throw toError();
    throw error;
  }
}

/**
 * Returns the violated constraint. Citus omits it for other nodes; then the message has its name with a shard number.
 */
function violatedConstraint(error: unknown): string | undefined {
  const state = sqlState(error);
  return state?.constraint ?? /constraint "(\w+?)_\d+"$/.exec(state?.message ?? '')?.[1];
}
