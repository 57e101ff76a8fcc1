import { Ajv2020 } from 'ajv/dist/2020.js';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { COMPONENTS } from '../../../../../src/process/app.ts';
import type { AuthMode } from '../../../../../src/platform/http/access/bearer.ts';
import { openApiDocument } from '../../../../../src/platform/http/openapi/document.ts';
import { AREAS, operation } from '../../../../../src/platform/http/operation/operation.ts';
import { createSessionSchema } from '../../../../../src/core/session.ts';
import { writtenOut } from '../../../../support/document.ts';
import { sampleOperations } from '../../../../support/edge-operations.ts';

interface Document {
  openapi: string;
  tags: { name: string }[];
  security: object[];
  paths: Record<string, Record<string, DocumentedOperation>>;
  components: { schemas: Record<string, object>; securitySchemes: object };
}
interface DocumentedOperation {
  operationId: string;
  security?: object[];
  parameters: object[];
  requestBody?: object;
  responses: Record<string, { content?: Record<string, { schema: object }> }>;
}

const CLOSED = new Set([
  'Budget',
  'ModelPrice',
  'CronjobSchedule',
  'Event',
  'EventActions',
  'UsageMetadata',
  'GroundingMetadata',
]);
const EVENT = 'components.schemas.Event.additionalProperties';
const CONTENTS = new Set(['Content', 'Part', 'content', 'compactedContent', 'newMessage', 'artifact', 'EvalCase']);

const documentOf = (authMode: AuthMode = 'local', operations = sampleOperations) =>
  writtenOut(openApiDocument(operations, { authMode, components: COMPONENTS }) as Document);
const allOperations = (document: Document) => Object.values(document.paths).flatMap((item) => Object.values(item));
const ref = (name: string) => ({ $ref: `#/components/schemas/${name}` });

/** Every value of a JSON document with the keys that lead to it. */
function* walk(value: unknown, path: string[] = []): Generator<[string[], unknown]> {
  yield [path, value];
  if (typeof value !== 'object' || value === null) return;
  for (const [key, member] of Object.entries(value)) yield* walk(member, [...path, key]);
}

describe('openApiDocument', () => {
  it('lists all areas as tags and gives each operation one of them', () => {
    const document = documentOf();
    expect(document.openapi).toBe('3.1.0');
    expect(document.tags.map(({ name }) => name)).toEqual(Object.keys(AREAS));
  });

  it.each<[AuthMode, object[]]>([
    ['local', [{}, { RuntimeBearer: [] }]],
    ['key', [{ RuntimeBearer: [] }]],
    ['jwt', [{ RuntimeBearer: [] }]],
    ['key+jwt', [{ RuntimeBearer: [] }, { UserToken: [] }]],
  ])('says what %s mode asks for', (mode, security) => {
    const document = documentOf(mode);
    expect(document.security).toEqual(security);
    expect(document.components.securitySchemes).toMatchObject({ RuntimeBearer: { type: 'http', scheme: 'bearer' } });
    expect(document.paths['/health']?.get?.security).toEqual([]);
  });

  it('says where keys and tokens are taken what is for keys alone', () => {
    const [list, save, ...others] = sampleOperations.filter(({ owner }) => owner === 'path');
    if (!list || !save) throw new Error('there are no operations');
    const operations = [
      { ...list, isForKeys: true as const },
      { ...save, isAbsentForTokens: true as const },
      ...others,
    ];
    const { components, paths } = documentOf('key+jwt', operations);
    expect(components.securitySchemes).toMatchObject({
      RuntimeBearer: { type: 'http', scheme: 'bearer' },
      UserToken: { type: 'http', scheme: 'bearer', bearerFormat: 'JWT' },
    });
    const securityOf = ({ path, method }: { path: string; method: string }) => paths[path]?.[method]?.security;
    expect(operations.slice(0, 2).map(securityOf)).toEqual([[{ RuntimeBearer: [] }], [{ RuntimeBearer: [] }]]);
    expect(documentOf('key', operations).paths[list.path]?.[list.method]?.security).toBeUndefined();
  });

  it('names the resources and refers to them', () => {
    const { components, paths } = documentOf();
    expect(Object.keys(components.schemas)).toEqual(
      expect.arrayContaining([
        'Session',
        'Event',
        'Content',
        'Part',
        'EventActions',
        'UsageMetadata',
        'GroundingMetadata',
        'ArtifactVersion',
        'ApiError',
        'ValidationError',
        'HTTPValidationError',
      ]),
    );
    const list = paths['/apps/{app_name}/users/{user_id}/sessions']?.get;
    expect(list?.responses['200']?.content?.['application/json']?.schema).toEqual({
      type: 'array',
      items: ref('Session'),
    });
    expect(components.schemas.Session).toMatchObject({
      required: ['id', 'appName', 'userId', 'state', 'events', 'lastUpdateTime'],
      properties: { events: { items: ref('Event') } },
    });
    expect(components.schemas.Event).toMatchObject({
      properties: { content: { anyOf: [ref('Content'), { type: 'null' }] }, timestamp: { type: ['number', 'null'] } },
    });
    expect(components.schemas.Event).not.toHaveProperty('required');
  });

  it('documents parameters, answers and refusals of an operation', () => {
    const { paths } = documentOf();
    const path = '/apps/{app_name}/users/{user_id}/sessions/{session_id}/artifacts/{artifact_name}';
    const metadata = paths[`${path}/versions/{version_id}/metadata`]?.get;
    const identifier = { type: 'string', minLength: 1, maxLength: 256, pattern: String.raw`^[^\x00-\x1f]+$` };
    expect(metadata?.parameters).toEqual([
      ...['app_name', 'user_id', 'session_id', 'artifact_name'].map((name) => ({
        name,
        in: 'path',
        required: true,
        description: expect.any(String),
        schema: identifier,
      })),
      { name: 'version_id', in: 'path', required: true, description: 'Version number.', schema: { type: 'integer' } },
    ]);
    expect(Object.keys(metadata?.responses ?? {})).toEqual(['200', '401', '403', '422', '429', 'default']);
    expect(metadata?.responses['422']?.content?.['application/json']?.schema).toEqual(ref('HTTPValidationError'));
    const session = paths['/apps/{app_name}/users/{user_id}/sessions/{session_id}']?.get;
    expect(session?.responses['404']).toEqual({
      description: 'The session does not exist.',
      content: { 'application/json': { schema: ref('ApiError') } },
    });
    expect(Object.keys(paths['/sample']?.post?.responses ?? {})).toEqual([
      '200',
      '401',
      '403',
      '413',
      '415',
      '422',
      '429',
      'default',
    ]);
    expect(Object.keys(paths['/health']?.get?.responses ?? {})).toEqual(['200', 'default']);
    const add = paths['/dev/apps/{app_name}/eval-sets/{eval_set_id}/add-session']?.post;
    expect(add?.responses['200']?.content?.['application/json']?.schema).toEqual({ type: 'null' });
    expect(add?.requestBody).toMatchObject({ required: true });
  });

  it('is plain: no bounds of doubles, no propertyNames, nothing closed that was open', () => {
    for (const [path, value] of walk(
      documentOf(
        'local',
        sampleOperations.filter(({ method }) => method !== 'put'),
      ),
    )) {
      expect(path.at(-1)).not.toBe('propertyNames');
      expect(Math.abs(Number(value))).not.toBe(Number.MAX_SAFE_INTEGER);
      // Contents are closed, as ADK's are, objects within an event, schedules, and bodies of operations that refuse
      // what they do not know.
      const isInNamed = path.some((step) => CONTENTS.has(step) || CLOSED.has(step)) && path.join('.') !== EVENT;
      const isClosed = isInNamed || path.includes('requestBody');
      if (path.at(-1) === 'additionalProperties' && !isClosed) expect(value === false ? path : []).toEqual([]);
      if (path.at(-1) === '$ref') expect(value).toMatch(/^#\/components\/schemas\/[A-Z]\w*$/);
    }
  });

  it('refers to nothing that is not there, and every schema compiles', () => {
    const document = documentOf();
    const ajv = new Ajv2020({ strict: false, formats: { byte: true }, schemas: [{ $id: 'document', ...document }] });
    const refs = [...walk(document)].filter(([path]) => path.at(-1) === '$ref').map(([, value]) => String(value));
    expect(refs.length).toBeGreaterThan(20);
    for (const target of new Set(refs)) expect(ajv.getSchema(`document${target}`)).toBeTypeOf('function');
    for (const { responses } of allOperations(document)) expect(responses).toHaveProperty('default');
  });

  it('asks for a name where a schema is used alone and inside of another', () => {
    const inner = z.looseObject({ a: z.string() });
    const at = (path: string, schema: z.ZodType) =>
      operation({
        method: 'post',
        path,
        operationId: path,
        area: 'Sessions',
        summary: path,
        owner: 'service',
        scope: 'read',
        body: { schema, required: true, example: {} },
        handler: async () => ({ kind: 'sent' }),
      });
    const operations = [at('/a', inner), at('/b', z.looseObject({ inner }))];
    expect(() => documentOf('local', operations)).toThrow('name it in the schemas of its feature');
    expect(() => documentOf('local', [at('/a', createSessionSchema), at('/b', createSessionSchema)])).not.toThrow();
  });
});
