-- append_deltas: stores chunks of streamed text for the session's followers, as long as the caller holds the session's
-- lease.
--
--   1. Check the lease, without locking. Chunks that are written after the lease ended have its token, so no reader
--      sees them. They are deleted at the end of the invocation or by a sweep.
--   2. p_after must be the number of the last chunk under this lease; null if there is none. Otherwise a crash of the
--      database lost chunks, or the response to an earlier attempt was lost. All chunks of the lease are then deleted,
--      so that no reader gets text with a gap or twice.
--   3. Insert the chunks with numbers above all earlier numbers of the session. last: number of the last chunk; null if
--      nothing was written.
--
-- Commits without waiting for the disk, because the event with the whole text is committed durably later. append_events
-- and finish_invocation delete the chunks. Locks: none. Database time: 0.2 ms.
create function append_deltas(
  p_app text, p_user text, p_session text, p_lease uuid, p_after bigint, p_event_ids text[], p_payloads text[],
  out last bigint, out sequence integer)
language plpgsql as $$
declare
  v_before bigint;
begin
  perform set_config('synchronous_commit', 'off', true);
  -- 1
  select s.last_sequence into sequence from sessions s
  where s.app_name = p_app and s.user_id = p_user and s.id = p_session and s.lease_token = p_lease;
  if not found then return; end if;
  -- 2
  v_before := (select max(d.number) from event_deltas d
               where d.app_name = p_app and d.user_id = p_user and d.session_id = p_session and d.lease_token = p_lease);
  if v_before is distinct from p_after then
    delete from event_deltas d
    where d.app_name = p_app and d.user_id = p_user and d.session_id = p_session and d.lease_token = p_lease;
    return;
  end if;
  -- 3
  last := greatest(v_before, floor(extract(epoch from clock_timestamp()) * 1000000)::bigint) + cardinality(p_payloads);
  insert into event_deltas (app_name, user_id, session_id, number, lease_token, event_id, payload)
  select p_app, p_user, p_session, last - cardinality(p_payloads) + given.place, p_lease, given.event_id, given.payload
  from unnest(p_event_ids, p_payloads) with ordinality as given(event_id, payload, place);
end $$;
comment on function append_deltas is 'Stores chunks of streamed text while the caller holds the lease.';
--> statement-breakpoint
-- append_events: appends events to a session and applies their changes of the state.
--
--   1. Lock and advance the session's row: sequence, size, first text, the session's own state, update time. If no row
--      matches, nothing is written: the session does not exist, or has another lease or another version than the caller
--      expects. A trigger adds the size to the user's storage; its limit is checked next.
--   2. Add the step's usage to the invocation's row, so that a crash loses none of it. Write the events' tool calls
--      into the ledger (record_calls). Merge shared state and insert the events (store_events), then delete the
--      streamed chunks that the events replace. Close the tasks of the calls that a client's event answers, and refuse
--      an answer to a call without a task (answer_calls).
--   3. Charge the model usage of the events, and look for an exhausted budget.
--
-- Locks: sessions, user_storage, invocations, tool_calls, tasks, user_states, app_states, budget_uses; claim_session
-- and finish_invocation lock in the same order.
-- Errors: AR413 to AR417, see limits.sql; AR403 and AR410, see answer_calls; 23505 on events_id_key: the session
-- already has an event with this id.
-- Database time: 0.5 ms for one event, 1.3 ms for ten; 0.6 ms with model usage.
--
-- p_delta: {"session": {}, "user": {}, "app": {}}; a scope without changes is absent. p_models: see count_use. p_calls:
-- see record_calls; null for no calls.
-- last: sequence of the last event; null if nothing was written. lines: the stored events, one JSON text per line.
create function append_events(
  p_app text, p_user text, p_session text, p_events jsonb, p_delta jsonb, p_first_text text, p_from_runtime boolean,
  p_lease uuid, p_versions text[], p_models jsonb, p_invocation text, p_llm_calls integer, p_tool_calls integer,
  p_prompt_tokens integer, p_output_tokens integer, p_has_deltas boolean, p_calls jsonb, p_answers jsonb,
  p_limits jsonb,
  out last integer, out lines text, out version text, out over json, out limited boolean)
language plpgsql as $$
declare
  v_sizes integer[] := event_sizes(p_events);
  v_changed timestamptz;
begin
  -- 1
  update sessions s set
    last_sequence = s.last_sequence + cardinality(v_sizes),
    event_bytes = limited_size(s.event_bytes + total_size(v_sizes), p_limits),
    first_text = coalesce(nullif(s.first_text, ''), p_first_text, ''),
    state = case when p_delta ? 'session' then limited_state(s.state || (p_delta -> 'session'), p_limits) else s.state end,
    update_time = next_time(s.update_time, statement_timestamp())
  where s.app_name = p_app and s.user_id = p_user and s.id = p_session
    and (p_lease is null or s.lease_token = p_lease)
    and (p_versions is null or row_version(s.update_time) = any(p_versions))
  returning s.last_sequence, s.update_time into last, v_changed;
  if not found then return; end if;
  perform assert_user_storage(p_app, p_user, 0, (p_limits ->> 'userBytes')::bigint, false);
  version := row_version(v_changed);
  -- 2
  if p_llm_calls + p_tool_calls > 0 then
    update invocations i set
      llm_calls = i.llm_calls + p_llm_calls, tool_calls = i.tool_calls + p_tool_calls,
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
  if p_models is not null then
    perform count_use(p_app, p_user, 0, p_models);
    limited := exists (select from budgets b where b.app_name = p_app and b.user_id in ('', p_user));
    if limited then over := over_budget(p_app, p_user, 0, 0); end if;
  end if;
end $$;
comment on function append_events is 'Appends events to a session, with their state changes.';
--> statement-breakpoint
-- audit_retention: for how many days, and how many, entries of the audit log are kept. Each migration writes the
-- operator's settings into this function. So only the functions' owner decides on retention, whoever calls
-- delete_old_audit_entries.
create function audit_retention(out days integer, out entries bigint) language sql immutable as
$$ select 90, 1000000::bigint $$;
comment on function audit_retention is 'Returns for how many days, and how many, entries of the audit log are kept. Each migration writes the operator''s settings into this function.';

-- delete_old_audit_entries: deletes a batch of old entries of the audit log. Returns true if there may be more.
-- SECURITY DEFINER, because the role that serves requests may not delete entries.
--
--   1. Delete up to 1,000 of the oldest entries that exceed the maximum age.
--   2. If there were none and the maximum number is exceeded: delete up to 50,000 of the oldest entries of the callers
--      with the most entries, so that one caller's entries cannot displace those of other callers. Entries of the last
--      day are kept. This step reads all entries.
create function delete_old_audit_entries() returns boolean language plpgsql security definer
set search_path from current as $$
declare
  kept record := audit_retention();
  deleted integer;
begin
  perform set_config('agent_runtime.audit_deletes', 'on', true);
  -- 1
  delete from audit_log where id in (
    select id from (select id, time from audit_log order by id limit 1000) oldest
    where time < clock_timestamp() - make_interval(days => greatest(kept.days, 1)));
  get diagnostics deleted = row_count;
  -- 2
  if deleted = 0 and (select max(id) - min(id) >= kept.entries from audit_log) then
    delete from audit_log where id in (
      select id from (
        select id, time, row_number() over (order by of_caller, id desc) as place from (
          select id, time, row_number() over (partition by caller_kind, caller order by id desc) as of_caller
          from audit_log) numbered) placed
      where place > kept.entries and time < clock_timestamp() - interval '1 day' limit 50000);
    get diagnostics deleted = row_count;
  end if;
  perform set_config('agent_runtime.audit_deletes', 'off', true);
  return deleted > 0;
end $$;
revoke execute on function delete_old_audit_entries from public;
comment on function delete_old_audit_entries is 'Deletes a batch of audit entries that exceed audit_retention: those that are too old, or the oldest of the callers with the most entries. Entries of the last day are kept if there are too many. Returns true if there may be more. SECURITY DEFINER, so that the service needs no privilege to delete.';
--> statement-breakpoint
-- over_budget: returns an exhausted budget of the user as JSON; null if none is exhausted. Of several exhausted
-- budgets, returns the one whose period ends last. p_tokens and p_cost are the maximum use of a model call that is
-- about to start: then a budget counts as exhausted if less than that is left. The number of invocations is not checked
-- then, because the invocation has begun. A user without a budget costs one index lookup, however many budgets other
-- users and score rules have.
create function over_budget(p_app text, p_user text, p_tokens bigint default null, p_cost numeric default null) returns json
language plpgsql as $$
begin
  if not exists (select from budgets b where b.app_name = p_app and b.user_id in ('', p_user)) then return null; end if;
  return (
    select json_build_object('appliesTo', spent.applies_to, 'period', spent.period, 'what', spent.what,
      'isShort', coalesce(spent.what = 'tokens' and spent.tokens < spent.max_tokens
                          or spent.what = 'cost' and spent.cost < spent.max_cost, false),
      'seconds', ceil(extract(epoch from spent.opens - clock_timestamp())),
      'opens', to_char(spent.opens at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'))
    from (
      select b.*,
        case when p_tokens is null and b.invocations >= b.max_invocations then 'invocations'
             when greatest(b.tokens + 1, b.tokens + p_tokens) > b.max_tokens then 'tokens'
             when b.cost >= b.max_cost or b.cost + p_cost > b.max_cost then 'cost' end as what
      from budgets_for(p_app, p_user) b) spent
    where spent.what is not null order by spent.opens desc limit 1);
end $$;
comment on function over_budget is 'Returns, as JSON, a budget of a user that is exhausted or has less left than a model call may use; null if there is none.';

-- budgets_for: returns the budgets that apply to a user, with what was used and reserved in the current period. A
-- budget covers the whole application (applies_to app), one user (user), or each user without a budget of their own
-- (users). Score rules spend under a user id that begins with a control character; budgets of the kind users do not
-- cover them.
create function budgets_for(p_app text, p_user text)
returns table (
  applies_to text, period text, since date, opens timestamptz, max_invocations bigint, max_tokens bigint, max_cost numeric,
  webhook_id text, invocations numeric, tokens numeric, cost numeric, reserved_tokens numeric, reserved_cost numeric)
language plpgsql stable as $$
declare
  v_today date := (statement_timestamp() at time zone 'utc')::date;
  v_month date := date_trunc('month', v_today::timestamp);
begin
  return query
    select b.applies_to, b.period, case b.period when 'day' then v_today else v_month end,
      case b.period when 'day' then v_today + interval '1 day' else v_month + interval '1 month' end at time zone 'utc',
      b.max_invocations, b.max_tokens, b.max_cost, b.webhook_id,
      used.invocations, used.tokens, used.cost, used.reserved_tokens, used.reserved_cost
    from budgets b cross join lateral (
      -- Separate subqueries, because a single one with both conditions scanned the usage of all users and days.
      select coalesce(sum(u.invocations), 0) as invocations,
             coalesce(sum(u.prompt_tokens + u.output_tokens), 0) as tokens, coalesce(sum(u.cost), 0) as cost,
             (select coalesce(sum(r.tokens), 0) from budget_reservations r
              where r.app_name = p_app and r.user_id = p_user and r.expire_time > statement_timestamp()) as reserved_tokens,
             (select coalesce(sum(r.cost), 0) from budget_reservations r
              where r.app_name = p_app and r.user_id = p_user and r.expire_time > statement_timestamp()) as reserved_cost
      from budget_uses u
      where u.app_name = p_app and u.user_id = p_user
        and u.day >= case b.period when 'day' then v_today else v_month end
      having b.applies_to <> 'app'
      union all
      select * from budget_uses_of_app(p_app, case b.period when 'day' then v_today else v_month end)
      where b.applies_to = 'app') used
    where b.app_name = p_app
      and (b.applies_to = 'app' or b.applies_to = 'user' and b.user_id = p_user
           or b.applies_to = 'users' and p_user >= ' ' and not exists (
             select from budgets mine
             where mine.app_name = p_app and mine.applies_to = 'user' and mine.user_id = p_user
               and mine.period = b.period));
end $$;
comment on function budgets_for is 'Returns the budgets that apply to a user, with what was used and reserved in the current period.';

-- lock_budgets: serialises charges to budgets until the transaction ends: of the whole application if the application
-- has a budget, otherwise of the user.
create function lock_budgets(p_app text, p_user text) returns void language plpgsql as $$
begin
  perform pg_advisory_xact_lock(hashtextextended(p_app || E'\x01' || case when exists (
    select from budgets b where b.app_name = p_app and b.applies_to = 'app') then '' else p_user end, 7240032));
end $$;
comment on function lock_budgets is 'Serialises charges to a user''s budgets until the transaction ends.';

-- reserve_budget: reserves the maximum use of a model call in the user's budgets before the call starts. The
-- reservation ends when the actual use is charged (count_use), or if it was not renewed for p_duration_ms
-- (renew_reservation).
--
--   1. limited: a budget of tokens or cost applies to the user. Concurrent calls are serialised.
--   2. over: a budget has less left than the call may use, even if all reservations were released. The call must not be
--      made.
--   3. Neither over nor reserved: other calls have reserved the rest, and the caller retries. In a budget of the
--      application, a user with a reservation gets another one only within half of what is left, so that other users
--      get their share.
--
-- The cost uses the highest price among the model's name and its versions (gpt-4o, gpt-4o-2024-08-06), because the name
-- in the provider's response decides on the price. If none of them has a price, the highest price of all models is
-- used. Errors: 42501: the caller names another user.
create function reserve_budget(
  p_app text, p_user text, p_id uuid, p_model text, p_prompt bigint, p_output bigint, p_duration_ms integer,
  out reserved boolean, out over json, out limited boolean)
language plpgsql security definer set search_path from current as $$
declare
  v_tokens bigint := p_prompt + p_output;
  v_cost numeric;
begin
  perform assert_own_user(p_user);
  limited := exists (
    select from budgets_for(p_app, p_user) b where b.max_tokens is not null or b.max_cost is not null);
  reserved := not limited;
  if reserved then return; end if;
  -- 1
  perform lock_budgets(p_app, p_user);
  delete from budget_reservations r
  where r.app_name = p_app and r.user_id = p_user and (r.id = p_id or r.expire_time <= statement_timestamp());
  select coalesce((p_prompt * coalesce(max(m.prompt_price) filter (where m.is_known), max(m.prompt_price))
                   + p_output * coalesce(max(m.output_price) filter (where m.is_known), max(m.output_price))) / 1000000, 0)
  into v_cost
  from (
    select p.prompt_price, p.output_price, starts_with(p.model, p_model) or p.model = (
        select k.model from model_prices k where starts_with(p_model, k.model) order by length(k.model) desc limit 1) as is_known
    from model_prices p) m;
  -- 2
  over := over_budget(p_app, p_user, v_tokens, v_cost);
  if over is not null then return; end if;
  -- 3
  if exists (
    select from budgets_for(p_app, p_user) b cross join lateral (
      select coalesce(sum(r.tokens), 0) as tokens, coalesce(sum(r.cost), 0) as cost from budget_reservations r
      where r.app_name = p_app and r.user_id = p_user and b.applies_to = 'app') own
    where b.tokens + b.reserved_tokens + v_tokens > b.max_tokens or b.cost + b.reserved_cost + v_cost > b.max_cost
      or own.tokens > 0 and (2 * (own.tokens + v_tokens) > b.max_tokens - b.tokens or 2 * (own.cost + v_cost) > b.max_cost - b.cost))
  then return; end if;
  insert into budget_reservations (app_name, user_id, id, tokens, cost, expire_time)
  values (p_app, p_user, p_id, v_tokens, v_cost, clock_timestamp() + p_duration_ms * interval '1 millisecond');
  reserved := true;
end $$;
comment on function reserve_budget is 'Reserves the maximum use of a model call in its user''s budgets.';

-- renew_reservation: extends the reservation of a running model call.
create function renew_reservation(p_app text, p_user text, p_id uuid, p_duration_ms integer) returns void
language plpgsql security definer set search_path from current as $$
begin
  perform assert_own_user(p_user);
  update budget_reservations r set expire_time = statement_timestamp() + p_duration_ms * interval '1 millisecond'
  where r.app_name = p_app and r.user_id = p_user and r.id = p_id;
end $$;
revoke execute on function reserve_budget, renew_reservation from public;
comment on function renew_reservation is 'Extends the reservation of a running model call.';

-- alert_budgets: notifies a budget's webhook when 50, 80 or 100 % of the budget are used, once per period and level. If
-- one call passes several levels, only the highest is reported. SECURITY DEFINER, because the webhook belongs to
-- another user.
create function alert_budgets(p_app text, p_user text) returns void
language plpgsql security definer set search_path from current as $$
declare
  v_alert record;
  v_before text := current_setting('agent_runtime.all_users', true);
begin
  perform assert_own_user(p_user);
  if not exists (select from budgets b where b.app_name = p_app and b.webhook_id is not null) then return; end if;
  -- Set in the body, because only a superuser may attach the setting agent_runtime.all_users to a function.
  perform set_config('agent_runtime.all_users', 'on', true);
  for v_alert in
    with reached as (
      select b.*, case when b.applies_to = 'app' then '' else p_user end as user_id, (
          select max(each) from unnest(array[50, 80, 100]) each
          where b.invocations * 100 >= each * b.max_invocations or b.tokens * 100 >= each * b.max_tokens
             or b.cost * 100 >= each * b.max_cost) as level
      from budgets_for(p_app, p_user) b where b.webhook_id is not null),
    noted as (
      insert into budget_alerts as a (app_name, user_id, applies_to, period, since, level)
      select p_app, r.user_id, r.applies_to, r.period, r.since, r.level from reached r where r.level is not null
      on conflict (app_name, user_id, applies_to, period) do update set since = excluded.since, level = excluded.level
      where (a.since, a.level) < (excluded.since, excluded.level)
      returning a.applies_to, a.period)
    select r.*, w.user_id as owner, w.url from noted join reached r using (applies_to, period)
    join webhooks w on w.app_name = p_app and w.id = r.webhook_id
  loop
    perform insert_webhook_delivery(p_app, v_alert.owner, v_alert.url, 'budget.reached', jsonb_build_object(
      'appName', p_app, 'userId', nullif(v_alert.user_id, ''), 'appliesTo', v_alert.applies_to, 'period', v_alert.period,
      'percent', v_alert.level, 'invocations', v_alert.invocations, 'maxInvocations', v_alert.max_invocations,
      'tokens', v_alert.tokens, 'maxTokens', v_alert.max_tokens, 'cost', v_alert.cost, 'maxCost', v_alert.max_cost));
  end loop;
  perform set_config('agent_runtime.all_users', coalesce(v_before, ''), true);
end $$;
revoke execute on function alert_budgets from public;
comment on function alert_budgets is 'Notifies webhooks of budgets that 50, 80 or 100 % are used.';

-- budget_uses_of_app: returns the usage of all users of an application since today or since the first of the month. A
-- distributed database has no rows of totals and sums over its nodes instead (citus.sql).
create function budget_uses_of_app(
  p_app text, p_since date,
  out invocations numeric, out tokens numeric, out cost numeric, out reserved_tokens numeric, out reserved_cost numeric)
language plpgsql stable as $$
begin
  select coalesce(sum(t.invocations), 0), coalesce(sum(t.tokens), 0), coalesce(sum(t.cost), 0)
  into budget_uses_of_app.invocations, budget_uses_of_app.tokens, budget_uses_of_app.cost
  from budget_totals t where t.app_name = p_app and t.since = p_since;
  select coalesce(sum(r.tokens), 0), coalesce(sum(r.cost), 0)
  into budget_uses_of_app.reserved_tokens, budget_uses_of_app.reserved_cost
  from budget_reservations r where r.app_name = p_app and r.expire_time > statement_timestamp();
end $$;
comment on function budget_uses_of_app is 'Returns the usage of all users of an application since today or the first of this month, and the current reservations.';

-- count_use_of_app: adds usage to the application's totals of today and of this month. On the first of a month both are
-- the same row. Only if the application has a budget, because the two rows cost as much as all other counting of an
-- invocation.
create function count_use_of_app(p_app text, p_today date, p_invocations bigint, p_tokens bigint, p_cost numeric)
returns void language plpgsql as $$
begin
  if not exists (select from budgets b where b.app_name = p_app and b.applies_to = 'app') then return; end if;
  insert into budget_totals as t (app_name, since, shard, invocations, tokens, cost)
  select distinct p_app, period.since, pg_backend_pid() % 32, p_invocations, p_tokens, p_cost
  from unnest(array[p_today, date_trunc('month', p_today::timestamp)::date]) period(since)
  on conflict (app_name, since, shard) do update set
    invocations = t.invocations + excluded.invocations, tokens = t.tokens + excluded.tokens,
    cost = t.cost + excluded.cost;
end $$;
comment on function count_use_of_app is 'Adds usage to an application''s totals of today and of this month.';

-- sum_up_use_of_app: trigger function for an application's first budget. Sets the application's totals to its users'
-- usage since the first of the month. The sum is in shard -1; the other shards count what connections add. Usage by
-- concurrent statements that do not see the new budget yet is not counted.
create function sum_up_use_of_app() returns trigger language plpgsql as $$
declare
  v_today date := (statement_timestamp() at time zone 'utc')::date;
begin
  insert into budget_totals as t (app_name, since, shard, invocations, tokens, cost)
  select new.app_name, period.since, -1,
    used.invocations - counted.invocations, used.tokens - counted.tokens, used.cost - counted.cost
  from (select distinct unnest(array[v_today, date_trunc('month', v_today::timestamp)::date]) as since) period
  cross join lateral (
    select coalesce(sum(u.invocations), 0) as invocations,
           coalesce(sum(u.prompt_tokens + u.output_tokens), 0) as tokens, coalesce(sum(u.cost), 0) as cost
    from budget_uses u where u.app_name = new.app_name and u.day >= period.since) used
  cross join lateral (
    select coalesce(sum(c.invocations), 0) as invocations, coalesce(sum(c.tokens), 0) as tokens,
           coalesce(sum(c.cost), 0) as cost
    from budget_totals c where c.app_name = new.app_name and c.since = period.since and c.shard <> -1) counted
  on conflict (app_name, since, shard) do update set
    invocations = excluded.invocations, tokens = excluded.tokens, cost = excluded.cost;
  return null;
end $$;
comment on function sum_up_use_of_app is 'Trigger function for an application''s first budget: sets the application''s totals to its users'' usage.';

-- count_use: adds usage to the totals of a user and of all users, on the day of the statement. Each connection writes
-- one of 32 shards of the user's total, so that connections do not wait for each other's commit: with 16 concurrent
-- invocations of a user and 8 random shards a claim took 2.7 ms, now it takes 0.65 ms.
-- p_models: [{"model", "answeredAs", "promptTokens", "outputTokens", "reservation"}], null for no model usage. A model
-- without a price is free. The reservations of the counted calls are released in the same transaction.
-- Prices follow the same rule as inspect.invocation_costs and `priceOf` in evaluation.
-- SECURITY DEFINER, so that statements of one user cannot change other rows of budget_uses.
create function count_use(p_app text, p_user text, p_invocations bigint, p_models jsonb)
returns void language plpgsql security definer set search_path from current as $$
declare
  v_today date := (statement_timestamp() at time zone 'utc')::date;
  v_prompt bigint := 0;
  v_output bigint := 0;
  v_cost numeric := 0;
begin
  perform assert_own_user(p_user);
  if p_models is not null then
    select coalesce(sum(used."promptTokens"), 0), coalesce(sum(used."outputTokens"), 0),
           coalesce(sum((used."promptTokens" * price.prompt + used."outputTokens" * price.output) / 1000000), 0)
    into v_prompt, v_output, v_cost
    from jsonb_to_recordset(p_models) as used(model text, "answeredAs" text, "promptTokens" bigint, "outputTokens" bigint)
    left join lateral (
      select m.prompt_price as prompt, m.output_price as output from model_prices m
      where starts_with(used."answeredAs", m.model) or starts_with(used.model, m.model) or m.model = '*'
      order by m.model = '*', not starts_with(used."answeredAs", m.model), length(m.model) desc limit 1) price on true;
  end if;
  insert into budget_uses as u (app_name, user_id, day, shard, invocations, prompt_tokens, output_tokens, cost)
  values (p_app, p_user, v_today, pg_backend_pid() % 32, p_invocations, v_prompt, v_output, v_cost)
  on conflict (app_name, user_id, day, shard) do update set
    invocations = u.invocations + excluded.invocations, prompt_tokens = u.prompt_tokens + excluded.prompt_tokens,
    output_tokens = u.output_tokens + excluded.output_tokens, cost = u.cost + excluded.cost;
  if not exists (select from budgets b where b.app_name = p_app and b.user_id in ('', p_user)) then return; end if;
  perform count_use_of_app(p_app, v_today, p_invocations, v_prompt + v_output, v_cost);
  if p_models is not null then
    delete from budget_reservations r where r.app_name = p_app and r.user_id = p_user and r.id in (
      select (used ->> 'reservation')::uuid from jsonb_array_elements(p_models) used);
  end if;
  perform alert_budgets(p_app, p_user);
end $$;
revoke execute on function count_use from public;
comment on function count_use is 'Adds invocations, tokens and their cost to a user''s usage of today.';

-- spend_budget: charges model usage that is not part of stored events. With p_id, charges it only once: the id is kept
-- for a day in idempotency_keys. over: a budget that is exhausted afterwards. Locks: idempotency_keys, then those of
-- count_use.
create function spend_budget(p_app text, p_user text, p_models jsonb, p_id text, out over json) language plpgsql as $$
begin
  if p_id is not null then
    insert into idempotency_keys (app_name, user_id, scope, key, request_hash, response_body)
    values (p_app, p_user, 'spend', p_id, '', '') on conflict do nothing;
    if not found then p_models := null; end if;
  end if;
  if p_models is not null then perform count_use(p_app, p_user, 0, p_models); end if;
  over := over_budget(p_app, p_user, 0, 0);
end $$;
comment on function spend_budget is 'Charges model usage that is not part of stored events; returns a budget that is exhausted afterwards.';
--> statement-breakpoint
-- claim_session: starts or resumes an invocation in an idle session, and stores its first events.
--
--   1. Look up the idempotency key, and check the user's budgets. A repeated request, whose response is stored, is not
--      checked. For a resumed invocation (one that was returned to the queue, or whose pause an answer ends) only
--      tokens and cost are checked, because its start was counted already. Any other request starts a new invocation.
--   2. If the invocation is queued (p_is_queued), lock its row, so that a cancellation comes either before or after the
--      claim. If the row stores the request, take the row by compare-and-set on the lease token that the polling worker
--      read (p_read). So the first worker wins, and a worker that read an older token cannot store the prompt twice.
--      A cronjob's run begins only while no other one of the cronjob goes on, and fewer than p_places of its user. If its
--      session is busy or others wait for it, the run takes its place in the queue of the session, which counts as one
--      of its user's places.
--   3. First come, first served: the claim fails if an earlier request waits for the session. Waiting requests whose
--      lease has expired do not count, nor do runs of cronjobs, which may have to wait for more. A resumed invocation goes before all waiting requests, even if its own lease had
--      expired.
--   4. Lock and advance the session's row and set the lease. If there is no session and p_creates is set, insert the
--      session, unless the idempotency key belongs to an invocation that was deleted with its session. p_is_new: only
--      insert. If another process inserts the session at the same moment, the session counts as busy. If an invocation
--      was returned to the queue between step 3 and the lock, that invocation must go first: this claim fails with
--      40001, the caller retries, and step 3 then refuses.
--   5. If the invocation is a step of a job (p_job), end the job; the end of the invocation adds it again (a trigger).
--      Insert the invocation's row, or update the row of a resumed invocation and store the agent version that resumes
--      it. An invocation that was returned to the queue keeps its request and any requested stop; its attempt counter
--      increases by one, and the time that it ran before counts towards its time limit. Any other invocation stores
--      when, and after which event, it began ("began" in its request).
--   6. Close the tasks of the calls that the message answers (answer_calls). Of two concurrent answers the first wins,
--      and an answer to a call without a task is refused. If wake_task queued the invocation, it has closed the tasks
--      already. If the message interrupts sleeping invocations (p_ends_sleeps), end the session's invocations that
--      sleep or wait for a signal; a trigger cancels their tasks.
--   7. Merge shared state and insert the events (store_events). The events of a session that had none are its whole
--      content, so they are returned; those of another session only with p_returns, for a follower in the claiming
--      process.
--   8. Charge the budgets, unless the invocation is resumed.
--
-- If the claim does not match, it may be the retry of a claim that succeeded but whose response was lost. The session
-- then already has this lease token (renew_claim).
-- Locks: the row of the queued invocation, then in the order of append_events: sessions, user_storage, invocations,
-- tasks, user_states, app_states, budget_uses. A cancellation locks the same invocation, finish_invocation the same
-- session. This function never waits for a busy session to become idle.
-- Errors: those of append_events and answer_calls; 40001: see step 4; AR419: another process has claimed the job; 23505 on
-- invocations_idempotency_key: another invocation uses the key.
-- Database time: 0.9 ms for a new session, 1.1 ms for an existing session, 0.5 ms for a busy session.
--
-- Results: over: the budget that refused the claim. limited: the user has budgets, so model calls need reservations.
-- last: the session's last sequence, events of this claim included. lines: these events as append_events returns them
-- (null for no events). state_text: the merged state of a session that had no events. last, lines and state_text are
-- null if an earlier try had already succeeded.
create function claim_session(
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
    and (p_is_queued or not v_is_repeated) and not p_is_new
  returning s.last_sequence, s.update_time, s.state into v_last, v_changed, v_state;
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
    returning s.last_sequence, s.update_time, s.state into v_last, v_changed, v_state;
  end if;
  if v_last is null then
    if v_is_new_run then perform queue_in_session(p_app, p_user, p_session, p_invocation); end if;
    claimed := renew_claim(p_app, p_user, p_session, p_invocation, p_token, p_duration_ms);
    return;
  end if;
  -- 5
  if p_job is not null and not end_job(p_job ->> 'kind', p_app, p_job ->> 'userId', p_job ->> 'id', (p_job ->> 'token')::uuid)
  then
    raise exception 'the job was claimed by another process' using errcode = 'AR419';
  end if;
  insert into invocations as i
    (app_name, user_id, session_id, id, status, lease_token, lease_expire_time, idempotency_key, request_hash,
     webhook_url, agent_version, job, request, start_time)
  values
    (p_app, p_user, p_session, p_invocation, 'running', p_token,
     clock_timestamp() + p_duration_ms * interval '1 millisecond', p_key, p_hash, p_webhook,
     p_version, p_job - 'token', p_request || jsonb_build_object('began', jsonb_build_object(
       'at', v_now, 'sequence', v_last, 'llmCalls', 0, 'toolCalls', 0)),
     clock_timestamp())
  on conflict (app_name, user_id, session_id, id) do update set
    status = 'running', lease_token = excluded.lease_token, lease_expire_time = excluded.lease_expire_time,
    idempotency_key = coalesce(excluded.idempotency_key, i.idempotency_key),
    request_hash = coalesce(excluded.request_hash, i.request_hash),
    webhook_url = coalesce(excluded.webhook_url, i.webhook_url),
    agent_version = excluded.agent_version, start_time = coalesce(i.start_time, excluded.start_time), not_before = null, end_time = null, response_body = null,
    error_code = null, error_message = null,
    stop_requested_as = case when v_goes_on then i.stop_requested_as end,
    -- ::text::jsonb instead of to_jsonb, because a distributed database requires an immutable expression here.
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
  v_is_whole := v_last = cardinality(v_sizes);
  lines := store_events(p_app, p_user, p_session, p_events, v_sizes, p_delta, false, p_limits, v_last, v_changed, v_is_whole or p_returns);
  last := v_last;
  if v_is_whole then
    select (v_state || coalesce(a.state, '{}') || coalesce(u.state, '{}'))::text
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

create function queue_in_session(p_app text, p_user text, p_session text, p_invocation text) returns void
language sql as $$
  update invocations i set not_before = null
  where i.app_name = p_app and i.user_id = p_user and i.session_id = p_session and i.id = p_invocation
$$;
comment on function queue_in_session is 'Gives a cronjob''s run its place in the queue of its session, by the time when it was queued.';

-- renew_claim: renews the lease of a claim that succeeded although its response was lost. True if the session still has
-- this lease token, even if the lease has expired.
-- Locks: the invocation's row. If another process takes the session over at the same moment, this caller's next write
-- finds another lease token and fails.
create function renew_claim(
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
--      its queue.
--   2. Insert the row. A retry whose first response was lost keeps the place in the queue.
--
-- Locks: invocations, user_storage. Errors: AR417; 23505 on invocations_idempotency_key: another invocation uses the
-- key.
-- queued_since: the time by which the queue is ordered, Unix seconds as text; null if the invocation was not queued.
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
      and w.id <> p_invocation and (w.lease_expire_time > statement_timestamp() or w.request is not null)
      and w.not_before is null);
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

-- True if the idempotency key belongs to an invocation that was deleted with its session.
create function is_forgotten_key(p_app text, p_user text, p_key text) returns boolean language plpgsql stable as $$
begin
  return exists (
    select from idempotency_keys k
    where k.app_name = p_app and k.user_id = p_user and k.scope = 'invocation' and k.key = p_key);
end $$;
comment on function is_forgotten_key is 'True if the idempotency key belongs to an invocation that was deleted with its session.';
--> statement-breakpoint
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
create function create_session(
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
--> statement-breakpoint
-- A run of a cronjob is a queued invocation, which any process takes up like others. Its try ends like any invocation,
-- and end_run then counts the end for the cronjob. One that is left out before it begins is deleted, and
-- recorded in skipped_runs, because an invocation needs a session.
--
-- Runs of a cronjob go one after another, in the order in which they were queued; one that waits for its next try holds
-- up no other. A look at the queue chooses the next run, and may_begin_run checks it under a lock, because another
-- process may have chosen another one.
--
-- Locks: a begun invocation, its cronjob, then the sessions of runs that have not begun, then their invocations.
-- user_storage comes before the cronjob, so these sessions and invocations count no bytes.

-- The request of a run as the queue reads it (stored-request.ts), from the settings of its cronjob.
create function run_request(p_prompt text, p_harness jsonb, p_timeout_seconds integer) returns jsonb
language sql immutable as $$
  select jsonb_build_object(
    'version', 1, 'streaming', false, 'isRun', true, 'answer', jsonb_build_object('kind', 'output'),
    'content', jsonb_build_object('role', 'user', 'parts', jsonb_build_array(jsonb_build_object('text', p_prompt))),
    'overrides', case when p_timeout_seconds is null then '{}' else jsonb_build_object('timeAtMostMs', 1000 * p_timeout_seconds) end,
    'harness', p_harness)
$$;
comment on function run_request is 'Returns the stored request of a cronjob''s run.';

-- queue_run: queues a try of a run, in a session of its own or the fixed one of its cronjob. False if the cronjob has a
-- run with that due time, or if the user is being erased.
-- p_since: when the run was queued first; it is the place of the run among those of its cronjob.
create function queue_run(
  p_app text, p_user text, p_cronjob text, p_run text, p_due timestamptz, p_is_manual boolean, p_try integer,
  p_since timestamptz, p_not_before timestamptz)
returns boolean language plpgsql as $$
declare
  c record;
  v_session text;
begin
  select j.session_id, run_request(j.prompt, j.harness, j.timeout_seconds) as request into c from cronjobs j
  where j.app_name = p_app and j.user_id = p_user and j.id = p_cronjob;
  if exists (select from user_erasures e where e.app_name = p_app and e.user_id = p_user)
    or exists (select from invocations i where i.app_name = p_app and i.user_id = p_user and i.cronjob_id = p_cronjob
               and i.due_time = p_due and i.try >= p_try)
    or exists (select from skipped_runs s where s.app_name = p_app and s.user_id = p_user and s.cronjob_id = p_cronjob
               and s.due_time = p_due)
  then
    return false;
  end if;
  v_session := coalesce(c.session_id, p_run || case when p_try > 1 then '-' || p_try else '' end);
  insert into sessions (app_name, user_id, id) values (p_app, p_user, v_session) on conflict do nothing;
  insert into invocations
    (app_name, user_id, session_id, id, status, lease_token, lease_expire_time, request, create_time, not_before,
     cronjob_id, run_id, due_time, is_manual, try)
  values
    (p_app, p_user, v_session, 'e-' || gen_random_uuid(), 'queued', gen_random_uuid(), clock_timestamp(), c.request,
     p_since, p_not_before, p_cronjob, p_run, p_due, p_is_manual, p_try);
  perform pg_notify('agent_runtime', '["queue"]');
  return true;
end $$;
comment on function queue_run is 'Queues a try of a cronjob''s run; false if the run exists.';

-- lock_open_runs: locks the open runs of a cronjob. Never waits, because the end of a run locks the cronjob, which the
-- caller has locked, after the run. False if one is locked already.
create function lock_open_runs(p_app text, p_user text, p_cronjob text) returns boolean language plpgsql as $$
declare
  v_locked integer;
begin
  select count(*) into v_locked from (
    select from invocations i
    where i.app_name = p_app and i.user_id = p_user and i.cronjob_id = p_cronjob and i.first_end_time is null
      and i.status in ('queued', 'running')
    for no key update skip locked) locked;
  return v_locked >= count_open_runs(p_app, p_user, p_cronjob);
end $$;
comment on function lock_open_runs is 'Locks the open runs of a cronjob; false if another transaction has locked one.';

-- fire_cronjobs: queues the runs of due cronjobs, and stores their next due times by compare-and-set on the due time and
-- the revision that the scheduler read. A cronjob whose row is locked stays due, and one that replaces its open runs,
-- which the caller stops in the same transaction, also if one of these is locked.
-- p_firings: [{"app", "owner", "id", "due", "revision", "next", "reason", "runs": [{"id", "due", "skipped"}]}]. next is
-- null if the cronjob never fires again; reason says why. skipped: why the run is left out.
-- Returns the ids of the cronjobs that fired.
create function fire_cronjobs(p_firings jsonb) returns text[] language plpgsql as $$
declare
  f record;
  r record;
  v_overlap text;
  v_now timestamptz;
  v_fired text[] := '{}';
begin
  for f in
    select * from jsonb_to_recordset(p_firings) as each(
      app text, owner text, id text, due timestamptz, revision integer, next timestamptz, reason text, runs jsonb)
  loop
    select c.overlap into v_overlap from cronjobs c
    where c.app_name = f.app and c.user_id = f.owner and c.id = f.id and c.enabled and c.revision = f.revision
      and date_trunc('milliseconds', c.next_run_time) = f.due
    for no key update skip locked;
    continue when not found or v_overlap = 'replace' and not lock_open_runs(f.app, f.owner, f.id);
    v_now := clock_timestamp();
    for r in select * from jsonb_to_recordset(f.runs) as each(id text, due timestamptz, skipped text) loop
      if r.skipped is null then
        perform queue_run(f.app, f.owner, f.id, r.id, r.due, false, 1, v_now, r.due);
      else
        insert into skipped_runs (app_name, user_id, cronjob_id, id, due_time, reason, create_time, end_time)
        values (f.app, f.owner, f.id, r.id, r.due, r.skipped, v_now, v_now) on conflict do nothing;
      end if;
    end loop;
    update cronjobs c set
      next_run_time = f.next, enabled = f.next is not null, disabled_reason = f.reason,
      run_count = c.run_count + (select count(*) from jsonb_array_elements(f.runs) run where not run ? 'skipped')
    where c.app_name = f.app and c.user_id = f.owner and c.id = f.id;
    v_fired := v_fired || f.id;
  end loop;
  return v_fired;
end $$;
comment on function fire_cronjobs is 'Queues the runs of due cronjobs and stores their next due times.';

-- count_open_runs: the runs of a cronjob that have not ended.
create function count_open_runs(p_app text, p_user text, p_cronjob text) returns integer language sql stable as $$
  select count(*)::integer from invocations i
  where i.app_name = p_app and i.user_id = p_user and i.cronjob_id = p_cronjob and i.first_end_time is null
    and i.status in ('queued', 'running')
$$;
comment on function count_open_runs is 'Returns the number of runs of a cronjob that have not ended.';

-- queue_manual_run: queues a run that is due now.
-- p_user: the owner; null: the cronjob may be anybody's. run: the row of the view cronjob_runs. refusal: why there is none:
-- 'absent' (no such cronjob), 'disabled', 'full' (p_most runs of the cronjob are open), 'taken' (a run was requested in
-- this very millisecond).
create function queue_manual_run(
  p_user text, p_cronjob text, p_run text, p_most integer, out refusal text, out run jsonb)
language plpgsql as $$
declare
  c record;
  v_due timestamptz;
begin
  select j.app_name, j.user_id, j.enabled into c from cronjobs j
  where j.id = p_cronjob and (p_user is null or j.user_id = p_user) for no key update;
  refusal := case when not found then 'absent' when not c.enabled then 'disabled'
                  when count_open_runs(c.app_name, c.user_id, p_cronjob) >= p_most then 'full' end;
  if refusal is not null then return; end if;
  v_due := date_trunc('milliseconds', clock_timestamp());
  if not queue_run(c.app_name, c.user_id, p_cronjob, p_run, v_due, true, 1, clock_timestamp(), v_due) then
    refusal := 'taken';
    return;
  end if;
  select to_jsonb(r) into run from cronjob_runs r
  where r.app_name = c.app_name and r.user_id = c.user_id and r.cronjob_id = p_cronjob and r.due_time = v_due;
end $$;
comment on function queue_manual_run is 'Queues a run of a cronjob that is due now; returns the run, or why there is none.';

-- begun_runs: the runs of a user that have begun and not ended, of all cronjobs.
create function begun_runs(p_user text) returns integer language sql stable as $$
  select count(*)::integer from invocations i
  where i.user_id = p_user and i.cronjob_id is not null and i.first_end_time is null
    and i.status in ('queued', 'running') and i.not_before is null
$$;
comment on function begun_runs is 'Returns the number of a user''s runs of cronjobs that go on.';

-- may_begin_run: true if no run of the cronjob goes on, and fewer than p_places runs of its user. Serialised by a lock,
-- because concurrent claims would all count the same runs and pass.
create function may_begin_run(p_app text, p_user text, p_cronjob text, p_places integer) returns boolean
language plpgsql as $$
begin
  perform pg_advisory_xact_lock(hashtextextended('cronjob runs of ' || p_user, 0));
  return begun_runs(p_user) < p_places and not exists (
    select from invocations i
    where i.user_id = p_user and i.app_name = p_app and i.cronjob_id = p_cronjob and i.first_end_time is null
      and i.status in ('queued', 'running') and i.not_before is null);
end $$;
comment on function may_begin_run is 'True if a run of a cronjob may begin; locks the user''s runs.';

-- A run of the user has ended: the next one of its cronjob, or another one that waits for a place, can begin.
create function wake_runs(p_user text) returns void language plpgsql as $$
begin
  if exists (select from invocations i where i.user_id = p_user and i.cronjob_id is not null
             and i.first_end_time is null and i.status = 'queued') then
    perform pg_notify('agent_runtime', '["queue"]');
  end if;
end $$;
comment on function wake_runs is 'Notifies the queues if a run of the user waits.';

-- unqueue_runs: deletes the tries of a cronjob that have not begun, and the sessions that were made for them. A try that
-- another process begins meanwhile stays.
create function unqueue_runs(
  p_app text, p_user text, p_cronjob text,
  out run text, out due timestamptz, out is_on_request boolean, out number integer, out since timestamptz,
  out earliest timestamptz)
returns setof record language plpgsql as $$
declare
  r record;
begin
  for r in
    select * from invocations i
    where i.app_name = p_app and i.user_id = p_user and i.cronjob_id = p_cronjob and i.status = 'queued'
      and i.not_before is not null
    order by i.create_time, i.due_time
  loop
    -- Before the invocation, because a deletion of the session locks it first.
    perform from sessions s
    where s.app_name = p_app and s.user_id = p_user and s.id = r.session_id for key share;
    delete from invocations i
    where i.app_name = p_app and i.user_id = p_user and i.session_id = r.session_id and i.id = r.id
      and i.status = 'queued' and i.not_before is not null;
    continue when not found;
    delete from sessions s
    where s.app_name = p_app and s.user_id = p_user and s.id = r.session_id and s.id in (r.run_id, r.run_id || '-' || r.try)
      and s.last_sequence = 0 and s.state = '{}' and s.lease_token is null
      and not exists (select from invocations i where i.app_name = p_app and i.user_id = p_user and i.session_id = s.id)
      and not exists (select from legal_holds h
                      where h.app_name = p_app and h.user_id = p_user and h.session_id in ('', s.id));
    run := r.run_id; due := r.due_time; is_on_request := r.is_manual; number := r.try; since := r.create_time;
    earliest := r.not_before;
    return next;
  end loop;
end $$;
comment on function unqueue_runs is 'Deletes the runs of a cronjob that have not begun, with their sessions.';

-- requeue_runs: gives the runs that have not begun the settings that their cronjob has now.
create function requeue_runs(p_app text, p_user text, p_cronjob text) returns void language plpgsql as $$
begin
  perform queue_run(p_app, p_user, p_cronjob, r.run, r.due, r.is_on_request, r.number, r.since, r.earliest)
  from unqueue_runs(p_app, p_user, p_cronjob) r;
end $$;
comment on function requeue_runs is 'Gives the runs of a cronjob that have not begun its present settings.';

-- skip_runs: leaves out the runs that the schedule has fired and that have not begun. Manual runs stay.
create function skip_runs(p_app text, p_user text, p_cronjob text, p_reason text) returns void language plpgsql as $$
declare
  r record;
begin
  for r in select * from unqueue_runs(p_app, p_user, p_cronjob) loop
    if r.is_on_request then
      perform queue_run(p_app, p_user, p_cronjob, r.run, r.due, true, r.number, r.since, r.earliest);
    else
      insert into skipped_runs (app_name, user_id, cronjob_id, id, due_time, tries, reason, create_time, end_time)
      values (p_app, p_user, p_cronjob, r.run, r.due, r.number - 1, p_reason, r.since, clock_timestamp());
    end if;
  end loop;
end $$;
comment on function skip_runs is 'Leaves out the scheduled runs of a cronjob that have not begun.';

-- delete_cronjob: deletes a cronjob, whose row the caller has locked, with the runs that have not begun. Invocations of
-- other runs stay with their sessions. False, and deletes nothing, while a run that has begun is open.
create function delete_cronjob(p_app text, p_user text, p_cronjob text) returns boolean language plpgsql as $$
begin
  perform unqueue_runs(p_app, p_user, p_cronjob);
  if count_open_runs(p_app, p_user, p_cronjob) > 0 then
    perform requeue_runs(p_app, p_user, p_cronjob);
    return false;
  end if;
  update invocations i set cronjob_id = null
  where i.app_name = p_app and i.user_id = p_user and i.cronjob_id = p_cronjob;
  delete from cronjobs c where c.app_name = p_app and c.user_id = p_user and c.id = p_cronjob;
  return true;
end $$;
comment on function delete_cronjob is 'Deletes a cronjob with its runs, unless one of them goes on.';

-- What the run of an invocation says of its end: a paused one has failed, because nobody waits for the person.
create function run_error(p_status text, p_message text) returns text language sql immutable as $$
  select case when p_status = 'paused' then 'The invocation waits for a person, in its session.' else p_message end
$$;
comment on function run_error is 'Returns why a cronjob''s run failed.';
create function run_output(p_status text, p_answer text) returns text language sql immutable as $$
  select case when p_status in ('succeeded', 'paused') then p_answer end
$$;
comment on function run_output is 'Returns the answer of a cronjob''s run.';

create function stamp_run_end() returns trigger language plpgsql as $$
begin
  new.first_end_time := coalesce(new.end_time, statement_timestamp());
  new.not_before := null;
  return new;
end $$;
comment on function stamp_run_end is 'Trigger function: a try of a cronjob''s run ends or pauses; stores when.';

-- end_run: a try of a run has ended or paused for the first time. If it failed for a transient reason, queues the next
-- try after a back-off. Otherwise the run has ended: tells the webhook of the cronjob, counts the failures in a row, and
-- disables the cronjob after too many. An invocation that was paused may end once more, which is not counted.
create function end_run(ended invocations) returns void language plpgsql as $$
declare
  c record;
  v_status constant text := case ended.status when 'succeeded' then 'success' when 'cancelled' then 'cancelled' else 'failed' end;
  v_has_begun constant boolean := ended.start_time is not null;
  v_code constant text := case when ended.status = 'paused' then 'paused' when v_has_begun then ended.error_code end;
  v_output constant text := run_output(ended.status, ended.response_body);
  v_earliest timestamptz;
  v_is_last boolean;  -- of the failures in a row that the cronjob may have
begin
  -- A cancelled run counts for nothing. Its cronjob is not locked, because it may have been cancelled before it began:
  -- who changes a cronjob locks these runs after it.
  if v_status <> 'cancelled' then
    perform from cronjobs j where j.app_name = ended.app_name and j.user_id = ended.user_id and j.id = ended.cronjob_id
    for no key update;
  end if;
  select * into c from cronjobs j where j.app_name = ended.app_name and j.user_id = ended.user_id and j.id = ended.cronjob_id;
  if not found then return; end if;
  if v_code in ('model_rate_limited', 'model_unavailable', 'model_timeout', 'model_stream_cut')
    and ended.try < c.max_attempts and ended.stop_requested_as is null then
    -- The jitter keeps runs that failed together from coming back together.
    v_earliest := clock_timestamp() + least(c.retry_pause_seconds * 2 ^ (ended.try - 1), c.max_retry_pause_seconds)
      * (0.5 + random() / 2) * interval '1 second';
    if queue_run(ended.app_name, ended.user_id, ended.cronjob_id, ended.run_id, ended.due_time, ended.is_manual,
                 ended.try + 1, ended.create_time, v_earliest) then
      return;
    end if;
  end if;
  if c.webhook_url is not null then
    perform insert_webhook_delivery(
      ended.app_name, ended.user_id, c.webhook_url, 'cronjob_run.ended',
      jsonb_build_object(
        'appName', ended.app_name, 'userId', ended.user_id, 'jobId', ended.cronjob_id, 'runId', ended.run_id,
        'scheduledAt', webhook_time(ended.due_time), 'status', v_status,
        'sessionId', case when v_has_begun then ended.session_id end, 'invocationId', case when v_has_begun then ended.id end,
        'errorCode', v_code, 'output', left(v_output, 4096),
        'outputTruncated', case when length(v_output) > 4096 then true end));
  end if;
  if v_status = 'failed' then
    v_is_last := c.enabled and c.max_failures > 0 and c.failure_count + 1 >= c.max_failures;
    update cronjobs j set
      failure_count = c.failure_count + 1,
      enabled = c.enabled and not v_is_last,
      next_run_time = case when v_is_last then null else j.next_run_time end,
      disabled_reason = case when v_is_last
        then 'It failed ' || c.failure_count + 1 || ' times in a row; the last time: ' || run_error(ended.status, ended.error_message)
        else j.disabled_reason end
    where j.app_name = ended.app_name and j.user_id = ended.user_id and j.id = ended.cronjob_id;
    if v_is_last then
      perform skip_runs(ended.app_name, ended.user_id, ended.cronjob_id, 'The cronjob was disabled.');
    end if;
  elsif v_status = 'success' and c.failure_count > 0 then
    update cronjobs j set failure_count = 0
    where j.app_name = ended.app_name and j.user_id = ended.user_id and j.id = ended.cronjob_id;
  end if;
  perform wake_runs(ended.user_id);
end $$;
comment on function end_run is 'Queues the next try of a cronjob''s run, or ends the run.';

-- The session of an open run was deleted, and the run with it: it is recorded as left out. A run that unqueue_runs
-- deletes still has its session.
create function leave_out_deleted_run(deleted invocations) returns void language plpgsql as $$
begin
  if exists (select from sessions s
             where s.app_name = deleted.app_name and s.user_id = deleted.user_id and s.id = deleted.session_id)
    or exists (select from user_erasures e where e.app_name = deleted.app_name and e.user_id = deleted.user_id)
  then
    return;
  end if;
  insert into skipped_runs (app_name, user_id, cronjob_id, id, due_time, tries, reason, create_time, end_time)
  select deleted.app_name, deleted.user_id, deleted.cronjob_id, deleted.run_id, deleted.due_time,
         deleted.try - (deleted.start_time is null)::int, 'Its session was deleted.', deleted.create_time, clock_timestamp()
  from cronjobs c where c.app_name = deleted.app_name and c.user_id = deleted.user_id and c.id = deleted.cronjob_id
  on conflict do nothing;
  perform wake_runs(deleted.user_id);
end $$;
comment on function leave_out_deleted_run is 'Records a cronjob''s open run whose session was deleted.';

-- forget_runs: forgets at most p_limit runs that ended more than p_days ago, or that exceed the newest p_count of their
-- cronjob. Their invocations stay with their sessions. Reads the due times of each cronjob from two indexes, and only
-- the runs that were due before one of the two limits.
create function forget_runs(p_days integer, p_count integer, p_limit integer) returns void language plpgsql
set enable_seqscan = off as $$
declare
  c record;
  r record;
  v_old constant timestamptz := clock_timestamp() - p_days * interval '1 day';
  v_place timestamptz;  -- due time of the last of the newest runs
  v_left integer := p_limit;
begin
  for c in select j.app_name, j.user_id, j.id from cronjobs j loop
    select due.due_time into v_place from (
      (select distinct i.due_time from invocations i
       where i.app_name = c.app_name and i.user_id = c.user_id and i.cronjob_id = c.id
       order by i.due_time desc limit p_count)
      union
      (select s.due_time from skipped_runs s
       where s.app_name = c.app_name and s.user_id = c.user_id and s.cronjob_id = c.id
       order by s.due_time desc limit p_count)) due
    order by due.due_time desc offset p_count - 1 limit 1;
    for r in
      select n.due_time from cronjob_runs n
      where n.app_name = c.app_name and n.user_id = c.user_id and n.cronjob_id = c.id
        and n.due_time < greatest(v_old, v_place) and (n.end_time < v_old or n.due_time < v_place and n.end_time is not null)
        and not exists (select from legal_holds h where h.app_name = n.app_name and h.user_id = n.user_id
                        and h.session_id in ('', n.session_id))
      limit v_left
    loop
      update invocations i set cronjob_id = null
      where i.app_name = c.app_name and i.user_id = c.user_id and i.cronjob_id = c.id and i.due_time = r.due_time;
      delete from skipped_runs s
      where s.app_name = c.app_name and s.user_id = c.user_id and s.cronjob_id = c.id and s.due_time = r.due_time;
      v_left := v_left - 1;
    end loop;
    exit when v_left <= 0;
  end loop;
end $$;
comment on function forget_runs is 'Forgets old runs of cronjobs, in a batch.';

-- latest_run_time: when the newest run of a cronjob was due; found in two indexes, not in the view of runs.
create function latest_run_time(p_app text, p_user text, p_cronjob text) returns timestamptz language sql stable as $$
  select greatest(
    (select max(i.due_time) from invocations i
     where i.app_name = p_app and i.user_id = p_user and i.cronjob_id = p_cronjob),
    (select max(s.due_time) from skipped_runs s
     where s.app_name = p_app and s.user_id = p_user and s.cronjob_id = p_cronjob))
$$;
comment on function latest_run_time is 'Returns when the newest run of a cronjob was due.';
--> statement-breakpoint
-- next_eval_case_version: returns the next version number of an evaluation case. Evaluation sets belong to users, but
-- version numbers are unique across all users' sets with the same name, so row-level security is switched off while the
-- function reads them (agent_runtime.all_users). The function itself switches it, because only a superuser may attach
-- such a setting to a function.

create function next_eval_case_version(app text, eval_set text, eval_case text) returns integer
language plpgsql stable as $$
declare
  before text := current_setting('agent_runtime.all_users', true);
  n integer;
begin
  perform set_config('agent_runtime.all_users', 'on', true);
  n := (select 1 + coalesce(max(version), 0) from eval_case_versions
        where app_name = app and eval_set_id = eval_set and eval_id = eval_case);
  perform set_config('agent_runtime.all_users', coalesce(before, ''), true);
  return n;
end $$;
comment on function next_eval_case_version is 'Returns the next version number of an evaluation case, unique across all users'' sets.';

-- eval_case_job: the id of the job of a case in an evaluation run. eval_job_user: the user of these jobs, who is the
-- requester of the run, so that requesters take turns; a name that no user can have if all of them may see the run.
create function eval_case_job(p_run uuid, p_place integer, p_trial integer) returns text language sql immutable
return p_run || '.' || p_place || '.' || p_trial;
comment on function eval_case_job is 'Returns the id of the job of a case in an evaluation run.';
create function eval_job_user(p_requester text) returns text language sql immutable
return coalesce(p_requester, E'\x01');
comment on function eval_job_user is 'Returns the user of the jobs of a requester''s evaluation runs.';

create function new_eval_session() returns text language sql volatile
return 'adk-eval-session-' || gen_random_uuid();
comment on function new_eval_session is 'Returns a new id for the session of a case.';

create function eval_run_counts(p_app text, p_run uuid) returns jsonb language sql stable as $$
  select jsonb_build_object(
    'total', count(*),
    'waiting', count(*) filter (where c.status = 'waiting'), 'running', count(*) filter (where c.status = 'running'),
    'errors', count(*) filter (where c.status = 'error'), 'cancelled', count(*) filter (where c.status = 'cancelled'),
    'passed', count(*) filter (where c.result ->> 'finalStatus' = 'PASSED'),
    'failed', count(*) filter (where c.result ->> 'finalStatus' = 'FAILED'),
    'notEvaluated', count(*) filter (where c.result ->> 'finalStatus' = 'NOT_EVALUATED'))
  from eval_run_cases c where c.app_name = p_app and c.run_id = p_run
$$;
comment on function eval_run_counts is 'Counts the cases of an evaluation run by status, and those that are done by their result.';

create function eval_run_scores(p_app text, p_run uuid) returns jsonb language sql stable as $$
  select coalesce(jsonb_object_agg(means.name, means.mean), '{}') from (
    select m ->> 'metricName' as name, avg((m ->> 'score')::float8) as mean
    from eval_run_cases c cross join lateral jsonb_array_elements(c.result -> 'overall') m
    where c.app_name = p_app and c.run_id = p_run group by 1) means
$$;
comment on function eval_run_scores is 'Returns the mean score of each metric over the cases of an evaluation run; null for a metric without scores.';

-- advance_eval_run: starts the next cases of an evaluation run, up to its parallelism, and ends the run after its last
-- case. A case that runs has a job; or an invocation is open, its current turn, whose end adds the job again.
--   1. Lock the run, because two cases that end at once would each see the other one as open.
--   2. Start waiting cases in the order of the set.
--   3. If no case is open, end the run, and store its summary for lists.
-- A user may delete a case of another user's run, so row-level security is switched off (see next_eval_case_version).
-- Locks: eval_runs, eval_run_cases, job_lanes.
create function advance_eval_run(p_app text, p_run uuid) returns void language plpgsql as $$
declare
  v_all_users text := coalesce(current_setting('agent_runtime.all_users', true), '');
  v_run record;
  v_case record;
  v_running integer;
begin
  perform set_config('agent_runtime.all_users', 'on', true);
  -- 1
  select r.status, r.parallelism, r.requested_by into v_run from eval_runs r
  where r.app_name = p_app and r.id = p_run and r.status in ('queued', 'running') for no key update;
  if found then
    -- 2
    v_running := (select count(*) from eval_run_cases c
                  where c.app_name = p_app and c.run_id = p_run and c.status = 'running');
    for v_case in
      with next as materialized (
        select c.place, c.trial from eval_run_cases c
        where c.app_name = p_app and c.run_id = p_run and c.status = 'waiting'
        order by c.place, c.trial limit greatest(0, v_run.parallelism - v_running))
      update eval_run_cases c set
        status = 'running', session_id = coalesce(c.session_id, new_eval_session()),
        session_count = greatest(c.session_count, 1), start_time = clock_timestamp()
      from next n where c.app_name = p_app and c.run_id = p_run and c.place = n.place and c.trial = n.trial
      returning c.place, c.trial
    loop
      v_running := v_running + 1;
      perform add_job('evaluation', p_app, eval_job_user(v_run.requested_by),
                      eval_case_job(p_run, v_case.place, v_case.trial), '');
      perform pg_notify('agent_runtime', '["evaluation"]');
    end loop;
    -- 3
    if v_running = 0 then
      update eval_runs r set
        status = 'done', end_time = clock_timestamp(),
        summary = jsonb_build_object('counts', eval_run_counts(p_app, p_run), 'scores', eval_run_scores(p_app, p_run))
      where r.app_name = p_app and r.id = p_run;
    elsif v_run.status = 'queued' then
      update eval_runs r set status = 'running' where r.app_name = p_app and r.id = p_run;
    end if;
  end if;
  perform set_config('agent_runtime.all_users', v_all_users, true);
end $$;
comment on function advance_eval_run is 'Starts the next cases of an evaluation run, up to its parallelism, and ends the run after its last case.';
--> statement-breakpoint
-- finish_invocation: ends an invocation: stores its last events, its status and its answer, and releases the session.
--
--   1. Lock and advance the session's row and clear the lease. If no row matches, the lease was lost and nothing is
--      written. No size limit applies, because the end must be stored.
--   2. End the invocation's row. The row gets a new lease token, so that a process that was declared dead does not
--      mistake this end for its own. Write the events' tool calls into the ledger (record_calls). A call that is still
--      open was cut off, so its outcome is unknown. There are two exceptions: a call that waits at a pause has run and
--      will be answered later, and a transactional call was rolled back.
--   3. Store what a replay needs besides the events, such as instructions and state values (keep_tape).
--   4. Merge shared state and insert the events (store_events); delete the streamed chunks; charge the model usage.
--   5. At a pause, store its tasks (open_tasks), and the request for the process that resumes the invocation.
--   6. If the application's memory is automatic, add a job that remembers the invocation.
--   7. Report whether a background invocation waits for the session, so that workers are notified.
--
-- Locks: sessions, user_storage, invocations, tool_calls, agent_prompts by hash, user_states, app_states, budget_uses,
-- tasks, jobs; in the order of claim_session. Errors: those of append_events without AR414 and AR417, and those
-- of open_tasks.
-- Database time: 0.9 ms.
--
-- last and lines: as in append_events. unknown: number of calls whose outcome became unknown here. is_awaited: see step
-- 7. ended: the times (Unix seconds) and counts of the invocation's row, for followers in the finishing process.
create function finish_invocation(
  p_app text, p_user text, p_session text, p_invocation text, p_token uuid, p_new_token uuid,
  p_status text, p_answer text, p_error_code text, p_error_message text,
  p_llm_calls integer, p_tool_calls integer, p_prompt_tokens integer, p_output_tokens integer, p_models jsonb,
  p_calls jsonb, p_tasks jsonb, p_tape_start integer, p_tape jsonb, p_prompts jsonb, p_has_deltas boolean, p_events jsonb, p_delta jsonb,
  p_first_text text, p_remembers boolean, p_limits jsonb,
  out last integer, out lines text, out unknown integer, out is_awaited boolean, out ended json)
language plpgsql as $$
declare
  v_sizes integer[] := event_sizes(p_events);
  v_changed timestamptz;
  v_row record;
begin
  -- 1
  update sessions s set
    lease_token = null,
    last_sequence = s.last_sequence + cardinality(v_sizes),
    event_bytes = s.event_bytes + total_size(v_sizes),
    first_text = coalesce(nullif(s.first_text, ''), p_first_text, ''),
    state = case when p_delta ? 'session' then limited_state(s.state || (p_delta -> 'session'), p_limits) else s.state end,
    update_time = next_time(s.update_time, statement_timestamp())
  where s.app_name = p_app and s.user_id = p_user and s.id = p_session and s.lease_token = p_token
  returning s.last_sequence, s.update_time into last, v_changed;
  if not found then return; end if;
  -- 2
  update invocations i set
    status = p_status, lease_token = coalesce(p_new_token, i.lease_token),
    end_time = greatest(i.start_time, statement_timestamp()), response_body = p_answer,
    request = case when p_status = 'paused' then i.request end,
    error_code = p_error_code, error_message = p_error_message,
    llm_calls = i.llm_calls + p_llm_calls, tool_calls = i.tool_calls + p_tool_calls,
    prompt_tokens = i.prompt_tokens + p_prompt_tokens, output_tokens = i.output_tokens + p_output_tokens
  where i.app_name = p_app and i.user_id = p_user and i.session_id = p_session and i.id = p_invocation
    and i.lease_token = p_token
  returning i.create_time, i.start_time, i.end_time, i.llm_calls, i.tool_calls, i.prompt_tokens, i.output_tokens
  into v_row;
  ended := json_build_object(
    'createTime', extract(epoch from v_row.create_time), 'startTime', extract(epoch from v_row.start_time),
    'endTime', extract(epoch from v_row.end_time), 'llmCalls', v_row.llm_calls, 'toolCalls', v_row.tool_calls,
    'promptTokens', v_row.prompt_tokens, 'outputTokens', v_row.output_tokens);
  if p_calls is not null then perform record_calls(p_app, p_user, p_session, p_invocation, p_calls); end if;
  if v_row.tool_calls > 0 then
    with cut_off as (
      update tool_calls t set
        state = case when p_status = 'paused' or t.effect = 'transactional' then 'done' else 'unknown' end,
        update_time = statement_timestamp()
      where t.app_name = p_app and t.user_id = p_user and t.session_id = p_session and t.invocation_id = p_invocation
        and t.state = 'started'
      returning t.state)
    select count(*) filter (where cut_off.state = 'unknown') into unknown from cut_off;
  end if;
  -- 3
  if p_tape is not null then
    perform keep_tape(p_app, p_user, p_session, p_invocation, p_tape_start, p_tape, p_prompts);
  end if;
  -- 4
  lines := store_events(p_app, p_user, p_session, p_events, v_sizes, p_delta, true, p_limits, last, v_changed, true);
  if p_has_deltas then
    delete from event_deltas d where d.app_name = p_app and d.user_id = p_user and d.session_id = p_session;
  end if;
  if p_models is not null then perform count_use(p_app, p_user, 0, p_models); end if;
  -- 5
  if p_tasks is not null then
    perform open_tasks(p_app, p_user, p_session, p_invocation, p_tasks, (p_limits ->> 'openTasks')::integer);
  end if;
  -- 6
  if p_remembers then
    perform add_job('memory', p_app, p_user, json_build_array(p_session, p_invocation)::text, '');
  end if;
  -- 7
  is_awaited := exists (
    select from invocations w
    where w.app_name = p_app and w.user_id = p_user and w.session_id = p_session and w.status = 'queued'
      and w.request is not null);
end $$;
comment on function finish_invocation is 'Ends an invocation: stores its last events, status and answer, and releases the session.';

-- keep_tape: stores the inputs of a replay that are not in the events, and those prompts that are not stored yet.
-- p_prompts: [{"hash", "payload"}], ordered by hash, so that all transactions lock the prompts in the same order; null
-- for no prompts.
create function keep_tape(
  p_app text, p_user text, p_session text, p_invocation text, p_start integer, p_tape jsonb, p_prompts jsonb)
returns void language plpgsql as $$
declare
  v_prompt jsonb;
  v_stale timestamptz := statement_timestamp() - interval '1 day';
begin
  insert into invocation_tapes (app_name, user_id, session_id, invocation_id, start, payload)
  values (p_app, p_user, p_session, p_invocation, p_start, p_tape) on conflict do nothing;
  for v_prompt in select * from jsonb_array_elements(p_prompts) loop
    insert into agent_prompts as a (app_name, hash, payload)
    values (p_app, v_prompt ->> 'hash', v_prompt -> 'payload')
    on conflict (app_name, hash) do update set use_time = excluded.use_time
    where a.use_time < v_stale;
  end loop;
end $$;
comment on function keep_tape is 'Stores the inputs of a replay that are not in the events, and prompts that are not stored yet.';
--> statement-breakpoint
-- Jobs: work that the processes of a deployment share. Only these functions claim, put back and end a job; the loop is
-- src/platform/jobs/run-jobs.ts.
--
-- A lane is a queue of one user's jobs of one kind, for instance the deliveries to one host. The lanes of a kind take
-- turns, a job a turn, so that a flood in one lane delays no other. A claim reads due lanes in the order of their
-- turns, never the jobs behind them, so that its cost does not grow with the backlog.
--
-- Limits on the jobs that run hold over all processes: per user, per lane name (over users), and per pair of user and
-- lane. Running jobs are counted, because a stored counter could drift. A lane of which a limit is full is blocked
-- (blocked_by) and not read. For each place that becomes free, a claim unblocks a lane. A half-open lane, whose last
-- job got no answer, runs one job at a time.

-- The limits on running jobs that a lane (a queue of one user's jobs) counts for, as texts for the column `blocked_by`.
create function job_keys(p_user text, p_lane text) returns text[] language sql immutable
return array['user:' || p_user, 'lane:' || p_lane, 'pair:' || p_user || E'\x01' || p_lane];
comment on function job_keys is 'Returns the limits that a lane counts for.';

create function job_places(p_limits jsonb, p_key text) returns integer language sql immutable
return coalesce((p_limits ->> split_part(p_key, ':', 1))::integer, 2147483647);
comment on function job_places is 'Returns the maximum number of running jobs of a limit.';

create function job_block(p_user text, p_lane text, p_half_open boolean, p_running jsonb, p_full text[]) returns text
language sql immutable
return case
  when 'user:' || p_user = any(p_full) then 'user:' || p_user
  when 'lane:' || p_lane = any(p_full) then 'lane:' || p_lane
  when 'pair:' || p_user || E'\x01' || p_lane = any(p_full)
    or p_half_open and p_running ? ('pair:' || p_user || E'\x01' || p_lane) then 'pair:' || p_user || E'\x01' || p_lane
end;
comment on function job_block is 'Returns the full limit that blocks a lane; null if none does.';

-- p_apps: the applications that the process serves; null: all.
create function job_apps(p_kind text, p_apps text[]) returns text[] language sql stable as $$
  with recursive app(name) as (  -- a step for each application, however many lanes it has
    (select l.app_name from job_lanes l where l.kind = p_kind and l.blocked_by is null order by l.app_name limit 1)
    union all
    select (select l.app_name from job_lanes l where l.kind = p_kind and l.blocked_by is null and l.app_name > app.name
            order by l.app_name limit 1)
    from app where app.name is not null)
  select coalesce(p_apps, array(select app.name from app where app.name is not null))
$$;
comment on function job_apps is 'Returns the applications of p_apps, or those with lanes if it is null.';

create function job_pause(p_kind text, p_apps text[]) returns float8 language sql stable as $$
  select (1000 * extract(epoch from least(
    (select min(l.turn_time) from unnest(job_apps(p_kind, p_apps)) app(name) cross join lateral (
       select l.turn_time from job_lanes l where l.kind = p_kind and l.app_name = app.name and l.blocked_by is null
       order by l.turn_time limit 1) l),
    (select min(j.lease_expire_time) from jobs j
     where j.kind = p_kind and j.lease_token is not null and (p_apps is null or j.app_name = any(p_apps))),
    (select clock_timestamp() from job_lanes l where l.kind = p_kind and l.blocked_by is not null limit 1))
    - clock_timestamp()))::float8
$$;
comment on function job_pause is 'Milliseconds until a lane is due or a lease expires; not positive if lanes are due or blocked; null if nothing waits.';

-- Announces that a lane has a job that is due at p_due. Writers of a lane do not wait for each other: they share a row
-- lock (key share), which only conflicts with a claim that empties or postpones the lane. A lane that is due already is
-- not updated. Functions that look up one row never scan the table: a connection would keep a plan that it made while
-- the tables were almost empty.
create function add_job_lane(p_kind text, p_app text, p_user text, p_lane text, p_due timestamptz, p_half_open boolean)
returns void language plpgsql set enable_seqscan = off as $$
declare
  v_lane record;
begin
  loop
    select l.turn_time, l.half_open into v_lane from job_lanes l
    where l.app_name = p_app and l.user_id = p_user and l.kind = p_kind and l.lane = p_lane for key share;
    exit when found;
    insert into job_lanes (kind, app_name, user_id, lane, turn_time, half_open)
    values (p_kind, p_app, p_user, p_lane, p_due, p_half_open) on conflict do nothing;
    if found then return; end if;  -- else another transaction has just inserted the lane
  end loop;
  if v_lane.turn_time > p_due then
    update job_lanes l set turn_time = p_due
    where l.app_name = p_app and l.user_id = p_user and l.kind = p_kind and l.lane = p_lane and l.turn_time > p_due;
  end if;
  if v_lane.half_open and not p_half_open then
    update job_lanes l set half_open = false
    where l.app_name = p_app and l.user_id = p_user and l.kind = p_kind and l.lane = p_lane;
  end if;
end $$;
comment on function add_job_lane is 'Inserts a lane, or makes it due by p_due. It stays half-open only if p_half_open.';

create function add_job(p_kind text, p_app text, p_user text, p_id text, p_lane text, p_half_open boolean default false,
                        p_due timestamptz default clock_timestamp()) returns void language plpgsql as $$
begin
  perform add_job_lane(p_kind, p_app, p_user, p_lane, p_due, p_half_open);
  insert into jobs (kind, app_name, user_id, id, lane, due_time) values (p_kind, p_app, p_user, p_id, p_lane, p_due)
  on conflict (app_name, user_id, kind, id) do update set attempt = 0;
end $$;
comment on function add_job is 'Adds a job, in the transaction that makes it necessary. One that waits already stays due when it was; one that runs is due again at its end.';

create function move_job(p_kind text, p_app text, p_user text, p_id text, p_lane text, p_due timestamptz) returns void
language plpgsql as $$
begin
  perform add_job_lane(p_kind, p_app, p_user, p_lane, p_due, false);
  insert into jobs (kind, app_name, user_id, id, lane, due_time) values (p_kind, p_app, p_user, p_id, p_lane, p_due)
  on conflict (app_name, user_id, kind, id) do update set
    due_time = excluded.due_time, attempt = 0, losses = 0, lease_token = null, lease_expire_time = null;
end $$;
comment on function move_job is 'Adds a job, or postpones it until p_due; a process that runs it loses it.';

create function lease_job(p_kind text, p_app text, p_user text, p_id text, p_lease_ms integer, p_losses integer)
returns jsonb language plpgsql as $$
declare
  v_job jsonb;
begin
  update jobs j set lease_token = gen_random_uuid(), attempt = j.attempt + 1, losses = j.losses + p_losses,
                    lease_expire_time = clock_timestamp() + p_lease_ms * interval '1 millisecond'
  where j.app_name = p_app and j.user_id = p_user and j.kind = p_kind and j.id = p_id
  returning jsonb_build_object('appName', j.app_name, 'userId', j.user_id, 'id', j.id, 'attempt', j.attempt,
                               'losses', j.losses, 'token', j.lease_token) into v_job;
  return v_job;
end $$;
comment on function lease_job is 'Gives a job, whose row is locked, a new lease; returns the claimed job.';

-- A lane with further due jobs goes to the end of the queue. A lane without due jobs is deleted, or postponed to its next
-- job, but only under a lock that excludes writers of the lane; else it is looked at again soon. Its next job is read
-- after the lock, because the snapshot of the locking statement may be older than a job that was committed before it.
create function end_turn(p_kind text, p_app text, p_user text, p_lane text) returns void language plpgsql as $$
declare
  v_now timestamptz := clock_timestamp();
  v_next timestamptz;
begin
  select j.due_time into v_next from jobs j
  where j.kind = p_kind and j.app_name = p_app and j.user_id = p_user and j.lane = p_lane and j.lease_token is null
  order by j.due_time, j.id limit 1;
  if v_next <= v_now then
    v_next := v_now;
  else
    perform from job_lanes l
    where l.app_name = p_app and l.user_id = p_user and l.kind = p_kind and l.lane = p_lane for update skip locked;
    if found then
      select j.due_time into v_next from jobs j
      where j.kind = p_kind and j.app_name = p_app and j.user_id = p_user and j.lane = p_lane and j.lease_token is null
      order by j.due_time, j.id limit 1;
    else
      v_next := v_now + interval '50 milliseconds';
    end if;
  end if;
  if v_next is null then
    delete from job_lanes l
    where l.app_name = p_app and l.user_id = p_user and l.kind = p_kind and l.lane = p_lane;
  else
    update job_lanes l set turn_time = v_next
    where l.app_name = p_app and l.user_id = p_user and l.kind = p_kind and l.lane = p_lane;
  end if;
end $$;
comment on function end_turn is 'Gives a lane that had a turn its next one, or deletes it if it is empty.';

-- claim_jobs: claims jobs for a process with p_slots free slots. Claims of a kind run one at a time, because the jobs
-- that a concurrent claim starts cannot be counted before it commits.
--   1. Nothing is due: return without the lock.
--   2. Claim jobs whose lease has expired, because their process died: losses + 1. They counted as running all the
--      time.
-- then in rounds, until the slots are used or no lane fits:
--   3. Unblock lanes of limits that are no longer full, a lane for each free place. Only in the first round, and after
--      one whose lanes had no job, because their places are still free.
--   4. Block due lanes of which a limit is full (blocked_by).
--   5. Choose lanes in turn, as long as none of their limits is full. If users are limited, the last slots of a process
--      are left to others: a user's nth running job needs n free slots.
--   6. Claim the first job of each chosen lane, and give the lane its next turn.
-- Each row is changed by its key, and no join chooses rows to change: its plan would depend on how many rows the tables
-- had when the connection made it, and `update … from (select … limit n for update skip locked)` may take more than n.
-- Generic plans, because making a plan for each round takes longer than the round.
create function claim_jobs(p_kind text, p_apps text[], p_slots integer, p_lease_ms integer, p_limits jsonb,
                           out claimed jsonb, out pause_ms float8) language plpgsql
set enable_seqscan = off set plan_cache_mode = force_generic_plan as $$
declare
  v_now timestamptz;
  v_free integer;
  v_free_before integer;  -- free slots in the round before
  v_running jsonb;  -- number of running jobs by limit
  v_full text[];
  v_row record;
  v_id text;
begin
  claimed := '[]';
  pause_ms := job_pause(p_kind, p_apps);
  if pause_ms is null or pause_ms > 0 or p_slots <= 0 then return; end if;  -- 1
  perform pg_advisory_xact_lock(hashtextextended('jobs ' || p_kind, 0));
  for v_row in  -- 2
    select j.app_name, j.user_id, j.id from jobs j
    where j.kind = p_kind and j.lease_token is not null and j.lease_expire_time < clock_timestamp()
      and (p_apps is null or j.app_name = any(p_apps))
    order by j.lease_expire_time limit p_slots for update skip locked
  loop
    claimed := claimed || lease_job(p_kind, v_row.app_name, v_row.user_id, v_row.id, p_lease_ms, 1);
  end loop;
  for v_round in 1 .. 2 * p_slots + 8 loop
    v_free := p_slots - jsonb_array_length(claimed);
    exit when v_free <= 0;
    v_now := clock_timestamp();
    select coalesce(jsonb_object_agg(key, n), '{}') into v_running from (
      select key, count(*) as n from jobs j, unnest(job_keys(j.user_id, j.lane)) key
      where j.kind = p_kind and j.lease_token is not null group by key) counted;
    select coalesce(array_agg(key), '{}') into v_full from jsonb_each(v_running) counted(key, n)
    where n::integer >= job_places(p_limits, key) or p_limits ? 'user' and key like 'user:%' and n::integer >= v_free;
    if v_round = 1 or v_free = v_free_before then  -- 3
      for v_row in
        with recursive blocking(key) as (  -- a step for each limit, however many lanes are behind it
          (select l.blocked_by from job_lanes l where l.kind = p_kind and l.blocked_by is not null
           order by l.blocked_by limit 1)
          union all
          select (select l.blocked_by from job_lanes l where l.kind = p_kind and l.blocked_by > b.key
                  order by l.blocked_by limit 1)
          from blocking b where b.key is not null)
        select back.* from blocking b cross join lateral (
          select l.app_name, l.user_id, l.lane from job_lanes l
          where l.kind = p_kind and l.blocked_by = b.key
            and job_block(l.user_id, l.lane, l.half_open, v_running, v_full) is null
          order by l.turn_time limit job_places(p_limits, b.key) - coalesce((v_running ->> b.key)::integer, 0)
          for no key update skip locked) back
        where b.key <> all(v_full)
      loop
        update job_lanes l set blocked_by = null
        where l.app_name = v_row.app_name and l.user_id = v_row.user_id and l.kind = p_kind and l.lane = v_row.lane;
      end loop;
    end if;
    v_free_before := v_free;
    if v_full <> '{}' then  -- 4
      for v_row in
        with due as materialized (
          select due.app_name, due.user_id, due.lane, key from unnest(job_apps(p_kind, p_apps)) app(name)
          cross join lateral (
            select l.app_name, l.user_id, l.lane, l.half_open from job_lanes l
            where l.kind = p_kind and l.app_name = app.name and l.blocked_by is null and l.turn_time <= v_now
            order by l.turn_time limit 500) due
          cross join lateral job_block(due.user_id, due.lane, due.half_open, v_running, v_full) key
          where key is not null)
        select d.* from due d cross join lateral (
          select from job_lanes l
          where l.app_name = d.app_name and l.user_id = d.user_id and l.kind = p_kind and l.lane = d.lane
          for no key update skip locked) locked
      loop
        update job_lanes l set blocked_by = v_row.key
        where l.app_name = v_row.app_name and l.user_id = v_row.user_id and l.kind = p_kind and l.lane = v_row.lane;
      end loop;
    end if;
    for v_row in  -- 5
      with due as materialized (
        select l.*, row_number() over (order by l.turn_time, l.app_name, l.user_id, l.lane) as place
        from (select l.* from unnest(job_apps(p_kind, p_apps)) app(name) cross join lateral (
                select l.app_name, l.user_id, l.lane, l.half_open, l.turn_time from job_lanes l
                where l.kind = p_kind and l.app_name = app.name and l.blocked_by is null and l.turn_time <= v_now
                  and job_block(l.user_id, l.lane, l.half_open, v_running, v_full) is null
                order by l.turn_time limit v_free for no key update skip locked) l
              order by l.turn_time limit v_free) l),
      ranked as (
        select d.place, key,
               coalesce((v_running ->> key)::integer, 0) + row_number() over (partition by key order by d.place) as rank,
               case when d.half_open and key like 'pair:%' then 1 else job_places(p_limits, key) end as places
        from due d, unnest(job_keys(d.user_id, d.lane)) key)
      select d.app_name, d.user_id, d.lane from due d
      where not exists (
        select from ranked r where r.place = d.place and (
          r.rank > r.places or p_limits ? 'user' and r.key like 'user:%' and r.rank + d.place > v_free + 1))
      order by d.place
    loop
      select j.id into v_id from jobs j  -- 6
      where j.kind = p_kind and j.app_name = v_row.app_name and j.user_id = v_row.user_id and j.lane = v_row.lane
        and j.lease_token is null and j.due_time <= v_now
      order by j.due_time, j.id limit 1 for update skip locked;
      if found then
        claimed := claimed || lease_job(p_kind, v_row.app_name, v_row.user_id, v_id, p_lease_ms, 0);
      end if;
      perform end_turn(p_kind, v_row.app_name, v_row.user_id, v_row.lane);
    end loop;
    exit when not found;
  end loop;
  pause_ms := job_pause(p_kind, p_apps);
end $$;
comment on function claim_jobs is 'Claims jobs of one kind, lanes in turn and within limits; returns them, and what job_pause says then.';

-- The functions below check the token, so that a process that lost the job changes nothing and gets false. They lock the
-- lane before the job, as add_job does.
create function put_back_job(p_kind text, p_app text, p_user text, p_id text, p_token uuid, p_pause_ms bigint,
                             p_half_open boolean default false, p_anew boolean default false) returns boolean
language plpgsql set enable_seqscan = off as $$
declare
  v_due timestamptz := clock_timestamp() + p_pause_ms * interval '1 millisecond';
  v_lane text;
begin
  select j.lane into v_lane from jobs j
  where j.app_name = p_app and j.user_id = p_user and j.kind = p_kind and j.id = p_id and j.lease_token = p_token;
  if not found then return false; end if;
  perform add_job_lane(p_kind, p_app, p_user, v_lane, v_due, p_half_open);
  update jobs j set
    lease_token = null, lease_expire_time = null, due_time = v_due,
    attempt = case when p_anew then 0 else j.attempt end, losses = case when p_anew then 0 else j.losses end
  where j.app_name = p_app and j.user_id = p_user and j.kind = p_kind and j.id = p_id and j.lease_token = p_token;
  return found;
end $$;
comment on function put_back_job is 'Puts a claimed job back for another attempt after a pause; p_anew: its attempts and crashes are counted anew. False if another process has claimed it.';

create function end_job(p_kind text, p_app text, p_user text, p_id text, p_token uuid) returns boolean
language plpgsql set enable_seqscan = off as $$
begin
  delete from jobs j
  where j.app_name = p_app and j.user_id = p_user and j.kind = p_kind and j.id = p_id and j.lease_token = p_token
    and j.attempt > 0;  -- else it was added again since its claim
  return found or put_back_job(p_kind, p_app, p_user, p_id, p_token, 0);
end $$;
comment on function end_job is 'Ends a claimed job, or puts it back if it was added again since; false if another process has claimed it.';

create function renew_jobs(p_kind text, p_jobs jsonb, p_lease_ms integer, out tokens uuid[])
language plpgsql set enable_seqscan = off as $$
begin
  with renewed as (
    update jobs j set lease_expire_time = clock_timestamp() + p_lease_ms * interval '1 millisecond'
    from jsonb_to_recordset(p_jobs) c("appName" text, "userId" text, id text, token uuid)
    where j.kind = p_kind and j.app_name = c."appName" and j.user_id = c."userId" and j.id = c.id
      and j.lease_token = c.token
    returning j.lease_token)
  select coalesce(array_agg(lease_token), '{}') into tokens from renewed;
end $$;
comment on function renew_jobs is 'Renews the leases of claimed jobs, as claim_jobs returned them; returns the tokens of those that no other process has claimed.';
--> statement-breakpoint
-- Functions that check limits on sizes. Each returns its first argument, or raises an error; src/core/errors.ts maps
-- the SQLSTATEs to error messages. Limits are arguments instead of connection settings, because a connection setting
-- would reach neither the nodes of a distributed database nor the server behind a pooler.

-- Checks the size of a state. AR413: the state has more than p_max_bytes bytes as text. AR415: it has more than
-- p_max_keys keys.
create function assert_state_size(p_state jsonb, p_max_bytes integer, p_max_keys integer) returns jsonb
language plpgsql immutable as $$
begin
  if octet_length(p_state::text) > p_max_bytes then
    raise exception 'state is larger than % bytes', p_max_bytes using errcode = 'AR413';
  end if;
  if jsonb_typeof(p_state) = 'object' and (select count(*) from jsonb_object_keys(p_state)) > p_max_keys then
    raise exception 'state has more than % keys', p_max_keys using errcode = 'AR415';
  end if;
  return p_state;
end $$;
comment on function assert_state_size is 'Returns the state; fails if it has more than p_max_bytes of text or p_max_keys keys.';

-- Checks that a SECURITY DEFINER function is called for the right user: under the role agent_runtime_user, p_user must
-- be the user of the transaction.
create function assert_own_user(p_user text) returns void language plpgsql stable as $$
begin
  if current_setting('role') = 'agent_runtime_user'
     and p_user is distinct from current_setting('agent_runtime.user', true) then
    raise exception 'another user' using errcode = '42501';
  end if;
end $$;
comment on function assert_own_user is 'Fails if the role agent_runtime_user names a user other than that of the transaction.';

-- Checks the total size of a session's events. AR414: it is more than p_max_bytes.
create function assert_session_size(p_event_bytes bigint, p_max_bytes bigint) returns bigint
language plpgsql immutable as $$
begin
  if p_event_bytes > p_max_bytes then
    raise exception 'events of the session are more than % bytes', p_max_bytes using errcode = 'AR414';
  end if;
  return p_event_bytes;
end $$;
comment on function assert_session_size is 'Returns the size; fails if it exceeds p_max_bytes.';

-- Checks what agents wrote into an application's shared state on behalf of one user (p_writer). AR416: it is more than
-- p_max_bytes.
create function assert_writer_share(p_state jsonb, p_writers jsonb, p_writer jsonb, p_max_bytes integer) returns jsonb
language plpgsql immutable as $$
begin
  if (select sum(octet_length(own.key) + octet_length(own.value::text)) from jsonb_each(p_state) own
      where p_writers -> own.key = p_writer) > p_max_bytes then
    raise exception 'what agents wrote for one user is more than % bytes', p_max_bytes using errcode = 'AR416';
  end if;
  return p_writers;
end $$;
comment on function assert_writer_share is 'Returns the writers; fails if agents wrote more than p_max_bytes on behalf of the writer.';

-- Checks the bytes that a statement adds to a user's storage in an application. AR417: the total would exceed
-- p_max_bytes (null: no limit). Concurrent writes do not see each other, so a user's large writes are serialised here,
-- before they lock rows of stored data. p_begins: the transaction writes more after this statement, so it is serialised
-- whatever its size.
create function assert_user_storage(p_app text, p_user text, p_added bigint, p_max_bytes bigint, p_begins boolean)
returns bigint language plpgsql as $$
begin
  if p_max_bytes is null then return p_added; end if;
  if p_begins or p_added > 65536 then
    perform pg_advisory_xact_lock(hashtextextended(p_app || E'\x01' || p_user, 7240031));
  end if;
  if p_max_bytes < p_added + (
    select coalesce(sum(u.event_bytes + u.artifact_bytes + u.memory_bytes), 0) from user_storage u
    where u.app_name = p_app and u.user_id = p_user) then
    raise exception 'what is kept of the user is more than % bytes', p_max_bytes using errcode = 'AR417';
  end if;
  return p_added;
end $$;
comment on function assert_user_storage is 'Returns the added bytes; fails if the user''s storage would exceed p_max_bytes.';

-- Returns the size of a session's states that counts for its user's storage: without the four bytes of two empty
-- objects.
create function state_size(p_state jsonb, p_initial_state jsonb) returns bigint language sql immutable as
$$ select octet_length(p_state::text)::bigint + octet_length(p_initial_state::text) - 4 $$;
comment on function state_size is 'Returns the size of a session''s states that counts for its user''s storage.';

-- Returns the size of an artifact version that counts for its user's storage: the content, references to other
-- artifacts, and metadata.
create function artifact_size(p_size_bytes bigint, p_part jsonb, p_metadata jsonb) returns bigint language sql immutable as
$$ select p_size_bytes + octet_length(p_part::text) + octet_length(p_metadata::text) $$;
comment on function artifact_size is 'Returns the size of an artifact version that counts for its user''s storage.';

-- Variants of the checks above that read the limits from p_limits:
-- {"stateBytes", "stateKeys", "appStateBytesPerUser", "sessionBytes", "userBytes"}.
create function limited_state(p_state jsonb, p_limits jsonb) returns jsonb language sql immutable as
$$ select assert_state_size(p_state, (p_limits ->> 'stateBytes')::int, (p_limits ->> 'stateKeys')::int) $$;
comment on function limited_state is 'Returns the state; fails if it exceeds the limits.';
create function limited_size(p_event_bytes bigint, p_limits jsonb) returns bigint language sql immutable as
$$ select assert_session_size(p_event_bytes, (p_limits ->> 'sessionBytes')::bigint) $$;
comment on function limited_size is 'Returns a session''s size; fails if it exceeds the limits.';
--> statement-breakpoint
-- Functions that split memories into words for full-text search. PostgreSQL itself splits text only at blanks, and
-- keeps addresses and file names as single words. Here the parts of addresses and file names are indexed too. Text in
-- scripts without blanks between words (Chinese, Japanese, Thai …) or with attached word endings (Korean) is split into
-- pieces of one and two characters.

-- Returns every two adjacent characters of text in the scripts without blanks, and with p_singles also every single
-- character.
create function memory_pieces(p_text text, p_singles boolean) returns text language sql immutable as $$
  select string_agg(pieces, ' ')
  from regexp_matches(p_text, E'[\\u0e00-\\u0eff\\u1000-\\u109f\\u1780-\\u17ff\\u3040-\\u30ff\\u3400-\\u4dbf\\u4e00-\\u9fff\\uac00-\\ud7a3\\uf900-\\ufaff\\uff66-\\uff9f\\U00020000-\\U0003ffff]+', 'g') found(runs),
    lateral (
      select string_agg(substr(runs[1], start, size), ' ') as pieces
      from generate_series(1, length(runs[1])) start, generate_series(1, 2) size
      where start + size - 1 <= length(runs[1]) and (size = 2 or p_singles or length(runs[1]) = 1)) cut
$$;
comment on function memory_pieces is 'Splits text in scripts without blanks into pieces of one and two characters.';

-- Long words are cut after 128 characters, because the time of to_tsvector is quadratic in the length of a word: 90 s
-- for 64 KB of a_a_….
create function memory_words(p_text text, p_singles boolean) returns tsvector language sql immutable as $$
  select to_tsvector('simple', concat_ws(' ', regexp_replace(p_text, E'(\\S{128})', E'\\1 ', 'g'),
                                         regexp_replace(regexp_replace(p_text, '[^[:alnum:]]+', ' ', 'g'), E'(\\S{128})', E'\\1 ', 'g'),
                                         memory_pieces(p_text, p_singles)))
$$;
comment on function memory_words is 'Returns the words by which full-text search finds a memory.';

-- The search matches any word of the query. Each word is quoted, because the query is plain text and must not be read
-- as search operators.
create function memory_words_asked(p_text text) returns tsquery language sql immutable as $$
  select coalesce(string_agg('''' || replace(replace(lexeme, E'\\', E'\\\\'), '''', '''''') || '''', ' | '), '')::tsquery
  from unnest(memory_words(p_text, false))
$$;
comment on function memory_words_asked is 'Converts a text to a full-text query for any of its words.';
--> statement-breakpoint
-- service_state: returns the connected processes of the service (replicas) and the contents of the queues, for
-- operators.
--
-- A replica is a database connection that listens for notifications; its application name is `agent-runtime/<version>
-- <host>`. A replica is not visible if it is connected only through a pooler. The waiting time of an entry begins when
-- the entry is due; an entry that is due later counts as waiting for 0 seconds.
-- At most 1,000 due entries of each queue are counted, to bound the cost. Tasks have no index on their age, so the
-- oldest task is the oldest of those that were counted.
create function service_state(out replicas json, out queues json) language plpgsql stable as $$
begin
  select coalesce(json_agg(json_build_object('version', split_part(split_part(application_name, '/', 2), ' ', 1),
      'host', split_part(application_name, ' ', 2), 'startTime', extract(epoch from backend_start)) order by backend_start), '[]')
    into replicas from pg_stat_activity
    where datname = current_database() and application_name like 'agent-runtime/%';
  with kinds(kind, name) as (values ('delivery', 'webhook deliveries'), ('score', 'scores')),
    waits(name, since) as (
      (select 'invocations', create_time from invocations
        where status = 'queued' and request is not null and not_before is null order by 2 limit 1001)
      union all (select 'invocations', create_time from invocations where status = 'queued' and request is null limit 1001)
      union all (select 'tasks', create_time from tasks where state = 'open' limit 1001)
      union all (select 'cronjob runs', not_before from invocations
        where cronjob_id is not null and first_end_time is null and status in ('queued', 'running') and not_before is not null
        order by 2 limit 1001)
      union all (select kinds.name, due.since from kinds cross join lateral (
        (select due_time as since from jobs j where j.kind = kinds.kind and lease_token is null order by 1 limit 1001)
        union all (select lease_expire_time from jobs j
          where j.kind = kinds.kind and lease_token is not null and lease_expire_time <= now() limit 1001)) due)
      union all (select 'evaluation cases', r.create_time
        from eval_runs r join eval_run_cases c on c.app_name = r.app_name and c.run_id = r.id
        where r.status in ('queued', 'running') and c.status = 'waiting' order by 2 limit 1001)),
    works(name, running) as (
      select 'invocations', (select count(*) from invocations where status = 'running')
      union all select 'tasks', 0
      union all select 'cronjob runs', (select count(*) from invocations
        where cronjob_id is not null and first_end_time is null and status in ('queued', 'running') and not_before is null)
      union all select kinds.name, (select count(*) from jobs j
        where j.kind = kinds.kind and lease_token is not null and lease_expire_time > now()) from kinds
      union all select 'evaluation cases', (select count(*) from eval_run_cases where status = 'running'))
  select json_agg(json_build_object('name', name, 'waiting', least(waiting, 1000), 'more', waiting > 1000, 'running', running,
      'oldestSeconds', case when waiting > 0 then greatest(extract(epoch from clock_timestamp() - oldest), 0) end) order by name)
    into queues from (
      select name, running, count(since) as waiting, min(since) as oldest from works left join waits using (name) group by 1, 2) each;
end $$;
comment on function service_state is 'Returns the connected replicas of the service, and the numbers of waiting and running entries of each queue.';

-- list_audit: returns a page of the audit log, the newest entry first. Members of p_wanted filter the entries:
-- decision, caller, operation, appName, userId, from and to (Unix seconds), limit, and cursor (only entries with
-- smaller ids). A page scans up to 10,000 entries, beginning near `to` by the index on time. The order of ids is that
-- of times, up to about a second.
create function list_audit(p_wanted json, out page json) language plpgsql stable as $$
declare
  rest integer := (p_wanted ->> 'limit')::integer;
  below bigint := least((p_wanted ->> 'cursor')::bigint, 1 + (select max(id) from (
    select id from audit_log where time < coalesce(to_timestamp((p_wanted ->> 'to')::float8 + 1), 'infinity')
    order by time desc limit 100) newest));
  since timestamptz := coalesce(to_timestamp((p_wanted ->> 'from')::float8 - 1), '-infinity');
begin
  select json_strip_nulls(json_build_object(
      'items', coalesce(json_agg(json_build_object('time', extract(epoch from time), 'decision', decision, 'callerKind', caller_kind,
        'caller', caller, 'address', address, 'operation', operation, 'resource', resource, 'reason', reason,
        'requestId', request_id, 'leftOut', left_out) order by id desc) filter (where place <= rest), '[]'),
      'nextCursor', case when count(*) > rest then min(id) filter (where place <= rest)
        when (select time from audit_log where id < below - 10000 order by id desc limit 1) >= since then below - 10000 end::text))
    into page from (
      select *, row_number() over (order by id desc) as place from audit_log
      where id < below and id >= below - 10000
        and coalesce(decision = p_wanted ->> 'decision', true) and (p_wanted ->> 'caller' is null or caller = p_wanted ->> 'caller')
        and (p_wanted ->> 'operation' is null or operation = p_wanted ->> 'operation')
        and (p_wanted ->> 'appName' is null or resource ->> 'appName' = p_wanted ->> 'appName')
        and (p_wanted ->> 'userId' is null or resource ->> 'userId' = p_wanted ->> 'userId')
        and coalesce(extract(epoch from time) >= (p_wanted ->> 'from')::numeric, true)
        and coalesce(extract(epoch from time) < (p_wanted ->> 'to')::numeric, true)
      order by id desc limit rest + 1) entries;
end $$;
comment on function list_audit is 'Returns a page of the audit log, the newest entry first.';
--> statement-breakpoint
-- Helpers of the functions that write sessions. PostgreSQL inlines functions in the language SQL into the calling
-- statements.

-- Returns the time to store for a change: p_moment, or one microsecond after the previous change if that is later. So
-- times of changes always increase, even if the clock was set back or the statement waited for another writer. Computed
-- in UTC, because adding to a timestamptz is not immutable.
create function next_time(p_before timestamptz, p_moment timestamptz) returns timestamptz language sql immutable as
$$ select greatest((p_before at time zone 'utc' + interval '1 microsecond') at time zone 'utc', p_moment) $$;
comment on function next_time is 'Returns the time to store for a change, always later than the previous change.';

-- Returns the version of a row: the time of its last change in microseconds. Every change increases it.
create function row_version(p_update_time timestamptz) returns text language sql immutable as
$$ select to_hex((extract(epoch from p_update_time at time zone 'utc') * 1000000)::bigint) $$;
comment on function row_version is 'Returns the version of a row: the time of its last change in microseconds, hexadecimal.';

-- Returns the ETag of a session: the versions of the session's row, of the application's state and of the user's state,
-- joined by dots.
create function session_etag(p_session timestamptz, p_app_state timestamptz, p_user_state timestamptz) returns text
language sql immutable as
$$ select '"' || row_version(p_session) || '.' || coalesce(row_version(p_app_state), '') || '.'
       || coalesce(row_version(p_user_state), '') || '"' $$;
comment on function session_etag is 'Returns the ETag of a session: the versions of its row, of the application''s state and of the user''s state.';

-- Converts Unix seconds to a timestamp. Imported events may have any number; a number out of range becomes the earliest
-- or latest possible year.
create function clamped_time(p_seconds float8) returns timestamptz language sql immutable as
$$ select to_timestamp(least(greatest(p_seconds, -2e11), 9e12)) $$;
comment on function clamped_time is 'Converts Unix seconds to a timestamp; a number out of range becomes the earliest or latest possible year.';

-- Returns the size of each event as text, in bytes. The client cannot compute it, because PostgreSQL writes numbers
-- differently: 1e308 with 309 digits.
create function event_sizes(p_events jsonb) returns integer[] language plpgsql immutable as $$
begin
  if jsonb_array_length(p_events) = 1 then return array[octet_length((p_events -> 0)::text)]; end if;
  return array(
    select octet_length(given.event::text)
    from jsonb_array_elements(p_events) with ordinality as given(event, place) order by given.place);
end $$;
comment on function event_sizes is 'Returns the size of each event in an array as text, in bytes.';

create function total_size(p_sizes integer[]) returns bigint language plpgsql immutable as $$
begin
  if cardinality(p_sizes) = 1 then return p_sizes[1]; end if;
  return coalesce((select sum(size) from unnest(p_sizes) size), 0);
end $$;
comment on function total_size is 'Returns the sum of sizes.';
--> statement-breakpoint
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
create function store_events(
  p_app text, p_user text, p_session text, p_events jsonb, p_sizes integer[], p_delta jsonb, p_from_runtime boolean,
  p_limits jsonb, p_last integer, p_changed timestamptz, p_returns boolean)
returns text language plpgsql as $$
declare
  v_first integer := p_last - cardinality(p_sizes);
  v_event jsonb;
  v_place integer;
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
  for v_event, v_place in select given.event, given.place
    from jsonb_array_elements(p_events) with ordinality as given(event, place) order by given.place
  loop
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
create function merge_app_state(p_app text, p_user text, p_delta jsonb, p_from_runtime boolean, p_limits jsonb)
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
--> statement-breakpoint
-- open_tasks: inserts a task for each tool call that a pausing invocation leaves open. Internal: called by
-- finish_invocation.
-- p_tasks: [{"callId", "callName", "kind", "about", "form", "rules", "users", "groups", "signal", "expiresAfter" in
-- seconds or "expiresAt" as local time of "timeZone"}].
-- Locks: the new rows. Errors: AR418: the user would have more than the maximum number of open tasks.
create function open_tasks(
  p_app text, p_user text, p_session text, p_invocation text, p_tasks jsonb, p_max integer) returns void
language plpgsql as $$
declare
  v_now constant timestamptz := clock_timestamp();
  v_due timestamptz;
begin
  if (select count(*) from (select from tasks t where t.app_name = p_app and t.user_id = p_user and t.state = 'open' limit p_max) n)
     + jsonb_array_length(p_tasks) > p_max then
    raise exception 'the user has too many open tasks' using errcode = 'AR418';
  end if;
  insert into tasks (app_name, user_id, session_id, id, invocation_id, call_id, call_name, kind, form, rules, assigned_users,
                     assigned_groups, signal_name, expire_time, create_time)
  select p_app, p_user, p_session, gen_random_uuid(), p_invocation, w.task ->> 'callId', w.task ->> 'callName',
         case when w.task ->> 'kind' = 'confirmation' and exists (
                select from tool_calls c
                where c.app_name = p_app and c.user_id = p_user and c.session_id = p_session
                  and c.invocation_id = p_invocation and c.call_id = w.task ->> 'about' and c.state = 'unknown')
              then 'effect' else w.task ->> 'kind' end,
         w.task -> 'form', coalesce(w.task -> 'rules', '{}'),
         array(select jsonb_array_elements_text(w.task -> 'users')), array(select jsonb_array_elements_text(w.task -> 'groups')),
         w.task ->> 'signal',
         case when w.task ? 'expiresAt'
              then least((w.task ->> 'expiresAt')::timestamp at time zone coalesce(w.task ->> 'timeZone', 'UTC'),
                         v_now + interval '366 days')
              else v_now + (w.task ->> 'expiresAfter')::float8 * interval '1 second' end,
         v_now
  from jsonb_array_elements(p_tasks) w(task);
  -- If the signal that a task waits for is already stored, the task is due at once.
  update tasks t set due_time = least(next_due(t.create_time, t.expire_time, t.rules, t.reminders), (
    select v_now from signals s
    where s.app_name = p_app and s.user_id = p_user and s.session_id = p_session and s.name = t.signal_name limit 1))
  where t.app_name = p_app and t.user_id = p_user and t.session_id = p_session and t.invocation_id = p_invocation
    and t.create_time = v_now and (t.expire_time is not null or t.rules ? 'remindAfter' or t.signal_name is not null);
  if found then perform pg_notify('agent_runtime', '["tasks"]'); end if;
end $$;
comment on function open_tasks is 'Inserts tasks for the calls that a pausing invocation leaves open.';

-- Returns when an open task is due next: for its next reminder, or at its deadline.
-- The arguments are single columns instead of a row type, because a distributed database creates functions before its
-- nodes have the tables.
create function next_due(p_made timestamptz, p_expires timestamptz, p_rules jsonb, p_reminders integer)
returns timestamptz language sql immutable as $$
  select least(p_expires, p_made
               + (p_rules #>> array['remindAfter', p_reminders::text])::float8 * interval '1 second')
$$;
comment on function next_due is 'Returns when an open task is due next.';

-- True if a person may answer a task. Assigned users and members of assigned groups may; if nobody is assigned, the
-- session's user may. The user who requested the call may not if the task's rules exclude the requester.
create function may_answer(
  p_user text, p_rules jsonb, p_assigned_users text[], p_assigned_groups text[], p_by text, p_groups text[])
returns boolean language sql immutable as $$
  select not (p_by = p_user and coalesce(p_rules -> 'excludesRequester' = 'true', false))
     and case when p_assigned_users = '{}' and p_assigned_groups = '{}' then p_by = p_user
              else p_by = any(p_assigned_users) or p_assigned_groups && p_groups end
$$;
comment on function may_answer is 'True if a person may answer a task.';

-- Returns the error message for an answer to a task that is closed already.
create function answered_text(p_id text, p_state text, p_by text, p_via text, p_at timestamptz)
returns text language sql stable as $$
  select case when p_state = 'cancelled' then format('Task %s was cancelled.', p_id)
              else format('Task %s was answered before: %s at %s.', p_id,
                          case when p_via = 'deadline' then 'by its deadline'
                               else format('by %s, through %s,', coalesce(p_by, 'a system'), coalesce(p_via, 'another service')) end,
                          to_char(p_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')) end
$$;
comment on function answered_text is 'Returns the error message for an answer to a task that is closed already.';

-- answer_calls: closes the tasks of the calls that a message of the session's user answers, or refuses the message.
-- Internal: called by claim_session and append_events, so that the tasks are closed in the transaction that stores the
-- message's event.
--
--   1. The call has a task in this session: the task's rules decide whether the answer is accepted. The response of a
--      confirmation is stored with the task, and only the task authorises the call; the event cannot, because it may be
--      a copy from another session.
--   2. The call has no task: only answers to tools of the client and to long-running tools are accepted
--      (assert_without_task).
--
-- p_answers: [{"id", "name", "response" (only of a confirmation), "invocationId": the invocation that the request
-- resumes, "isHistory"}]. isHistory is true if the event with the answer names an agent as its author, or if the same
-- request also brings the call. Such an answer is a record of the past and needs no task, unless it is a confirmation.
-- Locks: the tasks' rows.
-- Errors: AR410: the call was answered already (the message says by whom), or nothing waits for the answer; AR403:
-- other people must answer.
create function answer_calls(p_app text, p_user text, p_session text, p_answers jsonb) returns void language plpgsql as $$
declare
  v_answer jsonb;
  v_is_decision boolean;
  t record;
begin
  for v_answer in select given from jsonb_array_elements(p_answers) given order by given ->> 'id' loop
    v_is_decision := coalesce(v_answer ->> 'name' = 'adk_request_confirmation', false);
    -- 1. Models choose the ids of calls and may reuse them, so the newest task with the id is taken.
    select * into t from tasks k
    where k.app_name = p_app and k.user_id = p_user and k.session_id = p_session and k.call_id = v_answer ->> 'id'
    order by k.create_time desc limit 1 for update;
    if found then
      if t.state <> 'open' then
        raise exception '%', answered_text(t.id, t.state, t.decided_by, t.decided_via, t.decide_time) using errcode = 'AR410';
      elsif not may_answer(t.user_id, t.rules, t.assigned_users, t.assigned_groups, p_user, '{}') or (t.rules ->> 'approvals')::integer > 1 then
        raise exception 'Others have to answer task %.', t.id using errcode = 'AR403';
      elsif t.invocation_id <> v_answer ->> 'invocationId' then
        raise exception 'Task % is one of invocation %.', t.id, t.invocation_id using errcode = 'AR410';
      elsif v_is_decision <> (t.call_name = 'adk_request_confirmation') then
        raise exception 'Task % waits for an answer to %.', t.id, t.call_name using errcode = 'AR410';
      end if;
      update tasks k set state = 'done', due_time = null, decided_by = p_user, decided_via = 'run', answer = v_answer -> 'response',
        decide_time = statement_timestamp(), version = k.version + 1
      where k.app_name = p_app and k.user_id = p_user and k.session_id = p_session and k.id = t.id;
    -- 2
    elsif not coalesce((v_answer ->> 'isHistory')::boolean, false) or v_is_decision then
      perform assert_without_task(p_app, p_user, p_session, v_answer ->> 'id', v_is_decision);
    end if;
  end loop;
end $$;
comment on function answer_calls is 'Closes the tasks of the calls that a message of the session''s user answers, or refuses the message.';

-- assert_without_task: refuses an answer to a call that has no task in its session. Answers to two kinds of calls are
-- accepted, because no particular person has to give them:
--
--   * calls of the client's own tools, which the client answers in any case;
--   * calls whose tool gave a provisional response in this session, as ADK's long-running tools do.
--
-- A call that was copied by a fork or an import has no task here: it must be answered in the session in which it was
-- made.
-- Errors: AR410.
create function assert_without_task(p_app text, p_user text, p_session text, p_call text, p_is_decision boolean)
returns void language plpgsql as $$
declare
  v_event record;
  v_origin text := p_session;
begin
  if p_call is null then
    raise exception 'An answer names its call: functionResponse.id.' using errcode = 'AR410';
  end if;
  -- Find the newest event with a call of this id, because models take the newest call if an id is reused. No index has
  -- the ids of calls, so this scans the session's events backwards until it finds the call.
  select e.sequence, e.is_from_runtime, e.payload -> 'longRunningToolIds' ? p_call as is_long, c.part into v_event
  from events e
  cross join lateral jsonb_path_query_first(
    e.payload, '$.content.parts[*] ? (@.functionCall.id == $id)', jsonb_build_object('id', p_call)) c(part)
  where e.app_name = p_app and e.user_id = p_user and e.session_id = p_session and e.author <> 'user' and c.part is not null
  order by e.sequence desc limit 1;
  if not p_is_decision and v_event.part #> '{partMetadata,clientTool}' = 'true' then return; end if;
  -- Follow forks back to the session in which the call was made.
  while v_event.part is not null and exists (
    select from sessions s
    where s.app_name = p_app and s.user_id = p_user and s.id = v_origin and s.forked_from_sequence >= v_event.sequence)
  loop
    select s.forked_from_id into v_origin from sessions s
    where s.app_name = p_app and s.user_id = p_user and s.id = v_origin;
  end loop;
  if v_origin <> p_session then
    raise exception 'Call % is not answered here: it was asked in session %.', left(p_call, 200), v_origin using errcode = 'AR410';
  end if;
  if not p_is_decision and v_event.is_from_runtime and v_event.is_long
     and v_event.part #>> '{functionCall,name}' <> 'adk_request_confirmation' and exists (
       select from events e
       cross join lateral jsonb_path_query_first(
         e.payload, '$.content.parts[*].functionResponse ? (@.id == $id).response', jsonb_build_object('id', p_call)) r(response)
       where e.app_name = p_app and e.user_id = p_user and e.session_id = p_session and e.sequence > v_event.sequence
         and e.author <> 'user' and e.is_from_runtime and r.response is not null
         -- Excludes the error responses that the runtime itself stores for tools that were stopped.
         and coalesce(r.response ->> 'error' not in ('interrupted', 'The call was interrupted before it answered.'), true)) then
    return;
  end if;
  raise exception 'No call % of this session waits for an answer.', left(p_call, 200) using errcode = 'AR410';
end $$;
comment on function assert_without_task is 'Refuses an answer to a call without a task in its session, unless no particular person has to answer the call.';

-- True if the task's rules name nobody who has to answer. Then anyone who has the task's public address may answer it.
create function has_no_rules(p_rules jsonb, p_assigned_users text[], p_assigned_groups text[])
returns boolean language sql immutable as $$
  select p_assigned_users = '{}' and p_assigned_groups = '{}' and coalesce((p_rules ->> 'approvals')::integer, 1) = 1
     and not coalesce(p_rules -> 'excludesRequester' = 'true', false)
$$;
comment on function has_no_rules is 'True if the task''s rules name nobody who has to answer.';

-- change_task: answers, rejects, settles, assigns, comments or postpones an open task, or creates its public address.
-- The row lock lets one of several concurrent answers win. If the rules require several approvals, an approval is only
-- counted until enough have come. Settling is refused for such a task, because it needs only one person.
-- p_by: the acting user; null for a caller who has only the public address. p_vouched: an operator's credential acts
-- for that user, who need not be assigned; a rule that excludes the requester still applies. Only an operator's
-- credential may assign people who could not answer before. p_version: compare-and-set on the task's version; null: any
-- version.
-- p_change: {"response", "via", "users", "groups", "text", "seconds", "tokenHash"}, depending on the action.
-- Errors: AR410: the task is not open, or has another version; AR403: other people must answer.
create function change_task(
  p_app text, p_user text, p_session text, p_id text, p_by text, p_groups text[], p_vouched boolean, p_version integer,
  p_action text, p_change jsonb) returns void
language plpgsql as $$
declare
  t record;
  v_now constant timestamptz := clock_timestamp();
  v_users constant text[] := array(select jsonb_array_elements_text(p_change -> 'users'));
  v_groups constant text[] := array(select jsonb_array_elements_text(p_change -> 'groups'));
  v_by constant text := coalesce(p_by, 'a system');
  v_entry constant jsonb := jsonb_build_object('by', v_by, 'at', extract(epoch from v_now));
begin
  select * into t from tasks k
  where k.app_name = p_app and k.user_id = p_user and k.session_id = p_session and k.id = p_id for update;
  if t.state <> 'open' then
    raise exception '%', answered_text(t.id, t.state, t.decided_by, t.decided_via, t.decide_time) using errcode = 'AR410';
  elsif t.version <> p_version then
    raise exception 'The task was changed meanwhile. Read it again.' using errcode = 'AR410';
  elsif p_action <> 'comment' and not (
      case when p_by is null then has_no_rules(t.rules, t.assigned_users, t.assigned_groups)
           when p_vouched then not (p_by = t.user_id and coalesce(t.rules -> 'excludesRequester' = 'true', false))
           else may_answer(t.user_id, t.rules, t.assigned_users, t.assigned_groups, p_by, p_groups) end) then
    raise exception 'Others have to answer task %.', t.id using errcode = 'AR403';
  end if;
  case p_action
    when 'answer' then
      if t.approvals @> jsonb_build_array(jsonb_build_object('by', v_by)) then
        raise exception '% has said yes. Another person has to.', v_by using errcode = 'AR410';
      end if;
      t.approvals := t.approvals || v_entry;
    when 'settle' then
      if (t.rules ->> 'approvals')::integer > 1 then
        raise exception 'Others have to answer task %.', t.id using errcode = 'AR403';
      end if;
    when 'assign' then
      if not p_vouched and not (v_users <@ (t.assigned_users || v_by) and v_groups <@ t.assigned_groups) then
        raise exception 'A user assigns task % to itself, or to those who may answer it by now.', t.id using errcode = 'AR403';
      end if;
      t.assigned_users := v_users;
      t.assigned_groups := v_groups;
      t.token_hash := null;
      t.token_expire_time := null;
    when 'comment' then
      if jsonb_array_length(t.comments) >= 50 then
        raise exception 'Task % has 50 comments.', t.id using errcode = 'AR410';
      end if;
      t.comments := t.comments || (v_entry || jsonb_build_object('text', p_change -> 'text'));
    when 'address' then
      if t.kind not in ('signal', 'call') or not has_no_rules(t.rules, t.assigned_users, t.assigned_groups) then
        raise exception 'Task % waits for a person, so it has no public address.', t.id using errcode = 'AR410';
      end if;
      t.token_hash := p_change ->> 'tokenHash';
      t.token_expire_time := v_now + (p_change ->> 'seconds')::integer * interval '1 second';
    when 'postpone' then
      t.expire_time := v_now + (p_change ->> 'seconds')::integer * interval '1 second';
      t.due_time := next_due(t.create_time, t.expire_time, t.rules, t.reminders);
    else null;
  end case;
  if p_action in ('reject', 'settle')
     or p_action = 'answer' and jsonb_array_length(t.approvals) >= coalesce((t.rules ->> 'approvals')::integer, 1) then
    t.state := 'answered';
    t.answer := p_change -> 'response';
    t.decided_by := v_by;
    t.decided_via := p_change ->> 'via';
    t.decide_time := v_now;
    t.due_time := v_now;
  end if;
  update tasks k set
    state = t.state, approvals = t.approvals, assigned_users = t.assigned_users, assigned_groups = t.assigned_groups,
    comments = t.comments, expire_time = t.expire_time, due_time = t.due_time, answer = t.answer,
    decided_by = t.decided_by, decided_via = t.decided_via, decide_time = t.decide_time, token_hash = t.token_hash,
    token_expire_time = t.token_expire_time, version = t.version + 1
  where k.app_name = p_app and k.user_id = p_user and k.session_id = p_session and k.id = p_id;
end $$;
comment on function change_task is 'Answers, rejects, settles, assigns, comments or postpones an open task, or creates its public address.';

-- wake_task: handles a due task. An open task is due for a reminder or at its deadline. An answered task is due to
-- queue its invocation, which any process then resumes with all answers. Idempotent: if several processes handle the
-- same task, one of them does the work.
--
--   1. Lock the task. Stop if another process has locked it or it is no longer due.
--   2. If the task is open: send a reminder; at the deadline assign other people (escalateTo) or, without such a rule,
--      store an answer in place of a person.
--   3. If the task is answered: lock the invocation, so that of concurrent answers the last sees all others. If its row
--      is locked, the task stays due. If other calls of the invocation are open, do nothing, because their last answer
--      reaches this step too. If the invocation still runs, try again in a second. Otherwise queue the invocation with
--      its original request.
--
-- Locks: tasks, then invocations without waiting, because a claim locks them in the opposite order.
-- woke: true if this call queued the invocation.
create function wake_task(p_app text, p_user text, p_session text, p_id text, out woke boolean) language plpgsql as $$
declare
  -- The token is in a variable, because a distributed database allows no volatile function in an update.
  v_token constant uuid := gen_random_uuid();
  t record;
  v_now constant timestamptz := clock_timestamp();
  v_status text;
  v_message jsonb;
begin
  woke := false;
  -- 1
  select * into t from tasks k
  where k.app_name = p_app and k.user_id = p_user and k.session_id = p_session and k.id = p_id and k.due_time <= v_now
  for update skip locked;
  if not found then return; end if;
  -- 2
  if t.state = 'open' then
    if t.expire_time is null or t.expire_time > v_now then
      t.reminders := t.reminders + (
        t.create_time + (t.rules #>> array['remindAfter', t.reminders::text])::float8 * interval '1 second' <= v_now
      )::integer;
    elsif t.rules ? 'escalateTo' then
      t.assigned_users := '{}';
      t.assigned_groups := array(select jsonb_array_elements_text(t.rules -> 'escalateTo'));
      t.token_hash := null;
      t.rules := t.rules - 'escalateTo';
      t.expire_time := v_now + (t.expire_time - t.create_time);
    else
      t.state := 'answered';
      t.answer := case when t.kind = 'budget' then '{"goesOn": true}'
                       when t.kind = 'sleep' then jsonb_build_object('woken', 'on time', 'at', v_now)
                       when t.rules ? 'defaultAnswer' then t.rules -> 'defaultAnswer'
                       when t.kind in ('confirmation', 'effect') then '{"confirmed": false}'
                       else jsonb_build_object('error', 'No answer came in time.', 'at', v_now) end;
    end if;
    update tasks k set
      reminders = t.reminders, assigned_users = t.assigned_users, assigned_groups = t.assigned_groups, rules = t.rules,
      token_hash = t.token_hash, expire_time = t.expire_time, due_time = case when t.state = 'open' then next_due(t.create_time, t.expire_time, t.rules, t.reminders) else v_now end,
      state = t.state, answer = t.answer, version = k.version + 1,
      decided_via = case when t.state = 'answered' then 'deadline' end,
      decide_time = case when t.state = 'answered' then v_now end
    where k.app_name = p_app and k.user_id = p_user and k.session_id = p_session and k.id = p_id;
    if t.state = 'open' then return; end if;
  end if;
  -- 3
  select i.status into v_status from invocations i
  where i.app_name = p_app and i.user_id = p_user and i.session_id = p_session and i.id = t.invocation_id
  for no key update skip locked;
  if not found then return; end if;
  if exists (select from tasks k
             where k.app_name = p_app and k.user_id = p_user and k.session_id = p_session
               and k.invocation_id = t.invocation_id and k.state = 'open') then
    update tasks k set due_time = null
    where k.app_name = p_app and k.user_id = p_user and k.session_id = p_session and k.id = p_id;
    return;
  end if;
  if v_status in ('queued', 'running') then
    update tasks k set due_time = v_now + interval '1 second'
    where k.app_name = p_app and k.user_id = p_user and k.session_id = p_session and k.id = p_id;
    return;
  end if;
  -- The message is computed before the update, because a distributed database allows only immutable functions in an
  -- update.
  select jsonb_build_object('content', jsonb_build_object('role', 'user', 'parts', jsonb_agg(
           jsonb_build_object('functionResponse', jsonb_build_object(
             'id', k.call_id, 'name', k.call_name, 'response', k.answer)) order by k.create_time, k.id))) into v_message
  from tasks k
  where k.app_name = p_app and k.user_id = p_user and k.session_id = p_session and k.invocation_id = t.invocation_id
    and k.state = 'answered';
  update tasks k set state = 'done', due_time = null
  where k.app_name = p_app and k.user_id = p_user and k.session_id = p_session and k.invocation_id = t.invocation_id
    and k.state = 'answered';
  update invocations i set
    status = 'queued', lease_token = v_token, lease_expire_time = v_now,
    -- An invocation that a budget stopped keeps its start time, because it resumes after its last complete step, as
    -- after a crash, or ends there.
    start_time = case when t.kind = 'budget' then i.start_time end,
    stop_requested_as = case when t.kind = 'budget' and not t.answer ? 'goesOn' then 'cancelled'
                             else i.stop_requested_as end,
    request = case when t.kind = 'budget' then i.request
                   else case when i.request is null or i.request ? 'endsBecause'
                             then '{"version": 1, "overrides": {}, "streaming": false}'
                             else i.request - 'began' - 'stateDelta' end
                        || v_message end
  where i.app_name = p_app and i.user_id = p_user and i.session_id = p_session and i.id = t.invocation_id
    and (t.kind <> 'budget' or v_status = 'paused');
  woke := true;
end $$;
comment on function wake_task is 'Handles a due task. Queues the task''s invocation if no other call of the invocation is open.';

-- keep_signal: stores a signal until an invocation waits for it. Does not store it if an invocation of the session
-- already waits for it, or if the session has the maximum number of stored signals. p_groups: groups of the sender;
-- null for an operator's credential.
-- Locks: sessions, so that pauses and other signals of the session are serialised.
-- outcome: absent (the session does not exist), waiting (an invocation waits for the signal), full (the maximum is
-- reached) or kept (stored).
create function keep_signal(
  p_app text, p_user text, p_session text, p_name text, p_payload jsonb, p_groups text[], p_max integer,
  out outcome text)
language plpgsql as $$
begin
  perform from sessions s where s.app_name = p_app and s.user_id = p_user and s.id = p_session for no key update;
  if not found then
    outcome := 'absent';
  elsif exists (select from tasks t where t.app_name = p_app and t.user_id = p_user and t.session_id = p_session
                  and t.signal_name = p_name and t.state = 'open') then
    outcome := 'waiting';
  elsif (select count(*) from signals s
         where s.app_name = p_app and s.user_id = p_user and s.session_id = p_session) >= p_max then
    outcome := 'full';
  else
    insert into signals (app_name, user_id, session_id, id, name, payload, sender_groups)
    values (p_app, p_user, p_session, gen_random_uuid(), p_name, p_payload, p_groups);
    outcome := 'kept';
  end if;
end $$;
comment on function keep_signal is 'Stores a signal until an invocation waits for it.';
--> statement-breakpoint
-- record_calls: writes started tool calls and their outcomes into the ledger (table tool_calls). Internal: called by
-- append_events, finish_invocation and keep_calls. A call that is in the ledger already is started again only by a
-- later attempt. A running tool may store an intermediate response, from which a later attempt resumes.
-- p_calls: [{"id", "tool", "effect", "operationId", "state", "attempt", "response"}]. response is null if the stored
-- event contains the response. Calls without a state are not written: keep_calls receives them to look up their rows.
-- Locks: the calls' rows of tool_calls, all in one session.
create function record_calls(p_app text, p_user text, p_session text, p_invocation text, p_calls jsonb) returns void
language plpgsql as $$
declare
  v_call jsonb;
begin
  for v_call in select given from jsonb_array_elements(p_calls) given where given ? 'state' loop
    insert into tool_calls as t
      (app_name, user_id, session_id, invocation_id, call_id, operation_id, tool, effect, state, attempt, response)
    values
      (p_app, p_user, p_session, p_invocation, v_call ->> 'id', (v_call ->> 'operationId')::uuid, v_call ->> 'tool',
       v_call ->> 'effect', v_call ->> 'state', (v_call ->> 'attempt')::smallint, v_call -> 'response')
    on conflict (app_name, user_id, session_id, invocation_id, call_id) do update set
      state = excluded.state, attempt = greatest(t.attempt, excluded.attempt), response = excluded.response,
      update_time = excluded.update_time
    where excluded.state <> 'started' or excluded.attempt > t.attempt or excluded.response is not null;
  end loop;
end $$;
comment on function record_calls is 'Writes started tool calls and their outcomes into the ledger (table tool_calls).';

-- keep_calls: writes calls into the ledger like record_calls, for calls whose event is already stored. Used before a
-- confirmed or repeated tool runs, and to store the response of one call while other calls of the same step still run.
-- Locks: sessions (shared, so that a take-over by another process comes either before or after), user_storage,
-- tool_calls. Errors: AR417.
-- Database time: 0.2 ms.
--
-- held: false if the lease was lost; then nothing is written. earlier: the rows that the calls had before, [{"id",
-- "state", "attempt", "response"}] as text.
create function keep_calls(
  p_app text, p_user text, p_session text, p_invocation text, p_token uuid, p_calls jsonb, p_max_user_bytes bigint,
  out held boolean, out earlier text)
language plpgsql as $$
begin
  perform from sessions s
  where s.app_name = p_app and s.user_id = p_user and s.id = p_session and s.lease_token = p_token
  for share;
  held := found;
  if not held then return; end if;
  -- The rows are locked, to wait for a transaction of a tool that may still commit its response (keep_answer).
  earlier := (
    select jsonb_agg(jsonb_build_object('id', k.call_id, 'state', k.state, 'attempt', k.attempt, 'response', k.response))
    from (
      select t.* from tool_calls t
      where t.app_name = p_app and t.user_id = p_user and t.session_id = p_session and t.invocation_id = p_invocation
        and t.call_id = any(array(select v_call ->> 'id' from jsonb_array_elements(p_calls) v_call))
      for update) k)::text;
  perform assert_user_storage(p_app, p_user, octet_length(p_calls::text), p_max_user_bytes, false);
  perform record_calls(p_app, p_user, p_session, p_invocation, p_calls);
end $$;
comment on function keep_calls is 'Writes tool calls whose event is already stored into the ledger, under the session''s lease.';

-- keep_answer: stores the response of a transactional tool within the tool's own transaction (keep_calls). SECURITY
-- DEFINER, because the role of transactional tools has no privileges on the runtime's tables. Only rows of the
-- transaction's user can be written, and only under the session's lease.
create function keep_answer(
  p_app text, p_user text, p_session text, p_invocation text, p_token uuid, p_calls jsonb, p_max_user_bytes bigint,
  out held boolean, out earlier text)
language plpgsql security definer set search_path from current as $$
begin
  select kept.held into held
  from keep_calls(p_app, p_user, p_session, p_invocation, p_token, p_calls, p_max_user_bytes) kept;
end $$;
comment on function keep_answer is 'Stores the response of a transactional tool within the tool''s own transaction.';
revoke execute on function keep_answer from public;
--> statement-breakpoint
-- usage_report: a page of the usage by invocations that were requested in a period, for an application or one user
-- (p_user). Rows are grouped by p_by: any of user, model, version (of the agent), day, hour (in UTC). Keyset
-- pagination: at most p_limit rows after the row p_after: [period, user, model, version].
--
-- A row with a model sums the model answers that are stored as events, at the prices of inspect.invocation_costs. The
-- row without a model counts the invocations, their duration and scores, and the model calls without a stored event:
-- calls of agents that are used as tools, and failed calls. So the totals equal inspect.usage for any grouping. The
-- score of a whole session counts for the session's last invocation.
-- Reads all invocations of the application or user in the period.
create function usage_report(
  p_app text, p_user text, p_from timestamptz, p_to timestamptz, p_by text[], p_after text[], p_limit integer,
  out rows json)
language plpgsql stable as $$
begin
  select coalesce(json_agg(json_strip_nulls(row_to_json(page))), '[]') into rows from (
    select line.period, line."userId", line.model, line.version, sum(line.invocations) as invocations, sum(line.failed) as failed,
      sum(line.calls) as "llmCalls", sum(line.prompt) as "promptTokens", sum(line.output) as "outputTokens",
      sum(line.cost) as cost, sum(line.seconds) as seconds, sum(line.scored) as scored, sum(line.passed) as passed,
      percentile_cont(0.95) within group (order by line.seconds::float8) filter (where line.invocations > 0) as "p95Seconds"
    from (
      select case when 'hour' = any(p_by) then to_char(i.create_time at time zone 'utc', 'YYYY-MM-DD"T"HH24":00:00Z"')
                  when 'day' = any(p_by) then to_char(i.create_time at time zone 'utc', 'YYYY-MM-DD') end as period,
        case when 'user' = any(p_by) then i.user_id end as "userId", case when 'model' = any(p_by) then each.model end as model,
        case when 'version' = any(p_by) then i.agent_version end as version,
        (each.calls is null)::int as invocations, (each.calls is null and i.status = 'failed')::int as failed,
        coalesce(each.calls, i.llm_calls - named.calls) as calls, coalesce(each.prompt, i.prompt_tokens - named.prompt) as prompt,
        coalesce(each.output, i.output_tokens - named.output) as output, each.cost,
        case when each.calls is null then coalesce(extract(epoch from i.end_time - i.start_time), 0) else 0 end as seconds,
        case when each.calls is null then scores.scored else 0 end as scored,
        case when each.calls is null then scores.passed else 0 end as passed
      from invocations i
      cross join lateral (
        select coalesce(jsonb_agg(m), '[]') as models, coalesce(sum(m.calls), 0) as calls, coalesce(sum(m.prompt), 0) as prompt,
               coalesce(sum(m.output), 0) as output
        from (
          select e.payload ->> 'modelVersion' as model, count(*) as calls, sum(used.prompt) as prompt,
            sum(used.output) as output,
            sum((used.prompt * price.prompt_price + used.output * price.output_price) / 1000000) as cost
          from events e
          cross join lateral (
            select coalesce((e.payload -> 'usageMetadata' ->> 'promptTokenCount')::numeric, 0) as prompt,
                   coalesce((e.payload -> 'usageMetadata' ->> 'candidatesTokenCount')::numeric, 0)
                     + coalesce((e.payload -> 'usageMetadata' ->> 'thoughtsTokenCount')::numeric, 0) as output) used
          left join lateral (
            select p.prompt_price, p.output_price from model_prices p
            where starts_with(e.payload ->> 'modelVersion', p.model) or p.model = '*'
            order by p.model = '*', length(p.model) desc limit 1) price on true
          where e.app_name = i.app_name and e.user_id = i.user_id and e.session_id = i.session_id
            and e.invocation_id = i.id and e.is_from_runtime and e.payload ? 'usageMetadata'
          group by 1) m) named
      cross join lateral (
        select count(*) as scored, count(*) filter (where r.result ->> 'finalStatus' = 'PASSED') as passed
        from eval_session_scores r
        where r.app_name = i.app_name and r.user_id = i.user_id and r.session_id = i.session_id
          and r.result ->> 'finalStatus' in ('PASSED', 'FAILED')
          and i.id = coalesce(r.invocation_id, (
            select e.invocation_id from events e
            where e.app_name = r.app_name and e.user_id = r.user_id and e.session_id = r.session_id
              and e.sequence = r.last_sequence))) scores
      -- The row without a model comes from the empty object. No union, because a distributed database cannot plan a
      -- union here.
      cross join lateral jsonb_to_recordset('[{}]' || named.models)
        each(model text, calls numeric, prompt numeric, output numeric, cost numeric)
      where i.app_name = p_app and (p_user is null or i.user_id = p_user) and i.create_time >= p_from and i.create_time < p_to
    ) line
    where p_after is null
      or (coalesce(line.period, ''), coalesce(line."userId", ''), coalesce(line.model, '') collate "C",
          coalesce(line.version, '')) > (p_after[1], p_after[2], p_after[3], p_after[4])
    group by line.period, line."userId", line.model, line.version
    order by coalesce(line.period, ''), coalesce(line."userId", ''), coalesce(line.model, '') collate "C", coalesce(line.version, '')
    limit p_limit) page;
end $$;
comment on function usage_report is 'Returns a page of the usage by invocations that were requested in a period, grouped by user, model, version, day or hour.';
