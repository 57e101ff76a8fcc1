-- A retry must not re-create a deleted session: keys of its invocations are kept until they expire. A request that leaves
-- the queue without running, while its session stays, frees its key.
create or replace function keep_invocation_key() returns trigger language plpgsql as $$
begin
  insert into idempotency_keys (app_name, user_id, scope, key, request_hash, response_body, session_id)
  select old.app_name, old.user_id, 'invocation', old.idempotency_key, coalesce(old.request_hash, ''), '', old.session_id
  where not exists (select from sessions
                    where app_name = old.app_name and user_id = old.user_id and id = old.session_id)
  on conflict do nothing;
  return null;
end $$;
comment on function keep_invocation_key is 'Trigger function: stores the idempotency key of an invocation deleted with its session.';

-- An invocation that is a step of a job has ended, or was deleted: the job goes on (end_step). The job's user may be
-- another one, and only a superuser may attach the setting to the function. The session's user may write the
-- invocation's row, so the row makes no other job due than that of the case that it is a turn of.
create or replace function continue_job(ended anyelement) returns void language plpgsql as $$
declare
  all_users text := coalesce(current_setting('agent_runtime.all_users', true), '');
  v_id constant text := ended.job ->> 'id';
  v_case record;
begin
  if ended.job ->> 'kind' is distinct from 'evaluation' or v_id !~ '^[0-9a-f-]{36}(\.\d{1,9}){2}$' then return; end if;
  perform set_config('agent_runtime.all_users', 'on', true);
  select c.status, c.owner_id, c.session_user_id, c.session_id into v_case from eval_run_cases c
  where c.app_name = ended.app_name and c.run_id = left(v_id, 36)::uuid and c.place = split_part(v_id, '.', 2)::integer
    and c.trial = split_part(v_id, '.', 3)::integer;
  if v_case.status = 'running' and v_case.session_user_id = ended.user_id and v_case.session_id = ended.session_id then
    if end_step('evaluation', ended.app_name, eval_job_user(v_case.owner_id), v_id) then
      perform pg_notify('agent_runtime', '["evaluation"]');
    end if;
  end if;
  perform set_config('agent_runtime.all_users', all_users, true);
end $$;
comment on function continue_job is 'Lets the job go on of which an ended or deleted invocation is a step.';

-- Counts an invocation that ends or pauses, if it has begun and was not counted, whichever statement ends it: with
-- stamped times, each is counted once. finish_invocation stamps the time itself, because it counts after locks that an
-- end by any other statement does not take.
create or replace function stamp_end() returns trigger language plpgsql as $$
begin
  if new.status in ('queued', 'running') then return new; end if;
  if new.count_time is null and new.start_time is not null then
    perform count_use(new.app_name, new.user_id, 1, null);
    new.count_time := statement_timestamp();
  end if;
  if new.cronjob_id is not null and old.first_end_time is null then
    new.first_end_time := coalesce(new.end_time, statement_timestamp());
    new.not_before := null;
  end if;
  return new;
end $$;
comment on function stamp_end is 'Trigger function: an invocation ends or pauses; counts it once, and stores when the try of a cronjob''s run ended.';

-- The invocation of a child session has ended: its use is added to that of its parent, which includes what its children
-- used, and the call of the parent is answered, if that waits for it. A parent that has ended has told its own use before,
-- so that what comes later goes on to its parent. Called once per invocation.
create or replace function end_child(ended anyelement) returns void language plpgsql as $$
declare
  v_now constant timestamptz := clock_timestamp();
  v_models constant jsonb := (
    select jsonb_agg(jsonb_build_object('model', m.key, 'promptTokens', m.value -> 0, 'outputTokens', m.value -> 1))
    from jsonb_each(ended.model_tokens) m);
  v_session text := ended.session_id;
  v_status text;
  v_parent record;
begin
  loop
    select s.parent_session_id, s.parent_invocation_id, s.parent_call_id into v_parent from sessions s
    where s.app_name = ended.app_name and s.user_id = ended.user_id and s.id = v_session;
    exit when v_parent.parent_session_id is null;
    update invocations i set
      llm_calls = i.llm_calls + ended.llm_calls, tool_calls = i.tool_calls + ended.tool_calls,
      prompt_tokens = i.prompt_tokens + ended.prompt_tokens, output_tokens = i.output_tokens + ended.output_tokens,
      model_tokens = with_tokens(i.model_tokens, v_models)
    where i.app_name = ended.app_name and i.user_id = ended.user_id and i.session_id = v_parent.parent_session_id
      and i.id = v_parent.parent_invocation_id
    returning i.status into v_status;
    if v_session = ended.session_id then
      update tasks t set
        state = 'answered', answer = '{}', decided_via = 'child', decide_time = v_now, due_time = v_now,
        version = t.version + 1
      where t.app_name = ended.app_name and t.user_id = ended.user_id and t.session_id = v_parent.parent_session_id
        and t.invocation_id = v_parent.parent_invocation_id and t.call_id = v_parent.parent_call_id and t.kind = 'child'
        and t.state = 'open';
    end if;
    exit when v_status in ('queued', 'running', 'paused');
    v_session := v_parent.parent_session_id;
  end loop;
end $$;
comment on function end_child is 'Tells the parent that the invocation of a child session has ended.';

-- An invocation is asked to stop, or has ended: so are its children, and by the same trigger theirs. The values are those
-- of requestStop. One that runs in the process of its parent ends with it, any other at its next renewal.
create or replace function stop_children(parent anyelement) returns void language plpgsql as $$
declare
  v_now constant timestamptz := clock_timestamp();
  v_as constant text := case when 'interrupted' in (parent.stop_requested_as, parent.status) then 'interrupted' else 'cancelled' end;
  v_child record;
  v_ends boolean;
begin
  for v_child in
    select i.session_id, i.id from sessions s
    join invocations i on i.app_name = parent.app_name and i.user_id = parent.user_id and i.session_id = s.id
    where s.app_name = parent.app_name and s.user_id = parent.user_id and s.parent_session_id = parent.session_id
      and s.parent_invocation_id = parent.id and i.status in ('queued', 'running', 'paused')
    order by i.session_id
  loop
    select i.status = 'paused' or i.status = 'queued' and i.start_time is null into v_ends from invocations i
    where i.app_name = parent.app_name and i.user_id = parent.user_id and i.session_id = v_child.session_id
      and i.id = v_child.id and i.status in ('queued', 'running', 'paused')
    for no key update;
    if v_ends then
      update invocations i set
        status = v_as, end_time = greatest(v_now, i.create_time), error_code = v_as, request = null,
        error_message = 'The invocation that it is a part of has ended, or was stopped.'
      where i.app_name = parent.app_name and i.user_id = parent.user_id and i.session_id = v_child.session_id and i.id = v_child.id;
    elsif not v_ends then
      update invocations i set
        status = i.status, stop_requested_as = v_as, stop_request_time = coalesce(i.stop_request_time, v_now)
      where i.app_name = parent.app_name and i.user_id = parent.user_id and i.session_id = v_child.session_id and i.id = v_child.id;
    end if;
  end loop;
end $$;
comment on function stop_children is 'Asks the children of an invocation to stop that was asked to stop, or has ended.';

-- What follows from the end of an invocation, or from its pause. One function, in this order, because ends that lock
-- lanes of jobs in different orders would wait for each other. The functions that it calls take the row as `anyelement`,
-- because on a cluster the row of a trigger has the type of a part of the table.
create or replace function follow_invocation() returns trigger language plpgsql as $$
declare
  is_open constant boolean := new.status in ('queued', 'running');
begin
  if is_open then
    if new.children > 0 and new.stop_requested_as is distinct from old.stop_requested_as then
      old.tapes := null;
      new.tapes := null;
      perform stop_children(new);
    end if;
    return null;
  end if;
  -- A row is passed whole, so its tapes would be read from where they are stored out of line.
  old.tapes := null;
  new.tapes := null;
  if old.job is not null and old.status in ('queued', 'running') then perform continue_job(old); end if;
  if new.status = old.status then return null; end if;
  if new.status <> 'paused' then
    if old.request ? 'child' then perform end_child(new); end if;
    if new.children > 0 then perform stop_children(new); end if;
  end if;
  if new.status in ('succeeded', 'failed') and new.steered_invocation_id is null then perform add_score_jobs(new); end if;
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
comment on function follow_invocation is 'Trigger function: an invocation has ended or paused, or is asked to stop.';

create or replace function follow_deleted_invocation() returns trigger language plpgsql as $$
begin
  if old.status not in ('queued', 'running') then return null; end if;
  old.tapes := null;  -- as in follow_invocation
  if old.job is not null then perform continue_job(old); end if;
  if old.cronjob_id is not null and old.first_end_time is null then perform leave_out_deleted_run(old); end if;
  return null;
end $$;
comment on function follow_deleted_invocation is 'Trigger function: an invocation was deleted.';
