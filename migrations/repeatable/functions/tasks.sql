-- open_tasks: inserts a task for each tool call that a pausing invocation leaves open. Internal: called by
-- finish_invocation.
-- A task of the kind child waits for the invocation of the call's agent, and is answered by its end (end_child).
-- p_tasks: [{"callId", "callName", "kind", "about", "form", "rules", "users", "groups", "signal", "expiresAfter" in
-- seconds or "expiresAt" as a moment with its offset}].
-- Locks: the new rows. Errors: AR418: the user would have more than the maximum number of open tasks.
create or replace function open_tasks(
  p_app text, p_user text, p_session text, p_invocation text, p_tasks jsonb, p_max integer) returns void
language plpgsql as $$
declare
  v_now constant timestamptz := clock_timestamp();
  v_due timestamptz;
begin
  if (select count(*) from (select from tasks t where t.app_name = p_app and t.user_id = p_user and t.state = 'open' limit p_max) n)
     + jsonb_array_length(p_tasks) > p_max then
    raise exception 'the user has too many open tasks' using errcode = 'AR418';
  end if;
  insert into tasks (app_name, user_id, session_id, id, invocation_id, call_id, call_name, kind, form, rules, assigned_users,
                     assigned_groups, signal_name, expire_time, create_time)
  select p_app, p_user, p_session, gen_random_uuid(), p_invocation, w.task ->> 'callId', w.task ->> 'callName',
         case when w.task ->> 'kind' = 'confirmation' and exists (
                select from tool_calls c
                where c.app_name = p_app and c.user_id = p_user and c.session_id = p_session
                  and c.invocation_id = p_invocation and c.call_id = w.task ->> 'about' and c.state = 'unknown')
              then 'effect' else w.task ->> 'kind' end,
         w.task -> 'form', coalesce(w.task -> 'rules', '{}'),
         array(select jsonb_array_elements_text(w.task -> 'users')), array(select jsonb_array_elements_text(w.task -> 'groups')),
         w.task ->> 'signal',
         case when w.task ? 'expiresAt'
              then least((w.task ->> 'expiresAt')::timestamptz, v_now + interval '366 days')
              else v_now + (w.task ->> 'expiresAfter')::float8 * interval '1 second' end,
         v_now
  from jsonb_array_elements(p_tasks) w(task);
  -- A child may have ended before its parent paused. Its end locks the parent's session, as this pause does.
  if p_tasks @> '[{"kind": "child"}]' then
    update tasks t set
      state = 'answered', answer = '{}', decided_via = 'child', decide_time = v_now, due_time = v_now, version = t.version + 1
    where t.app_name = p_app and t.user_id = p_user and t.session_id = p_session and t.invocation_id = p_invocation
      and t.create_time = v_now and t.kind = 'child' and not has_open_child(p_app, p_user, p_session, p_invocation, t.call_id);
    if found then perform pg_notify('agent_runtime', '["tasks"]'); end if;
  end if;
  -- If the signal that a task waits for is already stored, the task is due at once.
  update tasks t set due_time = least(next_due(t.create_time, t.expire_time, t.rules, t.reminders), (
    select v_now from signals s
    where s.app_name = p_app and s.user_id = p_user and s.session_id = p_session and s.name = t.signal_name limit 1))
  where t.app_name = p_app and t.user_id = p_user and t.session_id = p_session and t.invocation_id = p_invocation
    and t.create_time = v_now and (t.expire_time is not null or t.rules ? 'remindAfter' or t.signal_name is not null);
  if found then perform pg_notify('agent_runtime', '["tasks"]'); end if;
end $$;
comment on function open_tasks is 'Inserts tasks for the calls that a pausing invocation leaves open.';

-- Returns when an open task is due next: for its next reminder, or at its deadline.
-- The arguments are single columns instead of a row type, because a distributed database creates functions before its
-- nodes have the tables.
create or replace function next_due(p_made timestamptz, p_expires timestamptz, p_rules jsonb, p_reminders integer)
returns timestamptz language sql immutable as $$
  select least(p_expires, p_made
               + (p_rules #>> array['remindAfter', p_reminders::text])::float8 * interval '1 second')
$$;
comment on function next_due is 'Returns when an open task is due next.';

-- True if a person may answer a task. Assigned users and members of assigned groups may; if nobody is assigned, the
-- session's user may. The user who requested the call may not if the task's rules exclude the requester.
create or replace function may_answer(
  p_user text, p_rules jsonb, p_assigned_users text[], p_assigned_groups text[], p_by text, p_groups text[])
returns boolean language sql immutable as $$
  select not (p_by = p_user and coalesce(p_rules -> 'excludesRequester' = 'true', false))
     and case when p_assigned_users = '{}' and p_assigned_groups = '{}' then p_by = p_user
              else p_by = any(p_assigned_users) or p_assigned_groups && p_groups end
$$;
comment on function may_answer is 'True if a person may answer a task.';

-- True if the session of an agent that this call runs (a child) has an invocation that has not ended.
create or replace function has_open_child(p_app text, p_user text, p_session text, p_invocation text, p_call text)
returns boolean language plpgsql stable as $$
begin
  return exists (
    select from sessions s
    join invocations i on i.app_name = p_app and i.user_id = p_user and i.session_id = s.id
    where s.app_name = p_app and s.user_id = p_user and s.parent_session_id = p_session
      and s.parent_invocation_id = p_invocation and s.parent_call_id = p_call
      and i.status in ('queued', 'running', 'paused'));
end $$;
comment on function has_open_child is 'True if the agent that a call runs has not ended.';

-- Returns the error message for an answer to a task of the kind child.
create or replace function child_text(p_id text) returns text language sql immutable as $$
  select format('Task %s waits for an agent, which asks in a task of its own: answer that one.', p_id)
$$;
comment on function child_text is 'Returns the error message for an answer to a task that waits for an agent.';

-- Returns the error message for an answer to a task that is closed already.
create or replace function answered_text(p_id text, p_state text, p_by text, p_via text, p_at timestamptz)
returns text language sql stable as $$
  select case when p_state = 'cancelled' then format('Task %s was cancelled.', p_id)
              else format('Task %s was answered before: %s at %s.', p_id,
                          case when p_via = 'deadline' then 'by its deadline'
                               else format('by %s, through %s,', coalesce(p_by, 'a system'), coalesce(p_via, 'another service')) end,
                          to_char(p_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')) end
$$;
comment on function answered_text is 'Returns the error message for an answer to a task that is closed already.';

-- answer_calls: closes the tasks of the calls that a message of the session's user answers, or refuses the message.
-- Internal: called by claim_session and append_events, so that the tasks are closed in the transaction that stores the
-- message's event.
--
--   1. The call has a task in this session: the task's rules decide whether the answer is accepted. The response of a
--      confirmation is stored with the task, and only the task authorises the call; the event cannot, because it may be
--      a copy from another session.
--   2. The call has no task: only answers to tools of the client and to long-running tools are accepted
--      (assert_without_task).
--
-- p_answers: [{"id", "name", "response" (only of a confirmation), "invocationId": the invocation that the request
-- resumes, "isHistory"}]. isHistory is true if the event with the answer names an agent as its author, or if the same
-- request also brings the call. Such an answer is a record of the past and needs no task, unless it is a confirmation.
-- Locks: the tasks' rows.
-- Errors: AR410: the call was answered already (the message says by whom), or nothing waits for the answer; AR403:
-- other people must answer.
create or replace function answer_calls(p_app text, p_user text, p_session text, p_answers jsonb) returns void language plpgsql as $$
declare
  v_answer jsonb;
  v_is_decision boolean;
  t record;
begin
  for v_answer in select given from jsonb_array_elements(p_answers) given order by given ->> 'id' loop
    v_is_decision := coalesce(v_answer ->> 'name' = 'adk_request_confirmation', false);
    -- 1. Models choose the ids of calls and may reuse them, so the newest task with the id is taken.
    select * into t from tasks k
    where k.app_name = p_app and k.user_id = p_user and k.session_id = p_session and k.call_id = v_answer ->> 'id'
    order by k.create_time desc limit 1 for update;
    if found then
      if t.state <> 'open' then
        raise exception '%', answered_text(t.id, t.state, t.decided_by, t.decided_via, t.decide_time) using errcode = 'AR410';
      elsif not may_answer(t.user_id, t.rules, t.assigned_users, t.assigned_groups, p_user, '{}') or (t.rules ->> 'approvals')::integer > 1 then
        raise exception 'Others have to answer task %.', t.id using errcode = 'AR403';
      elsif t.kind = 'child' then
        raise exception '%', child_text(t.id) using errcode = 'AR410';
      elsif t.invocation_id <> v_answer ->> 'invocationId' then
        raise exception 'Task % is one of invocation %.', t.id, t.invocation_id using errcode = 'AR410';
      elsif v_is_decision <> (t.call_name = 'adk_request_confirmation') then
        raise exception 'Task % waits for an answer to %.', t.id, t.call_name using errcode = 'AR410';
      end if;
      update tasks k set state = 'done', due_time = null, decided_by = p_user, decided_via = 'run', answer = v_answer -> 'response',
        decide_time = statement_timestamp(), version = k.version + 1
      where k.app_name = p_app and k.user_id = p_user and k.session_id = p_session and k.id = t.id;
    -- 2
    elsif not coalesce((v_answer ->> 'isHistory')::boolean, false) or v_is_decision then
      perform assert_without_task(p_app, p_user, p_session, v_answer ->> 'id', v_is_decision);
    end if;
  end loop;
end $$;
comment on function answer_calls is 'Closes the tasks of the calls that a message of the session''s user answers, or refuses the message.';

-- assert_without_task: refuses an answer to a call that has no task in its session. Answers to two kinds of calls are
-- accepted, because no particular person has to give them:
--
--   * calls of the client's own tools, which the client answers in any case;
--   * calls whose tool gave a provisional response in this session, as ADK's long-running tools do.
--
-- A call that was copied by a fork or an import has no task here: it must be answered in the session in which it was
-- made.
-- Errors: AR410.
create or replace function assert_without_task(p_app text, p_user text, p_session text, p_call text, p_is_decision boolean)
returns void language plpgsql as $$
declare
  v_event record;
  v_origin text := p_session;
begin
  if p_call is null then
    raise exception 'An answer names its call: functionResponse.id.' using errcode = 'AR410';
  end if;
  -- Find the newest event with a call of this id, because models take the newest call if an id is reused. No index has
  -- the ids of calls, so this scans the session's events backwards until it finds the call.
  select e.sequence, e.is_from_runtime, e.payload -> 'longRunningToolIds' ? p_call as is_long, c.part into v_event
  from events e
  cross join lateral jsonb_path_query_first(
    e.payload, '$.content.parts[*] ? (@.functionCall.id == $id)', jsonb_build_object('id', p_call)) c(part)
  where e.app_name = p_app and e.user_id = p_user and e.session_id = p_session and e.author <> 'user' and c.part is not null
  order by e.sequence desc limit 1;
  if not p_is_decision and v_event.part #> '{partMetadata,clientTool}' = 'true' then return; end if;
  -- Follow forks back to the session in which the call was made.
  while v_event.part is not null and exists (
    select from sessions s
    where s.app_name = p_app and s.user_id = p_user and s.id = v_origin and s.forked_from_sequence >= v_event.sequence)
  loop
    select s.forked_from_id into v_origin from sessions s
    where s.app_name = p_app and s.user_id = p_user and s.id = v_origin;
  end loop;
  if v_origin <> p_session then
    raise exception 'Call % is not answered here: it was asked in session %.', left(p_call, 200), v_origin using errcode = 'AR410';
  end if;
  if not p_is_decision and v_event.is_from_runtime and v_event.is_long
     and v_event.part #>> '{functionCall,name}' <> 'adk_request_confirmation' and exists (
       select from events e
       cross join lateral jsonb_path_query_first(
         e.payload, '$.content.parts[*].functionResponse ? (@.id == $id).response', jsonb_build_object('id', p_call)) r(response)
       where e.app_name = p_app and e.user_id = p_user and e.session_id = p_session and e.sequence > v_event.sequence
         and e.author <> 'user' and e.is_from_runtime and r.response is not null
         -- Excludes the error responses that the runtime itself stores for tools that were stopped.
         and coalesce(r.response ->> 'error' not in ('interrupted', 'The call was interrupted before it answered.'), true)) then
    return;
  end if;
  raise exception 'No call % of this session waits for an answer.', left(p_call, 200) using errcode = 'AR410';
end $$;
comment on function assert_without_task is 'Refuses an answer to a call without a task in its session, unless no particular person has to answer the call.';

-- True if the task's rules name nobody who has to answer. Then anyone who has the task's public address may answer it.
create or replace function has_no_rules(p_rules jsonb, p_assigned_users text[], p_assigned_groups text[])
returns boolean language sql immutable as $$
  select p_assigned_users = '{}' and p_assigned_groups = '{}' and coalesce((p_rules ->> 'approvals')::integer, 1) = 1
     and not coalesce(p_rules -> 'excludesRequester' = 'true', false)
$$;
comment on function has_no_rules is 'True if the task''s rules name nobody who has to answer.';

-- change_task: answers, rejects, settles, assigns, comments or postpones an open task, or creates its public address.
-- The row lock lets one of several concurrent answers win. If the rules require several approvals, an approval is only
-- counted until enough have come. Settling is refused for such a task, because it needs only one person.
-- p_by: the acting user; null for a caller who has only the public address. p_vouched: an operator's credential acts
-- for that user, who need not be assigned; a rule that excludes the requester still applies. Only an operator's
-- credential may assign people who could not answer before. p_version: compare-and-set on the task's version; null: any
-- version.
-- p_change: {"response", "via", "users", "groups", "text", "seconds", "tokenHash"}, depending on the action.
-- Errors: AR410: the task is not open, or has another version; AR403: other people must answer.
create or replace function change_task(
  p_app text, p_user text, p_session text, p_id text, p_by text, p_groups text[], p_vouched boolean, p_version integer,
  p_action text, p_change jsonb) returns void
language plpgsql as $$
declare
  t record;
  v_now constant timestamptz := clock_timestamp();
  v_users constant text[] := array(select jsonb_array_elements_text(p_change -> 'users'));
  v_groups constant text[] := array(select jsonb_array_elements_text(p_change -> 'groups'));
  v_by constant text := coalesce(p_by, 'a system');
  v_entry constant jsonb := jsonb_build_object('by', v_by, 'at', extract(epoch from v_now));
begin
  select * into t from tasks k
  where k.app_name = p_app and k.user_id = p_user and k.session_id = p_session and k.id = p_id for update;
  if t.state <> 'open' then
    raise exception '%', answered_text(t.id, t.state, t.decided_by, t.decided_via, t.decide_time) using errcode = 'AR410';
  elsif t.version <> p_version then
    raise exception 'The task was changed meanwhile. Read it again.' using errcode = 'AR410';
  elsif t.kind = 'child' and p_action <> 'comment' then
    raise exception '%', child_text(t.id) using errcode = 'AR410';
  elsif p_action <> 'comment' and not (
      case when p_by is null then has_no_rules(t.rules, t.assigned_users, t.assigned_groups)
           when p_vouched then not (p_by = t.user_id and coalesce(t.rules -> 'excludesRequester' = 'true', false))
           else may_answer(t.user_id, t.rules, t.assigned_users, t.assigned_groups, p_by, p_groups) end) then
    raise exception 'Others have to answer task %.', t.id using errcode = 'AR403';
  end if;
  case p_action
    when 'answer' then
      if t.approvals @> jsonb_build_array(jsonb_build_object('by', v_by)) then
        raise exception '% has said yes. Another person has to.', v_by using errcode = 'AR410';
      end if;
      t.approvals := t.approvals || v_entry;
    when 'settle' then
      if (t.rules ->> 'approvals')::integer > 1 then
        raise exception 'Others have to answer task %.', t.id using errcode = 'AR403';
      end if;
    when 'assign' then
      if not p_vouched and not (v_users <@ (t.assigned_users || v_by) and v_groups <@ t.assigned_groups) then
        raise exception 'A user assigns task % to itself, or to those who may answer it by now.', t.id using errcode = 'AR403';
      end if;
      t.assigned_users := v_users;
      t.assigned_groups := v_groups;
      t.token_hash := null;
      t.token_expire_time := null;
    when 'comment' then
      if jsonb_array_length(t.comments) >= 50 then
        raise exception 'Task % has 50 comments.', t.id using errcode = 'AR410';
      end if;
      t.comments := t.comments || (v_entry || jsonb_build_object('text', p_change -> 'text'));
    when 'address' then
      if t.kind not in ('signal', 'call') or not has_no_rules(t.rules, t.assigned_users, t.assigned_groups) then
        raise exception 'Task % waits for a person, so it has no public address.', t.id using errcode = 'AR410';
      end if;
      t.token_hash := p_change ->> 'tokenHash';
      t.token_expire_time := v_now + (p_change ->> 'seconds')::integer * interval '1 second';
    when 'postpone' then
      t.expire_time := v_now + (p_change ->> 'seconds')::integer * interval '1 second';
      t.due_time := next_due(t.create_time, t.expire_time, t.rules, t.reminders);
    when 'reject' then
      -- Also as the 51st, so that a full list does not prevent a rejection.
      if p_change ? 'text' then
        t.comments := t.comments || (v_entry || jsonb_build_object('text', p_change -> 'text'));
      end if;
    else null;
  end case;
  if p_action in ('reject', 'settle')
     or p_action = 'answer' and jsonb_array_length(t.approvals) >= coalesce((t.rules ->> 'approvals')::integer, 1) then
    t.state := 'answered';
    t.answer := p_change -> 'response';
    t.decided_by := v_by;
    t.decided_via := p_change ->> 'via';
    t.decide_time := v_now;
    t.due_time := v_now;
  end if;
  update tasks k set
    state = t.state, approvals = t.approvals, assigned_users = t.assigned_users, assigned_groups = t.assigned_groups,
    comments = t.comments, expire_time = t.expire_time, due_time = t.due_time, answer = t.answer,
    decided_by = t.decided_by, decided_via = t.decided_via, decide_time = t.decide_time, token_hash = t.token_hash,
    token_expire_time = t.token_expire_time, version = t.version + 1
  where k.app_name = p_app and k.user_id = p_user and k.session_id = p_session and k.id = p_id;
end $$;
comment on function change_task is 'Answers, rejects, settles, assigns, comments or postpones an open task, or creates its public address.';

-- wake_task: handles a due task. An open task is due for a reminder or at its deadline. An answered task is due to
-- queue its invocation, which any process then resumes with all answers. Idempotent: if several processes handle the
-- same task, one of them does the work.
--
--   1. Lock the task. Stop if another process has locked it or it is no longer due.
--   2. If the task is open: send a reminder; at the deadline assign other people (escalateTo) or, without such a rule,
--      store an answer in place of a person.
--   3. If the task is answered: lock the invocation, so that of concurrent answers the last sees all others. If its row
--      is locked, the task stays due. If other calls of the invocation are open, do nothing, because their last answer
--      reaches this step too. If the invocation still runs, try again in a second. Otherwise queue the invocation with
--      its original request, with the trace context of its last run and the kind of this task, for the next run's trace.
--
-- Locks: tasks, then invocations without waiting, because a claim locks them in the opposite order.
-- woke: true if this call queued the invocation.
create or replace function wake_task(p_app text, p_user text, p_session text, p_id text, out woke boolean) language plpgsql as $$
declare
  -- The token is in a variable, because a distributed database allows no volatile function in an update.
  v_token constant uuid := gen_random_uuid();
  t record;
  v_now constant timestamptz := clock_timestamp();
  v_status text;
  v_message jsonb;
begin
  woke := false;
  -- 1
  select * into t from tasks k
  where k.app_name = p_app and k.user_id = p_user and k.session_id = p_session and k.id = p_id and k.due_time <= v_now
  for update skip locked;
  if not found then return; end if;
  -- 2
  if t.state = 'open' then
    if t.expire_time is null or t.expire_time > v_now then
      -- No reminder is due if a stored signal made the task due and did not fit.
      t.reminders := t.reminders + coalesce(
        t.create_time + (t.rules #>> array['remindAfter', t.reminders::text])::float8 * interval '1 second' <= v_now, false
      )::integer;
    elsif t.rules ? 'escalateTo' then
      t.assigned_users := '{}';
      t.assigned_groups := array(select jsonb_array_elements_text(t.rules -> 'escalateTo'));
      t.token_hash := null;
      t.rules := t.rules - 'escalateTo';
      t.expire_time := v_now + (t.expire_time - t.create_time);
    else
      t.state := 'answered';
      t.answer := case when t.kind = 'budget' then '{"goesOn": true}'
                       when t.kind = 'sleep' then jsonb_build_object('woken', 'on time', 'at', v_now)
                       when t.rules ? 'defaultAnswer' then t.rules -> 'defaultAnswer'
                       when t.kind in ('confirmation', 'effect') then '{"confirmed": false}'
                       else jsonb_build_object('error', 'No answer came in time.', 'at', v_now) end;
    end if;
    update tasks k set
      reminders = t.reminders, assigned_users = t.assigned_users, assigned_groups = t.assigned_groups, rules = t.rules,
      token_hash = t.token_hash, expire_time = t.expire_time, due_time = case when t.state = 'open' then next_due(t.create_time, t.expire_time, t.rules, t.reminders) else v_now end,
      state = t.state, answer = t.answer, version = k.version + 1,
      decided_via = case when t.state = 'answered' then 'deadline' end,
      decide_time = case when t.state = 'answered' then v_now end
    where k.app_name = p_app and k.user_id = p_user and k.session_id = p_session and k.id = p_id;
    if t.state = 'open' then return; end if;
  end if;
  -- 3
  select i.status into v_status from invocations i
  where i.app_name = p_app and i.user_id = p_user and i.session_id = p_session and i.id = t.invocation_id
  for no key update skip locked;
  if not found then return; end if;
  if exists (select from tasks k
             where k.app_name = p_app and k.user_id = p_user and k.session_id = p_session
               and k.invocation_id = t.invocation_id and k.state = 'open') then
    update tasks k set due_time = null
    where k.app_name = p_app and k.user_id = p_user and k.session_id = p_session and k.id = p_id;
    return;
  end if;
  if v_status in ('queued', 'running') then
    update tasks k set due_time = v_now + interval '1 second'
    where k.app_name = p_app and k.user_id = p_user and k.session_id = p_session and k.id = p_id;
    return;
  end if;
  -- The message is computed before the update, because a distributed database allows only immutable functions in an
  -- update.
  select jsonb_build_object('left', t.kind, 'content', jsonb_build_object('role', 'user', 'parts', jsonb_agg(
           jsonb_build_object('functionResponse', jsonb_build_object(
             'id', k.call_id, 'name', k.call_name, 'response', k.answer)) order by k.create_time, k.id))) into v_message
  from tasks k
  where k.app_name = p_app and k.user_id = p_user and k.session_id = p_session and k.invocation_id = t.invocation_id
    and k.state = 'answered';
  update tasks k set state = 'done', due_time = null
  where k.app_name = p_app and k.user_id = p_user and k.session_id = p_session and k.invocation_id = t.invocation_id
    and k.state = 'answered';
  update invocations i set
    status = 'queued', lease_token = v_token, lease_expire_time = v_now,
    -- An invocation that a budget stopped, or that waited for a child, keeps its start time, because it resumes after its
    -- last complete step, as after a crash, or ends there.
    start_time = case when t.kind in ('budget', 'child') then i.start_time end,
    stop_requested_as = case when t.kind = 'budget' and not t.answer ? 'goesOn' then 'cancelled'
                             else i.stop_requested_as end,
    -- One that waited for a child goes on with what it began with.
    request = case when t.kind = 'budget' then i.request
                   else '{"version": 1, "overrides": {}, "streaming": false}'
                        || case when t.kind = 'child' then coalesce(i.request, '{}') - 'endsBecause'
                                else (coalesce(i.request, '{}') - 'endsBecause' - 'began' - 'stateDelta') || v_message end end
  where i.app_name = p_app and i.user_id = p_user and i.session_id = p_session and i.id = t.invocation_id
    and (t.kind not in ('budget', 'child') or v_status = 'paused');
  woke := true;
end $$;
comment on function wake_task is 'Handles a due task. Queues the task''s invocation if no other call of the invocation is open.';

-- keep_signal: stores a signal until an invocation waits for it. Does not store it if an invocation of the session
-- already waits for it, or if the session has the maximum number of stored signals. p_groups: groups of the sender;
-- null for an operator's credential.
-- Locks: sessions, so that pauses and other signals of the session are serialised.
-- outcome: absent (the session does not exist), waiting (an invocation waits for the signal), full (the maximum is
-- reached) or kept (stored).
create or replace function keep_signal(
  p_app text, p_user text, p_session text, p_name text, p_payload jsonb, p_groups text[], p_max integer,
  out outcome text)
language plpgsql as $$
begin
  perform from sessions s where s.app_name = p_app and s.user_id = p_user and s.id = p_session for no key update;
  if not found then
    outcome := 'absent';
  elsif exists (select from tasks t where t.app_name = p_app and t.user_id = p_user and t.session_id = p_session
                  and t.signal_name = p_name and t.state = 'open') then
    outcome := 'waiting';
  elsif (select count(*) from signals s
         where s.app_name = p_app and s.user_id = p_user and s.session_id = p_session) >= p_max then
    outcome := 'full';
  else
    insert into signals (app_name, user_id, session_id, id, name, payload, sender_groups)
    values (p_app, p_user, p_session, gen_random_uuid(), p_name, p_payload, p_groups);
    outcome := 'kept';
  end if;
end $$;
comment on function keep_signal is 'Stores a signal until an invocation waits for it.';
