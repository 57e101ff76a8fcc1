import { type SQL, sql } from 'drizzle-orm';
import { events } from '../../platform/db/schema/schema.ts';
import { type GivenSession, isSession } from './session-key.ts';
import { s } from './session-text.ts';

/** Pieces of statements that read session `s` as it was after its event `n`, which may be 0. */

/**
 * The sequence of the last event before the first one that is later than a time: what was there then. A client may
 * give its events any time; what follows a later one counts as later.
 */
export const sequenceAt = (key: GivenSession, seconds: SQL): SQL => sql`coalesce((
  select min(${events.sequence}) - 1 from ${events}
  where ${isSession(key, events)} and ${events.eventTime} > to_timestamp(${seconds})), ${s.lastSequence})`;

const delta = sql`case jsonb_typeof(${events.payload} #> '{actions,stateDelta}')
  when 'object' then ${events.payload} #> '{actions,stateDelta}' else '{}' end`;

/** All that the events up to `n` set, as one object, later ones winning; `which` is a condition on `changed.key`. */
const changesUpTo = (key: GivenSession, n: SQL, which: SQL): SQL => sql`coalesce((
  select jsonb_object_agg(key, value) from (
    select distinct on (changed.key) changed.key, changed.value
    from ${events} cross join lateral jsonb_each(${delta}) changed
    where ${isSession(key, events)} and ${events.sequence} <= ${n} and ${which}
    order by changed.key, ${events.sequence} desc) latest), '{}')`;

const isShared = sql`(starts_with(changed.key, 'user:') or starts_with(changed.key, 'app:'))`;

/** The own state before the first event; of a session of an older version, what no event changed since. */
export const initialState = (key: GivenSession): SQL => sql`coalesce(${s.initialState}, ${s.state} - array(
  select changed.key from ${events} cross join lateral jsonb_each(${delta}) changed
  where ${isSession(key, events)}))`;

/** The state of the session's own, without what it shares. */
export const ownStateAt = (key: GivenSession, n: SQL): SQL => sql`case when ${n} = ${s.lastSequence} then ${s.state}
  else ${initialState(key)} || ${changesUpTo(key, n, sql`not ${isShared}`)} end`;

/**
 * The state as the wire shows it. The shared scopes have no history: of them it has what the session's own events set
 * until then, whatever others wrote.
 */
export const stateAt = (key: GivenSession, n: SQL): SQL =>
  sql`(${ownStateAt(key, n)} || ${changesUpTo(key, n, isShared)})`;

/** The time of the session then: of the event, or of the creation. */
export const timeAt = (
  key: GivenSession,
  n: SQL,
): SQL => sql`case when ${n} = ${s.lastSequence} then ${s.updateTime} else coalesce((
  select ${events.eventTime} from ${events}
  where ${isSession(key, events)} and ${events.sequence} = ${n}), ${s.createTime}) end`;
