-- Distributes a migrated database over the nodes of a Citus cluster. Tables of conversations are distributed by user and
-- colocated; tables shared by all users become reference tables; all others stay on the coordinator, plain tables that
-- Citus does not plan, because it refuses statements such as the claim of jobs. Idempotent: if
-- Citus is installed, the migrator repeats it in every transaction that changes the schema, because a new user table is
-- local at first, and deleting a session would leave its rows behind. Existing rows are copied.
do $$
declare
  -- First the tables that other tables' triggers read, even while rows are copied; then in foreign-key order.
  of_users constant text[] := array['user_erasures', 'user_storage', 'sessions', 'events', 'event_deltas', 'user_states',
                                    'invocations', 'tool_calls', 'tasks', 'signals', 'artifacts', 'artifact_versions',
                                    'memories',
                                    'idempotency_keys', 'spans', 'budget_uses', 'budget_reservations', 'budget_alerts',
                                    'eval_session_scores', 'eval_verdicts', 'session_verdicts'];
  copied constant text[] := array['agent_prompts', 'app_states', 'budgets', 'legal_holds', 'model_prices'];
  name text;
  policy record;
  called regprocedure;
begin
  -- Functions called by triggers and user statements, before any trigger: Citus propagates only what is created later.
  for called in
    select p.oid from pg_proc p
    where p.pronamespace = (select oid from pg_namespace where nspname = current_schema())
      and 'function ' || p.proname in (select made.name from agent_runtime_repeatables made)
      and not exists (select from pg_catalog.pg_dist_object o where o.classid = 'pg_proc'::regclass and o.objid = p.oid)
    -- In order of creation, because functions called by a SQL function must exist before it.
    order by p.oid
  loop
    perform create_distributed_function(called);
  end loop;
  -- One connection per node, so that several tables can be distributed in one transaction.
  set local citus.multi_shard_modify_mode = 'sequential';
  -- Row-level security reads connection settings, which other nodes lack, so that no rows would be visible, and no webhook
  -- to the call of a node; and Citus refuses subqueries in policies. So a database that was filled before loses them on all
  -- of our tables, as the migrator makes none on a cluster.
  for policy in
    select polname, polrelid::regclass as owner from pg_policy join pg_class on pg_class.oid = polrelid
    where relnamespace = (select oid from pg_namespace where nspname = current_schema()) and polname = 'of_user'
  loop
    execute format('drop policy %I on %s', policy.polname, policy.owner);
    execute format('alter table %s disable row level security, no force row level security', policy.owner);
  end loop;
  -- Citus executes the parts of a multi-node statement one by one, and inserts the version last.
  alter table eval_cases alter constraint eval_cases_version_fkey deferrable initially deferred;
  foreach name in array copied loop
    continue when exists (select from pg_dist_partition where logicalrelid = name::regclass);
    perform create_reference_table(name::regclass);
  end loop;
  -- Copied rows are counted again on their new node.
  if not exists (select from pg_dist_partition where logicalrelid = 'sessions'::regclass) then
    delete from user_storage;
  end if;
  foreach name in array of_users loop
    continue when exists (select from pg_dist_partition where logicalrelid = name::regclass);
    perform create_distributed_table(
      name::regclass, 'user_id', colocate_with => case name when of_users[1] then 'none' else of_users[1] end);
  end loop;
end $$;

do $$
declare
  called regprocedure;
begin
  -- Whole calls are routed to the user's node, where they are one statement and commit in one phase.
  for called in
    select p.oid from pg_proc p
    where p.pronamespace = (select oid from pg_namespace where nspname = current_schema())
      and p.proname in ('append_deltas', 'append_events', 'change_task', 'claim_session', 'create_session', 'enqueue_invocation', 'finish_invocation',
                        'keep_calls', 'keep_signal', 'renew_reservation', 'request_stop', 'reserve_budget', 'spend_budget', 'wake_task')
      and not exists (select from pg_catalog.pg_dist_object o
                      where o.classid = 'pg_proc'::regclass and o.objid = p.oid and o.distribution_argument_index is not null)
  loop
    perform create_distributed_function(called, distribution_arg_name => 'p_user', colocate_with => 'sessions');
  end loop;
  -- Allowed inside distributed statements, because they only read.
  alter function budget_uses_of_app(text, date) set citus.allow_nested_distributed_execution = on;
  alter function assert_user_storage set citus.allow_nested_distributed_execution = on;
  alter function uses_cost set citus.allow_nested_distributed_execution = on;
  alter function budgets_for(text, text) set citus.allow_nested_distributed_execution = on;
  -- The claim of jobs, which calls it, wants generic plans, and Citus makes none for a user that is computed.
  alter function evaluation_work set plan_cache_mode = force_custom_plan;
end $$;

-- A node cannot see the coordinator's jobs and webhooks. What it does to them it writes into `coordinator_calls`, in the
-- transaction of its own: a trigger carries the call out on the coordinator, and keeps no row. The functions that nodes
-- call have their own texts there under another name (`…_here`).
create table if not exists coordinator_calls (name text not null, argument jsonb not null);
do $$
declare
  name text;
  definition text;
begin
  foreach name in array array['begin_step', 'continue_job', 'insert_webhook_delivery'] loop
    definition := pg_get_functiondef(name::regproc);
    continue when definition ~ 'coordinator_calls';
    definition := regexp_replace(definition, '(FUNCTION .*\m' || name || ')\(', '\1_here(');
    -- A transaction of several nodes may not notify: who works on jobs finds this one at its next look.
    execute regexp_replace(definition, 'perform pg_notify\([^;]*\)', 'null', 'g');
  end loop;
end $$;
create or replace function carry_out_call() returns trigger language plpgsql as $$
declare
  a constant jsonb := new.argument;
begin
  case new.name
    when 'continue_job' then
      perform continue_job_here(jsonb_populate_record(null::invocations, a));
    when 'begin_step' then
      if not begin_step_here(a ->> 0, a ->> 1, a ->> 2, a ->> 3, (a ->> 4)::uuid) then
        raise exception 'the job was claimed by another process' using errcode = 'AR419';  -- as claim_session does
      end if;
    when 'insert_webhook_delivery' then
      perform insert_webhook_delivery_here(a ->> 0, a ->> 1, a ->> 2, a ->> 3, a -> 4);
  end case;
  return null;
end $$;
comment on function carry_out_call is 'Trigger function: carries out on the coordinator what a node calls.';
create or replace function begin_step(p_kind text, p_app text, p_user text, p_id text, p_token uuid) returns boolean
language plpgsql set citus.allow_nested_distributed_execution = on as $$
begin
  insert into coordinator_calls values ('begin_step', jsonb_build_array(p_kind, p_app, p_user, p_id, p_token));
  return true;
end $$;
create or replace function continue_job(ended anyelement) returns void
language plpgsql set citus.allow_nested_distributed_execution = on as $$
begin
  insert into coordinator_calls values ('continue_job', to_jsonb(ended) - 'tapes');
end $$;
do $$
begin
  if exists (select from pg_dist_partition where logicalrelid = 'coordinator_calls'::regclass) then return; end if;
  comment on table coordinator_calls is 'What other nodes of a cluster call on the coordinator. Has no rows.';
  create trigger coordinator_calls_made before insert on coordinator_calls for each row execute function carry_out_call();
  perform citus_add_local_table_to_metadata('coordinator_calls');
end $$;

create or replace function insert_webhook_delivery(app text, owner text, address text, type text, data jsonb) returns void
language plpgsql set citus.allow_nested_distributed_execution = on as $$
begin
  insert into coordinator_calls values
    ('insert_webhook_delivery', jsonb_build_array(app, owner, address, type, data));
end $$;

do $$
declare
  called regprocedure;
begin
  -- On other nodes the search_path lacks a custom schema.
  for called in
    select p.oid from pg_proc p
    where p.pronamespace = (select oid from pg_namespace where nspname = current_schema()) and current_schema() <> 'public'
      and coalesce(array_to_string(p.proconfig, ' '), '') not like '%search_path=%'
      and ('function ' || p.proname in (select name from agent_runtime_repeatables)
           or p.proname in ('carry_out_call', 'begin_step_here', 'continue_job_here', 'insert_webhook_delivery_here'))
  loop
    execute format('alter function %s set search_path = %I', called, current_schema());
  end loop;
end $$;
