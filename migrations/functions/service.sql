-- service_state: the replicas that listen at this database, and what each queue holds, for operators.
--
-- A replica is the connection that it listens on, which names it: `agent-runtime/<version> <host>`. Behind a pooler
-- without a way past it none listens. A wait is counted from when the work was due; what is due later counts as
-- waiting, and has waited for nothing.
create function service_state(out replicas json, out queues json) language plpgsql stable as $$
begin
  select coalesce(json_agg(json_build_object('version', split_part(split_part(application_name, '/', 2), ' ', 1),
      'host', split_part(application_name, ' ', 2), 'startTime', extract(epoch from backend_start)) order by backend_start), '[]')
    into replicas from pg_stat_activity
    where datname = current_database() and application_name like 'agent-runtime/%';
  select json_agg(json_build_object('name', name, 'waiting', waiting, 'running', running,
      'oldestSeconds', case when waiting > 0 then greatest(extract(epoch from clock_timestamp() - oldest), 0) end) order by name)
    into queues from (
      select 'invocations' as name, count(*) filter (where status = 'queued') as waiting,
        count(*) filter (where status = 'running') as running, min(create_time) filter (where status = 'queued') as oldest
        from invocations where status in ('queued', 'running')
      union all select 'tasks', count(*), 0, min(create_time) from tasks where state = 'open'
      union all select 'cronjob runs', count(*) filter (where status <> 'running'), count(*) filter (where status = 'running'),
        min(next_attempt_time) from cronjob_runs where status in ('queued', 'retrying', 'running')
      union all select 'webhook deliveries', count(*) filter (where lease_token is null), count(lease_token),
        min(next_attempt_time) filter (where lease_token is null) from webhook_deliveries where status = 'pending'
      union all select 'evaluation cases', count(*) filter (where c.status = 'waiting'), count(*) filter (where c.status = 'running'),
        min(r.create_time) filter (where c.status = 'waiting')
        from eval_run_cases c join eval_runs r on r.app_name = c.app_name and r.id = c.run_id
        where c.status in ('waiting', 'running')
      union all select 'scores', count(*) filter (where lease_token is null), count(lease_token),
        min(due_time) filter (where lease_token is null) from score_jobs) each;
end $$;
comment on function service_state is 'The replicas that listen at this database, and what waits and runs in each queue.';

-- list_audit: a page of the audit, the last entry first, of those that p_wanted asks for: decision, caller, operation, appName,
-- userId, from and to (Unix seconds), limit, and cursor, the id of the last entry of the page before.
create function list_audit(p_wanted json, out page json) language plpgsql stable as $$
declare
  rest integer := (p_wanted ->> 'limit')::integer;
begin
  select json_strip_nulls(json_build_object(
      'items', coalesce(json_agg(json_build_object('time', extract(epoch from time), 'decision', decision, 'callerKind', caller_kind,
        'caller', caller, 'address', address, 'operation', operation, 'resource', resource, 'reason', reason,
        'requestId', request_id, 'leftOut', left_out) order by id desc) filter (where place <= rest), '[]'),
      'nextCursor', case when count(*) > rest then (min(id) filter (where place <= rest))::text end))
    into page from (
      select *, row_number() over (order by id desc) as place from audit_log
      where id < coalesce((p_wanted ->> 'cursor')::bigint, 9223372036854775807)
        and coalesce(decision = p_wanted ->> 'decision', true) and (p_wanted ->> 'caller' is null or caller = p_wanted ->> 'caller')
        and (p_wanted ->> 'operation' is null or operation = p_wanted ->> 'operation')
        and (p_wanted ->> 'appName' is null or resource ->> 'appName' = p_wanted ->> 'appName')
        and (p_wanted ->> 'userId' is null or resource ->> 'userId' = p_wanted ->> 'userId')
        and coalesce(extract(epoch from time) >= (p_wanted ->> 'from')::numeric, true)
        and coalesce(extract(epoch from time) < (p_wanted ->> 'to')::numeric, true)
      order by id desc limit rest + 1) entries;
end $$;
comment on function list_audit is 'A page of the audit, the last entry first.';
