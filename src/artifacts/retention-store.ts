import { type SQL, sql } from 'drizzle-orm';
import type { Database } from '../db/database.ts';
import { artifactVersions } from '../db/schema.ts';
import { keyOf } from '../db/sql.ts';
import { isOnHold } from '../holds/hold-store.ts';

/** Versions of one statement. */
const BATCH_ROWS = 100;

const v = artifactVersions;
const old = (count: number): SQL => sql`
  select ranked.app_name, ranked.user_id, ranked.session_id, ranked.artifact_name, ranked.version from (
    select ${v.appName}, ${v.userId}, ${v.sessionId}, ${v.artifactName}, ${v.version},
           row_number() over (partition by ${v.appName}, ${v.userId}, ${v.sessionId}, ${v.artifactName}
                              order by ${v.version} desc) as place
    from ${v}) ranked
  where ranked.place > ${count}::int
    and not ${isOnHold({
      appName: sql`ranked.app_name`,
      userId: sql`ranked.user_id`,
      sessionId: sql`ranked.session_id`,
    })}`;

/** How many versions of artifacts are beyond the newest `count` of each. */
export async function countOldVersions(db: Database, count: number): Promise<number> {
  const { rows } = await db.execute<{ n: number }>(sql`select count(*)::int as n from (${old(count)}) counted`);
  return rows[0]?.n ?? 0;
}

/** Deletes some versions beyond the newest `count` of each artifact. @returns how many, and keys of their objects */
export async function deleteOldVersions(db: Database, count: number): Promise<{ rows: number; objectKeys: string[] }> {
  const { rows } = await db.execute<{ key: string | null }>(sql`
    delete from ${v} where (${sql.join(keyOf(v), sql`, `)}) in (${old(count)} limit ${BATCH_ROWS})
    returning ${v.objectKey} as key`);
  return { rows: rows.length, objectKeys: rows.flatMap(({ key }) => key ?? []) };
}
