import type { Socket } from 'node:net';
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
import { parseStored } from '../json-escape.ts';
import { type DatabaseAddress, listServers, type ServerAddress, STAY_OPEN } from './connection.ts';

/** A parameter that the server reports when a connection starts and whenever the parameter changes. */
interface ParameterStatus {
  parameterName: string;
  parameterValue: string;
}

const { DATE, INTERVAL, JSON: JSON_TYPE, JSONB, TIMESTAMP, TIMESTAMPTZ } = types.builtins;
const TIMES = new Set<number>([DATE, INTERVAL, TIMESTAMP, TIMESTAMPTZ]);
const TEXTS = new Set<number>([JSON_TYPE, JSONB]);
const keepText = (text: unknown) => text;

/**
 * Type parsers. Times stay text, because a `Date` would lose three digits. JSON is unescaped, and its integers keep all
 * digits.
 */
export const EXACT_TYPES = typesWith(parseStored);
/** Type parsers for tables of tools, whose JSON nothing has escaped. */
export const TOOL_TYPES = typesWith(parseExactJson);

function typesWith(parseJson: (text: string) => unknown): CustomTypesConfig {
  return {
    getTypeParser: (id: number, format?: 'text' | 'binary') => {
      if (TEXTS.has(id)) return parseJson;
      return TIMES.has(id) ? keepText : types.getTypeParser(id, format);
    },
  };
}

/** Maximum number of prepared statements per connection; the stores have some hundred statements. */
const MAX_PLANS = 500;

/** The part of node-postgres's connection class (pg 8.23) that prepares statements. */
interface Preparing {
  /** Statement name → text, for statements that the server has prepared. */
  parsedStatements: Record<string, string>;
  submittedNamedStatements: Record<string, string>;
  close(message: { type: 'S'; name: string }): void;
}

/** A statement that a connection has prepared; `usedAt` orders statements by their last use. */
interface Prepared {
  name: string;
  usedAt: number;
}

/**
 * An LRU cache of the statements that a connection has prepared. PostgreSQL plans an unnamed statement at each call,
 * and planning takes longer than executing: 0.62 instead of 0.17 ms for a session of ten events.
 */
class PreparedNames {
  readonly #connection: Preparing;
  /** Role → text of a statement. No key is made of both, because a new string of 2 KB takes 5 µs to hash. */
  readonly #prepared = new Map<string, Map<string, Prepared>>();
  #size = 0;
  #uses = 0;

  constructor(connection: object) {
    this.#connection = connection as Preparing;
  }

  /**
   * Returns the name of a statement to send; `undefined` if a new name is needed and all belong to statements in
   * flight. Each role has its own names, because the server plans again if the role changes.
   */
  use(role: string, text: string): string | undefined {
    const ofRole = this.#prepared.get(role) ?? new Map<string, Prepared>();
    const existing = ofRole.get(text);
    const usedAt = (this.#uses += 1);
    if (existing) {
      existing.usedAt = usedAt;
      return existing.name;
    }
    if (this.#size >= MAX_PLANS && !this.#closeOldest()) return undefined;
    // A name is never reused, because node-postgres refuses a known name with a different text.
    const name = `s${usedAt}`;
    this.#prepared.set(role, ofRole.set(text, { name, usedAt }));
    this.#size += 1;
    return name;
  }

  /**
   * Closes the least recently used statement. The Close message follows all statements sent before that use the plan.
   */
  #closeOldest(): boolean {
    const all = [...this.#prepared.values()].flatMap((ofRole) =>
      [...ofRole].map(([text, { name, usedAt }]) => ({ ofRole, text, name, usedAt })),
    );
    const { ofRole, text, name } = all.reduce((oldest, each) => (each.usedAt < oldest.usedAt ? each : oldest));
    const { parsedStatements, submittedNamedStatements } = this.#connection;
    // A statement whose Parse message is unanswered is kept: node-postgres would record it as prepared afterwards.
    if (name in submittedNamedStatements) return false;
    ofRole.delete(text);
    this.#size -= 1;
    delete parsedStatements[name];
    this.#connection.close({ type: 'S', name });
    return true;
  }
}

/**
 * A connection that knows whether its server accepts writes. PostgreSQL 14 and newer report that unasked. Older
 * servers, and poolers that hide it, are assumed to accept writes.
 */
export class ServerClient extends Client {
  readonly preparedNames = new PreparedNames(this.connection);
  /** Process id of its backend, or the one that a pooler gives; null before it has connected. */
  declare readonly processID: number | null;
  readonly #reported = new Map<string, string>();
  readonly #isAnyPrimary: boolean;
  #underWay = 0;
  #hasGivenUp = false;

  constructor({
    isAnyPrimary,
    readPassword,
    query_timeout: silenceMs = 0,
    ...config
  }: ClientConfig & Partial<ServerAddress>) {
    super(config);
    // The password is set here, because in the options the empty password of the URL would override it.
    if (readPassword) Object.assign(this, { password: () => this.#orEnd(readPassword()) });
    this.#isAnyPrimary = isAnyPrimary === true;
    // Adds the statement's text to errors, so that the log can name the function or table. node-postgres's own promise
    // and time-out (pg 8.23) would keep each result in memory until the next full garbage collection.
    const query = (statement: string | QueryConfig, values?: unknown[]): Promise<QueryResult> =>
      new Promise((resolve, reject) => {
        this.#underWay += 1;
        const settle = (error: Error | null, result: QueryResult) => {
          this.#underWay -= 1;
          if (!error) resolve(result);
          else reject(Object.assign(error, { query: typeof statement === 'string' ? statement : statement.text }));
        };
        super.query(toConfig(statement, values), settle);
      });
    Object.assign(this, { query });
    // Without a listener an `error` event ends the process, even a FATAL error in the packet that opens the connection.
    // The running statement rejects by itself, and the pool handles idle connections.
    this.on('error', () => undefined);
    if (silenceMs > 0) this.once('connect', () => this.#endSilent(silenceMs));
    this.connection.on('parameterStatus', ({ parameterName, parameterValue }: ParameterStatus) => {
      this.#reported.set(parameterName, parameterValue);
    });
  }

  /**
   * Closes a connection whose password cannot be read. node-postgres would leave it open, and the server waits a
   * minute.
   */
  #orEnd(reading: Promise<string>): Promise<string> {
    return reading.catch((error: unknown) => {
      this.connection.stream.destroy();
      throw error;
    });
  }

  /** Ends the connection when it was silent for so long while a statement was under way: one timer for all of them. */
  #endSilent(ms: number): void {
    const stream = this.connection.stream as Socket;
    stream.setTimeout(ms);
    stream.on('timeout', () => {
      if (this.#underWay === 0) return;
      this.#hasGivenUp = true;
      stream.destroy(new Error('Query read timeout'));
    });
  }

  /** True if a statement got no answer in time. The connection is closed then, and the server may still be at work. */
  get hasGivenUp(): boolean {
    return this.#hasGivenUp;
  }

  /** True if the server is in recovery or refuses writes by default, so that it is not, or no longer, the primary. */
  get isReadOnly(): boolean {
    if (this.#reported.get('in_hot_standby') === 'on') return true;
    return !this.#isAnyPrimary && this.#reported.get('default_transaction_read_only') === 'on';
  }
}

/** Replaces the type parsers that drizzle passes with each statement, so that JSON is parsed exactly. */
function toConfig(statement: string | QueryConfig, values?: unknown[]): QueryConfig {
  if (typeof statement === 'string') return values ? { text: statement, values } : { text: statement };
  if (!statement.types && !values) return statement;
  return { ...statement, ...(statement.types && { types: EXACT_TYPES }), ...(values && { values }) };
}

export const readOnlyServer = (): Error =>
  Object.assign(new Error('The server is in recovery or read-only.'), { code: '25006' });

/** The servers of a `DATABASE_URL`, starting with the server that was used last. */
export class ServerChoice {
  readonly count: number;
  readonly #servers: [ServerAddress, ...ServerAddress[]];
  #at = 0;

  constructor(servers: [ServerAddress, ...ServerAddress[]]) {
    this.count = servers.length;
    this.#servers = servers;
  }

  get current(): ServerAddress {
    return this.#servers[this.#at] ?? this.#servers[0];
  }

  /** Moves on to the next server, unless another failed connection has already done so. */
  leave(server: ServerAddress): void {
    if (server === this.current) this.#at = (this.#at + 1) % this.#servers.length;
  }
}

/**
 * Connects to the first server that accepts writes, else (with `acceptsReadOnly`) to a read-only one.
 * @throws the last server's error
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

/** SQLSTATE, constraint and message of a failed statement, found among the causes of drizzle's error. */
export function sqlState(
  error: unknown,
): { code: string; constraint: string | undefined; message: string } | undefined {
  for (let at = error; at instanceof Error; at = at.cause) {
    if (at instanceof DatabaseError && at.code)
      return { code: at.code, constraint: at.constraint, message: at.message };
  }
  return undefined;
}

/** Marks the error of a statement for which there was no connection. */
export const UNSENT = { isUnsent: true };

/** True if there was no connection for a statement, so that it certainly wrote nothing. */
export function isUnsent(error: unknown): boolean {
  for (let at = error; at instanceof Error; at = at.cause) if ('isUnsent' in at) return true;
  return false;
}
