import { and, sql } from 'drizzle-orm';
import { NotFoundError, TooLargeError } from '../core/errors.ts';
import { type SessionKey, sessionNotFound } from '../core/session.ts';
import type { Database } from '../db/database.ts';
import { escapeJson, unescapeJson } from '../db/json-escape.ts';
import { sessions } from '../db/schema.ts';
import { NEXT_UPDATE_TIME } from './append-events.ts';
import { MAX_LABELS, MAX_LABELS_BYTES } from './label.ts';
import { isSession } from './session-key.ts';

const text = sql<string>`${sessions.labels}::text`;

/** The labels of a session as JSON text; `undefined` where there is no session. */
export async function findLabels(db: Database, key: SessionKey): Promise<string | undefined> {
  const [row] = await db.select({ text }).from(sessions).where(isSession(key, sessions));
  return row && unescapeJson(row.text);
}

/**
 * Sets the labels that have a value and removes those that are null, in one statement; the session counts as updated.
 * @returns all of its labels as JSON text.
 * @throws {NotFoundError} where there is no session. @throws {TooLargeError} where the labels would be too many.
 */
export async function changeLabels(
  db: Database,
  key: SessionKey,
  changes: Record<string, string | null>,
): Promise<string> {
  const given = Object.entries(changes);
  const set = Object.fromEntries(given.filter(([, value]) => value !== null));
  const removed = given.filter(([, value]) => value === null).map(([name]) => name);
  const labels = sql`((${sessions.labels} || ${escapeJson(set)}::jsonb) - ${sql.param(removed)}::text[])`;
  const isAllowed = sql`octet_length(${labels}::text) <= ${MAX_LABELS_BYTES}
    and (select count(*) from jsonb_object_keys(${labels})) <= ${MAX_LABELS}`;
  const [row] = await db
    .update(sessions)
    .set({ labels, updateTime: NEXT_UPDATE_TIME })
    .where(and(isSession(key, sessions), isAllowed))
    .returning({ text });
  if (row) return unescapeJson(row.text);
  if ((await findLabels(db, key)) === undefined) throw new NotFoundError(sessionNotFound(key.sessionId));
  throw new TooLargeError(`A session has at most ${MAX_LABELS} labels, ${MAX_LABELS_BYTES} bytes together.`);
}
