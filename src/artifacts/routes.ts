import type { DatabasePool } from '../db/database.ts';
import { NotFoundError } from '../core/errors.ts';
import { checkBodyIdentifier } from '../http/validation/body-identifier.ts';
import { type Answer, type Call, operation, type Operation, type QueryParameter } from '../http/operation/operation.ts';
import type { Log } from '../core/log.ts';
import { partSchema } from '../core/content.ts';
import { sessionKeyOf } from '../core/session.ts';
import { USER_ARTIFACT_PREFIX } from './artifact-content.ts';
import { artifactVersionSchema, saveArtifactSchema } from './artifact-version.ts';
import type { ContentStore } from './content-store.ts';
import { deleteArtifact, loadArtifact, type LoadedArtifact, saveArtifact } from './artifacts.ts';
import {
  type ArtifactKey,
  findArtifactVersionText,
  listArtifactNames,
  listArtifactVersions,
  listArtifactVersionsText,
} from './artifact-store.ts';

const LIST = '/apps/{app_name}/users/{user_id}/sessions/{session_id}/artifacts';
const ONE = `${LIST}/{artifact_name}`;
const VERSIONS = `${ONE}/versions`;
const area = 'Artifacts';
const INT32_MAX = 2_147_483_647;

/** What the artifact operations need. */
interface ArtifactContext {
  database: DatabasePool;
  contentStore: ContentStore;
  log: Log;
}

const toKey = (path: Record<string, string>, artifactName = path['artifact_name'] ?? ''): ArtifactKey => ({
  ...sessionKeyOf(path),
  artifactName,
});

const artifactNotFound = ({ artifact_name = '' }: Record<string, string>) => `Artifact not found: ${artifact_name}`;
const versionNotFound = ({ artifact_name = '', version_id = '' }: Record<string, string>) =>
  `Artifact version not found: ${artifact_name} version ${version_id}`;

const alt: QueryParameter = {
  name: 'alt',
  schema: { type: 'string' },
  description: '`media`: the bytes as a download instead of JSON; so does an `Accept` of their type.',
};

/** Artifacts: list, save, load, list versions and their metadata, delete. */
export const artifactRoutes = (context: ArtifactContext): Operation[] => [
  ...contentRoutes(context),
  ...versionRoutes(context),
];

const contentRoutes = ({ database, contentStore, log }: ArtifactContext): Operation[] => [
  operation({
    method: 'get',
    path: LIST,
    operationId: 'listArtifacts',
    area,
    summary: 'List artifacts',
    description: "Names of the session's artifacts and, with `user:` in front, of its user's; sorted by code point.",
    success: { schema: { type: 'array', items: { type: 'string' } }, description: 'The names.' },
    handler: async ({ path }) => ({ kind: 'value', value: await listArtifactNames(database.reads, toKey(path)) }),
  }),
  operation({
    method: 'post',
    path: LIST,
    operationId: 'saveArtifact',
    area,
    summary: 'Save an artifact version',
    body: { schema: saveArtifactSchema, required: true },
    success: { schema: artifactVersionSchema, description: 'The new version.' },
    errors: { 400: 'The part carries no content, or its data is not base64.', 413: 'The content is too large.' },
    handler: async ({ path, body }) => {
      const key = toKey(path, checkBodyIdentifier('filename', body.filename));
      const text = await saveArtifact(database.db, contentStore, key, body.artifact, body.customMetadata ?? {});
      return { kind: 'json', text };
    },
  }),
  operation({
    method: 'get',
    path: ONE,
    operationId: 'loadArtifact',
    area,
    summary: 'Load an artifact',
    description: 'The latest version, or that of `version`.',
    query: [
      {
        name: 'version',
        schema: { type: 'integer', minimum: -INT32_MAX, maximum: INT32_MAX },
        description: 'Version number.',
      },
      alt,
    ],
    success: { schema: partSchema, description: 'The part as it was saved.' },
    errors: { 404: 'No such artifact or version.' },
    absent: artifactNotFound,
    handler: async (call) => {
      const version = call.query['version'] as number | undefined;
      const loaded = await loadArtifact(database.reads, contentStore, toKey(call.path), version);
      if (loaded) return answerContent(call, loaded);
      const versionId = version === undefined ? undefined : { version_id: String(version) };
      throw new NotFoundError(
        versionId ? versionNotFound({ ...call.path, ...versionId }) : artifactNotFound(call.path),
      );
    },
  }),
  operation({
    method: 'delete',
    path: ONE,
    operationId: 'deleteArtifact',
    area,
    summary: 'Delete an artifact',
    description: 'All its versions. Their numbers are not given again. Deleting what is not there succeeds too.',
    absent: artifactNotFound,
    handler: async ({ path }) => {
      await deleteArtifact({ db: database.db, contentStore, log }, toKey(path));
      return { kind: 'value', value: null };
    },
  }),
];

const versionRoutes = ({ database, contentStore }: ArtifactContext): Operation[] => [
  operation({
    method: 'get',
    path: VERSIONS,
    operationId: 'listArtifactVersions',
    area,
    summary: 'List the versions of an artifact',
    success: { schema: { type: 'array', items: { type: 'integer' } }, description: 'Their numbers, ascending.' },
    absent: artifactNotFound,
    handler: async ({ path }) => ({ kind: 'value', value: await listArtifactVersions(database.reads, toKey(path)) }),
  }),
  operation({
    method: 'get',
    path: `${VERSIONS}/metadata`,
    operationId: 'listArtifactVersionsMetadata',
    area,
    summary: 'List the metadata of all versions of an artifact',
    success: {
      schema: { type: 'array', items: { $ref: '#/components/schemas/ArtifactVersion' } },
      description: 'The versions, ascending.',
    },
    absent: artifactNotFound,
    handler: async ({ path }) => ({ kind: 'json', text: await listArtifactVersionsText(database.reads, toKey(path)) }),
  }),
  operation({
    method: 'get',
    path: `${VERSIONS}/{version_id}`,
    operationId: 'loadArtifactVersion',
    area,
    summary: 'Load a version of an artifact',
    integerPath: ['version_id'],
    query: [alt],
    success: { schema: partSchema, description: 'The part as it was saved.' },
    errors: { 404: 'No such version.' },
    absent: versionNotFound,
    handler: async (call) => {
      const version = call.integers['version_id'];
      const loaded =
        version === undefined ? undefined : await loadArtifact(database.reads, contentStore, toKey(call.path), version);
      if (!loaded) throw new NotFoundError(versionNotFound(call.path));
      return answerContent(call, loaded);
    },
  }),
  operation({
    method: 'get',
    path: `${VERSIONS}/{version_id}/metadata`,
    operationId: 'harnessRuntimeGetArtifactMetadata',
    area,
    summary: 'Get artifact version metadata',
    description: 'URI, creation time, MIME type and custom metadata of one version.',
    integerPath: ['version_id'],
    success: { schema: artifactVersionSchema, description: 'The version.' },
    errors: { 404: 'No such version.' },
    absent: versionNotFound,
    handler: async ({ path, integers }) => {
      const version = integers['version_id'];
      const text =
        version === undefined ? undefined : await findArtifactVersionText(database.reads, toKey(path), version);
      if (text === undefined) throw new NotFoundError(versionNotFound(path));
      return { kind: 'json', text };
    },
  }),
];

/** A MIME type as it may stand in a header: what a client once sent may be any text. */
const MEDIA_TYPE = /^[\w!#$&^.+-]{1,100}\/[\w!#$&^.+-]{1,100}$/;
const JSON_TYPE = 'application/json';
const BYTES_TYPE = 'application/octet-stream';

/** JSON with base64, unless the client asks for the bytes or prefers their type. */
function answerContent(call: Call<unknown>, { part, bytes, mimeType = '' }: LoadedArtifact): Answer {
  const [sent = ''] = mimeType.split(';');
  const type = MEDIA_TYPE.test(sent) ? sent : BYTES_TYPE;
  const isAsked = call.query['alt'] === 'media';
  const preferred = call.request.accepts([JSON_TYPE, type, BYTES_TYPE]);
  if (!isAsked && (preferred === false || preferred === JSON_TYPE)) return { kind: 'value', value: part };
  if (bytes) return sendBytes(call, bytes, type);
  if (!isAsked) return { kind: 'value', value: part };
  throw new NotFoundError(
    `${artifactNotFound(call.path)}: it is a reference to a file elsewhere and has no bytes here`,
  );
}

/** A download: whatever somebody saved is never shown as a page of this origin. */
function sendBytes({ path, response }: Call<unknown>, bytes: Buffer, type: string): Answer {
  const { artifact_name: name = '' } = path;
  response.attachment(name.startsWith(USER_ARTIFACT_PREFIX) ? name.slice(USER_ARTIFACT_PREFIX.length) : name);
  response.setHeader('content-security-policy', "sandbox; default-src 'none'; frame-ancestors 'none'");
  response.setHeader('x-content-type-options', 'nosniff');
  response.writeHead(200, { 'content-type': type, 'content-length': bytes.length }).end(bytes);
  return { kind: 'sent' };
}
