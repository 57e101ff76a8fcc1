import { createHash } from 'node:crypto';
import { sql } from 'drizzle-orm';
import type { Database, DatabasePool } from '../../platform/db/database.ts';
import type { JsonObject, Part } from '../../core/content.ts';
import type { Log } from '../../platform/log.ts';
import { isPassingFailure, TooLargeError } from '../../core/errors.ts';
import type { SessionKey } from '../../core/session.ts';
import { type ContentStore, toArtifactContent, toPart } from './artifact.ts';
import type { Counts, User } from '../../platform/feature/feature.ts';
import {
  type ArtifactKey,
  canonicalUriPrefix,
  deleteArtifactVersions,
  deleteLeftResults,
  deleteVersionsInObjects,
  findStoredArtifact,
  rangesOfVersions,
  saveArtifactVersion,
} from './artifact-store.ts';
import { limitedBytes } from '../storage/storage-store.ts';
import { INT32_MAX } from '../../platform/http/operation/parameters.ts';

/**
 * An artifact's bytes are stored before its row, so a crash leaves an unreferenced object, never an incomplete version.
 * After a connection failure the object is kept, because the row may have been committed.
 * @throws {InvalidError} for a part without content
 * @throws {TooLargeError} if the content exceeds the size limit
 * @throws {LeaseLostError} if `leaseToken` is no longer the session's lease
 */
export async function saveArtifact(
  db: Database,
  contentStore: ContentStore,
  key: ArtifactKey,
  part: Part,
  customMetadata: JsonObject,
  leaseToken?: string,
  leased?: SessionKey,
): Promise<string> {
  const content = toArtifactContent(part);
  const object = content.bytes && (await contentStore.save(content.bytes));
  return saveArtifactVersion(db, key, content, customMetadata, object, leaseToken, leased).catch(
    async (error: unknown) => {
      if (object && !isPassingFailure(error)) await contentStore.remove([object.key]).catch(() => undefined);
      throw error;
    },
  );
}

/**
 * Makes version 0 of a new artifact for the SQL function `record_calls`, which stores it with an event. As in
 * {@link saveArtifact}, an object is stored first. The user's storage is compared before, so that the event need not
 * fail; the statement that stores the version compares it again.
 * @throws {TooLargeError} if the content exceeds the size limit
 */
export async function toFirstVersion(
  db: Database,
  contentStore: ContentStore,
  key: ArtifactKey,
  given: Part,
  metadata: JsonObject,
): Promise<JsonObject> {
  const { part, bytes = Buffer.alloc(0), mimeType } = toArtifactContent(given);
  await db.execute(sql`select ${limitedBytes(db, key, sql`${bytes.length}::bigint`)}`);
  const object = await contentStore.save(bytes);
  return {
    artifact: key.artifactName,
    uri: object ? object.uri : `${canonicalUriPrefix(key)}0`,
    mimeType,
    metadata,
    part,
    bytes: bytes.length,
    sha256: createHash('sha256').update(bytes).digest('base64'),
    ...(object ? { objectKey: object.key } : { content: bytes.toString('base64') }),
  };
}

/** An artifact version with its bytes; the bytes are `undefined` for a reference to an external file. */
export interface LoadedArtifact {
  part: Part;
  bytes: Buffer | undefined;
  mimeType: string | undefined;
}

/** Loads an artifact, by default its latest version. @throws {TooLargeError} before reading more than `maxBytes` */
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
    // The version was deleted after its row was read, so the row is read again.
    return loadArtifact(db, contentStore, key, version, maxBytes);
  }
}

/** Deletes an artifact: its rows before its objects, so that no reader finds a version without bytes. */
export async function deleteArtifact(
  { db, contentStore, log }: { db: Database; contentStore: ContentStore; log: Log },
  key: ArtifactKey,
): Promise<void> {
  const objectKeys = await deleteArtifactVersions(db, key);
  await contentStore.remove(objectKeys).catch((error: unknown) => {
    log.error({ err: error, objectKeys }, 'objects of a deleted artifact are left in the store');
  });
}

const OBJECTS_AT_ONCE = 10;

/**
 * Deletes stored files of a user, and in the same transaction the rows that reference them: after an interruption the
 * rows still reference the files, and the next try deletes them. A concurrent legal hold waits for the commit.
 */
export const deleteObjects = async (context: ObjectContext, user: User): Promise<Counts> => {
  const objects = await removeObjects(context, (tx) => deleteVersionsInObjects(tx, user, OBJECTS_AT_ONCE));
  return objects === 0 ? {} : { objects, artifact_versions: objects };
};

/** Deletes the large results of tools in a bucket whose session was deleted, as {@link deleteObjects} does. */
export async function removeLeftResults(context: ObjectContext & { signal?: AbortSignal | undefined }): Promise<void> {
  const { database, contentStore, signal } = context;
  if (!contentStore.isBucket) return;
  for await (const range of rangesOfVersions(database.db, signal))
    while ((await removeObjects(context, (tx) => deleteLeftResults(tx, range, OBJECTS_AT_ONCE))) > 0)
      if (signal?.aborted) return;
}

interface ObjectContext {
  database: DatabasePool;
  contentStore: ContentStore;
}

const removeObjects = (
  { database, contentStore }: ObjectContext,
  deleteRows: (tx: Database) => Promise<string[]>,
): Promise<number> =>
  database.transaction(async (tx) => {
    const keys = await deleteRows(tx);
    if (keys.length === 0) return 0;
    await tx.execute(sql`set local idle_in_transaction_session_timeout = 0`);
    await contentStore.remove(keys);
    return keys.length;
  });
