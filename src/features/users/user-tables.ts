import { type SQL, type SQLWrapper, getTableColumns, getTableName, is, sql } from 'drizzle-orm';
import { type AnyPgColumn, getTableConfig, PgTable } from 'drizzle-orm/pg-core';
import { createHash } from 'node:crypto';
import type { SessionKey } from '../../core/session.ts';
import type { Database } from '../../platform/db/database.ts';
import * as schema from '../../platform/db/schema/schema.ts';
import { getKey, names } from '../../platform/db/sql.ts';

/** One user of one application. */
export type User = Pick<SessionKey, 'appName' | 'userId'>;

/** A table of user data, whatever its rows mean. */
export interface UserTable {
  name: string;
  table: PgTable;
  /** How many tables it stands above by foreign keys: it is read after those that it refers to. */
  depth: number;
  columns: Record<string, AnyPgColumn>;
}

/** Bookkeeping tables that export and erasure skip: a hold keeps an erasure from beginning, the others end with it. */
const MARKS: ReadonlySet<string> = new Set(
  [schema.legalHolds, schema.userErasures, schema.userStorage].map((table) => getTableName(table)),
);

/** Tables of budgets, which are the operator's: no import brings them, and no statement of one user deletes there. */
export const OPERATORS_TABLES: ReadonlySet<string> = new Set(
  [schema.budgets, schema.budgetUses, schema.budgetReservations, schema.budgetAlerts].map((table) =>
    getTableName(table),
  ),
);

const measureDepth = (table: PgTable): number =>
  1 + Math.max(-1, ...getTableConfig(table).foreignKeys.map((key) => measureDepth(key.reference().foreignTable)));

/** Every table with a user in its rows, those first that others refer to: a new one is in it without another word. */
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

/** The condition that rows are a user's. */
const belongsTo = ({ appName, userId }: User, { columns }: UserTable): SQL =>
  sql`${columns['appName']} = ${appName} and ${columns['userId']} = ${userId}`;

/** How many rows of a table are a user's. */
export const countRows = (db: Database, user: User, table: UserTable): Promise<number> =>
  db.$count(table.table, belongsTo(user, table));

/** Deletes at most `limit` rows of a user. @returns how many there were */
export async function deleteRows(db: Database, user: User, table: UserTable, limit: number): Promise<number> {
  const { rowCount } = await db.execute(sql`
    delete from ${table.table} where ctid = any(array(
      select ctid from ${table.table} where ${belongsTo(user, table)} limit ${limit})) and ${belongsTo(user, table)}`);
  return rowCount ?? 0;
}

/** Rows that one statement reads at most, and bytes of their JSON, but for a first larger one. */
const PAGE_ROWS = 100;
const PAGE_BYTES = 4_194_304;

/** A row as JSON text, with its place in the order of the table's key. */
export interface ExportedRow {
  text: string;
  place: (string | number)[];
}

/** The rows of a user after a place, in the order of the table's key; without their `content`, which may be large. */
export async function listRows(
  db: Database,
  user: User,
  table: UserTable,
  after: ExportedRow['place'] | undefined,
): Promise<ExportedRow[]> {
  // Behind application and user.
  const key = getKey(table.table).slice(2);
  const list = (parts: SQLWrapper[]) => sql.join(parts, sql`, `);
  const columns = Object.values(table.columns).filter(
    ({ name }) => name !== 'content' || table.name !== 'artifact_versions',
  );
  const exported = (column: AnyPgColumn) => (column.name === 'request' ? sql`${column} - 'secrets'` : column);
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
 * Columns that only the runtime sets, by table, with what an import puts there; all others are as the line says. So
 * nothing that ran elsewhere goes on or happens a second time, no line confirms a call, and no size is invented.
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
    attempt: '1',
    stop_requested_as: 'null',
    end_time: end('end_time', 'clock_timestamp()'),
    error_code: end('error_code', `'interrupted'`),
    error_message: end('error_message', `'It was exported while it ran.'`),
  },
  // Nothing of a line goes on, or comes into the inbox of others; no id is another's.
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
  // No line is vouched for by a credential of the operator.
  signals: { sender_groups: `'{}'` },
  // No line brings a vector, which might be none.
  memories: { embedding: 'null', embedding_model: 'null' },
  // No answer of a line is taken for one that a tool gave.
  tool_calls: { state: `case when r.state = 'started' then 'unknown' else r.state end`, response: 'null' },
  cronjobs: { enabled: 'false', next_run_time: 'null', disabled_reason: `coalesce(r.disabled_reason, 'imported')` },
  cronjob_runs: {
    status: `case when r.end_time is null then 'cancelled' else r.status end`,
    end_time: 'coalesce(r.end_time, clock_timestamp())',
    next_attempt_time: 'null',
    lease_token: 'null',
    lease_expire_time: 'null',
    losses: '0',
    cancel_request_time: 'null',
  },
  webhooks: { host: `substring(r.url from '^https?://([^/?#@]+)(?:[/?#]|$)')`, is_silent: 'true' },
  webhook_deliveries: {
    status: `case when r.status = 'pending' then 'failed' else r.status end`,
    end_time: 'coalesce(r.end_time, clock_timestamp())',
    next_attempt_time: 'null',
    lease_token: 'null',
    losses: '0',
  },
};

/** Where the bytes of an imported artifact are. */
export interface ImportedContent {
  content: Buffer | null;
  objectKey: string | null;
  sizeBytes: number;
  sha256: Buffer;
}

/**
 * Inserts rows, each as the JSON text of an object with the same members; those that are there already stay as they
 * are. Members that the table does not have are left out. @returns how many were inserted
 */
export async function insertRows(
  tx: Database,
  user: User,
  table: UserTable,
  members: string[],
  texts: string[],
  bytes?: ImportedContent,
): Promise<number> {
  const given = new Set(members);
  // Whatever the line leaves out: these are never as it says, nor as the table would have it.
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
  const columns = Object.values(table.columns).filter(({ name }) => given.has(name) || Object.hasOwn(own, name));
  const values = columns.map(({ name }) => own[name] ?? sql.raw(`r."${name}"`));
  const { rowCount } = await tx.execute(sql`
    insert into ${table.table} (${names(...columns)}) select ${sql.join(values, sql`, `)}
    from unnest(${sql.param(texts)}::text[]) line, json_populate_record(null::${table.table}, line::json) r
    on conflict do nothing`);
  return rowCount ?? 0;
}

/**
 * The applications in which a user has anything, by name. One look by an index for each application and table; a
 * cluster refuses such a recursion, and reads what the user has.
 */
export async function listUserApps(db: Database, userId: string): Promise<string[]> {
  const found = new Set<string>();
  for (const { table, columns } of USER_TABLES) {
    const { appName, userId: owner } = columns;
    if (db.isOnCluster) {
      const { rows } = await db.execute<{ app: string }>(
        sql`select distinct ${appName} as app from ${table} where ${owner} = ${userId}`,
      );
      for (const { app } of rows) found.add(app);
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
    for (const { app } of rows) found.add(app);
  }
  return [...found].toSorted();
}
