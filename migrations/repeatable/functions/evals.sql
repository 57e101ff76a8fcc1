-- next_eval_case_version: returns the next version number of an evaluation case. Evaluation sets belong to users, but
-- version numbers are unique across all users' sets with the same name, so row-level security is switched off while the
-- function reads them (agent_runtime.all_users). The function itself switches it, because only a superuser may attach
-- such a setting to a function.

create or replace function next_eval_case_version(app text, eval_set text, eval_case text) returns integer
language plpgsql stable as $$
declare
  before text := current_setting('agent_runtime.all_users', true);
  n integer;
begin
  perform set_config('agent_runtime.all_users', 'on', true);
  n := (select 1 + coalesce(max(version), 0) from eval_case_versions
        where app_name = app and eval_set_id = eval_set and eval_id = eval_case);
  perform set_config('agent_runtime.all_users', coalesce(before, ''), true);
  return n;
end $$;
comment on function next_eval_case_version is 'Returns the next version number of an evaluation case, unique across all users'' sets.';

-- eval_case_job: the id of the job of a case in an evaluation run. eval_job_user: the user of these jobs, who is the
-- requester of the run, so that requesters take turns; a name that no user can have if all of them may see the run.
create or replace function eval_case_job(p_run uuid, p_place integer, p_trial integer) returns text language sql immutable
return p_run || '.' || p_place || '.' || p_trial;
comment on function eval_case_job is 'Returns the id of the job of a case in an evaluation run.';
create or replace function eval_job_user(p_requester text) returns text language sql immutable
return coalesce(p_requester, E'\x01');
comment on function eval_job_user is 'Returns the user of the jobs of a requester''s evaluation runs.';

-- evaluation_work: what the process of a case's job goes on with: the case, its run, and the newest turn in its session.
-- Without the payload of the case, which may be megabytes, because a claim holds the lock of the kind. Two statements,
-- because on a cluster the turn may be on another node than the case.
create or replace function evaluation_work(p_app text, p_user text, p_id text) returns jsonb language plpgsql stable as $$
declare
  v_work jsonb;
  v_turn jsonb;
begin
  select jsonb_build_object(
    'appName', p_app, 'runId', r.id, 'evalSetId', r.eval_set_id, 'metrics', r.metrics, 'userSimulator', r.user_simulator,
    'modelExecutionMode', r.model_execution_mode, 'toolExecutionMode', r.tool_execution_mode,
    'isJudging', r.judged_run_id is not null,
    'place', c.place, 'trial', c.trial, 'evalId', c.eval_id, 'userId', c.session_user_id, 'sessionId', c.session_id,
    'sessionCount', c.session_count, 'lastSequence', c.last_sequence) into v_work
  from eval_run_cases c
  join eval_runs r on r.app_name = c.app_name and r.id = c.run_id
  where c.app_name = p_app and c.run_id = split_part(p_id, '.', 1)::uuid and c.place = split_part(p_id, '.', 2)::integer
    and c.trial = split_part(p_id, '.', 3)::integer and c.status = 'running';
  select jsonb_build_object('turn', (i.job ->> 'step')::integer, 'status', i.status, 'attempt', i.attempt,
                            'error', coalesce(i.error_message, '')) into v_turn
  from invocations i
  where i.app_name = p_app and i.user_id = v_work ->> 'userId' and i.session_id = v_work ->> 'sessionId'
    and i.job @> jsonb_build_object('kind', 'evaluation', 'id', p_id)
  order by (i.job ->> 'step')::integer desc limit 1;
  return v_work || jsonb_build_object('lastTurn', v_turn);
end $$;
comment on function evaluation_work is 'Returns a case that runs, with its run and its newest turn; null if it does not run any more.';

create or replace function new_eval_session() returns text language sql volatile
return 'adk-eval-session-' || gen_random_uuid();
comment on function new_eval_session is 'Returns a new id for the session of a case.';

create or replace function eval_run_counts(p_app text, p_run uuid) returns jsonb language sql stable as $$
  select jsonb_build_object(
    'total', count(*),
    'waiting', count(*) filter (where c.status = 'waiting'), 'running', count(*) filter (where c.status = 'running'),
    'errors', count(*) filter (where c.status = 'error'), 'cancelled', count(*) filter (where c.status = 'cancelled'),
    'passed', count(*) filter (where c.result ->> 'finalStatus' = 'PASSED'),
    'failed', count(*) filter (where c.result ->> 'finalStatus' = 'FAILED'),
    'notEvaluated', count(*) filter (where c.result ->> 'finalStatus' = 'NOT_EVALUATED'))
  from eval_run_cases c where c.app_name = p_app and c.run_id = p_run
$$;
comment on function eval_run_counts is 'Counts the cases of an evaluation run by status, and those that are done by their result.';

create or replace function eval_run_scores(p_app text, p_run uuid) returns jsonb language sql stable as $$
  select coalesce(jsonb_object_agg(means.name, means.mean), '{}') from (
    select m ->> 'metricName' as name, avg((m ->> 'score')::float8) as mean
    from eval_run_cases c cross join lateral jsonb_array_elements(c.result -> 'overall') m
    where c.app_name = p_app and c.run_id = p_run group by 1) means
$$;
comment on function eval_run_scores is 'Returns the mean score of each metric over the cases of an evaluation run; null for a metric without scores.';

-- advance_eval_run: starts the next cases of an evaluation run, up to its parallelism, and ends the run after its last
-- case. A case that runs has a job, which the process that runs a turn of the case keeps.
--   1. Lock the run, because two cases that end at once would each see the other one as open.
--   2. Cases start in the order of the set: the first open ones run, so those of them that wait are started. No other
--      open cases are read, which would make the time of a run quadratic in its cases.
--   3. If no case is open, end the run, and store its summary for lists.
-- A user may delete a case of another user's run, so row-level security is switched off (see next_eval_case_version).
-- Locks: eval_runs, eval_run_cases, job_lanes.
create or replace function advance_eval_run(p_app text, p_run uuid) returns void language plpgsql as $$
declare
  v_all_users text := coalesce(current_setting('agent_runtime.all_users', true), '');
  v_run record;
  v_case record;
  v_is_open boolean := false;
begin
  perform set_config('agent_runtime.all_users', 'on', true);
  -- 1
  select r.status, r.parallelism, r.requested_by into v_run from eval_runs r
  where r.app_name = p_app and r.id = p_run and r.status in ('queued', 'running') for no key update;
  if found then
    -- 2
    for v_case in
      select c.place, c.trial, c.status from eval_run_cases c
      where c.app_name = p_app and c.run_id = p_run and c.status in ('waiting', 'running')
      order by c.place, c.trial limit v_run.parallelism
    loop
      v_is_open := true;
      continue when v_case.status = 'running';
      update eval_run_cases c set
        status = 'running', session_id = coalesce(c.session_id, new_eval_session()),
        session_count = greatest(c.session_count, 1), start_time = clock_timestamp()
      where c.app_name = p_app and c.run_id = p_run and c.place = v_case.place and c.trial = v_case.trial;
      perform add_job('evaluation', p_app, eval_job_user(v_run.requested_by),
                      eval_case_job(p_run, v_case.place, v_case.trial), '');
      perform pg_notify('agent_runtime', '["evaluation"]');
    end loop;
    -- 3
    if not v_is_open then
      update eval_runs r set
        status = 'done', end_time = clock_timestamp(),
        summary = jsonb_build_object('counts', eval_run_counts(p_app, p_run), 'scores', eval_run_scores(p_app, p_run))
      where r.app_name = p_app and r.id = p_run;
    elsif v_run.status = 'queued' then
      update eval_runs r set status = 'running' where r.app_name = p_app and r.id = p_run;
    end if;
  end if;
  perform set_config('agent_runtime.all_users', v_all_users, true);
end $$;
comment on function advance_eval_run is 'Starts the next cases of an evaluation run, up to its parallelism, and ends the run after its last case.';

-- Whatever inserts, ends or deletes cases of an evaluation run: the next ones start, and the run ends after its last
-- one. A case that ends has no job any more.
create or replace function start_eval_cases() returns trigger language plpgsql as $$
begin
  perform advance_eval_run(app_name, run_id) from (select distinct app_name, run_id from added) runs;
  return null;
end $$;
comment on function start_eval_cases is 'Trigger function: cases of evaluation runs were inserted; starts the first ones.';

create or replace function end_eval_case() returns trigger language plpgsql set enable_seqscan = off as $$
begin
  delete from jobs j
  where j.app_name = old.app_name and j.user_id = eval_job_user(old.owner_id) and j.kind = 'evaluation'
    and j.id = eval_case_job(old.run_id, old.place, old.trial);
  perform advance_eval_run(old.app_name, old.run_id);
  perform pg_notify('agent_runtime', json_build_array('eval:' || old.run_id)::text);
  return null;
end $$;
comment on function end_eval_case is 'Trigger function: a case of an evaluation run has ended; starts the next one.';

create or replace function stored_tokens(p_tokens jsonb) returns float8 language sql immutable
return case jsonb_typeof(p_tokens) when 'number' then greatest(0, least(p_tokens::numeric, 1e15)) else 0 end::float8;
comment on function stored_tokens is 'Returns a stored number of tokens, at most 1e15; 0 if it is no number.';

-- uses_cost: what model uses (toUses in score.ts) cost at the present prices, by the rule of count_use. No stored value
-- makes it fail, because one result would make a whole list fail: what is no number is no tokens, and large numbers are
-- limited.
create or replace function uses_cost(p_uses jsonb) returns float8 language sql stable as $$
  select case when count(*) = count(price.prompt) then
    sum(used.prompt * price.prompt + used.output * price.output) / 1000000 end
  from jsonb_array_elements(case jsonb_typeof(p_uses) when 'array' then p_uses else '[]' end) use
  cross join lateral (
    select use ->> 'model' as model, use ->> 'answeredAs' as "answeredAs",
           stored_tokens(use -> 'promptTokens') as prompt, stored_tokens(use -> 'outputTokens') as output) used
  left join lateral (
    select m.prompt_price::float8 as prompt, m.output_price::float8 as output from model_prices m
    where m.model = '*' or starts_with(coalesce(used."answeredAs", used.model), m.model) or starts_with(used.model, m.model)
    order by m.model = '*', not starts_with(coalesce(used."answeredAs", used.model), m.model), length(m.model) desc
    limit 1) price on true
$$;
comment on function uses_cost is 'Returns what model uses cost at present prices; null if there are none, or one has no price.';
