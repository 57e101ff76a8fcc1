import { getTableName, getViewName, is } from 'drizzle-orm';
import { PgTable, PgView } from 'drizzle-orm/pg-core';
import { type Client, escapeIdentifier } from 'pg';
import { ConfigError } from '../../core/errors.ts';
import * as tables from './schema/schema.ts';

/**
 * drizzle's table of applied migrations, in the schema that it describes, so that both are dumped and restored together.
 */
export const JOURNAL = 'agent_runtime_migrations';
/** Table of the objects of `migrations/repeatable/` that were made. */
export const REPEATABLES = getTableName(tables.repeatables);
export const TABLE_NAMES: readonly string[] = Object.values(tables).flatMap((each) =>
  is(each, PgTable) ? [getTableName(each)] : [],
);
export const VIEW_NAMES: readonly string[] = Object.values(tables).flatMap((each) =>
  is(each, PgView) ? [getViewName(each)] : [],
);

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

export const STARTS_ANEW =
  'Export what is needed with the version that made them; then use an empty database, or another DATABASE_SCHEMA';

export const BEFORE_FIRST_RELEASE = `its tables are those of a version before the first release. ${STARTS_ANEW}`;

/**
 * Lists the rows of a table that records what was applied; none if the schema lacks the table.
 * @param column - that a table of a version before the first release lacks
 * @throws {ConfigError} if the table is that of a version before the first release
 */
export async function listRecorded<Row extends object>(
  client: Client,
  schema: string,
  table: string,
  column: keyof Row,
): Promise<Row[]> {
  if (!(await hasTable(client, schema, table))) return [];
  // As JSON, because a table before the first release has other columns.
  const { rows } = await client.query<{ row: Row }>(
    `select to_json(recorded) as row from ${escapeIdentifier(schema)}.${table} recorded`,
  );
  if (rows.some(({ row }) => !(column in row))) throw new ConfigError(BEFORE_FIRST_RELEASE);
  return rows.map(({ row }) => row);
}

export async function hasTable(client: Client, schema: string, name: string): Promise<boolean> {
  const { rowCount } = await client.query(
    'select from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = $1 and c.relname = $2',
    [schema, name],
  );
  return rowCount === 1;
}
