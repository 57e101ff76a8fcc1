import { type ClientConfig, escapeIdentifier } from 'pg';
import { orAborted } from '../../core/abort.ts';
import type { JsonObject } from '../../core/content.ts';
import { AgentError, ConfigError } from '../../core/errors.ts';
import { runWith } from '../context.ts';
import { ServerChoice, sqlState } from './client.ts';
import { type DatabaseAddress, listServers } from './connection.ts';
import { type Database, poolOptions, transaction } from './database.ts';
import { isOnCluster } from './distribute.ts';
import type { ToolSql } from '../../core/tool-sql.ts';
import { PrimaryPool } from './pool.ts';
import { connectionSettings, ownSettings, type PoolOptions } from './pool-options.ts';
import { withConnection } from './rights.ts';
import { Bounds, checkStatement } from './tool-statement.ts';
import { KEEP_ANSWER, TOOLS_ROLE, toToolSchema } from './tool-schema.ts';

type Keep<T> = (tx: Database, result: T) => Promise<void>;

/** Runs the transactions of tools as their role, on connections of their own. */
export interface ToolDatabase {
  /** The function that keeps an answer within such a transaction. */
  keepFunction: string;
  /** Runs `work` for a user, keeps its result and commits; any throw, an abort or too long a time rolls back. */
  transact<T>(userId: string, signal: AbortSignal, work: (sql: ToolSql) => Promise<T>, keep: Keep<T>): Promise<T>;
  close(): Promise<void>;
}

/** Connections of the tools: a part of those of the service, but enough for two users who take their share. */
const [PART, MIN_CONNECTIONS] = [0.25, 4];
/** Maximum time of a transaction: it holds locks and a connection. */
const MAX_TRANSACTION_MS = 30_000;
/** Opens the pool of the tools, in which no user has more than a share; nothing connects before the first call. */
export function openToolDatabase(options: PoolOptions & { schema: string }): ToolDatabase {
  const places = Math.max(MIN_CONNECTIONS, Math.floor(options.size * PART));
  const schema = toToolSchema(options.schema);
  const local = { ...ownSettings(options), search_path: `${escapeIdentifier(schema)}, pg_temp` };
  // Behind a pooler a session is not ours to clear; what would outlive a call is refused to its statements.
  const clears = options.isPooled !== true;
  const own = { settings: { role: TOOLS_ROLE, local }, preparesStatements: false, busyText: BUSY, clears };
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
      // Behind all that was sent, also what the tool did not wait for.
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
      return runWith({ userId, caller: `user:${userId}` }, () => transaction(pool, options, all));
    },
    close: () => pool.end(),
  };
}

const FAILED = 'A statement of the tool failed, so nothing of it was kept.';
const BUSY = 'Other calls use all database connections of the tools. Try again in a moment.';
const TOO_LONG = `The transaction took longer than ${MAX_TRANSACTION_MS / 1000} s: nothing of this call was kept.`;

const NEEDED = 'a tool is `transactional`, and needs';

/**
 * Checks that transactional tools can work in a database.
 * @returns the schema of the service, and what a statement could do that left the role of the tools [nothing more]
 * @throws {ConfigError}
 */
export const checkToolDatabase = (
  address: DatabaseAddress,
  config: ClientConfig,
): Promise<{ schema: string; excess: string | undefined }> =>
  withConnection(address, config, async (client) => {
    if (await isOnCluster(client))
      throw new ConfigError(
        'it is a cluster, where a tool cannot be `transactional`: its rows would be on other nodes',
      );
    const { rows } = await client.query<Found>(FIND, [address.schema, TOOLS_ROLE]);
    const { schema = '', schemas = [], isMember, mayLook, role, ...excess } = rows[0] ?? ({} as Partial<Found>);
    const own = toToolSchema(schema);
    if (!schemas.includes(own))
      throw new ConfigError(`${NEEDED} its schema ${own}: write agents/<name>/migrations/0001.sql, and migrate`);
    if (isMember !== true) throw new ConfigError(`${NEEDED} the right to act as ${TOOLS_ROLE}: grant it to its role`);
    if (mayLook !== true)
      throw new ConfigError(`${NEEDED} the right to check its statements: ${toGrant(excess.database)}`);
    return { schema, excess: describeExcess(role, excess) };
  });

interface Found {
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

/** A statement is checked as the body of a temporary function. */
const toGrant = (database = '') => `grant temporary on database ${database} to ${TOOLS_ROLE}`;

function describeExcess(role = '', found: Partial<Found>): string | undefined {
  if (found.isAbove) return `${role} is a superuser, or above row-level security, or makes roles`;
  if (found.ownsTables) return `${role} owns the tables of the service`;
  if (found.readsTables) return `${role} reads the tables of the service`;
  return found.isTools ? `${role} is ${TOOLS_ROLE} itself, which sees the calls of others` : undefined;
}
