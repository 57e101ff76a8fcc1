import { type SQL, sql } from 'drizzle-orm';
import type { Database } from '../../platform/db/database.ts';
import { artifactVersions } from '../../platform/db/schema/schema.ts';
import { getKey } from '../../platform/db/sql.ts';
import { userRanges } from '../../platform/db/user-ranges.ts';
import { isOnHold } from '../holds/hold-store.ts';

const BATCH_ROWS = 100;

const v = artifactVersions;
export const rangesOfVersions = (db: Database, signal?: AbortSignal): AsyncGenerator<SQL, void, void> =>
  userRanges(db, v, { signal });

const oldVersions = (count: number, range: SQL): SQL => sql`
  select ranked.app_name, ranked.user_id, ranked.session_id, ranked.artifact_name, ranked.version from (
    select ${v.appName}, ${v.userId}, ${v.sessionId}, ${v.artifactName}, ${v.version},
           row_number() over (partition by ${v.appName}, ${v.userId}, ${v.sessionId}, ${v.artifactName}
                              order by ${v.version} desc) as place
    from ${v} where ${range}) ranked
  where ranked.place > ${count}::int
    and not ${isOnHold({
      appName: sql`ranked.app_name`,
      userId: sql`ranked.user_id`,
      sessionId: sql`ranked.session_id`,
    })}`;

/** Counts the artifact versions in a range of users, except the newest `count` versions of each artifact. */
export async function countOldVersions(db: Database, count: number, range: SQL): Promise<number> {
  const { rows } = await db.execute<{ n: number }>(
    sql`select count(*)::int as n from (${oldVersions(count, range)}) counted`,
  );
  return rows[0]?.n ?? 0;
}

export async function deleteOldVersions(
  db: Database,
  count: number,
  range: SQL,
): Promise<{ rows: number; objectKeys: string[] }> {
  const { rows } = await db.execute<{ key: string | null }>(sql`
    delete from ${v} where (${sql.join(getKey(v), sql`, `)}) in (${oldVersions(count, range)} limit ${BATCH_ROWS})
    returning ${v.objectKey} as key`);
  return { rows: rows.length, objectKeys: rows.flatMap(({ key }) => key ?? []) };
}
