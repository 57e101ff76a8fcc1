import type { Request, Response } from 'express';
import { z } from 'zod';
import { partSchema } from '../../core/content.ts';
import { NotFoundError } from '../../core/errors.ts';
import type { Log } from '../../platform/log.ts';
import type { DatabasePool } from '../../platform/db/database.ts';
import { area } from '../../platform/http/operation/area.ts';
import type { Answer } from '../../platform/http/operation/operation.ts';
import { artifactPath, artifactVersionPath, INT32_MAX, sessionPath } from '../../platform/http/operation/parameters.ts';
import { sendText } from '../sessions/send-text.ts';
import { USER_ARTIFACT_PREFIX } from './artifact-content.ts';
import {
  findArtifactVersionText,
  listArtifactNamesText,
  listArtifactVersions,
  listArtifactVersionsText,
} from './artifact-store.ts';
import { deleteArtifact, loadArtifact, type LoadedArtifact, saveArtifact } from './artifacts.ts';
import { artifactVersionSchema, saveArtifactSchema } from './artifact-version.ts';
import type { ContentStore } from './content-store.ts';

const ARTIFACTS_PATH = '/apps/{app_name}/users/{user_id}/sessions/{session_id}/artifacts';
const ARTIFACT_PATH = `${ARTIFACTS_PATH}/{artifact_name}`;
const VERSIONS_PATH = `${ARTIFACT_PATH}/versions`;
const VERSION_PATH = `${VERSIONS_PATH}/{version_id}`;

interface ArtifactContext {
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

const listArtifacts = room.operation({
  method: 'get',
  path: ARTIFACTS_PATH,
  operationId: 'listArtifacts',
  wire: 'ADK',
  load: 'heavy',
  summary: 'List artifacts',
  description: "Names of the session's artifacts and, with `user:` in front, of its user's; sorted by code point.",
  parameters: { path: sessionPath },
  success: { schema: z.array(z.string()), description: 'The names.', example: ['table.csv', 'user:profile.json'] },
  handler: async ({ database }, { path, response }) =>
    sendText(response, await listArtifactNamesText(database.reads, path)),
});

const saveArtifactOperation = room.operation({
  method: 'post',
  path: ARTIFACTS_PATH,
  operationId: 'saveArtifact',
  wire: 'ADK',
  summary: 'Save an artifact version',
  parameters: { path: sessionPath },
  body: {
    schema: saveArtifactSchema,
    required: true,
    example: { filename: 'table.csv', artifact: examplePart, customMetadata: exampleVersion.customMetadata },
  },
  success: { schema: artifactVersionSchema, description: 'The new version.', example: exampleVersion },
  errors: { 400: 'The part carries no content, or its data is not base64.', 413: 'The content is too large.' },
  handler: async ({ database, contentStore }, { path, body }) => {
    const key = { ...path, artifactName: body.filename };
    const text = await saveArtifact(database.db, contentStore, key, body.artifact, body.customMetadata ?? {});
    return { kind: 'json', text };
  },
});

const loadArtifactOperation = room.operation({
  method: 'get',
  path: ARTIFACT_PATH,
  operationId: 'loadArtifact',
  wire: 'ADK',
  load: 'heavy',
  summary: 'Load an artifact',
  description: 'The latest version, or that of `version`.',
  parameters: {
    path: artifactPath,
    query: z.object({ version: z.int().min(-INT32_MAX).max(INT32_MAX).optional().describe('Version number.'), alt }),
  },
  success: { schema: partSchema, description: 'The part as it was saved.', example: examplePart },
  errors: { 404: 'No such artifact or version.' },
  absent: absentArtifact,
  handler: async ({ database, contentStore }, { path, query, request, response, notFound }) => {
    const { version } = query;
    const loaded = await loadArtifact(database.reads, contentStore, path, version);
    if (loaded) return answerContent(loaded, { name: path.artifactName, alt: query.alt, request, response });
    throw version === undefined
      ? notFound()
      : new NotFoundError(absentVersion({ ...path, versionId: String(version) }));
  },
});

const deleteArtifactOperation = room.operation({
  method: 'delete',
  path: ARTIFACT_PATH,
  operationId: 'deleteArtifact',
  summary: 'Delete an artifact',
  description: 'All its versions. Their numbers are not given again. Deleting what is not there succeeds too.',
  parameters: { path: artifactPath },
  absent: absentArtifact,
  handler: async ({ database, contentStore, log }, { path }) => {
    await deleteArtifact({ db: database.db, contentStore, log }, path);
  },
});

const listVersions = room.operation({
  method: 'get',
  path: VERSIONS_PATH,
  operationId: 'listArtifactVersions',
  wire: 'ADK',
  load: 'heavy',
  summary: 'List the versions of an artifact',
  parameters: { path: artifactPath },
  success: { schema: z.array(z.int()), description: 'Their numbers, ascending.', example: [0, 1] },
  absent: absentArtifact,
  handler: async ({ database }, { path }) => ({
    kind: 'value',
    value: await listArtifactVersions(database.reads, path),
  }),
});

const listVersionsMetadata = room.operation({
  method: 'get',
  path: `${VERSIONS_PATH}/metadata`,
  operationId: 'listArtifactVersionsMetadata',
  wire: 'ADK',
  load: 'heavy',
  summary: 'List the metadata of all versions of an artifact',
  parameters: { path: artifactPath },
  success: {
    schema: z.array(artifactVersionSchema),
    description: 'The versions, ascending.',
    example: [exampleVersion],
  },
  absent: absentArtifact,
  handler: async ({ database }, { path, response }) =>
    sendText(response, await listArtifactVersionsText(database.reads, path)),
});

const loadVersion = room.operation({
  method: 'get',
  path: VERSION_PATH,
  operationId: 'loadArtifactVersion',
  wire: 'ADK',
  load: 'heavy',
  summary: 'Load a version of an artifact',
  parameters: { path: artifactVersionPath, query: z.object({ alt }) },
  success: { schema: partSchema, description: 'The part as it was saved.', example: examplePart },
  errors: { 404: 'No such version.' },
  absent: absentVersion,
  handler: async ({ database, contentStore }, { path, query, request, response, notFound }) => {
    if (path.versionId === undefined) throw notFound();
    const loaded = await loadArtifact(database.reads, contentStore, path, path.versionId);
    if (!loaded) throw notFound();
    return answerContent(loaded, { name: path.artifactName, alt: query.alt, request, response });
  },
});

const getVersionMetadata = room.operation({
  method: 'get',
  path: `${VERSION_PATH}/metadata`,
  operationId: 'harnessRuntimeGetArtifactMetadata',
  wire: 'ADK',
  summary: 'Get artifact version metadata',
  description: 'URI, creation time, MIME type and custom metadata of one version.',
  parameters: { path: artifactVersionPath },
  success: { schema: artifactVersionSchema, description: 'The version.', example: exampleVersion },
  errors: { 404: 'No such version.' },
  absent: absentVersion,
  handler: async ({ database }, { path, notFound }) => {
    if (path.versionId === undefined) throw notFound();
    const text = await findArtifactVersionText(database.reads, path, path.versionId);
    if (text === undefined) throw notFound();
    return { kind: 'json', text };
  },
});

export const artifactOperations = [
  listArtifacts,
  saveArtifactOperation,
  loadArtifactOperation,
  deleteArtifactOperation,
  listVersions,
  listVersionsMetadata,
  loadVersion,
  getVersionMetadata,
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
