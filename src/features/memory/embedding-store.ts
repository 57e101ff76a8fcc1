import { and, desc, eq, sql } from 'drizzle-orm';
import type { SessionKey } from '../../core/session.ts';
import type { Database } from '../../platform/db/database.ts';
import { memories } from '../../platform/db/schema/schema.ts';
import { limitedBytes } from '../../conversation/storage/storage-store.ts';

/** Maximum number of a memory's characters that are embedded, because models accept a few thousand tokens. */
const MAX_CHARACTERS = 4_000;

type User = Pick<SessionKey, 'appName' | 'userId'>;

const isOf = ({ appName, userId }: User) => and(eq(memories.appName, appName), eq(memories.userId, userId));

/** Finds the database schema of pgvector; `undefined` if it is missing or not usable by every role. */
export async function findVectorSchema(db: Database): Promise<string | undefined> {
  const { rows } = await db.execute<{ schema: string }>(sql`
    select nspname as schema from pg_extension join pg_namespace n on n.oid = extnamespace
    where extname = 'vector' and has_schema_privilege('public', n.oid, 'usage')`);
  return rows[0]?.schema;
}

/** Lists a user's newest memories that have no vector of the model. */
export const listUnembedded = (db: Database, user: User, model: string, limit: number) =>
  db
    .select({
      sessionId: memories.sessionId,
      eventId: memories.eventId,
      text: sql<string>`left((
        select string_agg(part ->> 'text', ' ') from jsonb_path_query(${memories.content}, 'lax $.parts[*]') part
        where coalesce(part ->> 'thought', 'false') <> 'true'), ${MAX_CHARACTERS})`,
    })
    .from(memories)
    .where(and(isOf(user), sql`${memories.embeddingModel} is distinct from ${model}`))
    .orderBy(desc(memories.eventTime))
    .limit(limit);

/**
 * Saves memories' vectors and counts their bytes as the user's storage. A null vector: the model refused the memory.
 */
export async function saveVectors(
  db: Database,
  user: User,
  model: string,
  rows: Pick<typeof memories.$inferSelect, 'sessionId' | 'eventId'>[],
  vectors: number[][],
): Promise<void> {
  const vectorRows = rows.map((row, index) => ({ ...row, vector: vectors[index] && `{${vectors[index].join()}}` }));
  await db.execute(sql`
    with made as materialized (
      select * from json_to_recordset(${JSON.stringify(vectorRows)}) m("sessionId" text, "eventId" text, vector real[])),
    checked as materialized (
      select ${limitedBytes(db, user, sql`(select coalesce(4 * sum(cardinality(vector)), 0) from made)`)})
    update ${memories} set embedding = made.vector, embedding_model = ${model} from made, checked
    where ${isOf(user)} and (${memories.sessionId}, ${memories.eventId}) = ("sessionId", "eventId")`);
}
