import { TooLargeError } from '../../core/errors.ts';
import type { SessionKey } from '../../core/session.ts';
import type { Database } from '../../platform/db/database.ts';
import { findStoredArtifact } from './artifact-store.ts';
import type { ContentObject, ContentStore } from './content-store.ts';
import {
  insertVersionCopies,
  listVersionsToCopy,
  type VersionChoice,
  type VersionCopy,
  type VersionToCopy,
} from './copied-version-store.ts';

/** Maximum number of versions, and of bytes, that one request copies: it is small, and what it writes is not. */
const MAX_VERSIONS = 1_000;
const MAX_BYTES = 134_217_728;

/**
 * Prepares copies of the artifacts of a session: objects in a bucket are copied now, outside of any transaction, and
 * stay without a name where the rest fails. What is returned inserts the copies into another session.
 * @throws {TooLargeError} for more than one request may copy. @throws {UnavailableError} when the bucket does not
 * answer.
 */
export async function copyArtifacts(
  db: Database,
  contentStore: ContentStore,
  source: SessionKey,
  choice: VersionChoice,
): Promise<(tx: Database, sessionId: string) => Promise<number>> {
  const versions = await listVersionsToCopy(db, source, choice, MAX_VERSIONS + 1);
  const bytes = versions.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  if (versions.length > MAX_VERSIONS || bytes > MAX_BYTES) {
    throw new TooLargeError(`At most ${MAX_VERSIONS} versions of artifacts, ${MAX_BYTES} bytes together, are copied.`);
  }
  const copies: VersionCopy[] = [];
  for (const version of versions) {
    copies.push({ ...version, object: await copyObject(db, contentStore, source, version) });
  }
  return (tx, sessionId) =>
    copies.length === 0 ? Promise.resolve(0) : insertVersionCopies(tx, source, sessionId, copies);
}

async function copyObject(
  db: Database,
  contentStore: ContentStore,
  source: SessionKey,
  { name, version, objectKey }: VersionToCopy,
): Promise<ContentObject | undefined> {
  if (objectKey === null) return undefined;
  const stored = await findStoredArtifact(db, { ...source, artifactName: name }, version);
  const bytes = stored && (await contentStore.load(stored));
  return bytes && contentStore.save(bytes);
}
