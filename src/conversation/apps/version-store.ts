import { and, eq, inArray, sql } from 'drizzle-orm';
import type { JsonObject } from '../../core/content.ts';
import type { Database } from '../../platform/db/database.ts';
import { agentVersions } from '../../platform/db/schema/schema.ts';
import { newestFirst } from '../../platform/db/sql.ts';
import type { Listed, ListPlace } from '../../platform/http/operation/cursor.ts';
import type { HostedAgent } from './hosted-agent.ts';

const { appName, digest, definition, createTime } = agentVersions;
const newest = newestFirst(createTime, digest);

/** Maximum number of stored versions per application: enough for three years with a deployment each day. */
const MAX_VERSIONS = 1_000;

/** Stores the current version of each application, unless another replica has stored it already. */
export async function keepVersions(db: Database, agents: ReadonlyMap<string, HostedAgent>): Promise<void> {
  // Rows are sorted, so that replicas that start at the same time lock them in the same order and cannot deadlock.
  const rows = [...agents].toSorted(([one], [other]) => (one < other ? -1 : 1));
  const values = rows.map(([name, { version }]) => ({
    appName: name,
    digest: version.digest,
    definition: version.definition,
  }));
  if (values.length > 0) await db.insert(agentVersions).values(values).onConflictDoNothing();
}

/** Lists an application's versions after a cursor position, sorted by first deployment, the newest first. */
export const listVersions = (
  db: Database,
  app: string,
  limit: number,
  after: ListPlace | undefined,
): Promise<Listed<{ version: string; createTime: number; runtime: string | null }>[]> =>
  db
    .select({
      version: digest,
      createTime,
      runtime: sql<string | null>`${definition} ->> 'runtime'`,
      place: newest.place,
    })
    .from(agentVersions)
    .where(and(eq(appName, app), newest.isAfter(after)))
    .orderBy(newest.order)
    .limit(limit);

export async function findVersions(db: Database, app: string, digests: string[]): Promise<Map<string, JsonObject>> {
  const rows = await db
    .select({ digest, definition })
    .from(agentVersions)
    .where(and(eq(appName, app), inArray(digest, digests)));
  return new Map(rows.map((row) => [row.digest, row.definition as JsonObject]));
}

export const deleteOldVersions = (db: Database): Promise<unknown> =>
  db.execute(sql`
    delete from ${agentVersions} where (app_name, digest) in (
      select app_name, digest from (
        select app_name, digest, row_number() over (partition by app_name order by create_time desc) as place
        from ${agentVersions}) numbered
      where place > ${MAX_VERSIONS})`);
