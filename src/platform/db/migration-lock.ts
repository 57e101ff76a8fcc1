import { setTimeout as pause } from 'node:timers/promises';
import { type Client, type DatabaseError, escapeIdentifier } from 'pg';
import { ConfigError } from '../../core/errors.ts';
import { GRANT_LOCK } from './rights.ts';

/** Key of the advisory lock for migrations, the same in all versions. */
const MIGRATION_LOCK = 7_240_001;

/** SQLSTATEs of a lock timeout and of a deadlock. */
const LOCK_CONFLICTS = ['55P03', '40P01'];
/** Clients queue behind a migration that waits for a table's lock: it waits 2 s at a time, and they run in between. */
const MAX_TRIES = 30;
const PAUSE_MS = 1000;

const MAX_NAMES = 3;

/** Formats names for an error message; a long list is shortened to the first, the last and the count. */
export const toKnownNames = (names: string[]): string =>
  names.length <= MAX_NAMES ? names.join(', ') : `${names[0]} to ${names.at(-1)} (${names.length})`;

/**
 * Runs `work` in a transaction with a schema as its search path, which it creates if it is missing. Advisory locks
 * serialise replicas that start together; `work` therefore reads the journals itself. A transaction that waits too long
 * for clients is retried.
 * @param missing - what `work` applies, for the message
 * @throws {ConfigError} if it cannot be applied
 */
export async function inMigration<T>(
  client: Client,
  schema: string,
  missing: string[],
  work: () => Promise<T>,
): Promise<T> {
  for (let tries = 1; ; tries += 1) {
    try {
      await begin(client);
      const there = await client.query('select from pg_namespace where nspname = $1', [schema]);
      if (there.rowCount === 0) await client.query(`create schema ${escapeIdentifier(schema)}`);
      // Functions that run as their owner inherit this search path. `pg_temp` is last, so that it cannot shadow our
      // tables.
      await client.query(`set local search_path = ${escapeIdentifier(schema)}, pg_temp`);
      const result = await work();
      await client.query('commit');
      return result;
    } catch (error) {
      if (error instanceof ConfigError) throw error;
      const { code = '', message } = error as DatabaseError;
      if (!LOCK_CONFLICTS.includes(code) || tries === MAX_TRIES)
        throw new ConfigError(`${toKnownNames(missing)} missing, and could not be applied: ${message}`, {
          cause: error,
        });
      await client.query('rollback');
      await pause(PAUSE_MS);
    }
  }
}

async function begin(client: Client): Promise<void> {
  // Read committed, whatever the database's default, because the journals are read after the locks are acquired.
  await client.query('begin isolation level read committed');
  // A migration changes all users' rows, even if its role is subject to row-level security.
  await client.query(`set local statement_timeout = 0; set local agent_runtime.all_users = 'on';
    set local lock_timeout = '60s'`);
  // Concurrent grants change the same rows of the catalogue as `create or replace function`, and fail.
  await client.query('select pg_advisory_xact_lock($1), pg_advisory_xact_lock($2)', [MIGRATION_LOCK, GRANT_LOCK]);
  await client.query(`set local lock_timeout = '2s'`);
}
