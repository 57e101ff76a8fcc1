-- Triggers enforce invariants for every statement; ARCHITECTURE.md lists them. Their functions stand beside them.

-- A stored event was changed or deleted by SQL, which the service never does: update the session's size, and its
-- events_version, which invalidates caches. Not for events deleted with their session: there the trigger depth is that
-- of the foreign key's own trigger.
create function count_event_bytes() returns trigger language plpgsql as $$
begin
  new.bytes := octet_length(new.payload::text);
  return new;
end $$;
comment on function count_event_bytes is 'Trigger function: recomputes an event''s size after its payload was changed by SQL.';
create trigger events_size before update of payload on events for each row execute function count_event_bytes();
create function count_changed_events() returns trigger language plpgsql as $$
begin
  update sessions set events_version = events_version + 1, event_bytes = event_bytes + coalesce(new.bytes, 0) - old.bytes
  where app_name = old.app_name and user_id = old.user_id and id = old.session_id;
  return null;
end $$;
comment on function count_changed_events is 'Trigger function: a stored event was changed or deleted by SQL.';
create trigger events_changed after update or delete on events for each row
when (pg_trigger_depth() = 0) execute function count_changed_events();
--> statement-breakpoint
-- Stored bytes are counted by the writes themselves; copies count in full. Connections use one of 32 shards of a user,
-- so that they do not wait for each other's commit.
create function add_user_bytes(p_app text, p_user text, p_events bigint, p_artifacts bigint, p_memories bigint)
returns void language plpgsql as $$
begin
  if p_events = 0 and p_artifacts = 0 and p_memories = 0 then return; end if;
  insert into user_storage as u (app_name, user_id, shard, event_bytes, artifact_bytes, memory_bytes)
  values (p_app, p_user, pg_backend_pid() % 32, p_events, p_artifacts, p_memories)
  on conflict (app_name, user_id, shard) do update set
    event_bytes = u.event_bytes + excluded.event_bytes, artifact_bytes = u.artifact_bytes + excluded.artifact_bytes,
    memory_bytes = u.memory_bytes + excluded.memory_bytes;
end $$;
comment on function add_user_bytes is 'Adds to a user''s stored bytes in an application.';
-- SECURITY DEFINER: statements of one user may read the counters but not change them.
create function count_session_bytes() returns trigger language plpgsql security definer set search_path from current as $$
declare
  added bigint := coalesce(new.event_bytes, 0) - coalesce(old.event_bytes, 0);
begin
  -- Skip unchanged states: most changes are of other columns, and writing a large state as text takes milliseconds.
  if (new.state, new.initial_state) is distinct from (old.state, old.initial_state) then
    added := added + coalesce(state_size(new.state, new.initial_state), 0)
                   - coalesce(state_size(old.state, old.initial_state), 0);
  end if;
  perform add_user_bytes(coalesce(new.app_name, old.app_name), coalesce(new.user_id, old.user_id), added, 0, 0);
  return null;
end $$;
comment on function count_session_bytes is 'Trigger function: the size of a session''s events or states has changed.';
create trigger sessions_storage after insert or delete or update of event_bytes, state, initial_state on sessions
for each row execute function count_session_bytes();
-- A queued request counts. A running one, which has a limit of its own, counts only if it is large, because two more
-- counter updates per invocation are expensive. That of a cronjob's run that has not begun is a copy, which does not.
create function counted_request(p_status text, p_not_before timestamptz, p_request jsonb) returns integer
language sql immutable as $$
  select case when p_not_before is not null then 0
              when p_status = 'queued' or octet_length(p_request::text) > 8192
              then coalesce(octet_length(p_request::text), 0) else 0 end
$$;
comment on function counted_request is 'Bytes of a stored request that count for its user.';
create function count_request_bytes() returns trigger language plpgsql security definer set search_path from current as $$
begin
  perform add_user_bytes(coalesce(new.app_name, old.app_name), coalesce(new.user_id, old.user_id),
    coalesce(counted_request(new.status, new.not_before, new.request), 0)
    - coalesce(counted_request(old.status, old.not_before, old.request), 0), 0, 0);
  return null;
end $$;
comment on function count_request_bytes is 'Trigger function: a stored request was added, changed or removed.';
-- Without WHEN, here and in the trigger of an invocation's end: PostgreSQL plans each WHEN anew in each statement, which
-- takes longer than a call of a function that does nothing.
create trigger invocations_storage after insert or delete or update of request, status, not_before on invocations
for each row execute function count_request_bytes();
create function count_kept_bytes() returns trigger language plpgsql security definer set search_path from current as $$
begin
  perform add_user_bytes(coalesce(new.app_name, old.app_name), coalesce(new.user_id, old.user_id),
    coalesce(octet_length(new.response::text), 0) - coalesce(octet_length(old.response::text), 0), 0, 0);
  return null;
end $$;
comment on function count_kept_bytes is 'Trigger function: a call''s stored answer was added or removed.';
create trigger tool_calls_storage_insert after insert on tool_calls for each row
when (new.response is not null) execute function count_kept_bytes();
create trigger tool_calls_storage_update after update of response on tool_calls for each row
when (new.response is distinct from old.response) execute function count_kept_bytes();
create trigger tool_calls_storage_delete after delete on tool_calls for each row
when (old.response is not null) execute function count_kept_bytes();
-- Summed per statement, because thousands of updates of one row in a transaction are slow.
create function count_stored_bytes() returns trigger language plpgsql security definer set search_path from current as $$
declare
  is_memory boolean := tg_argv[0] = 'memories';
  total record;
begin
  for total in execute format(
    'select app_name, user_id, (%s sum(%s))::bigint as bytes from changed group by 1, 2 order by 1, 2', tg_argv[1],
    case when is_memory then 'octet_length(content::text) + 4 * coalesce(cardinality(embedding), 0)' else 'artifact_size(size_bytes, part, custom_metadata)' end)
  loop
    perform add_user_bytes(total.app_name, total.user_id, 0, case when is_memory then 0 else total.bytes end,
                           case when is_memory then total.bytes else 0 end);
  end loop;
  return null;
end $$;
comment on function count_stored_bytes is 'Trigger function: rows were inserted or deleted. Arguments: the table and a sign.';
revoke execute on function count_session_bytes, count_request_bytes, count_kept_bytes, count_stored_bytes from public;
create trigger budgets_totals after insert on budgets for each row
when (new.applies_to = 'app') execute function sum_up_use_of_app();
do $$
declare
  name text;
  kind text;
begin
  foreach name in array array['artifact_versions', 'memories'] loop
    foreach kind in array array['insert new +', 'update new +', 'update old -', 'delete old -'] loop
      execute format('create trigger %1$s_storage_%2$s_%3$s after %2$s on %1$s referencing %3$s table as changed
                      for each statement execute function count_stored_bytes(%1$L, %4$L)',
                     name, split_part(kind, ' ', 1), split_part(kind, ' ', 2), split_part(kind, ' ', 3));
    end loop;
  end loop;
end $$;
--> statement-breakpoint
-- A retry must not re-create a deleted session: keys of its invocations are kept until they expire. A request that leaves
-- the queue without running, while its session stays, frees its key.
create function keep_invocation_key() returns trigger language plpgsql as $$
begin
  insert into idempotency_keys (app_name, user_id, scope, key, request_hash, response_body, session_id)
  select old.app_name, old.user_id, 'invocation', old.idempotency_key, coalesce(old.request_hash, ''), '', old.session_id
  where not exists (select from sessions
                    where app_name = old.app_name and user_id = old.user_id and id = old.session_id)
  on conflict do nothing;
  return null;
end $$;
comment on function keep_invocation_key is 'Trigger function: stores the idempotency key of an invocation deleted with its session.';
create trigger invocations_key after delete on invocations for each row
when (old.idempotency_key is not null) execute function keep_invocation_key();
--> statement-breakpoint
-- Starting an erasure waits for running statements that add data; later ones see the erasure and are refused.
create function user_data_lock(app text, owner text) returns bigint language sql immutable
return hashtextextended(app || E'\x01' || owner, 7240014);
comment on function user_data_lock is 'Advisory lock of a user''s data: shared by statements that add or delete data, exclusive for starting an erasure or setting a hold.';
create function refuse_while_erased() returns trigger language plpgsql as $$
begin
  perform pg_advisory_xact_lock_shared(user_data_lock(new.app_name, new.user_id));
  if exists (select from user_erasures e where e.app_name = new.app_name and e.user_id = new.user_id) then
    raise exception 'the user is being erased' using errcode = 'AR409';
  end if;
  return new;
end $$;
comment on function refuse_while_erased is 'Trigger function: refuses new data of a user being erased.';
create trigger sessions_erasure before insert on sessions for each row execute function refuse_while_erased();
create trigger invocations_erasure before insert on invocations for each row execute function refuse_while_erased();
create trigger artifacts_erasure before insert on artifacts for each row execute function refuse_while_erased();
create trigger artifact_versions_erasure before insert on artifact_versions for each row execute function refuse_while_erased();
create trigger memories_erasure before insert on memories for each row execute function refuse_while_erased();
create trigger user_states_erasure before insert on user_states for each row execute function refuse_while_erased();
create trigger cronjobs_erasure before insert on cronjobs for each row execute function refuse_while_erased();
create trigger user_credentials_erasure before insert on user_credentials for each row execute function refuse_while_erased();
create trigger webhooks_erasure before insert on webhooks for each row execute function refuse_while_erased();
--> statement-breakpoint
-- No statement may delete data on legal hold. Setting a hold waits for running statements that delete data; later ones
-- see the hold and are refused. The argument names the session's column.
create function refuse_on_hold() returns trigger language plpgsql as $$
declare
  held_session text := '';
begin
  if tg_argv[0] = 'id' then held_session := old.id;
  elsif tg_argv[0] = 'session_id' then held_session := coalesce(old.session_id, '');
  end if;
  perform pg_advisory_xact_lock_shared(user_data_lock(old.app_name, old.user_id));
  if exists (select from legal_holds h where h.app_name = old.app_name and h.user_id = old.user_id
             and h.session_id in ('', held_session)) then
    raise exception 'the data is on legal hold' using errcode = 'AR423';
  end if;
  return old;
end $$;
comment on function refuse_on_hold is 'Trigger function: refuses deletion of data on legal hold. Argument: the session''s column, or empty.';
create trigger sessions_hold before delete on sessions for each row execute function refuse_on_hold('id');
create trigger events_hold before delete on events for each row execute function refuse_on_hold('session_id');
create trigger invocation_tapes_hold before delete on invocation_tapes for each row execute function refuse_on_hold('session_id');
create trigger tool_calls_hold before delete on tool_calls for each row execute function refuse_on_hold('session_id');
create trigger signals_hold before delete on signals for each row execute function refuse_on_hold('session_id');
create trigger tasks_hold before delete on tasks for each row execute function refuse_on_hold('session_id');
create trigger artifacts_hold before delete on artifacts for each row execute function refuse_on_hold('session_id');
create trigger artifact_versions_hold before delete on artifact_versions for each row execute function refuse_on_hold('session_id');
create trigger memories_hold before delete on memories for each row execute function refuse_on_hold('session_id');
create trigger spans_hold before delete on spans for each row execute function refuse_on_hold('session_id');
create trigger eval_verdicts_hold before delete on eval_verdicts for each row execute function refuse_on_hold('session_id');
create trigger eval_session_scores_hold before delete on eval_session_scores for each row execute function refuse_on_hold('session_id');
create trigger session_verdicts_hold before delete on session_verdicts for each row execute function refuse_on_hold('session_id');
create trigger skipped_runs_hold before delete on skipped_runs for each row execute function refuse_on_hold('');
create trigger user_states_hold before delete on user_states for each row execute function refuse_on_hold('');
create trigger cronjobs_hold before delete on cronjobs for each row execute function refuse_on_hold('');
create trigger user_credentials_hold before delete on user_credentials for each row execute function refuse_on_hold('');
create trigger webhooks_hold before delete on webhooks for each row execute function refuse_on_hold('');
create trigger webhook_deliveries_hold before delete on webhook_deliveries for each row execute function refuse_on_hold('');
-- A queued invocation has no content yet.
create trigger invocations_hold before delete on invocations for each row when (old.status <> 'queued')
execute function refuse_on_hold('session_id');
--> statement-breakpoint
-- Outbox of webhooks: a row is inserted by whichever statement ends an invocation or a run.
create function webhook_time(moment timestamptz) returns text language sql immutable
return to_char(moment at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"');
comment on function webhook_time is 'Formats a time for deliveries.';
create function push_payload(push jsonb, data jsonb, moment timestamptz) returns json language plpgsql immutable as $$
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
create function insert_webhook_delivery(app text, owner text, address text, type text, data jsonb) returns void
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
create function add_delivery_job() returns trigger language plpgsql as $$
begin
  perform add_job('delivery', new.app_name, new.user_id, new.id, new.host, (
    select w.is_silent from webhooks w
    where w.app_name = new.app_name and w.user_id = new.user_id and w.id = new.webhook_id for share));
  return null;
end $$;
comment on function add_delivery_job is 'Trigger function: a delivery is to be sent; adds its job.';
create trigger webhook_deliveries_job_insert after insert on webhook_deliveries for each row
when (new.status = 'pending') execute function add_delivery_job();
create trigger webhook_deliveries_job_update after update of status on webhook_deliveries for each row
when (new.status = 'pending' and old.status <> 'pending') execute function add_delivery_job();
create function delete_delivery_job() returns trigger language plpgsql as $$
begin
  delete from jobs where app_name = old.app_name and user_id = old.user_id and kind = 'delivery' and id = old.id;
  return null;
end $$;
comment on function delete_delivery_job is 'Trigger function: a pending delivery was deleted; deletes its job.';
create trigger webhook_deliveries_job_delete after delete on webhook_deliveries for each row
when (old.status = 'pending') execute function delete_delivery_job();
create function insert_delivery_of_invocation(ended invocations) returns void language plpgsql as $$
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
create function insert_delivery_of_task() returns trigger language plpgsql as $$
declare
  address text := (select webhook_url from invocations
                   where app_name = new.app_name and user_id = new.user_id and session_id = new.session_id
                     and id = new.invocation_id);
begin
  if address is null then return null; end if;
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
create trigger tasks_webhook_insert after insert on tasks for each row execute function insert_delivery_of_task();
create trigger tasks_webhook_update after update on tasks for each row
when (new.reminders > old.reminders or old.state = 'open' and new.state in ('answered', 'done')
      or new.state = 'open' and old.rules ? 'escalateTo' and not new.rules ? 'escalateTo')
execute function insert_delivery_of_task();
-- Before the row is written, because the end of the run is stored in it.
create trigger invocations_run before update of status on invocations for each row
when (new.cronjob_id is not null and old.first_end_time is null and new.status not in ('queued', 'running'))
execute function stamp_run_end();
create function insert_delivery_of_skipped_run() returns trigger language plpgsql as $$
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
create trigger skipped_runs_webhook after insert on skipped_runs for each row execute function insert_delivery_of_skipped_run();
--> statement-breakpoint
-- Score rules: the statement that ends an invocation adds the jobs of its scores, each in the lane of
-- its rule. A session that continues is due later, and a running scorer loses its job. Without rules the cost is one look at an empty table.
create function is_sampled(rule text, id text, share float8) returns boolean language sql immutable
return ('x' || left(md5(rule || E'\x01' || id), 8))::bit(32)::bigint < share * 4294967296;
comment on function is_sampled is 'True if an id is in a rule''s sample; deterministic.';
create function add_score_jobs(ended invocations) returns void language plpgsql as $$
begin
  if not exists (select from score_rules r where r.app_name = ended.app_name) then return; end if;
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
--> statement-breakpoint
-- An invocation that is a step of a job: its claim ended the job, and whatever ends or deletes the invocation adds the
-- job again. The job's user may be another one, and only a superuser may attach the setting to the function. The
-- session's user may write the invocation's row, so the row adds no other job than that of the case that it is a turn of.
create function continue_job(ended invocations) returns void language plpgsql as $$
declare
  all_users text := coalesce(current_setting('agent_runtime.all_users', true), '');
begin
  if ended.job ->> 'kind' is distinct from 'evaluation' or ended.job ->> 'id' !~ '^[0-9a-f-]{36}\.' then return; end if;
  perform set_config('agent_runtime.all_users', 'on', true);
  perform add_job('evaluation', c.app_name, eval_job_user(c.owner_id), ended.job ->> 'id', '')
  from eval_run_cases c
  where c.app_name = ended.app_name and c.run_id = left(ended.job ->> 'id', 36)::uuid and c.status = 'running'
    and eval_case_job(c.run_id, c.place, c.trial) = ended.job ->> 'id'
    and c.session_user_id = ended.user_id and c.session_id = ended.session_id;
  perform set_config('agent_runtime.all_users', all_users, true);
  perform pg_notify('agent_runtime', json_build_array(ended.job ->> 'kind')::text);
end $$;
comment on function continue_job is 'Adds the job of which an ended or deleted invocation is a step.';
--> statement-breakpoint
-- What follows from the end of an invocation, or from its pause. One function, in this order, because ends that lock
-- lanes of jobs in different orders would wait for each other.
create function follow_invocation() returns trigger language plpgsql as $$
declare
  is_open constant boolean := new.status in ('queued', 'running');
begin
  if old.job is not null and old.status in ('queued', 'running') and not is_open then perform continue_job(old); end if;
  if is_open or new.status = old.status then return null; end if;
  if new.status in ('succeeded', 'failed') then perform add_score_jobs(new); end if;
  if new.status in ('cancelled', 'interrupted') then  -- its tasks need no answer
    update tasks t set
      state = 'cancelled', due_time = null, token_hash = null, decide_time = null, version = t.version + 1
    where t.app_name = new.app_name and t.user_id = new.user_id and t.session_id = new.session_id
      and t.invocation_id = new.id and t.state in ('open', 'answered');
  end if;
  if new.webhook_url is not null then perform insert_delivery_of_invocation(new); end if;
  if new.cronjob_id is not null and old.first_end_time is null then perform end_run(new); end if;
  return null;
end $$;
comment on function follow_invocation is 'Trigger function: an invocation has ended or paused.';
create trigger invocations_follow after update of status on invocations for each row execute function follow_invocation();
create function follow_deleted_invocation() returns trigger language plpgsql as $$
begin
  if old.status not in ('queued', 'running') then return null; end if;
  if old.job is not null then perform continue_job(old); end if;
  if old.cronjob_id is not null and old.first_end_time is null then perform leave_out_deleted_run(old); end if;
  return null;
end $$;
comment on function follow_deleted_invocation is 'Trigger function: an invocation was deleted.';
create trigger invocations_follow_delete after delete on invocations for each row
execute function follow_deleted_invocation();
--> statement-breakpoint
-- Whatever inserts, ends or deletes cases of an evaluation run: the next ones start, and the run ends after its last
-- one. A case that ends has no job any more.
create function start_eval_cases() returns trigger language plpgsql as $$
begin
  perform advance_eval_run(app_name, run_id) from (select distinct app_name, run_id from added) runs;
  return null;
end $$;
comment on function start_eval_cases is 'Trigger function: cases of evaluation runs were inserted; starts the first ones.';
create trigger eval_run_cases_insert after insert on eval_run_cases referencing new table as added
for each statement execute function start_eval_cases();
create function end_eval_case() returns trigger language plpgsql set enable_seqscan = off as $$
begin
  delete from jobs j
  where j.app_name = old.app_name and j.user_id = eval_job_user(old.owner_id) and j.kind = 'evaluation'
    and j.id = eval_case_job(old.run_id, old.place, old.trial);
  perform advance_eval_run(old.app_name, old.run_id);
  perform pg_notify('agent_runtime', json_build_array('eval:' || old.run_id)::text);
  return null;
end $$;
comment on function end_eval_case is 'Trigger function: a case of an evaluation run has ended; starts the next one.';
create trigger eval_run_cases_end after update of status on eval_run_cases for each row
when (old.status in ('waiting', 'running') and new.status not in ('waiting', 'running')) execute function end_eval_case();
create trigger eval_run_cases_delete after delete on eval_run_cases for each row
when (old.status in ('waiting', 'running')) execute function end_eval_case();
--> statement-breakpoint
-- The audit is append-only for every role.
create function refuse_audit_change() returns trigger language plpgsql as $$
begin
  if tg_op = 'DELETE' and current_setting('agent_runtime.audit_deletes', true) = 'on' then return null; end if;
  raise exception 'audit_log is only appended to' using errcode = '42501';
end $$;
comment on function refuse_audit_change is 'Trigger function: audit entries are immutable, and only delete_old_audit_entries deletes them.';
create trigger audit_log_append_only before update or delete or truncate on audit_log
for each statement execute function refuse_audit_change();
--> statement-breakpoint
-- The policies of row-level security are in src/platform/db/schema. Forced, so that they also apply to the owner of the
-- tables.
do $$
declare
  protected regclass;
begin
  for protected in
    select oid from pg_class
    where relrowsecurity and relnamespace = (select oid from pg_namespace where nspname = current_schema())
  loop
    execute format('alter table %s force row level security', protected);
  end loop;
end $$;
