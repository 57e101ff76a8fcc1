import { and, sql } from 'drizzle-orm';
import { NotFoundError, TooLargeError } from '../../core/errors.ts';
import { type SessionKey, sessionNotFound } from '../../core/session.ts';
import type { Database } from '../../platform/db/database.ts';
import { escapeJson, unescapeJson } from '../../platform/db/json-escape.ts';
import { sessions } from '../../platform/db/schema/schema.ts';
import { MAX_LABELS, MAX_LABELS_BYTES } from './label.ts';
import { changeRefused, hasVersion } from './precondition.ts';
import { isSession } from './session-key.ts';
import { rowVersion } from './session-text.ts';

/** The labels of a session as JSON text, with the version that the session has, and since when there is one. */
export interface FoundLabels {
  text: string;
  version: string;
  /** Unix time in seconds. */
  createTime: number;
}

// Immutable, as of a moment with its zone it is not: a cluster takes nothing else from a row that it changes.
const createTime = sql<number>`extract(epoch from ${sessions.createTime} at time zone 'UTC')::float8`;
const columns = { text: sql<string>`${sessions.labels}::text`, version: rowVersion(sessions), createTime };

/** The labels of a session; `undefined` where there is no session. */
export async function findLabels(db: Database, key: SessionKey): Promise<FoundLabels | undefined> {
  const [row] = await db.select(columns).from(sessions).where(isSession(key, sessions));
  return row && { ...row, text: unescapeJson(row.text) };
}

/**
 * Sets the labels that have a value and removes those that are null, in one statement; the session counts as updated.
 * With `versions` it has one of these, or nothing is done.
 * @returns all of its labels.
 * @throws {NotFoundError} where there is no session. @throws {TooLargeError} where the labels would be too many.
 * @throws {PreconditionFailedError} where the session has another version.
 */
export async function changeLabels(
  db: Database,
  key: SessionKey,
  changes: Record<string, string | null>,
  versions?: string[],
): Promise<FoundLabels> {
  const given = Object.entries(changes);
  const set = Object.fromEntries(given.filter(([, value]) => value !== null));
  const removed = given.filter(([, value]) => value === null).map(([name]) => name);
  const labels = sql`((${sessions.labels} || ${escapeJson(set)}::jsonb) - ${sql.param(removed)}::text[])`;
  const isAllowed = sql`octet_length(${labels}::text) <= ${MAX_LABELS_BYTES}
    and (select count(*) from jsonb_object_keys(${labels})) <= ${MAX_LABELS}`;
  const [row] = await db
    .update(sessions)
    .set({ labels, updateTime: sql`next_time(${sessions.updateTime}, statement_timestamp())` })
    .where(and(isSession(key, sessions), isAllowed, hasVersion(sessions, versions)))
    .returning(columns);
  if (row) return { ...row, text: unescapeJson(row.text) };
  const found = await findLabels(db, key);
  if (!found) throw new NotFoundError(sessionNotFound(key.sessionId));
  if (versions && !versions.includes(found.version)) throw await changeRefused(db, key);
  throw new TooLargeError(`A session has at most ${MAX_LABELS} labels, ${MAX_LABELS_BYTES} bytes together.`);
}
