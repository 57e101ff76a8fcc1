-- store_events: merges shared state and inserts events. It is the second part of a write: the caller has locked and
-- advanced the session's row. Internal: called by append_events, claim_session, finish_invocation and create_session.
--
--   1. Merge the user's state, then the application's state (merge_app_state). The fixed order prevents deadlocks.
--   2. Insert the events with the sequences up to p_last. They are inserted one by one, so that a distributed database
--      runs each statement on one node. An event without a timestamp gets the time of the change.
--
-- p_sizes: the result of event_sizes(p_events). p_limits: {"stateBytes", "stateKeys", "appStateBytesPerUser",
-- "sessionBytes", "userBytes"}.
-- Returns the stored events, one JSON text per line, because jsonb as text has no line breaks. Only if p_returns is
-- true, because converting a large event to text takes milliseconds.
create or replace function store_events(
  p_app text, p_user text, p_session text, p_events jsonb, p_sizes integer[], p_delta jsonb, p_from_runtime boolean,
  p_limits jsonb, p_last integer, p_changed timestamptz, p_returns boolean)
returns text language plpgsql as $$
declare
  v_first integer := p_last - cardinality(p_sizes);
  v_event jsonb;
  v_line text;
  v_lines text[];
begin
  -- 1
  if p_delta ? 'user' then
    insert into user_states as u (app_name, user_id, state)
    values (p_app, p_user, limited_state(p_delta -> 'user', p_limits))
    on conflict (app_name, user_id) do update set
      state = limited_state(u.state || excluded.state, p_limits),
      update_time = next_time(u.update_time, excluded.update_time);
  end if;
  if p_delta ? 'app' then perform merge_app_state(p_app, p_user, p_delta -> 'app', p_from_runtime, p_limits); end if;
  -- 2
  for v_place in 1 .. cardinality(p_sizes) loop
    v_event := p_events -> v_place - 1;
    insert into events as e
      (app_name, user_id, session_id, sequence, id, invocation_id, author, event_time, is_from_runtime, payload, bytes)
    values
      (p_app, p_user, p_session, v_first + v_place, v_event ->> 'id', v_event ->> 'invocationId', v_event ->> 'author',
       case when v_event ->> 'timestamp' is null then p_changed
            else clamped_time((v_event ->> 'timestamp')::float8) end,
       p_from_runtime,
       case when v_event ->> 'timestamp' is null
            then v_event || jsonb_build_object('timestamp', extract(epoch from p_changed)) else v_event end,
       p_sizes[v_place])
    returning case when p_returns then e.payload::text end into v_line;
    v_lines := v_lines || v_line;
  end loop;
  return array_to_string(v_lines, E'\n');
end $$;
comment on function store_events is 'Merges shared state and inserts events, after the caller has locked and advanced the session''s row.';

-- merge_app_state: merges a delta into the state that all users of an application share. For each key that an agent
-- writes, the column writers records the session's user, whose share is limited (AR416). Keys that a client's request
-- writes belong to the operator and have no such limit.
-- SECURITY DEFINER, so that statements of one user can merge into this state, but neither replace nor delete it.
create or replace function merge_app_state(p_app text, p_user text, p_delta jsonb, p_from_runtime boolean, p_limits jsonb)
returns void language plpgsql security definer set search_path from current as $$
declare
  v_keys text[] := array(select jsonb_object_keys(p_delta));
  v_max integer := p_limits ->> 'appStateBytesPerUser';
  v_user jsonb := to_jsonb(p_user);
  v_writers jsonb;
begin
  perform assert_own_user(p_user);
  if p_from_runtime then
    v_writers := (select jsonb_object_agg(key, p_user) from unnest(v_keys) key);
    insert into app_states as a (app_name, state, writers)
    values (p_app, limited_state(p_delta, p_limits), assert_writer_share(p_delta, v_writers, v_user, v_max))
    on conflict (app_name) do update set
      state = limited_state(a.state || excluded.state, p_limits),
      writers = assert_writer_share(a.state || excluded.state, a.writers || excluded.writers, v_user, v_max),
      update_time = next_time(a.update_time, excluded.update_time);
  else
    insert into app_states as a (app_name, state) values (p_app, limited_state(p_delta, p_limits))
    on conflict (app_name) do update set
      state = limited_state(a.state || excluded.state, p_limits),
      writers = a.writers - v_keys,
      update_time = next_time(a.update_time, excluded.update_time);
  end if;
end $$;
revoke execute on function merge_app_state from public;
comment on function merge_app_state is 'Merges a delta into the state shared by all users of an application.';
