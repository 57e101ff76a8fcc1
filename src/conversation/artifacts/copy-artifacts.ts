import type { SQL } from 'drizzle-orm';
import { isPassingFailure, TooLargeError } from '../../core/errors.ts';
import type { SessionKey } from '../../core/session.ts';
import type { Database } from '../../platform/db/database.ts';
import type { ContentObject, ContentStore } from './content-store.ts';
import {
  insertVersionCopies,
  isChosen,
  isCopied,
  listVersionsToCopy,
  type VersionChoice,
  type VersionCopy,
  type VersionToCopy,
} from './copied-version-store.ts';

/** Limits of a copy request, because a small request can cause large writes. */
const MAX_VERSIONS = 10_000;
const MAX_BYTES = 134_217_728;
const COPIED_AT_ONCE = 8;

type Store = { db: Database; contentStore: ContentStore };

/**
 * Copies a session's artifacts to another session of the user.
 * @param write - receives a function that inserts the copies
 * @throws {TooLargeError} if the limits of a copy request are exceeded
 * @throws {UnavailableError} if the object store does not answer
 */
export const copyArtifacts = <T>(
  store: Store,
  source: SessionKey,
  choice: VersionChoice,
  write: (insert: (tx: Database, sessionId: string) => Promise<number>) => Promise<T>,
): Promise<T> =>
  withCopies(store, source, isChosen(choice), (copies) =>
    write(async (tx, sessionId) =>
      copies.length === 0 ? 0 : (await insertVersionCopies(tx, source, { sessionId }, copies)).length,
    ),
  );

/**
 * Saves earlier artifact versions as new versions: for each name the given version, or an empty version if the number
 * is null or the version was deleted.
 * @throws like {@link copyArtifacts}
 */
export async function restoreArtifacts(
  store: Store,
  key: SessionKey,
  leaseToken: string,
  versions: Record<string, number | null>,
): Promise<Record<string, number>> {
  const names = Object.keys(versions);
  if (names.length === 0) return {};
  checkCount(names.length, 0);
  const restored = await withCopies(store, key, isCopied(versions), (copies) => {
    const byName = new Map(copies.map((copy) => [copy.name, copy]));
    const all = names.map((name) => byName.get(name) ?? { name, version: undefined, object: undefined });
    return insertVersionCopies(store.db, key, { ...key, leaseToken }, all);
  });
  return Object.fromEntries(restored.map(({ name, version }) => [name, version]));
}

/** Copies objects outside of any transaction, then writes rows. If a row cannot be written, removes the new objects. */
async function withCopies<T>(
  { db, contentStore }: Store,
  source: SessionKey,
  condition: SQL,
  write: (copies: VersionCopy[]) => Promise<T>,
): Promise<T> {
  const versions = await listVersionsToCopy(db, source, condition, MAX_VERSIONS + 1);
  checkCount(
    versions.length,
    versions.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0),
  );
  const copies: VersionCopy[] = [];
  let isWritten = false;
  try {
    for (let from = 0; from < versions.length; from += COPIED_AT_ONCE) {
      const results = await Promise.allSettled(
        versions.slice(from, from + COPIED_AT_ONCE).map(async (version) => {
          copies.push({ ...version, object: await copyObject(contentStore, version) });
        }),
      );
      const failure = results.find((result) => result.status === 'rejected');
      if (failure) throw failure.reason;
    }
    isWritten = true;
    return await write(copies);
  } catch (error) {
    // After a connection failure the rows may have been committed, so their objects are kept.
    const keys = copies.flatMap(({ object }) => object?.key ?? []);
    if (!isWritten || !isPassingFailure(error)) await contentStore.remove(keys).catch(() => undefined);
    throw error;
  }
}

function checkCount(versions: number, bytes: number): void {
  if (versions > MAX_VERSIONS || bytes > MAX_BYTES)
    throw new TooLargeError(`At most ${MAX_VERSIONS} versions of artifacts, ${MAX_BYTES} bytes together, are copied.`);
}

async function copyObject(
  contentStore: ContentStore,
  { objectKey, sizeBytes: bytes, sha256 }: VersionToCopy,
): Promise<ContentObject | undefined> {
  if (objectKey === null) return undefined;
  const content = await contentStore.load({ content: undefined, objectKey, bytes, sha256 });
  return content && contentStore.save(content);
}
