import { and, eq, inArray, sql } from 'drizzle-orm';
import { z } from 'zod';
import type { HostedAgent } from './hosted-agent.ts';
import type { JsonObject } from '../../core/content.ts';
import { type JsonDifference, listJsonDifferences } from '../../core/json-difference.ts';
import { looseObject } from '../../core/members.ts';
import { storedIdentifierSchema } from '../../core/session.ts';
import type { Database, DatabasePool } from '../../platform/db/database.ts';
import { agentVersions } from '../../platform/db/schema/schema.ts';
import { newestFirst } from '../../platform/db/sql.ts';
import type { Feature } from '../../platform/feature/feature.ts';
import { area } from '../../platform/http/operation/area.ts';
import { type Listed, type ListPlace, pageQuery, readPage } from '../../platform/http/operation/cursor.ts';
import { appPath, pageSize, versionPath } from '../../platform/http/operation/parameters.ts';

const v = agentVersions;
const newest = newestFirst(v.createTime, v.digest);

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
  if (values.length > 0) await db.insert(v).values(values).onConflictDoNothing();
}

/** Lists an application's versions after a cursor position, sorted by first deployment, the newest first. */
const listVersions = (
  db: Database,
  app: string,
  limit: number,
  after: ListPlace | undefined,
): Promise<Listed<{ version: string; createTime: number; runtime: string | null }>[]> =>
  db
    .select({
      version: v.digest,
      createTime: v.createTime,
      runtime: sql<string | null>`${v.definition} ->> 'runtime'`,
      place: newest.place,
    })
    .from(v)
    .where(and(eq(v.appName, app), newest.isAfter(after)))
    .orderBy(newest.order)
    .limit(limit);

async function findVersions(db: Database, app: string, digests: string[]): Promise<Map<string, JsonObject>> {
  const rows = await db
    .select({ digest: v.digest, definition: v.definition })
    .from(v)
    .where(and(eq(v.appName, app), inArray(v.digest, digests)));
  return new Map(rows.map((row) => [row.digest, row.definition as JsonObject]));
}

const deleteOldVersions = (db: Database): Promise<unknown> =>
  db.execute(sql`
    delete from ${v} where (app_name, digest) in (
      select app_name, digest from (
        select app_name, digest, row_number() over (partition by app_name order by create_time desc) as place
        from ${v}) numbered
      where place > ${MAX_VERSIONS})`);

export interface VersionContext {
  database: DatabasePool;
}

const room = area<VersionContext>('Service and applications', { read: 'read', write: 'write', owner: 'service' });

const version = room.resource({
  noun: 'version',
  path: '/apps/{app_name}/versions',
  within: appPath,
  key: versionPath,
  schema: looseObject('A definition.', {
    runtime: z.string().describe('Version of the runtime.'),
    root: z.string().describe('The agent that gets the prompt.'),
    agents: z.record(z.string(), z.looseObject({})).describe('Each agent by name, its tools by theirs.'),
  }),
  example: { runtime: '0.1.0', root: 'harness_agent', agents: { harness_agent: { instruction: 'Be brief.' } } },
  find: async (db, { appName, version: digest }) => (await findVersions(db, appName, [digest])).get(digest),
});

const exampleVersion = '2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae';
const versionMembers = {
  version: z.string().describe('SHA-256 of the definition; the `agentVersion` of invocations begins with it.'),
  createTime: z.number().describe('When it was deployed for the first time, Unix seconds.'),
  runtime: z.string().nullable().describe('Version of the runtime.'),
};

const operations = [
  version.list({
    summary: 'List the versions of an application',
    description:
      'Each definition that was deployed, once, newest first; the newest 1,000 are kept. What each cost and how it ' +
      'did is at `getUsage` with `by=version`.',
    query: pageQuery('versions'),
    success: {
      schema: looseObject('A page of versions.', {
        items: z.array(z.looseObject(versionMembers)).describe('Those of this page.'),
        nextCursor: z.string().optional().describe('The `cursor` of the next page; absent on the last one.'),
      }),
      example: { items: [{ version: exampleVersion, createTime: 1_767_225_600.25, runtime: '0.1.0' }] },
    },
    run: ({ database }, { path, query }) =>
      readPage(query, (limit, after) => listVersions(database.reads, path.appName, limit, after)),
  }),
  version.read({
    scope: 'develop',
    summary: 'Get the definition of a version',
    description:
      'Agents with instructions, models, sampling and tools with their schemas. Of MCP servers it has the names: their ' +
      'addresses may hold secrets, and their tools are known in an invocation only.',
    success: { description: 'The definition.' },
    errors: { 404: 'No such version, or it is not kept any more.' },
    run: async (_context, _call, definition) => definition,
  }),
  version.action('diff')({
    method: 'get',
    operationId: 'diffVersions',
    scope: 'develop',
    summary: 'Compare two versions',
    query: z.object({
      other: storedIdentifierSchema.describe('The later version.'),
      limit: pageSize('Maximum number of differences that are listed.').default(100),
    }),
    success: {
      schema: looseObject('How two versions differ.', {
        differences: z
          .array(
            z.looseObject({
              path: z.string().describe('JSON pointer (RFC 6901) into the definition.'),
              before: z.unknown().describe('The value of the version; null for nothing.'),
              after: z.unknown().describe('The value of the other one; null for nothing.'),
            }),
          )
          .describe('The first of them, in the order of the definition.'),
        differing: z.int().describe('Number of all.'),
      }),
      description: 'The differences.',
      example: {
        differences: [{ path: '/agents/harness_agent/instruction', before: 'Be brief.', after: 'Be kind.' }],
        differing: 1,
      },
    },
    errors: { 404: 'One of the versions is not there.' },
    run: async ({ database }, { path: { appName }, query: { other, limit }, principal }, definition) => {
      const otherDefinition = await version.get(database.reads, { path: { appName, version: other }, principal });
      const all: JsonDifference[] = [...listJsonDifferences(definition, otherDefinition)];
      return { differences: all.slice(0, limit), differing: all.length };
    },
  }),
];

export const versionFeature = {
  name: 'versions',
  operations,
  sweeps: [
    {
      group: 'minutely',
      name: 'deleting old versions of applications',
      run: ({ database }) => deleteOldVersions(database.db),
    },
  ],
} satisfies Feature<VersionContext>;
