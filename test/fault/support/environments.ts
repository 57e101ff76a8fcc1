import { toKnownNames } from '../../../src/platform/db/migration-lock.ts';
import { VERSION } from '../../../src/platform/version.ts';
import { listMigrations } from '../../support/migrations.ts';

/** The database that an environment is made in. */
export interface Place {
  /** Name of the database, fit for SQL as it is. */
  database: string;
  /** A role without any rights, fit for SQL as it is. */
  role: string;
}

/** What an operator may have, and what a start in it comes to. */
export interface Environment {
  name: string;
  /** The major version of PostgreSQL that it needs [14]. */
  since?: number;
  /** How the database is created; UTF8 with the locale C without it. */
  create?: string;
  /** Another version of this service, or this one, has migrated the database before. */
  isMigrated?: boolean;
  /** What a superuser does in the database before the start. */
  sql?: (place: Place) => string;
  /** The service signs in as the role without rights [as the superuser]. */
  asRole?: boolean;
  /** `options` of the URL. */
  options?: string;
  /** Settings of the service. */
  settings?: Record<string, string>;
  /** What the start ends with, behind `cannot be used: `; without it everything works. */
  refused?: (place: Place) => string;
  /** Also in the short form. */
  isShort?: boolean;
}

const ALL = toKnownNames(listMigrations());
const missing = (reason: string) => `${ALL} missing, and could not be applied: ${reason}.`;

/** A setting of the database; several are one after another. */
const set =
  (...settings: string[]) =>
  ({ database }: Place) =>
    settings.map((setting) => `alter database ${database} set ${setting}`).join(';');

const OWNS_SCHEMA = ({ database, role }: Place) =>
  `revoke create on schema public from public; create schema ${role} authorization ${role};
   grant create on database ${database} to ${role}`;

const ENCODINGS: Environment[] = [
  { name: 'UTF8, locale C', isShort: true },
  { name: 'UTF8, locale C.UTF-8', since: 17, create: `locale_provider builtin builtin_locale 'C.UTF-8'` },
  { name: 'UTF8, German order', since: 15, create: `locale_provider icu icu_locale 'de-DE'`, isShort: true },
  { name: 'UTF8, Turkish case', since: 15, create: `locale_provider icu icu_locale 'tr-TR'` },
  { name: 'UTF8, case ignored', since: 15, create: `locale_provider icu icu_locale 'und-u-ks-level1'` },
  ...['SQL_ASCII', 'LATIN1', 'EUC_JP'].map((encoding) => ({
    name: `encoding ${encoding}`,
    create: `encoding '${encoding}'`,
    refused: () => `its encoding is ${encoding}; make one with the encoding UTF8.`,
    isShort: true,
  })),
];

const SETTINGS: Environment[] = [
  {
    name: 'DateStyle SQL, DMY in Kolkata',
    sql: set(`datestyle = 'SQL, DMY'`, `timezone = 'Asia/Kolkata'`),
    isShort: true,
  },
  { name: 'DateStyle German in Newfoundland', sql: set(`datestyle = 'German'`, `timezone = 'America/St_Johns'`) },
  { name: 'IntervalStyle sql_standard', sql: set(`intervalstyle = 'sql_standard'`) },
  { name: 'isolation serializable', sql: set(`default_transaction_isolation = 'serializable'`), isShort: true },
  { name: 'isolation repeatable read', sql: set(`default_transaction_isolation = 'repeatable read'`) },
  {
    name: 'read-only by default',
    sql: set('default_transaction_read_only = on'),
    refused: () => missing('cannot execute CREATE TABLE in a read-only transaction'),
    isShort: true,
  },
  { name: 'standard_conforming_strings off', sql: set('standard_conforming_strings = off'), isShort: true },
  { name: 'bytea_output escape', sql: set('bytea_output = escape') },
  { name: 'extra_float_digits -10', sql: set('extra_float_digits = -10') },
  { name: 'client_encoding LATIN1', sql: set('client_encoding = latin1') },
  { name: 'transform_null_equals, no array_nulls', sql: set('transform_null_equals = on', 'array_nulls = off') },
  { name: 'generic plans only', sql: set('plan_cache_mode = force_generic_plan', 'jit = on', 'jit_above_cost = 0') },
  { name: 'German text search', sql: set(`default_text_search_config = 'pg_catalog.german'`) },
  {
    name: 'statement_timeout 50 ms, lock_timeout 50 ms',
    sql: set(`statement_timeout = '50ms'`, `lock_timeout = '50ms'`),
    isShort: true,
  },
  { name: 'idle_session_timeout 300 ms', sql: set(`idle_session_timeout = '300ms'`), isShort: true },
  {
    name: 'a search_path to another schema',
    sql: (place) => `create schema theirs; ${set('search_path = theirs, public')(place)}`,
  },
  {
    name: 'a search_path to nowhere',
    sql: set('search_path = nowhere'),
    refused: () => 'its search_path names no schema that exists.',
    isShort: true,
  },
  {
    name: 'options in the URL',
    sql: () => 'create schema theirs',
    options: '-c search_path=theirs -c work_mem=8MB',
    isShort: true,
  },
];

const ROLES: Environment[] = [
  {
    name: 'owner of the database, no superuser',
    asRole: true,
    sql: ({ database, role }) => `alter database ${database} owner to ${role}`,
  },
  {
    name: 'rights on rows and functions only, migrated before',
    asRole: true,
    isMigrated: true,
    sql: ({ role }) =>
      `revoke create on schema public from public;
       grant select, insert, update, delete on all tables in schema public to ${role};
       grant execute on all functions in schema public to ${role}`,
    isShort: true,
  },
  {
    name: 'no right to create, not migrated',
    asRole: true,
    sql: () => 'revoke create on schema public from public',
    refused: () => missing('permission denied for schema public'),
    isShort: true,
  },
  { name: 'a schema of its own', asRole: true, sql: OWNS_SCHEMA },
  {
    name: 'a schema of its own, no right to create the one of the views',
    asRole: true,
    sql: ({ role }) => `create schema ${role} authorization ${role}`,
    refused: ({ database }) => missing(`permission denied for database ${database}`),
    isShort: true,
  },
  {
    name: 'no rights on its tables, migrated before',
    asRole: true,
    isMigrated: true,
    refused: () => 'permission denied for table agent_runtime_migrations. Check DATABASE_URL.',
    isShort: true,
  },
  {
    name: 'no right to connect',
    asRole: true,
    sql: ({ database }) => `revoke connect on database ${database} from public`,
    refused: ({ database }) => `permission denied for database "${database}". Check DATABASE_URL.`,
    isShort: true,
  },
  {
    name: 'no right to sign in',
    asRole: true,
    sql: ({ role }) => `alter role ${role} nologin`,
    refused: ({ role }) => `role "${role}" is not permitted to log in. Check DATABASE_URL.`,
    isShort: true,
  },
  {
    name: 'six connections in all',
    asRole: true,
    sql: (place) => `${OWNS_SCHEMA(place)}; alter role ${place.role} connection limit 6`,
    settings: { DATABASE_POOL_SIZE: '4' },
    isShort: true,
  },
  {
    name: 'no connection left',
    asRole: true,
    sql: ({ role }) => `alter role ${role} connection limit 0`,
    refused: ({ role }) => `too many connections for role "${role}". Check DATABASE_URL.`,
    isShort: true,
  },
];

/** The journal of another application that uses drizzle too. */
const FOREIGN_JOURNAL = `create schema drizzle;
  create table drizzle.__drizzle_migrations (id serial primary key, hash text not null, created_at bigint);
  insert into drizzle.__drizzle_migrations (hash, created_at) values ('theirs', 99999999999999)`;

const STARTS_ANEW =
  'Export what is needed with the version that made them; then use an empty database, or another DATABASE_SCHEMA.';

const NEIGHBOURS: Environment[] = [
  { name: 'another application with newer migrations', sql: () => FOREIGN_JOURNAL, isShort: true },
  {
    name: 'a journal of another application that may not be read',
    asRole: true,
    sql: (place) => `${FOREIGN_JOURNAL}; ${OWNS_SCHEMA(place)}`,
  },
  {
    name: 'a table sessions of another application',
    sql: () => 'create table sessions (id int)',
    refused: () => missing('relation "sessions" already exists'),
    isShort: true,
  },
  {
    name: 'a table sessions of another application, a schema of ours',
    sql: () => 'create table sessions (id int); create schema ours',
    options: '-c search_path=ours',
  },
  {
    name: 'a schema inspect of another application',
    sql: () => 'create schema inspect',
    refused: () => missing('schema "inspect" already exists'),
    isShort: true,
  },
  {
    name: 'tables of ours half there, without a journal',
    isMigrated: true,
    sql: () => 'drop table agent_runtime_migrations, invocations, events cascade',
    // The journal of sections is there, and so are the functions; triggers and views went with the tables.
    refused: () => {
      const gone = toKnownNames(listMigrations().filter((name) => !/^functions\/|^comments$/.test(name)));
      return `${gone} missing, and could not be applied: schema "inspect" already exists.`;
    },
    isShort: true,
  },
  {
    name: 'a table of ours gone, all migrations noted',
    isMigrated: true,
    sql: () => 'drop table memories cascade',
    refused: () => 'it lacks memories, although all migrations were applied to it.',
    isShort: true,
  },
  {
    name: 'a newer version of this service',
    isMigrated: true,
    sql: () =>
      `insert into agent_runtime_migrations (hash, created_at) values ('x', 9998000000000), ('y', 9999000000000)`,
    refused: () =>
      `it is newer than this version, ${VERSION}, which does not know its migration of 2286-11-09T04:00:00.000Z.`,
    isShort: true,
  },
  {
    name: 'another text of a migration',
    isMigrated: true,
    sql: () => `update agent_runtime_migrations set hash = 'x' where id = 1`,
    refused: () => `another text of 0000_tables was applied to it than this version has. ${STARTS_ANEW}`,
    isShort: true,
  },
  {
    name: 'a version before the first release',
    sql: () => `create table agent_runtime_migrations (name, hash) as select '0000_tables', 'x'`,
    refused: () => `its tables are those of a version before the first release. ${STARTS_ANEW}`,
    isShort: true,
  },
  { name: 'extensions in public', sql: () => 'create extension citext; create extension pg_trgm' },
];

/** All of them. */
export const ENVIRONMENTS: Environment[] = [...ENCODINGS, ...SETTINGS, ...ROLES, ...NEIGHBOURS];
