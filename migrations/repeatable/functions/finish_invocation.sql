-- finish_invocation: ends an invocation: stores its last events, its status and its answer, and releases the session.
--
--   1. Lock and advance the session's row and clear the lease. If no row matches, the lease was lost and nothing is
--      written. No size limit applies, because the end must be stored. Before a child session lock those above it
--      (lock_family), and behind it their invocations (lock_parents): the end of the child is told to one above
--      (end_child), which may just end, pause or be cancelled.
--   2. End the invocation's row, and add the tape to it: what a replay needs besides the events (with_tape). The row gets
--      a new lease token, so that a process that was declared dead does not mistake this end for its own. Set count_time,
--      because stamp_end would count the invocation here, before the locks of step 4. Write the events' tool calls into
--      the ledger (record_calls). A call that is still open was cut off, so its outcome is unknown. There are two
--      exceptions: a call that waits at a pause has run and will be answered later, and a transactional call was rolled
--      back. Calls stay open if the invocation pauses for a child: it goes on as after a crash, so it keeps its start,
--      its time and its attempt.
--   3. Store those prompts of the tape that are not stored yet (keep_prompts).
--   4. Merge shared state and insert the events (store_events); delete the streamed chunks; charge the model usage, and
--      count the invocation if it was not counted before.
--   5. At a pause, store its tasks (open_tasks), and the request for the process that resumes the invocation. If
--      messages wait that it may take (messages_to_take) and it only sleeps, wake it (wake_by_message). If a stop was
--      requested that its process has not read, end it, as a stop that comes a moment later does.
--   6. If the application's memory is automatic, add a job that remembers the invocation.
--   7. Report whether a background invocation waits for the session, so that workers are notified.
--
-- Locks: sessions, user_storage, invocations, tool_calls, artifacts, agent_prompts by hash, user_states, app_states,
-- budget_uses, tasks, jobs; in the order of claim_session. Errors: those of append_events without AR414 and AR417, and
-- those of open_tasks.
--
-- last and lines: as in append_events. unknown: number of calls whose outcome became unknown here. is_awaited: see step
-- 7. ended: the times (Unix seconds) and counts of the invocation's row, and the status if that is another one, for
-- followers in the finishing process.
create or replace function finish_invocation(
  p_app text, p_user text, p_session text, p_invocation text, p_token uuid, p_new_token uuid,
  p_status text, p_answer text, p_error_code text, p_error_message text,
  p_llm_calls integer, p_tool_calls integer, p_prompt_tokens integer, p_output_tokens integer, p_models jsonb,
  p_calls jsonb, p_tasks jsonb, p_tape jsonb, p_prompts jsonb, p_has_deltas boolean, p_events jsonb, p_delta jsonb,
  p_first_text text, p_remembers boolean, p_limits jsonb,
  out last integer, out lines text, out unknown integer, out is_awaited boolean, out ended json)
language plpgsql as $$
declare
  v_sizes integer[] := event_sizes(p_events);
  v_changed timestamptz;
  v_is_steered boolean;
  -- In a variable, because a distributed database allows none but immutable functions in coalesce.
  v_now constant timestamptz := statement_timestamp();
  v_seconds constant float8 := extract(epoch from v_now);
  v_failed_calls constant integer := failed_calls(p_events);
  v_agent text := nullif(p_events -> -1 ->> 'author', 'user');
  v_row record;
  v_parent text;
  v_waits_for_child constant boolean := coalesce(p_tasks @> '[{"kind": "child"}]', false);
begin
  -- 1
  perform lock_family(p_app, p_user, p_session);
  update sessions s set
    lease_token = null,
    last_sequence = s.last_sequence + cardinality(v_sizes),
    event_bytes = s.event_bytes + total_size(v_sizes),
    first_text = coalesce(nullif(s.first_text, ''), p_first_text, ''),
    state = case when p_delta ? 'session' then limited_state(s.state || (p_delta -> 'session'), p_limits) else s.state end,
    update_time = next_time(s.update_time, statement_timestamp())
  where s.app_name = p_app and s.user_id = p_user and s.id = p_session and s.lease_token = p_token
  returning s.last_sequence, s.update_time, s.is_steered, s.parent_session_id into last, v_changed, v_is_steered, v_parent;
  if not found then return; end if;
  if v_parent is not null then perform lock_parents(p_app, p_user, p_session); end if;
  -- 2
  if p_events = '[]' then
    v_agent := (
      select nullif(e.author, 'user') from events e
      where e.app_name = p_app and e.user_id = p_user and e.session_id = p_session and e.sequence = last);
  end if;
  update invocations i set
    status = p_status, lease_token = coalesce(p_new_token, i.lease_token),
    end_time = greatest(i.start_time, statement_timestamp()), response_body = p_answer,
    tapes = with_tape(i.tapes, p_tape), count_time = coalesce(i.count_time, v_now),
    request = case when v_waits_for_child and i.request ? 'began'
                   then jsonb_set(i.request, '{began,spentMs}',
                                  (1000 * (v_seconds::numeric - (i.request #>> '{began,at}')::numeric))::text::jsonb)
                   when p_status = 'paused' then i.request
                   -- What it has lent counts for its parent.
                   when i.request ? 'child' and i.request ? 'loans' then jsonb_set('{}', '{loans}', i.request -> 'loans') end,
    attempt = i.attempt - v_waits_for_child::integer,
    waits_for_tasks = case when p_status = 'paused' then p_tasks is not null end,
    error_code = p_error_code, error_message = p_error_message, agent = coalesce(v_agent, i.agent),
    first_text = coalesce(i.first_text, p_first_text),
    llm_calls = i.llm_calls + p_llm_calls, tool_calls = i.tool_calls + p_tool_calls,
    prompt_tokens = i.prompt_tokens + p_prompt_tokens, output_tokens = i.output_tokens + p_output_tokens,
    failed_calls = i.failed_calls + v_failed_calls, model_tokens = with_tokens(i.model_tokens, p_models),
    work_ms = i.work_ms + greatest(0, 1000 * (v_seconds - coalesce((i.request #>> '{began,at}')::float8, v_seconds)))::integer
  where i.app_name = p_app and i.user_id = p_user and i.session_id = p_session and i.id = p_invocation
    and i.lease_token = p_token
  returning i.create_time, i.start_time, i.end_time, i.llm_calls, i.tool_calls, i.prompt_tokens, i.output_tokens,
            i.failed_calls, i.work_ms,
            case when i.count_time = v_now then 1 else 0 end as invocations, i.stop_requested_as
  into v_row;
  ended := json_strip_nulls(json_build_object(
    'createTime', extract(epoch from v_row.create_time), 'startTime', extract(epoch from v_row.start_time),
    'endTime', extract(epoch from v_row.end_time), 'llmCalls', v_row.llm_calls, 'toolCalls', v_row.tool_calls,
    'promptTokens', v_row.prompt_tokens, 'outputTokens', v_row.output_tokens,
    'failedToolCalls', nullif(v_row.failed_calls, 0), 'workSeconds', v_row.work_ms::float8 / 1000));
  if p_calls is not null then perform record_calls(p_app, p_user, p_session, p_invocation, p_calls); end if;
  if v_row.tool_calls > 0 and not v_waits_for_child then
    with cut_off as (
      update tool_calls t set
        state = case when p_status = 'paused' or t.effect = 'transactional' then 'done' else 'unknown' end,
        update_time = statement_timestamp()
      where t.app_name = p_app and t.user_id = p_user and t.session_id = p_session and t.invocation_id = p_invocation
        and t.state = 'started'
      returning t.state)
    select count(*) filter (where cut_off.state = 'unknown') into unknown from cut_off;
  end if;
  -- 3
  if p_prompts is not null then perform keep_prompts(p_app, p_prompts); end if;
  -- 4
  lines := store_events(p_app, p_user, p_session, p_events, v_sizes, p_delta, true, p_limits, last, v_changed, true);
  if p_has_deltas then
    delete from event_deltas d where d.app_name = p_app and d.user_id = p_user and d.session_id = p_session;
  end if;
  if v_row.invocations > 0 or p_models is not null then
    perform count_use(p_app, p_user, coalesce(v_row.invocations, 0), p_models);
  end if;
  -- 5
  if p_tasks is not null then
    perform open_tasks(p_app, p_user, p_session, p_invocation, p_tasks, (p_limits ->> 'openTasks')::integer);
    if v_is_steered and exists (
      select from messages_to_take(p_app, p_user, p_session, p_invocation, p_limits -> 'keys')) then
      perform wake_by_message(p_app, p_user, p_session);
    end if;
  end if;
  if p_status = 'paused' and v_row.stop_requested_as is not null then
    perform stop_invocation(p_app, p_user, p_session, p_invocation, v_row.stop_requested_as, format('The invocation was %s.', v_row.stop_requested_as));
    ended := ended::jsonb || jsonb_build_object('status', v_row.stop_requested_as);
  end if;
  -- 6
  if p_remembers then
    perform add_job('memory', p_app, p_user, json_build_array(p_session, p_invocation)::text, '');
  end if;
  -- 7
  is_awaited := exists (
    select from invocations w
    where w.app_name = p_app and w.user_id = p_user and w.session_id = p_session and w.status = 'queued'
      and w.request is not null);
end $$;
comment on function finish_invocation is 'Ends an invocation: stores its last events, status and answer, and releases the session.';

-- with_tape: adds a tape to those of an invocation's earlier runs. Once these take more than 256 KiB as stored, no tape is
-- added, because each end and pause rewrites all of them: an agent that sleeps in a loop would write ever more. A replay
-- does not compare what the models of the later runs were given.
-- IMMUTABLE, although the size depends on compression, because a distributed database allows no other function in an
-- update. In PL/pgSQL, because pg_column_size then reads the size of tapes that are stored out of line, not the tapes.
create or replace function with_tape(p_tapes jsonb, p_tape jsonb) returns jsonb language plpgsql immutable as $$
begin
  if p_tape is null or pg_column_size(p_tapes) > 262144 then return p_tapes; end if;
  return coalesce(p_tapes, '[]') || p_tape;
end $$;
comment on function with_tape is 'Adds a tape to those of an invocation, unless these are more than 256 KiB.';

-- keep_prompts: stores prompts of tapes that are not stored yet.
-- p_prompts: [{"hash", "payload"}], ordered by hash, so that all transactions lock the prompts in the same order.
create or replace function keep_prompts(p_app text, p_prompts jsonb) returns void language plpgsql as $$
declare
  v_prompt jsonb;
  v_stale timestamptz := statement_timestamp() - interval '1 day';
begin
  for v_prompt in select * from jsonb_array_elements(p_prompts) loop
    insert into agent_prompts as a (app_name, hash, payload)
    values (p_app, v_prompt ->> 'hash', v_prompt -> 'payload')
    on conflict (app_name, hash) do update set use_time = excluded.use_time
    where a.use_time < v_stale;
  end loop;
end $$;
comment on function keep_prompts is 'Stores prompts of tapes that are not stored yet.';
