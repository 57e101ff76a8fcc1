import { createHash } from 'node:crypto';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Client, escapeIdentifier } from 'pg';
import { ConfigError } from '../../core/errors.ts';
import { applyMissing, findPending, listApplied, type Migration, toKnownNames } from './apply-migrations.ts';
import { isOnCluster } from './distribute.ts';
import { JOURNAL } from './rights.ts';
import { creating, inTransaction } from './shared-roles.ts';

/** The role of transactional tools, shared by all databases of a server. */
export const TOOLS_ROLE = 'agent_runtime_tools';
/** The only function of the service that tools may call. */
export const KEEP_ANSWER = 'keep_answer';

export const toToolSchema = (schema: string): string => (schema === 'public' ? 'agent_tools' : `${schema}_tools`);

/** Lists the SQL files of applications, `<name>/migrations/*.sql`, sorted by name. */
const listFiles = (directory: string): Migration[] =>
  globSync('*/migrations/*.sql', { cwd: directory })
    .toSorted()
    .map((name) => {
      const text = readFileSync(join(directory, name), 'utf8');
      return { name, hash: createHash('sha256').update(text).digest('hex'), statements: [text] };
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
    throw new ConfigError(`it is a cluster, where tools have no tables of their own: remove ${toKnownNames(files)}`);
  const own = toToolSchema(schema);
  const pending = findPending(files, (await listApplied(client, own)) ?? [], false);
  if (applies) await makeToolsRole(client, servingRole);
  if (pending.length === 0) return [];
  const advice = 'Apply the migrations: npm run db:migrate, or agent-runtime migrate';
  if (!applies) throw new ConfigError(`its schema ${own} lacks ${toKnownNames(pending)}. ${advice}`);
  return applyMissing(client, own, files, granting(escapeIdentifier(schema), escapeIdentifier(own)));
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
