import { type ClientConfig, escapeLiteral } from 'pg';
import { ConfigError } from '../../core/errors.ts';
import type { DatabaseAddress } from './connection.ts';
import { isOnCluster } from './distribute.ts';
import { connect } from './client.ts';
import { LIMITED_ROLE } from './rights.ts';
import { isLimitedRoleReady } from './shared-roles.ts';

/** The settings that the policies look at: a user, or `on` for all of them; without either there are no rows. */
const USER = 'agent_runtime.user';
const ALL_USERS = 'agent_runtime.all_users';
/** The groups of the user, with this character between them. */
const GROUPS = 'agent_runtime.groups';
const BETWEEN_GROUPS = '\u001f';
/** Settings of connections that work for all users. */
export const FOR_ALL_USERS = { [ALL_USERS]: 'on' };

/** The role for statements of one user, where the connection's own role sees all rows. */
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

/**
 * Settings of the statements of a pool; `local`: those that a connection behind a pooler does not keep;
 * `hasNoUsers`: policies are void, as on a cluster, so a statement for one user needs no transaction.
 */
export type SessionSettings = RowSecurity & { local?: Record<string, string>; hasNoUsers?: boolean };

/**
 * Returns what begins a transaction that is held to the rows of a user, or of all users: one message. Nothing of it
 * stays with the connection, which makes it safe behind a pooler in transaction mode.
 * @param check an expression that fails where the transaction must not go on
 */
export function beginFor(
  userId: string | undefined,
  { role, local }: SessionSettings,
  check?: string,
  groups: readonly string[] = [],
): string {
  const ofUser = { [ALL_USERS]: 'off', ...(role === undefined ? {} : { role }) };
  const constants = Object.entries({ ...local, ...(userId === undefined ? FOR_ALL_USERS : ofUser) });
  const calls = constants.map(([name, value]) => setting(name, escapeLiteral(value)));
  if (userId !== undefined) calls.unshift(setting(USER, toSafeText(userId)));
  if (userId !== undefined && groups.length > 0)
    calls.unshift(setting(GROUPS, toSafeText(groups.join(BETWEEN_GROUPS))));
  if (check !== undefined) calls.push(check);
  return `begin isolation level read committed; select ${calls.join(', ')}`;
}

const setting = (name: string, value: string) => `set_config('${name}', ${value}, true)`;

/**
 * A message with a syntax error would begin nothing, and the statement that is sent behind it would run for all users.
 * So what a request says stands in it as digits only: what PostgreSQL cannot read of them fails after the `begin`.
 */
const toSafeText = (value: string) => `convert_from('\\x${Buffer.from(value).toString('hex')}', 'UTF8')`;
