import { sql } from 'drizzle-orm';
import type { Database } from '../db/database.ts';

/** Asks the database for a row of a migrated table; throws when it is away or has no such table. */
export async function checkDatabase(db: Database): Promise<void> {
  await db.execute(sql`select from sessions limit 1`);
}
