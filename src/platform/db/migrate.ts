import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { type Client, escapeIdentifier } from 'pg';
import { ConfigError } from '../../core/errors.ts';
import type { DatabaseAddress } from './connection.ts';
import { checkDistributed, distributeTables, isOnCluster, listUndistributed } from './distribute.ts';
import { applyMissing, findPending, listApplied, type Migration, toKnownNames } from './apply-migrations.ts';
import { checkTables, grantRights } from './rights.ts';
import { connect } from './client.ts';
import { migrateTools } from './tool-schema.ts';
import { keepAuditRetention, makeRoles, toOutlineSchema, toViewSchema } from './shared-roles.ts';

const MIGRATIONS = new URL('../../../migrations/', import.meta.url);

export interface MigrateOptions {
  /** False: check only; a missing migration is an error. */
  applies?: boolean;
  /** True: if `applies` is false, accept the tables of any version. */
  takesAnyVersion?: boolean;
  /** Role of the serving process if it differs from the migrating role; it is granted the privileges on rows. */
  servingRole?: string | undefined;
  /** Retention of the audit log, in days and number of entries; only the owner of the tables may change it. */
  audit?: { days: number; count: number } | undefined;
  /** Directory of applications whose tools may have tables of their own. Default: none. */
  agentsDir?: string | undefined;
}

/**
 * Migrates a database. Without a missing migration it only reads, so that an ordinary start needs no more privileges.
 * @returns the names of applied migrations
 * @throws {ConfigError} if the database is newer or cannot be migrated
 */
export async function migrateDatabase(
  address: DatabaseAddress,
  { applies = true, takesAnyVersion = false, servingRole, audit, agentsDir }: MigrateOptions = {},
): Promise<string[]> {
  const config = { application_name: 'agent-runtime migrate', keepAlive: true, connectionTimeoutMillis: 10_000 };
  // Accepts a read-only server, because a replica that starts without a primary serves reads until there is one.
  const client = await connect(address, config, { acceptsReadOnly: true });
  try {
    const schema = await findSchema(client, address.schema);
    const migrations = listMigrations(schema);
    const applied = await listApplied(client, schema);
    if (applied && takesAnyVersion) return [];
    const pending = findPending(migrations, applied ?? []);
    let added: string[] = [];
    if (!applied || pending.length > 0) {
      if (!applies) throw new ConfigError(missingText(schema, pending.length === migrations.length, pending));
      added = await applyMissing(client, schema, migrations);
    }
    await checkTables(client, schema);
    if (await isOnCluster(client)) {
      const isNew = !applied || pending.length > 0 || (await listUndistributed(client, schema)).length > 0;
      if (applies && isNew) await distributeTables(client, schema);
      await checkDistributed(client, schema);
    }
    if (applies && servingRole !== undefined) await grantRights(client, schema, servingRole);
    if (applies) await makeRoles(client, schema, servingRole);
    if (applies && audit) await keepAuditRetention(client, schema, audit);
    if (agentsDir !== undefined)
      added.push(...(await migrateTools(client, schema, agentsDir, { applies, servingRole })));
    return added;
  } finally {
    await client.end().catch(() => undefined);
  }
}

function missingText(schema: string, isEmpty: boolean, pending: Migration[]): string {
  const what = isEmpty ? `its schema ${schema} has no tables of this service` : `it lacks ${toKnownNames(pending)}`;
  return `${what}. Apply the migrations: npm run db:migrate, or agent-runtime migrate`;
}

/** @throws {ConfigError} if the database cannot hold the tables */
async function findSchema(client: Client, chosen: string | undefined): Promise<string> {
  const { rows } = await client.query<{ schema: string | null; encoding: string }>(
    `select coalesce($1, current_schema()) as schema, current_setting('server_encoding') as encoding`,
    [chosen],
  );
  const { schema, encoding } = rows[0] ?? { schema: null, encoding: '' };
  // SQL_ASCII, for example, stores bytes but cannot count or compare characters, and lacks the JSON escapes.
  if (encoding !== 'UTF8') throw new ConfigError(`its encoding is ${encoding}; make one with the encoding UTF8`);
  if (schema === null) throw new ConfigError('its search_path names no schema that exists');
  return schema;
}

function listMigrations(schema: string): Migration[] {
  const journal = JSON.parse(readFileSync(new URL('meta/_journal.json', MIGRATIONS), 'utf8')) as {
    entries: { tag: string }[];
  };
  return journal.entries.map(({ tag: name }) => {
    const text = readFileSync(new URL(`${name}.sql`, MIGRATIONS), 'utf8');
    return {
      name,
      hash: createHash('sha256').update(text).digest('hex'),
      statements: text.split('--> statement-breakpoint').map((statement) => inSchema(statement, schema)),
    };
  });
}

/**
 * Rewrites a migration's statement for another schema. drizzle-kit writes "public" into foreign keys, and each schema
 * of tables has a separate schema of views.
 */
function inSchema(statement: string, schema: string): string {
  if (schema === 'public') return statement;
  const views = escapeIdentifier(toViewSchema(schema));
  return statement
    .replaceAll('"public".', '')
    .replace(/\binspect_outline\b/g, () => escapeIdentifier(toOutlineSchema(schema)))
    .replace(/\bschema inspect\b|\binspect(?=\.)/g, (name) => name.replace('inspect', () => views));
}
