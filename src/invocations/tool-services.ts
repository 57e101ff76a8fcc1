import type { ToolServices } from '../agent/tool.ts';
import { toArtifactContent } from '../artifacts/artifact-content.ts';
import type { ArtifactVersion } from '../artifacts/artifact-version.ts';
import { findArtifact, listArtifactNames, saveArtifactVersion } from '../artifacts/store.ts';
import type { Database } from '../db/database.ts';
import { searchMemories } from '../memory/store.ts';
import type { SessionKey } from '../sessions/session.ts';

/** Most memories that one search of a tool gives the model. */
const MEMORY_LIMIT = 20;

/** What the tools of an invocation may reach: artifacts and memories of the session's own user, and nothing else. */
export const newToolServices = (db: Database, key: SessionKey): ToolServices => ({
  saveArtifact: async (artifactName, part, customMetadata = {}) => {
    const text = await saveArtifactVersion(db, { ...key, artifactName }, toArtifactContent(part), customMetadata);
    return (JSON.parse(text) as ArtifactVersion).version;
  },
  loadArtifact: (artifactName, version) => findArtifact(db, { ...key, artifactName }, version),
  listArtifacts: () => listArtifactNames(db, key),
  searchMemory: (query) => searchMemories(db, key, query, MEMORY_LIMIT),
});
