import { fileURLToPath } from 'node:url';
import { drizzle } from 'drizzle-orm/node-postgres';
import { migrate } from 'drizzle-orm/node-postgres/migrator';
import { Client } from 'pg';

/** One key for this service; any number does, as long as every version uses the same. */
const MIGRATION_LOCK = 7_240_001;
const MIGRATIONS = fileURLToPath(new URL('../../migrations', import.meta.url));

/**
 * Applies `migrations/` to the database. Replicas that start together take turns under a session advisory lock:
 * drizzle's migrator takes none and four processes at once failed in two rounds of three (drizzle-orm#874). One
 * connection, not a pool, because such a lock belongs to its connection; closing it gives the lock back.
 */
export async function migrateDatabase(url: string): Promise<void> {
  const client = new Client({ connectionString: url, application_name: 'agent-runtime migrate', keepAlive: true });
  // The query that a broken connection interrupts rejects as well; unheard, the event would end the process.
  client.on('error', () => undefined);
  await client.connect();
  try {
    await client.query("set lock_timeout = '60s'");
    await client.query('select pg_advisory_lock($1)', [MIGRATION_LOCK]);
    await client.query("set lock_timeout = '10s'");
    await migrate(drizzle({ client }), { migrationsFolder: MIGRATIONS });
  } finally {
    await client.end().catch(() => undefined);
  }
}
