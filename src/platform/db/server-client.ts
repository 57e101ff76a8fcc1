import type { Socket } from 'node:net';
import { Client, type ClientConfig } from 'pg';
import { type DatabaseAddress, listServers, type ServerAddress, STAY_OPEN } from './connection.ts';
import { FixedQuery, type FixedStatement } from './fixed-query.ts';
import { newSocket, readMessages } from './row-bytes.ts';
import { fixText, isFixedStatement, withName } from './statement-names.ts';

/** What a server reports about itself, unrequested: at the start of a connection and at each change. */
interface ParameterStatus {
  parameterName: string;
  parameterValue: string;
}

/**
 * A connection that knows whether its server takes writes. From PostgreSQL 14 on the server reports that by itself, so
 * it costs no round trip; an older one, or a pooler that keeps it to itself, passes for one that does.
 */
export class ServerClient extends Client {
  readonly #reported = new Map<string, string>();
  readonly #isAnyPrimary: boolean;
  readonly #namesStatements: boolean;
  /** The last query, which the timer ends where it is still under way. */
  #watched: FixedQuery | undefined;
  #watch: NodeJS.Timeout | undefined;

  constructor({
    isAnyPrimary,
    namesStatements = false,
    readPassword,
    ...config
  }: ClientConfig & Pick<ServerAddress, 'isAnyPrimary' | 'readPassword'> & { namesStatements?: boolean }) {
    super({ ...config, stream: ((given: { ssl?: unknown }) => newSocket(() => this.connection, given)) as never });
    // As an option, the empty one of the URL would win.
    if (readPassword) Object.assign(this, { password: () => this.#orEnd(readPassword()) });
    this.#isAnyPrimary = isAnyPrimary;
    this.#namesStatements = namesStatements;
    readMessages(this.connection);
    // What a connection that breaks interrupts rejects as well, and the pool listens while it is idle. An event without
    // a listener ends the process: FATAL can come in the very packet that opens a connection, before anybody has it.
    this.on('error', () => undefined);
    this.connection.on('parameterStatus', ({ parameterName, parameterValue }: ParameterStatus) => {
      this.#reported.set(parameterName, parameterValue);
    });
  }

  /** node-postgres leaves a connection open whose password was not had; the server would wait for it for a minute. */
  #orEnd(reading: Promise<string>): Promise<string> {
    return reading.catch((error: unknown) => {
      this.connection.stream.destroy();
      throw error;
    });
  }

  // drizzle calls `query(config, values)`; other calls pass as they are.
  override query = ((...[statement, ...others]: unknown[]) => {
    if (this.#namesStatements && others.length === 0 && isFixedStatement(statement)) return this.#sendFixed(statement);
    return this.#send(this.#namesStatements ? withName(statement, others[0]) : statement, ...others);
  }) as Client['query'];

  #send(...args: unknown[]): unknown {
    // oxlint-disable-next-line typescript/unbound-method -- called with its own `this`
    return Reflect.apply(Client.prototype.query, this, args) as unknown;
  }

  #sendFixed(statement: FixedStatement): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const done = (error: Error | undefined, result: unknown) => (error ? reject(error) : resolve(result));
      this.#sendWatched(new FixedQuery(fixText(statement.text), statement, done));
    });
  }

  /**
   * Sends a query under the time-out of the connection, with one timer for all of them. The closure that node-postgres
   * makes for each kept its rows until the next large collection: 12 KB of a session of ten events.
   */
  #sendWatched(query: FixedQuery): void {
    const parameters = (this as unknown as { connectionParameters: { query_timeout?: number } }).connectionParameters;
    const timeoutMs = parameters.query_timeout;
    if (timeoutMs) {
      this.#watched = query;
      this.#watch = this.#watch?.refresh() ?? this.#startWatch(timeoutMs);
    }
    parameters.query_timeout = 0;
    try {
      this.#send(query);
    } finally {
      if (timeoutMs) parameters.query_timeout = timeoutMs;
    }
  }

  #startWatch(timeoutMs: number): NodeJS.Timeout {
    return setTimeout(() => this.#watched?.handleError(new Error('Query read timeout')), timeoutMs).unref();
  }

  /** Bytes that have gone to the server and come from it. */
  get bytesMoved(): number {
    // node-postgres names the wider type; with TLS too it is a socket.
    const { bytesRead, bytesWritten } = this.connection.stream as Socket;
    return bytesRead + bytesWritten;
  }

  /** True while the server is in recovery, or refuses writes by default: it is not, or no longer, the primary. */
  get isReadOnly(): boolean {
    if (this.#reported.get('in_hot_standby') === 'on') return true;
    return !this.#isAnyPrimary && this.#reported.get('default_transaction_read_only') === 'on';
  }
}

/** The error for a server that does not take writes, with PostgreSQL's own code for one. */
export const readOnlyServer = (): Error =>
  Object.assign(new Error('The server is in recovery or read-only.'), { code: '25006' });

/** The servers of a `DATABASE_URL` and the one of them that is tried next: the one that served last. */
export class ServerChoice {
  readonly #servers: [ServerAddress, ...ServerAddress[]];
  #at = 0;

  constructor(servers: [ServerAddress, ...ServerAddress[]]) {
    this.#servers = servers;
  }

  get count(): number {
    return this.#servers.length;
  }

  get current(): ServerAddress {
    return this.#servers[this.#at] ?? this.#servers[0];
  }

  /** Goes on to the next server, unless another connection that failed has done so already. */
  leave(server: ServerAddress): void {
    if (server === this.current) this.#at = (this.#at + 1) % this.#servers.length;
  }
}

/**
 * Opens a connection of its own to the first server that takes writes; where none does and `acceptsReadOnly` is set, to
 * one that does not. Each connection that is not returned is closed. @throws what the last server answered.
 */
export async function connect(
  address: DatabaseAddress,
  config: ClientConfig,
  { acceptsReadOnly = false, settings = {} }: { acceptsReadOnly?: boolean; settings?: Record<string, string> } = {},
): Promise<ServerClient> {
  const servers = listServers(address, { ...STAY_OPEN, ...settings });
  let failure: unknown;
  for (const [position, server] of [...servers, ...(acceptsReadOnly ? servers : [])].entries()) {
    const client = new ServerClient({ ...config, ...server });
    try {
      await client.connect();
      if (!client.isReadOnly || position >= servers.length) return client;
      throw readOnlyServer();
    } catch (error) {
      failure = error;
      await client.end().catch(() => undefined);
    }
  }
  throw failure;
}
