import { type SQL, type SQLWrapper, getTableColumns, sql } from 'drizzle-orm';
import { type AnyPgColumn, getTableConfig, type PgTable } from 'drizzle-orm/pg-core';

/** A value in a raw statement: a parameter, or SQL that computes it. */
type Value = SQLWrapper | string | number | boolean | Buffer | null;
/** Values by the names that the schema gives to the columns of a table. */
type Values<Table extends PgTable> = Partial<Record<keyof Table['$inferInsert'] & string, Value>>;

const withCommas = (parts: SQLWrapper[]): SQL => sql.join(parts as SQL[], sql`, `);

/** The bare names of columns, where SQL takes no qualified ones: what a conflict is about, the columns of a CTE. */
export const names = (...columns: AnyPgColumn[]): SQL => withCommas(columns.map(({ name }) => sql.identifier(name)));

/** The columns of a table's primary key, in its order. */
export function getKey(table: PgTable): AnyPgColumn[] {
  const columns: AnyPgColumn[] = Object.values(getTableColumns(table));
  const key = getTableConfig(table).primaryKeys[0]?.columns ?? [];
  // The columns of a key that drizzle 0.45.4 gives call themselves for ever when they are asked for their type.
  return key.flatMap(({ name }) => columns.find((column) => column.name === name) ?? []);
}

/** The value that a conflicting row was to be inserted with. */
export const excluded = (column: AnyPgColumn): SQL => sql`excluded.${names(column)}`;

/** `a = 1, b = 2`: what an `update` that the builder cannot write sets. */
export const assignments = <Table extends PgTable>(table: Table, values: Values<Table>): SQL =>
  withCommas(getEntries(table, values).map(([column, value]) => sql`${names(column)} = ${value}`));

/** `insert into t (a, b) select 1, 2`, to go on with `from`: the builder's own names every column of the table. */
export function insertSelect<Table extends PgTable>(table: Table, values: Values<Table>): SQL {
  const entries = getEntries(table, values);
  const selected = withCommas(entries.map(([, value]) => sql`${value}`));
  return sql`insert into ${table} (${names(...entries.map(([column]) => column))}) select ${selected}`;
}

function getEntries<Table extends PgTable>(table: Table, values: Values<Table>): [AnyPgColumn, Value][] {
  const columns: Record<string, AnyPgColumn> = getTableColumns(table);
  return Object.entries(values).flatMap(([name, value]) => {
    const column = columns[name];
    return column && value !== undefined ? [[column, value as Value]] : [];
  });
}

/** ISO 8601 in UTC with microseconds. */
const EXACT_TIME = 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"';

/** A time as text with all its digits: what a `Date` reads of it has lost three. */
export const exactTime = (column: AnyPgColumn | SQL): SQL<string> =>
  sql<string>`to_char(${column} at time zone 'utc', ${sql.raw(`'${EXACT_TIME}'`)})`;

/** The condition for what comes after a place in a list whose newest are first, then by id downwards. */
export const isAfterPlace = (
  row: Record<'time' | 'id', AnyPgColumn | SQL>,
  place: { time: string; id: string } | undefined,
): SQL | undefined => place && sql`(${row.time}, ${row.id}) < (${place.time}::timestamptz, ${place.id})`;

/** Bytes of the rows before a row in an order: of what is below a maximum here, only a first row may be larger. */
export const bytesBefore = (bytes: SQL, order: SQL): SQL<number> =>
  sql`sum(${bytes}) over (order by ${order} rows unbounded preceding) - ${bytes}`;

/** Bytes of the large values of a page, but for a first larger one. */
const MAX_PAGE_BYTES = 1_048_576;

/** Tells whether the texts of a row are still on its page of a list in this order; the next page begins where not. */
export const fitsPage = (order: SQL, ...texts: AnyPgColumn[]): SQL<boolean> => {
  const bytes = sql.join(
    texts.map((text) => sql`coalesce(octet_length(${text}::text), 0)`),
    sql` + `,
  );
  return sql`${bytesBefore(sql`(${bytes})`, order)} < ${MAX_PAGE_BYTES}`;
};
