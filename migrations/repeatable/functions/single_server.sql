-- What one server does and a cluster cannot: totals over all users, alerts of budgets in the transaction of their use,
-- jobs of scores, lists of users by recursion. On Citus migrations/citus/functions/single_server.sql stands in for this file.

-- alert_budgets: notifies a budget's webhook when 50, 80 or 100 % of the budget are used, once per period and level. If
-- one call passes several levels, only the highest is reported. SECURITY DEFINER, because the webhook belongs to
-- another user.
create or replace function alert_budgets(p_app text, p_user text) returns void
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
-- distributed database has no rows of totals and sums over its nodes instead.
create or replace function budget_uses_of_app(
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
create or replace function count_use_of_app(p_app text, p_today date, p_invocations bigint, p_tokens bigint, p_cost numeric)
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
create or replace function sum_up_use_of_app() returns trigger language plpgsql as $$
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

-- add_score_jobs: the statement that ends an invocation adds the jobs of its scores, each in the lane of its rule. A
-- session that continues is due later, and a running scorer loses its job. Without rules the cost is one look at an
-- empty table.
create or replace function add_score_jobs(ended anyelement) returns void language plpgsql as $$
begin
  if not exists (select from score_rules r where r.app_name = ended.app_name) then return; end if;
  if exists (select from sessions s where s.app_name = ended.app_name and s.user_id = ended.user_id and s.id = ended.session_id
             and s.parent_session_id is not null) then return; end if;
  perform move_job('score', ended.app_name, ended.user_id, json_build_array(rule, ended.session_id, invocation)::text,
                   ended.app_name || ' ' || rule, clock_timestamp() + quiet)
  -- In the order of lanes, as in insert_webhook_delivery.
  from (
    select r.id as rule, case when r.quiet_minutes is null then ended.id else '' end as invocation,
           coalesce(r.quiet_minutes, 0) * interval '1 minute' as quiet
    from score_rules r
    where r.app_name = ended.app_name
      and is_sampled(r.id, case when r.quiet_minutes is null then ended.id else ended.session_id end, r.share)
    order by r.id) due;
end $$;
comment on function add_score_jobs is 'Adds the jobs of an ended invocation''s scores, by the application''s rules.';

-- list_user_apps: applications in whose tables a user has rows, repeatedly if in several tables. Index lookups only: the
-- keys of these tables begin with application and user, and there are few applications.
create or replace function list_user_apps(p_tables text[], p_user text) returns setof text language plpgsql stable as $$
declare
  v_table text;
  v_app text;
  v_has boolean;
begin
  foreach v_table in array p_tables loop
    v_app := '';  -- no application has an empty name
    loop
      execute format('select min(app_name) from %I where app_name > $1', v_table) into v_app using v_app;
      exit when v_app is null;
      execute format('select exists (select from %I where app_name = $1 and user_id = $2)', v_table) into v_has
      using v_app, p_user;
      if v_has then return next v_app; end if;
    end loop;
  end loop;
end $$;
comment on function list_user_apps is 'Returns the applications in whose tables a user has rows.';

-- list_app_users: users with rows in an application's tables, after p_after, by id. An index lookup per table and user,
-- however many rows a user has.
create or replace function list_app_users(p_tables text[], p_app text, p_after text, p_limit integer) returns setof text
language plpgsql stable as $$
begin
  return query execute format(
    $query$
      with recursive users(id, place) as (
        select $2 collate "C", 0
        union all
        select least(%s), users.place + 1 from users where users.id is not null and users.place < $3)
      select id from users where place > 0 and id is not null
    $query$, (
      select string_agg(format('(select min(user_id) from %I where app_name = $1 and user_id > users.id)', name), ', ')
      from unnest(p_tables) name))
  using p_app, p_after, p_limit;
end $$;
comment on function list_app_users is 'Returns the users with rows in an application''s tables, by id.';
