import { type SQL, type SQLWrapper, getTableColumns, getTableName, sql } from 'drizzle-orm';
import { type AnyPgColumn, getTableConfig, type PgTable } from 'drizzle-orm/pg-core';
import { createHash } from 'node:crypto';
import { parseExactJson } from '../../core/exact-json.ts';
import type { Database } from '../../platform/db/database.ts';
import type { User, UserTable } from '../../platform/feature/feature.ts';
import { getKey, names } from '../../platform/db/sql.ts';

/** A table of users as export, import and erasure see it. */
export interface PlacedTable extends UserTable {
  name: string;
  /** Depth of the table in the graph of foreign keys. */
  depth: number;
  columns: Record<string, AnyPgColumn>;
}

const measureDepth = (table: PgTable): number => {
  const others = getTableConfig(table)
    .foreignKeys.map((key) => key.reference().foreignTable)
    // A table that refers to itself: its rows of a user are imported by one statement.
    .filter((other) => other !== table);
  return 1 + Math.max(-1, ...others.map(measureDepth));
};

/** Tables in the order of foreign keys, referenced tables first. */
export const placeTables = (tables: readonly UserTable[]): PlacedTable[] =>
  tables
    .map((each) => ({
      ...each,
      name: getTableName(each.table),
      depth: measureDepth(each.table),
      columns: getTableColumns(each.table) as Record<string, AnyPgColumn>,
    }))
    .toSorted((one, other) => one.depth - other.depth || (one.name < other.name ? -1 : 1));

const belongsTo = ({ appName, userId }: User, { columns }: PlacedTable): SQL =>
  sql`${columns['appName']} = ${appName} and ${columns['userId']} = ${userId}`;

export const countRows = (db: Database, user: User, table: PlacedTable): Promise<number> =>
  db.$count(table.table, belongsTo(user, table));

export async function deleteRows(db: Database, user: User, table: PlacedTable, limit: number): Promise<number> {
  const { rowCount } = await db.execute(sql`
    delete from ${table.table} where ctid = any(array(
      select ctid from ${table.table} where ${belongsTo(user, table)} limit ${limit})) and ${belongsTo(user, table)}`);
  return rowCount ?? 0;
}

/** Maximum number of rows per page, and maximum number of bytes of their JSON. A larger row has its own page. */
const PAGE_ROWS = 100;
const PAGE_BYTES = 4_194_304;

/** A row as JSON text. Its primary key is the cursor position. */
export interface ExportedRow {
  text: string;
  place: (string | number)[];
}

/** A user's rows of which `part` is true, in the order of the primary key, without the column `content`, which may be large. */
export async function listRows(
  db: Database,
  user: User,
  table: PlacedTable,
  part: SQL,
  after: ExportedRow['place'] | undefined,
): Promise<ExportedRow[]> {
  // Columns of the primary key without its first two, application and user.
  const key = getKey(table.table).slice(2);
  const list = (parts: SQLWrapper[]) => sql.join(parts, sql`, `);
  const columns = Object.values(table.columns).filter(
    ({ name }) => name !== 'content' || table.name !== 'artifact_versions',
  );
  // The user of a job may be another one, who requested an evaluation.
  const left: Record<string, SQL> = { request: sql`'secrets'`, job: sql`'userId'` };
  const exported = (column: AnyPgColumn) => (left[column.name] ? sql`${column} - ${left[column.name]}` : column);
  const members = columns.map((column) => sql`${sql.raw(`'${column.name}'`)}, ${exported(column)}`);
  const order = key.length > 0 ? sql`order by ${list(key)}` : sql``;
  const next = after?.map((value, index) => sql`${String(value)}::${sql.raw(key[index]?.getSQLType() ?? 'text')}`);
  const isNext = next && next.length > 0 ? sql`and (${list(key)}) > (${list(next)})` : sql``;
  const { rows } = await db.execute<{ text: string; place: string }>(sql`
    with page as materialized (
      select json_build_object(${list(members)})::text as text, json_build_array(${list(key)})::text as place,
             row_number() over (${order}) as n
      from ${table.table} where ${belongsTo(user, table)} and ${part} ${isNext} ${order} limit ${PAGE_ROWS}),
    sized as (select page.*, sum(octet_length(text)) over (order by n) as bytes from page)
    select text, place from sized where n = 1 or bytes <= ${PAGE_BYTES} order by n`);
  // The position stays as it is stored, because the next page is compared with it.
  return rows.map(({ text, place }) => ({ text, place: parseExactJson(place) as ExportedRow['place'] }));
}

/** Bytes of an imported artifact, or their key in the object store, with size and hash. */
export interface ImportedContent {
  content: Buffer | null;
  objectKey: string | null;
  sizeBytes: number;
  sha256: Buffer;
}

/** Inserts JSON objects as rows. Existing rows stay; unknown properties are ignored. @returns the number inserted */
export async function insertRows(
  tx: Database,
  user: User,
  table: PlacedTable,
  members: string[],
  texts: string[],
  bytes?: ImportedContent,
): Promise<number> {
  const memberNames = new Set(members);
  // Columns that are always set here, whatever the imported line or the column's default says.
  const own: Record<string, SQL> = {
    app_name: sql`${user.appName}`,
    user_id: sql`${user.userId}`,
    ...(table.name === 'artifact_versions' && {
      content: sql`${bytes?.content ?? null}::bytea`,
      object_key: sql`${bytes?.objectKey ?? null}::text`,
      size_bytes: sql`${bytes?.sizeBytes ?? 0}::integer`,
      sha256: sql`${bytes?.sha256 ?? createHash('sha256').digest()}::bytea`,
    }),
  };
  for (const [name, value] of Object.entries(table.setByRuntime ?? {})) own[name] = sql.raw(value);
  const columns = Object.values(table.columns).filter(({ name }) => memberNames.has(name) || Object.hasOwn(own, name));
  const values = columns.map(({ name }) => own[name] ?? sql.raw(`r."${name}"`));
  const { rowCount } = await tx.execute(sql`
    insert into ${table.table} (${names(...columns)}) select ${sql.join(values, sql`, `)}
    from unnest(${sql.param(texts)}::text[]) line, json_populate_record(null::${table.table}, line::json) r
    on conflict do nothing`);
  return rowCount ?? 0;
}

/** A user's applications by name. */
export async function listUserApps(db: Database, tables: readonly UserTable[], userId: string): Promise<string[]> {
  const { rows } = await db.execute<{ app: string }>(
    sql`select distinct app from list_user_apps(${toNames(tables)}, ${userId}) app`,
  );
  return rows.map(({ app }) => app).toSorted();
}

/** Tables' names as a parameter. */
export const toNames = (tables: readonly UserTable[]): SQL =>
  sql`${sql.param(tables.map(({ table }) => getTableName(table)))}::text[]`;
