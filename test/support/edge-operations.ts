import { z } from 'zod';
import { artifactVersionSchema } from '../../src/conversation/artifacts/artifact.ts';
import {
  type Answer,
  type Call,
  onWire,
  type Operation,
  operation,
} from '../../src/platform/http/operation/operation.ts';
import {
  artifactPath,
  artifactVersionPath,
  evalSetPath,
  INT32_MAX,
  sessionPath,
  userPath,
} from '../../src/platform/http/operation/parameters.ts';
import { withAliases } from '../../src/platform/http/operation/paths.ts';
import { createSessionSchema, sessionSchema } from '../../src/core/session.ts';

const SESSIONS = '/apps/{app_name}/users/{user_id}/sessions';
const ARTIFACT = `${SESSIONS}/{session_id}/artifacts/{artifact_name}`;

/** What a handler saw of a request, as JSON. */
const echo = async (
  _context: unknown,
  { path, query, headers, body, principal }: Call<object, object, object, unknown>,
): Promise<Answer> => ({ kind: 'value', value: { path, query, headers, body, principal } });

/** A session as an example has it. */
const session = { id: 's', appName: 'a', userId: 'u', state: {}, events: [], lastUpdateTime: 1 };
const version = { version: 0, canonicalUri: 'x://y' };

const inner = z.looseObject({ mimeType: z.string().nullish(), tags: z.array(z.string()).nullish() });

/** A body with every kind of rule that a schema of ours uses. */
const sampleSchema = z.looseObject({
  innerPart: inner.nullish(),
  parts: z.array(inner).nullish(),
  stateDelta: z.record(z.string(), z.unknown()).nullish(),
  topK: z.int().min(1).max(10).nullish(),
  score: z.number().nullish(),
  streaming: z.boolean().nullish(),
  runMode: z.enum(['TEXT', 'AUDIO', 'VIDEO']).nullish(),
  runtime: z.literal(['adk', 'codex']).nullish(),
  only: z.literal('one').nullish(),
  name: z.string().min(2).max(4).nullish(),
  names: z.array(z.string()).min(1).max(2).nullish(),
  code: z.string().regex(/^a+$/).nullish(),
  tools: z.union([z.string(), z.array(z.string())]).nullish(),
  even: z
    .int()
    .refine((value) => value % 2 === 0, 'must be even')
    .nullish(),
  depth: z.int().default(3),
});

const strict = z.strictObject({ text: z.string(), role: z.string().nullish() });

const declared: Operation<unknown>[] = onWire('ADK', [
  operation({
    method: 'get',
    path: '/health',
    operationId: 'health',
    area: 'Service and applications',
    summary: 'Health',
    owner: 'open',
    scope: 'none',
    handler: echo,
  }),
  operation({
    method: 'get',
    path: SESSIONS,
    operationId: 'listSessions',
    area: 'Sessions',
    summary: 'List',
    owner: 'path',
    scope: 'read',
    parameters: {
      path: userPath,
      query: z.object({
        limit: z.int().min(1).max(100).optional().describe('Maximum.'),
        detailed: z.boolean().optional().describe('All.'),
        ratio: z.number().optional().describe('Share.'),
        text: z.string().optional().describe('Words.'),
      }),
      headers: z.object({
        'x-count': z.int().min(0).max(INT32_MAX).optional().describe('A number.'),
        'x-color': z.enum(['red', 'blue']).optional().describe('A choice.'),
      }),
    },
    success: { schema: z.array(sessionSchema), description: 'Sessions.', example: [session] },
    handler: echo,
  }),
  operation({
    method: 'post',
    path: SESSIONS,
    operationId: 'createSession',
    area: 'Sessions',
    summary: 'Create',
    owner: 'path',
    scope: 'read',
    parameters: { path: userPath },
    body: { schema: createSessionSchema, required: false, aliases: { id: 'sessionId' }, example: {} },
    success: { schema: sessionSchema, description: 'The session.', example: session },
    handler: echo,
  }),
  operation({
    method: 'get',
    path: `${SESSIONS}/{session_id}`,
    operationId: 'getSession',
    area: 'Sessions',
    summary: 'Get',
    owner: 'path',
    scope: 'read',
    parameters: { path: sessionPath },
    success: { schema: sessionSchema, description: 'The session.', example: session },
    errors: { 404: 'The session does not exist.' },
    absent: () => 'Session not found',
    handler: echo,
  }),
  ...artifactOperations(),
  operation({
    method: 'post',
    path: '/dev/apps/{app_name}/eval-sets/{eval_set_id}/add-session',
    operationId: 'addSession',
    area: 'Evaluation (development server)',
    summary: 'Add',
    owner: { user: ({ body }) => body.userId, absent: ({ body }) => `Session not found: ${body.sessionId}` },
    scope: 'read',
    parameters: { path: evalSetPath },
    body: {
      schema: z.looseObject({ evalId: z.string(), sessionId: z.string(), userId: z.string() }),
      required: true,
      example: { evalId: 'e', sessionId: 's', userId: 'u' },
    },
    handler: async () => ({ kind: 'value', value: undefined }),
  }),
  operation({
    method: 'post',
    path: '/sample',
    operationId: 'sample',
    area: 'Agent execution',
    summary: 'Sample',
    owner: 'service',
    scope: 'read',
    body: { schema: sampleSchema, required: true, example: { topK: 1 } },
    handler: echo,
  }),
  operation({
    method: 'put',
    path: '/sample',
    operationId: 'strictSample',
    area: 'Agent execution',
    summary: 'Strict sample',
    owner: 'service',
    scope: 'read',
    body: { schema: strict, required: true, example: { text: 'x' } },
    handler: echo,
  }),
  operation({
    method: 'post',
    path: '/mixed/{version_id}',
    operationId: 'mixed',
    area: 'Agent execution',
    summary: 'Path, query, header and body',
    owner: 'service',
    scope: 'read',
    parameters: {
      path: artifactVersionPath.pick({ versionId: true }),
      query: z.object({ limit: z.int().optional().describe('Maximum.') }),
      headers: z.object({ 'x-count': z.int().optional().describe('A number.') }),
    },
    body: { schema: z.looseObject({ evalId: z.string() }), required: true, example: { evalId: 'e' } },
    handler: echo,
  }),
]);

/** Operations of every shape; all of them echo what they were called with unless they say otherwise. */
export const sampleOperations = withAliases(declared, {
  '/apps/{app_name}/eval_sets/{eval_set_id}/add_session': ['addSession'],
});

function artifactOperations(): Operation<unknown>[] {
  const read = (path: string, operationId: string, parameters: z.ZodObject = artifactPath) =>
    operation({
      method: 'get',
      path,
      operationId,
      area: 'Artifacts',
      summary: operationId,
      owner: 'path',
      scope: 'read',
      parameters: { path: parameters },
      success: { schema: artifactVersionSchema, description: operationId, example: version },
      handler: async (_context: unknown, { path: { artifactName: name, versionId } }) => ({
        kind: 'value',
        value: { operationId, name, versionId },
      }),
    });
  return [
    read(ARTIFACT, 'loadArtifact'),
    read(`${ARTIFACT}/versions/{version_id}`, 'loadArtifactVersion', artifactVersionPath),
    read(`${ARTIFACT}/versions`, 'listVersions'),
    read(`${ARTIFACT}/versions/{version_id}/metadata`, 'harnessRuntimeGetArtifactMetadata', artifactVersionPath),
    read(`${ARTIFACT}/versions/metadata`, 'listMetadata'),
    operation({
      method: 'delete',
      path: ARTIFACT,
      operationId: 'deleteArtifact',
      area: 'Artifacts',
      summary: 'Delete',
      owner: 'path',
      scope: 'read',
      parameters: { path: artifactPath },
      handler: async () => ({ kind: 'json', text: 'null' }),
    }),
  ];
}
