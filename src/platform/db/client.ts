import {
  Client,
  type ClientConfig,
  type CustomTypesConfig,
  DatabaseError,
  type QueryConfig,
  type QueryResult,
  types,
} from 'pg';
import { parseExactJson } from '../../core/exact-json.ts';
import { type DatabaseAddress, listServers, type ServerAddress, STAY_OPEN } from './connection.ts';
import { PreparedNames } from './prepared-names.ts';

/** A value that a server reports by itself: at the start of a connection and at each change. */
interface ParameterStatus {
  parameterName: string;
  parameterValue: string;
}

const { DATE, INTERVAL, JSON: JSON_TYPE, JSONB, TIMESTAMP, TIMESTAMPTZ } = types.builtins;
const TIMES = new Set<number>([DATE, INTERVAL, TIMESTAMP, TIMESTAMPTZ]);
const TEXTS = new Set<number>([JSON_TYPE, JSONB]);
const asItIs = (text: unknown) => text;

/**
 * Times stay text, as drizzle's own session reads them: what a `Date` reads of one has lost three digits. Integers in
 * JSON keep their digits.
 */
export const EXACT_TYPES: CustomTypesConfig = {
  getTypeParser: (id: number, format?: 'text' | 'binary') => {
    if (TEXTS.has(id)) return parseExactJson;
    return TIMES.has(id) ? asItIs : types.getTypeParser(id, format);
  },
};

/**
 * A connection that knows whether its server takes writes. From PostgreSQL 14 on the server reports that by itself, so
 * it costs no round trip; an older one, or a pooler that keeps it to itself, passes for one that does.
 */
export class ServerClient extends Client {
  readonly preparedNames = new PreparedNames(this.connection);
  readonly #reported = new Map<string, string>();
  readonly #isAnyPrimary: boolean;

  constructor({ isAnyPrimary, readPassword, ...config }: ClientConfig & Partial<ServerAddress>) {
    super(config);
    // As an option, the empty one of the URL would win.
    if (readPassword) Object.assign(this, { password: () => this.#orEnd(readPassword()) });
    this.#isAnyPrimary = isAnyPrimary === true;
    // With the text of its statement, the log says which function or table an error is of.
    const query = (statement: string | QueryConfig, values?: unknown[]): Promise<QueryResult> =>
      super.query(withTypes(statement), values).catch((error: Error) => {
        throw Object.assign(error, { query: typeof statement === 'string' ? statement : statement.text });
      });
    Object.assign(this, { query });
    // A statement that a broken connection interrupts rejects as well, and the pool listens while it is idle. An event
    // without a listener ends the process: FATAL can come in the very packet that opens a connection.
    this.on('error', () => undefined);
    this.connection.on('parameterStatus', ({ parameterName, parameterValue }: ParameterStatus) => {
      this.#reported.set(parameterName, parameterValue);
    });
  }

  /** Closes a connection whose password was not had: node-postgres leaves it open, and the server waits a minute. */
  #orEnd(reading: Promise<string>): Promise<string> {
    return reading.catch((error: unknown) => {
      this.connection.stream.destroy();
      throw error;
    });
  }

  /** True while the server is in recovery, or refuses writes by default: it is not, or no longer, the primary. */
  get isReadOnly(): boolean {
    if (this.#reported.get('in_hot_standby') === 'on') return true;
    return !this.#isAnyPrimary && this.#reported.get('default_transaction_read_only') === 'on';
  }
}

/** Drizzle's session brings types of its own with each statement: the same ones, but for JSON. */
const withTypes = (statement: string | QueryConfig): string | QueryConfig =>
  typeof statement !== 'string' && statement.types ? { ...statement, types: EXACT_TYPES } : statement;

/** Returns the error for a server that does not take writes, with PostgreSQL's own code for one. */
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

/** Returns SQLSTATE, constraint and words of a failed statement, however drizzle wrapped it; else `undefined`. */
export function sqlState(
  error: unknown,
): { code: string; constraint: string | undefined; message: string } | undefined {
  for (let at = error; at instanceof Error; at = at.cause) {
    if (at instanceof DatabaseError && at.code)
      return { code: at.code, constraint: at.constraint, message: at.message };
  }
  return undefined;
}
