import type { Database } from '../db/database.ts';
import type { Part } from '../core/content.ts';
import { toPart } from './artifact-content.ts';
import type { ContentStore } from './content-store.ts';
import { type ArtifactKey, findStoredArtifact } from './artifact-store.ts';

/** A version of an artifact with its bytes, which a reference to a file elsewhere has none of. */
export interface LoadedArtifact {
  part: Part;
  bytes: Buffer | undefined;
  mimeType: string | undefined;
}

/** The given or the latest version of an artifact; `undefined` where there is none. */
export async function loadArtifact(
  db: Database,
  contentStore: ContentStore,
  key: ArtifactKey,
  version?: number,
): Promise<LoadedArtifact | undefined> {
  const stored = await findStoredArtifact(db, key, version);
  if (!stored) return undefined;
  const bytes = await contentStore.load(stored);
  return { part: toPart(stored.part, bytes), bytes, mimeType: stored.mimeType };
}
