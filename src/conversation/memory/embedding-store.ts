import { and, desc, eq, sql } from 'drizzle-orm';
import type { SessionKey } from '../../core/session.ts';
import type { Database } from '../../platform/db/database.ts';
import { memoryJobs, memories } from '../../platform/db/schema/schema.ts';
import { limitedBytes } from '../storage/storage-store.ts';

const j = memoryJobs;
const jobKey = sql`(${j.appName}, ${j.userId}, ${j.sessionId}, ${j.invocationId})`;
// A stable function, because a distributed database accepts no volatile function in an update.
const now = sql`statement_timestamp()`;
const after = (ms: number) => sql`${now} + ${ms} * interval '1 millisecond'`;
/** Maximum number of a memory's characters that are embedded, because models accept a few thousand tokens. */
const MAX_CHARACTERS = 4_000;

/**
 * A memory job. Either an invocation to add to memory, or, with empty `sessionId` and `invocationId`, a user whose
 * memories need vectors. `attempts` counts attempts since the last success, including the current one.
 */
export type MemoryJob = SessionKey & { invocationId: string; attempts: number };

const isOf = ({ appName, userId }: MemoryJob) => and(eq(memories.appName, appName), eq(memories.userId, userId));
const isJob = ({ appName, userId, sessionId, invocationId }: MemoryJob) =>
  sql`${jobKey} = (${appName}, ${userId}, ${sessionId}, ${invocationId})`;

/** Finds the database schema of pgvector; `undefined` if it is missing or not usable by every role. */
export async function findVectorSchema(db: Database): Promise<string | undefined> {
  const { rows } = await db.execute<{ schema: string }>(sql`
    select nspname as schema from pg_extension join pg_namespace n on n.oid = extnamespace
    where extname = 'vector' and has_schema_privilege('public', n.oid, 'usage')`);
  return rows[0]?.schema;
}

/** Claims the longest-waiting memory jobs in a single statement. Users take turns, with a batch each. */
export async function claimJobs(db: Database, appNames: string[], slots: number, leaseMs: number) {
  const { rows } = await db.execute<MemoryJob & Record<string, unknown>>(sql`
    with due as (
      select ${j.appName}, ${j.userId}, ${j.sessionId}, ${j.invocationId} from ${j}
      where ${j.dueTime} <= ${now} and ${j.appName} = any(${sql.param(appNames)}::text[])
      order by ${j.dueTime} limit ${slots} for update skip locked)
    update ${j} set due_time = ${after(leaseMs)}, attempts = ${j.attempts} + 1
    from due where ${jobKey} = (due.app_name, due.user_id, due.session_id, due.invocation_id)
    returning ${j.appName} as "appName", ${j.userId} as "userId", ${j.sessionId} as "sessionId",
      ${j.invocationId} as "invocationId", ${j.attempts} as attempts`);
  return rows;
}

/** Lists a user's newest memories that have no vector of the model. */
export const listUnembedded = (db: Database, job: MemoryJob, model: string, limit: number) =>
  db
    .select({
      sessionId: memories.sessionId,
      eventId: memories.eventId,
      text: sql<string>`left((
        select string_agg(part ->> 'text', ' ') from jsonb_path_query(${memories.content}, 'lax $.parts[*]') part
        where coalesce(part ->> 'thought', 'false') <> 'true'), ${MAX_CHARACTERS})`,
    })
    .from(memories)
    .where(and(isOf(job), sql`${memories.embeddingModel} is distinct from ${model}`))
    .orderBy(desc(memories.eventTime))
    .limit(limit);

/**
 * Saves memories' vectors and counts their bytes as the user's storage. A null vector: the model refused the memory.
 */
export async function saveVectors(
  db: Database,
  job: MemoryJob,
  model: string,
  rows: Pick<typeof memories.$inferSelect, 'sessionId' | 'eventId'>[],
  vectors: number[][],
): Promise<void> {
  const vectorRows = rows.map((row, index) => ({ ...row, vector: vectors[index] && `{${vectors[index].join()}}` }));
  await db.execute(sql`
    with made as materialized (
      select * from json_to_recordset(${JSON.stringify(vectorRows)}) m("sessionId" text, "eventId" text, vector real[])),
    checked as materialized (
      select ${limitedBytes(db, job, sql`(select coalesce(4 * sum(cardinality(vector)), 0) from made)`)}),
    saved as (
      update ${memories} set embedding = made.vector, embedding_model = ${model} from made, checked
      where ${isOf(job)} and (${memories.sessionId}, ${memories.eventId}) = ("sessionId", "eventId"))
    update ${j} set due_time = ${now}, attempts = 0 where ${isJob(job)}`);
}

/** Delays a memory job; if `pauseMs` is undefined, deletes it unless memories were added since it was claimed. */
export async function endJob(db: Database, job: MemoryJob, pauseMs?: number): Promise<void> {
  if (pauseMs === undefined) await db.delete(j).where(and(isJob(job), eq(j.attempts, job.attempts)));
  else await db.execute(sql`update ${j} set due_time = ${after(pauseMs)} where ${isJob(job)}`);
}
