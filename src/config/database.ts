import { z } from 'zod';
import { choice, choiceOr, documented, text, textOr, whole } from './setting-schemas.ts';

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
    '`DATABASE_DIRECT_URL`, else `DATABASE_URL`',
  ),
  DATABASE_POOLER: choice(
    ['none', 'transaction', 'transaction-prepared'],
    'What stands between this process and `DATABASE_URL`: nothing that matters, or a pooler in transaction mode, ' +
      'such as PgBouncer. Then all that is set for a connection goes with each statement instead, and plans are not ' +
      'kept unless the pooler knows prepared statements, as PgBouncer does since 1.21 with `max_prepared_statements`.',
    '`transaction` with `DATABASE_DIRECT_URL`, else `none`',
  ),
  DATABASE_DIRECT_URL: text(
    'The same database past the pooler, for LISTEN, locks and migrations: two connections of each process. Without ' +
      'it a process behind a pooler is not notified of what others do, and looks every second.',
    '`DATABASE_URL`',
  ),
  DATABASE_READ_URL: text(
    'A streaming replica of the same database, for plain reads. One that is behind what a client has changed is not ' +
      'asked, one that is away neither: the primary answers. It has a pool of `DATABASE_POOL_SIZE` connections too.',
    'reads are of the primary',
  ),
  DATABASE_TOOLS_URL: text(
    'The same database as a role that is a member of `agent_runtime_tools` and nothing else, for transactional tools ' +
      'that send SQL of a model: what they say cannot leave that role.',
    '`DATABASE_URL`, which acts as `agent_runtime_tools`',
  ),
  DATABASE_PASSWORD_FILE: text(
    'File with the password of the URLs that have none. It is read for each new connection, so it may change.',
  ),
  DATABASE_CA_FILE: text(
    "File with the certificates (PEM) of those who vouch for the database's server. Connections are encrypted then, " +
      'and the certificate and name of the server verified (`sslmode=verify-full`).',
    'those that Node knows',
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
      'database is newer; or end only where it is empty, for a version being replaced.',
  ),
  DATA_DIR: textOr('.data', 'Directory where the embedded PostgreSQL keeps its data.'),
  DATABASE_POOL_SIZE: whole(10, [1, 1000], 'Maximum number of connections of this process.'),
  DATABASE_STATEMENT_TIMEOUT_MS: whole(
    10_000,
    [100, 600_000],
    'Maximum time of one SQL statement. Waiting for a row lock, and for a connection, may take half of it.',
  ),
};
