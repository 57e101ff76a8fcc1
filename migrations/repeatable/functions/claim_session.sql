-- claim_session: starts or resumes an invocation in an idle session, and stores its first events.
--
--   0. A message that steers starts no invocation beside one that sleeps, which it wakes from the queue
--      (enqueue_invocation).
--   1. Look up the idempotency key, and check the user's budgets. A repeated request, whose response is stored, is not
--      checked. For a resumed invocation (one that was returned to the queue, or whose pause an answer ends) only
--      tokens and cost are checked, because its start was counted already. Any other request starts a new invocation.
--   2. If the invocation is queued (p_is_queued), lock its session against deletion, because a deletion locks the
--      session before its invocations; for an invocation that has called agents lock it whole, because the end of one
--      of them locks both in this order (lock_family). Then lock its row, so that a cancellation comes either before or
--      after the claim. If the row stores the request, take the row by compare-and-set on the lease token that the
--      polling worker read (p_read). So the first worker wins, and a worker that read an older token cannot store the
--      prompt twice. A cronjob's run begins only while no other one of the cronjob goes on, and fewer than p_places of
--      its user. If its session is busy or others wait for it, the run takes its place in the queue of the session,
--      which counts as one of its user's places.
--   3. First come, first served: the claim fails if an earlier request waits for the session. Waiting requests whose
--      lease has expired do not count, nor do runs of cronjobs, which may have to wait for more. A resumed invocation
--      goes before all waiting requests, even if its own lease had expired.
--   4. Lock and advance the session's row and set the lease. If there is no session and p_creates is set, insert the
--      session, unless the idempotency key belongs to an invocation that was deleted with its session. p_is_new: only
--      insert; a new session has no invocations, so steps 1 and 3 look for none. A session that the request names as a
--      child's ("child" in it: see sessions.parent_session_id) begins with the state of its parent; an invocation has
--      at most 100 of them (create_child, count_child). A child session takes no other new request. If another process
--      inserts the session at the same moment, the session counts as busy. If an invocation was returned to the queue
--      between step 3 and the lock, that invocation must go first: this claim fails with 40001, the caller retries, and
--      step 3 then refuses.
--   5. If the invocation is a step of a job (p_job), begin the step: its process must still hold the job. A trigger
--      makes the job due at the end of the invocation if its process has died. Insert the invocation's row, or update the
--      row of a resumed invocation and store the agent version that resumes it. An invocation that was returned to the
--      queue keeps its request and any requested stop; its attempt counter increases by one, the time that it ran
--      before counts towards its time limit, and p_request is at most the trace context of this run. Any other
--      invocation stores when, and after which event, it began ("began" in its request).
--   6. Close the tasks of the calls that the message answers (answer_calls). Of two concurrent answers the first wins,
--      and an answer to a call without a task is refused. If wake_task queued the invocation, it has closed the tasks
--      already. If the message interrupts sleeping invocations (p_ends_sleeps), end the session's invocations that
--      sleep or wait for a signal; a trigger cancels their tasks.
--   7. Merge shared state and insert the events (store_events). The events of a session that had none are its whole
--      content, so they are returned; those of another session only with p_returns, for a follower in the claiming
--      process. An invocation that a message woke takes the waiting messages (take_messages), which its first request
--      to a model then has; that of a child session, where no message begins a turn, takes them whatever woke it.
--   8. If the user has budgets, count the invocation, unless it is resumed. Otherwise its first end or pause counts it
--      (finish_invocation, else stamp_end).
--
-- If the claim does not match, it may be the retry of a claim that succeeded but whose response was lost. The session
-- then already has this lease token (renew_claim).
-- Locks: for a queued invocation its session against deletion, then its row; after that in the order of append_events:
-- sessions, user_storage, invocations, tasks, user_states, app_states, budget_uses. A cancellation locks the same
-- invocation, finish_invocation the same session. This function never waits for a busy session to become idle.
-- Errors: those of append_events and answer_calls; AR403: see step 4 about child sessions; 40001: see step 4; AR419:
-- another process has claimed the job; 23505 on invocations_idempotency_key: another invocation uses the key.
--
-- Results: over: the budget that refused the claim. limited: the user has budgets, so model calls need reservations.
-- last: the session's last sequence, events of this claim included. lines: these events as append_events returns them
-- (null for no events). state_text: the merged state of a session that had no events. last, lines and state_text are
-- null if an earlier try had already succeeded.
create or replace function claim_session(
  p_app text, p_user text, p_session text, p_invocation text, p_token uuid, p_read uuid, p_duration_ms integer,
  p_key text, p_hash text, p_webhook text, p_request jsonb, p_is_queued boolean, p_creates boolean, p_is_new boolean,
  p_is_eval boolean, p_is_free boolean, p_version text, p_answers jsonb, p_ends_sleeps boolean,
  p_events jsonb, p_delta jsonb, p_first_text text, p_limits jsonb, p_returns boolean default false,
  p_job jsonb default null, p_places integer default null,
  out claimed boolean, out over json, out limited boolean, out lines text, out state_text text, out last integer)
language plpgsql as $$
declare
  v_sizes integer[] := event_sizes(p_events);
  v_is_whole boolean;  -- true if the events of this claim are all that the session has
  v_state jsonb;
  v_is_forgotten boolean := false;
  v_is_repeated boolean := false;
  v_queued_since timestamptz;
  v_goes_on boolean := false;
  v_has_begun boolean := false;
  v_was_woken boolean := false;
  v_is_new_run boolean := false;  -- a run of a cronjob that no process has tried to begin
  v_cronjob text;
  v_parent text;
  v_last integer;
  v_changed timestamptz;
  v_is_steered boolean;
  v_messages text;
  v_now constant numeric := extract(epoch from clock_timestamp());
begin
  claimed := false;
  -- 0
  if p_request ? 'steer' and not p_is_queued and not p_is_new and may_wake(p_app, p_user, p_session, p_request) then
    return;
  end if;
  -- 1
  limited := exists (select from budgets b where b.app_name = p_app and b.user_id in ('', p_user));
  if p_key is not null then
    v_is_forgotten := is_forgotten_key(p_app, p_user, p_key);
    v_is_repeated := v_is_forgotten or exists (
      select from invocations i
      where i.app_name = p_app and i.user_id = p_user and i.idempotency_key = p_key and i.status <> 'queued');
  end if;
  if not p_is_new then
    v_has_begun := exists (
      select from invocations i
      where i.app_name = p_app and i.user_id = p_user and i.session_id = p_session and i.id = p_invocation
        and case when p_is_queued then i.start_time is not null or i.end_time is not null
                 else i.status = 'paused' and exists (
                   select from tasks t
                   where t.app_name = p_app and t.user_id = p_user and t.session_id = p_session and t.invocation_id = i.id
                     and (t.state = 'open' and p_answers @> jsonb_build_array(jsonb_build_object('id', t.call_id))
                          or t.decide_time >= i.end_time)) end);
  end if;
  if limited and not p_is_free and not v_is_repeated then
    if v_has_begun then
      over := over_budget(p_app, p_user, 0, 0);
    else
      -- Serialised by a lock, because concurrent claims would all read the same number of invocations and pass.
      if exists (select from budgets b where b.app_name = p_app and b.max_invocations is not null) then
        perform lock_budgets(p_app, p_user);
      end if;
      over := over_budget(p_app, p_user);
    end if;
    if over is not null then return; end if;
  end if;
  -- 2
  if p_is_queued then
    if exists (
      select from invocations i
      where i.app_name = p_app and i.user_id = p_user and i.session_id = p_session and i.id = p_invocation and i.children > 0)
    then
      perform from sessions s where s.app_name = p_app and s.user_id = p_user and s.id = p_session for no key update;
    else
      perform from sessions s where s.app_name = p_app and s.user_id = p_user and s.id = p_session for key share;
    end if;
    select i.create_time, i.start_time is not null, i.start_time is null and i.end_time is not null, i.not_before is not null,
           i.cronjob_id
    into v_queued_since, v_goes_on, v_was_woken, v_is_new_run, v_cronjob from invocations i
    where i.app_name = p_app and i.user_id = p_user and i.session_id = p_session and i.id = p_invocation
      and i.status = 'queued' and i.lease_token in (p_token, p_read)
    for update of i;
    if not found then
      claimed := renew_claim(p_app, p_user, p_session, p_invocation, p_token, p_duration_ms);
      return;
    end if;
    if p_places is not null and v_is_new_run and not may_begin_run(p_app, p_user, v_cronjob, p_places) then return; end if;
  end if;
  if not p_is_new then
    -- 3
    if exists (
      select from invocations w
      where w.app_name = p_app and w.user_id = p_user and w.session_id = p_session and w.status = 'queued'
        and (w.lease_expire_time > statement_timestamp() or w.request is not null) and w.not_before is null
        and (not p_is_queued
             or (w.start_time is null, w.create_time, w.id) < (not v_goes_on, v_queued_since, p_invocation))) then
      if v_is_new_run then perform queue_in_session(p_app, p_user, p_session, p_invocation); end if;
      claimed := renew_claim(p_app, p_user, p_session, p_invocation, p_token, p_duration_ms);
      return;
    end if;
    -- 4
    update sessions s set
      lease_token = p_token,
      last_sequence = s.last_sequence + cardinality(v_sizes),
      event_bytes = case when v_sizes = '{}' then s.event_bytes
                         else limited_size(s.event_bytes + total_size(v_sizes), p_limits) end,
      first_text = coalesce(nullif(s.first_text, ''), p_first_text, ''),
      state = case when p_delta ? 'session' then limited_state(s.state || (p_delta -> 'session'), p_limits) else s.state end,
      update_time = next_time(s.update_time, statement_timestamp())
    where s.app_name = p_app and s.user_id = p_user and s.id = p_session and s.lease_token is null
      and (p_is_queued or not v_is_repeated)
    returning s.last_sequence, s.update_time, s.state, s.is_steered, s.parent_session_id
    into v_last, v_changed, v_state, v_is_steered, v_parent;
  end if;
  if v_last is not null then
    if v_parent is not null and not p_is_queued then perform refuse_child(p_session); end if;
    if not v_goes_on and exists (
      select from invocations w
      where w.app_name = p_app and w.user_id = p_user and w.session_id = p_session and w.status = 'queued'
        and w.start_time is not null and w.request is not null and w.id <> p_invocation) then
      raise exception 'an invocation of the session was left' using errcode = '40001';
    end if;
  elsif p_is_new and p_request ? 'child' then
    select c.last, c.changed, c.state into v_last, v_changed, v_state
    from create_child(p_app, p_user, p_session, p_token, p_request -> 'child', p_first_text, p_delta, total_size(v_sizes),
                      cardinality(v_sizes), p_limits) c;
    if v_last is not null then perform count_child(p_app, p_user, p_request -> 'child'); end if;
  elsif p_creates and not v_is_forgotten and (p_is_new or not exists (
    select from sessions s where s.app_name = p_app and s.user_id = p_user and s.id = p_session)) then
    insert into sessions as s
      (app_name, user_id, id, lease_token, last_sequence, event_bytes, first_text, state, is_eval)
    values
      (p_app, p_user, p_session, p_token, cardinality(v_sizes), limited_size(total_size(v_sizes), p_limits),
       coalesce(p_first_text, ''),
       case when p_delta ? 'session' then limited_state(p_delta -> 'session', p_limits) else '{}' end, p_is_eval)
    on conflict (app_name, user_id, id) do nothing
    returning s.last_sequence, s.update_time, s.state into v_last, v_changed, v_state;
  end if;
  if v_last is null then
    if v_is_new_run then perform queue_in_session(p_app, p_user, p_session, p_invocation); end if;
    claimed := renew_claim(p_app, p_user, p_session, p_invocation, p_token, p_duration_ms);
    return;
  end if;
  -- 5
  if p_job is not null and not begin_step(p_job ->> 'kind', p_app, p_job ->> 'userId', p_job ->> 'id', (p_job ->> 'token')::uuid)
  then
    raise exception 'the job was claimed by another process' using errcode = 'AR419';
  end if;
  insert into invocations as i
    (app_name, user_id, session_id, id, status, lease_token, lease_expire_time, idempotency_key, request_hash,
     webhook_url, agent_version, first_text, job, request, start_time, count_time)
  values
    (p_app, p_user, p_session, p_invocation, 'running', p_token,
     clock_timestamp() + p_duration_ms * interval '1 millisecond', p_key, p_hash, p_webhook,
     p_version, p_first_text, p_job - 'token', (p_request - 'steer' #- '{child,state}') || jsonb_build_object('began', jsonb_build_object(
       'at', v_now, 'sequence', v_last, 'llmCalls', 0, 'toolCalls', 0)),
     clock_timestamp(), case when p_is_free or limited then to_timestamp(v_now) end)
  on conflict (app_name, user_id, session_id, id) do update set
    status = 'running', lease_token = excluded.lease_token, lease_expire_time = excluded.lease_expire_time,
    idempotency_key = coalesce(excluded.idempotency_key, i.idempotency_key),
    request_hash = coalesce(excluded.request_hash, i.request_hash),
    webhook_url = coalesce(excluded.webhook_url, i.webhook_url),
    agent_version = excluded.agent_version, first_text = coalesce(i.first_text, excluded.first_text),
    start_time = coalesce(i.start_time, excluded.start_time), not_before = null, end_time = null, response_body = null,
    error_code = null, error_message = null, count_time = case when v_has_begun then i.count_time else excluded.count_time end,
    stop_requested_as = case when v_goes_on then i.stop_requested_as end,
    -- ::text::jsonb instead of to_jsonb, because a distributed database requires an immutable expression here.
    request = case when v_goes_on
                   then jsonb_set(i.request || coalesce(p_request, '{}'), '{began,at}',
                                  (v_now - (i.request #>> '{began,spentMs}')::numeric / 1000)::text::jsonb)
                   else jsonb_set(jsonb_set(excluded.request, '{began,llmCalls}', i.llm_calls::text::jsonb),
                                  '{began,toolCalls}', i.tool_calls::text::jsonb)
                        -- Calls are limited by run, tokens by invocation.
                        || case when i.request ? 'loans'
                                then jsonb_set('{}', '{loans}', (i.request -> 'loans') || '{"llmCalls": 0, "toolCalls": 0}')
                                else '{}' end end,
    attempt = case when v_goes_on then i.attempt + 1 else 1 end
  where i.status <> 'running';
  if cardinality(v_sizes) > 0 then
    perform assert_user_storage(p_app, p_user, 0, (p_limits ->> 'userBytes')::bigint, false);
  end if;
  -- 6
  if p_answers is not null and not v_was_woken then
    perform answer_calls(p_app, p_user, p_session, p_answers);
  elsif p_ends_sleeps and not v_was_woken and not v_goes_on then
    update invocations i set
      status = 'interrupted', end_time = greatest(to_timestamp(v_now), i.create_time), error_code = 'interrupted',
      error_message = 'A newer message interrupted the invocation while it slept.', request = null
    where i.app_name = p_app and i.user_id = p_user and i.session_id = p_session and i.status = 'paused' and exists (
      select from tasks t
      where t.app_name = p_app and t.user_id = p_user and t.session_id = p_session and t.invocation_id = i.id
        and t.state = 'open' and t.kind in ('sleep', 'signal'));
  end if;
  -- 7
  v_is_whole := v_last = cardinality(v_sizes);
  lines := store_events(p_app, p_user, p_session, p_events, v_sizes, p_delta, false, p_limits, v_last, v_changed, v_is_whole or p_returns);
  last := v_last;
  if v_is_steered and v_was_woken
     and (v_parent is not null
          or p_events @? '$[*].content.parts[*].functionResponse.response ? (@.woken == "by a message")') then
    select t.last, t.lines into last, v_messages
    from take_messages(p_app, p_user, p_session, p_invocation, p_limits, v_last, v_changed) t;
    if p_returns then lines := concat_ws(E'\n', lines, v_messages); end if;
  end if;
  if v_is_whole then
    select (v_state || coalesce(a.state, '{}') || coalesce(u.state, '{}'))::text
    into state_text
    from (select) one
    left join app_states a on a.app_name = p_app
    left join user_states u on u.app_name = p_app and u.user_id = p_user;
  end if;
  -- 8
  if limited and not p_is_free and not v_has_begun then perform count_use(p_app, p_user, 1, null); end if;
  claimed := true;
end $$;
comment on function claim_session is 'Starts or resumes an invocation in an idle session, with its first events.';

create or replace function queue_in_session(p_app text, p_user text, p_session text, p_invocation text) returns void
language sql as $$
  update invocations i set not_before = null
  where i.app_name = p_app and i.user_id = p_user and i.session_id = p_session and i.id = p_invocation
$$;
comment on function queue_in_session is 'Gives a cronjob''s run its place in the queue of its session, by the time when it was queued.';

-- renew_claim: renews the lease of a claim that succeeded although its response was lost. True if the session still has
-- this lease token, even if the lease has expired.
-- Locks: the invocation's row. If another process takes the session over at the same moment, this caller's next write
-- finds another lease token and fails.
create or replace function renew_claim(
  p_app text, p_user text, p_session text, p_invocation text, p_token uuid, p_duration_ms integer)
returns boolean language plpgsql as $$
declare
  -- The time is in a variable, because a distributed database allows no volatile function in an update.
  v_now constant timestamptz := clock_timestamp();
begin
  update invocations i set lease_expire_time = v_now + p_duration_ms * interval '1 millisecond'
  where i.app_name = p_app and i.user_id = p_user and i.session_id = p_session and i.id = p_invocation
    and i.lease_token = p_token and i.status = 'running' and exists (
      select from sessions s
      where s.app_name = p_app and s.user_id = p_user and s.id = p_session and s.lease_token = p_token);
  return found;
end $$;
comment on function renew_claim is 'Renews the lease of a claim that succeeded although its response was lost; true if the session has this lease token.';

-- enqueue_invocation: adds an invocation to its session's queue if fewer than p_depth other invocations wait there.
-- With p_request, the request of a background invocation, the row itself keeps its place. Otherwise a process waits,
-- and must renew the row's lease to keep the place.
--
--   1. Check that the session exists and its queue is not full. No lock is needed, because deleting the session deletes
--      its queue. A message that steers locks the session and marks it, so that the run learns of it from the row that
--      each of its steps updates. For an agent in the background ("child" in the request) insert its session, which
--      no other request has.
--   2. Insert the row. A retry whose first response was lost keeps the place in the queue.
--   3. A message that steers wakes an invocation that sleeps (wake_by_message).
--
-- Locks: sessions if the message steers, invocations, user_storage, tasks. Errors: AR417; AR403: it is a child session,
-- or those of count_child; 23505 on invocations_idempotency_key: another invocation uses the key.
-- queued_since: the time by which the queue is ordered, Unix seconds as text; null if the invocation was not queued.
create or replace function enqueue_invocation(
  p_app text, p_user text, p_session text, p_invocation text, p_token uuid, p_duration_ms integer,
  p_key text, p_hash text, p_webhook text, p_request jsonb, p_depth integer, p_max_user_bytes bigint,
  out is_there boolean, out is_full boolean, out queued_since text)
language plpgsql as $$
declare
  v_since timestamptz;
  v_parent text;
  v_is_new boolean;
begin
  -- 1
  if p_request ? 'child' then
    v_is_new := (create_child(p_app, p_user, p_session, null, p_request -> 'child', '', '{}', 0, 0, null)).last is not null;
  elsif p_request ? 'steer' then
    -- Even if it is marked, because a step of the run may be taking the mark away.
    update sessions s set is_steered = true where s.app_name = p_app and s.user_id = p_user and s.id = p_session
    returning s.parent_session_id into v_parent;
  else
    select s.parent_session_id into v_parent from sessions s
    where s.app_name = p_app and s.user_id = p_user and s.id = p_session;
  end if;
  is_there := found or coalesce(p_request ? 'child', false);
  if v_parent is not null then perform refuse_child(p_session); end if;
  is_full := p_depth <= (
    select count(*) from invocations w
    where w.app_name = p_app and w.user_id = p_user and w.session_id = p_session and w.status = 'queued'
      and w.id <> p_invocation and (w.lease_expire_time > statement_timestamp() or w.request is not null)
      and w.not_before is null);
  if is_full or not is_there then return; end if;
  if p_request is not null then
    perform assert_user_storage(p_app, p_user, octet_length(p_request::text), p_max_user_bytes, false);
  end if;
  -- 2
  insert into invocations as i
    (app_name, user_id, session_id, id, status, lease_token, lease_expire_time, idempotency_key, request_hash,
     webhook_url, request, first_text)
  values
    (p_app, p_user, p_session, p_invocation, 'queued', p_token,
     clock_timestamp() + p_duration_ms * interval '1 millisecond', p_key, p_hash, p_webhook, p_request #- '{child,state}',
     left(jsonb_path_query_first(p_request, '$.content.parts[*].text') #>> '{}', 200))
  on conflict (app_name, user_id, session_id, id) do update set lease_expire_time = excluded.lease_expire_time
  where i.status = 'queued' and i.lease_token = excluded.lease_token
  returning i.create_time into v_since;
  queued_since := extract(epoch from v_since)::text;
  if v_is_new then perform count_child(p_app, p_user, p_request -> 'child'); end if;
  -- 3
  if p_request ? 'steer' and may_wake(p_app, p_user, p_session, p_request) then
    perform wake_by_message(p_app, p_user, p_session);
  end if;
end $$;
comment on function enqueue_invocation is 'Adds an invocation to its session''s queue.';

-- True if the idempotency key belongs to an invocation that was deleted with its session.
create or replace function is_forgotten_key(p_app text, p_user text, p_key text) returns boolean language plpgsql stable as $$
begin
  return exists (
    select from idempotency_keys k
    where k.app_name = p_app and k.user_id = p_user and k.scope = 'invocation' and k.key = p_key);
end $$;
comment on function is_forgotten_key is 'True if the idempotency key belongs to an invocation that was deleted with its session.';
