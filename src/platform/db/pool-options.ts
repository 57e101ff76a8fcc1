import { type DatabaseAddress, STAY_OPEN } from './connection.ts';
import { FOR_ALL_USERS, type RowSecurity, type SessionSettings } from './row-security.ts';

/** Limits of rows, as arguments of statements: settings of a connection do not reach other nodes or past a pooler. */
export interface RowLimits {
  /** Maximum size of the state of a session, user or app, bytes of its JSON: `assert_state_size` holds it. */
  maxStateBytes: number;
  maxStateKeys: number;
  /** Maximum size of what agents write into the state of an app for one user: `assert_writer_share` holds it. */
  maxAppStateBytesPerUser: number;
  /** Maximum size of the events of a session, bytes of their JSON: the SQL function `assert_session_size` holds it. */
  maxSessionBytes: number;
  /** Maximum size of what a user keeps in an application [no limit]: `assert_user_storage` holds it. */
  maxUserBytes: number | null;
  /** Maximum of open tasks of a user in an application: the SQL function `open_tasks` holds it. */
  maxOpenTasks: number;
}

/** How the pools behave. */
export interface PoolOptions extends DatabaseAddress, RowLimits {
  /** Maximum of connections of this process; a quarter of them (one at least) are for reads. */
  size: number;
  /** Time-out of one statement. */
  statementTimeoutMs: number;
  /** Time-out of the wait for a row lock. */
  lockTimeoutMs: number;
  /** Maximum of deliveries of a user that wait: the SQL function `insert_webhook_delivery` holds it. */
  maxPendingDeliveries: number;
  /** True: connections keep the plans of their statements; a pooler between has to know prepared statements. */
  preparesStatements: boolean;
  /** True: it is the coordinator of a cluster, whose other nodes carry out what concerns one user [false]. */
  isOnCluster?: boolean;
  /** Time-out of the wait for a free connection, and for a new one to open. */
  connectTimeoutMs: number;
  /** Role for statements of one user [that of the connection]. */
  security?: RowSecurity;
  /** A streaming replica for plain reads, with as many connections [none]. */
  replica?: DatabaseAddress | undefined;
  /** Called with the time that a connection was waited for. */
  onLent?: ((pool: 'main' | 'reads', seconds: number) => void) | undefined;
  /** An idle connection broke; the pool has dropped it and goes on. */
  onIdleError: (error: Error) => void;
}

/** Shortest time-out of a transaction that sends nothing; it has that of a statement where that is longer. */
const IDLE_IN_TRANSACTION_MS = 10_000;

/** Settings that limit the statements of a pool. */
export const ownSettings = (options: PoolOptions) => ({
  statement_timeout: String(options.statementTimeoutMs),
  lock_timeout: String(options.lockTimeoutMs),
  idle_in_transaction_session_timeout: String(Math.max(IDLE_IN_TRANSACTION_MS, options.statementTimeoutMs)),
  'agent_runtime.max_pending_deliveries': String(options.maxPendingDeliveries),
});

/** Settings that a connection is opened with; none behind a pooler, which would refuse them or drop them. */
export const connectionSettings = (options: PoolOptions): Record<string, string> =>
  options.isPooled
    ? {}
    : {
        ...ownSettings(options),
        ...FOR_ALL_USERS,
        // The database of another operator may have any of these; what we read and lock is not to depend on them.
        default_transaction_isolation: 'read committed',
        DateStyle: 'ISO',
        TimeZone: 'UTC',
        ...STAY_OPEN,
      };

/** Settings that statements and transactions bring along: behind a pooler in transaction mode, all of them. */
export function settingsFor(options: PoolOptions): SessionSettings {
  const { schema, isPooled, isOnCluster = false } = options;
  const security = { ...(options.security ?? { role: undefined }), hasNoUsers: isOnCluster };
  if (!isPooled) return security;
  return { ...security, local: { ...ownSettings(options), ...(schema === undefined ? {} : { search_path: schema }) } };
}
