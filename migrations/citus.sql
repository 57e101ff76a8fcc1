-- Spreads a migrated database over the nodes of a cluster (Citus): what a conversation is made of by user, side by
-- side; what all users share and most statements look at on every node; all other tables stay on the coordinator. Safe
-- to repeat; the migrator repeats it after every migration where it finds the extension, since a new table of users is local at
-- first, and the deletion of a session would leave its rows. Rows that are there already are copied.
do $$
declare
  -- First what the triggers of the others look at, while rows are copied too; then in the order of foreign keys.
  of_users constant text[] := array['user_erasures', 'user_storage', 'sessions', 'events', 'event_deltas', 'user_states',
                                    'invocations', 'invocation_tapes', 'tool_calls', 'tasks', 'signals', 'artifacts', 'artifact_versions',
                                    'memories',
                                    'idempotency_keys', 'spans', 'budget_uses', 'budget_reservations', 'budget_alerts',
                                    'eval_session_scores', 'eval_verdicts', 'session_verdicts'];
  -- On the coordinator, for other nodes to write too: the end of an invocation notes there that it may be remembered.
  written constant text[] := array['memory_jobs'];
  copied constant text[] := array['agent_prompts', 'app_states', 'budgets', 'legal_holds', 'model_prices'];
  name text;
  called regprocedure;
begin
  -- What triggers and statements of users call, before a trigger is there: the extension brings what is made after it.
  for called in
    select p.oid from pg_proc p
    where p.pronamespace = current_schema()::regnamespace
      and not exists (select from pg_depend d where d.classid = 'pg_proc'::regclass and d.objid = p.oid and d.deptype = 'e')
      and not exists (select from pg_catalog.pg_dist_object o where o.classid = 'pg_proc'::regclass and o.objid = p.oid)
    -- As they were made: what a function of SQL calls must be there before it.
    order by p.oid
  loop
    perform create_distributed_function(called);
  end loop;
  -- The totals of an application would be of one node: there they are added up when a budget asks for them. Planned for
  -- the values: a plan for any day expects a third of all rows, and reads the whole table for one day.
  create or replace function count_use_of_app(p_app text, p_today date, p_invocations bigint, p_tokens bigint, p_cost numeric)
  returns void language sql as '';
  -- Webhooks are on the coordinator.
  create or replace function alert_budgets(p_app text, p_user text) returns void language sql as '';
  create or replace function budget_uses_of_app(
    p_app text, p_since date,
    out invocations numeric, out tokens numeric, out cost numeric, out reserved_tokens numeric, out reserved_cost numeric)
  language plpgsql stable set plan_cache_mode = 'force_custom_plan' as $uses$
  begin
    select coalesce(sum(u.invocations), 0), coalesce(sum(u.prompt_tokens + u.output_tokens), 0), coalesce(sum(u.cost), 0)
    into budget_uses_of_app.invocations, budget_uses_of_app.tokens, budget_uses_of_app.cost
    from budget_uses u where u.app_name = p_app and u.day >= p_since;
    select coalesce(sum(r.tokens), 0), coalesce(sum(r.cost), 0)
    into budget_uses_of_app.reserved_tokens, budget_uses_of_app.reserved_cost
    from budget_reservations r where r.app_name = p_app and r.expire_time > statement_timestamp();
  end $uses$;
  -- Ours look at rows of the same user only, which are on the same node.
  set local citus.enable_unsafe_triggers = on;
  -- One connection for each node, so that tables can follow one another in a transaction.
  set local citus.multi_shard_modify_mode = 'sequential';
  -- The outbox of webhooks is on the coordinator, where another node cannot write; the start refuses WEBHOOKS=true.
  drop trigger if exists invocations_webhook on invocations;
  drop trigger if exists tasks_webhook_insert on tasks;
  drop trigger if exists tasks_webhook_update on tasks;
  -- So are the rules of scores: none can be made there.
  drop trigger if exists invocations_scores on invocations;
  drop trigger if exists budgets_totals on budgets;
  -- Row-level security looks at settings of the connection, which the other nodes do not have: there were no rows.
  foreach name in array of_users || written || copied loop
    execute format('drop policy if exists of_user on %I', name);
    execute format('alter table %I disable row level security, no force row level security', name);
  end loop;
  -- A statement whose parts also look at other nodes is carried out part by part, and inserts the version last.
  alter table eval_cases alter constraint eval_cases_version_fkey deferrable initially deferred;
  foreach name in array copied loop
    continue when exists (select from pg_dist_partition where logicalrelid = name::regclass);
    perform create_reference_table(name::regclass);
  end loop;
  foreach name in array written loop
    continue when exists (select from pg_dist_partition where logicalrelid = name::regclass);
    perform citus_add_local_table_to_metadata(name::regclass);
  end loop;
  -- Rows that are copied are counted again where they arrive.
  if not exists (select from pg_dist_partition where logicalrelid = 'sessions'::regclass) then
    delete from user_storage;
  end if;
  foreach name in array of_users loop
    continue when exists (select from pg_dist_partition where logicalrelid = name::regclass);
    perform create_distributed_table(
      name::regclass, 'user_id', colocate_with => case name when of_users[1] then 'none' else of_users[1] end);
  end loop;
  -- Where the rows of a user are, an erasure waits for those who add some, as it does on the coordinator.
  create or replace function lock_user_data() returns trigger language plpgsql as $lock$
  begin
    perform pg_advisory_xact_lock(user_data_lock(new.app_name, new.user_id));
    return new;
  end $lock$;
  create or replace trigger user_erasures_lock before insert on user_erasures
    for each row execute function lock_user_data();
end $$;

do $$
declare
  called regprocedure;
begin
  -- A call is sent whole to the node of its user: it is one command there, in one phase.
  for called in
    select p.oid from pg_proc p
    where p.pronamespace = current_schema()::regnamespace
      and p.proname in ('append_deltas', 'append_events', 'change_task', 'claim_session', 'create_session', 'enqueue_invocation', 'finish_invocation',
                        'keep_calls', 'keep_signal', 'renew_reservation', 'reserve_budget', 'spend_budget', 'wake_task')
      and not exists (select from pg_catalog.pg_dist_object o
                      where o.classid = 'pg_proc'::regclass and o.objid = p.oid and o.distribution_argument_index is not null)
  loop
    perform create_distributed_function(called, distribution_arg_name => 'p_user', colocate_with => 'sessions');
  end loop;
  -- On other nodes connections do not have a schema of their own choice in their path.
  for called in
    select p.oid from pg_proc p
    where p.pronamespace = current_schema()::regnamespace and current_schema() <> 'public'
      and coalesce(array_to_string(p.proconfig, ' '), '') not like '%search_path=%'
      and not exists (select from pg_depend d where d.classid = 'pg_proc'::regclass and d.objid = p.oid and d.deptype = 'e')
  loop
    execute format('alter function %s set search_path = %I', called, current_schema());
  end loop;
  -- They may be part of a statement that a node carries out on its parts, and only read.
  alter function budget_uses_of_app(text, date) set citus.allow_nested_distributed_execution = on;
  alter function assert_user_storage set citus.allow_nested_distributed_execution = on;
  alter function budgets_for(text, text) set citus.allow_nested_distributed_execution = on;
end $$;
