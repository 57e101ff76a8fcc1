import { sql } from 'drizzle-orm';
import { ConflictError } from '../../core/errors.ts';
import type { SessionKey } from '../../core/session.ts';
import { type Database, onConflict } from '../../platform/db/database.ts';
import { escapeJson } from '../../platform/db/json-escape.ts';
import { artifacts, artifactVersions } from '../../platform/db/schema/schema.ts';
import { insertSelect } from '../../platform/db/sql.ts';
import { canonicalUriPrefix } from './artifact-store.ts';
import type { ContentObject } from './content-store.ts';

/** Which versions of a session's artifacts are of a time, see `ForkPoint` of the sessions. */
export interface VersionChoice {
  nextTime: string | null;
  saved: Record<string, number>;
  savedLater: Record<string, number>;
}

/** A version that is to be copied. */
export interface VersionToCopy {
  name: string;
  version: number;
  sizeBytes: number;
  objectKey: string | null;
}

const v = artifactVersions;

/** The versions of a choice, by name and version; at most `limit`. Those of the user belong to no session. */
export async function listVersionsToCopy(
  db: Database,
  { appName, userId, sessionId }: SessionKey,
  { nextTime, saved, savedLater }: VersionChoice,
  limit: number,
): Promise<VersionToCopy[]> {
  const savedUntilThen = sql`${v.version} <= (${escapeJson(saved)}::jsonb ->> ${v.artifactName})::numeric`;
  const wasThere = sql`${nextTime}::timestamptz is null or ${v.createTime} < ${nextTime}::timestamptz`;
  const later = sql`(${escapeJson(savedLater)}::jsonb ->> ${v.artifactName})::numeric`;
  const { rows } = await db.execute<VersionToCopy & Record<string, unknown>>(sql`
    select ${v.artifactName} as name, ${v.version} as version, ${v.sizeBytes} as "sizeBytes",
           ${v.objectKey} as "objectKey"
    from ${v}
    where ${v.appName} = ${appName} and ${v.userId} = ${userId} and ${v.sessionId} = ${sessionId}
      and (${savedUntilThen} or ((${wasThere}) and coalesce(${v.version} < ${later}, true)))
    order by ${v.artifactName}, ${v.version} limit ${limit}`);
  return rows;
}

/** A copy: the version, and the object that holds its bytes where they are outside the database. */
export interface VersionCopy {
  name: string;
  version: number;
  object: ContentObject | undefined;
}

/**
 * Copies versions of a session's artifacts into another session of the user, with their numbers, in one statement: the
 * names first, so that it is they which are in conflict.
 * @returns how many there are. @throws {ConflictError} when that session has one of the artifacts.
 */
export async function insertVersionCopies(
  tx: Database,
  source: SessionKey,
  sessionId: string,
  copies: VersionCopy[],
): Promise<number> {
  const given = copies.map(({ name, version, object }) => ({
    name,
    version,
    uri: object?.uri ?? `${canonicalUriPrefix({ ...source, sessionId, artifactName: name })}${version}`,
    key: object?.key ?? null,
  }));
  const { appName, userId } = source;
  const owner = { appName: sql`${appName}`, userId: sql`${userId}`, sessionId: sql`${sessionId}` };
  const names = insertSelect(artifacts, {
    ...owner,
    name: sql`given.name`,
    nextVersion: sql`max(given.version) + 1`,
  });
  const versions = insertSelect(artifactVersions, {
    ...owner,
    artifactName: v.artifactName,
    version: v.version,
    canonicalUri: sql`given.uri`,
    mimeType: v.mimeType,
    customMetadata: v.customMetadata,
    part: v.part,
    content: v.content,
    objectKey: sql`given.key`,
    sizeBytes: v.sizeBytes,
    sha256: v.sha256,
    createTime: v.createTime,
  });
  const inserted = tx.execute<{ count: number }>(sql`
    with given as materialized (
      select * from jsonb_to_recordset(${escapeJson(given)}::jsonb) as g(name text, version int, uri text, key text)),
    named as (${names} from given group by given.name returning 1),
    copied as (
      ${versions} from given, ${v}
      where ${v.appName} = ${appName} and ${v.userId} = ${userId} and ${v.sessionId} = ${source.sessionId}
        and ${v.artifactName} = given.name and ${v.version} = given.version
        and (select count(*) from named) > 0
      returning 1)
    select count(*)::int as count from copied`);
  const { rows } = await onConflict(
    inserted,
    'artifacts_pkey',
    () => new ConflictError(`A former session ${sessionId} has left artifacts: choose another id.`),
  );
  return rows[0]?.count ?? 0;
}
