import { type SQL, sql } from 'drizzle-orm';

/** Joins the two shared states, `a` and `u`, to a session row, which it names `s`. */
export const statesOf = sql`s
  left join app_states a on a.app_name = s.app_name
  left join user_states u on u.app_name = s.app_name and u.user_id = s.user_id`;
/** The table of sessions with the two shared states joined. */
export const withStates = sql`sessions ${statesOf}`;
/** The state as the wire shows it: keys are stored with their prefix, so that the scopes merge without renaming. */
export const mergedState = sql`(s.state || coalesce(a.state, '{}') || coalesce(u.state, '{}'))`;

/** The JSON text of a session before and after the text of its events. */
export const sessionTexts = [
  sql`'{"id":' || to_json(s.id) || ',"appName":' || to_json(s.app_name) || ',"userId":' || to_json(s.user_id) ||
    ',"state":' || ${mergedState} || ',"events":['`,
  sql`'],"lastUpdateTime":' || extract(epoch from s.update_time) || '}'`,
] as const;

/** Most events, and most bytes of them as they are stored, that one statement reads: no answer is ever whole in memory. */
const MOST_EVENTS = 1_000;
const MOST_BYTES = 1_048_576;

/** The events of session `s` from one sequence to another, or the first of them: their text and the last sequence, null for none. */
export const eventPage = (after: SQL | number, upTo: SQL | number, limit = MOST_EVENTS) => sql`lateral (
  select string_agg(sized.payload::text, ',' order by sized.sequence) as text, max(sized.sequence) as last
  from (select e.payload, e.sequence,
               sum(pg_column_size(e.payload)) over (order by e.sequence) - pg_column_size(e.payload) as bytes_before
        from (select payload, sequence from events
              where app_name = s.app_name and user_id = s.user_id and session_id = s.id
                and sequence > ${after} and sequence <= ${upTo}
              order by sequence limit ${limit}) e) sized
  where sized.bytes_before < ${MOST_BYTES}) page`;
