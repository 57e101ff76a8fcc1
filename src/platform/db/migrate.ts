import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { readMigrationFiles } from 'drizzle-orm/migrator';
import { type Client, escapeIdentifier } from 'pg';
import { ConfigError } from '../../core/errors.ts';
import { isNewer, VERSION } from '../version.ts';
import { connect } from './client.ts';
import type { DatabaseAddress } from './connection.ts';
import { checkDistributed, distributeTables, isOnCluster, listUndistributed, prepareDistribution } from './cluster.ts';
import { inMigration, toKnownNames } from './migration-lock.ts';
import {
  type Applied,
  applySections,
  findMissingSections,
  isFunctions,
  isView,
  listApplied,
  MIGRATIONS,
  type MissingSection,
  readSections,
  type Section,
} from './repeatable.ts';
import { checkTables, grantEach, grantRights, keepAuditRetention, makeRoles } from './rights.ts';
import { BEFORE_FIRST_RELEASE, inSchema, JOURNAL, listRecorded, STARTS_ANEW } from './schema-names.ts';
import { migrateTools } from './tool-schema.ts';

export interface MigrateOptions {
  /** False: check only; a missing migration is an error. */
  applies?: boolean;
  /** True: if `applies` is false, accept the tables of any version. */
  takesAnyVersion?: boolean;
  /** Role of the serving process if it differs from the migrating role; it is granted the privileges on rows. */
  servingRole?: string | undefined;
  /** Retention of the audit log, in days and number of entries; only the owner of the tables may change it. */
  audit?: { days: number; count: number } | undefined;
  /** Directory of applications whose tools may have tables of their own. Default: none. */
  agentsDir?: string | undefined;
  /** Directory of the migrations. Default: that of this version. */
  directory?: URL;
}

/** The files of `migrations/`: tables by drizzle-kit, each applied once, and sections that are applied when they change. */
interface Files {
  tables: TableMigration[];
  sections: Section[];
}

/**
 * Migrates a database. Without a missing migration it only reads, so that an ordinary start needs no more privileges.
 * @returns the names of applied migrations
 * @throws {ConfigError} if the database is newer or cannot be migrated
 */
export async function migrateDatabase(
  address: DatabaseAddress,
  {
    applies = true,
    takesAnyVersion = false,
    servingRole,
    audit,
    agentsDir,
    directory = MIGRATIONS,
  }: MigrateOptions = {},
): Promise<string[]> {
  const config = { application_name: 'agent-runtime migrate', keepAlive: true, connectionTimeoutMillis: 10_000 };
  // Accepts a read-only server, because a replica that starts without a primary serves reads until there is one.
  const client = await connect(address, config, { acceptsReadOnly: true });
  try {
    const schema = await findSchema(client, address.schema);
    const onCluster = await isOnCluster(client);
    if (takesAnyVersion && (await listApplied(client, schema)).size > 0) return [];
    const files = { tables: readTableMigrations(directory, onCluster), sections: readSections(directory, onCluster) };
    const { isEmpty, tables, applied } = await findPending(client, schema, files);
    // Before the sections, which could not be applied to a table that somebody dropped.
    if (tables.length === 0) await checkTables(client, schema);
    const sections = await findMissingSections(client, schema, files.sections, applied);
    const missing = toNames({ tables, sections: sections.map(({ section }) => section) });
    let added: string[] = [];
    if (missing.length > 0) {
      if (!applies) throw new ConfigError(missingText(schema, isEmpty, missing));
      added = await applyPending(client, schema, files, { missing, onCluster, servingRole });
    }
    await checkTables(client, schema);
    if (onCluster) {
      if (applies && (await listUndistributed(client, schema)).length > 0) await distribute(client, schema);
      await checkDistributed(client, schema);
    }
    if (applies && servingRole !== undefined) await grantRights(client, schema, servingRole);
    if (applies) await makeRoles(client, schema, servingRole);
    if (applies && audit) await keepAuditRetention(client, schema, audit);
    if (agentsDir !== undefined)
      added.push(...(await migrateTools(client, schema, agentsDir, { applies, servingRole })));
    return added;
  } finally {
    await client.end().catch(() => undefined);
  }
}

/**
 * Finds the migrations of tables that a schema lacks, and the sections that were applied to it.
 * @throws {ConfigError} if the schema is newer than this version or older than the first release, or an applied migration
 * of tables has another text here
 */
async function findPending(
  client: Client,
  schema: string,
  files: Files,
): Promise<{ isEmpty: boolean; tables: TableMigration[]; applied: Applied }> {
  const appliedTables = await listAppliedTables(client, schema);
  const tables = findMissingTables(files.tables, appliedTables);
  const applied = await listApplied(client, schema);
  const newer = [...applied.values()].find(({ version }) => isNewer(version, VERSION));
  if (newer) throw new ConfigError(`it is newer than this version, ${VERSION}: ${newer.version} migrated it`);
  const unknown = appliedTables.filter(({ time }) => files.tables.every((each) => each.time !== time));
  const newest = Math.max(...files.tables.map(({ time }) => time));
  if (unknown.some(({ time }) => time < newest)) throw new ConfigError(BEFORE_FIRST_RELEASE);
  if (unknown.length > 0) {
    const last = new Date(Math.max(...unknown.map(({ time }) => time))).toISOString();
    throw new ConfigError(`it is newer than this version, ${VERSION}, which does not know its migration of ${last}`);
  }
  return { isEmpty: appliedTables.length === 0, tables, applied };
}

const toNames = ({ tables, sections }: Files): string[] => [
  ...tables.map(({ name }) => name),
  ...new Set(sections.map(({ file }) => file)),
];

function missingText(schema: string, isEmpty: boolean, missing: string[]): string {
  const what = isEmpty ? `its schema ${schema} has no tables of this service` : `it lacks ${toKnownNames(missing)}`;
  return `${what}. Apply the migrations: npm run db:migrate, or agent-runtime migrate`;
}

/**
 * Applies what is missing, in several transactions. Each reads the journals anew, because replicas that start together
 * take turns; and each grants the rights on what it made, because the version before goes on serving. An empty schema gets
 * everything or nothing.
 * @throws {ConfigError} if another build of the same version applies its own texts at the same time
 */
async function applyPending(
  client: Client,
  schema: string,
  files: Files,
  { missing, onCluster, servingRole }: { missing: string[]; onCluster: boolean; servingRole: string | undefined },
): Promise<string[]> {
  const names = new Set<string>();
  const done = new Set<Section>();
  const applyNext = async (): Promise<Files> => {
    const { tables, applied } = await findPending(client, schema, files);
    if (onCluster) await prepareDistribution(client);
    await applyTables(client, schema, tables);
    // After the migrations of tables, because these may have dropped views.
    const changed = await findMissingSections(client, schema, files.sections, applied);
    const sections = applied.size === 0 ? changed.map(({ section }) => section) : chooseSections(changed);
    const next = { tables, sections };
    if (toNames(next).length === 0) return next;
    if (tables.length === 0 && sections.every((section) => done.has(section)))
      throw new ConfigError(`another build of version ${VERSION} migrates it at the same time`);
    await applySections(client, schema, sections, applied);
    if (onCluster) await distributeTables(client);
    await grantEach(client, schema, servingRole);
    return next;
  };
  for (;;) {
    const next = await inMigration(client, schema, missing, applyNext);
    if (toNames(next).length === 0) return [...names];
    for (const name of toNames(next)) names.add(name);
    for (const section of next.sections) done.add(section);
  }
}

/**
 * Chooses the sections that the next transaction applies to a schema of an earlier version. The first one applies all
 * functions, because they lock no table, and the views that are missing. Each later one applies one section, because a
 * transaction that replaced all triggers would lock all tables, in another order than clients do.
 */
function chooseSections(missing: MissingSection[]): Section[] {
  const first = missing.filter(({ section, isDropped }) => isFunctions(section) || (isDropped && isView(section)));
  return (first.length > 0 ? first : missing.slice(0, 1)).map(({ section }) => section);
}

const distribute = (client: Client, schema: string): Promise<void> =>
  inMigration(client, schema, ['the distribution of tables'], async () => {
    await prepareDistribution(client);
    await distributeTables(client);
  });

/** @throws {ConfigError} if the database cannot hold the tables */
async function findSchema(client: Client, chosen: string | undefined): Promise<string> {
  const { rows } = await client.query<{ schema: string | null; encoding: string }>(
    `select coalesce($1, current_schema()) as schema, current_setting('server_encoding') as encoding`,
    [chosen],
  );
  const { schema, encoding } = rows[0] ?? { schema: null, encoding: '' };
  // SQL_ASCII, for example, stores bytes but cannot count or compare characters, and lacks the JSON escapes.
  if (encoding !== 'UTF8') throw new ConfigError(`its encoding is ${encoding}; make one with the encoding UTF8`);
  if (schema === null) throw new ConfigError('its search_path names no schema that exists');
  return schema;
}

/** A migration of drizzle-kit. drizzle knows a migration by its time, and compares nothing else. */
export interface TableMigration {
  name: string;
  hash: string;
  time: number;
  /** What is sent at a time. */
  messages: string[];
}

/** A row of drizzle's journal in the database. */
type AppliedTables = Pick<TableMigration, 'hash' | 'time'>;

/** Row-level security, which a cluster has not: its nodes know no user, and Citus refuses our policies. */
const POLICY = /^\s*(?:create|alter|drop) policy|enable row level security;?\s*$/i;

/** Reads the migrations of tables in a directory, with drizzle's own reader. */
export function readTableMigrations(directory: URL, onCluster = false): TableMigration[] {
  const { entries } = JSON.parse(readFileSync(new URL('meta/_journal.json', directory), 'utf8')) as {
    entries: { tag: string }[];
  };
  return readMigrationFiles({ migrationsFolder: fileURLToPath(directory) }).map(
    ({ sql, hash, folderMillis }, index) => ({
      name: entries[index]?.tag ?? '',
      hash,
      time: folderMillis,
      // One message on one server, because a round trip for each of 300 statements takes longer than they do. Citus
      // refuses a message of several statements if it has to repeat one of them on its nodes.
      messages: onCluster ? sql.filter((statement) => !POLICY.test(statement)) : [sql.join('')],
    }),
  );
}

/**
 * Lists the applied migrations of tables; none if the schema has no journal.
 * @throws {ConfigError} if the journal is that of a version before the first release
 */
async function listAppliedTables(client: Client, schema: string): Promise<AppliedTables[]> {
  const rows = await listRecorded<{ hash: string; created_at: number }>(client, schema, JOURNAL, 'created_at');
  return rows.map(({ hash, created_at: time }) => ({ hash, time }));
}

/** @throws {ConfigError} if an applied migration has another text than this version's */
function findMissingTables(migrations: TableMigration[], applied: AppliedTables[]): TableMigration[] {
  const changed = migrations.filter(({ time, hash }) => applied.some((row) => row.time === time && row.hash !== hash));
  if (changed.length > 0)
    throw new ConfigError(
      `another text of ${changed.map(({ name }) => name).join(', ')} was applied to it than this version has. ${STARTS_ANEW}`,
    );
  return migrations.filter(({ time }) => !applied.some((row) => row.time === time));
}

/** Applies migrations of tables, in a transaction of the caller. */
async function applyTables(client: Client, schema: string, missing: TableMigration[]): Promise<void> {
  if (missing.length === 0) return;
  const journal = `${escapeIdentifier(schema)}.${JOURNAL}`;
  // As drizzle makes it, so that `npx drizzle-kit migrate` and a start may follow one another.
  await client.query(
    `create table if not exists ${journal} (id serial primary key, hash text not null, created_at bigint)`,
  );
  for (const { messages, hash, time } of missing) {
    for (const message of messages) await client.query(inSchema(message, schema));
    await client.query(`insert into ${journal} (hash, created_at) values ($1, $2)`, [hash, time]);
  }
}
