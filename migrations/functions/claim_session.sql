-- claim_session: starts or resumes an invocation in an idle session, with its first events.
--
--   1. Look up the idempotency key, and check the budgets. A request whose answer is stored is not checked. A resumed
--      invocation (returned to the queue, or answered after its pause) is not counted again; only its tokens and cost
--      are checked. Any other request starts a new one.
--   2. Lock the row of a queued invocation (p_is_queued), so that a cancellation comes before or after the claim. If the
--      row stores the request, claim it by compare-and-set on the token that the poller read (p_read): the first process
--      wins, and a stale reader cannot store the prompt twice.
--   3. First come, first served: refuse if an earlier request waits; waiters with expired leases do not count. A resumed
--      invocation precedes all waiters, even if its lease had expired.
--   4. Lock and advance the session's row and set the lease; or insert the session (p_creates; with p_is_new, only
--      insert), unless the key's invocation was deleted with its session. If another process inserts it at the same
--      moment, the session is busy. If an invocation was returned to the queue between 3 and the lock, it goes first:
--      the claim fails with 40001, is retried, and is then refused.
--   5. Insert the invocation's row. A resumed one keeps its row, stores the version that resumes it, its request and any
--      requested stop; its attempt counter rises, and its time limit continues. A new request stores where it began.
--   6. Close the tasks of answered calls (answer_calls): of concurrent answers one wins, and an answer without a task is
--      refused. An invocation queued by its tasks carries their answers. A message that interrupts (p_ends_sleeps) ends
--      invocations of the session that sleep or wait for a signal; a trigger cancels their tasks.
--   7. Merge shared state and insert the events (store_events). For a new session they are its whole content, and are
--      returned.
--   8. Charge the budgets, unless the invocation is resumed.
--
-- A claim that does not match may be a retry whose first answer was lost: then the session already has this token
-- (renew_claim).
-- Locks: the queued row of invocations, then as append_events: sessions, user_storage, invocations, tasks, user_states,
-- app_states, budget_uses. A cancellation locks the same queued row, a finish the same session. Never waits for a busy
-- session to become idle.
-- Errors: as append_events and answer_calls; 40001: see 4; 23505 invocations_idempotency_key: the key is in use.
-- Database time: 0.9 ms for a new session, 1.1 for an existing one, 0.5 for a busy one.
--
-- over: the budget that refused the claim. limited: the user has budgets, so model calls need reservations. lines and
-- state_text, for a new session: its events as append_events returns them (null for none), and its merged state.
create function claim_session(
  p_app text, p_user text, p_session text, p_invocation text, p_token uuid, p_read uuid, p_duration_ms integer,
  p_key text, p_hash text, p_webhook text, p_request jsonb, p_is_queued boolean, p_creates boolean, p_is_new boolean,
  p_is_eval boolean, p_is_free boolean, p_version text, p_answers jsonb, p_ends_sleeps boolean,
  p_events jsonb, p_delta jsonb, p_first_text text, p_limits jsonb,
  out claimed boolean, out over json, out limited boolean, out lines text, out state_text text)
language plpgsql as $$
declare
  v_sizes integer[] := event_sizes(p_events);
  v_is_made boolean := false;
  v_is_forgotten boolean := false;
  v_is_repeated boolean := false;
  v_queued_since timestamptz;
  v_goes_on boolean := false;
  v_has_begun boolean := false;
  v_was_woken boolean := false;
  v_last integer;
  v_changed timestamptz;
  v_now constant numeric := extract(epoch from clock_timestamp());
begin
  claimed := false;
  -- 1
  limited := exists (select from budgets b where b.app_name = p_app and b.user_id in ('', p_user));
  if p_key is not null then
    v_is_forgotten := is_forgotten_key(p_app, p_user, p_key);
    v_is_repeated := v_is_forgotten or exists (
      select from invocations i
      where i.app_name = p_app and i.user_id = p_user and i.idempotency_key = p_key and i.status <> 'queued');
  end if;
  if not p_is_free then
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
      -- Serialise: concurrent claims would all see the same count and pass.
      if exists (select from budgets b where b.app_name = p_app and b.max_invocations is not null) then
        perform lock_budgets(p_app, p_user);
      end if;
      over := over_budget(p_app, p_user);
    end if;
    if over is not null then return; end if;
  end if;
  -- 2
  if p_is_queued then
    select i.create_time, i.start_time is not null, i.start_time is null and i.end_time is not null
    into v_queued_since, v_goes_on, v_was_woken from invocations i
    where i.app_name = p_app and i.user_id = p_user and i.session_id = p_session and i.id = p_invocation
      and i.status = 'queued' and i.lease_token in (p_token, p_read)
    for update of i;
    if not found then
      claimed := renew_claim(p_app, p_user, p_session, p_invocation, p_token, p_duration_ms);
      return;
    end if;
  end if;
  -- 3
  if exists (
    select from invocations w
    where w.app_name = p_app and w.user_id = p_user and w.session_id = p_session and w.status = 'queued'
      and (w.lease_expire_time > statement_timestamp() or w.request is not null)
      and (not p_is_queued
           or (w.start_time is null, w.create_time, w.id) < (not v_goes_on, v_queued_since, p_invocation))) then
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
    and (p_is_queued or not v_is_repeated) and not p_is_new
  returning s.last_sequence, s.update_time into v_last, v_changed;
  if found then
    if not v_goes_on and exists (
      select from invocations w
      where w.app_name = p_app and w.user_id = p_user and w.session_id = p_session and w.status = 'queued'
        and w.start_time is not null and w.request is not null and w.id <> p_invocation) then
      raise exception 'an invocation of the session was left' using errcode = '40001';
    end if;
  elsif p_creates and not v_is_forgotten and not exists (
    select from sessions s where s.app_name = p_app and s.user_id = p_user and s.id = p_session) then
    insert into sessions as s
      (app_name, user_id, id, lease_token, last_sequence, event_bytes, first_text, state, is_eval)
    values
      (p_app, p_user, p_session, p_token, cardinality(v_sizes), limited_size(total_size(v_sizes), p_limits),
       coalesce(p_first_text, ''), limited_state(coalesce(p_delta -> 'session', '{}'), p_limits), p_is_eval)
    on conflict (app_name, user_id, id) do nothing
    returning s.last_sequence, s.update_time into v_last, v_changed;
    v_is_made := found;
  end if;
  if v_last is null then
    claimed := renew_claim(p_app, p_user, p_session, p_invocation, p_token, p_duration_ms);
    return;
  end if;
  -- 5
  insert into invocations as i
    (app_name, user_id, session_id, id, status, lease_token, lease_expire_time, idempotency_key, request_hash,
     webhook_url, agent_version, request, start_time)
  values
    (p_app, p_user, p_session, p_invocation, 'running', p_token,
     clock_timestamp() + p_duration_ms * interval '1 millisecond', p_key, p_hash, p_webhook,
     p_version, p_request || jsonb_build_object('began', jsonb_build_object(
       'at', v_now, 'sequence', v_last, 'llmCalls', 0, 'toolCalls', 0)),
     clock_timestamp())
  on conflict (app_name, user_id, session_id, id) do update set
    status = 'running', lease_token = excluded.lease_token, lease_expire_time = excluded.lease_expire_time,
    idempotency_key = coalesce(excluded.idempotency_key, i.idempotency_key),
    request_hash = coalesce(excluded.request_hash, i.request_hash),
    webhook_url = coalesce(excluded.webhook_url, i.webhook_url),
    agent_version = excluded.agent_version, start_time = coalesce(i.start_time, excluded.start_time), end_time = null, response_body = null,
    error_code = null, error_message = null,
    stop_requested_as = case when v_goes_on then i.stop_requested_as end,
    -- ::text::jsonb is immutable, unlike to_jsonb; a distributed database requires that here.
    request = case when v_goes_on
                   then jsonb_set(i.request, '{began,at}', (v_now - (i.request #>> '{began,spentMs}')::numeric / 1000)::text::jsonb)
                   else jsonb_set(jsonb_set(excluded.request, '{began,llmCalls}', i.llm_calls::text::jsonb),
                                  '{began,toolCalls}', i.tool_calls::text::jsonb) end,
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
  lines := store_events(p_app, p_user, p_session, p_events, v_sizes, p_delta, false, p_limits, v_last, v_changed, v_is_made);
  if v_is_made then
    select (coalesce(p_delta -> 'session', '{}') || coalesce(a.state, '{}') || coalesce(u.state, '{}'))::text
    into state_text
    from (select) one
    left join app_states a on a.app_name = p_app
    left join user_states u on u.app_name = p_app and u.user_id = p_user;
  end if;
  -- 8
  if not p_is_free and not v_has_begun then perform count_use(p_app, p_user, 1, null); end if;
  claimed := true;
end $$;
comment on function claim_session is 'Starts or resumes an invocation in an idle session, with its first events.';

-- renew_claim: true if an earlier attempt with this token holds the session, even if its lease has expired.
-- Locks: the invocation's row. A concurrent take-over has locked the session: the next write finds the token replaced.
create function renew_claim(
  p_app text, p_user text, p_session text, p_invocation text, p_token uuid, p_duration_ms integer)
returns boolean language plpgsql as $$
declare
  -- A variable, because a distributed database allows no volatile function in an update.
  v_now constant timestamptz := clock_timestamp();
begin
  update invocations i set lease_expire_time = v_now + p_duration_ms * interval '1 millisecond'
  where i.app_name = p_app and i.user_id = p_user and i.session_id = p_session and i.id = p_invocation
    and i.lease_token = p_token and i.status = 'running' and exists (
      select from sessions s
      where s.app_name = p_app and s.user_id = p_user and s.id = p_session and s.lease_token = p_token);
  return found;
end $$;
comment on function renew_claim is 'True if an earlier attempt with this token holds the session; renews its lease.';

-- enqueue_invocation: adds an invocation to its session's queue if fewer than p_depth others wait. With p_request (the
-- stored body of a background start) no process needs to wait; otherwise the place must be renewed.
--
--   1. Check that the session exists and the queue has room. No locks: deleting the session deletes its queue.
--   2. Insert the row; the retry of an attempt whose answer was lost keeps its place.
--
-- Locks: invocations, user_storage. Errors: AR417; 23505 invocations_idempotency_key: the key is in use.
-- queued_since: Unix seconds as text, the queue's order; null if it is not queued.
create function enqueue_invocation(
  p_app text, p_user text, p_session text, p_invocation text, p_token uuid, p_duration_ms integer,
  p_key text, p_hash text, p_webhook text, p_request jsonb, p_depth integer, p_max_user_bytes bigint,
  out is_there boolean, out is_full boolean, out queued_since text)
language plpgsql as $$
declare
  v_since timestamptz;
begin
  -- 1
  is_there := exists (select from sessions s where s.app_name = p_app and s.user_id = p_user and s.id = p_session);
  is_full := p_depth <= (
    select count(*) from invocations w
    where w.app_name = p_app and w.user_id = p_user and w.session_id = p_session and w.status = 'queued'
      and w.id <> p_invocation and (w.lease_expire_time > statement_timestamp() or w.request is not null));
  if is_full or not is_there then return; end if;
  if p_request is not null then
    perform assert_user_storage(p_app, p_user, octet_length(p_request::text), p_max_user_bytes, false);
  end if;
  -- 2
  insert into invocations as i
    (app_name, user_id, session_id, id, status, lease_token, lease_expire_time, idempotency_key, request_hash,
     webhook_url, request)
  values
    (p_app, p_user, p_session, p_invocation, 'queued', p_token,
     clock_timestamp() + p_duration_ms * interval '1 millisecond', p_key, p_hash, p_webhook, p_request)
  on conflict (app_name, user_id, session_id, id) do update set lease_expire_time = excluded.lease_expire_time
  where i.status = 'queued' and i.lease_token = excluded.lease_token
  returning i.create_time into v_since;
  queued_since := extract(epoch from v_since)::text;
end $$;
comment on function enqueue_invocation is 'Adds an invocation to its session''s queue.';

-- True if the key's invocation was deleted with its session.
create function is_forgotten_key(p_app text, p_user text, p_key text) returns boolean language plpgsql stable as $$
begin
  return exists (
    select from idempotency_keys k
    where k.app_name = p_app and k.user_id = p_user and k.scope = 'invocation' and k.key = p_key);
end $$;
comment on function is_forgotten_key is 'True if the idempotency key''s invocation was deleted with its session.';
