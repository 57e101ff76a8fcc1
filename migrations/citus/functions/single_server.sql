-- On a cluster (Citus) this file stands in for migrations/repeatable/functions/single_server.sql: the same functions.

-- No alerts: the coordinator would have to note them in a table of users while a node calls it, and Citus 13.2.2 then
-- crashes at the commit.
create or replace function alert_budgets(p_app text, p_user text) returns void language sql as '';
revoke execute on function alert_budgets from public;
comment on function alert_budgets is 'Does nothing on a cluster.';
-- No scores by rules, which are on the coordinator and cannot be created there.
create or replace function add_score_jobs(ended anyelement) returns void language sql as '';
comment on function add_score_jobs is 'Does nothing on a cluster.';

-- Totals of an application cannot live on one node; they are summed when a budget needs them. Custom plan: a generic
-- one expects a third of all rows for any day and scans the whole table.
create or replace function count_use_of_app(p_app text, p_today date, p_invocations bigint, p_tokens bigint, p_cost numeric)
returns void language sql as '';
comment on function count_use_of_app is 'Does nothing on a cluster.';
create or replace function sum_up_use_of_app() returns trigger language plpgsql as 'begin return null; end';
comment on function sum_up_use_of_app is 'Does nothing on a cluster.';
create or replace function budget_uses_of_app(
  p_app text, p_since date,
  out invocations numeric, out tokens numeric, out cost numeric, out reserved_tokens numeric, out reserved_cost numeric)
language plpgsql stable set plan_cache_mode = 'force_custom_plan' as $$
begin
  select coalesce(sum(u.invocations), 0), coalesce(sum(u.prompt_tokens + u.output_tokens), 0), coalesce(sum(u.cost), 0)
  into budget_uses_of_app.invocations, budget_uses_of_app.tokens, budget_uses_of_app.cost
  from budget_uses u where u.app_name = p_app and u.day >= p_since;
  select coalesce(sum(r.tokens), 0), coalesce(sum(r.cost), 0)
  into budget_uses_of_app.reserved_tokens, budget_uses_of_app.reserved_cost
  from budget_reservations r where r.app_name = p_app and r.expire_time > statement_timestamp();
end $$;
comment on function budget_uses_of_app is 'Returns the usage of all users of an application since today or the first of this month, and the current reservations.';

-- list_user_apps, list_app_users: with `distinct`, because the single-server versions look up one value after the other,
-- and each lookup would ask all nodes.
create or replace function list_user_apps(p_tables text[], p_user text) returns setof text language plpgsql stable as $$
declare
  v_table text;
begin
  foreach v_table in array p_tables loop
    return query execute format('select distinct app_name from %I where user_id = $1', v_table) using p_user;
  end loop;
end $$;
comment on function list_user_apps is 'Returns the applications in whose tables a user has rows.';
create or replace function list_app_users(p_tables text[], p_app text, p_after text, p_limit integer) returns setof text
language plpgsql stable as $$
begin
  return query execute format('select id from (%s) users order by id limit $3', (
    select string_agg(
      format('(select distinct user_id as id from %I where app_name = $1 and user_id > $2 order by 1 limit $3)', name), ' union ')
    from unnest(p_tables) name))
  using p_app, p_after, p_limit;
end $$;
comment on function list_app_users is 'Returns the users with rows in an application''s tables, by id.';
