-- over_budget: returns an exhausted budget of the user as JSON; null if none is exhausted. Of several exhausted
-- budgets, returns the one whose period ends last. p_tokens and p_cost are the maximum use of a model call that is
-- about to start: then a budget counts as exhausted if less than that is left. The number of invocations is not checked
-- then, because the invocation has begun. A user without a budget costs one index lookup, however many budgets other
-- users and score rules have.
create or replace function over_budget(p_app text, p_user text, p_tokens bigint default null, p_cost numeric default null) returns json
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
create or replace function budgets_for(p_app text, p_user text)
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
    -- By the key, because an application may have a budget for each of many users.
    where b.app_name = p_app and b.user_id in ('', p_user)
      and (b.applies_to = 'app' or b.applies_to = 'user' and b.user_id = p_user
           or b.applies_to = 'users' and p_user >= ' ' and not exists (
             select from budgets mine
             where mine.app_name = p_app and mine.applies_to = 'user' and mine.user_id = p_user
               and mine.period = b.period));
end $$;
comment on function budgets_for is 'Returns the budgets that apply to a user, with what was used and reserved in the current period.';

-- lock_budgets: serialises charges to budgets until the transaction ends: of the whole application if the application
-- has a budget, otherwise of the user.
create or replace function lock_budgets(p_app text, p_user text) returns void language plpgsql as $$
begin
  perform pg_advisory_xact_lock(budgets_lock(p_app, p_user));
end $$;
comment on function lock_budgets is 'Serialises charges to a user''s budgets until the transaction ends.';

create or replace function budgets_lock(p_app text, p_user text) returns bigint language plpgsql stable as $$
begin
  return hashtextextended(p_app || E'\x01' || case when exists (
    select from budgets b where b.app_name = p_app and b.applies_to = 'app') then '' else p_user end, 7240032);
end $$;
comment on function budgets_lock is 'The advisory lock of a user''s budgets.';

-- invocations_left: how many more invocations the budgets of a user allow, for a statement that has locked a session and
-- so must not wait for the lock of the budgets, which a claim takes before its session. 0 while another transaction has
-- it: the caller tries again later. Null without a limit.
create or replace function invocations_left(p_app text, p_user text) returns bigint language plpgsql as $$
begin
  if not exists (select from budgets b where b.app_name = p_app and b.user_id in ('', p_user)) then return null; end if;
  if exists (select from budgets b where b.app_name = p_app and b.max_invocations is not null)
     and not pg_try_advisory_xact_lock(budgets_lock(p_app, p_user)) then
    return 0;
  end if;
  if over_budget(p_app, p_user) is not null then return 0; end if;
  return (select min(b.max_invocations - b.invocations) from budgets_for(p_app, p_user) b);
end $$;
comment on function invocations_left is 'How many more invocations the budgets of a user allow; null without a limit.';

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
create or replace function reserve_budget(
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
create or replace function renew_reservation(p_app text, p_user text, p_id uuid, p_duration_ms integer) returns void
language plpgsql security definer set search_path from current as $$
begin
  perform assert_own_user(p_user);
  update budget_reservations r set expire_time = statement_timestamp() + p_duration_ms * interval '1 millisecond'
  where r.app_name = p_app and r.user_id = p_user and r.id = p_id;
end $$;
revoke execute on function reserve_budget, renew_reservation from public;
comment on function renew_reservation is 'Extends the reservation of a running model call.';

-- count_use: adds usage to the totals of a user and of all users, on the day of the statement. Each connection writes
-- one of 32 shards of the user's total, so that connections do not wait for each other's commit: with 16 concurrent
-- invocations of a user and 8 random shards a claim took 2.7 ms, now it takes 0.65 ms.
-- p_models: [{"model", "answeredAs", "promptTokens", "outputTokens", "reservation"}], null for no model usage. A model
-- without a price is free. The reservations of the counted calls are released in the same transaction.
-- Prices follow the same rule as inspect.invocation_costs and uses_cost.
-- SECURITY DEFINER, so that statements of one user cannot change other rows of budget_uses.
create or replace function count_use(p_app text, p_user text, p_invocations bigint, p_models jsonb)
returns void language plpgsql security definer set search_path from current as $$
declare
  v_today date := (statement_timestamp() at time zone 'utc')::date;
  v_prompt bigint;
  v_output bigint;
  v_cost numeric := 0;
  v_is_priced boolean;
  v_is_limited boolean;
begin
  perform assert_own_user(p_user);
  select exists (select from model_prices), exists (select from budgets b where b.app_name = p_app and b.user_id in ('', p_user)),
         coalesce(sum((used ->> 'promptTokens')::bigint), 0), coalesce(sum((used ->> 'outputTokens')::bigint), 0)
  into v_is_priced, v_is_limited, v_prompt, v_output from jsonb_array_elements(p_models) used;
  if v_is_priced then
    select coalesce(sum((used."promptTokens" * price.prompt + used."outputTokens" * price.output) / 1000000), 0) into v_cost
    from jsonb_to_recordset(p_models) as used(model text, "answeredAs" text, "promptTokens" bigint, "outputTokens" bigint)
    cross join lateral (
      select m.prompt_price as prompt, m.output_price as output from model_prices m
      where starts_with(used."answeredAs", m.model) or starts_with(used.model, m.model) or m.model = '*'
      order by m.model = '*', not starts_with(used."answeredAs", m.model), length(m.model) desc limit 1) price;
  end if;
  insert into budget_uses as u (app_name, user_id, day, shard, invocations, prompt_tokens, output_tokens, cost)
  values (p_app, p_user, v_today, pg_backend_pid() % 32, p_invocations, v_prompt, v_output, v_cost)
  on conflict (app_name, user_id, day, shard) do update set
    invocations = u.invocations + excluded.invocations, prompt_tokens = u.prompt_tokens + excluded.prompt_tokens,
    output_tokens = u.output_tokens + excluded.output_tokens, cost = u.cost + excluded.cost;
  if not v_is_limited then return; end if;
  perform count_use_of_app(p_app, v_today, p_invocations, v_prompt + v_output, v_cost);
  if p_models is not null then
    delete from budget_reservations r where r.app_name = p_app and r.user_id = p_user and r.id in (
      select (used ->> 'reservation')::uuid from jsonb_array_elements(p_models) used);
  end if;
  perform alert_budgets(p_app, p_user);
end $$;
revoke execute on function count_use from public;
comment on function count_use is 'Adds invocations, tokens and their cost to a user''s usage of today.';

-- count_running: counts what goes on and was not counted, because its claim found no budget: the invocations of a user, or
-- with an empty p_user those of all. Called after a budget is stored, so that its maximum holds for what comes then. A
-- claim at the same moment that does not see the budget yet is counted at its end.
create or replace function count_running(p_app text, p_user text) returns void language plpgsql as $$
declare
  -- In a variable, as in finish_invocation.
  v_now constant timestamptz := statement_timestamp();
  v_counted record;
begin
  for v_counted in
    with counted as (
      update invocations i set count_time = v_now
      where i.app_name = p_app and (p_user = '' or i.user_id = p_user) and i.count_time is null
        and (i.status = 'running' or i.status = 'queued' and i.request is not null and i.start_time is not null)
      returning i.user_id)
    select c.user_id, count(*) as invocations from counted c group by c.user_id order by c.user_id
  loop
    perform count_use(p_app, v_counted.user_id, v_counted.invocations, null);
  end loop;
end $$;
comment on function count_running is 'Counts the invocations that go on and began before there was a budget.';

-- spend_budget: charges model usage that is not part of stored events. With p_id, charges it only once: the id is kept
-- for a day in idempotency_keys. over: a budget that is exhausted afterwards. Locks: idempotency_keys, then those of
-- count_use.
create or replace function spend_budget(p_app text, p_user text, p_models jsonb, p_id text, out over json) language plpgsql as $$
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
