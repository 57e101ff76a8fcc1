import { readFileSync } from 'node:fs';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { describe, expect, test } from 'vitest';
import type { z } from 'zod';
import { getChildren, unwrap } from '../../src/core/zod-graph.ts';
import { ALIASES, COMPONENTS, listAllOperations } from '../../src/process/app.ts';
import { SCOPES } from '../../src/platform/http/operation/principal.ts';
import { openApiDocument } from '../../src/platform/http/openapi/document.ts';
import { pathParameters, listRoutes } from '../../src/platform/http/operation/paths.ts';

const operations = listAllOperations();

/** Those without a credential. */
const OPEN = 'sendTokenSignal health ready version getA2aCard getFirstA2aCard getMcpMetadata';

/** A sentence, and the names that one of the lists has alone; none if they have the same. */
function findDifferences(found: string[], listed: string[], sentence: string): string[] {
  const differing = [...found.filter((id) => !listed.includes(id)), ...listed.filter((id) => !found.includes(id))];
  return differing.length === 0 ? [] : [sentence, ...differing];
}

describe('every operation has an owner and a scope', () => {
  test.each(operations.map((operation) => [operation.operationId, operation] as const))('%s', (_id, operation) => {
    const { owner, path, body, scope } = operation;
    expect(['none', ...SCOPES]).toContain(scope);
    expect(scope === 'none').toBe(owner === 'open');
    const namesUser = pathParameters(path).includes('user_id');
    if (namesUser) expect(owner).toBe('path');
    else if (typeof owner === 'object')
      expect(owner).toMatchObject({ user: expect.any(Function), absent: expect.any(Function) });
    else expect(['open', 'service', 'caller']).toContain(owner);
    // A body or header that names a user is compared with the caller.
    const members = [...toKnownNames(body?.schema), ...Object.keys(operation.parameters?.headers?.shape ?? {})];
    if (members.some((name) => /^user_?id$/i.test(name))) expect(owner).toBeTypeOf('object');
  });

  test('what lasts counts as a stream', () => {
    const lasts = ({ success }: (typeof operations)[0]) =>
      success?.mediaType === 'text/event-stream' || success?.status === 101;
    const idsOf = (some: typeof operations) => some.map(({ operationId }) => operationId);
    expect(idsOf(operations.filter(lasts))).toEqual(idsOf(operations.filter(({ isStream }) => isStream)));
  });

  test('without a credential only those that say nothing of anybody are served', () => {
    const open = operations.filter(({ owner }) => owner === 'open').map(({ operationId }) => operationId);
    const sentence =
      'Anybody may call these. One that says nothing of anybody belongs into OPEN of this file, and any other one needs ' +
      'a `scope` and an `owner`; what is in OPEN and no operation any more goes.';
    expect(findDifferences(open, OPEN.split(' '), sentence)).toEqual([]);
  });
});

/**
 * The operations that serve what they do not know and name it in a header: their clients are others', of versions to
 * come. A new operation is none of them unless it says so.
 */
const LENIENT = {
  ADK:
    'health version getTelemetry setTelemetry listApps getAppInfo listSessions createSession createSessionWithId ' +
    'getSession updateSession listArtifacts saveArtifact loadArtifact listArtifactVersions loadArtifactVersion ' +
    'listArtifactVersionsMetadata harnessRuntimeGetArtifactMetadata addSessionToMemory runAgent runAgentSse runLive ' +
    'createEvalSet createEvalSetWithId listEvalSets listEvalSetIds getEvalSet addSessionToEvalSet overwriteEvalCase ' +
    'listEvalCases getEvalCase updateEvalCase getMetricsInfo runEvalSet runEvalSetAsList listEvalResults ' +
    'listEvalResultIds getEvalResult getSessionTrace getEventTrace getSessionTraceLegacy getEventTraceLegacy ' +
    'getEventGraph getAppStructure getAppGraphs getAppGraph getBuilderConfig',
  AgentKit: 'harnessInvoke invokeLegacy',
  probes: 'ready',
  OAuth: 'finishConsent',
};
/** Whole doors, whose paths nothing else has. */
const LENIENT_DOORS = {
  A2A: /^\/(?:a2a\/|\.well-known\/agent-card\.json$)/,
  'AG-UI': /^\/ag-ui\//,
  'AI SDK': /^\/ai-sdk\//,
  'Durable Streams': /^\/durable-streams\//,
  MCP: /^\/(?:mcp$|mcp\/|\.well-known\/oauth-protected-resource\/mcp$)/,
  // Azure's clients add `api-version` to each request, deletions too.
  OpenAI: /^\/v1\//,
};

test('only operations of the protocols of others serve what they do not know', () => {
  const doors = Object.keys(LENIENT_DOORS);
  const named = operations.flatMap(({ operationId, wire = '' }) =>
    wire !== '' && !doors.includes(wire) ? [`${wire} ${operationId}`] : [],
  );
  const expected = Object.entries(LENIENT).flatMap(([wire, ids]) => ids.split(' ').map((id) => `${wire} ${id}`));
  expect(named.toSorted()).toEqual(expected.toSorted());
  for (const [wire, paths] of Object.entries(LENIENT_DOORS))
    for (const operation of operations)
      expect([operation.path, operation.wire === wire]).toEqual([operation.path, paths.test(operation.path)]);
  // What deletes is meant in each word: of the wires of others only doors, where nothing can be held back.
  const deletions = operations.filter(({ method, wire }) => method === 'delete' && wire !== undefined);
  expect(deletions.map(({ operationId }) => operationId).toSorted()).toEqual([
    'deleteA2aPushConfig',
    'deleteOpenAiConversation',
    'deleteOpenAiResponse',
  ]);
});

/** How the bytes of each answer are bounded; a new read says how its are. */
const BOUNDS = {
  'what the operator has set up, or a count':
    'health ready version getCaller getTelemetry listApps getAppInfo listModelPrices countUnretained ' +
    'getMetricsInfo getAppStructure getAppGraphs getAppGraph getBuilderConfig listAppsOfUser ' +
    'getUserStorage getMcpMetadata getVersion diffVersions finishConsent listOpenAiModels getOpenAiModel ' +
    'getA2aCard getFirstA2aCard getExtendedA2aCard getServiceState',
  'one row, which was bounded when it was written':
    'getSessionLabels loadArtifact loadArtifactVersion harnessRuntimeGetArtifactMetadata getCronjob getCronjobRun ' +
    'getInvocation getTask getEvalCase getEventTrace getEventTraceLegacy getEventGraph getEvalRun ' +
    'getOpenAiConversation getA2aPushConfig',
  'as many rows as a page has, each small':
    'getUsage getUserUsage ' +
    'listLegalHolds listWebhooks listInvocations listSessionScores listEvalRuns getEvalTrend listEvalCases ' +
    'listA2aPushConfigs ' +
    'listBudgets listSessionVerdicts listScoreRules summarizeEvalRun listEvalJudges listUsers listToolCalls listVersions ' +
    'sampleInvocations listAudit listAppInvocations listAllInvocations',
  'a page that ends where its bytes do':
    'diffSessions listTasks listEvents searchMemory listCronjobs listCronjobRuns listWebhookDeliveries ' +
    'getSessionTrace getSessionTraceLegacy listAllCronjobs listAiSdkMessages readSessionStream readInvocationStream ' +
    'listOpenAiItems listOpenAiInputItems listA2aTasks',
  'pages that are read as fast as the client takes them':
    'exportUser listSessions getSession listArtifacts listArtifactVersionsMetadata streamEvents streamEvalRun ' +
    'listEvalSets listEvalSetIds getEvalSet exportEvalSet listEvalResults listEvalResultIds getEvalResult ' +
    'listEvalVerdicts runLive streamAiSdkChat',
  'nothing but what one user, or a developer, may store':
    'listArtifactVersions streamAgUi getOpenAiResponse getA2aTask subscribeToA2aTask',
};

test('every read says what bounds the bytes of its answer', () => {
  // A copy is another one of these, at another path.
  const reads = operations
    .filter(({ method, isCopy }) => method === 'get' && !isCopy)
    .map(({ operationId }) => operationId);
  const listed = Object.values(BOUNDS).flatMap((ids) => ids.split(' '));
  const sentence =
    'Each read stands in BOUNDS of this file below what bounds the bytes of its answer, and nothing else does.';
  expect(findDifferences(reads, listed, sentence)).toEqual([]);
});

/** Names of the members of a body, two levels deep. The `sessionInput` of a case is data: it names nobody's session. */
function toKnownNames(schema: z.core.$ZodType | undefined, depth = 2): string[] {
  if (!schema || depth === 0) return [];
  const { members } = getChildren(unwrap(schema));
  return Object.entries(members).flatMap(([name, member]) =>
    name === 'sessionInput' ? [] : [name, ...toKnownNames(member, depth - 1)],
  );
}

interface Media {
  schema: { type?: unknown; properties?: object; $ref?: string };
  example?: unknown;
}
interface Documented {
  operationId: string;
  deprecated?: boolean;
  requestBody?: { content: Record<string, Media> };
  responses: Record<string, { content: Record<string, Media> }>;
}
const document = JSON.parse(
  readFileSync(new URL('../../src/platform/http/openapi/openapi.json', import.meta.url), 'utf8'),
) as {
  paths: Record<string, Record<string, Documented>>;
};
const documented = Object.values(document.paths).flatMap((item) => Object.values(item));
const examples = documented.flatMap(({ operationId, requestBody, responses }) =>
  [requestBody, responses['200']].flatMap((place, index) =>
    Object.values(place?.content ?? {}).map(
      (media) => [`${operationId} ${index === 0 ? 'body' : 'answer'}`, media] as const,
    ),
  ),
);

describe('every body and every answer', () => {
  const ajv = new Ajv2020({ strict: false, validateFormats: false, schemas: [{ $id: 'document', ...document }] });

  test.each(examples)('%s has an example that its schema accepts, and says what it holds', (_name, media) => {
    expect(media).toHaveProperty('example');
    const schema = JSON.parse(JSON.stringify(media.schema).replaceAll('"#/', '"document#/')) as object;
    const validate = ajv.compile(schema);
    expect([validate(media.example), validate.errors]).toEqual([true, null]);
    if (media.schema.type === 'object')
      expect(Object.keys(media.schema)).toContain(isMap(media.schema) ? 'additionalProperties' : 'properties');
  });
});

/** The state of a session is the one body whose members are data. */
const isMap = (schema: object) => !('properties' in schema) && 'description' in schema;

describe('the document', () => {
  test('has each operation once, at its own path', () => {
    const own = operations.filter(({ isCopy }) => !isCopy);
    expect(documented.map(({ operationId }) => operationId).toSorted()).toEqual(
      own.map(({ operationId }) => operationId).toSorted(),
    );
    for (const { method, operationId, path } of own)
      expect([path, document.paths[path]?.[method]?.operationId]).toEqual([path, operationId]);
    expect(documented.filter(({ deprecated }) => deprecated !== undefined)).toEqual([]);
  });
});

describe('aliases', () => {
  const rows = Object.entries(ALIASES).flatMap(([path, ids]) => ids.map((id) => [id, path] as const));
  const isPublished = (method: string, path: string) => document.paths[path]?.[method] !== undefined;

  test('are there, and no operation has one that the table does not have', () => {
    expect(rows.length).toBeGreaterThan(15);
    const served = listRoutes(operations).filter(({ path, operation }) => path !== operation.path);
    const toLine = ([id, path]: readonly [string, string]) => `${id} ${path}`;
    expect(served.map(({ path, operation }) => toLine([operation.operationId, path])).toSorted()).toEqual(
      rows.map(toLine).toSorted(),
    );
  });

  test.each(rows)('%s at %s is the operation itself, and not published', (id, path) => {
    const [route, ...others] = listRoutes(operations).filter(
      ({ path: at, operation }) => at === path && operation.operationId === id,
    );
    expect(others).toEqual([]);
    // The very same object: rights, limits, names in metrics and audit, and its idempotency cannot differ.
    expect(operations).toContain(route?.operation);
    expect(pathParameters(path).toSorted()).toEqual(pathParameters(route?.operation.path ?? '').toSorted());
    expect(isPublished(route?.operation.method ?? '', path)).toBe(false);
  });

  test('none is what the specification names', () => {
    for (const path of [
      '/dev/apps/{app_name}/eval-sets/{eval_set_id}/add-session',
      '/dev/apps/{app_name}/eval_sets/{eval_set_id}/evals',
    ]) {
      expect(Object.keys(ALIASES)).not.toContain(path);
      expect(document.paths).toHaveProperty([path]);
    }
  });
});

describe('evaluation below /apps', () => {
  const copies = operations.filter(({ isCopy }) => isCopy);

  test('is what the development server has, with rights of its own', () => {
    expect(copies.length).toBeGreaterThan(20);
    for (const copy of copies) {
      const own = operations.find(({ isCopy, operationId }) => !isCopy && operationId === copy.operationId);
      expect(own).toMatchObject({ method: copy.method, path: `/dev${copy.path}`, owner: copy.owner, scope: 'develop' });
      expect([copy.scope, copy.wire]).toEqual([copy.method === 'get' ? 'read' : 'develop', undefined]);
    }
  });

  test('is what a document names where there is no development server', () => {
    const served = operations.filter(({ isCopy, path }) => isCopy || !path.startsWith('/dev/'));
    const { paths } = openApiDocument(served, { authMode: 'key', components: COMPONENTS }) as typeof document;
    for (const { method, operationId, path } of copies) {
      expect(paths[path]?.[method]?.operationId).toBe(operationId);
      expect(document.paths).not.toHaveProperty([path, method]);
    }
  });
});
