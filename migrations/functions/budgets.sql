-- over_budget: the budget with nothing left, as JSON; null for none. Of several the one that opens last.
-- Called by what begins an invocation or stores what a model used. An application without a budget, as most are, pays
-- for one look at an index. A budget is that of the whole application, of the user, or of each user that has
-- none of its own.
create function over_budget(p_app text, p_user text) returns json language plpgsql as $$
declare
  v_today date := (statement_timestamp() at time zone 'utc')::date;
  v_month date := date_trunc('month', v_today::timestamp);
begin
  if not exists (select from budgets b where b.app_name = p_app) then return null; end if;
  return (
    select json_build_object('appliesTo', spent.applies_to, 'period', spent.period, 'what', spent.what,
      'seconds', ceil(extract(epoch from spent.opens - clock_timestamp())),
      'opens', to_char(spent.opens at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'))
    from (
      select b.applies_to, b.period,
        case when used.invocations >= b.max_invocations then 'invocations'
             when used.tokens >= b.max_tokens then 'tokens'
             when used.cost >= b.max_cost then 'cost' end as what,
        case b.period when 'day' then v_today + interval '1 day' else v_month + interval '1 month' end
          at time zone 'utc' as opens
      from budgets b cross join lateral (
        -- Each by itself: with both conditions in one, a budget of users read what all users of all days had used.
        select coalesce(sum(u.invocations), 0) as invocations,
               coalesce(sum(u.prompt_tokens + u.output_tokens), 0) as tokens, coalesce(sum(u.cost), 0) as cost
        from budget_uses u
        where u.app_name = p_app and u.user_id = p_user
          and u.day >= case b.period when 'day' then v_today else v_month end
        having b.applies_to <> 'app'
        union all
        select * from budget_uses_of_app(p_app, case b.period when 'day' then v_today else v_month end)
        where b.applies_to = 'app') used
      where b.app_name = p_app
        and (b.applies_to = 'app' or b.applies_to = 'user' and b.user_id = p_user
             or b.applies_to = 'users' and not exists (
               select from budgets mine
               where mine.app_name = p_app and mine.applies_to = 'user' and mine.user_id = p_user
                 and mine.period = b.period))) spent
    where spent.what is not null order by spent.opens desc limit 1);
end $$;
comment on function over_budget is 'The budget that has nothing left for a user, as JSON; null for none.';

-- budget_uses_of_app: what all users of an application have used since today or the first of this month. A cluster, which
-- has no row for all users, asks all of its nodes for it (citus.sql).
create function budget_uses_of_app(p_app text, p_since date, out invocations numeric, out tokens numeric, out cost numeric)
language plpgsql stable as $$
begin
  select coalesce(sum(t.invocations), 0), coalesce(sum(t.tokens), 0), coalesce(sum(t.cost), 0)
  into budget_uses_of_app.invocations, budget_uses_of_app.tokens, budget_uses_of_app.cost
  from budget_totals t where t.app_name = p_app and t.since = p_since;
end $$;
comment on function budget_uses_of_app is 'What all users of an application have used since today or the first of this month: invocations, tokens, cost.';

-- count_use_of_app: adds to the totals of today and of this month, which on its first day are one; only where the
-- application as a whole has a budget, since the two rows are as dear as all else that an invocation counts.
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
comment on function count_use_of_app is 'Adds to what all users of an application have used today and this month.';

-- sum_up_use_of_app: for a trigger: an application gets a budget. Its totals become what its users have used since the
-- first of this month, by a row beside those of connections, shard -1. Uses whose statement did not see the budget yet
-- are missed.
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
comment on function sum_up_use_of_app is 'For a trigger: an application gets a budget, and its totals become what its users have used.';

-- count_use: adds to what a user and all users have used, by the day of the statement. A connection counts in one of 32 rows of
-- the user, so that it does not wait for the commit of another: with 16 invocations of a user in flight and 8 rows by
-- chance, a claim took 2.7 ms, now 0.65.
-- p_models: [{"model", "answeredAs", "promptTokens", "outputTokens"}], null for none; a model without a price is free.
-- The rule for the price is that of inspect.invocation_costs and of `priceOf` in evaluation.
-- It runs as the owner of the tables: statements for one user change no other row of budget_uses.
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
  perform count_use_of_app(p_app, v_today, p_invocations, v_prompt + v_output, v_cost);
end $$;
revoke execute on function count_use from public;
comment on function count_use is 'Adds to what a user has used today: invocations, and tokens with their cost.';

-- spend_budget: counts what was used outside of an invocation that is stored. over: the budget with nothing left after it.
create function spend_budget(p_app text, p_user text, p_models jsonb, out over json) language plpgsql as $$
begin
  if p_models is not null then perform count_use(p_app, p_user, 0, p_models); end if;
  over := over_budget(p_app, p_user);
end $$;
comment on function spend_budget is 'Counts what was used outside of an invocation, and returns the budget that has nothing left.';
