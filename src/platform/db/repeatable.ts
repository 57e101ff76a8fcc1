import { createHash } from 'node:crypto';
import { existsSync, globSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { getTableName, is } from 'drizzle-orm';
import { PgTable } from 'drizzle-orm/pg-core';
import { type Client, escapeLiteral } from 'pg';
import { VERSION } from '../version.ts';
import * as tables from './schema/schema.ts';
import { commentsOf } from './schema/table.ts';
import { inSchema, listRecorded, REPEATABLES, TABLE_NAMES, toOutlineSchema, toViewSchema } from './schema-names.ts';

export const MIGRATIONS = new URL('../../../migrations/', import.meta.url);

/** A part of a file of `migrations/repeatable/`; its statements may be repeated (`create or replace`). */
export interface Section {
  /** Name below `repeatable/`. */
  file: string;
  text: string;
  hash: string;
  /** Names of what the section makes, e.g. `view inspect.usage`, or its file's if it makes nothing; in no other section. */
  names: string[];
}

/** For each function, trigger or view: the hash of its applied section, and the version that applied it. */
export type Applied = Map<string, { hash: string; version: string }>;

const COMMENTS = 'comments';
const SEPARATOR = '--> statement-breakpoint\n';
const MADE = /^create or replace (function|trigger|view) ([\w.]+)/gm;
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
        .map((text) => {
          const made = Array.from(text.matchAll(MADE), ([, kind, name]) => `${kind} ${name}`);
          return { file, text, hash: toHash(text), names: made.length > 0 ? made : [file] };
        });
    });
  return [...sections, { file: COMMENTS, text: '', hash: hashComments(), names: [COMMENTS] }];
}

let madeNames: string[] | undefined;

/** Lists the functions or views that this version makes, because a neighbour in the schema may have others. */
export const listMade = (kind: 'function' | 'view'): string[] =>
  (madeNames ??= readSections(MIGRATIONS, false).flatMap(({ names }) => names))
    .filter((name) => name.startsWith(`${kind} `))
    .map((name) => name.slice(kind.length + 1));

export const isFunctions = ({ file }: Section): boolean => file.startsWith('functions/');
export const isView = ({ names }: Section): boolean => names.some((name) => name.startsWith('view '));

/**
 * Lists what a schema has of the sections; nothing if it was migrated with drizzle-kit alone.
 * @throws {ConfigError} if the tables are those of a version before the first release
 */
export async function listApplied(client: Client, schema: string): Promise<Applied> {
  const rows = await listRecorded<{ name: string; hash: string; version: string }>(client, schema, REPEATABLES, 'name');
  return new Map(rows.map(({ name, ...row }) => [name, row]));
}

/** Lists the functions, triggers and views of a schema by the names that sections have for them. */
async function listObjects(client: Client, schema: string): Promise<Set<string>> {
  const { rows } = await client.query<{ name: string }>(
    `with theirs as (
       select oid, case nspname when $1 then 'inspect.' when $2 then 'inspect_outline.' else '' end as prefix
       from pg_namespace where nspname in ($1, $2, $3))
     select 'function ' || proname as name from pg_proc join theirs n on n.oid = pronamespace where prefix = ''
     union select 'view ' || prefix || relname from pg_class join theirs n on n.oid = relnamespace where relkind = 'v'
     union select 'trigger ' || tgname from pg_trigger join pg_class c on c.oid = tgrelid
           join theirs n on n.oid = relnamespace where not tgisinternal`,
    [toViewSchema(schema), toOutlineSchema(schema), schema],
  );
  return new Set(rows.map(({ name }) => name));
}

/** A section to be applied. `isDropped`: the database lacks a function, trigger or view that the section makes. */
export interface MissingSection {
  section: Section;
  isDropped: boolean;
}

/**
 * Finds the sections to apply: those with another text than was applied, and those of which something was dropped, as a
 * migration of tables has to do with views.
 */
export async function findMissingSections(
  client: Client,
  schema: string,
  sections: Section[],
  applied: Applied,
): Promise<MissingSection[]> {
  const objects = await listObjects(client, schema);
  const isDropped = (name: string) => name.includes(' ') && !objects.has(name);
  return sections
    .filter(({ names, hash }) => names.some((name) => applied.get(name)?.hash !== hash || isDropped(name)))
    .map((section) => ({ section, isDropped: section.names.some(isDropped) }));
}

/**
 * Applies sections in a transaction of the caller. What is not in `applied` is not replaced, because it would be
 * somebody else's.
 */
export async function applySections(
  client: Client,
  schema: string,
  sections: Section[],
  applied: Applied,
): Promise<void> {
  // Bodies are not checked, so that the order of functions does not matter.
  await client.query('set local check_function_bodies = off');
  const text = sections
    .map((section) => section.text)
    .join('\n')
    .replace(MADE, (statement, kind: string, name: string) =>
      kind === 'trigger' || applied.has(`${kind} ${name}`) ? statement : `create ${kind} ${name}`,
    );
  // A message for each trigger, because Citus repeats the whole message on its nodes, which take one statement.
  for (const message of text.split(/^(?=create or replace trigger )/m)) await client.query(inSchema(message, schema));
  await client.query(FORCE_ROW_SECURITY);
  if (sections.some(({ file }) => file === COMMENTS)) await writeComments(client, schema);
  const rows = sections.flatMap(({ names, hash }) => names.map((name) => ({ name, hash, version: VERSION })));
  await client.query(
    `insert into ${REPEATABLES} (name, hash, version) select * from jsonb_to_recordset($1) r (name text, hash text, version text)
     on conflict (name) do update set hash = excluded.hash, version = excluded.version, apply_time = excluded.apply_time`,
    [JSON.stringify(rows)],
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

const listComments = () =>
  Object.values(tables).flatMap((table) =>
    is(table, PgTable) ? commentsOf(table).map((comment) => ({ table: getTableName(table), ...comment })) : [],
  );

/** A hash of all comments. Sorted, because a test runner or bundler lists the exports of a module in another order. */
const hashComments = (): string =>
  toHash(
    listComments()
      .map((comment) => JSON.stringify(comment))
      .toSorted()
      .join(),
  );

/** Statements for the comments that differ; `comment on` would wait for a vacuum of its table. */
const DIFFERING = `
  select case when wanted.column is null then format('comment on table %s is %L', c.oid::regclass, wanted.text)
              else format('comment on column %s.%I is %L', c.oid::regclass, wanted.column, wanted.text) end as statement
  from jsonb_to_recordset($2) wanted ("table" text, "column" text, text text)
  join pg_class c on c.relname = wanted.table and c.relnamespace = (select oid from pg_namespace where nspname = $1)
  left join pg_attribute a on a.attrelid = c.oid and a.attname = wanted.column
  left join pg_description d
    on d.classoid = 'pg_class'::regclass and d.objoid = c.oid and d.objsubid = coalesce(a.attnum, 0)
  where d.description is distinct from wanted.text`;

/** Writes the comments of the drizzle schema into the database. */
async function writeComments(client: Client, schema: string): Promise<void> {
  const { rows } = await client.query<{ statement: string }>(DIFFERING, [schema, JSON.stringify(listComments())]);
  if (rows.length > 0) await client.query(rows.map(({ statement }) => statement).join(';'));
}
