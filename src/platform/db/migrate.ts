import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { type Client, escapeIdentifier } from 'pg';
import { ConfigError } from '../../core/errors.ts';
import type { DatabaseAddress } from './connection.ts';
import { checkDistributed, distributeTables, isOnCluster, listUndistributed } from './distribute.ts';
import { checkTables, grantRights, JOURNAL } from './rights.ts';
import { connect } from './client.ts';
import { keepAuditRetention, makeRoles, toOutlineSchema, toViewSchema } from './shared-roles.ts';

/** One key for this service; any number does, as long as every version uses the same. */
const MIGRATION_LOCK = 7_240_001;
const MIGRATIONS = new URL('../../../migrations/', import.meta.url);

/** A file of `migrations/`. */
interface Migration {
  name: string;
  /** SHA-256 of the file, hexadecimal. */
  hash: string;
  statements: string[];
}

/** A migration that a database has. */
type Applied = Pick<Migration, 'name' | 'hash'>;

/** Options of a migration. */
export interface MigrateOptions {
  /** False: nothing is applied and nothing granted; what is missing is the error. */
  applies?: boolean;
  /** True: with `applies` false, a database that has any version's tables will do. */
  takesAnyVersion?: boolean;
  /** Another role, which serves: it gets its rights on rows. */
  servingRole?: string | undefined;
  /** Days and entries that the audit keeps, which the owner of the tables alone may say. */
  audit?: { days: number; count: number } | undefined;
}

/**
 * Brings the schema of a database up to date. It only reads where nothing is missing: a start needs no more rights.
 * @returns the names of what was applied
 * @throws {ConfigError} when the database is newer, or cannot be brought up to date: what is missing, and why.
 */
export async function migrateDatabase(
  address: DatabaseAddress,
  { applies = true, takesAnyVersion = false, servingRole, audit }: MigrateOptions = {},
): Promise<string[]> {
  const config = { application_name: 'agent-runtime migrate', keepAlive: true, connectionTimeoutMillis: 10_000 };
  // A replica that starts while there is no primary serves reads until there is one.
  const client = await connect(address, config, { acceptsReadOnly: true });
  try {
    const schema = await findSchema(client, address.schema);
    const migrations = listMigrations();
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
    return added;
  } finally {
    await client.end().catch(() => undefined);
  }
}

const MAX_NAMES = 3;

function missingText(schema: string, isEmpty: boolean, pending: Migration[]): string {
  const what = isEmpty ? `its schema ${schema} has no tables of this service` : `it lacks ${toKnownNames(pending)}`;
  return `${what}. Apply the migrations: npm run db:migrate, or agent-runtime migrate`;
}

/** Names for a sentence: more than a few migrations by the first, the last and their number. */
function toKnownNames(migrations: Applied[]): string {
  const names = migrations.map(({ name }) => name);
  return names.length <= MAX_NAMES ? names.join(', ') : `${names[0]} to ${names.at(-1)} (${names.length})`;
}

/** The schema that tables are in. @throws {ConfigError} where the database cannot hold them. */
async function findSchema(client: Client, chosen: string | undefined): Promise<string> {
  const { rows } = await client.query<{ schema: string | null; encoding: string }>(
    `select coalesce($1, current_schema()) as schema, current_setting('server_encoding') as encoding`,
    [chosen],
  );
  const { schema, encoding } = rows[0] ?? { schema: null, encoding: '' };
  // SQL_ASCII as well: it keeps bytes, but counts and compares no characters, and has none for the escapes of JSON.
  if (encoding !== 'UTF8') throw new ConfigError(`its encoding is ${encoding}; make one with the encoding UTF8`);
  if (schema === null) throw new ConfigError('its search_path names no schema that exists');
  return schema;
}

function listMigrations(): Migration[] {
  const journal = JSON.parse(readFileSync(new URL('meta/_journal.json', MIGRATIONS), 'utf8')) as {
    entries: { tag: string }[];
  };
  return journal.entries.map(({ tag: name }) => {
    const text = readFileSync(new URL(`${name}.sql`, MIGRATIONS), 'utf8');
    return {
      name,
      hash: createHash('sha256').update(text).digest('hex'),
      statements: text.split('--> statement-breakpoint'),
    };
  });
}

/** The migrations that a schema has; `undefined` where it has no journal. */
async function listApplied(client: Client, schema: string): Promise<Applied[] | undefined> {
  const found = await client.query(
    'select from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = $1 and c.relname = $2',
    [schema, JOURNAL],
  );
  if (found.rowCount === 0) return undefined;
  return (await client.query<Applied>(`select name, hash from ${escapeIdentifier(schema)}.${JOURNAL}`)).rows;
}

/** The migrations that are missing. @throws {ConfigError} where others were applied than this version has. */
function findPending(migrations: Migration[], applied: Applied[]): Migration[] {
  const known = new Map(migrations.map(({ name, hash }) => [name, hash]));
  const newer = applied.filter(({ name }) => !known.has(name)).map(({ name }) => name);
  if (newer.length > 0)
    throw new ConfigError(`it is newer than this version, which does not know ${newer.toSorted().join(', ')}`);
  const changed = applied.filter(({ name, hash }) => known.get(name) !== hash).map(({ name }) => name);
  if (changed.length > 0)
    throw new ConfigError(`another text of ${changed.toSorted().join(', ')} was applied to it than this version has`);
  return migrations.filter(({ name }) => !applied.some((row) => row.name === name));
}

/**
 * Applies what is missing, all or nothing. Replicas that start together take turns under a lock of the transaction.
 * Read committed, whatever the database's default: the journal must be read as it is once the lock is had.
 */
async function applyMissing(client: Client, schema: string, migrations: Migration[]): Promise<string[]> {
  await client.query('begin isolation level read committed');
  await client.query('set local statement_timeout = 0');
  // A migration changes the rows of all users, also where its role is held to row-level security.
  await client.query(`set local agent_runtime.all_users = 'on'`);
  await client.query(`set local lock_timeout = '60s'`);
  await client.query('select pg_advisory_xact_lock($1)', [MIGRATION_LOCK]);
  await client.query(`set local lock_timeout = '10s'`);
  const applied = await listApplied(client, schema);
  const pending = findPending(migrations, applied ?? []);
  try {
    if (!(await schemaExists(client, schema))) await client.query(`create schema ${escapeIdentifier(schema)}`);
    // Functions that run as their owner keep this path: a caller's temporary tables must not stand before those.
    await client.query(`set local search_path = ${escapeIdentifier(schema)}, pg_temp`);
    if (!applied) await createJournal(client, schema);
    for (const migration of pending) await apply(client, schema, migration);
    await client.query('commit');
    return pending.map(({ name }) => name);
  } catch (error) {
    const names = toKnownNames(pending) || JOURNAL;
    throw new ConfigError(`${names} missing, and could not be applied: ${(error as Error).message}`, { cause: error });
  }
}

const schemaExists = async (client: Client, schema: string) =>
  (await client.query('select from pg_namespace where nspname = $1', [schema])).rowCount === 1;

async function createJournal(client: Client, schema: string): Promise<void> {
  const table = `${escapeIdentifier(schema)}.${JOURNAL}`;
  await client.query(`
    create table ${table} (
      name text collate "C" primary key,
      hash text not null,
      apply_time timestamp(6) with time zone not null default clock_timestamp());
    comment on table ${table} is 'The migrations that this schema has; the service compares them at its start.';
    comment on column ${table}.name is 'Name of the file in migrations/, without its ending.';
    comment on column ${table}.hash is 'SHA-256 of the file.';
    comment on column ${table}.apply_time is 'When it was applied.';`);
}

async function apply(client: Client, schema: string, migration: Migration): Promise<void> {
  for (const statement of migration.statements) await client.query(inSchema(statement, schema));
  const { name, hash } = migration;
  await client.query(`insert into ${escapeIdentifier(schema)}.${JOURNAL} (name, hash) values ($1, $2)`, [name, hash]);
}

/**
 * A statement of a migration for the schema of the operator's choice: drizzle-kit writes "public" into foreign keys,
 * and the views for people are in a schema of their own, one for each schema of tables.
 */
function inSchema(statement: string, schema: string): string {
  if (schema === 'public') return statement;
  const views = escapeIdentifier(toViewSchema(schema));
  return statement
    .replaceAll('"public".', '')
    .replace(/\binspect_outline\b/g, () => escapeIdentifier(toOutlineSchema(schema)))
    .replace(/\bschema inspect\b|\binspect(?=\.)/g, (found) => found.replace('inspect', () => views));
}
