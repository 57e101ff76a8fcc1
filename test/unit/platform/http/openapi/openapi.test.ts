import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';

const root = fileURLToPath(new URL('../../../../../', import.meta.url));
const committed = readFileSync(`${root}src/platform/http/openapi/openapi.json`, 'utf8');
const document = JSON.parse(committed) as {
  openapi: string;
  info: { title: string; version: string };
  tags: { name: string }[];
  paths: Record<string, Record<string, { operationId: string }>>;
  components: { schemas: Record<string, { properties?: Record<string, unknown>; required?: string[] }> };
};

test('the committed document is the one that the schemas make; npm run openapi writes it', () => {
  const printed = execFileSync(process.execPath, [`${root}src/main.ts`, 'openapi'], {
    encoding: 'utf8',
    maxBuffer: 16_777_216,
    cwd: root,
  });
  expect(printed).toBe(committed);
});

test('it is what the specification says of it: version, label, areas, the name of the metadata operation', () => {
  expect(document.openapi).toBe('3.1.0');
  for (const version of ['0.54.0', '0.8.0', '2.2.0']) expect(document.info.version).toContain(version);
  expect(document.tags.map(({ name }) => name)).toEqual([
    'Service and applications',
    'Sessions',
    'Agent execution',
    'Artifacts',
    'Memory',
    'Evaluation (development server)',
    'Debugging (development server)',
    'Compatibility endpoints',
    'Harness cronjobs',
  ]);
  const metadata =
    '/apps/{app_name}/users/{user_id}/sessions/{session_id}/artifacts/{artifact_name}/versions/{version_id}/metadata';
  expect(document.paths[metadata]?.['get']?.operationId).toBe('harnessRuntimeGetArtifactMetadata');
});

test('every member of the Event that the specification lists is in the document', () => {
  const names = `modelVersion content groundingMetadata partial turnComplete turnCompleteReason finishReason errorCode
    errorMessage interrupted customMetadata usageMetadata liveSessionResumptionUpdate liveSessionId goAway
    inputTranscription outputTranscription avgLogprobs logprobsResult cacheMetadata citationMetadata interactionId
    invocationId author actions output nodeInfo longRunningToolIds branch isolationScope id timestamp`.split(/\s+/);
  expect(Object.keys(document.components.schemas['Event']?.properties ?? {}).toSorted()).toEqual(names.toSorted());
  expect(document.components.schemas['Event']?.required).toBeUndefined();
});

test('what the specification requires is required', () => {
  expect(document.components.schemas['ArtifactVersion']?.required).toEqual(['version', 'canonicalUri']);
  expect(document.components.schemas['ApiError']?.required).toEqual(['detail']);
  expect(document.components.schemas['ValidationError']?.required?.toSorted()).toEqual(['loc', 'msg', 'type']);
});
