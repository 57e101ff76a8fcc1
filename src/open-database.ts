import type { Config } from './core/config.ts';
import { ConfigError } from './core/errors.ts';
import type { Log } from './core/log.ts';
import { type DatabaseAddress, listServers, shownAddress } from './db/connection.ts';
import { type DatabasePool, openDatabase, type PoolOptions } from './db/database.ts';
import { startEmbedded } from './db/embedded/embedded.ts';
import { migrateDatabase } from './db/migrate.ts';
import { checkServingRole, findRole } from './db/rights.ts';
import { prepareRowSecurity, type RowSecurity } from './db/row-security.ts';

/** The ways to one database. */
export interface DatabaseAccess {
  /** As the role that serves. */
  serving: DatabaseAddress;
  /** As the role that owns the tables, where that is another one. */
  migration?: DatabaseAddress | undefined;
}

/** A database and what ends it. */
export interface DatabaseSource {
  access: DatabaseAccess;
  /** For people: where it is, without a password. */
  shown: string;
  stop(): Promise<void>;
}

/** The database of the settings; the embedded one is started. @throws {ConfigError} for a URL that is none. */
export async function findDatabase(config: Config): Promise<DatabaseSource> {
  const { DATABASE_URL, DATABASE_MIGRATION_URL, DATABASE_SCHEMA: schema, DATA_DIR } = config;
  if (DATABASE_URL === undefined) {
    if (DATABASE_MIGRATION_URL !== undefined) {
      throw new ConfigError('DATABASE_MIGRATION_URL: it is of no use without DATABASE_URL.');
    }
    const embedded = await startEmbedded({ dir: DATA_DIR });
    const shown = `embedded PostgreSQL in ${embedded.home}`;
    return { access: { serving: { url: embedded.url, schema } }, shown, stop: () => embedded.stop() };
  }
  const serving = { url: DATABASE_URL, schema };
  const migration = DATABASE_MIGRATION_URL && {
    url: DATABASE_MIGRATION_URL,
    schema,
    setting: 'DATABASE_MIGRATION_URL',
  };
  const access: DatabaseAccess = { serving, ...(migration ? { migration } : {}) };
  for (const address of [serving, migration]) if (address) listServers(address);
  const { hosts, database } = shownAddress(DATABASE_URL);
  return { access, shown: `PostgreSQL at ${hosts}${database}`, stop: async () => undefined };
}

/** Opens the pool of the service; warns where the database does not keep users apart. */
export async function openPool(
  config: Config,
  { serving }: DatabaseAccess,
  log: Log,
  onLent?: PoolOptions['onLent'],
): Promise<DatabasePool> {
  return openDatabase({
    ...serving,
    onLent,
    security: await findRowSecurity(config, serving, log),
    size: config.DATABASE_POOL_SIZE,
    statementTimeoutMs: config.DATABASE_STATEMENT_TIMEOUT_MS,
    lockTimeoutMs: config.DATABASE_LOCK_TIMEOUT_MS,
    maxStateBytes: config.MAX_STATE_BYTES,
    maxStateKeys: config.MAX_STATE_KEYS,
    maxAppStateBytesPerUser: config.MAX_APP_STATE_BYTES_PER_USER,
    maxSessionBytes: config.MAX_SESSION_BYTES,
    maxPendingDeliveries: config.WEBHOOKS_MAX_PENDING_PER_USER,
    connectTimeoutMs: config.DATABASE_CONNECT_TIMEOUT_MS,
    preparesStatements: config.DATABASE_PREPARED_STATEMENTS,
    onIdleError: ({ message }) => log.warn({ reason: message }, 'a database connection broke'),
  });
}

/** What statements for one user run as; the log says where nothing holds them to that user's rows. */
async function findRowSecurity(config: Config, address: DatabaseAddress, log: Log): Promise<RowSecurity> {
  const connecting = { connectionTimeoutMillis: config.DATABASE_CONNECT_TIMEOUT_MS, keepAlive: true };
  const { isVoid, ...found } = await prepareRowSecurity(address, {
    application_name: 'agent-runtime roles',
    ...connecting,
  });
  if (isVoid) {
    log.warn(
      'row-level security is void: the role of DATABASE_URL is above it and may not make or use agent_runtime_user; ' +
        'connect as a role without SUPERUSER and BYPASSRLS',
    );
  }
  return found;
}

const CHECKING = { application_name: 'agent-runtime check', connectionTimeoutMillis: 10_000, keepAlive: true };

/**
 * Brings the database up to date (`on-start`), or only looks (`check`), or does nothing (`off`).
 * @throws {ConfigError} when it cannot be used: why, without its password and without a statement.
 */
export async function migrate(
  { serving, migration }: DatabaseAccess,
  mode: Config['MIGRATE'] = 'on-start',
): Promise<void> {
  if (mode === 'off') return;
  if (mode === 'check') await withReason(serving, migrateDatabase(serving, { applies: false }));
  else if (migration) {
    const servingRole = await withReason(serving, findRole(serving, CHECKING));
    await withReason(migration, migrateDatabase(migration, { servingRole }));
  } else await withReason(serving, migrateDatabase(serving));
  await withReason(serving, checkServingRole(serving, CHECKING));
}

async function withReason<T>({ url, setting = 'DATABASE_URL' }: DatabaseAddress, work: Promise<T>): Promise<T> {
  return work.catch((error: unknown) => {
    const { hosts } = shownAddress(url);
    const reason = error instanceof Error ? error.message || (error as NodeJS.ErrnoException).code : String(error);
    const advice = error instanceof ConfigError ? '' : ` Check ${setting}.`;
    throw new ConfigError(`The database at ${hosts} cannot be used: ${reason}.${advice}`, { cause: error });
  });
}
