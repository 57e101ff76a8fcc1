-- Distributes a migrated database over the nodes of a Citus cluster. Tables of conversations are distributed by user and
-- colocated; tables shared by all users become reference tables; all others stay on the coordinator. Idempotent: if
-- Citus is installed, the migrator repeats it in every transaction that changes the schema, because a new user table is
-- local at first, and deleting a session would leave its rows behind. Existing rows are copied.
do $$
declare
  -- First the tables that other tables' triggers read, even while rows are copied; then in foreign-key order.
  of_users constant text[] := array['user_erasures', 'user_storage', 'sessions', 'events', 'event_deltas', 'user_states',
                                    'invocations', 'invocation_tapes', 'tool_calls', 'tasks', 'signals', 'artifacts', 'artifact_versions',
                                    'memories',
                                    'idempotency_keys', 'spans', 'budget_uses', 'budget_reservations', 'budget_alerts',
                                    'eval_session_scores', 'eval_verdicts', 'session_verdicts'];
  -- On the coordinator but writable from all nodes: an invocation ends and adds jobs, and its end counts for its cronjob.
  written constant text[] := array['cronjobs', 'job_lanes', 'jobs', 'skipped_runs'];
  copied constant text[] := array['agent_prompts', 'app_states', 'budgets', 'legal_holds', 'model_prices'];
  name text;
  policy text;
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
  -- Row-level security reads connection settings, which other nodes lack, so that no rows would be visible; and Citus
  -- refuses subqueries in policies. A database of one server has them; the migrator makes none on a cluster.
  foreach name in array of_users || written || copied loop
    for policy in select polname from pg_policy where polrelid = name::regclass loop
      execute format('drop policy %I on %I', policy, name);
    end loop;
    execute format('alter table %I disable row level security, no force row level security', name);
  end loop;
  -- Citus executes the parts of a multi-node statement one by one, and inserts the version last.
  alter table eval_cases alter constraint eval_cases_version_fkey deferrable initially deferred;
  foreach name in array copied loop
    continue when exists (select from pg_dist_partition where logicalrelid = name::regclass);
    perform create_reference_table(name::regclass);
  end loop;
  foreach name in array written loop
    continue when exists (select from pg_dist_partition where logicalrelid = name::regclass);
    perform citus_add_local_table_to_metadata(name::regclass, cascade_via_foreign_keys => true);
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
                        'keep_calls', 'keep_signal', 'renew_reservation', 'reserve_budget', 'spend_budget', 'wake_task')
      and not exists (select from pg_catalog.pg_dist_object o
                      where o.classid = 'pg_proc'::regclass and o.objid = p.oid and o.distribution_argument_index is not null)
  loop
    perform create_distributed_function(called, distribution_arg_name => 'p_user', colocate_with => 'sessions');
  end loop;
  -- On other nodes the search_path lacks a custom schema.
  for called in
    select p.oid from pg_proc p
    where p.pronamespace = (select oid from pg_namespace where nspname = current_schema()) and current_schema() <> 'public'
      and coalesce(array_to_string(p.proconfig, ' '), '') not like '%search_path=%'
      and 'function ' || p.proname in (select name from agent_runtime_repeatables)
  loop
    execute format('alter function %s set search_path = %I', called, current_schema());
  end loop;
  -- Allowed inside distributed statements, because they only read.
  alter function budget_uses_of_app(text, date) set citus.allow_nested_distributed_execution = on;
  alter function assert_user_storage set citus.allow_nested_distributed_execution = on;
  alter function uses_cost set citus.allow_nested_distributed_execution = on;
  alter function budgets_for(text, text) set citus.allow_nested_distributed_execution = on;
end $$;
