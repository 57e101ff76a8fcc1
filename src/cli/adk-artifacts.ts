import { existsSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { join, relative, sep } from 'node:path';
import { type Api, sessionsPath } from './api.ts';
import { parseExactJson } from '../core/exact-json.ts';

/** ADK's `FileArtifactService` keeps a version as a directory with a file of the bytes and a `metadata.json`. */
interface StoredVersion {
  path: string;
  fileName: string;
  mimeType: string | null;
  customMetadata: object;
}

/**
 * Imports a session's artifacts and those that its user's sessions share (`user:`) from ADK's `FileArtifactService`,
 * whose `root` is `[apps/<app>/]users/<user>/[sessions/<session>/]artifacts/<name>/versions/<n>/`. Versions that the
 * service already has are not replaced. @returns the number of imported versions
 */
export async function importArtifacts(
  api: Api,
  root: string,
  key: { appName: string; userId: string; sessionId: string },
  app: string,
): Promise<number> {
  const bases = [join(root, 'apps', key.appName, 'users', key.userId), join(root, 'users', key.userId)];
  const base = bases.find((path) => existsSync(path));
  if (base === undefined) return 0;
  const path = `${sessionsPath({ app, user: key.userId })}/${encodeURIComponent(key.sessionId)}/artifacts`;
  const own = await findVersions(join(base, 'sessions', key.sessionId, 'artifacts'));
  const shared = await findVersions(join(base, 'artifacts'));
  let saved = 0;
  for (const [name, versions] of [...own, ...[...shared].map(([each, list]) => [`user:${each}`, list] as const)]) {
    const present = await api.send<number[]>('GET', `${path}/${encodeURIComponent(name)}/versions`).catch(() => []);
    for (const version of versions.slice(present.length)) {
      await api.send('POST', path, await toRequest(name, version));
      saved += 1;
    }
  }
  return saved;
}

async function toRequest(name: string, { path, fileName, mimeType, customMetadata }: StoredVersion): Promise<object> {
  const bytes = await readFile(join(path, fileName));
  const artifact =
    mimeType === null ? { text: bytes.toString('utf8') } : { inlineData: { mimeType, data: bytes.toString('base64') } };
  return { filename: name, artifact, customMetadata };
}

/** The stored versions of all artifacts below a directory, by the artifact's name and version number. */
async function findVersions(root: string): Promise<Map<string, StoredVersion[]>> {
  const byName = new Map<string, StoredVersion[]>();
  if (!existsSync(root)) return byName;
  const entries = await readdir(root, { withFileTypes: true, recursive: true });
  const files = entries.filter((entry) => entry.isFile() && entry.name === 'metadata.json');
  for (const { parentPath } of files) {
    const [name = '', version = ''] = relative(root, parentPath).split(`${sep}versions${sep}`);
    const artifact = name.split(sep).join('/');
    const metadata = parseExactJson(
      await readFile(join(parentPath, 'metadata.json'), 'utf8'),
    ) as Partial<StoredVersion>;
    const versions = byName.get(artifact) ?? [];
    versions[Number(version)] = {
      path: parentPath,
      fileName: artifact.split('/').at(-1) ?? artifact,
      mimeType: metadata.mimeType ?? null,
      customMetadata: metadata.customMetadata ?? {},
    };
    byName.set(artifact, versions);
  }
  return new Map([...byName].map(([name, versions]) => [name, versions.filter((each) => each !== undefined)]));
}
