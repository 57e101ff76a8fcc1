import { createHash } from 'node:crypto';
import { existsSync, globSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { type Client, escapeIdentifier, escapeLiteral } from 'pg';
import { VERSION } from '../version.ts';
import { hashComments, writeComments } from './comments.ts';
import { hasTable, REPEATABLES, TABLE_NAMES } from './rights.ts';
import { inSchema, toOutlineSchema, toViewSchema } from './shared-roles.ts';

/** A part of a file of `migrations/repeatable/`; its statements may be repeated (`create or replace`). */
export interface Section {
  /** Name below `repeatable/`. */
  file: string;
  text: string;
  hash: string;
}

/** A section that a schema has, and the version that applied it. */
export interface AppliedSection {
  file: string;
  hash: string;
  version: string;
}

const COMMENTS = 'comments';
const SEPARATOR = '--> statement-breakpoint\n';
const toHash = (text: string) => createHash('sha256').update(text).digest('hex');

/**
 * Reads the sections in the order of their application: functions, triggers, views, and the comments of the drizzle
 * schema. On a cluster a file of the same name below `citus/` stands in for the one below `repeatable/`.
 */
export function readSections(directory: URL, isOnCluster: boolean): Section[] {
  const sections = globSync('**/*.sql', { cwd: fileURLToPath(new URL('repeatable/', directory)) })
    .map((file) => file.replaceAll('\\', '/'))
    .toSorted()
    .flatMap((file) => {
      const variant = new URL(`citus/${file}`, directory);
      const path = isOnCluster && existsSync(variant) ? variant : new URL(`repeatable/${file}`, directory);
      return readFileSync(path, 'utf8')
        .split(SEPARATOR)
        .map((text) => ({ file, text, hash: toHash(text) }));
    });
  return [...sections, { file: COMMENTS, text: '', hash: hashComments() }];
}

export const isFunctions = ({ file }: Section): boolean => file.startsWith('functions/');

/** Lists the sections that a schema has; none if it was migrated with drizzle-kit alone. */
export async function listAppliedSections(client: Client, schema: string): Promise<AppliedSection[]> {
  if (!(await hasTable(client, schema, REPEATABLES))) return [];
  const { rows } = await client.query<AppliedSection>(
    `select file, hash, version from ${escapeIdentifier(schema)}.${REPEATABLES}`,
  );
  return rows;
}

/** Lists the views of a schema by the names that the files have for them. */
export async function listViews(client: Client, schema: string): Promise<string[]> {
  const { rows } = await client.query<{ name: string }>(
    `select case schemaname when $1 then 'inspect.' when $2 then 'inspect_outline.' else '' end || viewname as name
     from pg_views where schemaname in ($1, $2, $3)`,
    [toViewSchema(schema), toOutlineSchema(schema), schema],
  );
  return rows.map(({ name }) => name);
}

/** Finds the sections to apply: those whose hash is absent, and views that a migration of tables had to drop. */
export function findMissingSections(sections: Section[], applied: AppliedSection[], views: string[]): Section[] {
  const known = new Set(applied.map(toKey));
  return sections.filter((section) => !known.has(toKey(section)) || isAbsentView(section, views));
}

export const toKey = ({ file, hash }: Pick<Section, 'file' | 'hash'>): string => `${file} ${hash}`;

/** True if a section makes a view that a schema does not have. */
export function isAbsentView({ text }: Section, views: string[]): boolean {
  const [, view] = /^create or replace view (\S+)/m.exec(text) ?? [];
  return view !== undefined && !views.includes(view);
}

/**
 * Applies sections in a transaction of the caller.
 * @param isFirst - true: the schema has none yet, so nothing is replaced, because it would be somebody else's
 */
export async function applySections(
  client: Client,
  schema: string,
  { chosen, all, isFirst }: { chosen: Section[]; all: Section[]; isFirst: boolean },
): Promise<void> {
  // Bodies are not checked, so that the order of functions does not matter.
  await client.query('set local check_function_bodies = off');
  const text = inSchema(chosen.map((section) => section.text).join('\n'), schema);
  await client.query(isFirst ? text.replace(/^create or replace /gm, 'create ') : text);
  await client.query(FORCE_ROW_SECURITY);
  if (chosen.some(({ file }) => file === COMMENTS)) await writeComments(client, schema);
  await client.query(
    `delete from ${REPEATABLES} where (file, hash) not in (select * from unnest($1::text[], $2::text[]))`,
    [all.map(({ file }) => file), all.map(({ hash }) => hash)],
  );
  await client.query(
    `insert into ${REPEATABLES} (file, hash, version) select distinct file, hash, $3 from unnest($1::text[], $2::text[]) s(file, hash)
     on conflict (file, hash) do update set version = excluded.version, apply_time = excluded.apply_time`,
    [chosen.map(({ file }) => file), chosen.map(({ hash }) => hash), VERSION],
  );
}

/** Applies row-level security to the tables' owner too, which drizzle-kit cannot do. */
const FORCE_ROW_SECURITY = `
  do $$ declare protected regclass; begin
    for protected in
      select oid from pg_class where relrowsecurity and not relforcerowsecurity
        and relnamespace = (select oid from pg_namespace where nspname = current_schema())
        and relname in (${TABLE_NAMES.map(escapeLiteral).join(', ')})
    loop
      execute format('alter table %s force row level security', protected);
    end loop;
  end $$`;
