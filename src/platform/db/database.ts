import { drizzle, type NodePgDatabase } from 'drizzle-orm/node-postgres';
import { Pool, type PoolClient, type PoolConfig, type QueryConfig } from 'pg';
import { currentContext } from '../context.ts';
import { isPassingFailure } from '../../core/errors.ts';
import { chargeShare, pace } from '../work/fair-share.ts';
import { shareNextRun } from '../work/single-flight.ts';
import { listServers } from './connection.ts';
import { connectionSettings, limitsOf, type PoolOptions } from './pool-options.ts';
import { toConfig } from './query-config.ts';
import { repeated, sqlState } from './repeated.ts';
import { Replica } from './replica.ts';
import type { RowLimits } from './row-limits.ts';
import { beginFor, type Limits, needsLimits, queryFor } from './row-security.ts';
import { hasOnePlan } from './statement-names.ts';
import { readOnlyServer, ServerChoice, ServerClient } from './server-client.ts';
import { CALLER_SHARE, Turns } from './turns.ts';

/**
 * A pool or a transaction: the first argument of every store function; `isOnCluster`: the pool of one (user-node.ts).
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
  readonly $client: { query(statement: QueryConfig): Promise<{ rows: unknown[] }> };
};

/** The connections of this process to its database. */
export interface DatabasePool {
  db: Database;
  /** A slice of the connections for plain reads: they answer while invocations use up all others. */
  reads: Database;
  /**
   * Position in the primary's log that no change before the call is behind, or `undefined` where it cannot be had;
   * absent where there is no replica. Whoever calls at once shares one statement.
   */
  findPosition?: () => Promise<string | undefined>;
  /** One statement of a library that brings its own SQL. */
  query(statement: { name?: string; text: string; values?: unknown[] }): Promise<{ rows: unknown[] }>;
  /** Runs `work` in one transaction and commits; any throw rolls back. It runs again after a deadlock. */
  transaction<T>(work: (tx: Database) => Promise<T>): Promise<T>;
  /** How the connections are used right now, for metrics. */
  use(): PoolUse[];
  close(): Promise<void>;
}

/** The connections of one of the two pools: open ones, those of them that nobody uses, and callers who wait. */
export interface PoolUse {
  pool: 'main' | 'reads' | 'replica';
  open: number;
  idle: number;
  waiting: number;
}

const READ_SHARE = 0.25;
/** How much longer than the server's own time-out we wait for the error that it sends. */
const CLIENT_SLACK_MS = 1_000;
/** Every connection ends at that age, so that none stays with a server that the address no longer leads to. */
const MAX_LIFETIME_SECONDS = 300;
/** Read-only, and a server that shuts down or promotes: this connection will not do any work again. */
const MOVED = /^(?:25006|57P0\d)$/;
/** pg-pool 3's error when all connections stay lent out for too long; it has no code. */
const NO_FREE_CONNECTION = 'timeout exceeded when trying to connect';

/** Opens the pools; nothing connects before the first query. @throws {ConfigError} for a URL that is none. */
export function openDatabase(options: PoolOptions): DatabasePool {
  const forReads = Math.max(1, Math.floor(options.size * READ_SHARE));
  const servers = new ServerChoice(listServers(options, connectionSettings(options)));
  const main = openPool(options, servers, Math.max(1, options.size - forReads), false);
  const reads = openPool(options, servers, forReads, true);
  const replica = openReplica(options);
  reads.replica = replica;
  const position = async () => {
    const { rows } = await reads.query<{ position: string }>('select pg_current_wal_insert_lsn()::text as position');
    return rows[0]?.position;
  };
  return {
    db: toDatabase(main, options, options.isOnCluster),
    reads: toDatabase(reads, options, options.isOnCluster),
    ...(replica && { findPosition: shareNextRun(() => position().catch(() => undefined)) }),
    query: (statement) => main.query(statement),
    transaction: (work) => repeated(() => transaction(main, options, work)),
    use: () => [main.use(), reads.use(), ...(replica ? [{ pool: 'replica' as const, ...replica.use() }] : [])],
    close: async () => void (await Promise.all([main.end(), reads.end(), replica?.close()])),
  };
}

const toDatabase = (client: Pool | PoolClient, limits: RowLimits, isOnCluster = false): Database =>
  Object.assign(drizzle({ client }), { limits, isOnCluster });

const configOf = (options: PoolOptions, max: number) =>
  ({
    max,
    maxLifetimeSeconds: MAX_LIFETIME_SECONDS,
    connectionTimeoutMillis: options.connectTimeoutMs,
    // The server's own time-outs say nothing when the network swallows what either side sends.
    query_timeout: options.statementTimeoutMs + CLIENT_SLACK_MS,
    keepAlive: true,
    application_name: 'agent-runtime',
  }) satisfies PoolConfig;

function openReplica(options: PoolOptions): Replica | undefined {
  if (!options.replica) return undefined;
  const [server] = listServers(options.replica, connectionSettings(options));
  return new Replica(server, configOf(options, options.size), options);
}

function openPool(options: PoolOptions, servers: ServerChoice, max: number, isForReads: boolean): ServerPool {
  const config = configOf(options, max);
  const pool = new ServerPool(config, servers, isForReads, options, limitsOf(options));
  // Without a listener an idle connection that breaks ends the process (node-postgres#2439).
  pool.on('error', (error: Error) => {
    // While it ends, its connections may outlive it by a moment: an embedded server that stops then breaks them.
    if (!pool.ending) options.onIdleError(error);
  });
  return pool;
}

/**
 * A pool that follows the primary: its connections are to the server that was found to take writes. It repeats a
 * statement after a deadlock or the like: that was a transaction of its own, so nothing of it is left.
 */
class ServerPool extends Pool {
  readonly #servers: ServerChoice;
  readonly #use: 'main' | 'reads';
  readonly security: Limits;
  /** Statements of one caller do not make all others wait: connections are lent to callers by turns. */
  readonly #turns: Turns;
  readonly #onLent: PoolOptions['onLent'];
  /** Where reads go first. */
  replica: Replica | undefined;

  constructor(
    config: PoolConfig & { max: number; connectionTimeoutMillis: number },
    servers: ServerChoice,
    isForReads: boolean,
    { preparesStatements: namesStatements, onLent }: PoolOptions,
    security: Limits,
  ) {
    super({
      ...config,
      // The pool makes its connections with this; each is to the server that is the choice by then.
      Client: class extends ServerClient {
        constructor(given: PoolConfig = {}) {
          super({ ...given, ...servers.current, namesStatements });
        }
      },
    });
    this.#servers = servers;
    this.#use = isForReads ? 'reads' : 'main';
    this.security = security;
    this.#onLent = onLent;
    this.#turns = new Turns({
      max: config.max,
      maxShared: Math.max(isForReads ? 1 : 2, Math.floor(config.max * CALLER_SHARE)),
      pace,
      timeoutMs: config.connectionTimeoutMillis,
      timeoutMessage: NO_FREE_CONNECTION,
    });
  }

  // drizzle calls `query(config, values)` and awaits it; pg's many other overloads are not used.
  override query = (async (...args: unknown[]) => {
    const config = toConfig(args);
    return (await this.replica?.query(config)) ?? repeated(() => this.#queryOnce(config));
  }) as Pool['query'];

  /**
   * A connection, to give back with `release`. One to a server that is read-only serves reads while there is no other,
   * and never a write. @throws what the last server answered.
   */
  async lend(): Promise<LentClient> {
    const caller = currentContext().caller;
    const startedAt = performance.now();
    const end = await this.#turns.take();
    try {
      const client = await this.#connectToPrimary();
      this.#onLent?.(this.#use, (performance.now() - startedAt) / 1000);
      const release = client.release.bind(client);
      const before = client.bytesMoved;
      client.release = (mustEnd) => {
        chargeShare(caller, client.bytesMoved - before);
        release(mustEnd);
        end();
      };
      return client;
    } catch (error) {
      end();
      throw error;
    }
  }

  use(): PoolUse {
    return { pool: this.#use, open: this.totalCount, idle: this.idleCount, waiting: this.#turns.waiting };
  }

  async #connectToPrimary(): Promise<LentClient> {
    let readOnly: LentClient | undefined;
    let failure: unknown;
    for (let tries = 0; tries < this.#servers.count; tries++) {
      const server = this.#servers.current;
      try {
        const client = (await this.connect()) as LentClient;
        if (!client.isReadOnly) {
          readOnly?.release(true);
          return client;
        }
        failure = readOnlyServer();
        if (this.#use === 'reads' && !readOnly) readOnly = client;
        else client.release(true);
      } catch (error) {
        failure = error;
        // That no connection became free says nothing about the server.
        if ((error as Error).message === NO_FREE_CONNECTION) break;
      }
      this.#servers.leave(server);
    }
    if (readOnly) return readOnly;
    throw failure;
  }

  async #queryOnce(config: QueryConfig): Promise<unknown> {
    const client = await this.lend();
    let mustEnd = true;
    try {
      const result = await this.#send(client, config);
      // The next read looks for the primary again.
      mustEnd = client.isReadOnly;
      return result;
    } finally {
      client.release(mustEnd);
    }
  }

  #send(client: LentClient, config: QueryConfig): Promise<unknown> {
    const userId = currentContext().userId;
    const isFixed = hasOnePlan(config);
    return needsLimits(userId, this.security, isFixed)
      ? queryFor(client, userId, this.security, config, { isFixed })
      : client.query(config);
  }
}

type LentClient = PoolClient & Pick<ServerClient, 'isReadOnly' | 'bytesMoved'>;

/**
 * One transaction on one connection. Not drizzle's own `transaction`: in 0.45.4 it loses the connection for good when
 * BEGIN fails and hides the first error when ROLLBACK fails (drizzle-orm#6023, #6241). A connection whose state is
 * unsure is closed.
 */
async function transaction<T>(pool: ServerPool, limits: RowLimits, work: (tx: Database) => Promise<T>): Promise<T> {
  const client = await pool.lend();
  let unsure = true;
  try {
    const userId = currentContext().userId;
    await client.query(needsLimits(userId, pool.security, false) ? beginFor(userId, pool.security) : 'begin');
    try {
      const result = await work(toDatabase(client, limits));
      await client.query('commit');
      unsure = false;
      return result;
    } catch (error) {
      // A connection that is gone rolls back by itself; to ask it would take another time-out.
      if (sqlState(error) === undefined && isPassingFailure(error)) throw error;
      await client.query('rollback').then(
        () => (unsure = MOVED.test(sqlState(error)?.code ?? '')),
        () => undefined,
      );
      throw error;
    }
  } finally {
    client.release(unsure);
  }
}

/**
 * Awaits a statement; a violation of the named constraint (an expected conflict) becomes the error that `toError`
 * makes.
 */
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
