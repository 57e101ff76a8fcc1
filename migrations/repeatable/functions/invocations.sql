-- A retry must not re-create a deleted session: keys of its invocations are kept until they expire. A request that leaves
-- the queue without running, while its session stays, frees its key.
create or replace function keep_invocation_key() returns trigger language plpgsql as $$
begin
  insert into idempotency_keys (app_name, user_id, scope, key, request_hash, response_body, session_id)
  select old.app_name, old.user_id, 'invocation', old.idempotency_key, coalesce(old.request_hash, ''), '', old.session_id
  where not exists (select from sessions
                    where app_name = old.app_name and user_id = old.user_id and id = old.session_id)
  on conflict do nothing;
  return null;
end $$;
comment on function keep_invocation_key is 'Trigger function: stores the idempotency key of an invocation deleted with its session.';

-- An invocation that is a step of a job has ended, or was deleted: the job goes on (end_step). The job's user may be
-- another one, and only a superuser may attach the setting to the function. The session's user may write the
-- invocation's row, so the row makes no other job due than that of the case that it is a turn of.
create or replace function continue_job(ended anyelement) returns void language plpgsql as $$
declare
  all_users text := coalesce(current_setting('agent_runtime.all_users', true), '');
  v_id constant text := ended.job ->> 'id';
  v_case record;
begin
  if ended.job ->> 'kind' is distinct from 'evaluation' or v_id !~ '^[0-9a-f-]{36}(\.\d{1,9}){2}$' then return; end if;
  perform set_config('agent_runtime.all_users', 'on', true);
  select c.status, c.owner_id, c.session_user_id, c.session_id into v_case from eval_run_cases c
  where c.app_name = ended.app_name and c.run_id = left(v_id, 36)::uuid and c.place = split_part(v_id, '.', 2)::integer
    and c.trial = split_part(v_id, '.', 3)::integer;
  if v_case.status = 'running' and v_case.session_user_id = ended.user_id and v_case.session_id = ended.session_id then
    if end_step('evaluation', ended.app_name, eval_job_user(v_case.owner_id), v_id) then
      perform pg_notify('agent_runtime', '["evaluation"]');
    end if;
  end if;
  perform set_config('agent_runtime.all_users', all_users, true);
end $$;
comment on function continue_job is 'Lets the job go on of which an ended or deleted invocation is a step.';

-- Counts an invocation that ends or pauses, if it has begun and was not counted, whichever statement ends it: with
-- stamped times, each is counted once. finish_invocation stamps the time itself, because it counts after locks that an
-- end by any other statement does not take.
create or replace function stamp_end() returns trigger language plpgsql as $$
begin
  if new.status in ('queued', 'running') then return new; end if;
  if new.count_time is null and new.start_time is not null then
    perform count_use(new.app_name, new.user_id, 1, null);
    new.count_time := statement_timestamp();
  end if;
  if new.cronjob_id is not null and old.first_end_time is null then
    new.first_end_time := coalesce(new.end_time, statement_timestamp());
    new.not_before := null;
  end if;
  return new;
end $$;
comment on function stamp_end is 'Trigger function: an invocation ends or pauses; counts it once, and stores when the try of a cronjob''s run ended.';

-- lock_family: locks the sessions above a child session from the root on, and that session last: the order of deletions.
-- lock_parents: then locks the invocations above, also from the root on: the order of cancellations, which reach an
-- invocation before those below it. In between the caller counts what it stores (user_storage). Both come before a
-- statement that may end an invocation of the session (end_child). They lock nothing for a session of the user.
create or replace function lock_family(p_app text, p_user text, p_session text) returns void language plpgsql as $$
declare
  v_parent text;
begin
  select s.parent_session_id into v_parent from sessions s
  where s.app_name = p_app and s.user_id = p_user and s.id = p_session;
  if v_parent is null then return; end if;
  perform lock_family(p_app, p_user, v_parent);
  perform from sessions s where s.app_name = p_app and s.user_id = p_user and s.id = v_parent for no key update;
  perform from sessions s where s.app_name = p_app and s.user_id = p_user and s.id = p_session for no key update;
end $$;
comment on function lock_family is 'Locks the sessions above a child session, and that session.';

create or replace function lock_parents(p_app text, p_user text, p_session text) returns void language plpgsql as $$
declare
  v_session text;
  v_invocation text;
begin
  select s.parent_session_id, s.parent_invocation_id into v_session, v_invocation from sessions s
  where s.app_name = p_app and s.user_id = p_user and s.id = p_session;
  if v_session is null then return; end if;
  perform lock_parents(p_app, p_user, v_session);
  perform from invocations i
  where i.app_name = p_app and i.user_id = p_user and i.session_id = v_session and i.id = v_invocation
  for no key update;
end $$;
comment on function lock_parents is 'Locks the invocations above a child session.';

-- Adds to what an invocation has lent to its agents in the background, of its limits, in its stored request; no number
-- falls below 0. p_loan: {"llmCalls", "toolCalls", "tokens"}. Null for an invocation that has ended.
create or replace function add_loan(p_request jsonb, p_loan jsonb, p_sign integer) returns jsonb language sql immutable as $$
  select p_request || jsonb_build_object('loans', jsonb_build_object(
    'llmCalls', greatest(0, coalesce((p_request #>> '{loans,llmCalls}')::bigint, 0) + p_sign * (p_loan ->> 'llmCalls')::bigint),
    'toolCalls', greatest(0, coalesce((p_request #>> '{loans,toolCalls}')::bigint, 0) + p_sign * (p_loan ->> 'toolCalls')::bigint),
    'tokens', greatest(0, coalesce((p_request #>> '{loans,tokens}')::bigint, 0) + p_sign * (p_loan ->> 'tokens')::bigint)))
$$;
comment on function add_loan is 'Adds to what an invocation has lent to its agents in the background.';

-- create_child: inserts the session of an agent that an invocation calls, unless it is there. It begins with the state of
-- its parent. count_child counts a new one in the invocation, behind what is stored of it.
-- p_child: "child" of the stored request (request.ts). With "loan", which the parent then has no more, the agent works in
-- the background. p_delta, p_bytes, p_events: changes of the state, size and number of the first events.
-- Locks: sessions, user_storage; invocations. Errors of count_child: AR403: the parent ends, or has called 100 agents.
create or replace function create_child(
  p_app text, p_user text, p_session text, p_token uuid, p_child jsonb, p_first_text text, p_delta jsonb, p_bytes bigint,
  p_events integer, p_limits jsonb, out last integer, out changed timestamptz, out state jsonb)
language plpgsql as $$
declare
  v_before constant jsonb := coalesce(p_child -> 'state', '{}');
begin
  insert into sessions as s
    (app_name, user_id, id, lease_token, last_sequence, event_bytes, first_text, state, initial_state,
     parent_session_id, parent_invocation_id, parent_call_id, root_session_id, depth)
  values
    (p_app, p_user, p_session, p_token, p_events, limited_size(p_bytes, p_limits), coalesce(p_first_text, ''),
     limited_state(v_before || coalesce(p_delta -> 'session', '{}'), p_limits), v_before, p_child ->> 'sessionId',
     p_child ->> 'invocationId', p_child ->> 'callId', p_child ->> 'rootSessionId', (p_child ->> 'depth')::smallint)
  on conflict (app_name, user_id, id) do nothing
  returning s.last_sequence, s.update_time, s.state into last, changed, state;
  if last is null and not exists (
    select from sessions s
    where s.app_name = p_app and s.user_id = p_user and s.id = p_session
      and s.parent_session_id = p_child ->> 'sessionId' and s.parent_invocation_id = p_child ->> 'invocationId') then
    raise exception 'There is a session % already, which is not that of this call.', p_session using errcode = 'AR403';
  end if;
end $$;
comment on function create_child is 'Inserts the session of an agent that an invocation calls, unless it is there.';

create or replace function count_child(p_app text, p_user text, p_child jsonb) returns void language plpgsql as $$
begin
  update invocations i set
    children = i.children + 1,
    request = case when p_child ? 'loan' then add_loan(i.request, p_child -> 'loan', 1) else i.request end
  where i.app_name = p_app and i.user_id = p_user and i.session_id = p_child ->> 'sessionId'
    and i.id = p_child ->> 'invocationId' and i.status = 'running' and i.stop_requested_as is null and i.children < 100;
  if not found then
    raise exception 'The invocation has called 100 agents, or is about to end, and may call no more.' using errcode = 'AR403';
  end if;
end $$;
comment on function count_child is 'Counts the agent in the invocation that calls it.';

-- end_child: the invocation of a child session has ended. Called once per invocation.
--
--   1. Its use is added to that of its parent, which includes what its children used, and the call of the parent is
--      answered, if that waits for it. A parent that has ended has told its own use before, so that what comes later goes
--      on to its parent. What an agent in the background used is taken off what was lent to it; what any other has lent
--      and is not used yet counts for its parent from now on.
--   2. The result of an agent in the background becomes a message to the session of the next invocation above that has
--      not ended, at last to the session of the user (tell_result); and so do results that came for this invocation and
--      that it has not taken. None if one above was cancelled.
--
-- p_request: the stored request of the invocation before its end.
-- Locks: those of lock_family and lock_parents, which the caller has locked before unless the child was stopped with
-- its parent.
create or replace function end_child(ended anyelement, p_request jsonb) returns void language plpgsql as $$
declare
  v_now constant timestamptz := clock_timestamp();
  v_models constant jsonb := (
    select jsonb_agg(jsonb_build_object('model', m.key, 'promptTokens', m.value -> 0, 'outputTokens', m.value -> 1))
    from jsonb_each(ended.model_tokens) m);
  v_is_lent constant boolean := p_request -> 'child' ? 'loan';
  v_loan constant jsonb := case
    when v_is_lent then jsonb_build_object('llmCalls', ended.llm_calls, 'toolCalls', ended.tool_calls,
                                           'tokens', ended.prompt_tokens + ended.output_tokens)
    else p_request -> 'loans' end;
  v_session text := ended.session_id;
  v_call text;
  v_status text;
  v_reader text;
  v_is_cancelled boolean;
  v_was_cancelled boolean := false;
  v_parent record;
begin
  -- 1
  loop
    select s.parent_session_id, s.parent_invocation_id, s.parent_call_id into v_parent from sessions s
    where s.app_name = ended.app_name and s.user_id = ended.user_id and s.id = v_session;
    exit when v_parent.parent_session_id is null;
    update invocations i set
      llm_calls = i.llm_calls + ended.llm_calls, tool_calls = i.tool_calls + ended.tool_calls,
      prompt_tokens = i.prompt_tokens + ended.prompt_tokens, output_tokens = i.output_tokens + ended.output_tokens,
      model_tokens = with_tokens(i.model_tokens, v_models),
      request = case when v_loan is null then i.request
                     else add_loan(i.request, v_loan, case when v_is_lent then -1 else 1 end) end
    where i.app_name = ended.app_name and i.user_id = ended.user_id and i.session_id = v_parent.parent_session_id
      and i.id = v_parent.parent_invocation_id
    returning i.status, i.id, coalesce('cancelled' in (i.status, i.stop_requested_as), false)
    into v_status, v_reader, v_is_cancelled;
    v_was_cancelled := v_was_cancelled or v_is_cancelled;
    if v_session = ended.session_id then
      v_call := v_parent.parent_call_id;
      update tasks t set
        state = 'answered', answer = '{}', decided_via = 'child', decide_time = v_now, due_time = v_now,
        version = t.version + 1
      where t.app_name = ended.app_name and t.user_id = ended.user_id and t.session_id = v_parent.parent_session_id
        and t.invocation_id = v_parent.parent_invocation_id and t.call_id = v_parent.parent_call_id and t.kind = 'child'
        and t.state = 'open';
    end if;
    v_session := v_parent.parent_session_id;
    exit when v_status in ('queued', 'running', 'paused');
  end loop;
  -- 2
  if v_session = ended.session_id or v_was_cancelled then return; end if;
  if v_is_lent then perform tell_result(ended, p_request, v_call); end if;
  if v_is_lent or ended.children > 0 then
    perform pass_results(ended.app_name, ended.user_id, ended.session_id, v_session, v_reader);
  end if;
end $$;
comment on function end_child is 'Tells the parent that the invocation of a child session has ended.';

-- tell_result: queues the result of an agent in the background, in its own session, from where pass_results takes it
-- to its reader. It is a message that steers (take_messages), of the user to whom the sessions belong, with "result" in
-- its notes; its state changes are those of the child's session. Its id is derived from that of the invocation.
-- p_call: the call of the parent that started the agent.
create or replace function tell_result(ended anyelement, p_request jsonb, p_call text) returns void language plpgsql as $$
declare
  -- In a variable, because a distributed database allows no volatile function in an insert.
  v_token constant uuid := gen_random_uuid();
  v_most constant integer := (p_request #>> '{child,charactersAtMost}')::integer;
  v_delta jsonb := '{}';
  v_artifacts jsonb;
  v_result jsonb := jsonb_build_object('agent', p_request #>> '{child,agent}', 'sessionId', ended.session_id,
    'invocationId', ended.id, 'callId', p_call, 'status', ended.status,
    'turns', 1 + coalesce((p_request #>> '{child,turns}')::integer, 0));
  v_text text := format('The agent `%s`, which the call %s started in the background, ', p_request #>> '{child,agent}', p_call);
begin
  -- As refuse_while_erased, which would refuse the row: with the lock no erasure begins in between.
  perform pg_advisory_xact_lock_shared(user_data_lock(ended.app_name, ended.user_id));
  if exists (select from user_erasures e where e.app_name = ended.app_name and e.user_id = ended.user_id) then return; end if;
  if ended.status = 'succeeded' then
    select coalesce(jsonb_object_agg(d.key, d.value), '{}') into v_delta
    from sessions s cross join lateral jsonb_each(s.state) d
    where s.app_name = ended.app_name and s.user_id = ended.user_id and s.id = ended.session_id
      and s.initial_state -> d.key is distinct from d.value;
    select jsonb_object_agg(a.key, a.value order by e.sequence) into v_artifacts
    from events e cross join lateral jsonb_each(e.payload #> '{actions,artifactDelta}') a
    where e.app_name = ended.app_name and e.user_id = ended.user_id and e.session_id = ended.session_id
      and jsonb_typeof(e.payload #> '{actions,artifactDelta}') = 'object' and a.key not like 'tool-results/%';
    v_text := v_text || 'has ended.'
      || coalesce(' It saved these artifacts: ' || (select string_agg(key, ', ') from jsonb_object_keys(v_artifacts) key) || '.', '')
      || case when length(ended.response_body) > v_most
              then format(' Its answer has %s characters, too many to be shown whole. These are the first:', length(ended.response_body))
              else ' Its answer:' end
      -- What is cut may end within the stored form of a character (U+E000 and four digits, json-escape.ts).
      || E'\n\n' || regexp_replace(left(coalesce(ended.response_body, ''), v_most), U&'\E000[0-9a-f]{0,3}$', '');
    v_result := v_result || jsonb_strip_nulls(jsonb_build_object('artifacts', v_artifacts));
  else
    v_text := v_text || case ended.status when 'cancelled' then 'was cancelled: ' when 'interrupted' then 'was interrupted: '
                                          else 'has failed: ' end || coalesce(ended.error_message, '');
  end if;
  insert into invocations
    (app_name, user_id, session_id, id, status, lease_token, lease_expire_time, not_before, first_text, request)
  values
    (ended.app_name, ended.user_id, ended.session_id, ended.id || '-result', 'queued', v_token, clock_timestamp(), 'infinity',
     left(v_text, 200),
     jsonb_strip_nulls(jsonb_build_object(
       'userId', p_request -> 'userId', 'keyId', p_request -> 'keyId', 'waitsForBudget', p_request -> 'waitsForBudget'))
     || jsonb_build_object(
       'version', 1, 'streaming', false, 'overrides', '{}'::jsonb, 'result', v_result, 'stateDelta', v_delta,
       'content', jsonb_build_object('role', 'user', 'parts', jsonb_build_array(jsonb_build_object('text', v_text))),
       'steer', jsonb_build_object(
         'id', ended.id || '-result', 'author', 'user', 'nodeInfo', '{"path": ""}'::jsonb,
         'actions', jsonb_build_object('stateDelta', v_delta, 'artifactDelta', '{}'::jsonb, 'requestedAuthConfigs', '{}'::jsonb,
                                       'requestedToolConfirmations', '{}'::jsonb),
         'customMetadata', jsonb_build_object('agent-runtime/steer', true, 'agent-runtime/result', v_result))))
  on conflict do nothing;
end $$;
comment on function tell_result is 'Queues the result of an agent in the background.';

-- pass_results: moves the results that wait in a child session to another one above it, for an invocation there
-- (p_reader, which may have ended), and wakes one that sleeps there. In the session of the user they steer the
-- invocation that runs or begin the next turn. In a child session they wait for its invocation ("infinity"), because no
-- other turn begins there.
-- Locks: the session, which the caller has locked, invocations, tasks.
create or replace function pass_results(p_app text, p_user text, p_from text, p_to text, p_reader text) returns void
language plpgsql as $$
begin
  update invocations i set
    session_id = p_to, request = i.request || jsonb_build_object('reader', p_reader),
    not_before = case when exists (
      select from sessions s
      where s.app_name = p_app and s.user_id = p_user and s.id = p_to and s.parent_session_id is not null) then i.not_before end
  where i.app_name = p_app and i.user_id = p_user and i.session_id = p_from and i.status = 'queued'
    and i.request ? 'result';
  if not found then return; end if;
  update sessions s set is_steered = true where s.app_name = p_app and s.user_id = p_user and s.id = p_to;
  perform wake_by_message(p_app, p_user, p_to);
  perform pg_notify('agent_runtime', '["queue"]');
end $$;
comment on function pass_results is 'Moves the results that wait in a child session to one above it.';

-- stop_invocation: asks an invocation to stop. A paused one, and a queued one that no process has begun, ends at once.
-- Returns the status then; null if there is no such invocation.
create or replace function stop_invocation(
  p_app text, p_user text, p_session text, p_id text, p_as text, p_why text) returns text
language plpgsql as $$
declare
  v_now constant timestamptz := clock_timestamp();
  v_status text;
  v_ends boolean;
begin
  select i.status, i.status = 'paused' or i.status = 'queued' and i.start_time is null into v_status, v_ends from invocations i
  where i.app_name = p_app and i.user_id = p_user and i.session_id = p_session and i.id = p_id
  for no key update;
  if v_ends then
    update invocations i set
      status = p_as, end_time = greatest(v_now, i.create_time), error_code = p_as, error_message = p_why, request = null,
      stop_requested_as = case when i.status = 'queued' then p_as else i.stop_requested_as end,
      stop_request_time = case when i.status = 'queued' then coalesce(i.stop_request_time, v_now) else i.stop_request_time end
    where i.app_name = p_app and i.user_id = p_user and i.session_id = p_session and i.id = p_id;
  elsif v_status in ('queued', 'running') then
    update invocations i set
      status = i.status, stop_requested_as = p_as, stop_request_time = coalesce(i.stop_request_time, v_now)
    where i.app_name = p_app and i.user_id = p_user and i.session_id = p_session and i.id = p_id;
  end if;
  return case when v_ends then p_as else v_status end;
end $$;
comment on function stop_invocation is 'Asks an invocation to stop; one that nobody runs ends at once.';

-- request_stop: asks an invocation to stop for a client, and with it the agents that it waits for. A cancellation
-- (p_as) reaches those in the background too, also if the invocation has ended.
-- Locks: those of lock_family and lock_parents, and the session, if it has agents or is one; then invocations.
-- status: the status then; null if there is no such invocation. stopped: agents that outlived an invocation which
-- has ended, and are stopped.
create or replace function request_stop(
  p_app text, p_user text, p_session text, p_id text, p_as text, p_why text, out status text, out stopped integer)
language plpgsql as $$
declare
  v_now constant timestamptz := clock_timestamp();
  v_children smallint;
  v_parent text;
begin
  stopped := 0;
  select i.children, s.parent_session_id into v_children, v_parent from invocations i
  join sessions s on s.app_name = p_app and s.user_id = p_user and s.id = p_session
  where i.app_name = p_app and i.user_id = p_user and i.session_id = p_session and i.id = p_id;
  if v_children > 0 or v_parent is not null then
    perform lock_family(p_app, p_user, p_session);
    perform from sessions s where s.app_name = p_app and s.user_id = p_user and s.id = p_session for no key update;
    perform lock_parents(p_app, p_user, p_session);
  end if;
  status := stop_invocation(p_app, p_user, p_session, p_id, p_as, p_why);
  if v_children > 0 and p_as = 'cancelled' and status not in ('queued', 'running', 'paused') then
    update invocations i set stop_requested_as = p_as, stop_request_time = coalesce(i.stop_request_time, v_now)
    where i.app_name = p_app and i.user_id = p_user and i.session_id = p_session and i.id = p_id;
    stopped := stop_children(p_app, p_user, p_session, p_id, p_as);
  end if;
end $$;
comment on function request_stop is 'Asks an invocation to stop, and with it its agents.';

-- stop_children: an invocation is asked to stop, or has ended: the agents that it waits for are asked to stop, and by the
-- same trigger those below. If it was cancelled (p_as), so are those in the background, also below an agent that has
-- ended, and results that wait for it. One that runs in the process of its parent ends with it, any other once it is told.
-- Returns the number of agents that are asked to stop here.
create or replace function stop_children(p_app text, p_user text, p_session text, p_invocation text, p_as text) returns integer
language plpgsql as $$
declare
  v_is_whole constant boolean := p_as = 'cancelled';
  v_why constant text := 'The invocation that it is a part of has ended, or was stopped.';
  v_child record;
  v_stopped integer := 0;
begin
  if v_is_whole then
    for v_child in
      select i.id from invocations i
      where i.app_name = p_app and i.user_id = p_user and i.session_id = p_session and i.status = 'queued'
        and i.start_time is null and i.request ->> 'reader' = p_invocation
      order by i.id for no key update skip locked
    loop
      perform stop_invocation(p_app, p_user, p_session, v_child.id, p_as, v_why);
    end loop;
  end if;
  for v_child in
    select i.session_id, i.id, i.children, coalesce(i.request -> 'child' ? 'loan', false) as is_lent,
           i.status in ('queued', 'running', 'paused') as is_open from sessions s
    join invocations i on i.app_name = p_app and i.user_id = p_user and i.session_id = s.id
    where s.app_name = p_app and s.user_id = p_user and s.parent_session_id = p_session
      and s.parent_invocation_id = p_invocation and not coalesce(i.request ? 'result', false)
    order by i.session_id
  loop
    if v_child.is_open and (v_is_whole or not v_child.is_lent) then
      perform stop_invocation(p_app, p_user, v_child.session_id, v_child.id, p_as, v_why);
      perform pg_notify('agent_runtime', json_build_array('stop:' || v_child.id)::text);
      v_stopped := v_stopped + 1;
    elsif v_is_whole and v_child.children > 0 and not v_child.is_open then
      v_stopped := v_stopped + stop_children(p_app, p_user, v_child.session_id, v_child.id, p_as);
    end if;
  end loop;
  return v_stopped;
end $$;
comment on function stop_children is 'Asks the agents of an invocation to stop that was asked to stop, or has ended.';

-- What follows from the end of an invocation, or from its pause. One function, in this order, because ends that lock
-- lanes of jobs in different orders would wait for each other. The functions that it calls take the row as `anyelement`,
-- because on a cluster the row of a trigger has the type of a part of the table.
create or replace function follow_invocation() returns trigger language plpgsql as $$
declare
  is_open constant boolean := new.status in ('queued', 'running');
begin
  if is_open then
    if new.children > 0 and new.stop_requested_as is distinct from old.stop_requested_as then
      perform stop_children(new.app_name, new.user_id, new.session_id, new.id, new.stop_requested_as);
    end if;
    return null;
  end if;
  -- A row is passed whole, so its tapes would be read from where they are stored out of line.
  old.tapes := null;
  new.tapes := null;
  if old.job is not null and old.status in ('queued', 'running') then perform continue_job(old); end if;
  if new.status = old.status then return null; end if;
  if new.status <> 'paused' then
    -- Before its end is told, because results that wait for a cancelled one are told to nobody.
    if new.children > 0 then
      perform stop_children(new.app_name, new.user_id, new.session_id, new.id, case
        when coalesce('cancelled' in (new.status, new.stop_requested_as), false) then 'cancelled' else 'interrupted' end);
    end if;
    if old.request ? 'child' then perform end_child(new, old.request); end if;
  end if;
  if new.status in ('succeeded', 'failed') and new.steered_invocation_id is null then perform add_score_jobs(new); end if;
  if new.status in ('cancelled', 'interrupted') then  -- its tasks need no answer
    update tasks t set
      state = 'cancelled', due_time = null, token_hash = null, decide_time = null, version = t.version + 1
    where t.app_name = new.app_name and t.user_id = new.user_id and t.session_id = new.session_id
      and t.invocation_id = new.id and t.state in ('open', 'answered');
  end if;
  if new.webhook_url is not null then perform insert_delivery_of_invocation(new); end if;
  if new.cronjob_id is not null and old.first_end_time is null then perform end_run(new); end if;
  return null;
end $$;
comment on function follow_invocation is 'Trigger function: an invocation has ended or paused, or is asked to stop.';

create or replace function follow_deleted_invocation() returns trigger language plpgsql as $$
begin
  if old.status not in ('queued', 'running') then return null; end if;
  old.tapes := null;  -- as in follow_invocation
  if old.job is not null then perform continue_job(old); end if;
  if old.cronjob_id is not null and old.first_end_time is null then perform leave_out_deleted_run(old); end if;
  return null;
end $$;
comment on function follow_deleted_invocation is 'Trigger function: an invocation was deleted.';
