import { type Client, escapeIdentifier } from 'pg';
import { ConfigError } from '../../core/errors.ts';
import { writeComments } from './comments.ts';
import { JOURNAL } from './rights.ts';

/** Key of the advisory lock for migrations, the same in all versions. */
const MIGRATION_LOCK = 7_240_001;

export interface Migration {
  name: string;
  /** SHA-256 of the migration file, hexadecimal. */
  hash: string;
  statements: string[];
}

type AppliedMigration = Pick<Migration, 'name' | 'hash'>;

const MAX_NAMES = 3;

/** Formats migration names for an error message; a long list is shortened to the first, the last and the count. */
export function toKnownNames(migrations: AppliedMigration[]): string {
  const names = migrations.map(({ name }) => name);
  return names.length <= MAX_NAMES ? names.join(', ') : `${names[0]} to ${names.at(-1)} (${names.length})`;
}

/** Lists the applied migrations; `undefined` if the schema has no table of them. */
export async function listApplied(client: Client, schema: string): Promise<AppliedMigration[] | undefined> {
  const journal = await client.query(
    'select from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = $1 and c.relname = $2',
    [schema, JOURNAL],
  );
  if (journal.rowCount === 0) return undefined;
  return (await client.query<AppliedMigration>(`select name, hash from ${escapeIdentifier(schema)}.${JOURNAL}`)).rows;
}

/** @throws {ConfigError} if an applied migration has another text, or (with `knowsAll`) is unknown */
export function findPending(migrations: Migration[], applied: AppliedMigration[], knowsAll = true): Migration[] {
  const hashes = new Map(migrations.map(({ name, hash }) => [name, hash]));
  const newer = applied.filter(({ name }) => !hashes.has(name)).map(({ name }) => name);
  if (knowsAll && newer.length > 0)
    throw new ConfigError(`it is newer than this version, which does not know ${newer.toSorted().join(', ')}`);
  const changed = applied.filter(({ name, hash }) => hashes.get(name) !== hash).map(({ name }) => name);
  if (changed.length > 0)
    throw new ConfigError(`another text of ${changed.toSorted().join(', ')} was applied to it than this version has`);
  return migrations.filter(({ name }) => !applied.some((row) => row.name === name));
}

/**
 * Applies missing migrations in one transaction, after the SQL of `first` (for a schema that others share). An advisory
 * lock serialises replicas that start together. Read committed, whatever the database's default, because the journal is
 * read after the lock is acquired.
 */
export async function applyMissing(
  client: Client,
  schema: string,
  migrations: Migration[],
  first = '',
): Promise<string[]> {
  await client.query('begin isolation level read committed');
  await client.query('set local statement_timeout = 0');
  // A migration changes all users' rows, even if its role is subject to row-level security.
  await client.query(`set local agent_runtime.all_users = 'on'`);
  await client.query(`set local lock_timeout = '60s'`);
  await client.query('select pg_advisory_xact_lock($1)', [MIGRATION_LOCK]);
  await client.query(`set local lock_timeout = '10s'`);
  const applied = await listApplied(client, schema);
  const pending = findPending(migrations, applied ?? [], first === '');
  try {
    if (!(await schemaExists(client, schema))) await client.query(`create schema ${escapeIdentifier(schema)}`);
    // Functions that run as their owner inherit this search path. `pg_temp` is last, so that it cannot shadow our
    // tables.
    await client.query(`set local search_path = ${escapeIdentifier(schema)}, pg_temp`);
    if (!applied) await createJournal(client, schema);
    if (first !== '') await client.query(first);
    for (const migration of pending) await apply(client, schema, migration);
    await writeComments(client, schema);
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
  for (const statement of migration.statements) await client.query(statement);
  const { name, hash } = migration;
  await client.query(`insert into ${escapeIdentifier(schema)}.${JOURNAL} (name, hash) values ($1, $2)`, [name, hash]);
}
