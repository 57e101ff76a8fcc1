import { z } from 'zod';
import { choiceOr, documented, flag, text, textOr, whole } from './setting-schemas.ts';

/** A name that needs no quotes, short enough for `<schema>_inspect`. */
const SCHEMA = /^(?!pg_)[a-z_][a-z0-9_]{0,54}$/;

/** Where the database is, who uses it, and how. */
export const DATABASE = {
  DATABASE_URL: text(
    'The PostgreSQL database to use. Of several servers, with commas between them, the one that takes writes.',
    'an embedded PostgreSQL',
  ),
  DATABASE_MIGRATION_URL: text(
    'The same database as the role that owns the tables: it applies the migrations, and gives the role of ' +
      '`DATABASE_URL`, which then owns nothing, its rights on rows.',
    '`DATABASE_URL`',
  ),
  DATABASE_SCHEMA: documented(
    z.string().regex(SCHEMA, 'lower-case letters, digits and _, at most 55, not pg_…').optional(),
    'Schema of the tables; the views for people are in `<schema>_inspect`, those of `public` in `inspect`.',
    'a name in lower case',
    'the first of the `search_path`',
  ),
  MIGRATE: choiceOr(
    'on-start',
    ['on-start', 'check', 'off'],
    'What a start does about migrations: apply what is missing; look, and end where something is missing or the ' +
      'database is newer; or not look, as for a version that is about to be replaced.',
  ),
  DATA_DIR: textOr('.data', 'Directory where the embedded PostgreSQL keeps its data.'),
  DATABASE_POOL_SIZE: whole(10, [1, 1000], 'Maximum number of connections of this process.'),
  DATABASE_STATEMENT_TIMEOUT_MS: whole(10_000, [100, 600_000], 'Maximum time of one SQL statement.'),
  DATABASE_LOCK_TIMEOUT_MS: whole(5_000, [100, 600_000], 'Maximum time to wait for a row lock.'),
  DATABASE_CONNECT_TIMEOUT_MS: whole(5_000, [100, 600_000], 'Maximum time to wait for a connection.'),
  DATABASE_PREPARED_STATEMENTS: flag(
    true,
    'Whether connections keep the plans of their statements. `false` for a pooler in transaction mode that does not ' +
      'know prepared statements (PgBouncer before 1.21, or with `max_prepared_statements = 0`).',
  ),
};
