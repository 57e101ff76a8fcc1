import { type Client, type ClientConfig, DatabaseError, escapeIdentifier, escapeLiteral } from 'pg';
import { ConfigError } from '../../core/errors.ts';
import { connect } from './client.ts';
import type { DatabaseAddress } from './connection.ts';
import { listMade } from './repeatable.ts';
import { JOURNAL, REPEATABLES, TABLE_NAMES, toOutlineSchema, toViewSchema, VIEW_NAMES } from './schema-names.ts';

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

/** Lists a role's missing privileges on tables, and on functions of their owner; trigger functions need none. */
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
  where n.nspname = schema and p.proname = any($5) and p.prorettype <> 'trigger'::regtype
    and not has_function_privilege(role, p.oid, 'execute')
  order by lack`;

/** Lists the missing privileges of a role, e.g. `insert, update on events`. */
async function listLackingRights(client: Client, schema: string, role: string): Promise<string[]> {
  const each = tableRights(role).flatMap(([name, privileges]) => privileges.map((privilege) => [name, privilege]));
  const [names, privileges] = [each.map(([name]) => name), each.map(([, privilege]) => privilege)];
  const { rows } = await client.query<{ lack: string }>(LACKING, [role, schema, names, privileges, functionsFor(role)]);
  return rows.map(({ lack }) => lack);
}

const functionsFor = (role: string) =>
  listMade('function').filter((name) => role !== LIMITED_ROLE || !FOR_ALL_USERS.includes(name));

/** Grants the missing privileges; safe for concurrent replicas. @throws if the current role may not grant them */
export async function grantRights(client: Client, schema: string, role: string): Promise<void> {
  if ((await listLackingRights(client, schema, role)).length === 0) return;
  await client.query(`begin; select pg_advisory_xact_lock(${GRANT_LOCK})`);
  await grantLacking(client, schema, role);
  await client.query('commit');
}

/**
 * Grants what a migration has made to the roles that are there already, in its transaction, which has the lock for
 * grants.
 */
export async function grantEach(client: Client, schema: string, servingRole = ''): Promise<void> {
  const { rows } = await client.query<{ role: string }>(
    'select rolname as role from pg_roles where rolname = any($1)',
    [[servingRole, LIMITED_ROLE]],
  );
  for (const { role } of rows) await grantLacking(client, schema, role);
  for (const [role, schemaOf] of Object.entries(READERS))
    if (!(await readsAll(client, role, schemaOf(schema)))) await client.query(granting(role, schemaOf(schema)));
}

/** Grants the missing privileges on what is there. */
async function grantLacking(client: Client, schema: string, role: string): Promise<void> {
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
     where p.proname = any($3) and p.prorettype <> 'trigger'::regtype
       and not has_function_privilege($2, p.oid, 'execute')`,
    [`${inSchema}.sessions`, role, functionsFor(role)],
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

/** Reader roles for people (no login by default), with the schema of views that each may read. */
const READERS = { agent_runtime_reader: toViewSchema, agent_runtime_outline_reader: toOutlineSchema };

/**
 * Creates missing reader roles, and the limited role if the serving role bypasses row-level security. Skips what the
 * current role may not do; start-up reports a missing limited role.
 * @param servingRole - default: the current role
 */
export async function makeRoles(client: Client, schema: string, servingRole: string | undefined): Promise<void> {
  const { rows } = await client.query<{ role: string; isAbove: boolean; isSuper: boolean; mayCreate: boolean }>(
    `select s.rolname as role, s.rolsuper or s.rolbypassrls as "isAbove", s.rolsuper as "isSuper",
            own.rolsuper or own.rolcreaterole as "mayCreate"
     from pg_roles own, pg_roles s where own.rolname = current_user and s.rolname = coalesce($1, current_user)`,
    [servingRole],
  );
  const [serving] = rows;
  // No role is created without the privilege, so that the server's log stays free of errors.
  const toCreate = (role: string) => (serving?.mayCreate ? creating(role) : '');
  if (serving?.isAbove && !(await isLimitedRoleReady(client, schema, serving.role))) {
    await tryTo(client, async () => {
      const grant = `grant ${LIMITED_ROLE} to ${escapeIdentifier(serving.role)};`;
      await client.query(inTransaction(`${toCreate(LIMITED_ROLE)} ${serving.isSuper ? '' : grant}`));
      await grantRights(client, schema, LIMITED_ROLE);
    });
  }
  for (const [role, schemaOf] of Object.entries(READERS)) {
    const views = schemaOf(schema);
    if (await readsAll(client, role, views)) continue;
    await tryTo(client, () => client.query(inTransaction(`${toCreate(role)} ${granting(role, views)}`)));
    await tryTo(client, () => client.query(inTransaction(showingAll(role))));
  }
}

/** True if the limited role exists with its privileges, and `role` may use it. */
export async function isLimitedRoleReady(client: Client, schema: string, role: string): Promise<boolean> {
  const { rowCount } = await client.query('select from pg_roles where rolname = $1 and pg_has_role($2, oid, $3)', [
    LIMITED_ROLE,
    role,
    'member',
  ]);
  return rowCount === 1 && (await listLackingRights(client, schema, LIMITED_ROLE)).length === 0;
}

async function readsAll(client: Client, role: string, views: string): Promise<boolean> {
  const { rowCount } = await client.query(
    `select from pg_roles r where rolname = $1 and not exists (
       select from pg_class c join pg_namespace n on n.oid = c.relnamespace
       where nspname = $2 and relkind = 'v' and relname = any($3)
         and not (has_schema_privilege(r.oid, n.oid, 'usage') and has_table_privilege(r.oid, c.oid, 'select')))`,
    [role, views, listViews()],
  );
  return rowCount === 1;
}

/** Lists the names of views, of whichever schema: both schemas for readers have the same ones. */
const listViews = () => listMade('view').map((name) => name.slice(name.indexOf('.') + 1));

/** Stores the audit log's retention in its SQL function, if the current role owns the function. */
export async function keepAuditRetention(
  client: Client,
  schema: string,
  { days, count }: { days: number; count: number },
): Promise<void> {
  const name = `${escapeIdentifier(schema)}.audit_retention`;
  const { rowCount } = await client.query(
    `select from ${name}() kept, pg_proc p where p.oid = $1::regproc and pg_has_role(p.proowner, 'usage')
       and (kept.days, kept.entries) <> ($2::int, $3::bigint)`,
    [name, days, count],
  );
  if (rowCount === 0) return;
  const text = `create or replace function ${name}(out days integer, out entries bigint) language sql immutable
    as 'select ${days}, ${count}::bigint';`;
  await tryTo(client, () => client.query(inTransaction(text)));
}

async function tryTo(client: Client, work: () => Promise<unknown>): Promise<void> {
  try {
    await work();
  } catch (error) {
    // An error of the server is ignored; a broken connection is thrown: the next process repeats everything.
    if (!(error instanceof DatabaseError)) throw error;
    await client.query('rollback').catch(() => undefined);
  }
}

/** Wraps SQL in a transaction with an advisory lock, because concurrent grants fail. */
export const inTransaction = (text: string) => `begin; select pg_advisory_xact_lock(${GRANT_LOCK}); ${text} commit`;

/** SQL that creates a role; another database of the server may create it at the same moment. */
export const creating = (role: string) => `
  do $$ begin
    create role ${role} nologin nosuperuser nobypassrls;
  exception when duplicate_object or unique_violation then null; end $$;`;

/** Grants each view of ours, because a view that somebody else made there may not be granted, which would be an error. */
const granting = (role: string, views: string) => `
  do $$ declare ours regclass; begin
    if exists (select from pg_roles where rolname = ${escapeLiteral(role)}) then
      grant usage on schema ${escapeIdentifier(views)} to ${role};
      for ours in
        select oid from pg_class
        where relnamespace = ${escapeLiteral(escapeIdentifier(views))}::regnamespace and relkind = 'v'
          and relname in (${listViews().map(escapeLiteral).join(', ')})
      loop
        execute format('grant select on %s to ${role}', ours);
      end loop;
    end if;
  end $$;`;

/** Shows all users' rows to a role that logs in directly, without another setting. Only a superuser may run it. */
const showingAll = (role: string) => `
  do $$ begin
    if (select rolsuper from pg_roles where rolname = current_user) and not exists (
      select from pg_db_role_setting s join pg_roles r on r.oid = s.setrole
      where r.rolname = ${escapeLiteral(role)} and s.setdatabase = 0) then
      alter role ${role} set agent_runtime.all_users = 'on';
    end if;
  end $$;`;
