import { getTableName, getViewName, is } from 'drizzle-orm';
import { PgTable, PgView } from 'drizzle-orm/pg-core';
import { type Client, type ClientConfig, escapeIdentifier } from 'pg';
import { ConfigError } from '../../core/errors.ts';
import type { DatabaseAddress } from './connection.ts';
import * as tables from './schema/schema.ts';
import { connect } from './client.ts';

/**
 * drizzle's table of applied migrations, in the schema that it describes, so that both are dumped and restored together.
 */
export const JOURNAL = 'agent_runtime_migrations';
/** Table of the sections of `migrations/repeatable/` that were applied. */
export const REPEATABLES = getTableName(tables.repeatables);
export const TABLE_NAMES: readonly string[] = Object.values(tables).flatMap((each) =>
  is(each, PgTable) ? [getTableName(each)] : [],
);
const VIEW_NAMES = Object.values(tables).flatMap((each) => (is(each, PgView) ? [getViewName(each)] : []));
/** Role for statements of one user, if the connection's role bypasses row-level security. It owns nothing. */
export const LIMITED_ROLE = 'agent_runtime_user';
const ROWS = ['select', 'insert', 'update', 'delete'];
/** Privileges of the serving role by table, where they differ from full access to rows. */
const SERVING: Record<string, string[]> = { audit_log: ['insert', 'select'], [REPEATABLES]: ['select'] };
/**
 * Privileges of the limited role, where they differ from full access to rows; SECURITY DEFINER functions do the rest.
 */
const LIMITED: Record<string, string[]> = {
  agent_prompts: ['select', 'insert', 'update (use_time)'],
  [REPEATABLES]: [],
  agent_versions: ['select'],
  app_states: ['select'],
  audit_log: [],
  budget_alerts: ['select'],
  budget_reservations: ['select'],
  budget_totals: ['select'],
  budget_uses: ['select'],
  budgets: ['select'],
  model_prices: ['select'],
  rate_limits: [],
  score_rules: ['select'],
  user_storage: ['select'],
};
const FOR_ALL_USERS = ['delete_old_audit_entries', 'keep_answer'];

/** Lists a role's privileges by table. Row-level security restricts both roles to the rows of the current user. */
const tableRights = (role: string): [table: string, privileges: string[]][] => {
  const rights = role === LIMITED_ROLE ? LIMITED : { ...SERVING, [JOURNAL]: ['select'] };
  const names = role === LIMITED_ROLE ? TABLE_NAMES : [...TABLE_NAMES, JOURNAL];
  return [
    ...names.map((name): [string, string[]] => [name, rights[name] ?? ROWS]),
    ...VIEW_NAMES.map((name): [string, string[]] => [name, ['select']]),
  ];
};
/** Advisory lock key for grants, because concurrent grants fail. */
export const GRANT_LOCK = 7_240_009;
/** Maximum number of missing privileges named in an error; the rest is counted. */
const MAX_NAMED = 3;

/** Lists a role's missing privileges on tables, and on functions of the tables' owner; trigger functions need none. */
const LACKING = `
  with theirs (role, schema) as (values ($1::name, $2::name))
  select 'usage on schema ' || schema as lack from theirs where not has_schema_privilege(role, schema, 'usage')
  union all
  select string_agg(privilege, ', ' order by place) || ' on ' || c.relname
  from theirs, pg_class c join pg_namespace n on n.oid = c.relnamespace,
    unnest($3::text[], $4::text[]) with ordinality each (name, privilege, place)
  where n.nspname = schema and c.relkind in ('r', 'v') and c.relname = name
    and not case when privilege = 'delete' then has_table_privilege(role, c.oid, privilege)
                 else has_any_column_privilege(role, c.oid, split_part(privilege, ' ', 1)) end
  group by c.relname
  union all
  select 'execute on function ' || p.proname
  from theirs, pg_proc p join pg_namespace n on n.oid = p.pronamespace
    join pg_class c on c.relnamespace = n.oid and c.relname = 'sessions' and c.relowner = p.proowner
  where n.nspname = schema and p.proname <> all($5) and p.prorettype <> 'trigger'::regtype
    and not has_function_privilege(role, p.oid, 'execute')
  order by lack`;

/** Lists the missing privileges of a role, e.g. `insert, update on events`. */
export async function listLackingRights(client: Client, schema: string, role: string): Promise<string[]> {
  const each = tableRights(role).flatMap(([name, privileges]) => privileges.map((privilege) => [name, privilege]));
  const [names, privileges] = [each.map(([name]) => name), each.map(([, privilege]) => privilege)];
  const { rows } = await client.query<{ lack: string }>(LACKING, [role, schema, names, privileges, notFor(role)]);
  return rows.map(({ lack }) => lack);
}

const notFor = (role: string) => (role === LIMITED_ROLE ? FOR_ALL_USERS : []);

/** Grants the missing privileges; safe for concurrent replicas. @throws if the current role may not grant them */
export async function grantRights(client: Client, schema: string, role: string): Promise<void> {
  if ((await listLackingRights(client, schema, role)).length === 0) return;
  await client.query(`begin; select pg_advisory_xact_lock(${GRANT_LOCK})`);
  await grantLacking(client, schema, role);
  await client.query('commit');
}

/** Grants the missing privileges on what is there, in a transaction of the caller that has the lock for grants. */
export async function grantLacking(client: Client, schema: string, role: string): Promise<void> {
  if ((await listLackingRights(client, schema, role)).length === 0) return;
  const [inSchema, toRole] = [escapeIdentifier(schema), escapeIdentifier(role)];
  // A view is absent while a migration of tables that had to drop it is applied.
  const there = await client.query<{ name: string }>(
    `select relname as name from pg_class where relnamespace = $1::regnamespace and relkind in ('r', 'v', 'p')`,
    [inSchema],
  );
  const names = new Set(there.rows.map(({ name }) => name));
  const grants = tableRights(role)
    .filter(([name, privileges]) => privileges.length > 0 && names.has(name))
    .map(
      ([name, privileges]) => `grant ${privileges.join(', ')} on ${inSchema}.${escapeIdentifier(name)} to ${toRole};`,
    );
  await client.query(`grant usage on schema ${inSchema} to ${toRole}; ${grants.join(' ')}`);
  const { rows } = await client.query<{ name: string }>(
    `select p.oid::regprocedure::text as name from pg_proc p
     join pg_class c on c.oid = $1::regclass and c.relnamespace = p.pronamespace and c.relowner = p.proowner
     where p.proname <> all($3) and p.prorettype <> 'trigger'::regtype
       and not has_function_privilege($2, p.oid, 'execute')`,
    [`${inSchema}.sessions`, role, notFor(role)],
  );
  for (const { name } of rows) await client.query(`grant execute on function ${name} to ${toRole}`);
}

export const findRole = (address: DatabaseAddress, config: ClientConfig): Promise<string> =>
  withConnection(address, config, async (client) => {
    const { rows } = await client.query<{ role: string }>('select current_user as role');
    return rows[0]?.role ?? '';
  });

/** @throws {ConfigError} if tables are missing, or the serving role lacks privileges on them */
export const checkServingRole = (address: DatabaseAddress, config: ClientConfig): Promise<void> =>
  withConnection(address, config, async (client) => {
    const { rows } = await client.query<{ role: string; schema: string | null }>(
      'select current_user as role, coalesce($1, current_schema()) as schema',
      [address.schema],
    );
    const { role = '', schema } = rows[0] ?? {};
    if (schema == null) throw new ConfigError('its search_path names no schema that exists');
    await checkTables(client, schema);
    const lacking = await listLackingRights(client, schema, role);
    if (lacking.length === 0) return;
    const more = lacking.length > MAX_NAMED ? ` and ${lacking.length - MAX_NAMED} more` : '';
    throw new ConfigError(
      `the role ${role} lacks ${lacking.slice(0, MAX_NAMED).join('; ')}${more}. ` +
        'Apply the migrations with DATABASE_MIGRATION_URL and DATABASE_URL set, which grants them',
    );
  });

export async function hasTable(client: Client, schema: string, name: string): Promise<boolean> {
  const { rowCount } = await client.query(
    'select from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = $1 and c.relname = $2',
    [schema, name],
  );
  return rowCount === 1;
}

/** @throws {ConfigError} if a table is missing although its migration is recorded as applied */
export async function checkTables(client: Client, schema: string): Promise<void> {
  const { rows } = await client.query<{ name: string }>(
    `select name from unnest($2::text[]) name where not exists (
       select from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = $1 and c.relname = name)
     order by name collate "C"`,
    [schema, TABLE_NAMES],
  );
  if (rows.length === 0) return;
  const lacking = rows.map(({ name }) => name).join(', ');
  throw new ConfigError(`it lacks ${lacking}, although all migrations were applied to it`);
}

/** Opens a separate connection, possibly to a standby. */
export async function withConnection<T>(
  address: DatabaseAddress,
  config: ClientConfig,
  work: (client: Client) => Promise<T>,
): Promise<T> {
  const client = await connect(address, config, { acceptsReadOnly: true });
  try {
    return await work(client);
  } finally {
    await client.end().catch(() => undefined);
  }
}
