import { setTimeout as sleep } from 'node:timers/promises';
import { type CustomTypesConfig, Pool, type PoolClient, type PoolConfig, type QueryConfig, type QueryResult } from 'pg';
import { AgentError } from '../../core/errors.ts';
import { currentContext } from '../context.ts';
import { FairSemaphore } from '../work/fair-semaphore.ts';
import { EXACT_TYPES, readOnlyServer, type ServerChoice, ServerClient, sqlState, UNSENT } from './client.ts';
import { beginFor, type SessionSettings } from './row-security.ts';

/** A borrowed connection. `release(true)` closes it, `release(false)` returns it to the pool. */
interface Loan {
  client: ServerClient;
  release: (mustEnd: boolean) => void;
}

export interface PrimaryPoolOptions {
  config: PoolConfig & { max: number; connectionTimeoutMillis: number };
  settings: SessionSettings;
  preparesStatements: boolean;
  /** Type parsers of statements that are not drizzle's. Default: those of the service's own tables. */
  types?: CustomTypesConfig;
  /** Absent for connections that no metric counts. */
  name?: 'main' | 'reads' | undefined;
  /** Called with the seconds that a caller waited for a connection of a named pool. */
  onLent?: ((pool: 'main' | 'reads', seconds: number) => void) | undefined;
  /** If set, no caller may exceed its share of the pool, and waits so long for its turn; then it gets the text as error. */
  turns?: { waitMs: number; busyText: string };
  /** True: discard session state, such as locks and temporary tables, after each transaction. */
  clears?: boolean;
  /** Called when an idle connection broke; the pool has dropped it. */
  onIdleError: (error: Error) => void;
}

/** The message that node-postgres's own pool uses when no connection becomes free. */
const NO_FREE_CONNECTION = 'timeout exceeded when trying to connect';
/** The caller name under which work of the process itself is counted. */
const OF_PROCESS = '';

/** Time between two looks at the backends of statements that were given up. */
const LOOK_MS = 1_000;
/** The pools of a process look one after the other, so that all of them need one connection beside their own. */
let lastLook: Promise<unknown> = Promise.resolve();

/** A pool of connections to the server that accepts writes. It distributes them fairly between callers. */
export class PrimaryPool {
  readonly #pool: Pool;
  readonly #places: FairSemaphore;
  readonly #options: PrimaryPoolOptions;
  readonly #servers: ServerChoice;
  readonly #acceptsReadOnly: boolean;
  /** Closed connections whose backend may still be at work, and the place that each of them keeps. */
  readonly #givenUp = new Map<ServerClient, () => void>();

  /** @param acceptsReadOnly - true: use a read-only server if no server accepts writes */
  constructor(options: PrimaryPoolOptions, servers: ServerChoice, { acceptsReadOnly = false } = {}) {
    const { config, onIdleError } = options;
    this.#options = options;
    this.#servers = servers;
    this.#acceptsReadOnly = acceptsReadOnly;
    this.#pool = new Pool({
      ...config,
      types: options.types ?? EXACT_TYPES,
      // Pipelining sends a statement together with its restriction to a user in one round trip (row-security.ts).
      pipeline: true,
      Client: class extends ServerClient {
        constructor(poolConfig: PoolConfig = {}) {
          super({ ...poolConfig, ...servers.current });
        }
      },
    });
    // Without a listener, a broken idle connection would end the process (node-postgres#2439).
    this.#pool.on('error', (error: Error) => {
      // While the pool closes, errors are ignored: an embedded server that stops breaks connections of a closing pool.
      if (!this.#pool.ending) onIdleError(error);
    });
    this.#places = new FairSemaphore(config.max, {
      timeoutMs: options.turns?.waitMs ?? config.connectionTimeoutMillis,
      message: options.turns?.busyText ?? NO_FREE_CONNECTION,
      isStrict: options.turns !== undefined,
    });
  }

  /**
   * Borrows a connection when the caller's turn has come.
   * @throws {Error} after the time-out; `isUnsent` tells it @throws {AgentError} the reason of the abort
   */
  async lend(signal?: AbortSignal): Promise<Loan> {
    try {
      return await this.#borrow(signal);
    } catch (error) {
      if (error instanceof AgentError) throw error;
      throw Object.assign(error as Error, UNSENT);
    }
  }

  async #borrow(signal: AbortSignal | undefined): Promise<Loan> {
    const startedAt = performance.now();
    const leave = await this.#places.acquire(currentContext().caller ?? OF_PROCESS, signal);
    try {
      const client = await this.#connect();
      const { name, onLent } = this.#options;
      if (name) onLent?.(name, (performance.now() - startedAt) / 1000);
      const release = (mustEnd: boolean) => {
        client.release(mustEnd);
        if (client.hasGivenUp) this.#keepPlace(client, leave);
        else leave();
      };
      return { client, release };
    } catch (error) {
      leave();
      throw error;
    }
  }

  /**
   * Keeps the place of a connection whose statement got no answer until its backend has ended: one that waits for a
   * synchronous standby does not notice that its client has gone, so a new one each time would use up
   * `max_connections`. It is not cancelled, because what it has committed would be seen before the standby has it.
   */
  #keepPlace(client: ServerClient, leave: () => void): void {
    this.#givenUp.set(client, leave);
    if (this.#givenUp.size === 1) void this.#awaitEnds();
  }

  async #awaitEnds(): Promise<void> {
    while (this.#givenUp.size > 0 && !this.#pool.ending) {
      const asked = [...this.#givenUp.keys()];
      const look = lastLook.then(() => this.#listEnded(asked));
      lastLook = look;
      for (const client of await look) {
        this.#givenUp.get(client)?.();
        this.#givenUp.delete(client);
      }
      if (this.#givenUp.size > 0) await sleep(LOOK_MS, undefined, { ref: false });
    }
  }

  /**
   * Returns those whose backend is at work no more; none if no server can be asked. An idle backend ends when it hears
   * that its client has gone. After a fail-over the new primary has none of them.
   */
  async #listEnded(clients: ServerClient[]): Promise<ServerClient[]> {
    try {
      const asking = await this.#connect();
      try {
        const { rows } = await asking.query<{ pid: number }>(
          `select pid from pg_stat_activity where pid = any($1::int[]) and coalesce(state, '') not like 'idle%'`,
          [clients.map(({ processID }) => processID)],
        );
        const active = new Set<number | null>(rows.map(({ pid }) => pid));
        return clients.filter(({ processID }) => !active.has(processID));
      } finally {
        asking.release(true);
      }
    } catch {
      return [];
    }
  }

  /** Runs a statement. Retries it after a deadlock, which is safe because it is a transaction by itself. */
  query(statement: QueryConfig, values: unknown[] = statement.values ?? []): Promise<QueryResult> {
    return withRepeats(async () => {
      const { client, release } = await this.lend();
      let mustEnd = true;
      try {
        const result = await this.#send(client, { ...statement, values });
        // A connection to a read-only server is closed, so that the next read looks for the primary again.
        mustEnd = client.isReadOnly;
        return result;
      } finally {
        release(mustEnd);
      }
    });
  }

  /** Connects to the primary or, if accepted, to a read-only server. @throws the last server's error */
  async #connect(): Promise<PoolClient & ServerClient> {
    let readOnly: (PoolClient & ServerClient) | undefined;
    let failure: unknown;
    for (let tries = 0; tries < this.#servers.count; tries++) {
      const server = this.#servers.current;
      try {
        const client = (await this.#pool.connect()) as PoolClient & ServerClient;
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

  /** Sends a statement with the pool's settings and the restriction to the current user. @throws the first error */
  async #send(client: ServerClient, statement: QueryConfig): Promise<QueryResult> {
    const begin = this.#restrictedBegin();
    if (begin === undefined) return client.query(this.named(client, statement));
    // All three are sent at once. If one fails, the server skips the rest and COMMIT rolls back.
    const [, result] = await Promise.all([
      client.query(begin),
      client.query(this.named(client, statement)),
      client.query('commit'),
    ]);
    return result;
  }

  /** Begins a transaction with the pool's settings and the restriction to the current user. */
  async begin(client: ServerClient): Promise<void> {
    await client.query(this.#restrictedBegin() ?? 'begin');
  }

  /** Returns SQL that begins a transaction and sets the pool's settings and the user; `undefined` without either. */
  #restrictedBegin(): string | undefined {
    const { settings } = this.#options;
    const { userId, groups } = currentContext();
    const user = settings.hasNoUsers ? undefined : userId;
    return user === undefined && settings.local === undefined ? undefined : beginFor(user, settings, groups);
  }

  /** Discards session state after a transaction, if configured. @throws if the connection must be closed */
  async clear(client: ServerClient): Promise<void> {
    if (this.#options.clears) await client.query('discard all');
  }

  /**
   * Names a statement so that the server caches its plan. The text must contain no data: a plan per value is never
   * reused, and `pg_prepared_statements` would show the data. drizzle makes each value a parameter, and `sql.raw` gets
   * only constants; code that puts data into SQL must declare that (`Texts` in database.ts).
   */
  named(client: ServerClient, statement: QueryConfig): QueryConfig {
    const { preparesStatements, settings } = this.#options;
    if (!preparesStatements || !statement.values?.length) return statement;
    const role = currentContext().userId === undefined ? '' : (settings.role ?? '');
    const name = client.preparedNames.use(role, statement.text);
    return name === undefined ? statement : { ...statement, name };
  }

  use(): { open: number; idle: number; waiting: number } {
    const { totalCount, idleCount: idle } = this.#pool;
    return { open: totalCount + this.#givenUp.size, idle, waiting: this.#places.waiting };
  }

  end(): Promise<void> {
    return this.#pool.end();
  }
}

/** SQLSTATEs of a serialization failure, a deadlock, an unavailable lock: nothing was written, a retry may succeed. */
const REPEATABLE = new Set(['40001', '40P01', '55P03']);
const MAX_REPEATS = 3;
const MAX_PAUSE_MS = 200;

/** Retries `work` up to three times, after a random pause, if it failed without side effects. */
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
