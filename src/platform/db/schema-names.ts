import { getTableName, getViewName, is } from 'drizzle-orm';
import { PgTable, PgView } from 'drizzle-orm/pg-core';
import { type Client, escapeIdentifier } from 'pg';
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

export async function hasTable(client: Client, schema: string, name: string): Promise<boolean> {
  const { rowCount } = await client.query(
    'select from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = $1 and c.relname = $2',
    [schema, name],
  );
  return rowCount === 1;
}
