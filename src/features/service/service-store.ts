import { sql } from 'drizzle-orm';
import type { Database } from '../../platform/db/database.ts';

/** Reads the migrations table. Throws if the database is unavailable or was never migrated. */
export async function checkDatabase(db: Database): Promise<void> {
  await db.execute(sql`select from agent_runtime_migrations limit 1`);
}
