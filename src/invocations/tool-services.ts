import type { ToolServices } from '../agent/tool.ts';
import type { ArtifactVersion } from '../artifacts/artifact-version.ts';
import type { ContentStore } from '../artifacts/content-store.ts';
import { loadArtifact } from '../artifacts/load-artifact.ts';
import { saveArtifact } from '../artifacts/save-artifact.ts';
import { listArtifactNames } from '../artifacts/store.ts';
import type { DatabasePool } from '../db/database.ts';
import { searchMemories } from '../memory/store.ts';
import type { SessionKey } from '../sessions/session.ts';

/** Most memories that one search of a tool gives the model. */
const MEMORY_LIMIT = 20;

/** Where the tools' artifacts and memories are. */
interface ToolContext {
  database: DatabasePool;
  contentStore: ContentStore;
}

/** What the tools of an invocation may reach: artifacts and memories of the session's own user, and nothing else. */
export const newToolServices = ({ database: { db }, contentStore }: ToolContext, key: SessionKey): ToolServices => ({
  saveArtifact: async (artifactName, part, customMetadata = {}) => {
    const text = await saveArtifact(db, contentStore, { ...key, artifactName }, part, customMetadata);
    return (JSON.parse(text) as ArtifactVersion).version;
  },
  loadArtifact: async (artifactName, version) =>
    (await loadArtifact(db, contentStore, { ...key, artifactName }, version))?.part,
  listArtifacts: () => listArtifactNames(db, key),
  searchMemory: (query) => searchMemories(db, key, query, MEMORY_LIMIT),
});
