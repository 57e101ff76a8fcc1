import type { SessionKey } from '../core/session.ts';
import type { Database } from '../platform/db/database.ts';
import { addsJob } from '../platform/jobs/job-store.ts';
import { sql } from 'drizzle-orm';

/** The memory of users, which a feature may provide. Without it tools find nothing, and nothing is remembered. */
export interface UserMemory {
  /** Returns memories as JSON, the best match first. @throws {InvalidError} if the query has too many words */
  search(user: Pick<SessionKey, 'appName' | 'userId'>, query: string): Promise<string[]>;
}

/** Kind of the jobs of memory. The id is a JSON array of a session and its invocation to remember. */
export const MEMORY_JOB = 'memory';
export const MEMORY_TOPIC = 'memory';

/**
 * Adds the job that remembers an invocation of a distributed database: the worker that ends the invocation cannot write
 * the coordinator's jobs. It is added before that end, because a crash would lose it afterwards, and due a minute later.
 */
export async function rememberAfterEnd(
  db: Database,
  { appName, userId, sessionId }: SessionKey,
  invocationId: string,
): Promise<void> {
  const job = { appName, userId, id: JSON.stringify([sessionId, invocationId]) };
  await db.execute(sql`select ${addsJob(MEMORY_JOB, job, sql`clock_timestamp() + interval '1 minute'`)}`);
}
