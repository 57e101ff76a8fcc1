import { type SQL, sql } from 'drizzle-orm';
import { canonicalUriPrefix, NEXT_NUMBER } from './artifact-store.ts';
import type { ContentObject, ContentStore } from './artifact.ts';
import { isSession, sessionLock } from '../sessions/session-row.ts';
import { limitedBytes } from '../storage/storage-store.ts';
import { ConflictError, isPassingFailure, LeaseLostError, TooLargeError } from '../../core/errors.ts';
import type { SessionKey } from '../../core/session.ts';
import { type Database, onConflict } from '../../platform/db/database.ts';
import { artifacts, artifactVersions } from '../../platform/db/schema/schema.ts';
import { insertSelect, names } from '../../platform/db/sql.ts';
import { escapeJson } from '../../platform/json-escape.ts';

/** Selects the artifact versions that existed at a fork point; see `ForkPoint`. */
interface VersionChoice {
  nextTime: string | null;
  saved: Record<string, number>;
  savedLater: Record<string, number>;
}

interface VersionToCopy {
  name: string;
  version: number;
  sizeBytes: number;
  objectKey: string | null;
  sha256: Buffer;
}

const v = artifactVersions;

/** SQL: the number in `versions` (version numbers by artifact name) for the row's artifact; null if there is none. */
const versionIn = (versions: Record<string, number | null>): SQL =>
  sql`(${escapeJson(versions)}::jsonb ->> ${v.artifactName})::numeric`;

const isCopied = (versions: Record<string, number | null>): SQL => sql`${v.version} = ${versionIn(versions)}`;

/** SQL condition: the row's version existed at the fork point. */
function isChosen({ nextTime, saved, savedLater }: VersionChoice): SQL {
  const wasThere = sql`${nextTime}::timestamptz is null or ${v.createTime} < ${nextTime}::timestamptz`;
  const isOlder = sql`coalesce(${v.version} < ${versionIn(savedLater)}, true)`;
  return sql`(${v.version} <= ${versionIn(saved)} or ((${wasThere}) and ${isOlder}))`;
}

async function listVersionsToCopy(
  db: Database,
  key: SessionKey,
  condition: SQL,
  limit: number,
): Promise<VersionToCopy[]> {
  const { rows } = await db.execute<VersionToCopy & Record<string, unknown>>(sql`
    select ${v.artifactName} as name, ${v.version} as version, ${v.sizeBytes} as "sizeBytes",
           ${v.objectKey} as "objectKey", ${v.sha256} as sha256
    from ${v} where ${isSession(key, v)} and ${condition} limit ${limit}`);
  return rows;
}

/**
 * A version to insert. An undefined `version` inserts an empty one; `object` is set if the bytes are in the object
 * store.
 */
interface VersionCopy {
  name: string;
  version: number | undefined;
  object: ContentObject | undefined;
}

/**
 * Copies artifact versions of a session in a single statement: into another session of the user with unchanged numbers,
 * or, with an invocation's `leaseToken`, as new versions in the same session.
 * @throws {ConflictError} if the other session already has an artifact with one of these names
 * @throws {LeaseLostError} if the session has another lease
 */
export async function insertVersionCopies(
  db: Database,
  source: SessionKey,
  { sessionId, leaseToken }: { sessionId: string; leaseToken?: string },
  copies: VersionCopy[],
): Promise<{ name: string; version: number }[]> {
  const inputs = copies.map(({ name, version, object }) => ({
    name,
    version,
    prefix: canonicalUriPrefix({ ...source, sessionId, artifactName: name }),
    uri: object?.uri,
    key: object?.key,
  }));
  const owner = { appName: sql`${source.appName}`, userId: sql`${source.userId}`, sessionId: sql`${sessionId}` };
  const [next, onConflictSql, version, createTime] =
    leaseToken === undefined
      ? [sql`max(version) + 1`, sql``, sql`kept.version`, sql`kept.create_time`]
      : [sql`1`, NEXT_NUMBER, sql`named.last`, sql`clock_timestamp()`];
  const artifactRows = insertSelect(artifacts, { ...owner, name: sql`name`, nextVersion: next });
  const versionRows = insertSelect(artifactVersions, {
    ...owner,
    artifactName: sql`kept.name`,
    version,
    canonicalUri: sql`coalesce(kept.uri, kept.prefix || ${version})`,
    mimeType: sql`kept.mime_type`,
    customMetadata: sql`kept.custom_metadata`,
    part: sql`kept.part`,
    content: sql`kept.content`,
    objectKey: sql`kept.key`,
    sizeBytes: sql`kept.size_bytes`,
    sha256: sql`kept.sha256`,
    createTime,
  });
  const inserted = db.execute<{ name: string; version: number }>(sql`
    with given as materialized (
      select g.* from jsonb_to_recordset(${escapeJson(inputs)}::jsonb)
        as g(name text, version int, prefix text, uri text, key text)
        ${leaseToken === undefined ? sql`` : sql`, (${sessionLock(source, leaseToken)}) held`}),
    kept as materialized (
      select given.name, prefix, uri, key, was.* from given cross join lateral (
        select ${COPIED} from ${v}
        where ${isSession(source, v)} and ${v.artifactName} = given.name and ${v.version} = given.version
        union all
        select null, ${EMPTY}, '{}', jsonb_build_object('inlineData', jsonb_build_object('mimeType', ${EMPTY})),
               '', 0, sha256(''), null where given.version is null) was),
    checked as materialized (
      select ${limitedBytes(db, source, sql`sum(artifact_size(size_bytes, part, custom_metadata))::bigint`)} from kept),
    named as (
      ${artifactRows} from kept, checked group by name order by name ${onConflictSql}
      returning ${names(artifacts.name)}, ${artifacts.nextVersion} - 1 as last)
    ${versionRows} from kept join named on named.name = kept.name returning ${v.artifactName} as name, ${v.version}`);
  const { rows } = await onConflict(
    inserted,
    'artifacts_pkey',
    () => new ConflictError(`A former session ${sessionId} has left artifacts: choose another id.`),
  );
  if (leaseToken !== undefined && rows.length === 0)
    throw new LeaseLostError(`The invocation no longer holds session ${sessionId}.`);
  return rows;
}

const COPIED = names(v.version, v.mimeType, v.customMetadata, v.part, v.content, v.sizeBytes, v.sha256, v.createTime);
/** MIME type of the empty version with which ADK, too, restores an artifact that did not exist at that point. */
const EMPTY = sql`'application/octet-stream'::text`;

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
  const artifactNames = Object.keys(versions);
  if (artifactNames.length === 0) return {};
  checkCount(artifactNames.length, 0);
  const restored = await withCopies(store, key, isCopied(versions), (copies) => {
    const byName = new Map(copies.map((copy) => [copy.name, copy]));
    const all = artifactNames.map((name) => byName.get(name) ?? { name, version: undefined, object: undefined });
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
