import { z } from 'zod';
import { artifactVersionSchema } from '../../src/artifacts/artifact-version.ts';
import { type Answer, type Call, type Operation, operation } from '../../src/http/operation/operation.ts';
import { createSessionSchema, sessionSchema } from '../../src/core/session.ts';

const SESSIONS = '/apps/{app_name}/users/{user_id}/sessions';
const ARTIFACT = `${SESSIONS}/{session_id}/artifacts/{artifact_name}`;

/** What a handler saw of a request, as JSON. */
const echo = async (call: Call<unknown>): Promise<Answer> => ({
  kind: 'value',
  value: {
    path: call.path,
    integers: Object.fromEntries(Object.entries(call.integers).map(([name, value]) => [name, value ?? 'no int32'])),
    query: call.query,
    body: call.body,
    principal: call.principal,
  },
});

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

/** Operations of every shape; all of them echo what they were called with unless they say otherwise. */
export const sampleOperations: Operation[] = [
  operation({
    method: 'get',
    path: '/health',
    operationId: 'health',
    area: 'Service and applications',
    summary: 'Health',
    access: 'open',
    handler: echo,
  }),
  operation({
    method: 'get',
    path: SESSIONS,
    operationId: 'listSessions',
    area: 'Sessions',
    summary: 'List',
    query: [
      { name: 'limit', schema: { type: 'integer', minimum: 1, maximum: 100 }, description: 'Most.' },
      { name: 'detailed', schema: { type: 'boolean' }, description: 'All.' },
      { name: 'ratio', schema: { type: 'number' }, description: 'Share.' },
      { name: 'text', schema: { type: 'string' }, description: 'Words.' },
    ],
    success: { schema: z.array(sessionSchema), description: 'Sessions.' },
    handler: echo,
  }),
  operation({
    method: 'post',
    path: SESSIONS,
    operationId: 'createSession',
    area: 'Sessions',
    summary: 'Create',
    body: { schema: createSessionSchema, required: false, aliases: { id: 'sessionId' } },
    success: { schema: sessionSchema, description: 'The session.' },
    handler: echo,
  }),
  operation({
    method: 'get',
    path: `${SESSIONS}/{session_id}`,
    operationId: 'getSession',
    area: 'Sessions',
    summary: 'Get',
    success: { schema: sessionSchema, description: 'The session.' },
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
    body: {
      schema: z.looseObject({ evalId: z.string(), sessionId: z.string(), userId: z.string() }),
      required: true,
    },
    handler: async () => ({ kind: 'value', value: undefined }),
  }),
  operation({
    method: 'post',
    path: '/sample',
    operationId: 'sample',
    area: 'Agent execution',
    summary: 'Sample',
    body: { schema: sampleSchema, required: true },
    handler: echo,
  }),
  operation({
    method: 'put',
    path: '/sample',
    operationId: 'strictSample',
    area: 'Agent execution',
    summary: 'Strict sample',
    body: { schema: strict, required: true },
    handler: echo,
  }),
  operation({
    method: 'post',
    path: '/mixed/{version_id}',
    operationId: 'mixed',
    area: 'Agent execution',
    summary: 'Path, query and body',
    integerPath: ['version_id'],
    query: [{ name: 'limit', schema: { type: 'integer' }, description: 'Most.' }],
    body: { schema: z.looseObject({ evalId: z.string() }), required: true },
    handler: echo,
  }),
];

function artifactOperations(): Operation[] {
  const read = (path: string, operationId: string, integerPath?: string[]) =>
    operation({
      method: 'get',
      path,
      operationId,
      area: 'Artifacts',
      summary: operationId,
      ...(integerPath && { integerPath }),
      success: { schema: artifactVersionSchema, description: operationId },
      handler: async (call) => ({
        kind: 'value',
        value: { operationId, name: call.path.artifact_name, ...call.integers },
      }),
    });
  return [
    read(ARTIFACT, 'loadArtifact'),
    read(`${ARTIFACT}/versions/{version_id}`, 'loadArtifactVersion', ['version_id']),
    read(`${ARTIFACT}/versions`, 'listVersions'),
    read(`${ARTIFACT}/versions/{version_id}/metadata`, 'harnessRuntimeGetArtifactMetadata', ['version_id']),
    read(`${ARTIFACT}/versions/metadata`, 'listMetadata'),
    operation({
      method: 'delete',
      path: ARTIFACT,
      operationId: 'deleteArtifact',
      area: 'Artifacts',
      summary: 'Delete',
      handler: async () => ({ kind: 'json', text: 'null' }),
    }),
  ];
}
