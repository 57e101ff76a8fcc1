import { type DatabaseAddress, STAY_OPEN } from './connection.ts';
import { FOR_ALL_USERS, type RowSecurity, type SessionSettings } from './row-security.ts';

/** Limits on rows: arguments of SQL functions, because session settings neither reach other nodes nor pass a pooler. */
export interface RowLimits {
  /** Maximum size of the state of a session, a user or an application, in bytes of JSON (`assert_state_size`). */
  maxStateBytes: number;
  maxStateKeys: number;
  /** Maximum bytes that agents may write to an application's state on behalf of a user (`assert_writer_share`). */
  maxAppStateBytesPerUser: number;
  /** Maximum size of a session's events, in bytes of JSON (`assert_session_size`). */
  maxSessionBytes: number;
  /** Maximum bytes that a user may store in an application; null: unlimited (`assert_user_storage`). */
  maxUserBytes: number | null;
  /** Maximum number of open tasks of a user in an application (`open_tasks`). */
  maxOpenTasks: number;
}

export interface PoolOptions extends DatabaseAddress, RowLimits {
  /** Maximum number of connections of this process; a quarter, at least one, is reserved for reads. */
  size: number;
  statementTimeoutMs: number;
  lockTimeoutMs: number;
  /** Maximum number of pending webhook deliveries of a user (`insert_webhook_delivery`). */
  maxPendingDeliveries: number;
  /** True: use prepared statements, which a pooler in between must support. */
  preparesStatements: boolean;
  /** True: the database is the coordinator of a Citus cluster. Default: false. */
  isOnCluster?: boolean;
  /** Time-out for waiting for a free connection, and for opening a connection, in milliseconds. */
  connectTimeoutMs: number;
  /** Role for statements restricted to a single user. Default: the connection's role. */
  security?: RowSecurity;
  onLent?: ((pool: 'main' | 'reads', seconds: number) => void) | undefined;
  /** Called when an idle connection broke; the pool has dropped it. */
  onIdleError: (error: Error) => void;
}

/** Minimum time-out of an idle transaction, in milliseconds; a longer statement time-out takes precedence. */
const IDLE_IN_TRANSACTION_MS = 10_000;

export const ownSettings = (options: PoolOptions) => ({
  statement_timeout: String(options.statementTimeoutMs),
  lock_timeout: String(options.lockTimeoutMs),
  idle_in_transaction_session_timeout: String(Math.max(IDLE_IN_TRANSACTION_MS, options.statementTimeoutMs)),
  'agent_runtime.max_pending_deliveries': String(options.maxPendingDeliveries),
  // Times are read as PostgreSQL prints them with this style.
  DateStyle: 'ISO',
});

/** Returns the settings of a new connection; none behind a pooler, which would refuse or drop them. */
export const connectionSettings = (options: PoolOptions): Record<string, string> =>
  options.isPooled
    ? {}
    : {
        ...ownSettings(options),
        ...FOR_ALL_USERS,
        // The settings are explicit, because reads and locks must not depend on the defaults of an operator's database.
        default_transaction_isolation: 'read committed',
        TimeZone: 'UTC',
        ...STAY_OPEN,
      };

/** Settings that are sent with each statement and transaction; behind a pooler in transaction mode, all of them. */
export function settingsFor(options: PoolOptions): SessionSettings {
  const { schema, isPooled, isOnCluster = false } = options;
  const security = { ...(options.security ?? { role: undefined }), hasNoUsers: isOnCluster };
  if (!isPooled) return security;
  return { ...security, local: { ...ownSettings(options), ...(schema === undefined ? {} : { search_path: schema }) } };
}
