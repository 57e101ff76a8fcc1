import { createHash } from 'node:crypto';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Client, escapeIdentifier } from 'pg';
import { ConfigError } from '../../core/errors.ts';
import { isOnCluster, REFUSED_ON_CLUSTER } from './cluster.ts';
import { inMigration, toKnownNames } from './migration-lock.ts';
import { creating, inTransaction } from './rights.ts';
import { hasTable, JOURNAL } from './schema-names.ts';

/** The role of transactional tools, shared by all databases of a server. */
export const TOOLS_ROLE = 'agent_runtime_tools';
/** The only function of the service that tools may call. */
export const KEEP_ANSWER = 'keep_answer';

export const toToolSchema = (schema: string): string => (schema === 'public' ? 'agent_tools' : `${schema}_tools`);

/** A SQL file of an application. */
interface ToolFile {
  name: string;
  /** SHA-256 of the file, hexadecimal. */
  hash: string;
  text: string;
}

type AppliedFile = Pick<ToolFile, 'name' | 'hash'>;

/** Lists the SQL files of applications, `<name>/migrations/*.sql`, sorted by name. */
const listFiles = (directory: string): ToolFile[] =>
  globSync('*/migrations/*.sql', { cwd: directory })
    .toSorted()
    .map((name) => {
      const text = readFileSync(join(directory, name), 'utf8');
      return { name, hash: createHash('sha256').update(text).digest('hex'), text };
    });

/** @throws {ConfigError} if the tools' schema cannot be migrated */
export async function migrateTools(
  client: Client,
  schema: string,
  directory: string,
  { applies, servingRole }: { applies: boolean; servingRole: string | undefined },
): Promise<string[]> {
  const files = listFiles(directory);
  if (files.length === 0) return [];
  if (await isOnCluster(client))
    throw new ConfigError(`${REFUSED_ON_CLUSTER.toolTables}: remove ${toKnownNames(files.map(toName))}`);
  const own = toToolSchema(schema);
  const pending = findPending(files, (await listApplied(client, own)) ?? []);
  if (applies) await makeToolsRole(client, servingRole);
  if (pending.length === 0) return [];
  const advice = 'Apply the migrations: npm run db:migrate, or agent-runtime migrate';
  if (!applies) throw new ConfigError(`its schema ${own} lacks ${toKnownNames(pending.map(toName))}. ${advice}`);
  return inMigration(client, own, pending.map(toName), () => applyMissing(client, schema, own, files));
}

const toName = ({ name }: AppliedFile) => name;

/** Lists the applied files; `undefined` if the schema has no table of them. */
async function listApplied(client: Client, own: string): Promise<AppliedFile[] | undefined> {
  if (!(await hasTable(client, own, JOURNAL))) return undefined;
  return (await client.query<AppliedFile>(`select name, hash from ${escapeIdentifier(own)}.${JOURNAL}`)).rows;
}

/** @throws {ConfigError} if an applied file is gone or has another text */
function findPending(files: ToolFile[], applied: AppliedFile[]): ToolFile[] {
  const hashes = new Map(files.map(({ name, hash }) => [name, hash]));
  const changed = applied.filter(({ name, hash }) => hashes.get(name) !== hash).map(toName);
  if (changed.length > 0)
    throw new ConfigError(`another text of ${changed.toSorted().join(', ')} was applied to it than this version has`);
  return files.filter(({ name }) => !applied.some((row) => row.name === name));
}

/** Applies the missing files in a transaction of the caller. */
async function applyMissing(client: Client, schema: string, own: string, files: ToolFile[]): Promise<string[]> {
  const applied = await listApplied(client, own);
  const pending = findPending(files, applied ?? []);
  const table = `${escapeIdentifier(own)}.${JOURNAL}`;
  if (!applied)
    await client.query(`create table ${table} (
      name text collate "C" primary key,
      hash text not null,
      apply_time timestamp(6) with time zone not null default clock_timestamp());
      comment on table ${table} is 'The migrations that this schema has; the service compares them at its start.';
      comment on column ${table}.name is 'Name of the application, and of the file below its folder.';
      comment on column ${table}.hash is 'SHA-256 of the file.';
      comment on column ${table}.apply_time is 'When it was applied.'`);
  await client.query(granting(escapeIdentifier(schema), escapeIdentifier(own)));
  for (const { name, hash, text } of pending) {
    await client.query(text);
    await client.query(`insert into ${table} (name, hash) values ($1, $2)`, [name, hash]);
  }
  return pending.map(toName);
}

/** SQL that grants the tools' role its privileges. A migration may revoke some of them for its tables. */
const granting = (schema: string, own: string) => `
  grant usage on schema ${schema}, ${own} to ${TOOLS_ROLE};
  grant select on ${own}.${JOURNAL} to ${TOOLS_ROLE};
  grant execute on function ${schema}.${KEEP_ANSWER} to ${TOOLS_ROLE};
  alter default privileges in schema ${own} grant select, insert, update, delete on tables to ${TOOLS_ROLE};
  alter default privileges in schema ${own} grant usage on sequences to ${TOOLS_ROLE};`;

/** @param servingRole - the role that may act as the tools' role. Default: the current role */
async function makeToolsRole(client: Client, servingRole: string | undefined): Promise<void> {
  const { rows } = await client.query<{ serving: string; isThere: boolean; isReady: boolean }>(
    `select s.rolname as serving, t.oid is not null as "isThere",
            coalesce(pg_has_role(s.oid, t.oid, 'member'), false) as "isReady"
     from pg_roles s left join pg_roles t on t.rolname = $2 where s.rolname = coalesce($1, current_user)`,
    [servingRole, TOOLS_ROLE],
  );
  const { serving = '', isThere = false, isReady = false } = rows[0] ?? {};
  if (isReady) return;
  const grant = `grant ${TOOLS_ROLE} to ${escapeIdentifier(serving)};`;
  try {
    await client.query(inTransaction(`${isThere ? '' : creating(TOOLS_ROLE)} ${grant}`));
  } catch (error) {
    const create = `create role ${TOOLS_ROLE}; ${grant}`;
    throw new ConfigError(`${(error as Error).message}, which its tools need. As a superuser: ${create}`, {
      cause: error,
    });
  }
}
