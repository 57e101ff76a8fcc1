-- Outbox of webhooks: a row is inserted by whichever statement ends an invocation or a run.
create or replace function webhook_time(moment timestamptz) returns text language sql immutable
return to_char(moment at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"');
comment on function webhook_time is 'Formats a time for deliveries.';

create or replace function push_payload(push jsonb, data jsonb, moment timestamptz) returns json language plpgsql immutable as $$
declare
  task text := push #>> '{shown,taskId}';
  state text := case data ->> 'status' when 'succeeded' then 'COMPLETED' when 'paused' then 'INPUT_REQUIRED'
                                       when 'cancelled' then 'CANCELED' else 'FAILED' end;
begin
  if (push ->> 'isOld')::boolean then
    return json_build_object('kind', 'task', 'id', task, 'contextId', data ->> 'sessionId', 'status',
      json_build_object('state', replace(lower(state), '_', '-'), 'timestamp', webhook_time(moment)));
  end if;
  return json_build_object('statusUpdate', json_build_object('taskId', task, 'contextId', data ->> 'sessionId', 'status',
    json_build_object('state', 'TASK_STATE_' || state, 'timestamp', webhook_time(moment))));
end $$;
comment on function push_payload is 'Payload for an A2A push client: a status update; in version 0.3 the task.';

create or replace function insert_webhook_delivery(app text, owner text, address text, type text, data jsonb) returns void
language plpgsql as $$
declare
  max_pending integer := coalesce(nullif(current_setting('agent_runtime.max_pending_deliveries', true), ''), '1000');
  hook record;
  is_full boolean;
  now_time timestamptz := date_trunc('milliseconds', clock_timestamp()); -- the places of pages
begin
  data := jsonb_strip_nulls(data);
  -- Locked, so that a webhook deleted concurrently does not fail the end of the invocation. In the order of hosts, the
  -- lanes of the jobs, because two transactions that add to the same lanes would otherwise wait for each other.
  for hook in
    select * from webhooks
    where app_name = app and user_id = owner
      and (push is null and url = address or push is not null and (id = address
           or type like 'invocation.%' and push ->> 'invocationId' = data ->> 'invocationId'))
    order by host for share
  loop
    is_full := (select count(*) >= max_pending from (
      select from webhook_deliveries
      where app_name = app and user_id = owner and status = 'pending' limit max_pending) pending);
    insert into webhook_deliveries
      (app_name, user_id, id, webhook_id, host, payload, status, retry_end_time, answers, create_time, end_time)
    values
      (app, owner, 'msg_' || gen_random_uuid(), hook.id, hook.host,
       case when hook.push is not null then push_payload(hook.push, data, now_time)
       else json_build_object('type', type, 'timestamp', webhook_time(now_time), 'data',
              case when hook.includes_output then data else data - 'output' - 'outputTruncated' end) end,
       case when is_full then 'failed' else 'pending' end, now_time + interval '24 hours',
       case when is_full then jsonb_build_array(jsonb_build_object(
         'at', webhook_time(now_time), 'error', 'Not sent: ' || max_pending || ' deliveries of the user wait already.'))
       else '[]' end,
       now_time, case when is_full then now_time end);
    perform pg_notify('agent_runtime', '["webhooks"]');
  end loop;
end $$;
comment on function insert_webhook_delivery is 'Inserts a webhook delivery into the outbox and notifies the senders at commit; does nothing if the webhook was deleted.';

-- A pending delivery has a job, whichever statement makes or deletes it. The webhook is locked, because whoever records
-- that its host is silent closes the lanes that are committed then.
create or replace function add_delivery_job() returns trigger language plpgsql as $$
begin
  perform add_job('delivery', new.app_name, new.user_id, new.id, new.host, (
    select w.is_silent from webhooks w
    where w.app_name = new.app_name and w.user_id = new.user_id and w.id = new.webhook_id for share));
  return null;
end $$;
comment on function add_delivery_job is 'Trigger function: a delivery is to be sent; adds its job.';

create or replace function delete_delivery_job() returns trigger language plpgsql as $$
begin
  delete from jobs where app_name = old.app_name and user_id = old.user_id and kind = 'delivery' and id = old.id;
  return null;
end $$;
comment on function delete_delivery_job is 'Trigger function: a pending delivery was deleted; deletes its job.';

create or replace function delivery_work(p_app text, p_user text, p_id text) returns jsonb language sql stable as $$
  select jsonb_build_object(
    'delivery', to_jsonb(d), 'webhook', to_jsonb(w), 'now', clock_timestamp())
  from webhook_deliveries d
  join webhooks w on w.app_name = d.app_name and w.user_id = d.user_id and w.id = d.webhook_id
  where d.app_name = p_app and d.user_id = p_user and d.id = p_id and d.status = 'pending'
$$;
comment on function delivery_work is 'Returns a delivery that is to be sent, with its webhook; null if somebody has ended it with SQL.';

create or replace function insert_delivery_of_invocation(ended anyelement) returns void language plpgsql as $$
begin
  perform insert_webhook_delivery(
    ended.app_name, ended.user_id, ended.webhook_url,
    case ended.status when 'paused' then 'invocation.paused' else 'invocation.ended' end,
    jsonb_build_object(
      'appName', ended.app_name, 'userId', ended.user_id, 'sessionId', ended.session_id, 'invocationId', ended.id,
      'status', ended.status, 'errorCode', ended.error_code, 'output', left(ended.response_body, 4096),
      'outputTruncated', case when length(ended.response_body) > 4096 then true end));
end $$;
comment on function insert_delivery_of_invocation is 'Inserts the webhook delivery of an invocation that has ended or paused.';

create or replace function insert_delivery_of_task() returns trigger language plpgsql as $$
declare
  address text := (select webhook_url from invocations
                   where app_name = new.app_name and user_id = new.user_id and session_id = new.session_id
                     and id = new.invocation_id);
begin
  if address is null or new.kind = 'child' then return null; end if;  -- nobody answers it
  perform insert_webhook_delivery(
    new.app_name, new.user_id, address,
    case when tg_op = 'INSERT' then 'task.created'
         when new.state = 'open' and new.reminders > old.reminders then 'task.due'
         when new.state = 'open' or new.decided_via = 'deadline' then 'task.expired'
         else 'task.decided' end,
    jsonb_build_object(
      'appName', new.app_name, 'userId', new.user_id, 'sessionId', new.session_id, 'invocationId', new.invocation_id,
      'taskId', new.id, 'kind', new.kind, 'state', new.state, 'tool', new.form ->> 'tool', 'decidedVia', new.decided_via));
  return null;
end $$;
comment on function insert_delivery_of_task is 'Trigger function: a task was created, sent a reminder, was escalated at its deadline, or was decided.';

create or replace function insert_delivery_of_skipped_run() returns trigger language plpgsql as $$
declare
  address text := (select webhook_url from cronjobs
                   where app_name = new.app_name and user_id = new.user_id and id = new.cronjob_id);
begin
  if address is null then return null; end if;
  perform insert_webhook_delivery(
    new.app_name, new.user_id, address, 'cronjob_run.ended',
    jsonb_build_object(
      'appName', new.app_name, 'userId', new.user_id, 'jobId', new.cronjob_id, 'runId', new.id,
      'scheduledAt', webhook_time(new.due_time), 'status', 'skipped', 'errorCode', 'skipped'));
  return null;
end $$;
comment on function insert_delivery_of_skipped_run is 'Trigger function: a cronjob''s run was left out.';
