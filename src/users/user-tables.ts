import { type SQL, getTableColumns, getTableName, is, sql } from 'drizzle-orm';
import { type AnyPgColumn, getTableConfig, PgTable } from 'drizzle-orm/pg-core';
import type { Database } from '../db/database.ts';
import * as schema from '../db/schema.ts';

/** One user of one application. */
export interface User {
  appName: string;
  userId: string;
}

/** A table of user data, whatever its rows mean. */
export interface UserTable {
  name: string;
  table: PgTable;
  /** How many tables it stands above by foreign keys: it is read after those that it refers to. */
  depth: number;
  columns: Record<string, AnyPgColumn>;
}

/** What says something about a user's data and is none: a hold keeps an erasure from beginning, a mark ends with it. */
const MARKS: ReadonlySet<string> = new Set([getTableName(schema.legalHolds), getTableName(schema.userErasures)]);

const depthOf = (table: PgTable): number =>
  1 + Math.max(-1, ...getTableConfig(table).foreignKeys.map((key) => depthOf(key.reference().foreignTable)));

/** Every table with a user in its rows, those first that others refer to: a new one is in it without another word. */
export const USER_TABLES: readonly UserTable[] = Object.values(schema)
  .filter((table) => is(table, PgTable))
  .map((table) => ({
    name: getTableName(table),
    table,
    depth: depthOf(table),
    columns: getTableColumns(table) as Record<string, AnyPgColumn>,
  }))
  .filter(({ name, columns }) => columns['userId'] && columns['appName'] && !MARKS.has(name))
  .toSorted((one, other) => one.depth - other.depth || (one.name < other.name ? -1 : 1));

/** The condition that rows are a user's. */
const isOf = ({ appName, userId }: User, { columns }: UserTable): SQL =>
  sql`${columns['appName']} = ${appName} and ${columns['userId']} = ${userId}`;

/** How many rows of a table are a user's. */
export const countRows = (db: Database, user: User, table: UserTable): Promise<number> =>
  db.$count(table.table, isOf(user, table));

/** Deletes at most `limit` rows of a user. @returns how many there were */
export async function deleteRows(db: Database, user: User, table: UserTable, limit: number): Promise<number> {
  const { rowCount } = await db.execute(sql`
    delete from ${table.table} where ctid = any(array(
      select ctid from ${table.table} where ${isOf(user, table)} limit ${limit}))`);
  return rowCount ?? 0;
}

/** The applications in which a user has anything, by name. One look by an index for each application and table. */
export async function listAppsOf(db: Database, userId: string): Promise<string[]> {
  const found = new Set<string>();
  for (const { table, columns } of USER_TABLES) {
    const { appName, userId: owner } = columns;
    const { rows } = await db.execute<{ app: string }>(sql`
      with recursive apps as (
        (select ${appName} as app from ${table} order by ${appName} limit 1)
        union all
        select (select ${appName} from ${table} where ${appName} > apps.app order by ${appName} limit 1)
        from apps where apps.app is not null)
      select app from apps
      where app is not null and exists (select from ${table} where ${appName} = apps.app and ${owner} = ${userId})`);
    for (const { app } of rows) found.add(app);
  }
  return [...found].toSorted();
}
