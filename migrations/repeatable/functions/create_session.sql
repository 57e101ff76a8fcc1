-- create_session: inserts a session with its initial state and events. A session that exists already stays unchanged.
--
--   1. Check the user's storage limit, and insert the row, which also locks it. If no row was inserted, the id is
--      taken.
--   2. Merge shared state and insert the events (store_events).
--   3. Return the state as clients see it: keys of the shared states override keys of the session's own state.
--
-- Locks: sessions, user_storage, user_states, app_states, in the order of append_events. Errors: those of
-- append_events.
-- Database time: 0.3 ms without events.
--
-- p_initial_state: the session's own state before its first event. last_update: Unix seconds as text.
create or replace function create_session(
  p_app text, p_user text, p_session text, p_is_eval boolean, p_initial_state jsonb,
  p_events jsonb, p_delta jsonb, p_first_text text, p_limits jsonb,
  out created boolean, out state_text text, out last_update text, out etag text)
language plpgsql as $$
declare
  v_sizes integer[] := event_sizes(p_events);
  v_own jsonb := coalesce(p_delta -> 'session', '{}');
  v_changed timestamptz;
begin
  -- 1
  perform assert_user_storage(p_app, p_user, total_size(v_sizes) + state_size(v_own, p_initial_state),
                              (p_limits ->> 'userBytes')::bigint, false);
  insert into sessions as s
    (app_name, user_id, id, is_eval, initial_state, state, first_text, last_sequence, event_bytes)
  values
    (p_app, p_user, p_session, p_is_eval, p_initial_state, limited_state(v_own, p_limits), coalesce(p_first_text, ''),
     cardinality(v_sizes), limited_size(total_size(v_sizes), p_limits))
  on conflict (app_name, user_id, id) do nothing
  returning s.update_time into v_changed;
  created := found;
  if not created then return; end if;
  -- 2
  perform store_events(
    p_app, p_user, p_session, p_events, v_sizes, p_delta, false, p_limits, cardinality(v_sizes), v_changed, false);
  -- 3
  select (v_own || coalesce(a.state, '{}') || coalesce(u.state, '{}'))::text, extract(epoch from v_changed)::text,
         session_etag(v_changed, a.update_time, u.update_time)
  into state_text, last_update, etag
  from (select) one
  left join app_states a on a.app_name = p_app
  left join user_states u on u.app_name = p_app and u.user_id = p_user;
end $$;
comment on function create_session is 'Inserts a session with its initial state and events; an existing session stays unchanged.';
