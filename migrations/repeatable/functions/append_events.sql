-- append_events: appends events to a session and applies their changes of the state.
--
--   1. If calls bring large responses, lock the session's row and check what they add to the user's storage.
--      Lock and advance the session's row: sequence, size, first text, the session's own state, update time. If no row
--      matches, nothing is written: the session does not exist, or has another lease or another version than the caller
--      expects. A trigger adds the size to the user's storage; its limit is checked next.
--   2. Add the step's usage to the invocation's row, so that a crash loses none of it. Write the events' tool calls
--      into the ledger (record_calls). Merge shared state and insert the events (store_events), then delete the
--      streamed chunks that the events replace. Close the tasks of the calls that a client's event answers, and refuse
--      an answer to a call without a task (answer_calls).
--   3. If messages wait for the run and the step may take them (p_limits.messages), store them behind the events
--      (take_messages).
--   4. Charge the model usage of the events, and look for an exhausted budget.
--
-- Locks: sessions, user_storage, invocations, tool_calls, artifacts, tasks, user_states, app_states, budget_uses; claim_session
-- and finish_invocation lock in the same order.
-- Errors: AR413 to AR417, see limits.sql; AR403 and AR410, see answer_calls; AR403 too for a client's event in a child
-- session; 23505 on events_id_key: the session
-- already has an event with this id.
-- Database time: 0.5 ms for one event, 1.3 ms for ten; 0.6 ms with model usage.
--
-- p_delta: {"session": {}, "user": {}, "app": {}}; a scope without changes is absent. p_models: see count_use. p_calls:
-- see record_calls; null for no calls.
-- p_limits.messages: the most messages to take; absent where the run makes no request behind these events. keys: of whom
-- (messages_to_take).
-- last: sequence of the last event; null if nothing was written. lines: the stored events, one JSON text per line, the
-- messages last.
create or replace function append_events(
  p_app text, p_user text, p_session text, p_events jsonb, p_delta jsonb, p_first_text text, p_from_runtime boolean,
  p_lease uuid, p_versions text[], p_models jsonb, p_invocation text, p_llm_calls integer, p_tool_calls integer,
  p_prompt_tokens integer, p_output_tokens integer, p_has_deltas boolean, p_calls jsonb, p_answers jsonb,
  p_limits jsonb,
  out last integer, out lines text, out version text, out over json, out limited boolean)
language plpgsql as $$
declare
  v_sizes integer[] := event_sizes(p_events);
  v_changed timestamptz;
  v_is_steered boolean;
  v_parent text;
  v_failed_calls constant integer := case when p_lease is null then 0 else failed_calls(p_events) end;
begin
  -- 1
  if p_calls @? '$[*].result' then
    perform from sessions s
    where s.app_name = p_app and s.user_id = p_user and s.id = p_session and s.lease_token = p_lease
    for no key update;
    perform assert_user_storage(p_app, p_user, results_size(p_calls), (p_limits ->> 'userBytes')::bigint, false);
  end if;
  update sessions s set
    last_sequence = s.last_sequence + cardinality(v_sizes),
    event_bytes = limited_size(s.event_bytes + total_size(v_sizes), p_limits),
    first_text = coalesce(nullif(s.first_text, ''), p_first_text, ''),
    state = case when p_delta ? 'session' then limited_state(s.state || (p_delta -> 'session'), p_limits) else s.state end,
    update_time = next_time(s.update_time, statement_timestamp())
  where s.app_name = p_app and s.user_id = p_user and s.id = p_session
    and (p_lease is null or s.lease_token = p_lease)
    and (p_versions is null or row_version(s.update_time) = any(p_versions))
  returning s.last_sequence, s.update_time, s.is_steered, s.parent_session_id into last, v_changed, v_is_steered, v_parent;
  if not found then return; end if;
  if p_lease is null and v_parent is not null then perform refuse_child(p_session); end if;
  perform assert_user_storage(p_app, p_user, 0, (p_limits ->> 'userBytes')::bigint, false);
  version := row_version(v_changed);
  -- 2
  if p_llm_calls + p_tool_calls + v_failed_calls > 0 then
    update invocations i set
      first_text = coalesce(i.first_text, p_first_text),
      llm_calls = i.llm_calls + p_llm_calls, tool_calls = i.tool_calls + p_tool_calls,
      failed_calls = i.failed_calls + v_failed_calls, model_tokens = with_tokens(i.model_tokens, p_models),
      prompt_tokens = i.prompt_tokens + p_prompt_tokens, output_tokens = i.output_tokens + p_output_tokens
    where i.app_name = p_app and i.user_id = p_user and i.session_id = p_session and i.id = p_invocation
      and i.lease_token = p_lease;
  end if;
  if p_calls is not null then perform record_calls(p_app, p_user, p_session, p_invocation, p_calls); end if;
  if p_answers is not null then perform answer_calls(p_app, p_user, p_session, p_answers); end if;
  lines := store_events(p_app, p_user, p_session, p_events, v_sizes, p_delta, p_from_runtime, p_limits, last, v_changed, true);
  if p_has_deltas then
    delete from event_deltas d
    where d.app_name = p_app and d.user_id = p_user and d.session_id = p_session
      and d.event_id in (select event ->> 'id' from jsonb_array_elements(p_events) event);
  end if;
  -- 3
  if v_is_steered and p_limits ? 'messages' then
    select t.last, concat_ws(E'\n', append_events.lines, t.lines) into last, lines
    from take_messages(p_app, p_user, p_session, p_invocation, p_limits, append_events.last, v_changed) t;
  end if;
  -- 4
  if p_models is not null then
    perform count_use(p_app, p_user, 0, p_models);
    limited := exists (select from budgets b where b.app_name = p_app and b.user_id in ('', p_user));
    if limited then over := over_budget(p_app, p_user, 0, 0); end if;
  end if;
end $$;
comment on function append_events is 'Appends events to a session, with their state changes.';

-- Number of tool responses in the agent's events that have an error. Without the one that stands in for the response of a
-- call which a person has to confirm first.
create or replace function failed_calls(p_events jsonb) returns integer language plpgsql immutable as $$
begin
  if not p_events @? '$[*].content.parts[*].functionResponse.response.error' then return 0; end if;
  return (
    select count(*)
    from jsonb_array_elements(p_events) e(event)
    cross join lateral jsonb_path_query(
      e.event, '$.content.parts[*].functionResponse ? (@.response.error.type() != "null")') r(response)
    where e.event ->> 'author' <> 'user'
      and not coalesce(e.event #> '{actions,requestedToolConfirmations}' ? (r.response ->> 'id'), false));
end $$;
comment on function failed_calls is 'Number of tool responses in the agent''s events that have an error.';

-- Adds what models used to the tokens by model of an invocation. p_models: see count_use. A loop, because
-- setting up a query that sums takes longer than the few models of a step.
create or replace function with_tokens(p_tokens jsonb, p_models jsonb) returns jsonb language plpgsql immutable as $$
declare
  v_used jsonb;
  v_earlier jsonb;
begin
  for v_place in 0 .. coalesce(jsonb_array_length(p_models), 0) - 1 loop
    v_used := p_models -> v_place;
    continue when (v_used ->> 'promptTokens')::bigint + (v_used ->> 'outputTokens')::bigint = 0;
    v_earlier := p_tokens -> coalesce(v_used ->> 'answeredAs', v_used ->> 'model');
    p_tokens := coalesce(p_tokens, '{}') || jsonb_build_object(
      coalesce(v_used ->> 'answeredAs', v_used ->> 'model'), jsonb_build_array(
        (v_used ->> 'promptTokens')::bigint + coalesce((v_earlier ->> 0)::bigint, 0),
        (v_used ->> 'outputTokens')::bigint + coalesce((v_earlier ->> 1)::bigint, 0)));
  end loop;
  return p_tokens;
end $$;
comment on function with_tokens is 'Adds what models used to the tokens by model of an invocation.';
