import { type SQL, sql } from 'drizzle-orm';
import type { AnyPgColumn } from 'drizzle-orm/pg-core';
import { z } from 'zod';
import { NotFoundError, PreconditionFailedError } from '../../core/errors.ts';
import { type SessionKey, sessionNotFound } from '../../core/session.ts';
import type { Database } from '../../platform/db/database.ts';
import { isSession } from './session-key.ts';
import { rowVersion, s, sessionEtag, withStates } from './session-text.ts';

/**
 * An ETag of a session is `"session.app.user"`: the version of its row, which every change of it moves, and those of
 * the two shared states. A reader is concerned by all three; a writer with If-Match by the first only, since other
 * sessions may change the shared states at any time.
 */

/** One entity tag of RFC 9110, or several. */
const TAGS = /^\s*(?:W\/)?"[\x21\x23-\x7e]*"\s*(?:,\s*(?:W\/)?"[\x21\x23-\x7e]*"\s*)*$/;
/** The same, or any, as the document has it. */
const PUBLISHED = `^\\s*(\\*\\s*|${TAGS.source.slice(4, -1)})$`;
const TAG = /(W\/)?"([^"]*)"/g;

/** The tags of a header, those that are strong; `*` is any. */
export type Tags = '*' | string[];

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

/** The header of a read that is answered with 304 where nothing has changed. */
export const ifNoneMatch = z.object({
  'if-none-match': tags(true).describe('`ETag`s of earlier answers: 304 where one of them is still true.'),
});
/** The header of a change that is made to a certain version of a session only. */
export const ifMatch = z.object({
  'if-match': tags(false).describe(
    '`ETag`s of the session: 412 where none of them is true any more. `*`: any version.',
  ),
});

/** True where one of the tags that a reader knows is still that of the session. */
export const isUnchanged = (etag: string, known: Tags): boolean => known === '*' || known.includes(etag.slice(1, -1));

/** The versions of a session that a change may be made to; `undefined` for any. */
export const toVersions = (given: Tags | undefined): string[] | undefined =>
  given === undefined || given === '*' ? undefined : given.map((tag) => tag.split('.', 1)[0] ?? '');

/** The condition that a session has one of some versions; it stands in the statement that changes the session. */
export const hasVersion = (row: { updateTime: AnyPgColumn }, versions: string[] | undefined): SQL | undefined =>
  versions && sql`${rowVersion(row)} = any(${sql.param(versions)}::text[])`;

/** The ETag of a session; `undefined` where there is none. */
export async function findEtag(db: Database, key: SessionKey): Promise<string | undefined> {
  const { rows } = await db.execute<{ etag: string }>(sql`
    select ${sessionEtag} as etag from ${withStates(key)} where ${isSession(key, s)}`);
  return rows[0]?.etag;
}

/** The error of a change that was not made: there is no session, or it has another version by now. */
export async function changeRefused(db: Database, key: SessionKey): Promise<Error> {
  const etag = await findEtag(db, key);
  return etag === undefined ? new NotFoundError(sessionNotFound(key.sessionId)) : new PreconditionFailedError(etag);
}

/** Reason of a 412, for the document. */
export const CHANGED = 'The session has none of the ETags of `If-Match`; the header `ETag` has that of now.';
