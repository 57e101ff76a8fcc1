import { createHash } from 'node:crypto';
import { type SQL, sql } from 'drizzle-orm';
import type { Database } from '../db/database.ts';
import { fromJsonb, fromText, toJsonb, toText } from '../db/json-escape.ts';
import { LeaseLostError } from '../core/errors.ts';
import type { JsonObject, Part } from '../core/content.ts';
import type { SessionKey } from '../core/session.ts';
import { type ArtifactContent, USER_ARTIFACT_PREFIX } from './artifact-content.ts';
import type { ContentObject, StoredContent } from './content-store.ts';

/** What names one artifact. A name with the prefix `user:` belongs to the user, whatever the session. */
export interface ArtifactKey extends SessionKey {
  artifactName: string;
}

/** Largest version number that the column can hold; a larger one in a request names nothing. */
const MAX_VERSION = 2_147_483_647;

/** The session column of an artifact: empty for an artifact of the user. */
const scopeOf = ({ sessionId, artifactName }: ArtifactKey) =>
  artifactName.startsWith(USER_ARTIFACT_PREFIX) ? '' : sessionId;

const isArtifact = (key: ArtifactKey, alias: SQL) =>
  sql`${alias}.app_name = ${key.appName} and ${alias}.user_id = ${key.userId} and ${alias}.session_id = ${scopeOf(key)}
      and ${alias}.artifact_name = ${key.artifactName}`;

/** The specification's ArtifactVersion as JSON text. */
const versionText = sql`
  '{"version":' || v.version || ',"canonicalUri":' || to_json(v.canonical_uri) || ',"customMetadata":' || v.custom_metadata ||
  ',"createTime":' || extract(epoch from v.create_time) ||
  case when v.mime_type is null then '' else ',"mimeType":' || to_json(v.mime_type) end || '}'`;

/** Where a version lives: the same for every client, built from escaped segments so that two names never share one. */
function canonicalUriPrefix(key: ArtifactKey): string {
  const segment = encodeURIComponent;
  const user = `postgres://apps/${segment(key.appName)}/users/${segment(key.userId)}`;
  const scope = scopeOf(key) === '' ? user : `${user}/sessions/${segment(key.sessionId)}`;
  return `${scope}/artifacts/${segment(key.artifactName)}/versions/`;
}

/**
 * Saves the next version of an artifact and returns its ArtifactVersion as JSON text; the bytes go into the row unless an object
 * holds them already. One statement: the upsert of the artifact
 * row locks it and hands out the number, so that concurrent saves get unique, rising numbers; number and content appear together.
 * With a `leaseToken` the save is an invocation's. @throws {LeaseLostError} when the session's lease is another's by then.
 */
export async function saveArtifactVersion(
  db: Database,
  key: ArtifactKey,
  content: ArtifactContent,
  customMetadata: JsonObject,
  object?: ContentObject,
  leaseToken?: string,
): Promise<string> {
  const bytes = content.bytes ?? Buffer.alloc(0);
  const uri = object ? sql`${object.uri}` : sql`${canonicalUriPrefix(key)} || version`;
  const mimeType = content.mimeType === undefined ? null : toText(content.mimeType);
  // Locked against a take-over, which is then before the save or after it.
  const held = leaseToken
    ? sql`held as materialized (
        select from sessions where app_name = ${key.appName} and user_id = ${key.userId} and id = ${key.sessionId}
          and lease_token = ${leaseToken} for key share),`
    : sql``;
  const fence = leaseToken ? sql`from held` : sql``;
  const { rows } = await db.execute<{ text: string }>(sql`
    with ${held} numbered as (
      insert into artifacts as a (app_name, user_id, session_id, name, next_version)
      select ${key.appName}, ${key.userId}, ${scopeOf(key)}, ${key.artifactName}, 1 ${fence}
      on conflict (app_name, user_id, session_id, name) do update set next_version = a.next_version + 1
      returning next_version - 1 as version
    ), v as (
      insert into artifact_versions (app_name, user_id, session_id, artifact_name, version, canonical_uri, mime_type,
                                     custom_metadata, part, content, object_key, size_bytes, sha256)
      select ${key.appName}, ${key.userId}, ${scopeOf(key)}, ${key.artifactName}, version, ${uri}, ${mimeType},
             ${toJsonb(customMetadata)}::jsonb, ${toJsonb(content.part)}::jsonb,
             ${object ? null : (content.bytes ?? null)}, ${object?.key ?? null}, ${bytes.length},
             ${createHash('sha256').update(bytes).digest()}
      from numbered
      returning *
    )
    select ${versionText} as text from v`);
  const row = rows[0];
  if (!row) throw new LeaseLostError(`The invocation no longer holds session ${key.sessionId}.`);
  return fromJsonb(row.text);
}

/** The ArtifactVersion of one version as JSON text, in one statement that never reads the content. */
export async function findArtifactVersionText(
  db: Database,
  key: ArtifactKey,
  version: number,
): Promise<string | undefined> {
  if (!isVersion(version)) return undefined;
  const { rows } = await db.execute<{ text: string }>(
    sql`select ${versionText} as text from artifact_versions v where ${isArtifact(key, sql`v`)} and v.version = ${version}`,
  );
  return rows[0] && fromJsonb(rows[0].text);
}

/** A version as its row has it: the part without its bytes, and where those are. */
export interface StoredArtifact extends StoredContent {
  part: Part;
  mimeType: string | undefined;
}

/** The given or the latest version; `undefined` where there is none. */
export async function findStoredArtifact(
  db: Database,
  key: ArtifactKey,
  version?: number,
): Promise<StoredArtifact | undefined> {
  if (version !== undefined && !isVersion(version)) return undefined;
  const which = version === undefined ? sql`order by v.version desc limit 1` : sql`and v.version = ${version}`;
  const { rows } = await db.execute<{
    part: string;
    mime_type: string | null;
    content: Buffer | null;
    object_key: string | null;
    sha256: Buffer;
  }>(sql`
    select v.part::text, v.mime_type, v.content, v.object_key, v.sha256
    from artifact_versions v where ${isArtifact(key, sql`v`)} ${which}`);
  const row = rows[0];
  return (
    row && {
      part: JSON.parse(fromJsonb(row.part)) as Part,
      mimeType: row.mime_type === null ? undefined : fromText(row.mime_type),
      content: row.content ?? undefined,
      objectKey: row.object_key ?? undefined,
      sha256: row.sha256,
    }
  );
}

/** The version numbers of an artifact, ascending; `[]` for one that does not exist. */
export async function listArtifactVersions(db: Database, key: ArtifactKey): Promise<number[]> {
  const { rows } = await db.execute<{ version: number }>(
    sql`select v.version from artifact_versions v where ${isArtifact(key, sql`v`)} order by v.version`,
  );
  return rows.map(({ version }) => version);
}

/** The ArtifactVersions of an artifact as the JSON text of an array, ascending, in one statement that never reads the content. */
export async function listArtifactVersionsText(db: Database, key: ArtifactKey): Promise<string> {
  const { rows } = await db.execute<{ text: string }>(sql`
    select coalesce(string_agg(${versionText}, ',' order by v.version), '') as text
    from artifact_versions v where ${isArtifact(key, sql`v`)}`);
  return `[${fromJsonb(rows[0]?.text ?? '')}]`;
}

/** Deletes all versions of an artifact; its next number stays, so that no number is ever given twice. @returns the keys of their objects. */
export async function deleteArtifactVersions(db: Database, key: ArtifactKey): Promise<string[]> {
  const { rows } = await db.execute<{ object_key: string | null }>(
    sql`delete from artifact_versions v where ${isArtifact(key, sql`v`)} returning v.object_key`,
  );
  return rows.flatMap(({ object_key }) => object_key ?? []);
}

const isVersion = (version: number) => Number.isInteger(version) && version >= 0 && version <= MAX_VERSION;

/** Names of a session's artifacts and of its user's (with their prefix), sorted by code point. Deleted ones are left out. */
export async function listArtifactNames(db: Database, { appName, userId, sessionId }: SessionKey): Promise<string[]> {
  const { rows } = await db.execute<{ name: string }>(sql`
    select a.name from artifacts a
    where a.app_name = ${appName} and a.user_id = ${userId} and a.session_id in (${sessionId}, '')
      and exists (select from artifact_versions v
                  where v.app_name = a.app_name and v.user_id = a.user_id and v.session_id = a.session_id
                    and v.artifact_name = a.name)
    order by a.name`);
  return rows.map(({ name }) => name);
}
