-- take_messages: stores the messages that wait for a session's run behind the last event of a step. They become events of
-- the run, in the order of the queue, and their rows end. Internal: called by append_events and claim_session, which have
-- locked the session's row.
--
-- A message that another transaction has locked, and all behind it, wait for the next step: it is being cancelled, or a
-- claim looks at it in vain, because the session is not free. One whose end a webhook is told (of an A2A client) waits for
-- its own turn, as does one whose id an event of the session has already, which a client may have chosen: its own turn
-- gives the event another id. So each message is an event of the run or begins a turn of its own, and never both, because
-- its row has one status. One with other settings than the run begins a turn of its own (messages_to_take). A message
-- waits, too, that its own turn would refuse: it is too large for the session, or its changes of the state (of an agent
-- in the background) are; its key is not valid any more (messages_to_take); a budget has no invocation left for it
-- (invocations_left). A message that is taken counts as an invocation of the budgets, so that steering is no way around
-- them; the result of an agent in the background does not.
--
-- p_limits: {"messages": maximum number, "keys": see messages_to_take, "sessionBytes", "stateBytes", "stateKeys"}. p_last,
-- p_changed: the session's last sequence, and the time of the change.
-- Locks: invocations and the budgets without waiting, user_storage, budget_uses.
-- last, lines: as in append_events; lines is null without messages.
create or replace function take_messages(
  p_app text, p_user text, p_session text, p_invocation text, p_limits jsonb, p_last integer, p_changed timestamptz,
  out last integer, out lines text)
language plpgsql as $$
declare
  v_now constant timestamptz := clock_timestamp();
  v_room bigint := (p_limits ->> 'sessionBytes')::bigint;
  v_places constant bigint := coalesce(invocations_left(p_app, p_user), 9223372036854775807);
  v_counted integer := 0;
  v_is_left boolean := false;
  v_before jsonb;
  v_state jsonb;
  v_delta jsonb;
  v_id text;
  v_is_result boolean;
  v_event jsonb;
  v_events jsonb := '[]';
  v_sizes integer[] := '{}';
  v_size integer;
begin
  last := p_last;
  select v_room - s.event_bytes, s.state, s.state into v_room, v_before, v_state from sessions s
  where s.app_name = p_app and s.user_id = p_user and s.id = p_session;
  for v_id, v_is_result in
    select m.id, m.is_result from messages_to_take(p_app, p_user, p_session, p_invocation, p_limits -> 'keys') m
  loop
    v_is_left := cardinality(v_sizes) >= (p_limits ->> 'messages')::integer or not v_is_result and v_counted >= v_places;
    exit when v_is_left;
    continue when exists (
      select from events e
      where e.app_name = p_app and e.user_id = p_user and e.session_id = p_session and e.id = v_id);
    select (w.request -> 'steer')
           || jsonb_build_object('content', w.request -> 'content', 'invocationId', p_invocation),
           coalesce(w.request -> 'stateDelta', '{}')
    into v_event, v_delta
    from invocations w
    where w.app_name = p_app and w.user_id = p_user and w.session_id = p_session and w.id = v_id and w.status = 'queued'
    for update skip locked;
    if not found then
      v_is_left := exists (
        select from invocations w
        where w.app_name = p_app and w.user_id = p_user and w.session_id = p_session and w.id = v_id
          and w.status = 'queued');
      exit when v_is_left;
      continue;
    end if;
    v_size := octet_length(v_event::text);
    v_is_left := v_size > v_room;
    if v_delta <> '{}' then
      v_delta := v_state || v_delta;
      v_is_left := v_is_left or octet_length(v_delta::text) > (p_limits ->> 'stateBytes')::integer
        or (select count(*) from jsonb_object_keys(v_delta)) > (p_limits ->> 'stateKeys')::integer;
    end if;
    exit when v_is_left;
    if v_delta <> '{}' then v_state := v_delta; end if;
    v_room := v_room - v_size;
    v_events := v_events || v_event;
    v_sizes := v_sizes || v_size;
    v_counted := v_counted + (not v_is_result)::integer;
    update invocations i set
      status = 'succeeded', steered_invocation_id = p_invocation, end_time = greatest(v_now, i.create_time),
      count_time = case when not v_is_result then v_now end, request = null
    where i.app_name = p_app and i.user_id = p_user and i.session_id = p_session and i.id = v_id;
  end loop;
  update sessions s set
    is_steered = v_is_left, last_sequence = s.last_sequence + cardinality(v_sizes),
    event_bytes = s.event_bytes + total_size(v_sizes), state = case when v_state <> v_before then v_state else s.state end
  where s.app_name = p_app and s.user_id = p_user and s.id = p_session
  returning s.last_sequence into last;
  if v_sizes <> '{}' then
    lines := store_events(p_app, p_user, p_session, v_events, v_sizes, '{}', true, p_limits, last, p_changed, true);
    if v_counted > 0 then perform count_use(p_app, p_user, v_counted, null); end if;
  end if;
end $$;
comment on function take_messages is 'Stores the messages that wait for a session''s run as events of the run.';

-- messages_to_take: the messages that an invocation may take while it runs, in the order of the queue. p_keys: ids of the
-- API keys that may invoke the agent for the session's user now; the message of another one waits for its own turn, as
-- does one with other settings. Results of agents in the background are of no caller.
create or replace function messages_to_take(p_app text, p_user text, p_session text, p_invocation text, p_keys jsonb)
returns table (id text, is_result boolean) language plpgsql stable as $$
declare
  v_request jsonb;
begin
  select i.request into v_request from invocations i
  where i.app_name = p_app and i.user_id = p_user and i.session_id = p_session and i.id = p_invocation;
  return query
    select w.id, w.request ? 'result' from invocations w
    where w.app_name = p_app and w.user_id = p_user and w.session_id = p_session and w.status = 'queued'
      and w.start_time is null and w.webhook_url is null and w.request ? 'steer'
      and (not w.request ? 'keyId' or w.request ? 'result' or p_keys ? (w.request ->> 'keyId'))
      and has_settings_of(w.request, v_request)
    order by w.create_time, w.id;
end $$;
comment on function messages_to_take is 'The messages that an invocation may take while it runs.';

-- True if a message (p_request) overrides nothing of the agent, or the same as the invocation that runs (p_run): clients
-- with tools of their own name them with each request. Encrypted overrides cannot be compared.
create or replace function has_settings_of(p_request jsonb, p_run jsonb) returns boolean language sql immutable as $$
  select not p_request ? 'secrets'
    and (coalesce(p_request -> 'overrides', '{}') = '{}'
         or p_request -> 'overrides' = p_run -> 'overrides' and not p_run ? 'secrets')
$$;
comment on function has_settings_of is 'Whether a message has no settings, or those of a running invocation.';

-- The paused invocation of a session that only sleeps or waits for signals, the one that paused last; null for none.
create or replace function sleeping_run(p_app text, p_user text, p_session text) returns text language plpgsql stable as $$
begin
  return (
    select i.id from tasks t
    join invocations i
      on i.app_name = p_app and i.user_id = p_user and i.session_id = p_session and i.id = t.invocation_id
    where t.app_name = p_app and t.user_id = p_user and t.session_id = p_session and t.state = 'open'
      and t.kind in ('sleep', 'signal') and i.status = 'paused'
      and not exists (
        select from tasks o
        where o.app_name = p_app and o.user_id = p_user and o.session_id = p_session and o.invocation_id = t.invocation_id
          and o.state = 'open' and o.kind not in ('sleep', 'signal'))
    order by i.end_time desc, i.id limit 1);
end $$;
comment on function sleeping_run is 'The paused invocation of a session that only sleeps or waits for signals.';

-- True if an invocation of the session sleeps and may take a message (p_request), which wakes it then.
create or replace function may_wake(p_app text, p_user text, p_session text, p_request jsonb) returns boolean
language plpgsql stable as $$
declare
  v_run constant text := sleeping_run(p_app, p_user, p_session);
begin
  return exists (
    select from invocations i
    where i.app_name = p_app and i.user_id = p_user and i.session_id = p_session and i.id = v_run
      and has_settings_of(p_request, i.request));
end $$;
comment on function may_wake is 'Whether an invocation of a session sleeps that may take a message.';

-- wake_by_message: if an invocation of the session sleeps, ends its sleep and queues it, because a message waits for it.
-- It is older than the message, so it comes before, and its claim takes the message.
-- Locks: tasks, then invocations without waiting. If another process has locked the invocation, its task is due at once.
create or replace function wake_by_message(p_app text, p_user text, p_session text) returns void language plpgsql as $$
declare
  v_now constant timestamptz := clock_timestamp();
  v_run text;
  v_task text;
begin
  v_run := sleeping_run(p_app, p_user, p_session);
  if v_run is null then return; end if;
  for v_task in
    select t.id from tasks t
    where t.app_name = p_app and t.user_id = p_user and t.session_id = p_session and t.invocation_id = v_run
      and t.state = 'open' and t.kind in ('sleep', 'signal')
    order by t.id for update
  loop
    update tasks k set
      state = 'answered', answer = jsonb_build_object('woken', 'by a message', 'at', v_now), decided_by = p_user,
      decided_via = 'run', decide_time = v_now, due_time = v_now, version = k.version + 1
    where k.app_name = p_app and k.user_id = p_user and k.session_id = p_session and k.id = v_task;
  end loop;
  if v_task is not null then perform wake_task(p_app, p_user, p_session, v_task); end if;
end $$;
comment on function wake_by_message is 'Ends the sleep of a session''s invocation for which a message waits.';
