import { type DatabaseAddress, STAY_OPEN } from './connection.ts';
import { FOR_ALL_USERS, type RowSecurity, type SessionSettings } from './row-security.ts';

/**
 * Limits on rows, passed as arguments, because session settings do not reach other nodes or pass a pooler. The named
 * SQL functions enforce them.
 */
export interface RowLimits {
  /** State of a session, a user or an application, in bytes of JSON (`assert_state_size`). */
  maxStateBytes: number;
  maxStateKeys: number;
  /** State that agents write to an application's shared state on behalf of one user (`assert_writer_share`). */
  maxAppStateBytesPerUser: number;
  /** Events of a session, in bytes of JSON (`assert_session_size`). */
  maxSessionBytes: number;
  /** Stored data of a user in an application; null: unlimited (`assert_user_storage`). */
  maxUserBytes: number | null;
  /** Open tasks of a user in an application (`open_tasks`). */
  maxOpenTasks: number;
}

export interface PoolOptions extends DatabaseAddress, RowLimits {
  /** Connections of this process; a quarter, at least one, is reserved for reads. */
  size: number;
  statementTimeoutMs: number;
  lockTimeoutMs: number;
  /** Pending webhook deliveries of a user (`insert_webhook_delivery`). */
  maxPendingDeliveries: number;
  /** True: use prepared statements; a pooler in between must support them. */
  preparesStatements: boolean;
  /** True: the database is the coordinator of a Citus cluster; default: false. */
  isOnCluster?: boolean;
  /** Time-out for a free connection, and for opening one. */
  connectTimeoutMs: number;
  /** Role for statements restricted to one user; default: the connection's. */
  security?: RowSecurity;
  /** Streaming replica for plain reads, with its own pool of the same size; default: none. */
  replica?: DatabaseAddress | undefined;
  onLent?: ((pool: 'main' | 'reads', seconds: number) => void) | undefined;
  /** Called when an idle connection broke; the pool has dropped it. */
  onIdleError: (error: Error) => void;
}

/** Minimum time-out of an idle transaction; the statement time-out applies if it is longer. */
const IDLE_IN_TRANSACTION_MS = 10_000;

export const ownSettings = (options: PoolOptions) => ({
  statement_timeout: String(options.statementTimeoutMs),
  lock_timeout: String(options.lockTimeoutMs),
  idle_in_transaction_session_timeout: String(Math.max(IDLE_IN_TRANSACTION_MS, options.statementTimeoutMs)),
  'agent_runtime.max_pending_deliveries': String(options.maxPendingDeliveries),
});

/** Settings of a new connection; none behind a pooler, which would refuse or drop them. */
export const connectionSettings = (options: PoolOptions): Record<string, string> =>
  options.isPooled
    ? {}
    : {
        ...ownSettings(options),
        ...FOR_ALL_USERS,
        // An operator's database may have other defaults; our reads and locks must not depend on them.
        default_transaction_isolation: 'read committed',
        DateStyle: 'ISO',
        TimeZone: 'UTC',
        ...STAY_OPEN,
      };

/** Settings sent with statements and transactions: behind a pooler in transaction mode, all of them. */
export function settingsFor(options: PoolOptions): SessionSettings {
  const { schema, isPooled, isOnCluster = false } = options;
  const security = { ...(options.security ?? { role: undefined }), hasNoUsers: isOnCluster };
  if (!isPooled) return security;
  return { ...security, local: { ...ownSettings(options), ...(schema === undefined ? {} : { search_path: schema }) } };
}
