import { z } from 'zod';
import { choice, choiceOr, documented, text, textOr, whole } from './setting-schemas.ts';

/** A schema name that SQL needs not quote, short enough that `<name>_inspect` fits into PostgreSQL's 63 characters. */
const SCHEMA = /^(?!pg_)[a-z_][a-z0-9_]{0,54}$/;

export const DATABASE = {
  DATABASE_URL: text(
    'The PostgreSQL database; of several servers, separated by commas, the one that takes writes.',
    'an embedded PostgreSQL',
  ),
  DATABASE_MIGRATION_URL: text(
    'The same database as the role that [owns the tables](postgresql.md#roles) and applies the migrations.',
    '`DATABASE_DIRECT_URL`, else `DATABASE_URL`',
  ),
  DATABASE_POOLER: choice(
    ['none', 'transaction', 'transaction-prepared'],
    'Whether `DATABASE_URL` is a [pooler in transaction mode](postgresql.md#a-pooler-in-transaction-mode), ' +
      'such as PgBouncer, and whether it knows prepared statements.',
    '`transaction` with `DATABASE_DIRECT_URL`, else `none`',
  ),
  DATABASE_DIRECT_URL: text('The same database past the pooler, for LISTEN, locks and migrations.', '`DATABASE_URL`'),
  DATABASE_TOOLS_URL: text(
    'The same database as a role that is only a member of `agent_runtime_tools`, for [transactional ' +
      'tools](durability.md#rows) that run SQL of a model.',
    '`DATABASE_URL`, which acts as `agent_runtime_tools`',
  ),
  DATABASE_PASSWORD_FILE: text('File with the password of URLs that have none.'),
  DATABASE_CA_FILE: text(
    "File (PEM) of the authorities that vouch for the database's server; turns on `sslmode=verify-full`.",
    "Node's",
  ),
  DATABASE_SCHEMA: documented(
    z.string().regex(SCHEMA, 'lower-case letters, digits and _, at most 55, not pg_…').optional(),
    'The [schema](postgresql.md#schema) of the tables.',
    'a name in lower case',
    'the first of the `search_path`',
  ),
  MIGRATE: choiceOr(
    'on-start',
    ['on-start', 'check', 'off'],
    'Whether a start applies missing [migrations](postgresql.md#roles), only checks for them, or does neither.',
  ),
  DATA_DIR: textOr('.data', 'Directory of the embedded PostgreSQL.'),
  DATABASE_POOL_SIZE: whole(10, [1, 1000], 'Connections of this process at most.'),
  DATABASE_STATEMENT_TIMEOUT_MS: whole(
    10_000,
    [100, 600_000],
    'Longest time of one SQL statement. Waiting for a row lock, and for a connection, may take half of it.',
  ),
};
