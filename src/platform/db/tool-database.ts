import { type ClientConfig, escapeIdentifier } from 'pg';
import { orAborted } from '../../core/abort.ts';
import type { JsonObject } from '../../core/content.ts';
import { AgentError, ConfigError } from '../../core/errors.ts';
import { runWith } from '../context.ts';
import { ServerChoice, sqlState, TOOL_TYPES } from './client.ts';
import { type DatabaseAddress, listServers } from './connection.ts';
import { type Database, poolOptions, transaction } from './database.ts';
import { isOnCluster, REFUSED_ON_CLUSTER } from './cluster.ts';
import type { ToolSql } from '../../core/tool-sql.ts';
import { PrimaryPool } from './pool.ts';
import { connectionSettings, ownSettings, type PoolOptions } from './pool-options.ts';
import { withConnection } from './rights.ts';
import { Bounds, checkStatement } from './tool-statement.ts';
import { KEEP_ANSWER, TOOLS_ROLE, toToolSchema } from './tool-schema.ts';

type StoreResult<T> = (tx: Database, result: T) => Promise<void>;

/** Runs transactions of transactional tools under the role `agent_runtime_tools`, on separate connections. */
export interface ToolDatabase {
  /** Name of the SQL function that stores a tool call's result within its transaction. */
  keepFunction: string;
  /**
   * Runs `work` for a user, stores its result and commits. A throw, an abort or the time limit rolls everything back.
   */
  transact<T>(
    userId: string,
    signal: AbortSignal,
    work: (sql: ToolSql) => Promise<T>,
    keep: StoreResult<T>,
  ): Promise<T>;
  close(): Promise<void>;
}

/** Share of the service's connections that tools may use. */
const SHARE = 0.25;
/** Minimum number of connections for tools, enough for two users with their maximum share. */
const MIN_CONNECTIONS = 4;
/** Time limit of a tool transaction in milliseconds, because it holds locks and a connection. */
const MAX_TRANSACTION_MS = 30_000;
/** Opens the connection pool for tools, in which each user has a limited share. The first call connects. */
export function openToolDatabase(options: PoolOptions & { schema: string }): ToolDatabase {
  const places = Math.max(MIN_CONNECTIONS, Math.floor(options.size * SHARE));
  const schema = toToolSchema(options.schema);
  const local = { ...ownSettings(options), search_path: `${escapeIdentifier(schema)}, pg_temp` };
  // Behind a pooler sessions cannot be cleared; there, statements with lasting effects are refused anyway.
  const clears = options.isPooled !== true;
  const own = {
    settings: { role: TOOLS_ROLE, local },
    preparesStatements: false,
    types: TOOL_TYPES,
    // A call waits as long as those before it may take: one that fails because others work was sent in vain.
    turns: { waitMs: Math.max(MAX_TRANSACTION_MS, options.connectTimeoutMs), busyText: BUSY },
    clears,
  };
  const servers = new ServerChoice(listServers(options, connectionSettings(options)));
  const pool = new PrimaryPool({ ...poolOptions(options, places), ...own }, servers);
  const run = async <T>(tx: Database, signal: AbortSignal, work: (sql: ToolSql) => Promise<T>) => {
    let isOver = false;
    const bounds = new Bounds(tx);
    const sql: ToolSql = async (text, values = []) => {
      const assertOpen = () => {
        if (isOver) throw new Error('The transaction of this call is over: await all of its statements.');
      };
      assertOpen();
      await checkStatement(tx, text, schema);
      assertOpen();
      return (await bounds.hold(text, values)).rows as JsonObject[];
    };
    const limit = new AbortController();
    const timer = setTimeout(() => limit.abort(new AgentError('time_limit', TOO_LONG)), MAX_TRANSACTION_MS);
    try {
      signal.throwIfAborted();
      await bounds.hold();
      const result = await orAborted(work(sql), AbortSignal.any([signal, limit.signal]));
      isOver = true;
      // The check is queued after all statements that the tool sent, even those that it did not await.
      await bounds.hold();
      return result;
    } catch (error) {
      if (isOver && sqlState(error)?.code === '25P02') throw new Error(FAILED, { cause: error });
      throw error;
    } finally {
      isOver = true;
      clearTimeout(timer);
    }
  };
  return {
    keepFunction: `${escapeIdentifier(options.schema)}.${KEEP_ANSWER}`,
    transact: (userId, signal, work, keep) => {
      const all = async (tx: Database) => {
        const result = await run(tx, signal, work);
        await keep(tx, result);
        return result;
      };
      return runWith({ userId, caller: `user:${userId}` }, () => transaction(pool, options, all, {}, signal));
    },
    close: () => pool.end(),
  };
}

const FAILED = 'A statement of the tool failed, so nothing of it was kept.';
const BUSY = 'Other calls use all database connections of the tools. Try again in a moment.';
const TOO_LONG = `The transaction took longer than ${MAX_TRANSACTION_MS / 1000} s: nothing of this call was kept.`;

const NEEDED = 'a tool is `transactional`, and needs';

/**
 * @returns the service's schema; in `excess` the privileges that a statement gains by leaving the tools' role, if any
 * @throws {ConfigError} if transactional tools cannot work in the database
 */
export const checkToolDatabase = (
  address: DatabaseAddress,
  config: ClientConfig,
): Promise<{ schema: string; excess: string | undefined }> =>
  withConnection(address, config, async (client) => {
    if (await isOnCluster(client)) throw new ConfigError(REFUSED_ON_CLUSTER.transactionalTools);
    const { rows } = await client.query<ToolDatabaseRow>(FIND, [address.schema, TOOLS_ROLE]);
    const {
      schema = '',
      schemas = [],
      isMember,
      mayLook,
      role,
      ...excess
    } = rows[0] ?? ({} as Partial<ToolDatabaseRow>);
    const own = toToolSchema(schema);
    if (!schemas.includes(own))
      throw new ConfigError(`${NEEDED} its schema ${own}: write agents/<name>/migrations/0001.sql, and migrate`);
    if (isMember !== true) throw new ConfigError(`${NEEDED} the right to act as ${TOOLS_ROLE}: grant it to its role`);
    if (mayLook !== true)
      throw new ConfigError(`${NEEDED} the right to check its statements: ${toGrant(excess.database)}`);
    return { schema, excess: describeExcess(role, excess) };
  });

interface ToolDatabaseRow {
  schema: string;
  schemas: string[];
  isMember: boolean | null;
  mayLook: boolean | null;
  role: string;
  database: string;
  isAbove: boolean;
  ownsTables: boolean | null;
  readsTables: boolean | null;
  isTools: boolean;
}

const FIND = `
  select coalesce($1, current_schema()) as schema, array(select nspname::text from pg_namespace) as schemas,
    pg_has_role(tools.oid, 'member') as "isMember", has_database_privilege(tools.oid, database.oid, 'temporary') as "mayLook",
    own.rolname as role, quote_ident(datname) as database, own.rolsuper or own.rolbypassrls or own.rolcreaterole as "isAbove",
    pg_has_role(sessions.relowner, 'member') as "ownsTables", has_table_privilege(own.oid, sessions.oid, 'select') as "readsTables",
    coalesce(tools.oid = own.oid or pg_has_role(tools.oid, own.oid, 'member'), false) as "isTools"
  from pg_roles own
  join pg_database database on datname = current_database()
  left join pg_roles tools on tools.rolname = $2
  left join pg_class sessions
    on sessions.relname = 'sessions' and sessions.relnamespace = to_regnamespace(quote_ident(coalesce($1, current_schema())))
  where own.rolname = current_user`;

/** SQL grant for temporary objects, because statements are checked as the body of a temporary function. */
const toGrant = (database = '') => `grant temporary on database ${database} to ${TOOLS_ROLE}`;

function describeExcess(role = '', row: Partial<ToolDatabaseRow>): string | undefined {
  if (row.isAbove) return `${role} is a superuser, or above row-level security, or makes roles`;
  if (row.ownsTables) return `${role} owns the tables of the service`;
  if (row.readsTables) return `${role} reads the tables of the service`;
  return row.isTools ? `${role} is ${TOOLS_ROLE} itself, which sees the calls of others` : undefined;
}
