import type { Client } from 'pg';
import { ConfigError } from '../../core/errors.ts';
import { isNewer, VERSION } from '../version.ts';
import { connect } from './client.ts';
import type { DatabaseAddress } from './connection.ts';
import {
  checkDistributed,
  distributeTables,
  isOnCluster,
  listUndistributed,
  prepareDistribution,
} from './distribute.ts';
import { inMigration, toKnownNames } from './migration-lock.ts';
import {
  applySections,
  findMissingSections,
  isAbsentView,
  isFunctions,
  listAppliedSections,
  listViews,
  readSections,
  type Section,
  toKey,
} from './repeatable.ts';
import { checkTables, grantLacking, grantRights, hasTable, JOURNAL, LIMITED_ROLE } from './rights.ts';
import { keepAuditRetention, makeRoles } from './shared-roles.ts';
import {
  applyTables,
  findMissingTables,
  listAppliedTables,
  readTableMigrations,
  type TableMigration,
} from './table-migrations.ts';
import { migrateTools } from './tool-schema.ts';

const MIGRATIONS = new URL('../../../migrations/', import.meta.url);

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

/** What a schema lacks of the files, and its views. `isNew`: it has no section, so everything is applied at once. */
type Pending = Files & { views: string[]; isNew: boolean; isEmpty: boolean };

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
    if (takesAnyVersion && (await hasTable(client, schema, JOURNAL))) return [];
    const files = { tables: readTableMigrations(directory), sections: readSections(directory, onCluster) };
    const pending = await findPending(client, schema, files);
    const missing = toNames(pending);
    let added: string[] = [];
    if (missing.length > 0) {
      if (!applies) throw new ConfigError(missingText(schema, pending.isEmpty, missing));
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

/** @throws {ConfigError} if the database is newer than this version, or has other migrations of tables */
async function findPending(client: Client, schema: string, files: Files): Promise<Pending> {
  const applied = await listAppliedTables(client, schema);
  const sections = await listAppliedSections(client, schema);
  const unknown = applied.filter(({ time }) => files.tables.every((each) => each.time !== time));
  const newer = sections.find(({ version }) => isNewer(version, VERSION));
  if (newer) throw new ConfigError(`it is newer than this version, ${VERSION}: ${newer.version} migrated it`);
  if (unknown.length > 0) {
    const last = new Date(Math.max(...unknown.map(({ time }) => time))).toISOString();
    throw new ConfigError(`it is newer than this version, ${VERSION}, which does not know its migration of ${last}`);
  }
  const views = await listViews(client, schema);
  return {
    tables: findMissingTables(files.tables, applied),
    sections: findMissingSections(files.sections, sections, views),
    views,
    isNew: sections.length === 0,
    isEmpty: applied.length === 0,
  };
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
 * take turns; and each grants the rights on what it made, because the version before goes on serving.
 * @throws {ConfigError} if another build of the same version applies its own texts at the same time
 */
async function applyPending(
  client: Client,
  schema: string,
  files: Files,
  { missing, onCluster, servingRole }: { missing: string[]; onCluster: boolean; servingRole: string | undefined },
): Promise<string[]> {
  const added = new Set<string>();
  const applied = new Set<string>();
  const applyNext = async (): Promise<Files> => {
    const pending = await findPending(client, schema, files);
    const next = chooseNext(pending);
    if (next.tables.length + next.sections.length === 0) return next;
    if (next.tables.length === 0 && next.sections.every((section) => applied.has(toKey(section))))
      throw new ConfigError(`another build of version ${VERSION} migrates it at the same time`);
    if (onCluster) await prepareDistribution(client);
    await applyTables(client, schema, next.tables);
    await applySections(client, schema, { chosen: next.sections, all: files.sections, isFirst: pending.isNew });
    if (onCluster) await distributeTables(client);
    const roles = await client.query<{ role: string }>('select rolname as role from pg_roles where rolname = any($1)', [
      [servingRole ?? '', LIMITED_ROLE],
    ]);
    for (const { role } of roles.rows) await grantLacking(client, schema, role);
    return next;
  };
  for (;;) {
    const next = await inMigration(client, schema, missing, applyNext);
    const names = toNames(next);
    if (names.length === 0) return [...added];
    for (const name of names) added.add(name);
    for (const section of next.sections) applied.add(toKey(section));
  }
}

/**
 * Chooses what one transaction applies. A new schema gets everything or nothing. An existing one gets its tables with
 * all functions, which lock no table, and with the views that these tables had to drop; then one section at a time,
 * because a transaction that replaced all triggers would hold locks of all tables, in another order than clients.
 */
function chooseNext({ tables, sections, views, isNew }: Pending): Files {
  if (isNew) return { tables, sections };
  const first = sections.filter((section) => isFunctions(section) || isAbsentView(section, views));
  if (tables.length + first.length > 0) return { tables, sections: first };
  return { tables, sections: sections.slice(0, 1) };
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
