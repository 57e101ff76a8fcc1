import type { ToolServices } from '../agent/definition/services.ts';
import type { ArtifactVersion } from '../conversation/artifacts/artifact.ts';
import { loadArtifact, saveArtifact } from '../conversation/artifacts/artifacts.ts';
import { listArtifactNames } from '../conversation/artifacts/artifact-store.ts';
import { AgentError, AppError, InvalidError, isPassingFailure, sizeRefusal } from '../core/errors.ts';
import type { InvocationContext } from './context.ts';
import { persist } from './persist.ts';
import type { Log } from '../platform/log.ts';
import { identifierSchema, type SessionKey } from '../core/session.ts';
import { parseExactJson } from '../core/exact-json.ts';
import { isResultArtifact } from '../core/names.ts';

type Memory = Awaited<ReturnType<ToolServices['searchMemory']>>[number];

/** Milliseconds of retrying a tool's read while the database is not available. Saves may have succeeded: no retry. */
const READ_PATIENCE_MS = 2_000;

const NO_NAME =
  'The artifact cannot have this name: 1 to 256 characters, none of control, no `.` or `..` between slashes.';

/**
 * Returns the services that tools may use on behalf of the invocation's user. Writes require the session's lease.
 * @param key - the session of the user; default: that of the lease, which in a child session is another one
 */
export function newToolServices(
  context: Pick<InvocationContext, 'database' | 'contentStore' | 'log' | 'memory'>,
  lease: { key: SessionKey; token: string },
  key: SessionKey = lease.key,
): ToolServices {
  const { contentStore, log } = context;
  const { db } = context.database;
  // What a tool of a child gave that is too large for a prompt is read by that child alone, and goes with it.
  const placeOf = (artifactName: string) => ({ ...(isResultArtifact(artifactName) ? lease.key : key), artifactName });
  const read = <T>(work: () => Promise<T>) => persist(work, READ_PATIENCE_MS).catch((error) => fail(error, log));
  return {
    saveArtifact: async (artifactName, part, customMetadata = {}) => {
      if (!identifierSchema.safeParse(artifactName).success) throw new InvalidError(NO_NAME);
      const saved = saveArtifact(db, contentStore, placeOf(artifactName), part, customMetadata, lease.token, lease.key);
      const text = await saved.catch((error: unknown) => fail(error, log));
      return (parseExactJson(text) as ArtifactVersion).version;
    },
    loadArtifact: async (artifactName, version, maxBytes) =>
      (await read(() => loadArtifact(db, contentStore, placeOf(artifactName), version, maxBytes)))?.part,
    listArtifacts: () => read(() => listArtifactNames(db, key)),
    searchMemory: async (query) => {
      const found = context.memory?.search(key, query).catch((error: unknown) => fail(error, log));
      const texts = (await found) ?? [];
      return texts.map((text) => parseExactJson(text) as Memory);
    },
  };
}

/** Throws an error that is safe for the model and the session: without SQL text and values. */
function fail(error: unknown, log: Log): never {
  if (error instanceof AppError) throw error;
  const full = sizeRefusal(error);
  if (full) throw new AgentError(full.code, full.message, { cause: error });
  if (isPassingFailure(error))
    throw new AgentError('unavailable', 'The database is not available for now.', { cause: error });
  log.error({ err: error }, 'a tool failed at the database');
  throw new AgentError('tool_failed', 'The tool failed.', { cause: error });
}
