import type { Request, Response } from 'express';
import { z } from 'zod';
import { partSchema } from '../../core/content.ts';
import { NotFoundError } from '../../core/errors.ts';
import type { Log } from '../../platform/log.ts';
import type { DatabasePool } from '../../platform/db/database.ts';
import { area } from '../../platform/http/operation/area.ts';
import { artifactDemands } from '../../platform/http/operation/demands.ts';
import type { Answer } from '../../platform/http/operation/operation.ts';
import { artifactPath, artifactVersionPath, INT32_MAX, sessionPath } from '../../platform/http/operation/parameters.ts';
import { artifactVersionSchema, type ContentStore, saveArtifactSchema, USER_ARTIFACT_PREFIX } from './artifact.ts';
import {
  findArtifactVersionText,
  listArtifactNamesText,
  listArtifactVersions,
  listArtifactVersionsText,
} from './artifact-store.ts';
import { deleteArtifact, deleteObjects, loadArtifact, type LoadedArtifact, saveArtifact } from './artifacts.ts';
import { ARTIFACT_SETTINGS } from './s3-content.ts';
import type { Feature } from '../../platform/feature/feature.ts';
import { artifacts, artifactVersions } from '../../platform/db/schema/schema.ts';
import { identifierSchema } from '../../core/session.ts';

export interface ArtifactContext {
  database: DatabasePool;
  contentStore: ContentStore;
  log: Log;
}

const room = area<ArtifactContext>('Artifacts', {
  read: 'read',
  write: 'write',
  owner: 'path',
  isIdempotent: true,
});

const absentArtifact = ({ artifactName }: { artifactName: string }) => `Artifact not found: ${artifactName}`;
const absentVersion = ({ artifactName, versionId }: { artifactName: string; versionId: string }) =>
  `Artifact version not found: ${artifactName} version ${versionId}`;

const alt = z
  .string()
  .max(64)
  .optional()
  .describe('`media`: the bytes as a download instead of JSON; so does an `Accept` of their type.');

const examplePart = { inlineData: { mimeType: 'text/csv', data: 'eCx5CjEsMgo=' } };
const exampleVersion = {
  version: 0,
  canonicalUri: 'postgres://apps/harness_agent/users/u1/sessions/s1/artifacts/table.csv/versions/0',
  customMetadata: { source: 'upload' },
  createTime: 1_767_225_600.25,
  mimeType: 'text/csv',
};

// The resources have no `find`, because each operation reads only the parts of an artifact that it returns.
const artifact = room.resource({
  noun: 'artifact',
  path: '/apps/{app_name}/users/{user_id}/sessions/{session_id}/artifacts',
  within: sessionPath,
  key: artifactPath,
  schema: partSchema,
  example: examplePart,
  absent: absentArtifact,
});

const version = room.resource({
  noun: 'version',
  id: 'ArtifactVersion',
  path: `${artifact.onePath}/versions`,
  within: artifactPath,
  key: artifactVersionPath,
  schema: artifactVersionSchema,
  example: exampleVersion,
  absent: absentVersion,
});

const operations = [
  artifact.list({
    wire: 'ADK',
    load: 'heavy',
    description: "Names of the session's artifacts and, with `user:` in front, of its user's; sorted by code point.",
    success: { schema: z.array(z.string()), description: 'The names.', example: ['table.csv', 'user:profile.json'] },
    handler: async ({ database }, { path }) => ({
      kind: 'stream',
      text: await listArtifactNamesText(database.reads, path),
    }),
  }),
  artifact.create({
    operationId: 'saveArtifact',
    wire: 'ADK',
    summary: 'Save an artifact version',
    description:
      'Under the name of a kept result of a tool, `tool-results/<call id>`, it needs the scope `import` too.',
    demands: ({ body }) => artifactDemands(body?.filename),
    body: {
      schema: saveArtifactSchema,
      example: { filename: 'table.csv', artifact: examplePart, customMetadata: exampleVersion.customMetadata },
    },
    success: { status: 200, schema: artifactVersionSchema, description: 'The new version.', example: exampleVersion },
    errors: { 400: 'The part carries no content, or its data is not base64.', 413: 'The content is too large.' },
    handler: async ({ database, contentStore }, { path, body }) => {
      const key = { ...path, artifactName: body.filename };
      const text = await saveArtifact(database.db, contentStore, key, body.artifact, body.customMetadata ?? {});
      return { kind: 'json', text };
    },
  }),
  artifact.read({
    operationId: 'loadArtifact',
    wire: 'ADK',
    load: 'heavy',
    summary: 'Load an artifact',
    description: 'The latest version, or that of `version`.',
    query: z.object({ version: z.int().min(-INT32_MAX).max(INT32_MAX).optional().describe('Version number.'), alt }),
    success: { description: 'The part as it was saved.' },
    errors: { 404: 'No such artifact or version.' },
    handler: async ({ database, contentStore }, { path, query, request, response, notFound }) => {
      const { version: number } = query;
      const loaded = await loadArtifact(database.reads, contentStore, path, number);
      if (loaded) return answerContent(loaded, { name: path.artifactName, alt: query.alt, request, response });
      throw number === undefined
        ? notFound()
        : new NotFoundError(absentVersion({ ...path, versionId: String(number) }));
    },
  }),
  // Not a verb of the resource, which would declare a 404: this operation succeeds even if the artifact does not exist.
  room.operation({
    method: 'delete',
    path: artifact.onePath,
    operationId: 'deleteArtifact',
    summary: 'Delete an artifact',
    description: 'All its versions. Their numbers are not given again. Deleting what is not there succeeds too.',
    parameters: { path: artifactPath },
    absent: absentArtifact,
    handler: async ({ database, contentStore, log }, { path }) => {
      await deleteArtifact({ db: database.db, contentStore, log }, path);
    },
  }),
  version.list({
    wire: 'ADK',
    load: 'heavy',
    summary: 'List the versions of an artifact',
    success: { schema: z.array(z.int()), description: 'Their numbers, ascending.', example: [0, 1] },
    absent: absentArtifact,
    run: ({ database }, { path }) => listArtifactVersions(database.reads, path),
  }),
  version.list({
    path: `${artifact.onePath}/versions/metadata`,
    operationId: 'listArtifactVersionsMetadata',
    wire: 'ADK',
    load: 'heavy',
    summary: 'List the metadata of all versions of an artifact',
    success: { description: 'The versions, ascending.' },
    absent: absentArtifact,
    handler: async ({ database }, { path }) => ({
      kind: 'stream',
      text: await listArtifactVersionsText(database.reads, path),
    }),
  }),
  version.read({
    operationId: 'loadArtifactVersion',
    wire: 'ADK',
    load: 'heavy',
    summary: 'Load a version of an artifact',
    query: z.object({ alt }),
    success: { schema: partSchema, description: 'The part as it was saved.', example: examplePart },
    handler: async ({ database, contentStore }, { path, query, request, response, notFound }) => {
      if (path.versionId === undefined) throw notFound();
      const loaded = await loadArtifact(database.reads, contentStore, path, path.versionId);
      if (!loaded) throw notFound();
      return answerContent(loaded, { name: path.artifactName, alt: query.alt, request, response });
    },
  }),
  version.action('metadata')({
    method: 'get',
    operationId: 'harnessRuntimeGetArtifactMetadata',
    wire: 'ADK',
    summary: 'Get artifact version metadata',
    description: 'URI, creation time, MIME type and custom metadata of one version.',
    handler: async ({ database }, { path, notFound }) => {
      if (path.versionId === undefined) throw notFound();
      const text = await findArtifactVersionText(database.reads, path, path.versionId);
      if (text === undefined) throw notFound();
      return { kind: 'json', text };
    },
  }),
];

/** Matches a MIME type that is safe in a header; the stored type is any text that a client sent. */
const MEDIA_TYPE = /^[\w!#$&^.+-]{1,100}\/[\w!#$&^.+-]{1,100}$/;
const JSON_TYPE = 'application/json';
const BYTES_TYPE = 'application/octet-stream';

interface ContentRequest {
  name: string;
  alt: string | undefined;
  request: Request;
  response: Response;
}

/** Responds with JSON and base64, or with bytes if the client asks for bytes or prefers their media type. */
function answerContent({ part, bytes, mimeType = '' }: LoadedArtifact, requested: ContentRequest): Answer {
  const [sent = ''] = mimeType.split(';');
  const type = MEDIA_TYPE.test(sent) ? sent : BYTES_TYPE;
  const isRequested = requested.alt === 'media';
  const preferred = requested.request.accepts([JSON_TYPE, type, BYTES_TYPE]);
  if (!isRequested && (preferred === false || preferred === JSON_TYPE)) return { kind: 'value', value: part };
  if (bytes) return sendBytes(requested, bytes, type);
  if (!isRequested) return { kind: 'value', value: part };
  const why = 'it is a reference to a file elsewhere and has no bytes here';
  throw new NotFoundError(`${absentArtifact({ artifactName: requested.name })}: ${why}`);
}

/** Responds with a download, so that a browser never shows a stored file as a page of this origin. */
function sendBytes({ name, response }: ContentRequest, bytes: Buffer, type: string): Answer {
  response.attachment(name.startsWith(USER_ARTIFACT_PREFIX) ? name.slice(USER_ARTIFACT_PREFIX.length) : name);
  response.setHeader('content-security-policy', "sandbox; default-src 'none'; frame-ancestors 'none'");
  response.setHeader('x-content-type-options', 'nosniff');
  response.writeHead(200, { 'content-type': type, 'content-length': bytes.length }).end(bytes);
  return { kind: 'sent' };
}

export const artifactFeature = {
  name: 'artifacts',
  settings: { Artifacts: ARTIFACT_SETTINGS },
  operations,
  schemas: { ArtifactVersion: artifactVersionSchema, SaveArtifactRequest: saveArtifactSchema },
  parameters: { ArtifactName: artifactPath.shape.artifactName },
  userTables: [{ table: artifacts, cascades: true, imported: { name: identifierSchema } }, { table: artifactVersions }],
  userCopies: [{ erase: deleteObjects }],
} satisfies Feature<ArtifactContext>;
