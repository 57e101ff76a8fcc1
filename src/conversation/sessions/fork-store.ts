import { sql } from 'drizzle-orm';
import { isEvalSession, type SessionKey } from '../../core/session.ts';
import type { Database } from '../../platform/db/database.ts';
import { escapeJson } from '../../platform/db/json-escape.ts';
import { sessions } from '../../platform/db/schema/schema.ts';
import { insertSelect } from '../../platform/db/sql.ts';
import { limitedSize } from './append-events.ts';
import { initialState, ownStateAt } from './event-as-of.ts';
import { bytesUpTo, insertedCopies, nextTimeAfter, versionsSaved } from './event-copies.ts';
import { firstTextAt } from './event-first-text.ts';
import { isSession } from './session-key.ts';
import { s } from './session-text.ts';

/** Where a session is forked, and what of it belongs to what other features hold. */
export interface ForkPoint {
  /** The last sequence of the session now. */
  reached: number;
  /** The sequence that it is forked at. */
  atSequence: number;
  /** The time of the next event, ISO 8601 with microseconds; null where there is none. */
  nextTime: string | null;
  /** By name of artifact: the highest version that an event until then saved, and the lowest that a later one did. */
  saved: Record<string, number>;
  savedLater: Record<string, number>;
}

/** The point of a session after an event, by default after the last; `undefined` where there is no session. */
export async function findForkPoint(
  db: Database,
  key: SessionKey,
  atSequence: number | undefined,
): Promise<ForkPoint | undefined> {
  const n = sql`moment.n`;
  const { rows } = await db.execute<ForkPoint & Record<string, unknown>>(sql`
    select ${s.lastSequence} as reached, ${n} as "atSequence", ${nextTimeAfter(key, n)} as "nextTime",
           ${versionsSaved(key, 'until', n)} as saved,
           ${versionsSaved(key, 'after', n)} as "savedLater"
    from ${sessions} ${s}
      cross join lateral (select coalesce(${atSequence ?? null}::int, ${s.lastSequence}) as n offset 0) moment
    where ${isSession(key, s)}`);
  return rows[0];
}

/** The session that a fork makes. */
export interface NewFork {
  sessionId: string;
  atSequence: number;
  labels: Record<string, string>;
  /** Maximum size of its events [that of every session]. */
  maxBytes?: number;
}

/**
 * Makes a session of the first events of another one of the same user, with the state of then, in one statement. It
 * shares nothing with that one afterwards. The invocations of the events stay with their session.
 * @returns false where the id is taken, or the session is gone.
 */
export async function insertFork(db: Database, source: SessionKey, fork: NewFork): Promise<boolean> {
  const n = sql`${fork.atSequence}::int`;
  const session = insertSelect(sessions, {
    appName: s.appName,
    userId: s.userId,
    id: fork.sessionId,
    state: ownStateAt(source, n),
    initialState: initialState(source),
    firstText: sql`coalesce(${firstTextAt(source, n)}, '')`,
    lastSequence: n,
    eventBytes: limitedSize(bytesUpTo(source, n), db.limits.maxSessionBytes),
    isEval: sql`${isEvalSession(fork.sessionId)}::boolean`,
    labels: sql`${escapeJson(fork.labels)}::jsonb`,
    forkedFromId: s.id,
    forkedFromSequence: n,
  });
  const { rows } = await db.execute(sql`
    with made as (
      ${session} from ${sessions} ${s} where ${isSession(source, s)} on conflict do nothing returning 1),
    copied as (${insertedCopies(source, n, fork.sessionId, sql`exists (select from made)`)})
    select from made`);
  return rows.length > 0;
}
