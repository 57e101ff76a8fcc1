-- service_state: returns the connected processes of the service (replicas), the contents of the queues, and the number
-- of paused invocations that nothing will resume, for operators and for the metrics of each replica.
--
-- A replica is a database connection that listens for notifications; its application name is `agent-runtime/<version>
-- <host>`. A replica is not visible if it is connected only through a pooler. The waiting time of an entry begins when
-- the entry is due; an entry that is due later counts as waiting for 0 seconds.
-- At most 1,000 due entries of each queue are counted, to bound the cost. Tasks and runs of cronjobs have no index on
-- their age, so the oldest one is the oldest of those that were counted. An invocation that was woken or put back waits
-- since then.
-- Among the 2,000 invocations that paused last, stranded counts those that wait for tasks of which none is open or due.
-- As tasks and invocations change in one transaction, a healthy one is never counted.
create or replace function service_state(out replicas json, out queues json, out stranded integer) language plpgsql stable as $$
begin
  select coalesce(json_agg(json_build_object('version', split_part(split_part(application_name, '/', 2), ' ', 1),
      'host', split_part(application_name, ' ', 2), 'startTime', extract(epoch from backend_start)) order by backend_start), '[]')
    into replicas from pg_stat_activity
    where datname = current_database() and application_name like 'agent-runtime/%';
  -- Without a correlated subquery on a table of the coordinator, which a cluster refuses beside tables of users.
  with waits(name, since) as (
      (select 'invocations', case when start_time is null and end_time is null then create_time else lease_expire_time end
        from invocations where status = 'queued' and request is not null and not_before is null
        order by create_time limit 1001)
      union all (select 'invocations', create_time from invocations where status = 'queued' and request is null limit 1001)
      union all (select 'tasks', create_time from tasks where state = 'open' limit 1001)
      union all (select 'cronjob runs', not_before from invocations
        where cronjob_id is not null and first_end_time is null and status in ('queued', 'running') and not_before is not null
        limit 1001)
      union all (select 'webhook deliveries', due_time from jobs
        where kind = 'delivery' and lease_token is null order by 2 limit 1001)
      union all (select 'webhook deliveries', lease_expire_time from jobs
        where kind = 'delivery' and lease_token is not null and lease_expire_time <= now() limit 1001)
      union all (select 'scores', due_time from jobs where kind = 'score' and lease_token is null order by 2 limit 1001)
      union all (select 'scores', lease_expire_time from jobs
        where kind = 'score' and lease_token is not null and lease_expire_time <= now() limit 1001)
      union all (select 'memories', due_time from jobs where kind = 'memory' and lease_token is null order by 2 limit 1001)
      union all (select 'memories', lease_expire_time from jobs
        where kind = 'memory' and lease_token is not null and lease_expire_time <= now() limit 1001)
      union all (select 'evaluation cases', r.create_time
        from eval_runs r join eval_run_cases c on c.app_name = r.app_name and c.run_id = r.id
        where r.status in ('queued', 'running') and c.status = 'waiting' order by 2 limit 1001)),
    works(name, running) as (
      select 'invocations', (select count(*) from invocations where status = 'running')
      union all select 'tasks', 0
      union all select 'cronjob runs', (select count(*) from invocations
        where cronjob_id is not null and first_end_time is null and status in ('queued', 'running') and not_before is null)
      union all select 'webhook deliveries', (select count(*) from jobs
        where kind = 'delivery' and lease_token is not null and lease_expire_time > now())
      union all select 'scores', (select count(*) from jobs
        where kind = 'score' and lease_token is not null and lease_expire_time > now())
      union all select 'memories', (select count(*) from jobs
        where kind = 'memory' and lease_token is not null and lease_expire_time > now())
      union all select 'evaluation cases', (select count(*) from eval_run_cases where status = 'running'))
  select json_agg(json_build_object('name', name, 'waiting', least(waiting, 1000), 'more', waiting > 1000, 'running', running,
      'oldestSeconds', case when waiting > 0 then greatest(extract(epoch from clock_timestamp() - oldest), 0) end) order by name)
    into queues from (
      select name, running, count(since) as waiting, min(since) as oldest from works left join waits using (name) group by 1, 2) each;
  -- As a difference, because a cluster refuses `not exists` below a limit.
  with paused as (
      select i.app_name, i.user_id, i.session_id, i.id from invocations i where i.status = 'paused' and i.waits_for_tasks
      order by coalesce(i.end_time, i.create_time) desc limit 2000),
    awaited as (
      select distinct p.app_name, p.user_id, p.session_id, p.id from paused p
      join tasks t on t.app_name = p.app_name and t.user_id = p.user_id and t.session_id = p.session_id
        and t.invocation_id = p.id and (t.state = 'open' or t.due_time is not null))
  select coalesce(sum(n), 0) into stranded from (select 1 as n from paused union all select -1 from awaited) each;
end $$;
comment on function service_state is 'Returns the connected replicas of the service, the numbers of waiting and running entries of each queue, and that of paused invocations that nothing will resume.';

-- list_audit: returns a page of the audit log, the newest entry first. Members of p_wanted filter the entries:
-- decision, caller, callerKind, operation, appName, userId, from and to (Unix seconds), limit, and cursor (only entries with
-- smaller ids). A page scans up to 10,000 entries, beginning near `to` by the index on time. The order of ids is that
-- of times, up to about a second.
create or replace function list_audit(p_wanted json, out page json) language plpgsql stable as $$
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
        and (p_wanted ->> 'callerKind' is null or caller_kind = p_wanted ->> 'callerKind')
        and (p_wanted ->> 'operation' is null or operation = p_wanted ->> 'operation')
        and (p_wanted ->> 'appName' is null or resource ->> 'appName' = p_wanted ->> 'appName')
        and (p_wanted ->> 'userId' is null or resource ->> 'userId' = p_wanted ->> 'userId')
        and coalesce(extract(epoch from time) >= (p_wanted ->> 'from')::numeric, true)
        and coalesce(extract(epoch from time) < (p_wanted ->> 'to')::numeric, true)
      order by id desc limit rest + 1) entries;
end $$;
comment on function list_audit is 'Returns a page of the audit log, the newest entry first.';
