import { type ClientConfig, escapeLiteral, Query, type QueryArrayConfig, type QueryConfig } from 'pg';
import { ConfigError } from '../../core/errors.ts';
import type { DatabaseAddress } from './connection.ts';
import { isOnCluster } from './distribute.ts';
import { takeBytes } from './row-bytes.ts';
import { connect } from './server-client.ts';
import { isLimitedRoleReady, LIMITED_ROLE } from './shared-roles.ts';
import { fixText, nameOf } from './statement-names.ts';
import { WITH_LARGE_TEXT } from './value-types.ts';

/** The settings that the policies look at: a user, or `on` for all of them; without either there are no rows. */
const USER = 'agent_runtime.user';
const ALL_USERS = 'agent_runtime.all_users';
/** Settings of connections that work for all users. */
export const FOR_ALL_USERS = { [ALL_USERS]: 'on' };

/** What statements for one user run as: `role` where the connection's own would see all. */
export interface RowSecurity {
  role: string | undefined;
}

/** How {@link RowSecurity} was found; `isVoid`: the role sees all, and there is no other; nor is there on a cluster. */
export type FoundRowSecurity = RowSecurity & { isVoid: boolean; isOnCluster?: true };

/**
 * Finds out what statements for one user can run as; the migrator makes the role for it where one is needed. A role
 * that is neither a superuser nor bypasses row-level security is held to it as it is, also where it owns the tables.
 * @throws {ConfigError} where that role would see no rows, because an unknown pooler keeps the settings of connections
 */
export async function prepareRowSecurity(address: DatabaseAddress, config: ClientConfig): Promise<FoundRowSecurity> {
  const client = await connect(address, config, { acceptsReadOnly: true, settings: FOR_ALL_USERS });
  try {
    const own = await client.query<{ role: string; isAbove: boolean; schema: string }>(
      `select rolname as role, rolsuper or rolbypassrls as "isAbove", coalesce($1, current_schema()) as schema
       from pg_roles where rolname = current_user`,
      [address.schema],
    );
    // The settings that policies look at do not reach the other nodes, nor does a role that cannot sign in there.
    if (await isOnCluster(client)) return { role: undefined, isVoid: true, isOnCluster: true };
    const { role = '', isAbove = false, schema = '' } = own.rows[0] ?? {};
    if (isAbove) {
      const isReady = await isLimitedRoleReady(client, schema, role);
      return { role: isReady ? LIMITED_ROLE : undefined, isVoid: !isReady };
    }
    // Behind a pooler each statement brings it along.
    if (address.isPooled) return { role: undefined, isVoid: false };
    const { rows } = await client.query<{ all: string | null }>(`select current_setting('${ALL_USERS}', true) as all`);
    if (rows[0]?.all === 'on') return { role: undefined, isVoid: false };
    throw new ConfigError(
      'The settings of a connection do not arrive at the database: set DATABASE_POOLER=transaction, or connect past ' +
        'the pooler.',
    );
  } finally {
    await client.end().catch(() => undefined);
  }
}

/** Values of PostgreSQL's `plan_cache_mode`: whether a prepared statement may be planned anew for its values. */
export type PlanMode = 'auto' | 'force_generic_plan';
const planModeOf = (isFixed: boolean): PlanMode => (isFixed ? 'force_generic_plan' : 'auto');

/**
 * What a statement or transaction is limited by; `settings`: those that its connection does not keep; `planMode`: the
 * one that its connection has, absent where statements are not prepared.
 */
export type Limits = RowSecurity & { settings?: Record<string, string>; planMode?: PlanMode };

/** True where what limits a statement goes with it, and is not what the connection has. */
export const needsLimits = (userId: string | undefined, limits: Limits, isFixed: boolean): boolean =>
  userId !== undefined || limits.settings !== undefined || isPlannedOtherwise(limits, isFixed);

const isPlannedOtherwise = ({ planMode }: Limits, isFixed: boolean) =>
  planMode !== undefined && planMode !== planModeOf(isFixed);

/** The statement that limits the rest of its transaction to a user, which its parameter or a literal names, or not. */
function limitingTo(user: string | undefined, limits: Limits, isFixed: boolean, check?: string): string {
  const { role, settings } = limits;
  const ofUser = { [ALL_USERS]: 'off', ...(role === undefined ? {} : { role }) };
  const ofPlans = isPlannedOtherwise(limits, isFixed) ? { plan_cache_mode: planModeOf(isFixed) } : {};
  const all = Object.entries({ ...settings, ...ofPlans, ...(user === undefined ? FOR_ALL_USERS : ofUser) });
  const calls = all.map(([name, value]) => `set_config('${name}', ${escapeLiteral(value)}, true)`);
  const first = user === undefined ? [] : [`set_config('${USER}', ${user}, true)`];
  return `select ${[...first, ...calls, ...(check === undefined ? [] : [check])].join(', ')}`;
}

/** What begins a transaction that is limited: one message. */
export function beginFor(userId: string | undefined, limits: Limits): string {
  const user = userId === undefined ? undefined : escapeLiteral(userId);
  return `begin isolation level read committed; ${limitingTo(user, limits, false)}`;
}

/** The part of node-postgres's connection that sends messages of the extended protocol. */
interface Wire {
  /** Texts of the prepared statements of the connection, by name. */
  parsedStatements: Record<string, string>;
  parse(message: { text: string; name: string }): void;
  bind(message: { statement: string; values: unknown[] }): void;
  execute(message: object): void;
}
/** What node-postgres's queries have beside their published types (pg 8.23.1, lib/query.js). */
interface QueryInternals {
  prepare(connection: Wire): void;
  handleError(error: unknown, connection: Wire): void;
  handleDataRow(message: unknown): void;
  handleCommandComplete(message: unknown, connection: Wire): void;
}
const base = Query.prototype as unknown as QueryInternals;

/** The statement that limits; `name`: empty where statements are not prepared. */
interface Limit {
  text: string;
  name: string;
  values: string[];
}

/**
 * A statement that sees the rows of one user. What limits it goes before it in the same message, before the one Sync:
 * they are one transaction and one round trip, and nothing of it stays with the connection, which makes it safe behind
 * a pooler in transaction mode.
 */
class LimitedQuery extends Query {
  readonly #limit: Limit;
  readonly #name: string | undefined;
  readonly #takesBytes: boolean;
  /** True while the answers that come are those of the statement that limits. */
  #isLimiting = true;
  #wasPrepared = false;

  constructor(
    limit: Limit,
    config: QueryConfig | QueryArrayConfig,
    done: (error: Error | undefined, result: unknown) => void,
  ) {
    super({ ...config, queryMode: 'extended' } as unknown as QueryConfig, undefined, done);
    this.#limit = limit;
    this.#name = config.name;
    this.#takesBytes = config.types === WITH_LARGE_TEXT;
  }

  prepare(connection: Wire): void {
    const { text, name, values } = this.#limit;
    if (this.#takesBytes) takeBytes(connection);
    // A connection whose statement failed is closed, unless only its check did, before which it was prepared: what is
    // sent is there the next time.
    if (name === '' || connection.parsedStatements[name] === undefined) connection.parse({ text, name });
    if (name !== '') connection.parsedStatements[name] = text;
    connection.bind({ statement: name, values });
    connection.execute({});
    this.#wasPrepared = this.#name !== undefined && connection.parsedStatements[this.#name] !== undefined;
    base.prepare.call(this, connection);
  }

  /** node-postgres takes the first statement that was prepared for its own, which the server skips where that fails. */
  handleError(error: unknown, connection: Wire): void {
    if (this.#isLimiting && this.#name !== undefined && !this.#wasPrepared)
      delete connection.parsedStatements[this.#name];
    base.handleError.call(this, error, connection);
  }

  handleDataRow(message: unknown): void {
    if (!this.#isLimiting) base.handleDataRow.call(this, message);
  }

  handleCommandComplete(message: unknown, connection: Wire): void {
    if (this.#isLimiting) this.#isLimiting = false;
    else base.handleCommandComplete.call(this, message, connection);
  }
}

/** Something that takes a query of node-postgres. */
interface Queryable {
  query(query: Query): unknown;
}

/** Fails with a division by zero unless the server is a replica that has got to the position of a parameter. */
const hasGotTo = (parameter: string) =>
  `1 / (pg_is_in_recovery() and pg_last_wal_replay_lsn() >= ${parameter}::pg_lsn)::int`;

/**
 * Runs one statement within limits, with only the rows of a user where one is named, in one round trip.
 * @param plan `since`: the position that the server, a replica, must have got to
 */
export const queryFor = (
  client: Queryable,
  userId: string | undefined,
  limits: Limits,
  config: QueryConfig | QueryArrayConfig,
  { isFixed, since }: { isFixed: boolean; since?: string },
): Promise<unknown> =>
  new Promise((resolve, reject) => {
    const values = [userId, since].filter((each) => each !== undefined);
    const check = since === undefined ? undefined : hasGotTo(`$${values.length}`);
    const text = limitingTo(userId === undefined ? undefined : '$1', limits, isFixed, check);
    const isPrepared = limits.planMode !== undefined;
    const limit = { text, name: isPrepared ? fixText(text) : '', values };
    const name = isPrepared && (config.values ?? []).length > 0 ? nameOf(config.text) : undefined;
    // A plan is made for a role: one name for two would have it made anew whenever the other one had used it.
    const role = userId === undefined ? '' : (limits.role ?? '');
    const named = name === undefined ? config : { ...config, name: name + role };
    client.query(new LimitedQuery(limit, named, (error, result) => (error ? reject(error) : resolve(result))));
  });
