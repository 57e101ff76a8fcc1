import { type SQL, sql } from 'drizzle-orm';
import type { SessionKey } from '../../core/session.ts';
import { events } from '../../platform/db/schema/schema.ts';
import { exactTime, insertSelect } from '../../platform/db/sql.ts';
import { type GivenSession, isSession } from './session-key.ts';

/** Pieces of statements that make a session of the events of session `s` up to the sequence `n`. */

/** The time of the next event, ISO 8601 with microseconds; null where there is none, as after the largest integer. */
export const nextTimeAfter = (key: GivenSession, n: SQL): SQL => sql`(
  select ${exactTime(events.eventTime)} from ${events}
  where ${isSession(key, events)} and ${events.sequence} = ${n}::bigint + 1)`;

const delta = sql`case jsonb_typeof(${events.payload} #> '{actions,artifactDelta}')
  when 'object' then ${events.payload} #> '{actions,artifactDelta}' else '{}' end`;

/** By name of artifact: the highest version that events until then saved, or the lowest that later ones did. */
export function versionsSaved(key: GivenSession, which: 'until' | 'after', n: SQL): SQL {
  const [pick, isWanted] = which === 'until' ? [sql`max`, sql`<=`] : [sql`min`, sql`>`];
  return sql`coalesce((
    select jsonb_object_agg(key, version) from (
      select saved.key, ${pick}(saved.value::numeric) as version
      from ${events} cross join lateral jsonb_each(${delta}) saved
      where ${isSession(key, events)} and ${events.sequence} ${isWanted} ${n} and jsonb_typeof(saved.value) = 'number'
      group by saved.key) of_name), '{}')`;
}

/** The bytes of the events. */
export const bytesUpTo = (key: GivenSession, n: SQL): SQL => sql`(
  select coalesce(sum(coalesce(${events.bytes}, octet_length(${events.payload}::text))), 0)::bigint
  from ${events} where ${isSession(key, events)} and ${events.sequence} <= ${n})`;

/** The insertion of the events of a session up to a sequence into another one of the user, where `condition` holds. */
export function insertedCopies(source: SessionKey, n: SQL, sessionId: string, condition: SQL): SQL {
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
