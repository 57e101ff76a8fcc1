import { createHash } from 'node:crypto';
import { type SQL, sql } from 'drizzle-orm';
import type { Database } from '../db/database.ts';
import { fromJsonb, toJsonb, toText } from '../db/json-text.ts';
import type { JsonObject, Part } from '../sessions/content.ts';
import type { SessionKey } from '../sessions/session.ts';
import { type ArtifactContent, toPart, USER_ARTIFACT_PREFIX } from './artifact-content.ts';

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
 * Saves the next version of an artifact and returns its ArtifactVersion as JSON text. One statement: the upsert of the artifact
 * row locks it and hands out the number, so that concurrent saves get unique, rising numbers; number and content appear together.
 */
export async function saveArtifactVersion(
  db: Database,
  key: ArtifactKey,
  content: ArtifactContent,
  customMetadata: JsonObject,
): Promise<string> {
  const bytes = content.bytes ?? Buffer.alloc(0);
  const { rows } = await db.execute<{ text: string }>(sql`
    with numbered as (
      insert into artifacts as a (app_name, user_id, session_id, name, next_version)
      values (${key.appName}, ${key.userId}, ${scopeOf(key)}, ${key.artifactName}, 1)
      on conflict (app_name, user_id, session_id, name) do update set next_version = a.next_version + 1
      returning next_version - 1 as version
    ), v as (
      insert into artifact_versions (app_name, user_id, session_id, artifact_name, version, canonical_uri, mime_type,
                                     custom_metadata, part, content, size_bytes, sha256)
      select ${key.appName}, ${key.userId}, ${scopeOf(key)}, ${key.artifactName}, version,
             ${canonicalUriPrefix(key)} || version, ${content.mimeType === undefined ? null : toText(content.mimeType)}, ${toJsonb(customMetadata)}::jsonb,
             ${toJsonb(content.part)}::jsonb, ${content.bytes ?? null}, ${bytes.length},
             ${createHash('sha256').update(bytes).digest()}
      from numbered
      returning *
    )
    select ${versionText} as text from v`);
  return fromJsonb(rows[0]?.text ?? '');
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

/** The part of the given or the latest version; `undefined` where there is none. */
export async function findArtifact(db: Database, key: ArtifactKey, version?: number): Promise<Part | undefined> {
  if (version !== undefined && !isVersion(version)) return undefined;
  const which = version === undefined ? sql`order by v.version desc limit 1` : sql`and v.version = ${version}`;
  const { rows } = await db.execute<{ part: string; content: Buffer | null }>(
    sql`select v.part::text, v.content from artifact_versions v where ${isArtifact(key, sql`v`)} ${which}`,
  );
  const row = rows[0];
  return row && toPart(JSON.parse(fromJsonb(row.part)) as Part, row.content ?? undefined);
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
