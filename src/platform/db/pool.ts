import { setTimeout as sleep } from 'node:timers/promises';
import { Pool, type PoolClient, type PoolConfig, type QueryConfig, type QueryResult } from 'pg';
import { currentContext } from '../context.ts';
import { FairSemaphore } from '../work/fair-semaphore.ts';
import { EXACT_TYPES, readOnlyServer, type ServerChoice, ServerClient, sqlState } from './client.ts';
import type { ServerAddress } from './connection.ts';
import { beginFor, type SessionSettings } from './row-security.ts';

/** A connection that is lent, and the function that gives it back; `mustEnd` closes it. */
interface Loan {
  client: ServerClient;
  release: (mustEnd: boolean) => void;
}

/** How a pool connects, and what its statements run under. */
export interface ServerPoolOptions {
  config: PoolConfig & { max: number; connectionTimeoutMillis: number };
  settings: SessionSettings;
  /** True: the server keeps the plans of statements, by name. */
  preparesStatements: boolean;
  /** Called with the time that a caller waited for a connection. */
  onLent: (seconds: number) => void;
  /** Set where no caller may have more than its share: the error of one that waited too long. */
  busyText?: string;
  /** True: nothing of a session outlives its transaction, such as locks, temporary tables and what it listens to. */
  clears?: boolean;
  /** An idle connection broke; the pool has dropped it. */
  onIdleError: (error: Error) => void;
}

/** The error of node-postgres's pool for the same wait. */
const NO_FREE_CONNECTION = 'timeout exceeded when trying to connect';
/** Work of the process itself, which no caller asked for. */
const OF_PROCESS = '';

/** Connections that are lent to callers in turn. */
export class ServerPool {
  readonly #pool: Pool;
  readonly #places: FairSemaphore;
  readonly #options: ServerPoolOptions;

  /** @param nextServer returns the server that a new connection is opened to */
  constructor(options: ServerPoolOptions, nextServer: () => ServerAddress) {
    const { config, onIdleError } = options;
    this.#options = options;
    this.#pool = new Pool({
      ...config,
      types: EXACT_TYPES,
      // A statement goes with what limits it to a user in one round trip (row-security.ts).
      pipeline: true,
      Client: class extends ServerClient {
        constructor(given: PoolConfig = {}) {
          super({ ...given, ...nextServer() });
        }
      },
    });
    // Without a listener an idle connection that breaks ends the process (node-postgres#2439).
    this.#pool.on('error', (error: Error) => {
      // While it ends, its connections may outlive it by a moment: an embedded server that stops then breaks them.
      if (!this.#pool.ending) onIdleError(error);
    });
    this.#places = new FairSemaphore(config.max, {
      timeoutMs: config.connectionTimeoutMillis,
      message: options.busyText ?? NO_FREE_CONNECTION,
      isStrict: options.busyText !== undefined,
    });
  }

  /** Lends a connection once it is the caller's turn. @throws {Error} after too long a wait */
  async lend(): Promise<Loan> {
    const startedAt = performance.now();
    const leave = await this.#places.acquire(currentContext().caller ?? OF_PROCESS);
    try {
      const client = await this.connect();
      this.#options.onLent((performance.now() - startedAt) / 1000);
      const release = (mustEnd: boolean) => {
        client.release(mustEnd);
        leave();
      };
      return { client, release };
    } catch (error) {
      leave();
      throw error;
    }
  }

  /** Runs a statement on a connection that is closed where that failed, or where its server is `unfit` for the next. */
  protected async run(statement: QueryConfig, unfit: (client: ServerClient) => boolean, check?: string) {
    const { client, release } = await this.lend();
    let mustEnd = true;
    try {
      const result = await this.send(client, statement, check);
      mustEnd = unfit(client);
      return result;
    } finally {
      release(mustEnd);
    }
  }

  protected async connect(): Promise<PoolClient & ServerClient> {
    return (await this.#pool.connect()) as PoolClient & ServerClient;
  }

  /** Sends a statement under the settings of the pool, for the user that the work is limited to. */
  send(client: ServerClient, statement: QueryConfig, check?: string): Promise<QueryResult> {
    const { settings } = this.#options;
    const userId = settings.hasNoUsers ? undefined : currentContext().userId;
    const send = () => client.query(this.named(client, statement));
    if (userId === undefined && settings.local === undefined && check === undefined) return send();
    return sendInTransaction(client, beginFor(userId, settings, check, currentContext().groups), send);
  }

  /** Begins a transaction under the settings of the pool, for the user that the work is limited to. */
  async begin(client: ServerClient): Promise<void> {
    const { settings } = this.#options;
    const userId = settings.hasNoUsers ? undefined : currentContext().userId;
    await client.query(
      userId === undefined && settings.local === undefined
        ? 'begin'
        : beginFor(userId, settings, undefined, currentContext().groups),
    );
  }

  /** Ends what a transaction left with its session, where the pool wants that. @throws where the connection must end */
  async clear(client: ServerClient): Promise<void> {
    if (this.#options.clears) await client.query('discard all');
  }

  /**
   * Returns a statement with a name if the server is to keep its plan. Its text must hold no data, because a plan per
   * value serves nobody twice and shows the data in `pg_prepared_statements`. Texts of drizzle hold none: it makes each
   * value a parameter, and `sql.raw` gets constants only. Whoever makes SQL of data says so (`Texts` in database.ts).
   */
  named(client: ServerClient, statement: QueryConfig): QueryConfig {
    const { preparesStatements, settings } = this.#options;
    if (!preparesStatements || !statement.values?.length) return statement;
    const role = currentContext().userId === undefined ? '' : (settings.role ?? '');
    const name = client.preparedNames.use(role, statement.text);
    return name === undefined ? statement : { ...statement, name };
  }

  /** Returns the use of the connections right now, for metrics. */
  use(): { open: number; idle: number; waiting: number } {
    const { totalCount: open, idleCount: idle } = this.#pool;
    return { open, idle, waiting: this.#places.waiting };
  }

  end(): Promise<void> {
    return this.#pool.end();
  }
}

/** A pool that follows the primary: its connections are to the server that was found to take writes. */
export class PrimaryPool extends ServerPool {
  readonly #servers: ServerChoice;
  readonly #acceptsReadOnly: boolean;

  /** @param acceptsReadOnly true: a server that is read-only will do where there is no other */
  constructor(options: ServerPoolOptions, servers: ServerChoice, { acceptsReadOnly = false } = {}) {
    super(options, () => servers.current);
    this.#servers = servers;
    this.#acceptsReadOnly = acceptsReadOnly;
  }

  /** Runs a statement, again after a deadlock: it was a transaction of its own, so nothing of it is left. */
  query(statement: QueryConfig): Promise<QueryResult> {
    // The next read looks for the primary again.
    return withRepeats(() => this.run(statement, ({ isReadOnly }) => isReadOnly));
  }

  /** Connects to the primary, or else to a read-only server that is accepted. @throws what the last server answered */
  protected override async connect(): Promise<PoolClient & ServerClient> {
    let readOnly: (PoolClient & ServerClient) | undefined;
    let failure: unknown;
    for (let tries = 0; tries < this.#servers.count; tries++) {
      const server = this.#servers.current;
      try {
        const client = await super.connect();
        if (!client.isReadOnly) {
          readOnly?.release(true);
          return client;
        }
        failure = readOnlyServer();
        if (this.#acceptsReadOnly && !readOnly) readOnly = client;
        else client.release(true);
      } catch (error) {
        failure = error;
      }
      this.#servers.leave(server);
    }
    if (readOnly) return readOnly;
    throw failure;
  }
}

/**
 * Sends a statement in a transaction of its own, and all three messages without a wait. Where the first fails, the
 * server leaves out the second, and the commit is a rollback. @throws what failed first
 */
async function sendInTransaction(
  client: ServerClient,
  begin: string,
  send: () => Promise<QueryResult>,
): Promise<QueryResult> {
  const sent = [client.query(begin), send(), client.query('commit')] as const;
  const [, result] = await Promise.all(sent);
  return result;
}

/** Serialization failure, deadlock, lock not available: nothing was done, and the same work can succeed at once. */
const REPEATABLE = new Set(['40001', '40P01', '55P03']);
const MAX_REPEATS = 3;
const MAX_PAUSE_MS = 200;

/** Does `work`, again at most three times and after a random pause where it failed and left nothing behind. */
export async function withRepeats<T>(work: () => Promise<T>): Promise<T> {
  for (let repeats = 0; ; repeats++) {
    try {
      return await work();
    } catch (error) {
      if (repeats >= MAX_REPEATS || !REPEATABLE.has(sqlState(error)?.code ?? '')) throw error;
      await sleep(Math.random() * MAX_PAUSE_MS);
    }
  }
}
