import { type ClientConfig, escapeLiteral } from 'pg';
import { ConfigError } from '../../core/errors.ts';
import type { DatabaseAddress } from './connection.ts';
import { isOnCluster } from './cluster.ts';
import { connect } from './client.ts';
import { isLimitedRoleReady, LIMITED_ROLE } from './rights.ts';

/**
 * Settings for row-level security policies: a user's id, or `on` for all users. Without either, no rows are visible.
 */
const USER = 'agent_runtime.user';
const ALL_USERS = 'agent_runtime.all_users';
/** Setting with the user's groups, joined by {@link BETWEEN_GROUPS}. */
const GROUPS = 'agent_runtime.groups';
const BETWEEN_GROUPS = '\u001f';
export const FOR_ALL_USERS = { [ALL_USERS]: 'on' };

/** The role for statements restricted to one user, if the connection's role bypasses row-level security. */
export interface RowSecurity {
  role: string | undefined;
}

/**
 * The result of checking row-level security. `isVoid`: it is not enforced, because the role bypasses it and no other
 * role is available, or because the database is distributed.
 */
export type RowSecurityStatus = RowSecurity & { isVoid: boolean; isOnCluster?: true };

/**
 * Determines the role for statements of one user. The connection's own role serves if it is neither superuser nor
 * BYPASSRLS, even if it owns the tables.
 * @throws {ConfigError} if an undeclared pooler drops session settings, so that no rows would be visible
 */
export async function prepareRowSecurity(address: DatabaseAddress, config: ClientConfig): Promise<RowSecurityStatus> {
  const client = await connect(address, config, { acceptsReadOnly: true, settings: FOR_ALL_USERS });
  try {
    const own = await client.query<{ role: string; isAbove: boolean; schema: string }>(
      `select rolname as role, rolsuper or rolbypassrls as "isAbove", coalesce($1, current_schema()) as schema
       from pg_roles where rolname = current_user`,
      [address.schema],
    );
    // On a cluster, policy settings do not reach other nodes, and a NOLOGIN role cannot connect to them.
    if (await isOnCluster(client)) return { role: undefined, isVoid: true, isOnCluster: true };
    const { role = '', isAbove = false, schema = '' } = own.rows[0] ?? {};
    if (isAbove) {
      const isReady = await isLimitedRoleReady(client, schema, role);
      return { role: isReady ? LIMITED_ROLE : undefined, isVoid: !isReady };
    }
    // The setting is not checked behind a pooler, because there each statement sends it.
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
 * `local`: settings that a pooler would drop, sent with each transaction.
 * `hasNoUsers`: policies are void (distributed database), so a user's statement needs no transaction.
 */
export type SessionSettings = RowSecurity & { local?: Record<string, string>; hasNoUsers?: boolean };

/**
 * SQL that begins a transaction restricted to a user, or open to all users. The settings end with the transaction, so
 * it is safe behind a pooler.
 */
export function beginFor(
  userId: string | undefined,
  { role, local }: SessionSettings,
  groups: readonly string[] = [],
): string {
  const ofUser = { [ALL_USERS]: 'off', ...(role === undefined ? {} : { role }) };
  const constants = Object.entries({ ...local, ...(userId === undefined ? FOR_ALL_USERS : ofUser) });
  const calls = constants.map(([name, value]) => setting(name, escapeLiteral(value)));
  if (userId !== undefined) calls.unshift(setting(USER, toSafeText(userId)));
  if (userId !== undefined && groups.length > 0)
    calls.unshift(setting(GROUPS, toSafeText(groups.join(BETWEEN_GROUPS))));
  return `begin isolation level read committed; select ${calls.join(', ')}`;
}

const setting = (name: string, value: string) => `set_config('${name}', ${value}, true)`;

/**
 * Encodes data as hex digits: a syntax error in it would prevent `begin`, and the pipelined statement after it would
 * run unrestricted. Invalid bytes fail only after `begin`.
 */
const toSafeText = (value: string) => `convert_from('\\x${Buffer.from(value).toString('hex')}', 'UTF8')`;
