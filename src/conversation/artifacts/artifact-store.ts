import { and, desc, eq, inArray, isNotNull, sql, type SQL } from 'drizzle-orm';
import { createHash } from 'node:crypto';
import { type ArtifactContent, type ContentObject, type StoredContent, USER_ARTIFACT_PREFIX } from './artifact.ts';
import { isOnHold } from '../holds/hold-store.ts';
import { getSession, isSession, sessionLock } from '../sessions/session-row.ts';
import { limitedBytes } from '../storage/storage-store.ts';
import type { JsonObject, Part } from '../../core/content.ts';
import { LeaseLostError } from '../../core/errors.ts';
import { RESULT_ARTIFACTS } from '../../core/names.ts';
import type { SessionKey } from '../../core/session.ts';
import type { Database } from '../../platform/db/database.ts';
import { artifacts, artifactVersions } from '../../platform/db/schema/schema.ts';
import { assignments, getKey, insertSelect, names } from '../../platform/db/sql.ts';
import { statement, value } from '../../platform/db/statement.ts';
import { userRanges } from '../../platform/db/user-ranges.ts';
import { INT32_MAX } from '../../platform/http/operation/parameters.ts';
import { escapeJson, unescapeJson } from '../../platform/json-escape.ts';
import { type ArrayPage, type JsonStream, toArrayStream } from '../../platform/json-stream.ts';

/** An artifact's key. An artifact whose name starts with `user:` belongs to the user; then `sessionId` is ignored. */
export interface ArtifactKey extends SessionKey {
  artifactName: string;
}

/** Value of the column `session_id`: empty for a user's artifact. */
const toScope = ({ sessionId, artifactName }: ArtifactKey) =>
  artifactName.startsWith(USER_ARTIFACT_PREFIX) ? '' : sessionId;

const belongsTo = (key: ArtifactKey) =>
  and(
    isSession({ ...key, sessionId: toScope(key) }, artifactVersions),
    eq(artifactVersions.artifactName, key.artifactName),
  );

const isOfUser = ({ appName, userId }: Pick<SessionKey, 'appName' | 'userId'>) =>
  and(eq(artifactVersions.appName, appName), eq(artifactVersions.userId, userId));

/** SQL: the JSON of an artifact version, as the API returns it. */
const versionText = sql<string>`
  '{"version":' || ${artifactVersions.version} || ',"canonicalUri":' || to_json(${artifactVersions.canonicalUri}) ||
  ',"customMetadata":' || ${artifactVersions.customMetadata} ||
  ',"createTime":' || extract(epoch from ${artifactVersions.createTime}) ||
  case when ${artifactVersions.mimeType} is null then ''
       else ',"mimeType":' || to_json(${artifactVersions.mimeType}) end || '}'`;

/** Common prefix of the URIs of an artifact's versions, escaped so that two artifacts never share a URI. */
export function canonicalUriPrefix(key: ArtifactKey): string {
  const segment = encodeURIComponent;
  const user = `postgres://apps/${segment(key.appName)}/users/${segment(key.userId)}`;
  const scope = toScope(key) === '' ? user : `${user}/sessions/${segment(key.sessionId)}`;
  return `${scope}/artifacts/${segment(key.artifactName)}/versions/`;
}

/** SQL: completes an insert into `artifacts` to an upsert that assigns the artifact's next version number. */
export const NEXT_NUMBER = sql`
  on conflict (${names(artifacts.appName, artifacts.userId, artifacts.sessionId, artifacts.name)})
    do update set ${assignments(artifacts, { nextVersion: sql`${artifacts.nextVersion} + 1` })}`;

/**
 * Stores a version's bytes in its row, or the key of its `object` in the object store. A single statement: the upsert
 * of the row locks it and assigns the version number, so that concurrent saves get unique, increasing numbers.
 * @returns the ArtifactVersion as JSON
 * @param leased - the session of the lease, if it is not that of the artifact
 * @throws {LeaseLostError} if `leaseToken` is not its lease
 */
export async function saveArtifactVersion(
  db: Database,
  key: ArtifactKey,
  content: ArtifactContent,
  customMetadata: JsonObject,
  object?: ContentObject,
  leaseToken?: string,
  leased: SessionKey = key,
): Promise<string> {
  const bytes = content.bytes ?? Buffer.alloc(0);
  const { appName, userId } = key;
  const sessionId = toScope(key);
  const numbered = insertSelect(artifacts, { appName, userId, sessionId, name: key.artifactName, nextVersion: 1 });
  const version = insertSelect(artifactVersions, {
    appName,
    userId,
    sessionId,
    artifactName: key.artifactName,
    version: sql`numbered.version`,
    canonicalUri: object ? object.uri : sql`${canonicalUriPrefix(key)} || numbered.version`,
    mimeType: content.mimeType ?? null,
    customMetadata: sql`given.metadata`,
    part: sql`given.part`,
    content: object ? null : (content.bytes ?? null),
    objectKey: object?.key ?? null,
    sizeBytes: bytes.length,
    sha256: createHash('sha256').update(bytes).digest(),
  });
  const { rows } = await db.execute<{ text: string }>(sql`
    with ${leaseToken ? sql`held as materialized (${sessionLock(leased, leaseToken)}),` : sql``}
    given as materialized (
      select ${escapeJson(content.part)}::jsonb as part, ${escapeJson(customMetadata)}::jsonb as metadata),
    checked as materialized (
      select ${limitedBytes(db, key, sql`artifact_size(${bytes.length}::bigint, part, metadata)`)}
      from given ${leaseToken ? sql`, held` : sql``}),
    numbered as (${numbered} from checked ${NEXT_NUMBER} returning ${artifacts.nextVersion} - 1 as version)
    ${version} from numbered, given returning ${versionText} as text`);
  const row = rows[0];
  if (!row) throw new LeaseLostError(`The invocation no longer holds session ${key.sessionId}.`);
  return unescapeJson(row.text);
}

export async function findArtifactVersionText(
  db: Database,
  key: ArtifactKey,
  version: number,
): Promise<string | undefined> {
  if (!isVersion(version)) return undefined;
  const { appName, userId, artifactName } = key;
  const [row] = await selectVersionText(db, { appName, userId, sessionId: toScope(key), artifactName, version });
  return row && unescapeJson(row.text);
}

const selectVersionText = statement<{ text: string }>(
  () => sql`
    select ${versionText} as text from ${artifactVersions}
    where ${artifactVersions.appName} = ${value('appName')} and ${artifactVersions.userId} = ${value('userId')}
      and ${artifactVersions.sessionId} = ${value('sessionId')}
      and ${artifactVersions.artifactName} = ${value('artifactName')}
      and ${artifactVersions.version} = ${value('version')}`,
);

/** The row of an artifact version: the part without its bytes, and where the bytes are stored. */
interface StoredArtifact extends StoredContent {
  part: Part;
  mimeType: string | undefined;
}

/** Finds a version of an artifact, by default the latest. Content of more than `maxBytes` bytes is left out. */
export async function findStoredArtifact(
  db: Database,
  key: ArtifactKey,
  version?: number,
  maxBytes = INT32_MAX,
): Promise<StoredArtifact | undefined> {
  if (version !== undefined && !isVersion(version)) return undefined;
  const { mimeType, sizeBytes: bytes, objectKey, sha256 } = artifactVersions;
  const isRead = sql`${bytes} <= ${maxBytes}`;
  const content = sql<Buffer | null>`case when ${isRead} then ${artifactVersions.content} end`;
  const part = sql<Part>`case when ${isRead} then ${artifactVersions.part} else '{}' end`;
  const [row] = await db
    .select({ part, mimeType, bytes, content, objectKey, sha256 })
    .from(artifactVersions)
    .where(and(belongsTo(key), version === undefined ? undefined : eq(artifactVersions.version, version)))
    .orderBy(desc(artifactVersions.version))
    .limit(1);
  return (
    row && {
      part: row.part,
      bytes: row.bytes,
      mimeType: row.mimeType ?? undefined,
      content: row.content ?? undefined,
      objectKey: row.objectKey ?? undefined,
      sha256: row.sha256,
    }
  );
}

/** Lists an artifact's version numbers, ascending; empty if it does not exist. */
export async function listArtifactVersions(db: Database, key: ArtifactKey): Promise<number[]> {
  const rows = await db
    .select({ version: artifactVersions.version })
    .from(artifactVersions)
    .where(belongsTo(key))
    .orderBy(artifactVersions.version);
  return rows.map(({ version }) => version);
}

/** Maximum number of versions per page, and maximum bytes of their JSON; the first version may exceed it. */
const PAGE_ROWS = 32;
const PAGE_BYTES = 4_194_304;

/** An artifact's versions as a JSON array, ascending; read by page, because custom metadata may be large. */
export const listArtifactVersionsText = (db: Database, key: ArtifactKey): Promise<JsonStream> =>
  toArrayStream((after?: number) => readVersionsPage(db, key, after));

async function readVersionsPage(db: Database, key: ArtifactKey, after = -1): Promise<ArrayPage<number>> {
  const { rows } = await db.execute<{ text: string | null; version: number }>(sql`
    with page as materialized (
      select ${versionText} as text, ${artifactVersions.version} as version from ${artifactVersions}
      where ${belongsTo(key)} and ${artifactVersions.version} > ${after}
      order by ${artifactVersions.version} limit ${PAGE_ROWS} + 1),
    sized as (
      select page.*, row_number() over listed as n, sum(octet_length(text)) over listed as bytes
      from page window listed as (order by version))
    select case when n = 1 or (n <= ${PAGE_ROWS} and bytes <= ${PAGE_BYTES}) then text end as text, version
    from sized order by version`);
  const read = rows.filter(({ text }) => text !== null);
  const text = read.map((row) => unescapeJson(row.text ?? '')).join(',');
  return { text, next: read.length < rows.length ? read.at(-1)?.version : undefined };
}

/**
 * Deletes all versions; the artifact's row stays, so that their numbers are never reused.
 * @returns keys of the objects that must be removed
 */
export async function deleteArtifactVersions(db: Database, key: ArtifactKey): Promise<string[]> {
  const rows = await db
    .delete(artifactVersions)
    .where(belongsTo(key))
    .returning({ objectKey: artifactVersions.objectKey });
  return rows.flatMap(({ objectKey }) => objectKey ?? []);
}

/** A number outside PostgreSQL's `integer` is no version, and PostgreSQL would refuse to compare it with one. */
const isVersion = (version: number) => Number.isInteger(version) && version >= 0 && version <= INT32_MAX;

const PAGE_NAMES = 1_000;

/** A page of the names of a session's and its user's artifacts, sorted by code point, starting after a name. */
export async function listArtifactNames(
  db: Database,
  { appName, userId, sessionId }: SessionKey,
  after = '',
): Promise<string[]> {
  // A subquery per name uses the full key; a join would scan all versions of the user.
  const { rows } = await db.execute<{ name: string }>(sql`
    select page.name from unnest(array[${sessionId}, '']) as scope(id), lateral (
      select ${artifacts.name} as name from ${artifacts}
      where ${artifacts.appName} = ${appName} and ${artifacts.userId} = ${userId}
        and ${artifacts.sessionId} = scope.id and ${artifacts.name} > ${after} and (
          select ${artifactVersions.version} from ${artifactVersions}
          where ${isSession({ appName, userId, sessionId: artifacts.sessionId }, artifactVersions)}
            and ${artifactVersions.artifactName} = ${artifacts.name} limit 1) is not null
      order by ${artifacts.name} limit ${PAGE_NAMES}) page
    order by page.name limit ${PAGE_NAMES}`);
  return rows.map(({ name }) => name);
}

/** An artifact's position in the list of a user's artifacts; `sessionId` is empty for artifacts of the user. */
export type ArtifactPlace = Pick<ArtifactKey, 'appName' | 'sessionId' | 'artifactName'>;

/** Lists a user's artifacts in several applications, by application, session and name. */
export async function listArtifactsOfUser(
  db: Database,
  userId: string,
  { appNames, after, limit }: { appNames: string[]; after?: ArtifactPlace | undefined; limit: number },
): Promise<ArtifactPlace[]> {
  const { appName = '', sessionId = '', artifactName = '' } = after ?? {};
  const { rows } = await db.execute<ArtifactPlace & Record<string, unknown>>(sql`
    select ${artifacts.appName} as "appName", ${artifacts.sessionId} as "sessionId",
           ${artifacts.name} as "artifactName"
    from ${artifacts}
    where ${artifacts.appName} = any(${sql.param(appNames)}::text[]) and ${artifacts.userId} = ${userId}
      and (${artifacts.appName}, ${artifacts.sessionId}, ${artifacts.name})
          > (${appName}, ${sessionId}, ${artifactName})
      and exists (
        select from ${artifactVersions}
        where ${isSession({ appName: artifacts.appName, userId, sessionId: artifacts.sessionId }, artifactVersions)}
          and ${artifactVersions.artifactName} = ${artifacts.name})
    order by 1, 2, 3 limit ${limit}`);
  return rows;
}

export const listArtifactNamesText = (db: Database, key: SessionKey): Promise<JsonStream> =>
  toArrayStream(async (after?: string) => {
    const page = await listArtifactNames(db, key, after);
    const next = page.length === PAGE_NAMES ? page.at(-1) : undefined;
    return { text: JSON.stringify(page).slice(1, -1), next };
  });

/** Deletes at most `limit` versions of a user whose bytes are in the object store. @returns keys of their objects */
export async function deleteVersionsInObjects(
  db: Database,
  user: Pick<SessionKey, 'appName' | 'userId'>,
  limit: number,
): Promise<string[]> {
  const { objectKey } = artifactVersions;
  const some = db
    .select({ objectKey })
    .from(artifactVersions)
    .where(and(isOfUser(user), isNotNull(objectKey)))
    .limit(limit);
  const rows = await db
    .delete(artifactVersions)
    .where(and(isOfUser(user), inArray(objectKey, some)))
    .returning({ objectKey });
  return rows.flatMap((row) => row.objectKey ?? []);
}

const BATCH_ROWS = 100;

const v = artifactVersions;
export const rangesOfVersions = (db: Database, signal?: AbortSignal): AsyncGenerator<SQL, void, void> =>
  userRanges(db, v, { signal });

const oldVersions = (count: number, range: SQL): SQL => sql`
  select ranked.app_name, ranked.user_id, ranked.session_id, ranked.artifact_name, ranked.version from (
    select ${v.appName}, ${v.userId}, ${v.sessionId}, ${v.artifactName}, ${v.version},
           row_number() over (partition by ${v.appName}, ${v.userId}, ${v.sessionId}, ${v.artifactName}
                              order by ${v.version} desc) as place
    from ${v} where ${range}) ranked
  where ranked.place > ${count}::int
    and not ${isOnHold({
      appName: sql`ranked.app_name`,
      userId: sql`ranked.user_id`,
      sessionId: sql`ranked.session_id`,
    })}`;

/** Counts the artifact versions in a range of users, except the newest `count` versions of each artifact. */
export async function countOldVersions(db: Database, count: number, range: SQL): Promise<number> {
  const { rows } = await db.execute<{ n: number }>(
    sql`select count(*)::int as n from (${oldVersions(count, range)}) counted`,
  );
  return rows[0]?.n ?? 0;
}

export async function deleteOldVersions(
  db: Database,
  count: number,
  range: SQL,
): Promise<{ rows: number; objectKeys: string[] }> {
  const { rows } = await db.execute<{ key: string | null }>(sql`
    delete from ${v} where (${sql.join(getKey(v), sql`, `)}) in (${oldVersions(count, range)} limit ${BATCH_ROWS})
    returning ${v.objectKey} as key`);
  return { rows: rows.length, objectKeys: rows.flatMap(({ key }) => key ?? []) };
}

const ofSession = getSession(v);

/**
 * Deletes at most `limit` large results of tools whose bytes are in the object store and whose session is gone: the
 * trigger that deletes those in rows (`delete_results`) cannot delete an object. @returns keys of their objects
 */
export async function deleteLeftResults(tx: Database, range: SQL, limit: number): Promise<string[]> {
  const [from, to] = RESULT_ARTIFACTS;
  const { rows } = await tx.execute<{ key: string }>(sql`
    delete from ${v} where (${sql.join(getKey(v), sql`, `)}) in (
      select ${sql.join(getKey(v), sql`, `)} from ${v}
      left join ${ofSession.table} on ${ofSession.on}
      where ${range} and ${v.objectKey} is not null and ${v.customMetadata} ? 'callId'
        and ${v.artifactName} >= ${from} and ${v.artifactName} < ${to}
        and ${ofSession.isGone} and not ${isOnHold(v)}
      limit ${limit})
    returning ${v.objectKey} as key`);
  return rows.map(({ key }) => key);
}
