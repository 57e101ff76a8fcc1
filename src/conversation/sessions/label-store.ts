import { and, sql } from 'drizzle-orm';
import { NotFoundError, TooLargeError } from '../../core/errors.ts';
import { type SessionKey, sessionNotFound } from '../../core/session.ts';
import type { Database } from '../../platform/db/database.ts';
import { sessions } from '../../platform/db/schema/schema.ts';
import { jsonTextOf } from '../../platform/db/sql.ts';
import { MAX_LABELS, MAX_LABELS_BYTES } from './label.ts';
import { toChangeError, hasVersion } from './precondition.ts';
import { isSession } from './session-key.ts';
import { rowVersion } from './session-text.ts';

/** A session's labels as JSON, with the session's version and creation time. */
export interface SessionLabels {
  text: string;
  version: string;
  createTime: number;
}

// `at time zone` makes the expression immutable; a distributed database requires that in `returning`.
const createTime = sql<number>`extract(epoch from ${sessions.createTime} at time zone 'UTC')::float8`;
const columns = { text: jsonTextOf(sessions.labels), version: rowVersion(sessions), createTime };

export async function findLabels(db: Database, key: SessionKey): Promise<SessionLabels | undefined> {
  const [row] = await db.select(columns).from(sessions).where(isSession(key, sessions));
  return row;
}

/**
 * A single statement sets the labels that have a value, removes those that are null, and renews the session's update
 * time.
 * @throws {NotFoundError} if the session does not exist
 * @throws {TooLargeError} if the labels would exceed their limits
 * @throws {PreconditionFailedError} if the session has none of the `versions`
 */
export async function changeLabels(
  db: Database,
  key: SessionKey,
  changes: Record<string, string | null>,
  versions?: string[],
): Promise<SessionLabels> {
  const entries = Object.entries(changes);
  const set = Object.fromEntries(entries.filter(([, value]) => value !== null));
  const removed = entries.filter(([, value]) => value === null).map(([name]) => name);
  const labels = sql`((${sessions.labels} || ${sql.param(set, sessions.labels)}::jsonb) - ${sql.param(removed)}::text[])`;
  const isAllowed = sql`octet_length(${labels}::text) <= ${MAX_LABELS_BYTES}
    and (select count(*) from jsonb_object_keys(${labels})) <= ${MAX_LABELS}`;
  const [row] = await db
    .update(sessions)
    .set({ labels, updateTime: sql`next_time(${sessions.updateTime}, statement_timestamp())` })
    .where(and(isSession(key, sessions), isAllowed, hasVersion(sessions, versions)))
    .returning(columns);
  if (row) return row;
  const current = await findLabels(db, key);
  if (!current) throw new NotFoundError(sessionNotFound(key.sessionId));
  if (versions && !versions.includes(current.version)) throw await toChangeError(db, key);
  throw new TooLargeError(`A session has at most ${MAX_LABELS} labels, ${MAX_LABELS_BYTES} bytes together.`);
}
