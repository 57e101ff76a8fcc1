import { type SQL, type SQLWrapper, getTableColumns, sql } from 'drizzle-orm';
import type { AnyPgColumn, PgTable } from 'drizzle-orm/pg-core';

/** A value in a raw statement: a parameter, or SQL that computes it. */
type Value = SQLWrapper | string | number | boolean | Buffer | null;
/** Values by the names that the schema gives to the columns of a table. */
type Values<Table extends PgTable> = Partial<Record<keyof Table['$inferInsert'] & string, Value>>;

/** The bare names of columns, where SQL takes no qualified ones: what a conflict is about, the columns of a CTE. */
export const names = (...columns: AnyPgColumn[]): SQL =>
  sql.join(
    columns.map(({ name }) => sql.identifier(name)),
    sql`, `,
  );

/** The value that a conflicting row was to be inserted with. */
export const excluded = (column: AnyPgColumn): SQL => sql`excluded.${names(column)}`;

/** `a = 1, b = 2`: what an `update` that the builder cannot write sets. */
export const assignments = <Table extends PgTable>(table: Table, values: Values<Table>): SQL =>
  sql.join(
    entriesOf(table, values).map(([column, value]) => sql`${names(column)} = ${value}`),
    sql`, `,
  );

/** `insert into t (a, b) select 1, 2`, to go on with `from`: the builder's own names every column of the table. */
export function insertSelect<Table extends PgTable>(table: Table, values: Values<Table>): SQL {
  const entries = entriesOf(table, values);
  const selected = sql.join(
    entries.map(([, value]) => sql`${value}`),
    sql`, `,
  );
  return sql`insert into ${table} (${names(...entries.map(([column]) => column))}) select ${selected}`;
}

function entriesOf<Table extends PgTable>(table: Table, values: Values<Table>): [AnyPgColumn, Value][] {
  const columns: Record<string, AnyPgColumn> = getTableColumns(table);
  return Object.entries(values).flatMap(([name, value]) => {
    const column = columns[name];
    return column && value !== undefined ? [[column, value as Value]] : [];
  });
}
