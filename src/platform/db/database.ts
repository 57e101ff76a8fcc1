import { drizzle, type NodePgDatabase } from 'drizzle-orm/node-postgres';
import type { Pool, QueryConfig, QueryResult } from 'pg';
import { isPassingFailure } from '../../core/errors.ts';
import { shareNextRun } from '../work/single-flight.ts';
import { ServerChoice, sqlState } from './client.ts';
import { listServers } from './connection.ts';
import { connectionSettings, type PoolOptions, type RowLimits, settingsFor } from './pool-options.ts';
import { PrimaryPool, type ServerPoolOptions, withRepeats } from './pool.ts';
import { Replica } from './replica.ts';

/**
 * A pool or a transaction: the first argument of every store function; `isOnCluster`: the pool of one.
 *
 * Statements on one table are made with the query builder. `sql` is for what the builder has no words for: CTEs, JSON
 * text, lateral pages, the queue. There tables and columns are written `${events}` and `${events.sessionId}`, so that
 * a renamed one does not compile; `sql.ts` has what stands where SQL takes bare names. Only the feature that owns a
 * table names it (test/unit/table-owners.test.ts); where another needs its rows, the owner exports a piece of SQL.
 */
export type Database = NodePgDatabase & {
  readonly limits: RowLimits;
  readonly isOnCluster?: boolean;
  /** The pool, or the connection of the transaction. */
  readonly $client: { query: Send };
};

type Query = (statement: QueryConfig) => Promise<QueryResult>;
/** As {@link Query}, with values that may stand apart, as drizzle gives them. */
type Send = (statement: QueryConfig, values?: unknown[]) => Promise<QueryResult>;

/** What the texts of statements are made of. */
interface Texts {
  /** True: also of data, such as SQL that an operator wrote. The server keeps no plans of these [false]. */
  holdData?: boolean;
}

/** The connections of this process to its database. */
export interface DatabasePool {
  db: Database;
  /** A slice of the connections for plain reads: they answer while invocations use up all others. */
  reads: Database;
  /**
   * Position in the primary's log that no change before the call is behind, or `undefined` where it cannot be had;
   * absent where there is no replica. Calls at the same time share one statement.
   */
  findPosition?: () => Promise<string | undefined>;
  /** Runs a statement of a library that brings its own SQL, whose text holds no data. */
  query: Query;
  /** Runs `work` in one transaction and commits; any throw rolls back. It runs again after a deadlock. */
  transaction<T>(work: (tx: Database) => Promise<T>, texts?: Texts): Promise<T>;
  /** The use of the connections right now, for metrics. */
  use(): PoolUse[];
  close(): Promise<void>;
}

/** The connections of one of the two pools: open ones, the idle ones of them, and the callers that wait. */
export interface PoolUse {
  pool: 'main' | 'reads' | 'replica';
  open: number;
  idle: number;
  waiting: number;
}

const READ_SHARE = 0.25;
/** Time that the process waits beyond the server's own time-out, for the error that the server sends. */
const CLIENT_SLACK_MS = 1_000;
/** Every connection ends at that age, so that none stays with a server that the address no longer leads to. */
const MAX_LIFETIME_SECONDS = 300;
/** Read-only, and a server that shuts down or promotes: this connection will not do any work again. */
const MOVED = /^(?:25006|57P0\d)$/;

/** Opens the pools; nothing connects before the first query. @throws {ConfigError} for a URL that is none. */
export function openDatabase(options: PoolOptions): DatabasePool {
  const forReads = Math.max(1, Math.floor(options.size * READ_SHARE));
  const forWrites = Math.max(1, options.size - forReads);
  const servers = new ServerChoice(listServers(options, connectionSettings(options)));
  const main = new PrimaryPool(poolOptions(options, forWrites, 'main'), servers);
  const reads = new PrimaryPool(poolOptions(options, forReads, 'reads'), servers, { acceptsReadOnly: true });
  const replica = openReplica(options);
  const position = async () => {
    const { rows } = await reads.query({ text: 'select pg_current_wal_insert_lsn()::text as position' });
    return (rows[0] as { position: string } | undefined)?.position;
  };
  const read: Query = replica
    ? async (statement) => (await replica.query(statement)) ?? reads.query(statement)
    : (statement) => reads.query(statement);
  return {
    db: toDatabase((statement) => main.query(statement), options, options.isOnCluster),
    reads: toDatabase(read, options, options.isOnCluster),
    ...(replica && { findPosition: shareNextRun(() => position().catch(() => undefined)) }),
    query: (statement) => main.query(statement),
    transaction: (work, texts) => withRepeats(() => transaction(main, options, work, texts)),
    use: () => [
      { pool: 'main', ...main.use() },
      { pool: 'reads', ...reads.use() },
      ...(replica ? [{ pool: 'replica' as const, ...replica.use() }] : []),
    ],
    close: async () => void (await Promise.all([main.end(), reads.end(), replica?.end()])),
  };
}

/** Makes drizzle's query builder send its statements by `query`. */
function toDatabase(query: Query, limits: RowLimits, isOnCluster = false): Database {
  const send: Send = (statement, values) => query(values === undefined ? statement : { ...statement, values });
  // drizzle asks nothing else of a client.
  const client = { query: send } as unknown as Pool & { query: Send };
  return Object.assign(drizzle({ client }), { limits, isOnCluster });
}

/** Returns how a pool of that size connects. */
export const poolOptions = (options: PoolOptions, max: number, name?: 'main' | 'reads'): ServerPoolOptions => ({
  config: {
    max,
    maxLifetimeSeconds: MAX_LIFETIME_SECONDS,
    connectionTimeoutMillis: options.connectTimeoutMs,
    // The server's own time-outs say nothing when the network swallows what either side sends.
    query_timeout: options.statementTimeoutMs + CLIENT_SLACK_MS,
    keepAlive: true,
    application_name: 'agent-runtime',
  },
  settings: settingsFor(options),
  preparesStatements: options.preparesStatements,
  onIdleError: name ? options.onIdleError : () => undefined,
  onLent: (seconds) => name && options.onLent?.(name, seconds),
});

function openReplica(options: PoolOptions): Replica | undefined {
  if (!options.replica) return undefined;
  const [server] = listServers(options.replica, connectionSettings(options));
  return new Replica(server, poolOptions(options, options.size));
}

/**
 * One transaction on one connection, which is closed when its state is unsure. Drizzle's own `transaction` (0.45.4)
 * loses the connection when BEGIN fails and hides the first error when ROLLBACK fails (drizzle-orm#6023, #6241).
 */
export async function transaction<T>(
  pool: PrimaryPool,
  limits: RowLimits,
  work: (tx: Database) => Promise<T>,
  { holdData = false }: Texts = {},
): Promise<T> {
  const { client, release } = await pool.lend();
  let unsure = true;
  try {
    await pool.begin(client);
    try {
      const send: Query = (statement) => client.query(holdData ? statement : pool.named(client, statement));
      const result = await work(toDatabase(send, limits));
      await client.query('commit');
      // What was committed stays so, whatever becomes of the connection.
      await pool.clear(client).then(
        () => (unsure = false),
        () => undefined,
      );
      return result;
    } catch (error) {
      // A connection that is gone rolls back by itself; to ask it would take another time-out.
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

/** Awaits a statement; a violation of the named constraint, an expected conflict, becomes the error of `toError`. */
export async function onConflict<T>(statement: Promise<T>, constraint: string, toError: () => Error): Promise<T> {
  try {
    return await statement;
  } catch (error) {
    if (violatedConstraint(error) === constraint) throw toError();
    throw error;
  }
}

/** Citus hands on no field with the constraint of another node, whose name has the number of the shard behind it. */
function violatedConstraint(error: unknown): string | undefined {
  const state = sqlState(error);
  return state?.constraint ?? /constraint "(\w+?)_\d+"$/.exec(state?.message ?? '')?.[1];
}
