import type { Database } from '../../platform/db/database.ts';
import type { JsonObject, Part } from '../../core/content.ts';
import type { Log } from '../../platform/log.ts';
import { isPassingFailure, TooLargeError } from '../../core/errors.ts';
import { toArtifactContent, toPart } from './artifact-content.ts';
import { type ArtifactKey, deleteArtifactVersions, findStoredArtifact, saveArtifactVersion } from './artifact-store.ts';
import { INT32_MAX } from '../../platform/http/operation/parameters.ts';
import type { ContentStore } from './content-store.ts';

/**
 * Saves the next version of an artifact and returns its ArtifactVersion as JSON text. Bytes first, row second: a
 * crash between them leaves an object that nothing names, and no half version. The object stays after a failure of
 * the connection too, because the row may have been written although its answer was lost.
 * @throws {InvalidError} for a part without content. @throws {TooLargeError} for more bytes than allowed.
 * @throws {LeaseLostError} when `leaseToken`, an invocation's, is no longer the session's.
 */
export async function saveArtifact(
  db: Database,
  contentStore: ContentStore,
  key: ArtifactKey,
  part: Part,
  customMetadata: JsonObject,
  leaseToken?: string,
): Promise<string> {
  const content = toArtifactContent(part);
  const object = content.bytes && (await contentStore.save(content.bytes));
  return saveArtifactVersion(db, key, content, customMetadata, object, leaseToken).catch(async (error: unknown) => {
    if (object && !isPassingFailure(error)) await contentStore.remove([object.key]).catch(() => undefined);
    throw error;
  });
}

/** A version of an artifact with its bytes, which a reference to a file elsewhere has none of. */
export interface LoadedArtifact {
  part: Part;
  bytes: Buffer | undefined;
  mimeType: string | undefined;
}

/**
 * The given or the latest version of an artifact; `undefined` where there is none.
 * @throws {TooLargeError} for one of more than `maxBytes`, which is then not read.
 */
export async function loadArtifact(
  db: Database,
  contentStore: ContentStore,
  key: ArtifactKey,
  version?: number,
  maxBytes = INT32_MAX,
): Promise<LoadedArtifact | undefined> {
  const stored = await findStoredArtifact(db, key, version, maxBytes);
  if (!stored) return undefined;
  if (stored.bytes > maxBytes) throw new TooLargeError(`The artifact has ${stored.bytes} bytes.`);
  try {
    const bytes = await contentStore.load(stored);
    return { part: toPart(stored.part, bytes), bytes, mimeType: stored.mimeType };
  } catch (error) {
    const now = await findStoredArtifact(db, key, version, 0);
    if (now?.objectKey === stored.objectKey) throw error;
    // Deleted since its row was read: it is what it is now.
    return loadArtifact(db, contentStore, key, version, maxBytes);
  }
}

/** Deletes all versions of an artifact, rows first: no reader sees a version without its bytes. */
export async function deleteArtifact(
  { db, contentStore, log }: { db: Database; contentStore: ContentStore; log: Log },
  key: ArtifactKey,
): Promise<void> {
  const objectKeys = await deleteArtifactVersions(db, key);
  await contentStore.remove(objectKeys).catch((error: unknown) => {
    log.error({ err: error, objectKeys }, 'objects of a deleted artifact are left in the store');
  });
}
