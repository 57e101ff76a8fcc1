import { MAX_PENDING_DELIVERIES } from '../invocations/webhooks/delivery-store.ts';
import { readFileSync } from 'node:fs';
import type { HostedAgent } from '../conversation/apps/hosted-agent.ts';
import type { Config } from './config.ts';
import { ConfigError } from '../core/errors.ts';
import type { Log } from '../platform/log.ts';
import { type DatabaseAddress, listServers, shownAddress } from '../platform/db/connection.ts';
import { type DatabasePool, openDatabase } from '../platform/db/database.ts';
import { startEmbedded } from '../platform/db/embedded/embedded.ts';
import { migrateDatabase } from '../platform/db/migrate.ts';
import type { PoolOptions } from '../platform/db/pool-options.ts';
import type { Metrics } from '../platform/metrics.ts';
import { checkToolDatabase, openToolDatabase, type ToolDatabase } from '../platform/db/tool-database.ts';
import { checkServingRole, findRole } from '../platform/db/rights.ts';
import { prepareRowSecurity, type RowSecurity } from '../platform/db/row-security.ts';

export interface DatabaseAccess {
  /** The database address for statements and transactions; it may be a connection pooler's. */
  serving: DatabaseAddress;
  /** The database address that bypasses a pooler, for LISTEN and for advisory locks. Default: `serving`. */
  direct?: DatabaseAddress | undefined;
  /** The database address with the role that owns the tables, if `serving` has another role. */
  migration?: DatabaseAddress | undefined;
  /** The database address for the SQL of agents' transactional tools, with a role of its own. Default: `serving`. */
  tools?: DatabaseAddress | undefined;
}

export interface DatabaseSource {
  access: DatabaseAccess;
  /** The address of the database, without a password, to show to people. */
  shown: string;
  stop(): Promise<void>;
}

/**
 * Returns the database's addresses. Starts an embedded one if no URL is set. @throws {ConfigError} for an invalid URL
 */
export async function findDatabase(config: Config): Promise<DatabaseSource> {
  const { DATABASE_URL, DATA_DIR } = config;
  const schema = config.DATABASE_SCHEMA;
  const shared = { schema, passwordFile: config.DATABASE_PASSWORD_FILE, caFile: config.DATABASE_CA_FILE };
  const toAddress = (
    setting: 'DATABASE_MIGRATION_URL' | 'DATABASE_DIRECT_URL' | 'DATABASE_TOOLS_URL',
  ): DatabaseAddress | undefined => {
    const url = config[setting];
    return url === undefined ? undefined : { ...shared, url, setting };
  };
  const [migration, direct] = [toAddress('DATABASE_MIGRATION_URL'), toAddress('DATABASE_DIRECT_URL')];
  const own = toAddress('DATABASE_TOOLS_URL');
  if (DATABASE_URL === undefined) {
    const useless = migration ?? direct ?? own;
    if (useless) throw new ConfigError(`${useless.setting}: it is of no use without DATABASE_URL.`);
    const embedded = await startEmbedded({ dir: DATA_DIR });
    const shown = `embedded PostgreSQL in ${embedded.home}`;
    return { access: { serving: { url: embedded.url, schema } }, shown, stop: () => embedded.stop() };
  }
  const isPooled = (config.DATABASE_POOLER ?? (direct ? 'transaction' : 'none')) !== 'none';
  const serving = { ...shared, url: DATABASE_URL, isPooled };
  checkCaFile(shared.caFile);
  const tools = own && { ...own, isPooled };
  for (const address of [serving, migration, direct, tools]) if (address) listServers(address);
  const { hosts, database } = shownAddress(DATABASE_URL);
  return {
    access: { serving, migration, direct, tools },
    shown: `PostgreSQL at ${hosts}${database}`,
    stop: async () => undefined,
  };
}

/** @throws {ConfigError} if the file of DATABASE_CA_FILE cannot be read, because each connection would fail */
function checkCaFile(file: string | undefined): void {
  if (file === undefined) return;
  try {
    readFileSync(file);
  } catch (error) {
    const { code = '' } = error as NodeJS.ErrnoException;
    throw new ConfigError(`DATABASE_CA_FILE: ${file} cannot be read (${code}).`, { cause: error });
  }
}

/** Maximum number of keys in the state of a session, a user or an application. */
const MAX_STATE_KEYS = 10_000;
/** Maximum bytes of JSON that agents may write into the shared `app:` state on behalf of one user. */
const MAX_APP_STATE_BYTES_PER_USER = 65_536;

/** Opens the connection pool. Logs a warning if row-level security does not isolate users in this database. */
export async function openPool(
  config: Config,
  serving: DatabaseAddress,
  log: Log,
  metrics?: Metrics,
): Promise<DatabasePool> {
  const { isOnCluster, ...security } = await findRowSecurity(config, serving, log);
  const mayPrepare = !isOnCluster && (!serving.isPooled || config.DATABASE_POOLER === 'transaction-prepared');
  return openDatabase({
    ...toPoolOptions(config, serving, log),
    onLent: metrics && ((pool, seconds) => metrics.record('agent_runtime_db_wait_seconds', seconds, { pool })),
    security,
    isOnCluster,
    // On a cluster a plan depends on the user whom the statement names, so no prepared plan suits all users.
    preparesStatements: mayPrepare,
  });
}

const toPoolOptions = (config: Config, address: DatabaseAddress, log: Log): PoolOptions => ({
  ...address,
  size: config.DATABASE_POOL_SIZE,
  statementTimeoutMs: config.DATABASE_STATEMENT_TIMEOUT_MS,
  lockTimeoutMs: toWaitMs(config),
  maxStateBytes: config.MAX_STATE_BYTES,
  maxStateKeys: MAX_STATE_KEYS,
  maxAppStateBytesPerUser: MAX_APP_STATE_BYTES_PER_USER,
  maxSessionBytes: config.MAX_SESSION_BYTES,
  maxUserBytes: Number.isFinite(config.fairness.MAX_USER_BYTES) ? config.fairness.MAX_USER_BYTES : null,
  maxOpenTasks: config.MAX_OPEN_TASKS,
  maxPendingDeliveries: MAX_PENDING_DELIVERIES,
  connectTimeoutMs: toWaitMs(config),
  onIdleError: ({ message }) => log.warn({ reason: message }, 'a database connection broke'),
  preparesStatements: false,
});

/** Opens the connections of transactional tools, if an agent has any. @throws {ConfigError} if that is impossible */
export async function openTools(
  config: Config,
  { serving, tools = serving }: DatabaseAccess,
  log: Log,
  agents: ReadonlyMap<string, HostedAgent>,
): Promise<ToolDatabase | undefined> {
  if (![...agents.values()].some((agent) => agent.hasTransactions)) return undefined;
  const { schema, warning } = await checkTools({ serving, tools });
  if (warning !== undefined) log.warn(warning);
  return openToolDatabase({ ...toPoolOptions(config, tools, log), schema });
}

/** @returns the schema of the tools' tables, and a warning if the tools' role has more privileges than it needs */
export async function checkTools({
  serving,
  tools = serving,
}: DatabaseAccess): Promise<{ schema: string; warning: string | undefined }> {
  const { schema, excess } = await withReason(tools, checkToolDatabase(tools, CHECKING));
  const { setting = 'DATABASE_URL' } = tools;
  const warning =
    excess &&
    `the SQL of transactional tools is kept from other rows by the check of its statements alone: the role of ${setting}, ` +
      `${excess}; give DATABASE_TOOLS_URL a role that is only a member of agent_runtime_tools`;
  return { schema, warning };
}

/**
 * Milliseconds to wait for a row lock or a connection: half the statement time-out, whose error would not tell what the
 * statement waited for.
 */
export const toWaitMs = (config: Config) => config.DATABASE_STATEMENT_TIMEOUT_MS / 2;

/** Finds the role for statements of one user. Warns if row-level security has no effect. */
async function findRowSecurity(
  config: Config,
  address: DatabaseAddress,
  log: Log,
): Promise<RowSecurity & { isOnCluster: boolean }> {
  const connecting = { connectionTimeoutMillis: toWaitMs(config), keepAlive: true };
  const {
    isVoid,
    isOnCluster = false,
    ...security
  } = await prepareRowSecurity(address, {
    application_name: 'agent-runtime roles',
    ...connecting,
  });
  if (isOnCluster) log.warn('row-level security is void: the database is a cluster, whose other nodes know no user');
  else if (isVoid) {
    log.warn(
      'row-level security is void: the role of DATABASE_URL is above it and may not use agent_runtime_user, which ' +
        'the migrator makes where it may; connect as a role without SUPERUSER and BYPASSRLS',
    );
  }
  return { ...security, isOnCluster };
}

const CHECKING = { application_name: 'agent-runtime check', connectionTimeoutMillis: 10_000, keepAlive: true };

/**
 * Applies missing migrations (`on-start`), checks that none is missing (`check`), or only that some version has
 * migrated it (`off`).
 * @returns the names of the applied migrations
 * @throws {ConfigError} if the database cannot be used
 */
export async function migrate(
  { serving, direct = serving, migration }: DatabaseAccess,
  mode: Config['MIGRATE'] = 'on-start',
  config?: Config,
): Promise<string[]> {
  const audit = config && { days: config.AUDIT_RETENTION_DAYS, count: config.AUDIT_RETENTION_COUNT };
  const applies = mode === 'on-start';
  const address = (applies && migration) || direct;
  const servingRole = address === migration ? await withReason(serving, findRole(serving, CHECKING)) : undefined;
  const options = { applies, takesAnyVersion: mode === 'off', servingRole, audit, agentsDir: config?.AGENTS_DIR };
  const applied = await withReason(address, migrateDatabase(address, options));
  if (mode !== 'off') await withReason(serving, checkServingRole(serving, CHECKING));
  return applied;
}

async function withReason<T>({ url, setting = 'DATABASE_URL' }: DatabaseAddress, work: Promise<T>): Promise<T> {
  return work.catch((error: unknown) => {
    const { hosts } = shownAddress(url);
    const reason = error instanceof Error ? error.message || (error as NodeJS.ErrnoException).code : String(error);
    const advice = error instanceof ConfigError ? '' : adviceOn(String(reason), setting);
    throw new ConfigError(`The database at ${hosts} cannot be used: ${reason}.${advice}`, { cause: error });
  });
}

/** Matches PgBouncer's error for connection settings that PgBouncer is not configured to ignore. */
const REFUSES_SETTINGS = /unsupported startup parameter/;
const adviceOn = (reason: string, setting: string) =>
  REFUSES_SETTINGS.test(reason) ? ' Set DATABASE_POOLER=transaction.' : ` Check ${setting}.`;
