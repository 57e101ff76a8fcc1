import { sql } from 'drizzle-orm';
import type { Database } from '../../platform/db/database.ts';

/** Asks the database for what its migrations wrote last; throws when it is away or was never migrated. */
export async function checkDatabase(db: Database): Promise<void> {
  await db.execute(sql`select from agent_runtime_migrations limit 1`);
}
