import type { Database } from '../db/database.ts';
import type { Log } from '../core/log.ts';
import type { ContentStore } from './content-store.ts';
import { type ArtifactKey, deleteArtifactVersions } from './artifact-store.ts';

/**
 * Deletes all versions of an artifact; deleting what is not there does nothing. Rows first, objects second: nobody ever sees a
 * version without its bytes. Objects that could not be removed are named in the log.
 */
export async function deleteArtifact(
  { db, contentStore, log }: { db: Database; contentStore: ContentStore; log: Log },
  key: ArtifactKey,
): Promise<void> {
  const objectKeys = await deleteArtifactVersions(db, key);
  await contentStore.remove(objectKeys).catch((error: unknown) => {
    log.error({ err: error, objectKeys }, 'objects of a deleted artifact are left in the store');
  });
}
