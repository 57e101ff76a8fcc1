import type { Database } from '../db/database.ts';
import type { JsonObject, Part } from '../core/content.ts';
import { toArtifactContent } from './artifact-content.ts';
import type { ContentStore } from './content-store.ts';
import { type ArtifactKey, saveArtifactVersion } from './artifact-store.ts';

/**
 * Saves the next version of an artifact and returns its ArtifactVersion as JSON text. Bytes first, row second: a crash between
 * them leaves an object that nothing names, and no half version. The object stays after a failure too, because the row may have
 * been written although its answer was lost.
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
  return saveArtifactVersion(db, key, content, customMetadata, object, leaseToken);
}
