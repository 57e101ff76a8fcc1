import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { readMigrationFiles } from 'drizzle-orm/migrator';
import { type Client, escapeIdentifier } from 'pg';
import { ConfigError } from '../../core/errors.ts';
import { hasTable, JOURNAL } from './rights.ts';
import { inSchema } from './shared-roles.ts';

/** A migration of drizzle-kit. drizzle knows a migration by its time, and compares nothing else. */
export interface TableMigration {
  name: string;
  hash: string;
  time: number;
  text: string;
}

/** A row of drizzle's journal in the database. */
export type AppliedTables = Pick<TableMigration, 'hash' | 'time'>;

/** Reads the migrations of tables in a directory, with drizzle's own reader. */
export function readTableMigrations(directory: URL): TableMigration[] {
  const { entries } = JSON.parse(readFileSync(new URL('meta/_journal.json', directory), 'utf8')) as {
    entries: { tag: string }[];
  };
  return readMigrationFiles({ migrationsFolder: fileURLToPath(directory) }).map(
    ({ sql, hash, folderMillis }, index) => ({
      name: entries[index]?.tag ?? '',
      hash,
      time: folderMillis,
      text: sql.join(''),
    }),
  );
}

/**
 * Lists the applied migrations of tables; none if the schema has no journal.
 * @throws {ConfigError} if the journal is that of a version before the first release
 */
export async function listAppliedTables(client: Client, schema: string): Promise<AppliedTables[]> {
  if (!(await hasTable(client, schema, JOURNAL))) return [];
  // As JSON, because a journal before the first release has other columns.
  const { rows } = await client.query<{ row: { hash: string; created_at?: number } }>(
    `select to_json(journal) as row from ${escapeIdentifier(schema)}.${JOURNAL} journal`,
  );
  return rows.map(({ row: { hash, created_at: time } }) => {
    if (time === undefined)
      throw new ConfigError(`its tables are those of a version before the first release. ${STARTS_ANEW}`);
    return { hash, time };
  });
}

const STARTS_ANEW =
  'Export what is needed with the version that made them; then use an empty database, or another DATABASE_SCHEMA';

/** @throws {ConfigError} if an applied migration has another text than this version's */
export function findMissingTables(migrations: TableMigration[], applied: AppliedTables[]): TableMigration[] {
  const changed = migrations.filter(({ time, hash }) => applied.some((row) => row.time === time && row.hash !== hash));
  if (changed.length > 0)
    throw new ConfigError(
      `another text of ${changed.map(({ name }) => name).join(', ')} was applied to it than this version has. ${STARTS_ANEW}`,
    );
  return migrations.filter(({ time }) => !applied.some((row) => row.time === time));
}

/** Applies migrations of tables, in a transaction of the caller. */
export async function applyTables(client: Client, schema: string, missing: TableMigration[]): Promise<void> {
  if (missing.length === 0) return;
  const journal = `${escapeIdentifier(schema)}.${JOURNAL}`;
  // As drizzle makes it, so that `npx drizzle-kit migrate` and a start may follow one another.
  await client.query(
    `create table if not exists ${journal} (id serial primary key, hash text not null, created_at bigint)`,
  );
  for (const { text, hash, time } of missing) {
    // One message, because a round trip for each of 300 statements takes longer than they do.
    await client.query(inSchema(text, schema));
    await client.query(`insert into ${journal} (hash, created_at) values ($1, $2)`, [hash, time]);
  }
}
