import { type BuildColumns, type BuildExtraConfigColumns, getTableColumns } from 'drizzle-orm';
import {
  type PgColumnBuilderBase,
  PgColumnBuilder,
  type PgTable,
  pgTable,
  type PgTableExtraConfigValue,
  type PgTableWithColumns,
} from 'drizzle-orm/pg-core';
import type { PgColumnsBuilders } from 'drizzle-orm/pg-core/columns/all';

// drizzle has no comments (drizzle-orm#886); the pull request that proposes them (#4446) also says `.comment()`.
declare module 'drizzle-orm/pg-core' {
  interface PgColumnBuilder {
    /** Describes the column to operators; the migrator writes the text into the database. */
    comment(text: string): this;
  }
}

/** A builder hands its `config` to its column, which drizzle does not document: test/store/schema.test.ts fails without it. */
interface Commented {
  config: { comment?: string };
}

PgColumnBuilder.prototype.comment = function comment(text: string) {
  (this as unknown as Commented).config.comment = text;
  return this;
};

const COMMENTS_OF_TABLES = new WeakMap<PgTable, string>();

/** drizzle's `pgTable`, with a comment that describes the table to operators. */
export function table<Name extends string, Columns extends Record<string, PgColumnBuilderBase>>(
  name: Name,
  comment: string,
  columns: (types: PgColumnsBuilders) => Columns,
  constraints: (self: BuildExtraConfigColumns<Name, Columns, 'pg'>) => PgTableExtraConfigValue[] = () => [],
): PgTableWithColumns<{
  name: Name;
  schema: undefined;
  columns: BuildColumns<Name, Columns, 'pg'>;
  dialect: 'pg';
}> {
  const made = pgTable(name, columns, constraints);
  COMMENTS_OF_TABLES.set(made, comment);
  return made;
}

/** Lists the comments of a table (`column: null`) and of its columns, by their SQL names. */
export const commentsOf = (of: PgTable): { column: string | null; text: string | undefined }[] => [
  { column: null, text: COMMENTS_OF_TABLES.get(of) },
  ...Object.values(getTableColumns(of)).map((column) => ({
    column: column.name,
    text: (column as unknown as Commented).config.comment,
  })),
];
