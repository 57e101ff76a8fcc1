import { type SQL, sql } from 'drizzle-orm';
import type { JsonObject } from '../core/content.ts';
import type { NewEvent } from '../core/event.ts';
import type { SessionKey } from '../core/session.ts';
import { type ScopedDelta, splitDelta, withoutTemporary } from '../core/state.ts';
import { toJsonb } from '../db/json-escape.ts';

/** Events on their way into one statement, with the state change that all of them make together. */
export interface Append {
  key: SessionKey;
  events: NewEvent[];
  delta: ScopedDelta;
}

/** Takes the events' deltas together, later ones winning, and leaves `temp:` keys out of what is stored. */
export function newAppend(key: SessionKey, events: NewEvent[]): Append {
  const stored = events.map(withoutTemporaryDelta);
  const merged: JsonObject = Object.create(null) as JsonObject;
  for (const event of stored) {
    for (const [name, value] of Object.entries(event.actions?.stateDelta ?? {})) merged[name] = value;
  }
  return { key, events: stored, delta: splitDelta(merged) };
}

function withoutTemporaryDelta(event: NewEvent): NewEvent {
  const delta = event.actions?.stateDelta;
  if (!delta || !Object.keys(delta).some((name) => name.startsWith('temp:'))) return event;
  return { ...event, actions: { ...event.actions, stateDelta: withoutTemporary(delta) } };
}

/** What an update of the session row sets: the one place that hands out sequences and moves the clock of a session forward. */
export function bumpSession({ events, delta }: Append): SQL {
  return sql`
    state = ${touches(delta.session) ? sql`limited_state(sessions.state || ${toJsonb(delta.session)}::jsonb)` : sql`sessions.state`},
    last_sequence = sessions.last_sequence + ${events.length}::int,
    update_time = greatest(sessions.update_time + interval '1 microsecond', clock_timestamp())`;
}

/**
 * The CTEs that follow a CTE `bumped(last_sequence, update_time)`: they merge the shared scopes that the delta touches and
 * insert the events as `appended(sequence, payload)`. They insert nothing when `bumped` is empty. Shared rows are locked in the
 * order session, user, app (each CTE reads the one before), so that writers of several scopes never deadlock.
 */
export function appendCtes({ key, events, delta }: Append): SQL {
  const user = touches(delta.user)
    ? sql`, user_merged as (
        insert into user_states as s (app_name, user_id, state)
        select ${key.appName}, ${key.userId}, limited_state(${toJsonb(delta.user)}::jsonb) from bumped
        on conflict (app_name, user_id) do update set state = limited_state(s.state || excluded.state), update_time = clock_timestamp()
        returning 1)`
    : sql``;
  const after = touches(delta.user) ? sql`where (select count(*) from user_merged) >= 0` : sql``;
  const app = touches(delta.app)
    ? sql`, app_merged as (
        insert into app_states as s (app_name, state)
        select ${key.appName}, limited_state(${toJsonb(delta.app)}::jsonb) from bumped ${after}
        on conflict (app_name) do update set state = limited_state(s.state || excluded.state), update_time = clock_timestamp()
        returning 1)`
    : sql``;
  return sql`${user}${app}, appended as (
    insert into events (app_name, user_id, session_id, sequence, id, invocation_id, author, event_time, payload)
    select ${key.appName}, ${key.userId}, ${key.sessionId},
           bumped.last_sequence - ${events.length}::int + e.position::int,
           e.payload ->> 'id', e.payload ->> 'invocationId', e.payload ->> 'author',
           case when e.payload ->> 'timestamp' is null then bumped.update_time
                else ${clampedTime(sql`(e.payload ->> 'timestamp')::float8`)} end,
           case when e.payload ->> 'timestamp' is null
                then e.payload || jsonb_build_object('timestamp', extract(epoch from bumped.update_time))
                else e.payload end
    from bumped, jsonb_array_elements(${toJsonb(events)}::jsonb) with ordinality as e(payload, position)
    returning sequence, payload)`;
}

const touches = (delta: JsonObject) => Object.keys(delta).length > 0;

/** Unix seconds as a time; what lies outside timestamptz (an import may say anything) becomes its first or last year. */
const clampedTime = (seconds: SQL) => sql`to_timestamp(least(greatest(${seconds}, -2e11), 9e12))`;
