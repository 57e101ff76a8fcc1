import { type SQL, sql } from 'drizzle-orm';
import { isEvalSession, type SessionKey } from '../../core/session.ts';
import type { Database } from '../../platform/db/database.ts';
import { events, sessions } from '../../platform/db/schema/schema.ts';
import { exactTime, insertSelect } from '../../platform/db/sql.ts';
import { limitedBytes } from '../storage/storage-store.ts';
import { type SessionRef, isSession } from './session-key.ts';
import { firstTextAt, ownStateAt, s } from './session-text.ts';

/** A point in a session at which it is forked, with the data to select the artifact versions that existed then. */
export interface ForkPoint {
  /** The last sequence of the session that is forked. */
  reached: number;
  atSequence: number;
  /** Time of the event after the fork point, ISO 8601 with microseconds; null if there is none. */
  nextTime: string | null;
  /** By artifact name: highest version saved by events up to the fork, and lowest version saved by later events. */
  saved: Record<string, number>;
  savedLater: Record<string, number>;
}

/** Finds the fork point after event `atSequence`, by default after the last event. */
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

export interface NewFork {
  sessionId: string;
  atSequence: number;
  labels: Record<string, string>;
  /** Maximum bytes of the new session's events. Default: the limit of every session. */
  maxBytes?: number;
}

/**
 * Creates a session from the first events of another session, with the state at that point, in a single statement.
 * Afterwards both sessions are independent. Invocations stay with the source session.
 * @returns false if the new id is taken or the source session was deleted
 */
export async function insertFork(db: Database, source: SessionKey, fork: NewFork): Promise<boolean> {
  const n = sql`${fork.atSequence}::int`;
  const session = insertSelect(sessions, {
    appName: s.appName,
    userId: s.userId,
    id: fork.sessionId,
    state: sql`own.state`,
    initialState: s.initialState,
    firstText: sql`coalesce(${firstTextAt(source, n)}, '')`,
    lastSequence: n,
    eventBytes: sql`own.bytes`,
    isEval: sql`${isEvalSession(fork.sessionId)}::boolean`,
    labels: fork.labels,
    forkedFromId: s.id,
    forkedFromSequence: n,
  });
  const { rows } = await db.execute(sql`
    with own as materialized (
      select ${ownStateAt(source, n)} as state, assert_session_size(
        ${bytesUpTo(source, n)}::bigint, ${fork.maxBytes ?? db.limits.maxSessionBytes}::bigint) as bytes
      from ${sessions} ${s} where ${isSession(source, s)}),
    made as (
      ${session} from own, ${sessions} ${s} where ${isSession(source, s)} and ${limitedBytes(
        db,
        source,
        sql`own.bytes + state_size(own.state, ${s.initialState})`,
        true,
      )} is not null on conflict do nothing returning 1),
    copied as (${insertedCopies(source, n, fork.sessionId, sql`exists (select from made)`)})
    select from made`);
  return rows.length > 0;
}

/** SQL: ISO 8601 time of the event after `n`, or null. `bigint`, because `n` may be the largest integer. */
const nextTimeAfter = (key: SessionRef, n: SQL): SQL => sql`(
  select ${exactTime(events.eventTime)} from ${events}
  where ${isSession(key, events)} and ${events.sequence} = ${n}::bigint + 1)`;

const artifactDelta = sql`case jsonb_typeof(${events.payload} #> '{actions,artifactDelta}')
  when 'object' then ${events.payload} #> '{actions,artifactDelta}' else '{}' end`;

/** SQL: by artifact name, the highest version saved up to sequence `n`, or the lowest version saved after it. */
function versionsSaved(key: SessionRef, which: 'until' | 'after', n: SQL): SQL {
  const [pick, isWanted] = which === 'until' ? [sql`max`, sql`<=`] : [sql`min`, sql`>`];
  return sql`coalesce((
    select jsonb_object_agg(key, version) from (
      select saved.key, ${pick}(saved.value::numeric) as version
      from ${events} cross join lateral jsonb_each(${artifactDelta}) saved
      where ${isSession(key, events)} and ${events.sequence} ${isWanted} ${n} and jsonb_typeof(saved.value) = 'number'
      group by saved.key) of_name), '{}')`;
}

const bytesUpTo = (key: SessionRef, n: SQL): SQL => sql`(
  select coalesce(sum(${events.bytes}), 0)
  from ${events} where ${isSession(key, events)} and ${events.sequence} <= ${n})`;

/** SQL: if `condition` holds, copies a session's events up to sequence `n` into another session of the user. */
function insertedCopies(source: SessionKey, n: SQL, sessionId: string, condition: SQL): SQL {
  const copies = insertSelect(events, {
    appName: events.appName,
    userId: events.userId,
    sessionId,
    sequence: events.sequence,
    id: events.id,
    invocationId: events.invocationId,
    author: events.author,
    eventTime: events.eventTime,
    isFromRuntime: events.isFromRuntime,
    payload: events.payload,
    bytes: events.bytes,
  });
  return sql`${copies} from ${events}
    where ${isSession(source, events)} and ${events.sequence} <= ${n} and ${condition}`;
}
