import { createHash } from 'node:crypto';
import { getTableName, is } from 'drizzle-orm';
import { PgTable } from 'drizzle-orm/pg-core';
import type { Client } from 'pg';
import * as tables from './schema/schema.ts';
import { commentsOf } from './schema/table.ts';

const listComments = () =>
  Object.values(tables).flatMap((table) =>
    is(table, PgTable) ? commentsOf(table).map((comment) => ({ table: getTableName(table), ...comment })) : [],
  );

/** A hash of all comments. Sorted, because a test runner or bundler lists the exports of a module in another order. */
export const hashComments = (): string =>
  createHash('sha256')
    .update(
      listComments()
        .map((comment) => JSON.stringify(comment))
        .toSorted()
        .join(),
    )
    .digest('hex');

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
export async function writeComments(client: Client, schema: string): Promise<void> {
  const { rows } = await client.query<{ statement: string }>(DIFFERING, [schema, JSON.stringify(listComments())]);
  if (rows.length > 0) await client.query(rows.map(({ statement }) => statement).join(';'));
}
