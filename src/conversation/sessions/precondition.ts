import { type SQL, sql } from 'drizzle-orm';
import type { AnyPgColumn } from 'drizzle-orm/pg-core';
import { z } from 'zod';
import { NotFoundError, PreconditionFailedError } from '../../core/errors.ts';
import { type SessionKey, sessionNotFound } from '../../core/session.ts';
import type { Database } from '../../platform/db/database.ts';
import { isSession } from './session-row.ts';
import { rowVersion, s, sessionEtag, withStates } from './session-text.ts';

// A session's ETag is `"session.app.user"`: the versions of the session's row, the application's state and the user's
// state. A conditional read compares all three; a write with If-Match only the session's, because other sessions may
// change the two shared states at any time.

/** One or several entity tags (RFC 9110). */
const TAGS = /^\s*(?:W\/)?"[\x21\x23-\x7e]*"\s*(?:,\s*(?:W\/)?"[\x21\x23-\x7e]*"\s*)*$/;
/** The pattern in the OpenAPI document: entity tags, or `*`. */
const PUBLISHED = `^\\s*(\\*\\s*|${TAGS.source.slice(4, -1)})$`;
const TAG = /(W\/)?"([^"]*)"/g;

/** The strong entity tags of a header; `*` matches any. */
type Tags = '*' | string[];

const tags = (isWeakToo: boolean) =>
  z
    .string()
    .max(1_024)
    .meta({ pattern: PUBLISHED })
    .transform((text, { issues }): Tags => {
      if (text.trim() === '*') return '*';
      if (!TAGS.test(text)) issues.push({ code: 'custom', message: 'entity tags or * are expected', input: text });
      return [...text.matchAll(TAG)].flatMap(([, weak, tag = '']) => (weak && !isWeakToo ? [] : tag));
    })
    .optional();

export const ifNoneMatch = z.object({
  'if-none-match': tags(true).describe('`ETag`s of earlier answers: 304 where one of them is still true.'),
});
export const ifMatch = z.object({
  'if-match': tags(false).describe(
    '`ETag`s of the session: 412 where none of them is true any more. `*`: any version.',
  ),
});

export const isUnchanged = (etag: string, readerTags: Tags): boolean =>
  readerTags === '*' || readerTags.includes(etag.slice(1, -1));

/** Returns the session versions that a change accepts; `undefined`: any. */
export const toVersions = (changeTags: Tags | undefined): string[] | undefined =>
  changeTags === undefined || changeTags === '*' ? undefined : changeTags.map((tag) => tag.split('.', 1)[0] ?? '');

/** SQL condition for compare-and-set: the session has one of the versions. */
export const hasVersion = (row: { updateTime: AnyPgColumn }, versions: string[] | undefined): SQL | undefined =>
  versions && sql`${rowVersion(row)} = any(${sql.param(versions)}::text[])`;

export async function findEtag(db: Database, key: SessionKey): Promise<string | undefined> {
  const { rows } = await db.execute<{ etag: string }>(sql`
    select ${sessionEtag} as etag from ${withStates(key)} where ${isSession(key, s)}`);
  return rows[0]?.etag;
}

/** Returns the error for a change that matched no row: 404 if the session does not exist, otherwise 412. */
export async function toChangeError(db: Database, key: SessionKey): Promise<Error> {
  const etag = await findEtag(db, key);
  return etag === undefined ? new NotFoundError(sessionNotFound(key.sessionId)) : new PreconditionFailedError(etag);
}

/** Description of the 412 in the OpenAPI document. */
export const CHANGED = 'The session has none of the ETags of `If-Match`; the header `ETag` has that of now.';
