import { type SQL, type SQLWrapper, getTableColumns, isSQLWrapper, sql } from 'drizzle-orm';
import { type AnyPgColumn, getTableConfig, type PgTable } from 'drizzle-orm/pg-core';
import { escapeText, unescapeJson } from '../json-escape.ts';

/** Values of columns, which the types of the columns encode, or SQL expressions. */
type Values<Table extends PgTable> = Partial<Record<keyof Table['$inferInsert'] & string, unknown>>;

const withCommas = (parts: SQLWrapper[]): SQL => sql.join(parts as SQL[], sql`, `);

/** Column names without their table, where SQL requires that: conflict targets, columns of a CTE. */
export const names = (...columns: AnyPgColumn[]): SQL => withCommas(columns.map(({ name }) => sql.identifier(name)));

export function getKey(table: PgTable): AnyPgColumn[] {
  const columns: AnyPgColumn[] = Object.values(getTableColumns(table));
  const key = getTableConfig(table).primaryKeys[0]?.columns ?? [];
  // The columns of drizzle's primary key (0.45.4) recurse endlessly when asked for their SQL type.
  return key.flatMap(({ name }) => columns.find((column) => column.name === name) ?? []);
}

/** The value proposed for insertion, in `on conflict do update`. */
export const excluded = (column: AnyPgColumn): SQL => sql`excluded.${names(column)}`;

/** Assignments `a = 1, b = 2` for an `update` that the query builder cannot express. */
export const assignments = <Table extends PgTable>(table: Table, values: Values<Table>): SQL =>
  withCommas(getEntries(table, values).map(([column, value]) => sql`${names(column)} = ${value}`));

/** SQL `insert into t (a, b) select 1, 2`, to be followed by `from`. That of the query builder names every column. */
export function insertSelect<Table extends PgTable>(table: Table, values: Values<Table>): SQL {
  const entries = getEntries(table, values);
  const selected = withCommas(entries.map(([, value]) => sql`${value}`));
  return sql`insert into ${table} (${names(...entries.map(([column]) => column))}) select ${selected}`;
}

function getEntries<Table extends PgTable>(table: Table, values: Values<Table>): [AnyPgColumn, SQLWrapper][] {
  const columns: Record<string, AnyPgColumn> = getTableColumns(table);
  return Object.entries<unknown>(values).flatMap(([name, value]) => {
    const column = columns[name];
    if (!column || value === undefined) return [];
    return [[column, isSQLWrapper(value) ? value : sql.param(value, column)]];
  });
}

/** SQL: a column of JSON as text, which is passed on without parsing it. */
export const jsonTextOf = (column: SQLWrapper): SQL<string> => sql<string>`${column}::text`.mapWith(unescapeJson);

const EXACT_TIME = 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"';

/** A time as ISO 8601 text in microseconds; a `Date` would lose three digits. */
export const exactTime = (column: AnyPgColumn | SQL): SQL<string> =>
  sql<string>`to_char(${column} at time zone 'utc', ${sql.raw(`'${EXACT_TIME}'`)})`;

/** Keyset pagination of a list that is sorted by time and id, both descending. */
export const newestFirst = (time: AnyPgColumn | SQL, id: AnyPgColumn | SQL) => ({
  /** The position of a row, as `isAfter` takes it; the id stays as it is stored. */
  place: { time: exactTime(time), id: sql<string>`${id}` },
  order: sql`${time} desc, ${id} desc`,
  isAfter: (place: { time: string; id: string } | undefined): SQL | undefined =>
    place && sql`(${time}, ${id}) < (${place.time}::timestamptz, ${place.id})`,
});

/** Total bytes of the rows before the current one: a page of rows below a limit exceeds it only by its last row. */
export const bytesBefore = (bytes: SQL, order: SQL): SQL<number> =>
  sql`sum(${bytes}) over (order by ${order} rows unbounded preceding) - ${bytes}`;

/** Maximum bytes of large values on a page; only the last row may exceed it. */
const MAX_PAGE_BYTES = 1_048_576;

/** SQL: true while a row still fits on the page; the next page starts at the first row that does not. */
export const fitsPage = (order: SQL, ...texts: AnyPgColumn[]): SQL<boolean> => {
  const bytes = sql.join(
    texts.map((text) => sql`coalesce(octet_length(${text}::text), 0)`),
    sql` + `,
  );
  return sql`${bytesBefore(sql`(${bytes})`, order)} < ${MAX_PAGE_BYTES}`;
};

/** A row as `to_jsonb` writes it: values by names of columns. */
export type JsonRow = Record<string, unknown>;

export const fromJsonRow = <Table extends PgTable>(table: Table, row: JsonRow): Table['$inferSelect'] =>
  Object.fromEntries(
    Object.entries(getTableColumns(table)).map(([name, column]) => {
      const value = row[column.name] ?? null;
      // Escaped again, because the driver has unescaped the whole JSON, and the column's type expects a stored text.
      const stored = typeof value === 'string' ? escapeText(value) : value;
      return [name, stored === null ? null : column.mapFromDriverValue(stored)];
    }),
  );
