import { type SQL, type SQLWrapper, getTableColumns, getTableName, is, sql } from 'drizzle-orm';
import { type AnyPgColumn, getTableConfig, PgTable } from 'drizzle-orm/pg-core';
import { createHash } from 'node:crypto';
import type { SessionKey } from '../../core/session.ts';
import type { Database } from '../../platform/db/database.ts';
import * as schema from '../../platform/db/schema/schema.ts';
import { getKey, names } from '../../platform/db/sql.ts';

export type User = Pick<SessionKey, 'appName' | 'userId'>;

export interface UserTable {
  name: string;
  table: PgTable;
  /** Depth of the table in the graph of foreign keys. Tables are exported in this order, referenced tables first. */
  depth: number;
  columns: Record<string, AnyPgColumn>;
}

/**
 * Tables that export and erasure skip. Jobs only refer to rows of other tables. Legal holds prevent an erasure. Rows of
 * `user_erasures` and `user_storage` are deleted at the end of the erasure.
 */
const MARKS: ReadonlySet<string> = new Set(
  [schema.jobLanes, schema.jobs, schema.legalHolds, schema.userErasures, schema.userStorage].map((table) =>
    getTableName(table),
  ),
);

/** Tables of the operator: an import must not write them, and statements of a user must not delete them. */
export const OPERATORS_TABLES: ReadonlySet<string> = new Set(
  [schema.budgets, schema.budgetUses, schema.budgetReservations, schema.budgetAlerts].map((table) =>
    getTableName(table),
  ),
);

const measureDepth = (table: PgTable): number =>
  1 + Math.max(-1, ...getTableConfig(table).foreignKeys.map((key) => measureDepth(key.reference().foreignTable)));

/** All tables that have a user column, found in the schema, in the order of foreign keys. */
export const USER_TABLES: readonly UserTable[] = Object.values(schema)
  .filter((table) => is(table, PgTable))
  .map((table) => ({
    name: getTableName(table),
    table,
    depth: measureDepth(table),
    columns: getTableColumns(table) as Record<string, AnyPgColumn>,
  }))
  .filter(({ name, columns }) => columns['userId'] && columns['appName'] && !MARKS.has(name))
  .toSorted((one, other) => one.depth - other.depth || (one.name < other.name ? -1 : 1));

const belongsTo = ({ appName, userId }: User, { columns }: UserTable): SQL =>
  sql`${columns['appName']} = ${appName} and ${columns['userId']} = ${userId}`;

export const countRows = (db: Database, user: User, table: UserTable): Promise<number> =>
  db.$count(table.table, belongsTo(user, table));

export async function deleteRows(db: Database, user: User, table: UserTable, limit: number): Promise<number> {
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

/** A user's rows in the order of the primary key, without the column `content`, which may be large. */
export async function listRows(
  db: Database,
  user: User,
  table: UserTable,
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
  const { rows } = await db.execute<{ text: string; place: ExportedRow['place'] }>(sql`
    with page as materialized (
      select json_build_object(${list(members)})::text as text, json_build_array(${list(key)}) as place,
             row_number() over (${order}) as n
      from ${table.table} where ${belongsTo(user, table)} ${isNext} ${order} limit ${PAGE_ROWS}),
    sized as (select page.*, sum(octet_length(text)) over (order by n) as bytes from page)
    select text, place from sized where n = 1 or bytes <= ${PAGE_BYTES} order by n`);
  return rows;
}

const end = (column: string, value: string) =>
  `case when r.status in ('queued', 'running') then ${value} else r.${column} end`;

/**
 * SQL for columns whose imported values are ignored, because these could continue work, confirm tool calls or forge
 * sizes.
 */
export const SET_BY_RUNTIME: Record<string, Record<string, string>> = {
  sessions: { last_sequence: '0', event_bytes: '0', events_version: '0', lease_token: 'null' },
  events: {
    id: `r.payload ->> 'id'`,
    invocation_id: `r.payload ->> 'invocationId'`,
    author: `r.payload ->> 'author'`,
    is_from_runtime: 'false',
    bytes: 'octet_length(r.payload::text)',
  },
  invocations: {
    status: end('status', `'interrupted'`),
    lease_token: 'gen_random_uuid()',
    lease_expire_time: 'clock_timestamp()',
    request: 'null',
    job: 'null',
    attempt: '1',
    stop_requested_as: 'null',
    stop_request_time: 'null',
    not_before: 'null',
    first_end_time: 'case when r.cronjob_id is not null then coalesce(r.end_time, clock_timestamp()) end',
    end_time: end('end_time', 'clock_timestamp()'),
    error_code: end('error_code', `'interrupted'`),
    error_message: end('error_message', `'It was exported while it ran.'`),
  },
  // Imported tasks are closed, appear in no other user's inbox, and get a derived id that no other task can have.
  tasks: {
    id: 'md5(r.user_id || r.id)',
    state: `case when r.state = 'done' then 'done' else 'cancelled' end`,
    assigned_users: `'{}'`,
    assigned_groups: `'{}'`,
    due_time: 'null',
    token_hash: 'null',
    token_expire_time: 'null',
    decided_via: 'null',
    decide_time: `case when r.state = 'done' then coalesce(r.decide_time, clock_timestamp()) end`,
  },
  // The sender's groups are removed, because the operator has not authenticated the sender of an imported signal.
  signals: { sender_groups: `'{}'` },
  // Embeddings are not imported but computed again, because imported vectors could be malformed.
  memories: { embedding: 'null', embedding_model: 'null' },
  // Responses of tool calls are not imported, because a forged one would be taken for the tool's.
  tool_calls: { state: `case when r.state = 'started' then 'unknown' else r.state end`, response: 'null' },
  cronjobs: { enabled: 'false', next_run_time: 'null', disabled_reason: `coalesce(r.disabled_reason, 'imported')` },
  webhooks: { host: `substring(r.url from '^https?://([^/?#@]+)(?:[/?#]|$)')`, is_silent: 'true' },
  webhook_deliveries: {
    status: `case when r.status = 'pending' then 'failed' else r.status end`,
    end_time: 'coalesce(r.end_time, clock_timestamp())',
  },
};

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
  table: UserTable,
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
  for (const [name, value] of Object.entries(SET_BY_RUNTIME[table.name] ?? {})) own[name] = sql.raw(value);
  const columns = Object.values(table.columns).filter(({ name }) => memberNames.has(name) || Object.hasOwn(own, name));
  const values = columns.map(({ name }) => own[name] ?? sql.raw(`r."${name}"`));
  const { rowCount } = await tx.execute(sql`
    insert into ${table.table} (${names(...columns)}) select ${sql.join(values, sql`, `)}
    from unnest(${sql.param(texts)}::text[]) line, json_populate_record(null::${table.table}, line::json) r
    on conflict do nothing`);
  return rowCount ?? 0;
}

/** A user's applications by name, by index lookups; on Citus, which refuses this recursion, by reading all rows. */
export async function listUserApps(db: Database, userId: string): Promise<string[]> {
  const appNames = new Set<string>();
  for (const { table, columns } of USER_TABLES) {
    const { appName, userId: owner } = columns;
    if (db.isOnCluster) {
      const { rows } = await db.execute<{ app: string }>(
        sql`select distinct ${appName} as app from ${table} where ${owner} = ${userId}`,
      );
      for (const { app } of rows) appNames.add(app);
      continue;
    }
    const all = await db.execute<{ app: string }>(sql`
      with recursive apps as (
        (select ${appName} as app from ${table} order by ${appName} limit 1)
        union all
        select (select ${appName} from ${table} where ${appName} > apps.app order by ${appName} limit 1)
        from apps where apps.app is not null)
      select app from apps where app is not null`);
    const apps = sql.param(all.rows.map(({ app }) => app));
    const { rows } = await db.execute<{ app: string }>(sql`
      select app from unnest(${apps}::text[]) app
      where exists (select from ${table} where ${appName} = app and ${owner} = ${userId})`);
    for (const { app } of rows) appNames.add(app);
  }
  return [...appNames].toSorted();
}
