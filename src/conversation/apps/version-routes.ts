import { z } from 'zod';
import { NotFoundError } from '../../core/errors.ts';
import { type JsonDifference, listJsonDifferences } from '../../core/json-difference.ts';
import { looseObject } from '../../core/members.ts';
import { storedIdentifierSchema } from '../../core/session.ts';
import type { DatabasePool } from '../../platform/db/database.ts';
import { pageQuery, toPage, toPlace } from '../../platform/http/operation/cursor.ts';
import { operation } from '../../platform/http/operation/operation.ts';
import { appPath, pageSize, versionPath } from '../../platform/http/operation/parameters.ts';
import { findVersions, listVersions } from './version-store.ts';

/** Dependencies of the operations on versions. */
interface VersionContext {
  database: DatabasePool;
}

const versionNotFound = ({ version }: { version: string }) => `Version not found: ${version}`;
const exampleVersion = '2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae';
const versionMembers = {
  version: z.string().describe('SHA-256 of the definition; the `agentVersion` of invocations begins with it.'),
  createTime: z.number().describe('When it was deployed for the first time, Unix seconds.'),
  runtime: z.string().nullable().describe('Version of the runtime.'),
};

const listAppVersions = operation({
  method: 'get',
  path: '/apps/{app_name}/versions',
  operationId: 'listVersions',
  scope: 'read',
  summary: 'List the versions of an application',
  description:
    'Each definition that was deployed, once, newest first; the newest 1,000 are kept. What each cost and how it ' +
    'did is at `getUsage` with `by=version`.',
  owner: 'service',
  parameters: { path: appPath, query: pageQuery('versions') },
  success: {
    schema: looseObject('A page of versions.', {
      items: z.array(z.looseObject(versionMembers)).describe('Those of this page.'),
      nextCursor: z.string().optional().describe('The `cursor` of the next page; absent on the last one.'),
    }),
    description: 'The versions.',
    example: { items: [{ version: exampleVersion, createTime: 1_767_225_600.25, runtime: '0.1.0' }] },
  },
  handler: async ({ database }: VersionContext, { path, query: { cursor, limit } }) => {
    const found = await listVersions(database.reads, path.appName, limit + 1, toPlace(cursor));
    return { kind: 'value', value: toPage(found, limit, ({ place: _place, ...version }) => version) };
  },
});

const getAppVersion = operation({
  method: 'get',
  path: '/apps/{app_name}/versions/{version}',
  operationId: 'getVersion',
  scope: 'develop',
  summary: 'Get the definition of a version',
  description:
    'Agents with instructions, models, sampling and tools with their schemas. Of MCP servers it has the names: their ' +
    'addresses may hold secrets, and their tools are known in an invocation only.',
  owner: 'service',
  parameters: { path: versionPath },
  success: {
    schema: looseObject('A definition.', {
      runtime: z.string().describe('Version of the runtime.'),
      root: z.string().describe('The agent that gets the prompt.'),
      agents: z.record(z.string(), z.looseObject({})).describe('Each agent by name, its tools by theirs.'),
    }),
    description: 'The definition.',
    example: { runtime: '0.1.0', root: 'harness_agent', agents: { harness_agent: { instruction: 'Be brief.' } } },
  },
  errors: { 404: 'No such version, or it is not kept any more.' },
  absent: versionNotFound,
  handler: async ({ database }: VersionContext, { path: { appName, version }, notFound }) => {
    const definition = (await findVersions(database.reads, appName, [version])).get(version);
    if (!definition) throw notFound();
    return { kind: 'value', value: definition };
  },
});

const diffAppVersions = operation({
  method: 'get',
  path: '/apps/{app_name}/versions/{version}/diff',
  operationId: 'diffVersions',
  scope: 'develop',
  summary: 'Compare two versions',
  owner: 'service',
  parameters: {
    path: versionPath,
    query: z.object({
      other: storedIdentifierSchema.describe('The later version.'),
      limit: pageSize('Maximum number of differences that are listed.').default(100),
    }),
  },
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
  absent: versionNotFound,
  handler: async ({ database }: VersionContext, { path, query: { other, limit }, notFound }) => {
    const found = await findVersions(database.reads, path.appName, [path.version, other]);
    if (!found.has(path.version)) throw notFound();
    if (!found.has(other)) throw new NotFoundError(versionNotFound({ version: other }));
    const all: JsonDifference[] = [...listJsonDifferences(found.get(path.version), found.get(other))];
    return { kind: 'value', value: { differences: all.slice(0, limit), differing: all.length } };
  },
});

/** Versions of applications: list them, get one, compare two. */
export const versionOperations = [listAppVersions, getAppVersion, diffAppVersions];
