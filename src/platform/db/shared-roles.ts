import { type Client, DatabaseError, escapeIdentifier, escapeLiteral } from 'pg';
import { GRANT_LOCK, grantRights, LIMITED_ROLE, listLackingRights } from './rights.ts';

/** Reader roles for people (no login by default), with the schema of views that each may read. */
const READERS = { agent_runtime_reader: toViewSchema, agent_runtime_outline_reader: toOutlineSchema };

export function toViewSchema(schema: string): string {
  return schema === 'public' ? 'inspect' : `${schema}_inspect`;
}

/** Returns the name of the schema of the outline views, which show no content. */
export function toOutlineSchema(schema: string): string {
  return schema === 'public' ? 'inspect_outline' : `${schema}_outline`;
}

/**
 * Rewrites a migration's text for another schema of tables: drizzle-kit writes "public" into foreign keys, and each
 * schema of tables has its own schemas of views.
 */
export function inSchema(text: string, schema: string): string {
  if (schema === 'public') return text;
  const [views, outline] = [toViewSchema(schema), toOutlineSchema(schema)].map(escapeIdentifier);
  return text
    .replaceAll('"public".', '')
    .replace(
      /"inspect(_outline)?"|\binspect(_outline)?(?=\.)|(?<=on schema )inspect(_outline)?/g,
      (name) => (name.includes('_outline') ? outline : views) ?? name,
    );
}

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
       where nspname = $2 and relkind = 'v'
         and not (has_schema_privilege(r.oid, n.oid, 'usage') and has_table_privilege(r.oid, c.oid, 'select')))`,
    [role, views],
  );
  return rowCount === 1;
}

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

const granting = (role: string, views: string) => `
  do $$ begin
    if exists (select from pg_roles where rolname = ${escapeLiteral(role)}) then
      grant usage on schema ${escapeIdentifier(views)} to ${role};
      grant select on all tables in schema ${escapeIdentifier(views)} to ${role};
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
