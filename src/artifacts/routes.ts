import type { DatabasePool } from '../db/database.ts';
import { NotFoundError } from '../errors.ts';
import { operation, type Operation } from '../http/operation.ts';
import { toArtifactContent } from './artifact-content.ts';
import { artifactVersionSchema, saveArtifactSchema } from './artifact-version.ts';
import { type ArtifactKey, findArtifactVersionText, saveArtifactVersion } from './store.ts';

const LIST = '/apps/{app_name}/users/{user_id}/sessions/{session_id}/artifacts';
const area = 'Artifacts';

const toKey = (path: Record<string, string>, artifactName = path['artifact_name'] ?? ''): ArtifactKey => ({
  appName: path['app_name'] ?? '',
  userId: path['user_id'] ?? '',
  sessionId: path['session_id'] ?? '',
  artifactName,
});

const versionNotFound = ({ artifact_name = '', version_id = '' }: Record<string, string>) =>
  `Artifact version not found: ${artifact_name} version ${version_id}`;

/** Artifacts: save a version, get a version's metadata. */
export const artifactRoutes = ({ database }: { database: DatabasePool }): Operation[] => [
  operation({
    method: 'post',
    path: LIST,
    operationId: 'saveArtifact',
    area,
    summary: 'Save an artifact version',
    body: { schema: saveArtifactSchema, required: true },
    success: { schema: artifactVersionSchema, description: 'The new version.' },
    errors: { 400: 'The part carries no content, or its data is not base64.' },
    handler: async ({ path, body }) => {
      const key = toKey(path, body.filename);
      const content = toArtifactContent(body.artifact);
      return { kind: 'json', text: await saveArtifactVersion(database.db, key, content, body.customMetadata ?? {}) };
    },
  }),
  operation({
    method: 'get',
    path: `${LIST}/{artifact_name}/versions/{version_id}/metadata`,
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
      const text = version === undefined ? undefined : await findArtifactVersionText(database.db, toKey(path), version);
      if (text === undefined) throw new NotFoundError(versionNotFound(path));
      return { kind: 'json', text };
    },
  }),
];
