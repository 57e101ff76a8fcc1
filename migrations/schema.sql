-- The schema as the migrations make it, to read and to compare. Written by npm run db:dump.

create schema inspect;

create schema inspect_outline;

create table agent_prompts (
  app_name text collate "C" not null,
  hash text not null,
  payload jsonb not null,
  use_time timestamp(6) with time zone default clock_timestamp() not null
);

create table agent_runtime_migrations (
  name text collate "C" not null,
  hash text not null,
  apply_time timestamp(6) with time zone default clock_timestamp() not null
);

create table agent_versions (
  app_name text collate "C" not null,
  digest text not null,
  definition jsonb not null,
  create_time timestamp(6) with time zone default clock_timestamp() not null
);

create table app_states (
  app_name text collate "C" not null,
  state jsonb not null,
  writers jsonb default '{}'::jsonb not null,
  update_time timestamp(6) with time zone default clock_timestamp() not null
);

create table artifact_versions (
  app_name text collate "C" not null,
  user_id text collate "C" not null,
  session_id text collate "C" not null,
  artifact_name text collate "C" not null,
  version integer not null,
  canonical_uri text not null,
  mime_type text,
  custom_metadata jsonb default '{}'::jsonb not null,
  part jsonb not null,
  content bytea,
  object_key text,
  size_bytes integer not null,
  sha256 bytea not null,
  create_time timestamp(6) with time zone default clock_timestamp() not null
);

create table artifacts (
  app_name text collate "C" not null,
  user_id text collate "C" not null,
  session_id text collate "C" not null,
  name text collate "C" not null,
  next_version integer not null
);

create table audit_log (
  id bigint not null,
  "time" timestamp(6) with time zone default clock_timestamp() not null,
  caller_kind text not null,
  caller text,
  address text,
  operation text,
  resource jsonb not null,
  decision text not null,
  reason text,
  request_id text not null,
  left_out integer default 0 not null
);

create table budget_alerts (
  app_name text collate "C" not null,
  user_id text collate "C" not null,
  applies_to text not null,
  period text not null,
  since date not null,
  level smallint not null
);

create table budget_reservations (
  app_name text collate "C" not null,
  user_id text collate "C" not null,
  id uuid not null,
  tokens bigint not null,
  cost numeric not null,
  expire_time timestamp(6) with time zone not null
);

create table budget_totals (
  app_name text collate "C" not null,
  since date not null,
  shard smallint not null,
  invocations bigint not null,
  tokens bigint not null,
  cost numeric not null
);

create table budget_uses (
  app_name text collate "C" not null,
  user_id text collate "C" not null,
  day date not null,
  shard smallint not null,
  invocations bigint not null,
  prompt_tokens bigint not null,
  output_tokens bigint not null,
  cost numeric not null
);

create table budgets (
  app_name text collate "C" not null,
  user_id text collate "C" not null,
  applies_to text not null,
  period text not null,
  max_invocations bigint,
  max_tokens bigint,
  max_cost numeric,
  webhook_id text,
  update_time timestamp(6) with time zone default clock_timestamp() not null
);

create table cronjobs (
  app_name text collate "C" not null,
  user_id text collate "C" not null,
  id text collate "C" not null,
  name text not null,
  prompt text not null,
  harness jsonb,
  schedule jsonb not null,
  enabled boolean not null,
  disabled_reason text,
  session_policy text not null,
  session_id text collate "C",
  missed_runs text not null,
  overlap text not null,
  max_attempts integer not null,
  retry_pause_seconds integer not null,
  max_retry_pause_seconds integer not null,
  timeout_seconds integer,
  until timestamp(6) with time zone,
  max_runs integer,
  max_failures integer not null,
  webhook_url text,
  next_run_time timestamp(6) with time zone,
  run_count integer default 0 not null,
  failure_count integer default 0 not null,
  revision integer default 1 not null,
  create_time timestamp(6) with time zone default clock_timestamp() not null,
  update_time timestamp(6) with time zone default clock_timestamp() not null
);

create table eval_case_versions (
  app_name text collate "C" not null,
  eval_set_id text collate "C" not null,
  eval_id text collate "C" not null,
  version integer not null,
  hash text not null,
  payload jsonb not null,
  owner_id text collate "C",
  create_time timestamp(6) with time zone default clock_timestamp() not null
);

create table eval_cases (
  app_name text collate "C" not null,
  eval_set_id text collate "C" not null,
  id text collate "C" not null,
  version integer not null,
  source_user_id text collate "C",
  source_session_id text collate "C",
  owner_id text collate "C",
  create_time timestamp(6) with time zone default clock_timestamp() not null
);

create table eval_run_cases (
  app_name text collate "C" not null,
  run_id uuid not null,
  place integer not null,
  trial integer not null,
  eval_set_id text collate "C" not null,
  eval_id text collate "C" not null,
  case_version integer not null,
  status text default 'waiting'::text not null,
  session_user_id text collate "C" not null,
  owner_id text collate "C",
  session_id text collate "C",
  session_count integer default 0 not null,
  last_sequence integer,
  failed_turn integer,
  error text,
  result jsonb,
  start_time timestamp(6) with time zone,
  end_time timestamp(6) with time zone
);

create table eval_runs (
  app_name text collate "C" not null,
  id uuid not null,
  eval_set_id text collate "C" not null,
  requested_by text collate "C",
  judged_run_id uuid,
  status text default 'queued'::text not null,
  metrics jsonb not null,
  user_simulator jsonb,
  model_execution_mode text default 'live'::text not null,
  tool_execution_mode text default 'live'::text not null,
  trials integer not null,
  parallelism integer not null,
  max_judge_tokens bigint default 10000000 not null,
  judge_tokens bigint default 0 not null,
  agent_hash text not null,
  model_name text not null,
  result_time timestamp(6) with time zone not null,
  summary jsonb,
  create_time timestamp(6) with time zone default clock_timestamp() not null,
  end_time timestamp(6) with time zone
);

create table eval_session_scores (
  app_name text collate "C" not null,
  user_id text collate "C" not null,
  session_id text collate "C" not null,
  last_sequence integer not null,
  metrics_hash text not null,
  rule_id text collate "C",
  invocation_id text collate "C",
  result jsonb not null,
  create_time timestamp(6) with time zone default clock_timestamp() not null
);

create table eval_sets (
  app_name text collate "C" not null,
  id text collate "C" not null,
  owner_id text collate "C",
  name text,
  description text,
  model_execution_mode text,
  tool_execution_mode text,
  create_time timestamp(6) with time zone default clock_timestamp() not null
);

create table eval_verdicts (
  app_name text collate "C" not null,
  user_id text collate "C" not null,
  session_id text collate "C" not null,
  turn integer not null,
  metric_name text collate "C" not null,
  author text collate "C" not null,
  passed boolean not null,
  comment text,
  create_time timestamp(6) with time zone default clock_timestamp() not null
);

create table event_deltas (
  app_name text collate "C" not null,
  user_id text collate "C" not null,
  session_id text collate "C" not null,
  number bigint not null,
  lease_token uuid not null,
  event_id text collate "C" not null,
  payload text not null
);

create table events (
  app_name text collate "C" not null,
  user_id text collate "C" not null,
  session_id text collate "C" not null,
  sequence integer not null,
  id text collate "C" not null,
  invocation_id text collate "C" not null,
  author text not null,
  event_time timestamp(6) with time zone not null,
  is_from_runtime boolean default false not null,
  payload jsonb not null,
  bytes integer not null
);

create table idempotency_keys (
  app_name text collate "C" not null,
  user_id text collate "C" not null,
  scope text collate "C" not null,
  key text collate "C" not null,
  request_hash text not null,
  response_body text not null,
  session_id text collate "C",
  create_time timestamp(6) with time zone default clock_timestamp() not null
);

create table invocation_tapes (
  app_name text collate "C" not null,
  user_id text collate "C" not null,
  session_id text collate "C" not null,
  invocation_id text collate "C" not null,
  start integer not null,
  payload jsonb not null
);

create table invocations (
  app_name text collate "C" not null,
  user_id text collate "C" not null,
  session_id text collate "C" not null,
  id text collate "C" not null,
  status text not null,
  lease_token uuid not null,
  lease_expire_time timestamp(6) with time zone not null,
  idempotency_key text collate "C",
  request_hash text,
  request jsonb,
  job jsonb,
  agent_version text,
  attempt smallint default 1 not null,
  webhook_url text,
  response_body text,
  error_code text,
  error_message text,
  stop_requested_as text,
  tool_calls integer default 0 not null,
  llm_calls integer default 0 not null,
  prompt_tokens integer default 0 not null,
  output_tokens integer default 0 not null,
  create_time timestamp(6) with time zone default clock_timestamp() not null,
  start_time timestamp(6) with time zone,
  end_time timestamp(6) with time zone,
  stop_request_time timestamp(6) with time zone,
  not_before timestamp(6) with time zone,
  cronjob_id text collate "C",
  run_id text collate "C",
  due_time timestamp(6) with time zone,
  is_manual boolean,
  try smallint,
  first_end_time timestamp(6) with time zone
);

create table job_lanes (
  app_name text collate "C" not null,
  user_id text collate "C" not null,
  kind text collate "C" not null,
  lane text collate "C" not null,
  turn_time timestamp(6) with time zone not null,
  blocked_by text collate "C",
  half_open boolean default false not null
);

create table jobs (
  app_name text collate "C" not null,
  user_id text collate "C" not null,
  kind text collate "C" not null,
  id text collate "C" not null,
  lane text collate "C" not null,
  due_time timestamp(6) with time zone not null,
  attempt integer default 0 not null,
  losses smallint default 0 not null,
  lease_token uuid,
  lease_expire_time timestamp(6) with time zone,
  create_time timestamp(6) with time zone default clock_timestamp() not null
);

create table legal_holds (
  app_name text collate "C" not null,
  user_id text collate "C" not null,
  session_id text collate "C" not null,
  reason text not null,
  create_time timestamp(6) with time zone default clock_timestamp() not null
);

create table memories (
  app_name text collate "C" not null,
  user_id text collate "C" not null,
  session_id text collate "C" not null,
  event_id text collate "C" not null,
  author text not null,
  content jsonb not null,
  event_time timestamp(6) with time zone not null,
  search_vector tsvector not null,
  embedding real[],
  embedding_model text
);

create table model_prices (
  model text collate "C" not null,
  prompt_price numeric not null,
  output_price numeric not null,
  update_time timestamp(6) with time zone default clock_timestamp() not null
);

create table rate_limits (
  key character varying(255) not null,
  points integer default 0 not null,
  expire bigint
);

create table score_rules (
  app_name text collate "C" not null,
  id text collate "C" not null,
  share double precision not null,
  quiet_minutes integer,
  definition jsonb not null,
  day date,
  scored integer default 0 not null,
  skipped bigint default 0 not null,
  update_time timestamp(6) with time zone default clock_timestamp() not null
);

create table session_verdicts (
  app_name text collate "C" not null,
  user_id text collate "C" not null,
  session_id text collate "C" not null,
  event_id text collate "C" not null,
  author text collate "C" not null,
  passed boolean,
  label text collate "C",
  comment text,
  create_time timestamp(6) with time zone default clock_timestamp() not null
);

create table sessions (
  app_name text collate "C" not null,
  user_id text collate "C" not null,
  id text collate "C" not null,
  state jsonb default '{}'::jsonb not null,
  initial_state jsonb default '{}'::jsonb not null,
  last_sequence integer default 0 not null,
  event_bytes bigint default 0 not null,
  events_version integer default 0 not null,
  is_eval boolean default false not null,
  labels jsonb default '{}'::jsonb not null,
  first_text text default ''::text not null,
  forked_from_id text collate "C",
  forked_from_sequence integer,
  lease_token uuid,
  create_time timestamp(6) with time zone default clock_timestamp() not null,
  update_time timestamp(6) with time zone default clock_timestamp() not null
);

create table signals (
  app_name text collate "C" not null,
  user_id text collate "C" not null,
  session_id text collate "C" not null,
  id text collate "C" not null,
  name text collate "C" not null,
  payload jsonb not null,
  sender_groups text[],
  create_time timestamp(6) with time zone default clock_timestamp() not null
);

create table skipped_runs (
  app_name text collate "C" not null,
  user_id text collate "C" not null,
  cronjob_id text collate "C" not null,
  id text collate "C" not null,
  due_time timestamp(6) with time zone not null,
  tries smallint default 0 not null,
  reason text not null,
  create_time timestamp(6) with time zone default clock_timestamp() not null,
  end_time timestamp(6) with time zone default clock_timestamp() not null
);

create table spans (
  app_name text collate "C" not null,
  user_id text collate "C" not null,
  session_id text collate "C" not null,
  trace_id text collate "C" not null,
  id text collate "C" not null,
  parent_id text collate "C",
  event_id text collate "C",
  name text not null,
  start_ns bigint not null,
  end_ns bigint not null,
  attributes jsonb not null,
  create_time timestamp(6) with time zone default clock_timestamp() not null
);

create table tasks (
  app_name text collate "C" not null,
  user_id text collate "C" not null,
  session_id text collate "C" not null,
  id text collate "C" not null,
  invocation_id text collate "C" not null,
  call_id text collate "C" not null,
  call_name text not null,
  kind text not null,
  state text default 'open'::text not null,
  form jsonb not null,
  rules jsonb default '{}'::jsonb not null,
  assigned_users text[] default '{}'::text[] not null,
  assigned_groups text[] default '{}'::text[] not null,
  approvals jsonb default '[]'::jsonb not null,
  comments jsonb default '[]'::jsonb not null,
  signal_name text collate "C",
  token_hash text,
  token_expire_time timestamp(6) with time zone,
  expire_time timestamp(6) with time zone,
  due_time timestamp(6) with time zone,
  reminders smallint default 0 not null,
  answer jsonb,
  decided_by text,
  decided_via text,
  decide_time timestamp(6) with time zone,
  version integer default 1 not null,
  create_time timestamp(6) with time zone default clock_timestamp() not null
);

create table tool_calls (
  app_name text collate "C" not null,
  user_id text collate "C" not null,
  session_id text collate "C" not null,
  invocation_id text collate "C" not null,
  call_id text collate "C" not null,
  operation_id uuid not null,
  tool text not null,
  effect text not null,
  state text not null,
  attempt smallint default 1 not null,
  response jsonb,
  create_time timestamp(6) with time zone default clock_timestamp() not null,
  update_time timestamp(6) with time zone default clock_timestamp() not null
);

create table user_credentials (
  app_name text collate "C" not null,
  user_id text collate "C" not null,
  resource text collate "C" not null,
  grant_sealed text,
  lease_expire_time timestamp(6) with time zone,
  consent_sealed text,
  consent_session_id text collate "C",
  consent_state_hash bytea,
  consent_expire_time timestamp(6) with time zone,
  update_time timestamp(6) with time zone default clock_timestamp() not null
);

create table user_erasures (
  app_name text collate "C" not null,
  user_id text collate "C" not null,
  counts jsonb default '{}'::jsonb not null,
  webhook_id text,
  create_time timestamp(6) with time zone default clock_timestamp() not null,
  update_time timestamp(6) with time zone default clock_timestamp() not null
);

create table user_states (
  app_name text collate "C" not null,
  user_id text collate "C" not null,
  state jsonb not null,
  update_time timestamp(6) with time zone default clock_timestamp() not null
);

create table user_storage (
  app_name text collate "C" not null,
  user_id text collate "C" not null,
  shard smallint not null,
  event_bytes bigint not null,
  artifact_bytes bigint not null,
  memory_bytes bigint not null
);

create table webhook_deliveries (
  app_name text collate "C" not null,
  user_id text collate "C" not null,
  id text collate "C" not null,
  webhook_id text collate "C" not null,
  host text not null,
  payload text not null,
  status text not null,
  attempt integer default 0 not null,
  retry_end_time timestamp(6) with time zone not null,
  answers jsonb default '[]'::jsonb not null,
  create_time timestamp(6) with time zone default clock_timestamp() not null,
  end_time timestamp(6) with time zone
);

create table webhooks (
  app_name text collate "C" not null,
  user_id text collate "C" not null,
  id text collate "C" not null,
  url text not null,
  host text not null,
  includes_output boolean not null,
  secret text not null,
  old_secret text,
  old_secret_expire_time timestamp(6) with time zone,
  is_silent boolean default true not null,
  push jsonb,
  create_time timestamp(6) with time zone default clock_timestamp() not null
);

CREATE OR REPLACE FUNCTION public.add_delivery_job()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
begin
  perform add_job('delivery', new.app_name, new.user_id, new.id, new.host, (
    select w.is_silent from webhooks w
    where w.app_name = new.app_name and w.user_id = new.user_id and w.id = new.webhook_id for share));
  return null;
end $function$;

CREATE OR REPLACE FUNCTION public.add_job(p_kind text, p_app text, p_user text, p_id text, p_lane text, p_half_open boolean DEFAULT false, p_due timestamp with time zone DEFAULT clock_timestamp())
 RETURNS void
 LANGUAGE plpgsql
AS $function$
begin
  perform add_job_lane(p_kind, p_app, p_user, p_lane, p_due, p_half_open);
  insert into jobs (kind, app_name, user_id, id, lane, due_time) values (p_kind, p_app, p_user, p_id, p_lane, p_due)
  on conflict (app_name, user_id, kind, id) do update set attempt = 0;
end $function$;

CREATE OR REPLACE FUNCTION public.add_job_lane(p_kind text, p_app text, p_user text, p_lane text, p_due timestamp with time zone, p_half_open boolean)
 RETURNS void
 LANGUAGE plpgsql
 SET enable_seqscan TO 'off'
AS $function$
declare
  v_lane record;
begin
  loop
    select l.turn_time, l.half_open into v_lane from job_lanes l
    where l.app_name = p_app and l.user_id = p_user and l.kind = p_kind and l.lane = p_lane for key share;
    exit when found;
    insert into job_lanes (kind, app_name, user_id, lane, turn_time, half_open)
    values (p_kind, p_app, p_user, p_lane, p_due, p_half_open) on conflict do nothing;
    if found then return; end if;  -- else another transaction has just inserted the lane
  end loop;
  if v_lane.turn_time > p_due then
    update job_lanes l set turn_time = p_due
    where l.app_name = p_app and l.user_id = p_user and l.kind = p_kind and l.lane = p_lane and l.turn_time > p_due;
  end if;
  if v_lane.half_open and not p_half_open then
    update job_lanes l set half_open = false
    where l.app_name = p_app and l.user_id = p_user and l.kind = p_kind and l.lane = p_lane;
  end if;
end $function$;

CREATE OR REPLACE FUNCTION public.add_score_jobs(ended invocations)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
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
end $function$;

CREATE OR REPLACE FUNCTION public.add_user_bytes(p_app text, p_user text, p_events bigint, p_artifacts bigint, p_memories bigint)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
begin
  if p_events = 0 and p_artifacts = 0 and p_memories = 0 then return; end if;
  insert into user_storage as u (app_name, user_id, shard, event_bytes, artifact_bytes, memory_bytes)
  values (p_app, p_user, pg_backend_pid() % 32, p_events, p_artifacts, p_memories)
  on conflict (app_name, user_id, shard) do update set
    event_bytes = u.event_bytes + excluded.event_bytes, artifact_bytes = u.artifact_bytes + excluded.artifact_bytes,
    memory_bytes = u.memory_bytes + excluded.memory_bytes;
end $function$;

CREATE OR REPLACE FUNCTION public.advance_eval_run(p_app text, p_run uuid)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
declare
  v_all_users text := coalesce(current_setting('agent_runtime.all_users', true), '');
  v_run record;
  v_case record;
  v_running integer;
begin
  perform set_config('agent_runtime.all_users', 'on', true);
  -- 1
  select r.status, r.parallelism, r.requested_by into v_run from eval_runs r
  where r.app_name = p_app and r.id = p_run and r.status in ('queued', 'running') for no key update;
  if found then
    -- 2
    v_running := (select count(*) from eval_run_cases c
                  where c.app_name = p_app and c.run_id = p_run and c.status = 'running');
    for v_case in
      with next as materialized (
        select c.place, c.trial from eval_run_cases c
        where c.app_name = p_app and c.run_id = p_run and c.status = 'waiting'
        order by c.place, c.trial limit greatest(0, v_run.parallelism - v_running))
      update eval_run_cases c set
        status = 'running', session_id = coalesce(c.session_id, new_eval_session()),
        session_count = greatest(c.session_count, 1), start_time = clock_timestamp()
      from next n where c.app_name = p_app and c.run_id = p_run and c.place = n.place and c.trial = n.trial
      returning c.place, c.trial
    loop
      v_running := v_running + 1;
      perform add_job('evaluation', p_app, eval_job_user(v_run.requested_by),
                      eval_case_job(p_run, v_case.place, v_case.trial), '');
      perform pg_notify('agent_runtime', '["evaluation"]');
    end loop;
    -- 3
    if v_running = 0 then
      update eval_runs r set
        status = 'done', end_time = clock_timestamp(),
        summary = jsonb_build_object('counts', eval_run_counts(p_app, p_run), 'scores', eval_run_scores(p_app, p_run))
      where r.app_name = p_app and r.id = p_run;
    elsif v_run.status = 'queued' then
      update eval_runs r set status = 'running' where r.app_name = p_app and r.id = p_run;
    end if;
  end if;
  perform set_config('agent_runtime.all_users', v_all_users, true);
end $function$;

CREATE OR REPLACE FUNCTION public.alert_budgets(p_app text, p_user text)
 RETURNS void
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'public', 'pg_temp'
AS $function$
declare
  v_alert record;
  v_before text := current_setting('agent_runtime.all_users', true);
begin
  perform assert_own_user(p_user);
  if not exists (select from budgets b where b.app_name = p_app and b.webhook_id is not null) then return; end if;
  -- Set in the body, because only a superuser may attach the setting agent_runtime.all_users to a function.
  perform set_config('agent_runtime.all_users', 'on', true);
  for v_alert in
    with reached as (
      select b.*, case when b.applies_to = 'app' then '' else p_user end as user_id, (
          select max(each) from unnest(array[50, 80, 100]) each
          where b.invocations * 100 >= each * b.max_invocations or b.tokens * 100 >= each * b.max_tokens
             or b.cost * 100 >= each * b.max_cost) as level
      from budgets_for(p_app, p_user) b where b.webhook_id is not null),
    noted as (
      insert into budget_alerts as a (app_name, user_id, applies_to, period, since, level)
      select p_app, r.user_id, r.applies_to, r.period, r.since, r.level from reached r where r.level is not null
      on conflict (app_name, user_id, applies_to, period) do update set since = excluded.since, level = excluded.level
      where (a.since, a.level) < (excluded.since, excluded.level)
      returning a.applies_to, a.period)
    select r.*, w.user_id as owner, w.url from noted join reached r using (applies_to, period)
    join webhooks w on w.app_name = p_app and w.id = r.webhook_id
  loop
    perform insert_webhook_delivery(p_app, v_alert.owner, v_alert.url, 'budget.reached', jsonb_build_object(
      'appName', p_app, 'userId', nullif(v_alert.user_id, ''), 'appliesTo', v_alert.applies_to, 'period', v_alert.period,
      'percent', v_alert.level, 'invocations', v_alert.invocations, 'maxInvocations', v_alert.max_invocations,
      'tokens', v_alert.tokens, 'maxTokens', v_alert.max_tokens, 'cost', v_alert.cost, 'maxCost', v_alert.max_cost));
  end loop;
  perform set_config('agent_runtime.all_users', coalesce(v_before, ''), true);
end $function$;

CREATE OR REPLACE FUNCTION public.answer_calls(p_app text, p_user text, p_session text, p_answers jsonb)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
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
end $function$;

CREATE OR REPLACE FUNCTION public.answered_text(p_id text, p_state text, p_by text, p_via text, p_at timestamp with time zone)
 RETURNS text
 LANGUAGE sql
 STABLE
AS $function$
  select case when p_state = 'cancelled' then format('Task %s was cancelled.', p_id)
              else format('Task %s was answered before: %s at %s.', p_id,
                          case when p_via = 'deadline' then 'by its deadline'
                               else format('by %s, through %s,', coalesce(p_by, 'a system'), coalesce(p_via, 'another service')) end,
                          to_char(p_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')) end
$function$;

CREATE OR REPLACE FUNCTION public.append_deltas(p_app text, p_user text, p_session text, p_lease uuid, p_after bigint, p_event_ids text[], p_payloads text[], OUT last bigint, OUT sequence integer)
 RETURNS record
 LANGUAGE plpgsql
AS $function$
declare
  v_before bigint;
begin
  perform set_config('synchronous_commit', 'off', true);
  -- 1
  select s.last_sequence into sequence from sessions s
  where s.app_name = p_app and s.user_id = p_user and s.id = p_session and s.lease_token = p_lease;
  if not found then return; end if;
  -- 2
  v_before := (select max(d.number) from event_deltas d
               where d.app_name = p_app and d.user_id = p_user and d.session_id = p_session and d.lease_token = p_lease);
  if v_before is distinct from p_after then
    delete from event_deltas d
    where d.app_name = p_app and d.user_id = p_user and d.session_id = p_session and d.lease_token = p_lease;
    return;
  end if;
  -- 3
  last := greatest(v_before, floor(extract(epoch from clock_timestamp()) * 1000000)::bigint) + cardinality(p_payloads);
  insert into event_deltas (app_name, user_id, session_id, number, lease_token, event_id, payload)
  select p_app, p_user, p_session, last - cardinality(p_payloads) + given.place, p_lease, given.event_id, given.payload
  from unnest(p_event_ids, p_payloads) with ordinality as given(event_id, payload, place);
end $function$;

CREATE OR REPLACE FUNCTION public.append_events(p_app text, p_user text, p_session text, p_events jsonb, p_delta jsonb, p_first_text text, p_from_runtime boolean, p_lease uuid, p_versions text[], p_models jsonb, p_invocation text, p_llm_calls integer, p_tool_calls integer, p_prompt_tokens integer, p_output_tokens integer, p_has_deltas boolean, p_calls jsonb, p_answers jsonb, p_limits jsonb, OUT last integer, OUT lines text, OUT version text, OUT over json, OUT limited boolean)
 RETURNS record
 LANGUAGE plpgsql
AS $function$
declare
  v_sizes integer[] := event_sizes(p_events);
  v_changed timestamptz;
begin
  -- 1
  update sessions s set
    last_sequence = s.last_sequence + cardinality(v_sizes),
    event_bytes = limited_size(s.event_bytes + total_size(v_sizes), p_limits),
    first_text = coalesce(nullif(s.first_text, ''), p_first_text, ''),
    state = case when p_delta ? 'session' then limited_state(s.state || (p_delta -> 'session'), p_limits) else s.state end,
    update_time = next_time(s.update_time, statement_timestamp())
  where s.app_name = p_app and s.user_id = p_user and s.id = p_session
    and (p_lease is null or s.lease_token = p_lease)
    and (p_versions is null or row_version(s.update_time) = any(p_versions))
  returning s.last_sequence, s.update_time into last, v_changed;
  if not found then return; end if;
  perform assert_user_storage(p_app, p_user, 0, (p_limits ->> 'userBytes')::bigint, false);
  version := row_version(v_changed);
  -- 2
  if p_llm_calls + p_tool_calls > 0 then
    update invocations i set
      llm_calls = i.llm_calls + p_llm_calls, tool_calls = i.tool_calls + p_tool_calls,
      prompt_tokens = i.prompt_tokens + p_prompt_tokens, output_tokens = i.output_tokens + p_output_tokens
    where i.app_name = p_app and i.user_id = p_user and i.session_id = p_session and i.id = p_invocation
      and i.lease_token = p_lease;
  end if;
  if p_calls is not null then perform record_calls(p_app, p_user, p_session, p_invocation, p_calls); end if;
  if p_answers is not null then perform answer_calls(p_app, p_user, p_session, p_answers); end if;
  lines := store_events(p_app, p_user, p_session, p_events, v_sizes, p_delta, p_from_runtime, p_limits, last, v_changed, true);
  if p_has_deltas then
    delete from event_deltas d
    where d.app_name = p_app and d.user_id = p_user and d.session_id = p_session
      and d.event_id in (select event ->> 'id' from jsonb_array_elements(p_events) event);
  end if;
  -- 3
  if p_models is not null then
    perform count_use(p_app, p_user, 0, p_models);
    limited := exists (select from budgets b where b.app_name = p_app and b.user_id in ('', p_user));
    if limited then over := over_budget(p_app, p_user, 0, 0); end if;
  end if;
end $function$;

CREATE OR REPLACE FUNCTION public.artifact_size(p_size_bytes bigint, p_part jsonb, p_metadata jsonb)
 RETURNS bigint
 LANGUAGE sql
 IMMUTABLE
AS $function$ select p_size_bytes + octet_length(p_part::text) + octet_length(p_metadata::text) $function$;

CREATE OR REPLACE FUNCTION public.assert_own_user(p_user text)
 RETURNS void
 LANGUAGE plpgsql
 STABLE
AS $function$
begin
  if current_setting('role') = 'agent_runtime_user'
     and p_user is distinct from current_setting('agent_runtime.user', true) then
    raise exception 'another user' using errcode = '42501';
  end if;
end $function$;

CREATE OR REPLACE FUNCTION public.assert_session_size(p_event_bytes bigint, p_max_bytes bigint)
 RETURNS bigint
 LANGUAGE plpgsql
 IMMUTABLE
AS $function$
begin
  if p_event_bytes > p_max_bytes then
    raise exception 'events of the session are more than % bytes', p_max_bytes using errcode = 'AR414';
  end if;
  return p_event_bytes;
end $function$;

CREATE OR REPLACE FUNCTION public.assert_state_size(p_state jsonb, p_max_bytes integer, p_max_keys integer)
 RETURNS jsonb
 LANGUAGE plpgsql
 IMMUTABLE
AS $function$
begin
  if octet_length(p_state::text) > p_max_bytes then
    raise exception 'state is larger than % bytes', p_max_bytes using errcode = 'AR413';
  end if;
  if jsonb_typeof(p_state) = 'object' and (select count(*) from jsonb_object_keys(p_state)) > p_max_keys then
    raise exception 'state has more than % keys', p_max_keys using errcode = 'AR415';
  end if;
  return p_state;
end $function$;

CREATE OR REPLACE FUNCTION public.assert_user_storage(p_app text, p_user text, p_added bigint, p_max_bytes bigint, p_begins boolean)
 RETURNS bigint
 LANGUAGE plpgsql
AS $function$
begin
  if p_max_bytes is null then return p_added; end if;
  if p_begins or p_added > 65536 then
    perform pg_advisory_xact_lock(hashtextextended(p_app || E'\x01' || p_user, 7240031));
  end if;
  if p_max_bytes < p_added + (
    select coalesce(sum(u.event_bytes + u.artifact_bytes + u.memory_bytes), 0) from user_storage u
    where u.app_name = p_app and u.user_id = p_user) then
    raise exception 'what is kept of the user is more than % bytes', p_max_bytes using errcode = 'AR417';
  end if;
  return p_added;
end $function$;

CREATE OR REPLACE FUNCTION public.assert_without_task(p_app text, p_user text, p_session text, p_call text, p_is_decision boolean)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
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
end $function$;

CREATE OR REPLACE FUNCTION public.assert_writer_share(p_state jsonb, p_writers jsonb, p_writer jsonb, p_max_bytes integer)
 RETURNS jsonb
 LANGUAGE plpgsql
 IMMUTABLE
AS $function$
begin
  if (select sum(octet_length(own.key) + octet_length(own.value::text)) from jsonb_each(p_state) own
      where p_writers -> own.key = p_writer) > p_max_bytes then
    raise exception 'what agents wrote for one user is more than % bytes', p_max_bytes using errcode = 'AR416';
  end if;
  return p_writers;
end $function$;

CREATE OR REPLACE FUNCTION public.audit_retention(OUT days integer, OUT entries bigint)
 RETURNS record
 LANGUAGE sql
 IMMUTABLE
AS $function$ select 90, 1000000::bigint $function$;

CREATE OR REPLACE FUNCTION public.begun_runs(p_user text)
 RETURNS integer
 LANGUAGE sql
 STABLE
AS $function$
  select count(*)::integer from invocations i
  where i.user_id = p_user and i.cronjob_id is not null and i.first_end_time is null
    and i.status in ('queued', 'running') and i.not_before is null
$function$;

CREATE OR REPLACE FUNCTION public.budget_uses_of_app(p_app text, p_since date, OUT invocations numeric, OUT tokens numeric, OUT cost numeric, OUT reserved_tokens numeric, OUT reserved_cost numeric)
 RETURNS record
 LANGUAGE plpgsql
 STABLE
AS $function$
begin
  select coalesce(sum(t.invocations), 0), coalesce(sum(t.tokens), 0), coalesce(sum(t.cost), 0)
  into budget_uses_of_app.invocations, budget_uses_of_app.tokens, budget_uses_of_app.cost
  from budget_totals t where t.app_name = p_app and t.since = p_since;
  select coalesce(sum(r.tokens), 0), coalesce(sum(r.cost), 0)
  into budget_uses_of_app.reserved_tokens, budget_uses_of_app.reserved_cost
  from budget_reservations r where r.app_name = p_app and r.expire_time > statement_timestamp();
end $function$;

CREATE OR REPLACE FUNCTION public.budgets_for(p_app text, p_user text)
 RETURNS TABLE(applies_to text, period text, since date, opens timestamp with time zone, max_invocations bigint, max_tokens bigint, max_cost numeric, webhook_id text, invocations numeric, tokens numeric, cost numeric, reserved_tokens numeric, reserved_cost numeric)
 LANGUAGE plpgsql
 STABLE
AS $function$
declare
  v_today date := (statement_timestamp() at time zone 'utc')::date;
  v_month date := date_trunc('month', v_today::timestamp);
begin
  return query
    select b.applies_to, b.period, case b.period when 'day' then v_today else v_month end,
      case b.period when 'day' then v_today + interval '1 day' else v_month + interval '1 month' end at time zone 'utc',
      b.max_invocations, b.max_tokens, b.max_cost, b.webhook_id,
      used.invocations, used.tokens, used.cost, used.reserved_tokens, used.reserved_cost
    from budgets b cross join lateral (
      -- Separate subqueries, because a single one with both conditions scanned the usage of all users and days.
      select coalesce(sum(u.invocations), 0) as invocations,
             coalesce(sum(u.prompt_tokens + u.output_tokens), 0) as tokens, coalesce(sum(u.cost), 0) as cost,
             (select coalesce(sum(r.tokens), 0) from budget_reservations r
              where r.app_name = p_app and r.user_id = p_user and r.expire_time > statement_timestamp()) as reserved_tokens,
             (select coalesce(sum(r.cost), 0) from budget_reservations r
              where r.app_name = p_app and r.user_id = p_user and r.expire_time > statement_timestamp()) as reserved_cost
      from budget_uses u
      where u.app_name = p_app and u.user_id = p_user
        and u.day >= case b.period when 'day' then v_today else v_month end
      having b.applies_to <> 'app'
      union all
      select * from budget_uses_of_app(p_app, case b.period when 'day' then v_today else v_month end)
      where b.applies_to = 'app') used
    where b.app_name = p_app
      and (b.applies_to = 'app' or b.applies_to = 'user' and b.user_id = p_user
           or b.applies_to = 'users' and p_user >= ' ' and not exists (
             select from budgets mine
             where mine.app_name = p_app and mine.applies_to = 'user' and mine.user_id = p_user
               and mine.period = b.period));
end $function$;

CREATE OR REPLACE FUNCTION public.change_task(p_app text, p_user text, p_session text, p_id text, p_by text, p_groups text[], p_vouched boolean, p_version integer, p_action text, p_change jsonb)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
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
end $function$;

CREATE OR REPLACE FUNCTION public.claim_jobs(p_kind text, p_apps text[], p_slots integer, p_lease_ms integer, p_limits jsonb, OUT claimed jsonb, OUT pause_ms double precision)
 RETURNS record
 LANGUAGE plpgsql
 SET enable_seqscan TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
AS $function$
declare
  v_now timestamptz;
  v_free integer;
  v_free_before integer;  -- free slots in the round before
  v_running jsonb;  -- number of running jobs by limit
  v_full text[];
  v_row record;
  v_id text;
begin
  claimed := '[]';
  pause_ms := job_pause(p_kind, p_apps);
  if pause_ms is null or pause_ms > 0 or p_slots <= 0 then return; end if;  -- 1
  perform pg_advisory_xact_lock(hashtextextended('jobs ' || p_kind, 0));
  for v_row in  -- 2
    select j.app_name, j.user_id, j.id from jobs j
    where j.kind = p_kind and j.lease_token is not null and j.lease_expire_time < clock_timestamp()
      and (p_apps is null or j.app_name = any(p_apps))
    order by j.lease_expire_time limit p_slots for update skip locked
  loop
    claimed := claimed || lease_job(p_kind, v_row.app_name, v_row.user_id, v_row.id, p_lease_ms, 1);
  end loop;
  for v_round in 1 .. 2 * p_slots + 8 loop
    v_free := p_slots - jsonb_array_length(claimed);
    exit when v_free <= 0;
    v_now := clock_timestamp();
    select coalesce(jsonb_object_agg(key, n), '{}') into v_running from (
      select key, count(*) as n from jobs j, unnest(job_keys(j.user_id, j.lane)) key
      where j.kind = p_kind and j.lease_token is not null group by key) counted;
    select coalesce(array_agg(key), '{}') into v_full from jsonb_each(v_running) counted(key, n)
    where n::integer >= job_places(p_limits, key) or p_limits ? 'user' and key like 'user:%' and n::integer >= v_free;
    if v_round = 1 or v_free = v_free_before then  -- 3
      for v_row in
        with recursive blocking(key) as (  -- a step for each limit, however many lanes are behind it
          (select l.blocked_by from job_lanes l where l.kind = p_kind and l.blocked_by is not null
           order by l.blocked_by limit 1)
          union all
          select (select l.blocked_by from job_lanes l where l.kind = p_kind and l.blocked_by > b.key
                  order by l.blocked_by limit 1)
          from blocking b where b.key is not null)
        select back.* from blocking b cross join lateral (
          select l.app_name, l.user_id, l.lane from job_lanes l
          where l.kind = p_kind and l.blocked_by = b.key
            and job_block(l.user_id, l.lane, l.half_open, v_running, v_full) is null
          order by l.turn_time limit job_places(p_limits, b.key) - coalesce((v_running ->> b.key)::integer, 0)
          for no key update skip locked) back
        where b.key <> all(v_full)
      loop
        update job_lanes l set blocked_by = null
        where l.app_name = v_row.app_name and l.user_id = v_row.user_id and l.kind = p_kind and l.lane = v_row.lane;
      end loop;
    end if;
    v_free_before := v_free;
    if v_full <> '{}' then  -- 4
      for v_row in
        with due as materialized (
          select due.app_name, due.user_id, due.lane, key from unnest(job_apps(p_kind, p_apps)) app(name)
          cross join lateral (
            select l.app_name, l.user_id, l.lane, l.half_open from job_lanes l
            where l.kind = p_kind and l.app_name = app.name and l.blocked_by is null and l.turn_time <= v_now
            order by l.turn_time limit 500) due
          cross join lateral job_block(due.user_id, due.lane, due.half_open, v_running, v_full) key
          where key is not null)
        select d.* from due d cross join lateral (
          select from job_lanes l
          where l.app_name = d.app_name and l.user_id = d.user_id and l.kind = p_kind and l.lane = d.lane
          for no key update skip locked) locked
      loop
        update job_lanes l set blocked_by = v_row.key
        where l.app_name = v_row.app_name and l.user_id = v_row.user_id and l.kind = p_kind and l.lane = v_row.lane;
      end loop;
    end if;
    for v_row in  -- 5
      with due as materialized (
        select l.*, row_number() over (order by l.turn_time, l.app_name, l.user_id, l.lane) as place
        from (select l.* from unnest(job_apps(p_kind, p_apps)) app(name) cross join lateral (
                select l.app_name, l.user_id, l.lane, l.half_open, l.turn_time from job_lanes l
                where l.kind = p_kind and l.app_name = app.name and l.blocked_by is null and l.turn_time <= v_now
                  and job_block(l.user_id, l.lane, l.half_open, v_running, v_full) is null
                order by l.turn_time limit v_free for no key update skip locked) l
              order by l.turn_time limit v_free) l),
      ranked as (
        select d.place, key,
               coalesce((v_running ->> key)::integer, 0) + row_number() over (partition by key order by d.place) as rank,
               case when d.half_open and key like 'pair:%' then 1 else job_places(p_limits, key) end as places
        from due d, unnest(job_keys(d.user_id, d.lane)) key)
      select d.app_name, d.user_id, d.lane from due d
      where not exists (
        select from ranked r where r.place = d.place and (
          r.rank > r.places or p_limits ? 'user' and r.key like 'user:%' and r.rank + d.place > v_free + 1))
      order by d.place
    loop
      select j.id into v_id from jobs j  -- 6
      where j.kind = p_kind and j.app_name = v_row.app_name and j.user_id = v_row.user_id and j.lane = v_row.lane
        and j.lease_token is null and j.due_time <= v_now
      order by j.due_time, j.id limit 1 for update skip locked;
      if found then
        claimed := claimed || lease_job(p_kind, v_row.app_name, v_row.user_id, v_id, p_lease_ms, 0);
      end if;
      perform end_turn(p_kind, v_row.app_name, v_row.user_id, v_row.lane);
    end loop;
    exit when not found;
  end loop;
  pause_ms := job_pause(p_kind, p_apps);
end $function$;

CREATE OR REPLACE FUNCTION public.claim_session(p_app text, p_user text, p_session text, p_invocation text, p_token uuid, p_read uuid, p_duration_ms integer, p_key text, p_hash text, p_webhook text, p_request jsonb, p_is_queued boolean, p_creates boolean, p_is_new boolean, p_is_eval boolean, p_is_free boolean, p_version text, p_answers jsonb, p_ends_sleeps boolean, p_events jsonb, p_delta jsonb, p_first_text text, p_limits jsonb, p_returns boolean DEFAULT false, p_job jsonb DEFAULT NULL::jsonb, p_places integer DEFAULT NULL::integer, OUT claimed boolean, OUT over json, OUT limited boolean, OUT lines text, OUT state_text text, OUT last integer)
 RETURNS record
 LANGUAGE plpgsql
AS $function$
declare
  v_sizes integer[] := event_sizes(p_events);
  v_is_whole boolean;  -- true if the events of this claim are all that the session has
  v_state jsonb;
  v_is_forgotten boolean := false;
  v_is_repeated boolean := false;
  v_queued_since timestamptz;
  v_goes_on boolean := false;
  v_has_begun boolean := false;
  v_was_woken boolean := false;
  v_is_new_run boolean := false;  -- a run of a cronjob that no process has tried to begin
  v_cronjob text;
  v_last integer;
  v_changed timestamptz;
  v_now constant numeric := extract(epoch from clock_timestamp());
begin
  claimed := false;
  -- 1
  limited := exists (select from budgets b where b.app_name = p_app and b.user_id in ('', p_user));
  if p_key is not null then
    v_is_forgotten := is_forgotten_key(p_app, p_user, p_key);
    v_is_repeated := v_is_forgotten or exists (
      select from invocations i
      where i.app_name = p_app and i.user_id = p_user and i.idempotency_key = p_key and i.status <> 'queued');
  end if;
  if not p_is_free then
    v_has_begun := exists (
      select from invocations i
      where i.app_name = p_app and i.user_id = p_user and i.session_id = p_session and i.id = p_invocation
        and case when p_is_queued then i.start_time is not null or i.end_time is not null
                 else i.status = 'paused' and exists (
                   select from tasks t
                   where t.app_name = p_app and t.user_id = p_user and t.session_id = p_session and t.invocation_id = i.id
                     and (t.state = 'open' and p_answers @> jsonb_build_array(jsonb_build_object('id', t.call_id))
                          or t.decide_time >= i.end_time)) end);
  end if;
  if limited and not p_is_free and not v_is_repeated then
    if v_has_begun then
      over := over_budget(p_app, p_user, 0, 0);
    else
      -- Serialised by a lock, because concurrent claims would all read the same number of invocations and pass.
      if exists (select from budgets b where b.app_name = p_app and b.max_invocations is not null) then
        perform lock_budgets(p_app, p_user);
      end if;
      over := over_budget(p_app, p_user);
    end if;
    if over is not null then return; end if;
  end if;
  -- 2
  if p_is_queued then
    select i.create_time, i.start_time is not null, i.start_time is null and i.end_time is not null, i.not_before is not null,
           i.cronjob_id
    into v_queued_since, v_goes_on, v_was_woken, v_is_new_run, v_cronjob from invocations i
    where i.app_name = p_app and i.user_id = p_user and i.session_id = p_session and i.id = p_invocation
      and i.status = 'queued' and i.lease_token in (p_token, p_read)
    for update of i;
    if not found then
      claimed := renew_claim(p_app, p_user, p_session, p_invocation, p_token, p_duration_ms);
      return;
    end if;
    if p_places is not null and v_is_new_run and not may_begin_run(p_app, p_user, v_cronjob, p_places) then return; end if;
  end if;
  -- 3
  if exists (
    select from invocations w
    where w.app_name = p_app and w.user_id = p_user and w.session_id = p_session and w.status = 'queued'
      and (w.lease_expire_time > statement_timestamp() or w.request is not null) and w.not_before is null
      and (not p_is_queued
           or (w.start_time is null, w.create_time, w.id) < (not v_goes_on, v_queued_since, p_invocation))) then
    if v_is_new_run then perform queue_in_session(p_app, p_user, p_session, p_invocation); end if;
    claimed := renew_claim(p_app, p_user, p_session, p_invocation, p_token, p_duration_ms);
    return;
  end if;
  -- 4
  update sessions s set
    lease_token = p_token,
    last_sequence = s.last_sequence + cardinality(v_sizes),
    event_bytes = case when v_sizes = '{}' then s.event_bytes
                       else limited_size(s.event_bytes + total_size(v_sizes), p_limits) end,
    first_text = coalesce(nullif(s.first_text, ''), p_first_text, ''),
    state = case when p_delta ? 'session' then limited_state(s.state || (p_delta -> 'session'), p_limits) else s.state end,
    update_time = next_time(s.update_time, statement_timestamp())
  where s.app_name = p_app and s.user_id = p_user and s.id = p_session and s.lease_token is null
    and (p_is_queued or not v_is_repeated) and not p_is_new
  returning s.last_sequence, s.update_time, s.state into v_last, v_changed, v_state;
  if found then
    if not v_goes_on and exists (
      select from invocations w
      where w.app_name = p_app and w.user_id = p_user and w.session_id = p_session and w.status = 'queued'
        and w.start_time is not null and w.request is not null and w.id <> p_invocation) then
      raise exception 'an invocation of the session was left' using errcode = '40001';
    end if;
  elsif p_creates and not v_is_forgotten and not exists (
    select from sessions s where s.app_name = p_app and s.user_id = p_user and s.id = p_session) then
    insert into sessions as s
      (app_name, user_id, id, lease_token, last_sequence, event_bytes, first_text, state, is_eval)
    values
      (p_app, p_user, p_session, p_token, cardinality(v_sizes), limited_size(total_size(v_sizes), p_limits),
       coalesce(p_first_text, ''), limited_state(coalesce(p_delta -> 'session', '{}'), p_limits), p_is_eval)
    on conflict (app_name, user_id, id) do nothing
    returning s.last_sequence, s.update_time, s.state into v_last, v_changed, v_state;
  end if;
  if v_last is null then
    if v_is_new_run then perform queue_in_session(p_app, p_user, p_session, p_invocation); end if;
    claimed := renew_claim(p_app, p_user, p_session, p_invocation, p_token, p_duration_ms);
    return;
  end if;
  -- 5
  if p_job is not null and not end_job(p_job ->> 'kind', p_app, p_job ->> 'userId', p_job ->> 'id', (p_job ->> 'token')::uuid)
  then
    raise exception 'the job was claimed by another process' using errcode = 'AR419';
  end if;
  insert into invocations as i
    (app_name, user_id, session_id, id, status, lease_token, lease_expire_time, idempotency_key, request_hash,
     webhook_url, agent_version, job, request, start_time)
  values
    (p_app, p_user, p_session, p_invocation, 'running', p_token,
     clock_timestamp() + p_duration_ms * interval '1 millisecond', p_key, p_hash, p_webhook,
     p_version, p_job - 'token', p_request || jsonb_build_object('began', jsonb_build_object(
       'at', v_now, 'sequence', v_last, 'llmCalls', 0, 'toolCalls', 0)),
     clock_timestamp())
  on conflict (app_name, user_id, session_id, id) do update set
    status = 'running', lease_token = excluded.lease_token, lease_expire_time = excluded.lease_expire_time,
    idempotency_key = coalesce(excluded.idempotency_key, i.idempotency_key),
    request_hash = coalesce(excluded.request_hash, i.request_hash),
    webhook_url = coalesce(excluded.webhook_url, i.webhook_url),
    agent_version = excluded.agent_version, start_time = coalesce(i.start_time, excluded.start_time), not_before = null, end_time = null, response_body = null,
    error_code = null, error_message = null,
    stop_requested_as = case when v_goes_on then i.stop_requested_as end,
    -- ::text::jsonb instead of to_jsonb, because a distributed database requires an immutable expression here.
    request = case when v_goes_on
                   then jsonb_set(i.request, '{began,at}', (v_now - (i.request #>> '{began,spentMs}')::numeric / 1000)::text::jsonb)
                   else jsonb_set(jsonb_set(excluded.request, '{began,llmCalls}', i.llm_calls::text::jsonb),
                                  '{began,toolCalls}', i.tool_calls::text::jsonb) end,
    attempt = case when v_goes_on then i.attempt + 1 else 1 end
  where i.status <> 'running';
  if cardinality(v_sizes) > 0 then
    perform assert_user_storage(p_app, p_user, 0, (p_limits ->> 'userBytes')::bigint, false);
  end if;
  -- 6
  if p_answers is not null and not v_was_woken then
    perform answer_calls(p_app, p_user, p_session, p_answers);
  elsif p_ends_sleeps and not v_was_woken and not v_goes_on then
    update invocations i set
      status = 'interrupted', end_time = greatest(to_timestamp(v_now), i.create_time), error_code = 'interrupted',
      error_message = 'A newer message interrupted the invocation while it slept.', request = null
    where i.app_name = p_app and i.user_id = p_user and i.session_id = p_session and i.status = 'paused' and exists (
      select from tasks t
      where t.app_name = p_app and t.user_id = p_user and t.session_id = p_session and t.invocation_id = i.id
        and t.state = 'open' and t.kind in ('sleep', 'signal'));
  end if;
  -- 7
  v_is_whole := v_last = cardinality(v_sizes);
  lines := store_events(p_app, p_user, p_session, p_events, v_sizes, p_delta, false, p_limits, v_last, v_changed, v_is_whole or p_returns);
  last := v_last;
  if v_is_whole then
    select (v_state || coalesce(a.state, '{}') || coalesce(u.state, '{}'))::text
    into state_text
    from (select) one
    left join app_states a on a.app_name = p_app
    left join user_states u on u.app_name = p_app and u.user_id = p_user;
  end if;
  -- 8
  if not p_is_free and not v_has_begun then perform count_use(p_app, p_user, 1, null); end if;
  claimed := true;
end $function$;

CREATE OR REPLACE FUNCTION public.clamped_time(p_seconds double precision)
 RETURNS timestamp with time zone
 LANGUAGE sql
 IMMUTABLE
AS $function$ select to_timestamp(least(greatest(p_seconds, -2e11), 9e12)) $function$;

CREATE OR REPLACE FUNCTION public.continue_job(ended invocations)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
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
end $function$;

CREATE OR REPLACE FUNCTION public.count_changed_events()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
begin
  update sessions set events_version = events_version + 1, event_bytes = event_bytes + coalesce(new.bytes, 0) - old.bytes
  where app_name = old.app_name and user_id = old.user_id and id = old.session_id;
  return null;
end $function$;

CREATE OR REPLACE FUNCTION public.count_event_bytes()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
begin
  new.bytes := octet_length(new.payload::text);
  return new;
end $function$;

CREATE OR REPLACE FUNCTION public.count_kept_bytes()
 RETURNS trigger
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'public', 'pg_temp'
AS $function$
begin
  perform add_user_bytes(coalesce(new.app_name, old.app_name), coalesce(new.user_id, old.user_id),
    coalesce(octet_length(new.response::text), 0) - coalesce(octet_length(old.response::text), 0), 0, 0);
  return null;
end $function$;

CREATE OR REPLACE FUNCTION public.count_open_runs(p_app text, p_user text, p_cronjob text)
 RETURNS integer
 LANGUAGE sql
 STABLE
AS $function$
  select count(*)::integer from invocations i
  where i.app_name = p_app and i.user_id = p_user and i.cronjob_id = p_cronjob and i.first_end_time is null
    and i.status in ('queued', 'running')
$function$;

CREATE OR REPLACE FUNCTION public.count_request_bytes()
 RETURNS trigger
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'public', 'pg_temp'
AS $function$
begin
  perform add_user_bytes(coalesce(new.app_name, old.app_name), coalesce(new.user_id, old.user_id),
    coalesce(counted_request(new.status, new.not_before, new.request), 0)
    - coalesce(counted_request(old.status, old.not_before, old.request), 0), 0, 0);
  return null;
end $function$;

CREATE OR REPLACE FUNCTION public.count_session_bytes()
 RETURNS trigger
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'public', 'pg_temp'
AS $function$
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
end $function$;

CREATE OR REPLACE FUNCTION public.count_stored_bytes()
 RETURNS trigger
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'public', 'pg_temp'
AS $function$
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
end $function$;

CREATE OR REPLACE FUNCTION public.count_use(p_app text, p_user text, p_invocations bigint, p_models jsonb)
 RETURNS void
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'public', 'pg_temp'
AS $function$
declare
  v_today date := (statement_timestamp() at time zone 'utc')::date;
  v_prompt bigint := 0;
  v_output bigint := 0;
  v_cost numeric := 0;
begin
  perform assert_own_user(p_user);
  if p_models is not null then
    select coalesce(sum(used."promptTokens"), 0), coalesce(sum(used."outputTokens"), 0),
           coalesce(sum((used."promptTokens" * price.prompt + used."outputTokens" * price.output) / 1000000), 0)
    into v_prompt, v_output, v_cost
    from jsonb_to_recordset(p_models) as used(model text, "answeredAs" text, "promptTokens" bigint, "outputTokens" bigint)
    left join lateral (
      select m.prompt_price as prompt, m.output_price as output from model_prices m
      where starts_with(used."answeredAs", m.model) or starts_with(used.model, m.model) or m.model = '*'
      order by m.model = '*', not starts_with(used."answeredAs", m.model), length(m.model) desc limit 1) price on true;
  end if;
  insert into budget_uses as u (app_name, user_id, day, shard, invocations, prompt_tokens, output_tokens, cost)
  values (p_app, p_user, v_today, pg_backend_pid() % 32, p_invocations, v_prompt, v_output, v_cost)
  on conflict (app_name, user_id, day, shard) do update set
    invocations = u.invocations + excluded.invocations, prompt_tokens = u.prompt_tokens + excluded.prompt_tokens,
    output_tokens = u.output_tokens + excluded.output_tokens, cost = u.cost + excluded.cost;
  if not exists (select from budgets b where b.app_name = p_app and b.user_id in ('', p_user)) then return; end if;
  perform count_use_of_app(p_app, v_today, p_invocations, v_prompt + v_output, v_cost);
  if p_models is not null then
    delete from budget_reservations r where r.app_name = p_app and r.user_id = p_user and r.id in (
      select (used ->> 'reservation')::uuid from jsonb_array_elements(p_models) used);
  end if;
  perform alert_budgets(p_app, p_user);
end $function$;

CREATE OR REPLACE FUNCTION public.count_use_of_app(p_app text, p_today date, p_invocations bigint, p_tokens bigint, p_cost numeric)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
begin
  if not exists (select from budgets b where b.app_name = p_app and b.applies_to = 'app') then return; end if;
  insert into budget_totals as t (app_name, since, shard, invocations, tokens, cost)
  select distinct p_app, period.since, pg_backend_pid() % 32, p_invocations, p_tokens, p_cost
  from unnest(array[p_today, date_trunc('month', p_today::timestamp)::date]) period(since)
  on conflict (app_name, since, shard) do update set
    invocations = t.invocations + excluded.invocations, tokens = t.tokens + excluded.tokens,
    cost = t.cost + excluded.cost;
end $function$;

CREATE OR REPLACE FUNCTION public.counted_request(p_status text, p_not_before timestamp with time zone, p_request jsonb)
 RETURNS integer
 LANGUAGE sql
 IMMUTABLE
AS $function$
  select case when p_not_before is not null then 0
              when p_status = 'queued' or octet_length(p_request::text) > 8192
              then coalesce(octet_length(p_request::text), 0) else 0 end
$function$;

CREATE OR REPLACE FUNCTION public.create_session(p_app text, p_user text, p_session text, p_is_eval boolean, p_initial_state jsonb, p_events jsonb, p_delta jsonb, p_first_text text, p_limits jsonb, OUT created boolean, OUT state_text text, OUT last_update text, OUT etag text)
 RETURNS record
 LANGUAGE plpgsql
AS $function$
declare
  v_sizes integer[] := event_sizes(p_events);
  v_own jsonb := coalesce(p_delta -> 'session', '{}');
  v_changed timestamptz;
begin
  -- 1
  perform assert_user_storage(p_app, p_user, total_size(v_sizes) + state_size(v_own, p_initial_state),
                              (p_limits ->> 'userBytes')::bigint, false);
  insert into sessions as s
    (app_name, user_id, id, is_eval, initial_state, state, first_text, last_sequence, event_bytes)
  values
    (p_app, p_user, p_session, p_is_eval, p_initial_state, limited_state(v_own, p_limits), coalesce(p_first_text, ''),
     cardinality(v_sizes), limited_size(total_size(v_sizes), p_limits))
  on conflict (app_name, user_id, id) do nothing
  returning s.update_time into v_changed;
  created := found;
  if not created then return; end if;
  -- 2
  perform store_events(
    p_app, p_user, p_session, p_events, v_sizes, p_delta, false, p_limits, cardinality(v_sizes), v_changed, false);
  -- 3
  select (v_own || coalesce(a.state, '{}') || coalesce(u.state, '{}'))::text, extract(epoch from v_changed)::text,
         session_etag(v_changed, a.update_time, u.update_time)
  into state_text, last_update, etag
  from (select) one
  left join app_states a on a.app_name = p_app
  left join user_states u on u.app_name = p_app and u.user_id = p_user;
end $function$;

CREATE OR REPLACE FUNCTION public.delete_cronjob(p_app text, p_user text, p_cronjob text)
 RETURNS boolean
 LANGUAGE plpgsql
AS $function$
begin
  perform unqueue_runs(p_app, p_user, p_cronjob);
  if count_open_runs(p_app, p_user, p_cronjob) > 0 then
    perform requeue_runs(p_app, p_user, p_cronjob);
    return false;
  end if;
  update invocations i set cronjob_id = null
  where i.app_name = p_app and i.user_id = p_user and i.cronjob_id = p_cronjob;
  delete from cronjobs c where c.app_name = p_app and c.user_id = p_user and c.id = p_cronjob;
  return true;
end $function$;

CREATE OR REPLACE FUNCTION public.delete_delivery_job()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
begin
  delete from jobs where app_name = old.app_name and user_id = old.user_id and kind = 'delivery' and id = old.id;
  return null;
end $function$;

CREATE OR REPLACE FUNCTION public.delete_old_audit_entries()
 RETURNS boolean
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'public', 'pg_temp'
AS $function$
declare
  kept record := audit_retention();
  deleted integer;
begin
  perform set_config('agent_runtime.audit_deletes', 'on', true);
  -- 1
  delete from audit_log where id in (
    select id from (select id, time from audit_log order by id limit 1000) oldest
    where time < clock_timestamp() - make_interval(days => greatest(kept.days, 1)));
  get diagnostics deleted = row_count;
  -- 2
  if deleted = 0 and (select max(id) - min(id) >= kept.entries from audit_log) then
    delete from audit_log where id in (
      select id from (
        select id, time, row_number() over (order by of_caller, id desc) as place from (
          select id, time, row_number() over (partition by caller_kind, caller order by id desc) as of_caller
          from audit_log) numbered) placed
      where place > kept.entries and time < clock_timestamp() - interval '1 day' limit 50000);
    get diagnostics deleted = row_count;
  end if;
  perform set_config('agent_runtime.audit_deletes', 'off', true);
  return deleted > 0;
end $function$;

CREATE OR REPLACE FUNCTION public.end_eval_case()
 RETURNS trigger
 LANGUAGE plpgsql
 SET enable_seqscan TO 'off'
AS $function$
begin
  delete from jobs j
  where j.app_name = old.app_name and j.user_id = eval_job_user(old.owner_id) and j.kind = 'evaluation'
    and j.id = eval_case_job(old.run_id, old.place, old.trial);
  perform advance_eval_run(old.app_name, old.run_id);
  perform pg_notify('agent_runtime', json_build_array('eval:' || old.run_id)::text);
  return null;
end $function$;

CREATE OR REPLACE FUNCTION public.end_job(p_kind text, p_app text, p_user text, p_id text, p_token uuid)
 RETURNS boolean
 LANGUAGE plpgsql
 SET enable_seqscan TO 'off'
AS $function$
begin
  delete from jobs j
  where j.app_name = p_app and j.user_id = p_user and j.kind = p_kind and j.id = p_id and j.lease_token = p_token
    and j.attempt > 0;  -- else it was added again since its claim
  return found or put_back_job(p_kind, p_app, p_user, p_id, p_token, 0);
end $function$;

CREATE OR REPLACE FUNCTION public.end_run(ended invocations)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
declare
  c record;
  v_status constant text := case ended.status when 'succeeded' then 'success' when 'cancelled' then 'cancelled' else 'failed' end;
  v_has_begun constant boolean := ended.start_time is not null;
  v_code constant text := case when ended.status = 'paused' then 'paused' when v_has_begun then ended.error_code end;
  v_output constant text := run_output(ended.status, ended.response_body);
  v_earliest timestamptz;
  v_is_last boolean;  -- of the failures in a row that the cronjob may have
begin
  -- A cancelled run counts for nothing. Its cronjob is not locked, because it may have been cancelled before it began:
  -- who changes a cronjob locks these runs after it.
  if v_status <> 'cancelled' then
    perform from cronjobs j where j.app_name = ended.app_name and j.user_id = ended.user_id and j.id = ended.cronjob_id
    for no key update;
  end if;
  select * into c from cronjobs j where j.app_name = ended.app_name and j.user_id = ended.user_id and j.id = ended.cronjob_id;
  if not found then return; end if;
  if v_code in ('model_rate_limited', 'model_unavailable', 'model_timeout', 'model_stream_cut')
    and ended.try < c.max_attempts and ended.stop_requested_as is null then
    -- The jitter keeps runs that failed together from coming back together.
    v_earliest := clock_timestamp() + least(c.retry_pause_seconds * 2 ^ (ended.try - 1), c.max_retry_pause_seconds)
      * (0.5 + random() / 2) * interval '1 second';
    if queue_run(ended.app_name, ended.user_id, ended.cronjob_id, ended.run_id, ended.due_time, ended.is_manual,
                 ended.try + 1, ended.create_time, v_earliest) then
      return;
    end if;
  end if;
  if c.webhook_url is not null then
    perform insert_webhook_delivery(
      ended.app_name, ended.user_id, c.webhook_url, 'cronjob_run.ended',
      jsonb_build_object(
        'appName', ended.app_name, 'userId', ended.user_id, 'jobId', ended.cronjob_id, 'runId', ended.run_id,
        'scheduledAt', webhook_time(ended.due_time), 'status', v_status,
        'sessionId', case when v_has_begun then ended.session_id end, 'invocationId', case when v_has_begun then ended.id end,
        'errorCode', v_code, 'output', left(v_output, 4096),
        'outputTruncated', case when length(v_output) > 4096 then true end));
  end if;
  if v_status = 'failed' then
    v_is_last := c.enabled and c.max_failures > 0 and c.failure_count + 1 >= c.max_failures;
    update cronjobs j set
      failure_count = c.failure_count + 1,
      enabled = c.enabled and not v_is_last,
      next_run_time = case when v_is_last then null else j.next_run_time end,
      disabled_reason = case when v_is_last
        then 'It failed ' || c.failure_count + 1 || ' times in a row; the last time: ' || run_error(ended.status, ended.error_message)
        else j.disabled_reason end
    where j.app_name = ended.app_name and j.user_id = ended.user_id and j.id = ended.cronjob_id;
    if v_is_last then
      perform skip_runs(ended.app_name, ended.user_id, ended.cronjob_id, 'The cronjob was disabled.');
    end if;
  elsif v_status = 'success' and c.failure_count > 0 then
    update cronjobs j set failure_count = 0
    where j.app_name = ended.app_name and j.user_id = ended.user_id and j.id = ended.cronjob_id;
  end if;
  perform wake_runs(ended.user_id);
end $function$;

CREATE OR REPLACE FUNCTION public.end_turn(p_kind text, p_app text, p_user text, p_lane text)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
declare
  v_now timestamptz := clock_timestamp();
  v_next timestamptz;
begin
  select j.due_time into v_next from jobs j
  where j.kind = p_kind and j.app_name = p_app and j.user_id = p_user and j.lane = p_lane and j.lease_token is null
  order by j.due_time, j.id limit 1;
  if v_next <= v_now then
    v_next := v_now;
  else
    perform from job_lanes l
    where l.app_name = p_app and l.user_id = p_user and l.kind = p_kind and l.lane = p_lane for update skip locked;
    if found then
      select j.due_time into v_next from jobs j
      where j.kind = p_kind and j.app_name = p_app and j.user_id = p_user and j.lane = p_lane and j.lease_token is null
      order by j.due_time, j.id limit 1;
    else
      v_next := v_now + interval '50 milliseconds';
    end if;
  end if;
  if v_next is null then
    delete from job_lanes l
    where l.app_name = p_app and l.user_id = p_user and l.kind = p_kind and l.lane = p_lane;
  else
    update job_lanes l set turn_time = v_next
    where l.app_name = p_app and l.user_id = p_user and l.kind = p_kind and l.lane = p_lane;
  end if;
end $function$;

CREATE OR REPLACE FUNCTION public.enqueue_invocation(p_app text, p_user text, p_session text, p_invocation text, p_token uuid, p_duration_ms integer, p_key text, p_hash text, p_webhook text, p_request jsonb, p_depth integer, p_max_user_bytes bigint, OUT is_there boolean, OUT is_full boolean, OUT queued_since text)
 RETURNS record
 LANGUAGE plpgsql
AS $function$
declare
  v_since timestamptz;
begin
  -- 1
  is_there := exists (select from sessions s where s.app_name = p_app and s.user_id = p_user and s.id = p_session);
  is_full := p_depth <= (
    select count(*) from invocations w
    where w.app_name = p_app and w.user_id = p_user and w.session_id = p_session and w.status = 'queued'
      and w.id <> p_invocation and (w.lease_expire_time > statement_timestamp() or w.request is not null)
      and w.not_before is null);
  if is_full or not is_there then return; end if;
  if p_request is not null then
    perform assert_user_storage(p_app, p_user, octet_length(p_request::text), p_max_user_bytes, false);
  end if;
  -- 2
  insert into invocations as i
    (app_name, user_id, session_id, id, status, lease_token, lease_expire_time, idempotency_key, request_hash,
     webhook_url, request)
  values
    (p_app, p_user, p_session, p_invocation, 'queued', p_token,
     clock_timestamp() + p_duration_ms * interval '1 millisecond', p_key, p_hash, p_webhook, p_request)
  on conflict (app_name, user_id, session_id, id) do update set lease_expire_time = excluded.lease_expire_time
  where i.status = 'queued' and i.lease_token = excluded.lease_token
  returning i.create_time into v_since;
  queued_since := extract(epoch from v_since)::text;
end $function$;

CREATE OR REPLACE FUNCTION public.eval_case_job(p_run uuid, p_place integer, p_trial integer)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
RETURN ((((p_run || '.'::text) || p_place) || '.'::text) || p_trial);

CREATE OR REPLACE FUNCTION public.eval_job_user(p_requester text)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
RETURN COALESCE(p_requester, ''::text);

CREATE OR REPLACE FUNCTION public.eval_run_counts(p_app text, p_run uuid)
 RETURNS jsonb
 LANGUAGE sql
 STABLE
AS $function$
  select jsonb_build_object(
    'total', count(*),
    'waiting', count(*) filter (where c.status = 'waiting'), 'running', count(*) filter (where c.status = 'running'),
    'errors', count(*) filter (where c.status = 'error'), 'cancelled', count(*) filter (where c.status = 'cancelled'),
    'passed', count(*) filter (where c.result ->> 'finalStatus' = 'PASSED'),
    'failed', count(*) filter (where c.result ->> 'finalStatus' = 'FAILED'),
    'notEvaluated', count(*) filter (where c.result ->> 'finalStatus' = 'NOT_EVALUATED'))
  from eval_run_cases c where c.app_name = p_app and c.run_id = p_run
$function$;

CREATE OR REPLACE FUNCTION public.eval_run_scores(p_app text, p_run uuid)
 RETURNS jsonb
 LANGUAGE sql
 STABLE
AS $function$
  select coalesce(jsonb_object_agg(means.name, means.mean), '{}') from (
    select m ->> 'metricName' as name, avg((m ->> 'score')::float8) as mean
    from eval_run_cases c cross join lateral jsonb_array_elements(c.result -> 'overall') m
    where c.app_name = p_app and c.run_id = p_run group by 1) means
$function$;

CREATE OR REPLACE FUNCTION public.event_sizes(p_events jsonb)
 RETURNS integer[]
 LANGUAGE plpgsql
 IMMUTABLE
AS $function$
begin
  if jsonb_array_length(p_events) = 1 then return array[octet_length((p_events -> 0)::text)]; end if;
  return array(
    select octet_length(given.event::text)
    from jsonb_array_elements(p_events) with ordinality as given(event, place) order by given.place);
end $function$;

CREATE OR REPLACE FUNCTION public.finish_invocation(p_app text, p_user text, p_session text, p_invocation text, p_token uuid, p_new_token uuid, p_status text, p_answer text, p_error_code text, p_error_message text, p_llm_calls integer, p_tool_calls integer, p_prompt_tokens integer, p_output_tokens integer, p_models jsonb, p_calls jsonb, p_tasks jsonb, p_tape_start integer, p_tape jsonb, p_prompts jsonb, p_has_deltas boolean, p_events jsonb, p_delta jsonb, p_first_text text, p_remembers boolean, p_limits jsonb, OUT last integer, OUT lines text, OUT unknown integer, OUT is_awaited boolean, OUT ended json)
 RETURNS record
 LANGUAGE plpgsql
AS $function$
declare
  v_sizes integer[] := event_sizes(p_events);
  v_changed timestamptz;
  v_row record;
begin
  -- 1
  update sessions s set
    lease_token = null,
    last_sequence = s.last_sequence + cardinality(v_sizes),
    event_bytes = s.event_bytes + total_size(v_sizes),
    first_text = coalesce(nullif(s.first_text, ''), p_first_text, ''),
    state = case when p_delta ? 'session' then limited_state(s.state || (p_delta -> 'session'), p_limits) else s.state end,
    update_time = next_time(s.update_time, statement_timestamp())
  where s.app_name = p_app and s.user_id = p_user and s.id = p_session and s.lease_token = p_token
  returning s.last_sequence, s.update_time into last, v_changed;
  if not found then return; end if;
  -- 2
  update invocations i set
    status = p_status, lease_token = coalesce(p_new_token, i.lease_token),
    end_time = greatest(i.start_time, statement_timestamp()), response_body = p_answer,
    request = case when p_status = 'paused' then i.request end,
    error_code = p_error_code, error_message = p_error_message,
    llm_calls = i.llm_calls + p_llm_calls, tool_calls = i.tool_calls + p_tool_calls,
    prompt_tokens = i.prompt_tokens + p_prompt_tokens, output_tokens = i.output_tokens + p_output_tokens
  where i.app_name = p_app and i.user_id = p_user and i.session_id = p_session and i.id = p_invocation
    and i.lease_token = p_token
  returning i.create_time, i.start_time, i.end_time, i.llm_calls, i.tool_calls, i.prompt_tokens, i.output_tokens
  into v_row;
  ended := json_build_object(
    'createTime', extract(epoch from v_row.create_time), 'startTime', extract(epoch from v_row.start_time),
    'endTime', extract(epoch from v_row.end_time), 'llmCalls', v_row.llm_calls, 'toolCalls', v_row.tool_calls,
    'promptTokens', v_row.prompt_tokens, 'outputTokens', v_row.output_tokens);
  if p_calls is not null then perform record_calls(p_app, p_user, p_session, p_invocation, p_calls); end if;
  if v_row.tool_calls > 0 then
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
  if p_tape is not null then
    perform keep_tape(p_app, p_user, p_session, p_invocation, p_tape_start, p_tape, p_prompts);
  end if;
  -- 4
  lines := store_events(p_app, p_user, p_session, p_events, v_sizes, p_delta, true, p_limits, last, v_changed, true);
  if p_has_deltas then
    delete from event_deltas d where d.app_name = p_app and d.user_id = p_user and d.session_id = p_session;
  end if;
  if p_models is not null then perform count_use(p_app, p_user, 0, p_models); end if;
  -- 5
  if p_tasks is not null then
    perform open_tasks(p_app, p_user, p_session, p_invocation, p_tasks, (p_limits ->> 'openTasks')::integer);
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
end $function$;

CREATE OR REPLACE FUNCTION public.fire_cronjobs(p_firings jsonb)
 RETURNS text[]
 LANGUAGE plpgsql
AS $function$
declare
  f record;
  r record;
  v_overlap text;
  v_now timestamptz;
  v_fired text[] := '{}';
begin
  for f in
    select * from jsonb_to_recordset(p_firings) as each(
      app text, owner text, id text, due timestamptz, revision integer, next timestamptz, reason text, runs jsonb)
  loop
    select c.overlap into v_overlap from cronjobs c
    where c.app_name = f.app and c.user_id = f.owner and c.id = f.id and c.enabled and c.revision = f.revision
      and date_trunc('milliseconds', c.next_run_time) = f.due
    for no key update skip locked;
    continue when not found or v_overlap = 'replace' and not lock_open_runs(f.app, f.owner, f.id);
    v_now := clock_timestamp();
    for r in select * from jsonb_to_recordset(f.runs) as each(id text, due timestamptz, skipped text) loop
      if r.skipped is null then
        perform queue_run(f.app, f.owner, f.id, r.id, r.due, false, 1, v_now, r.due);
      else
        insert into skipped_runs (app_name, user_id, cronjob_id, id, due_time, reason, create_time, end_time)
        values (f.app, f.owner, f.id, r.id, r.due, r.skipped, v_now, v_now) on conflict do nothing;
      end if;
    end loop;
    update cronjobs c set
      next_run_time = f.next, enabled = f.next is not null, disabled_reason = f.reason,
      run_count = c.run_count + (select count(*) from jsonb_array_elements(f.runs) run where not run ? 'skipped')
    where c.app_name = f.app and c.user_id = f.owner and c.id = f.id;
    v_fired := v_fired || f.id;
  end loop;
  return v_fired;
end $function$;

CREATE OR REPLACE FUNCTION public.follow_deleted_invocation()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
begin
  if old.status not in ('queued', 'running') then return null; end if;
  if old.job is not null then perform continue_job(old); end if;
  if old.cronjob_id is not null and old.first_end_time is null then perform leave_out_deleted_run(old); end if;
  return null;
end $function$;

CREATE OR REPLACE FUNCTION public.follow_invocation()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
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
end $function$;

CREATE OR REPLACE FUNCTION public.forget_runs(p_days integer, p_count integer, p_limit integer)
 RETURNS void
 LANGUAGE plpgsql
 SET enable_seqscan TO 'off'
AS $function$
declare
  c record;
  r record;
  v_old constant timestamptz := clock_timestamp() - p_days * interval '1 day';
  v_place timestamptz;  -- due time of the last of the newest runs
  v_left integer := p_limit;
begin
  for c in select j.app_name, j.user_id, j.id from cronjobs j loop
    select due.due_time into v_place from (
      (select distinct i.due_time from invocations i
       where i.app_name = c.app_name and i.user_id = c.user_id and i.cronjob_id = c.id
       order by i.due_time desc limit p_count)
      union
      (select s.due_time from skipped_runs s
       where s.app_name = c.app_name and s.user_id = c.user_id and s.cronjob_id = c.id
       order by s.due_time desc limit p_count)) due
    order by due.due_time desc offset p_count - 1 limit 1;
    for r in
      select n.due_time from cronjob_runs n
      where n.app_name = c.app_name and n.user_id = c.user_id and n.cronjob_id = c.id
        and n.due_time < greatest(v_old, v_place) and (n.end_time < v_old or n.due_time < v_place and n.end_time is not null)
        and not exists (select from legal_holds h where h.app_name = n.app_name and h.user_id = n.user_id
                        and h.session_id in ('', n.session_id))
      limit v_left
    loop
      update invocations i set cronjob_id = null
      where i.app_name = c.app_name and i.user_id = c.user_id and i.cronjob_id = c.id and i.due_time = r.due_time;
      delete from skipped_runs s
      where s.app_name = c.app_name and s.user_id = c.user_id and s.cronjob_id = c.id and s.due_time = r.due_time;
      v_left := v_left - 1;
    end loop;
    exit when v_left <= 0;
  end loop;
end $function$;

CREATE OR REPLACE FUNCTION public.has_no_rules(p_rules jsonb, p_assigned_users text[], p_assigned_groups text[])
 RETURNS boolean
 LANGUAGE sql
 IMMUTABLE
AS $function$
  select p_assigned_users = '{}' and p_assigned_groups = '{}' and coalesce((p_rules ->> 'approvals')::integer, 1) = 1
     and not coalesce(p_rules -> 'excludesRequester' = 'true', false)
$function$;

CREATE OR REPLACE FUNCTION public.insert_delivery_of_invocation(ended invocations)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
begin
  perform insert_webhook_delivery(
    ended.app_name, ended.user_id, ended.webhook_url,
    case ended.status when 'paused' then 'invocation.paused' else 'invocation.ended' end,
    jsonb_build_object(
      'appName', ended.app_name, 'userId', ended.user_id, 'sessionId', ended.session_id, 'invocationId', ended.id,
      'status', ended.status, 'errorCode', ended.error_code, 'output', left(ended.response_body, 4096),
      'outputTruncated', case when length(ended.response_body) > 4096 then true end));
end $function$;

CREATE OR REPLACE FUNCTION public.insert_delivery_of_skipped_run()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
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
end $function$;

CREATE OR REPLACE FUNCTION public.insert_delivery_of_task()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
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
end $function$;

CREATE OR REPLACE FUNCTION public.insert_webhook_delivery(app text, owner text, address text, type text, data jsonb)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
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
end $function$;

CREATE OR REPLACE FUNCTION public.is_forgotten_key(p_app text, p_user text, p_key text)
 RETURNS boolean
 LANGUAGE plpgsql
 STABLE
AS $function$
begin
  return exists (
    select from idempotency_keys k
    where k.app_name = p_app and k.user_id = p_user and k.scope = 'invocation' and k.key = p_key);
end $function$;

CREATE OR REPLACE FUNCTION public.is_sampled(rule text, id text, share double precision)
 RETURNS boolean
 LANGUAGE sql
 IMMUTABLE
RETURN ((((('x'::text || "left"(md5(((rule || ''::text) || id)), 8)))::bit(32))::bigint)::double precision < (share * ('4294967296'::bigint)::double precision));

CREATE OR REPLACE FUNCTION public.job_apps(p_kind text, p_apps text[])
 RETURNS text[]
 LANGUAGE sql
 STABLE
AS $function$
  with recursive app(name) as (  -- a step for each application, however many lanes it has
    (select l.app_name from job_lanes l where l.kind = p_kind and l.blocked_by is null order by l.app_name limit 1)
    union all
    select (select l.app_name from job_lanes l where l.kind = p_kind and l.blocked_by is null and l.app_name > app.name
            order by l.app_name limit 1)
    from app where app.name is not null)
  select coalesce(p_apps, array(select app.name from app where app.name is not null))
$function$;

CREATE OR REPLACE FUNCTION public.job_block(p_user text, p_lane text, p_half_open boolean, p_running jsonb, p_full text[])
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
RETURN CASE WHEN (('user:'::text || p_user) = ANY (p_full)) THEN ('user:'::text || p_user) WHEN (('lane:'::text || p_lane) = ANY (p_full)) THEN ('lane:'::text || p_lane) WHEN ((((('pair:'::text || p_user) || ''::text) || p_lane) = ANY (p_full)) OR (p_half_open AND (p_running ? ((('pair:'::text || p_user) || ''::text) || p_lane)))) THEN ((('pair:'::text || p_user) || ''::text) || p_lane) ELSE NULL::text END;

CREATE OR REPLACE FUNCTION public.job_keys(p_user text, p_lane text)
 RETURNS text[]
 LANGUAGE sql
 IMMUTABLE
RETURN ARRAY[('user:'::text || p_user), ('lane:'::text || p_lane), ((('pair:'::text || p_user) || ''::text) || p_lane)];

CREATE OR REPLACE FUNCTION public.job_pause(p_kind text, p_apps text[])
 RETURNS double precision
 LANGUAGE sql
 STABLE
AS $function$
  select (1000 * extract(epoch from least(
    (select min(l.turn_time) from unnest(job_apps(p_kind, p_apps)) app(name) cross join lateral (
       select l.turn_time from job_lanes l where l.kind = p_kind and l.app_name = app.name and l.blocked_by is null
       order by l.turn_time limit 1) l),
    (select min(j.lease_expire_time) from jobs j
     where j.kind = p_kind and j.lease_token is not null and (p_apps is null or j.app_name = any(p_apps))),
    (select clock_timestamp() from job_lanes l where l.kind = p_kind and l.blocked_by is not null limit 1))
    - clock_timestamp()))::float8
$function$;

CREATE OR REPLACE FUNCTION public.job_places(p_limits jsonb, p_key text)
 RETURNS integer
 LANGUAGE sql
 IMMUTABLE
RETURN COALESCE(((p_limits ->> split_part(p_key, ':'::text, 1)))::integer, 2147483647);

CREATE OR REPLACE FUNCTION public.keep_answer(p_app text, p_user text, p_session text, p_invocation text, p_token uuid, p_calls jsonb, p_max_user_bytes bigint, OUT held boolean, OUT earlier text)
 RETURNS record
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'public', 'pg_temp'
AS $function$
begin
  select kept.held into held
  from keep_calls(p_app, p_user, p_session, p_invocation, p_token, p_calls, p_max_user_bytes) kept;
end $function$;

CREATE OR REPLACE FUNCTION public.keep_calls(p_app text, p_user text, p_session text, p_invocation text, p_token uuid, p_calls jsonb, p_max_user_bytes bigint, OUT held boolean, OUT earlier text)
 RETURNS record
 LANGUAGE plpgsql
AS $function$
begin
  perform from sessions s
  where s.app_name = p_app and s.user_id = p_user and s.id = p_session and s.lease_token = p_token
  for share;
  held := found;
  if not held then return; end if;
  -- The rows are locked, to wait for a transaction of a tool that may still commit its response (keep_answer).
  earlier := (
    select jsonb_agg(jsonb_build_object('id', k.call_id, 'state', k.state, 'attempt', k.attempt, 'response', k.response))
    from (
      select t.* from tool_calls t
      where t.app_name = p_app and t.user_id = p_user and t.session_id = p_session and t.invocation_id = p_invocation
        and t.call_id = any(array(select v_call ->> 'id' from jsonb_array_elements(p_calls) v_call))
      for update) k)::text;
  perform assert_user_storage(p_app, p_user, octet_length(p_calls::text), p_max_user_bytes, false);
  perform record_calls(p_app, p_user, p_session, p_invocation, p_calls);
end $function$;

CREATE OR REPLACE FUNCTION public.keep_invocation_key()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
begin
  insert into idempotency_keys (app_name, user_id, scope, key, request_hash, response_body, session_id)
  select old.app_name, old.user_id, 'invocation', old.idempotency_key, coalesce(old.request_hash, ''), '', old.session_id
  where not exists (select from sessions
                    where app_name = old.app_name and user_id = old.user_id and id = old.session_id)
  on conflict do nothing;
  return null;
end $function$;

CREATE OR REPLACE FUNCTION public.keep_signal(p_app text, p_user text, p_session text, p_name text, p_payload jsonb, p_groups text[], p_max integer, OUT outcome text)
 RETURNS text
 LANGUAGE plpgsql
AS $function$
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
end $function$;

CREATE OR REPLACE FUNCTION public.keep_tape(p_app text, p_user text, p_session text, p_invocation text, p_start integer, p_tape jsonb, p_prompts jsonb)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
declare
  v_prompt jsonb;
  v_stale timestamptz := statement_timestamp() - interval '1 day';
begin
  insert into invocation_tapes (app_name, user_id, session_id, invocation_id, start, payload)
  values (p_app, p_user, p_session, p_invocation, p_start, p_tape) on conflict do nothing;
  for v_prompt in select * from jsonb_array_elements(p_prompts) loop
    insert into agent_prompts as a (app_name, hash, payload)
    values (p_app, v_prompt ->> 'hash', v_prompt -> 'payload')
    on conflict (app_name, hash) do update set use_time = excluded.use_time
    where a.use_time < v_stale;
  end loop;
end $function$;

CREATE OR REPLACE FUNCTION public.latest_run_time(p_app text, p_user text, p_cronjob text)
 RETURNS timestamp with time zone
 LANGUAGE sql
 STABLE
AS $function$
  select greatest(
    (select max(i.due_time) from invocations i
     where i.app_name = p_app and i.user_id = p_user and i.cronjob_id = p_cronjob),
    (select max(s.due_time) from skipped_runs s
     where s.app_name = p_app and s.user_id = p_user and s.cronjob_id = p_cronjob))
$function$;

CREATE OR REPLACE FUNCTION public.lease_job(p_kind text, p_app text, p_user text, p_id text, p_lease_ms integer, p_losses integer)
 RETURNS jsonb
 LANGUAGE plpgsql
AS $function$
declare
  v_job jsonb;
begin
  update jobs j set lease_token = gen_random_uuid(), attempt = j.attempt + 1, losses = j.losses + p_losses,
                    lease_expire_time = clock_timestamp() + p_lease_ms * interval '1 millisecond'
  where j.app_name = p_app and j.user_id = p_user and j.kind = p_kind and j.id = p_id
  returning jsonb_build_object('appName', j.app_name, 'userId', j.user_id, 'id', j.id, 'attempt', j.attempt,
                               'losses', j.losses, 'token', j.lease_token) into v_job;
  return v_job;
end $function$;

CREATE OR REPLACE FUNCTION public.leave_out_deleted_run(deleted invocations)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
begin
  if exists (select from sessions s
             where s.app_name = deleted.app_name and s.user_id = deleted.user_id and s.id = deleted.session_id)
    or exists (select from user_erasures e where e.app_name = deleted.app_name and e.user_id = deleted.user_id)
  then
    return;
  end if;
  insert into skipped_runs (app_name, user_id, cronjob_id, id, due_time, tries, reason, create_time, end_time)
  select deleted.app_name, deleted.user_id, deleted.cronjob_id, deleted.run_id, deleted.due_time,
         deleted.try - (deleted.start_time is null)::int, 'Its session was deleted.', deleted.create_time, clock_timestamp()
  from cronjobs c where c.app_name = deleted.app_name and c.user_id = deleted.user_id and c.id = deleted.cronjob_id
  on conflict do nothing;
  perform wake_runs(deleted.user_id);
end $function$;

CREATE OR REPLACE FUNCTION public.limited_size(p_event_bytes bigint, p_limits jsonb)
 RETURNS bigint
 LANGUAGE sql
 IMMUTABLE
AS $function$ select assert_session_size(p_event_bytes, (p_limits ->> 'sessionBytes')::bigint) $function$;

CREATE OR REPLACE FUNCTION public.limited_state(p_state jsonb, p_limits jsonb)
 RETURNS jsonb
 LANGUAGE sql
 IMMUTABLE
AS $function$ select assert_state_size(p_state, (p_limits ->> 'stateBytes')::int, (p_limits ->> 'stateKeys')::int) $function$;

CREATE OR REPLACE FUNCTION public.list_audit(p_wanted json, OUT page json)
 RETURNS json
 LANGUAGE plpgsql
 STABLE
AS $function$
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
        and (p_wanted ->> 'operation' is null or operation = p_wanted ->> 'operation')
        and (p_wanted ->> 'appName' is null or resource ->> 'appName' = p_wanted ->> 'appName')
        and (p_wanted ->> 'userId' is null or resource ->> 'userId' = p_wanted ->> 'userId')
        and coalesce(extract(epoch from time) >= (p_wanted ->> 'from')::numeric, true)
        and coalesce(extract(epoch from time) < (p_wanted ->> 'to')::numeric, true)
      order by id desc limit rest + 1) entries;
end $function$;

CREATE OR REPLACE FUNCTION public.lock_budgets(p_app text, p_user text)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
begin
  perform pg_advisory_xact_lock(hashtextextended(p_app || E'\x01' || case when exists (
    select from budgets b where b.app_name = p_app and b.applies_to = 'app') then '' else p_user end, 7240032));
end $function$;

CREATE OR REPLACE FUNCTION public.lock_open_runs(p_app text, p_user text, p_cronjob text)
 RETURNS boolean
 LANGUAGE plpgsql
AS $function$
declare
  v_locked integer;
begin
  select count(*) into v_locked from (
    select from invocations i
    where i.app_name = p_app and i.user_id = p_user and i.cronjob_id = p_cronjob and i.first_end_time is null
      and i.status in ('queued', 'running')
    for no key update skip locked) locked;
  return v_locked >= count_open_runs(p_app, p_user, p_cronjob);
end $function$;

CREATE OR REPLACE FUNCTION public.may_answer(p_user text, p_rules jsonb, p_assigned_users text[], p_assigned_groups text[], p_by text, p_groups text[])
 RETURNS boolean
 LANGUAGE sql
 IMMUTABLE
AS $function$
  select not (p_by = p_user and coalesce(p_rules -> 'excludesRequester' = 'true', false))
     and case when p_assigned_users = '{}' and p_assigned_groups = '{}' then p_by = p_user
              else p_by = any(p_assigned_users) or p_assigned_groups && p_groups end
$function$;

CREATE OR REPLACE FUNCTION public.may_begin_run(p_app text, p_user text, p_cronjob text, p_places integer)
 RETURNS boolean
 LANGUAGE plpgsql
AS $function$
begin
  perform pg_advisory_xact_lock(hashtextextended('cronjob runs of ' || p_user, 0));
  return begun_runs(p_user) < p_places and not exists (
    select from invocations i
    where i.user_id = p_user and i.app_name = p_app and i.cronjob_id = p_cronjob and i.first_end_time is null
      and i.status in ('queued', 'running') and i.not_before is null);
end $function$;

CREATE OR REPLACE FUNCTION public.memory_pieces(p_text text, p_singles boolean)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
AS $function$
  select string_agg(pieces, ' ')
  from regexp_matches(p_text, E'[\\u0e00-\\u0eff\\u1000-\\u109f\\u1780-\\u17ff\\u3040-\\u30ff\\u3400-\\u4dbf\\u4e00-\\u9fff\\uac00-\\ud7a3\\uf900-\\ufaff\\uff66-\\uff9f\\U00020000-\\U0003ffff]+', 'g') found(runs),
    lateral (
      select string_agg(substr(runs[1], start, size), ' ') as pieces
      from generate_series(1, length(runs[1])) start, generate_series(1, 2) size
      where start + size - 1 <= length(runs[1]) and (size = 2 or p_singles or length(runs[1]) = 1)) cut
$function$;

CREATE OR REPLACE FUNCTION public.memory_words(p_text text, p_singles boolean)
 RETURNS tsvector
 LANGUAGE sql
 IMMUTABLE
AS $function$
  select to_tsvector('simple', concat_ws(' ', regexp_replace(p_text, E'(\\S{128})', E'\\1 ', 'g'),
                                         regexp_replace(regexp_replace(p_text, '[^[:alnum:]]+', ' ', 'g'), E'(\\S{128})', E'\\1 ', 'g'),
                                         memory_pieces(p_text, p_singles)))
$function$;

CREATE OR REPLACE FUNCTION public.memory_words_asked(p_text text)
 RETURNS tsquery
 LANGUAGE sql
 IMMUTABLE
AS $function$
  select coalesce(string_agg('''' || replace(replace(lexeme, E'\\', E'\\\\'), '''', '''''') || '''', ' | '), '')::tsquery
  from unnest(memory_words(p_text, false))
$function$;

CREATE OR REPLACE FUNCTION public.merge_app_state(p_app text, p_user text, p_delta jsonb, p_from_runtime boolean, p_limits jsonb)
 RETURNS void
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'public', 'pg_temp'
AS $function$
declare
  v_keys text[] := array(select jsonb_object_keys(p_delta));
  v_max integer := p_limits ->> 'appStateBytesPerUser';
  v_user jsonb := to_jsonb(p_user);
  v_writers jsonb;
begin
  perform assert_own_user(p_user);
  if p_from_runtime then
    v_writers := (select jsonb_object_agg(key, p_user) from unnest(v_keys) key);
    insert into app_states as a (app_name, state, writers)
    values (p_app, limited_state(p_delta, p_limits), assert_writer_share(p_delta, v_writers, v_user, v_max))
    on conflict (app_name) do update set
      state = limited_state(a.state || excluded.state, p_limits),
      writers = assert_writer_share(a.state || excluded.state, a.writers || excluded.writers, v_user, v_max),
      update_time = next_time(a.update_time, excluded.update_time);
  else
    insert into app_states as a (app_name, state) values (p_app, limited_state(p_delta, p_limits))
    on conflict (app_name) do update set
      state = limited_state(a.state || excluded.state, p_limits),
      writers = a.writers - v_keys,
      update_time = next_time(a.update_time, excluded.update_time);
  end if;
end $function$;

CREATE OR REPLACE FUNCTION public.move_job(p_kind text, p_app text, p_user text, p_id text, p_lane text, p_due timestamp with time zone)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
begin
  perform add_job_lane(p_kind, p_app, p_user, p_lane, p_due, false);
  insert into jobs (kind, app_name, user_id, id, lane, due_time) values (p_kind, p_app, p_user, p_id, p_lane, p_due)
  on conflict (app_name, user_id, kind, id) do update set
    due_time = excluded.due_time, attempt = 0, losses = 0, lease_token = null, lease_expire_time = null;
end $function$;

CREATE OR REPLACE FUNCTION public.new_eval_session()
 RETURNS text
 LANGUAGE sql
RETURN ('adk-eval-session-'::text || gen_random_uuid());

CREATE OR REPLACE FUNCTION public.next_due(p_made timestamp with time zone, p_expires timestamp with time zone, p_rules jsonb, p_reminders integer)
 RETURNS timestamp with time zone
 LANGUAGE sql
 IMMUTABLE
AS $function$
  select least(p_expires, p_made
               + (p_rules #>> array['remindAfter', p_reminders::text])::float8 * interval '1 second')
$function$;

CREATE OR REPLACE FUNCTION public.next_eval_case_version(app text, eval_set text, eval_case text)
 RETURNS integer
 LANGUAGE plpgsql
 STABLE
AS $function$
declare
  before text := current_setting('agent_runtime.all_users', true);
  n integer;
begin
  perform set_config('agent_runtime.all_users', 'on', true);
  n := (select 1 + coalesce(max(version), 0) from eval_case_versions
        where app_name = app and eval_set_id = eval_set and eval_id = eval_case);
  perform set_config('agent_runtime.all_users', coalesce(before, ''), true);
  return n;
end $function$;

CREATE OR REPLACE FUNCTION public.next_time(p_before timestamp with time zone, p_moment timestamp with time zone)
 RETURNS timestamp with time zone
 LANGUAGE sql
 IMMUTABLE
AS $function$ select greatest((p_before at time zone 'utc' + interval '1 microsecond') at time zone 'utc', p_moment) $function$;

CREATE OR REPLACE FUNCTION public.open_tasks(p_app text, p_user text, p_session text, p_invocation text, p_tasks jsonb, p_max integer)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
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
              then least((w.task ->> 'expiresAt')::timestamp at time zone coalesce(w.task ->> 'timeZone', 'UTC'),
                         v_now + interval '366 days')
              else v_now + (w.task ->> 'expiresAfter')::float8 * interval '1 second' end,
         v_now
  from jsonb_array_elements(p_tasks) w(task);
  -- If the signal that a task waits for is already stored, the task is due at once.
  update tasks t set due_time = least(next_due(t.create_time, t.expire_time, t.rules, t.reminders), (
    select v_now from signals s
    where s.app_name = p_app and s.user_id = p_user and s.session_id = p_session and s.name = t.signal_name limit 1))
  where t.app_name = p_app and t.user_id = p_user and t.session_id = p_session and t.invocation_id = p_invocation
    and t.create_time = v_now and (t.expire_time is not null or t.rules ? 'remindAfter' or t.signal_name is not null);
  if found then perform pg_notify('agent_runtime', '["tasks"]'); end if;
end $function$;

CREATE OR REPLACE FUNCTION public.over_budget(p_app text, p_user text, p_tokens bigint DEFAULT NULL::bigint, p_cost numeric DEFAULT NULL::numeric)
 RETURNS json
 LANGUAGE plpgsql
AS $function$
begin
  if not exists (select from budgets b where b.app_name = p_app and b.user_id in ('', p_user)) then return null; end if;
  return (
    select json_build_object('appliesTo', spent.applies_to, 'period', spent.period, 'what', spent.what,
      'isShort', coalesce(spent.what = 'tokens' and spent.tokens < spent.max_tokens
                          or spent.what = 'cost' and spent.cost < spent.max_cost, false),
      'seconds', ceil(extract(epoch from spent.opens - clock_timestamp())),
      'opens', to_char(spent.opens at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'))
    from (
      select b.*,
        case when p_tokens is null and b.invocations >= b.max_invocations then 'invocations'
             when greatest(b.tokens + 1, b.tokens + p_tokens) > b.max_tokens then 'tokens'
             when b.cost >= b.max_cost or b.cost + p_cost > b.max_cost then 'cost' end as what
      from budgets_for(p_app, p_user) b) spent
    where spent.what is not null order by spent.opens desc limit 1);
end $function$;

CREATE OR REPLACE FUNCTION public.push_payload(push jsonb, data jsonb, moment timestamp with time zone)
 RETURNS json
 LANGUAGE plpgsql
 IMMUTABLE
AS $function$
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
end $function$;

CREATE OR REPLACE FUNCTION public.put_back_job(p_kind text, p_app text, p_user text, p_id text, p_token uuid, p_pause_ms bigint, p_half_open boolean DEFAULT false, p_anew boolean DEFAULT false)
 RETURNS boolean
 LANGUAGE plpgsql
 SET enable_seqscan TO 'off'
AS $function$
declare
  v_due timestamptz := clock_timestamp() + p_pause_ms * interval '1 millisecond';
  v_lane text;
begin
  select j.lane into v_lane from jobs j
  where j.app_name = p_app and j.user_id = p_user and j.kind = p_kind and j.id = p_id and j.lease_token = p_token;
  if not found then return false; end if;
  perform add_job_lane(p_kind, p_app, p_user, v_lane, v_due, p_half_open);
  update jobs j set
    lease_token = null, lease_expire_time = null, due_time = v_due,
    attempt = case when p_anew then 0 else j.attempt end, losses = case when p_anew then 0 else j.losses end
  where j.app_name = p_app and j.user_id = p_user and j.kind = p_kind and j.id = p_id and j.lease_token = p_token;
  return found;
end $function$;

CREATE OR REPLACE FUNCTION public.queue_in_session(p_app text, p_user text, p_session text, p_invocation text)
 RETURNS void
 LANGUAGE sql
AS $function$
  update invocations i set not_before = null
  where i.app_name = p_app and i.user_id = p_user and i.session_id = p_session and i.id = p_invocation
$function$;

CREATE OR REPLACE FUNCTION public.queue_manual_run(p_user text, p_cronjob text, p_run text, p_most integer, OUT refusal text, OUT run jsonb)
 RETURNS record
 LANGUAGE plpgsql
AS $function$
declare
  c record;
  v_due timestamptz;
begin
  select j.app_name, j.user_id, j.enabled into c from cronjobs j
  where j.id = p_cronjob and (p_user is null or j.user_id = p_user) for no key update;
  refusal := case when not found then 'absent' when not c.enabled then 'disabled'
                  when count_open_runs(c.app_name, c.user_id, p_cronjob) >= p_most then 'full' end;
  if refusal is not null then return; end if;
  v_due := date_trunc('milliseconds', clock_timestamp());
  if not queue_run(c.app_name, c.user_id, p_cronjob, p_run, v_due, true, 1, clock_timestamp(), v_due) then
    refusal := 'taken';
    return;
  end if;
  select to_jsonb(r) into run from cronjob_runs r
  where r.app_name = c.app_name and r.user_id = c.user_id and r.cronjob_id = p_cronjob and r.due_time = v_due;
end $function$;

CREATE OR REPLACE FUNCTION public.queue_run(p_app text, p_user text, p_cronjob text, p_run text, p_due timestamp with time zone, p_is_manual boolean, p_try integer, p_since timestamp with time zone, p_not_before timestamp with time zone)
 RETURNS boolean
 LANGUAGE plpgsql
AS $function$
declare
  c record;
  v_session text;
begin
  select j.session_id, run_request(j.prompt, j.harness, j.timeout_seconds) as request into c from cronjobs j
  where j.app_name = p_app and j.user_id = p_user and j.id = p_cronjob;
  if exists (select from user_erasures e where e.app_name = p_app and e.user_id = p_user)
    or exists (select from invocations i where i.app_name = p_app and i.user_id = p_user and i.cronjob_id = p_cronjob
               and i.due_time = p_due and i.try >= p_try)
    or exists (select from skipped_runs s where s.app_name = p_app and s.user_id = p_user and s.cronjob_id = p_cronjob
               and s.due_time = p_due)
  then
    return false;
  end if;
  v_session := coalesce(c.session_id, p_run || case when p_try > 1 then '-' || p_try else '' end);
  insert into sessions (app_name, user_id, id) values (p_app, p_user, v_session) on conflict do nothing;
  insert into invocations
    (app_name, user_id, session_id, id, status, lease_token, lease_expire_time, request, create_time, not_before,
     cronjob_id, run_id, due_time, is_manual, try)
  values
    (p_app, p_user, v_session, 'e-' || gen_random_uuid(), 'queued', gen_random_uuid(), clock_timestamp(), c.request,
     p_since, p_not_before, p_cronjob, p_run, p_due, p_is_manual, p_try);
  perform pg_notify('agent_runtime', '["queue"]');
  return true;
end $function$;

CREATE OR REPLACE FUNCTION public.record_calls(p_app text, p_user text, p_session text, p_invocation text, p_calls jsonb)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
declare
  v_call jsonb;
begin
  for v_call in select given from jsonb_array_elements(p_calls) given where given ? 'state' loop
    insert into tool_calls as t
      (app_name, user_id, session_id, invocation_id, call_id, operation_id, tool, effect, state, attempt, response)
    values
      (p_app, p_user, p_session, p_invocation, v_call ->> 'id', (v_call ->> 'operationId')::uuid, v_call ->> 'tool',
       v_call ->> 'effect', v_call ->> 'state', (v_call ->> 'attempt')::smallint, v_call -> 'response')
    on conflict (app_name, user_id, session_id, invocation_id, call_id) do update set
      state = excluded.state, attempt = greatest(t.attempt, excluded.attempt), response = excluded.response,
      update_time = excluded.update_time
    where excluded.state <> 'started' or excluded.attempt > t.attempt or excluded.response is not null;
  end loop;
end $function$;

CREATE OR REPLACE FUNCTION public.refuse_audit_change()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
begin
  if tg_op = 'DELETE' and current_setting('agent_runtime.audit_deletes', true) = 'on' then return null; end if;
  raise exception 'audit_log is only appended to' using errcode = '42501';
end $function$;

CREATE OR REPLACE FUNCTION public.refuse_on_hold()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
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
end $function$;

CREATE OR REPLACE FUNCTION public.refuse_while_erased()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
begin
  perform pg_advisory_xact_lock_shared(user_data_lock(new.app_name, new.user_id));
  if exists (select from user_erasures e where e.app_name = new.app_name and e.user_id = new.user_id) then
    raise exception 'the user is being erased' using errcode = 'AR409';
  end if;
  return new;
end $function$;

CREATE OR REPLACE FUNCTION public.renew_claim(p_app text, p_user text, p_session text, p_invocation text, p_token uuid, p_duration_ms integer)
 RETURNS boolean
 LANGUAGE plpgsql
AS $function$
declare
  -- The time is in a variable, because a distributed database allows no volatile function in an update.
  v_now constant timestamptz := clock_timestamp();
begin
  update invocations i set lease_expire_time = v_now + p_duration_ms * interval '1 millisecond'
  where i.app_name = p_app and i.user_id = p_user and i.session_id = p_session and i.id = p_invocation
    and i.lease_token = p_token and i.status = 'running' and exists (
      select from sessions s
      where s.app_name = p_app and s.user_id = p_user and s.id = p_session and s.lease_token = p_token);
  return found;
end $function$;

CREATE OR REPLACE FUNCTION public.renew_jobs(p_kind text, p_jobs jsonb, p_lease_ms integer, OUT tokens uuid[])
 RETURNS uuid[]
 LANGUAGE plpgsql
 SET enable_seqscan TO 'off'
AS $function$
begin
  with renewed as (
    update jobs j set lease_expire_time = clock_timestamp() + p_lease_ms * interval '1 millisecond'
    from jsonb_to_recordset(p_jobs) c("appName" text, "userId" text, id text, token uuid)
    where j.kind = p_kind and j.app_name = c."appName" and j.user_id = c."userId" and j.id = c.id
      and j.lease_token = c.token
    returning j.lease_token)
  select coalesce(array_agg(lease_token), '{}') into tokens from renewed;
end $function$;

CREATE OR REPLACE FUNCTION public.renew_reservation(p_app text, p_user text, p_id uuid, p_duration_ms integer)
 RETURNS void
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'public', 'pg_temp'
AS $function$
begin
  perform assert_own_user(p_user);
  update budget_reservations r set expire_time = statement_timestamp() + p_duration_ms * interval '1 millisecond'
  where r.app_name = p_app and r.user_id = p_user and r.id = p_id;
end $function$;

CREATE OR REPLACE FUNCTION public.requeue_runs(p_app text, p_user text, p_cronjob text)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
begin
  perform queue_run(p_app, p_user, p_cronjob, r.run, r.due, r.is_on_request, r.number, r.since, r.earliest)
  from unqueue_runs(p_app, p_user, p_cronjob) r;
end $function$;

CREATE OR REPLACE FUNCTION public.reserve_budget(p_app text, p_user text, p_id uuid, p_model text, p_prompt bigint, p_output bigint, p_duration_ms integer, OUT reserved boolean, OUT over json, OUT limited boolean)
 RETURNS record
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'public', 'pg_temp'
AS $function$
declare
  v_tokens bigint := p_prompt + p_output;
  v_cost numeric;
begin
  perform assert_own_user(p_user);
  limited := exists (
    select from budgets_for(p_app, p_user) b where b.max_tokens is not null or b.max_cost is not null);
  reserved := not limited;
  if reserved then return; end if;
  -- 1
  perform lock_budgets(p_app, p_user);
  delete from budget_reservations r
  where r.app_name = p_app and r.user_id = p_user and (r.id = p_id or r.expire_time <= statement_timestamp());
  select coalesce((p_prompt * coalesce(max(m.prompt_price) filter (where m.is_known), max(m.prompt_price))
                   + p_output * coalesce(max(m.output_price) filter (where m.is_known), max(m.output_price))) / 1000000, 0)
  into v_cost
  from (
    select p.prompt_price, p.output_price, starts_with(p.model, p_model) or p.model = (
        select k.model from model_prices k where starts_with(p_model, k.model) order by length(k.model) desc limit 1) as is_known
    from model_prices p) m;
  -- 2
  over := over_budget(p_app, p_user, v_tokens, v_cost);
  if over is not null then return; end if;
  -- 3
  if exists (
    select from budgets_for(p_app, p_user) b cross join lateral (
      select coalesce(sum(r.tokens), 0) as tokens, coalesce(sum(r.cost), 0) as cost from budget_reservations r
      where r.app_name = p_app and r.user_id = p_user and b.applies_to = 'app') own
    where b.tokens + b.reserved_tokens + v_tokens > b.max_tokens or b.cost + b.reserved_cost + v_cost > b.max_cost
      or own.tokens > 0 and (2 * (own.tokens + v_tokens) > b.max_tokens - b.tokens or 2 * (own.cost + v_cost) > b.max_cost - b.cost))
  then return; end if;
  insert into budget_reservations (app_name, user_id, id, tokens, cost, expire_time)
  values (p_app, p_user, p_id, v_tokens, v_cost, clock_timestamp() + p_duration_ms * interval '1 millisecond');
  reserved := true;
end $function$;

CREATE OR REPLACE FUNCTION public.row_version(p_update_time timestamp with time zone)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
AS $function$ select to_hex((extract(epoch from p_update_time at time zone 'utc') * 1000000)::bigint) $function$;

CREATE OR REPLACE FUNCTION public.run_error(p_status text, p_message text)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
AS $function$
  select case when p_status = 'paused' then 'The invocation waits for a person, in its session.' else p_message end
$function$;

CREATE OR REPLACE FUNCTION public.run_output(p_status text, p_answer text)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
AS $function$
  select case when p_status in ('succeeded', 'paused') then p_answer end
$function$;

CREATE OR REPLACE FUNCTION public.run_request(p_prompt text, p_harness jsonb, p_timeout_seconds integer)
 RETURNS jsonb
 LANGUAGE sql
 IMMUTABLE
AS $function$
  select jsonb_build_object(
    'version', 1, 'streaming', false, 'isRun', true, 'answer', jsonb_build_object('kind', 'output'),
    'content', jsonb_build_object('role', 'user', 'parts', jsonb_build_array(jsonb_build_object('text', p_prompt))),
    'overrides', case when p_timeout_seconds is null then '{}' else jsonb_build_object('timeAtMostMs', 1000 * p_timeout_seconds) end,
    'harness', p_harness)
$function$;

CREATE OR REPLACE FUNCTION public.service_state(OUT replicas json, OUT queues json)
 RETURNS record
 LANGUAGE plpgsql
 STABLE
AS $function$
begin
  select coalesce(json_agg(json_build_object('version', split_part(split_part(application_name, '/', 2), ' ', 1),
      'host', split_part(application_name, ' ', 2), 'startTime', extract(epoch from backend_start)) order by backend_start), '[]')
    into replicas from pg_stat_activity
    where datname = current_database() and application_name like 'agent-runtime/%';
  with kinds(kind, name) as (values ('delivery', 'webhook deliveries'), ('score', 'scores')),
    waits(name, since) as (
      (select 'invocations', create_time from invocations
        where status = 'queued' and request is not null and not_before is null order by 2 limit 1001)
      union all (select 'invocations', create_time from invocations where status = 'queued' and request is null limit 1001)
      union all (select 'tasks', create_time from tasks where state = 'open' limit 1001)
      union all (select 'cronjob runs', not_before from invocations
        where cronjob_id is not null and first_end_time is null and status in ('queued', 'running') and not_before is not null
        order by 2 limit 1001)
      union all (select kinds.name, due.since from kinds cross join lateral (
        (select due_time as since from jobs j where j.kind = kinds.kind and lease_token is null order by 1 limit 1001)
        union all (select lease_expire_time from jobs j
          where j.kind = kinds.kind and lease_token is not null and lease_expire_time <= now() limit 1001)) due)
      union all (select 'evaluation cases', r.create_time
        from eval_runs r join eval_run_cases c on c.app_name = r.app_name and c.run_id = r.id
        where r.status in ('queued', 'running') and c.status = 'waiting' order by 2 limit 1001)),
    works(name, running) as (
      select 'invocations', (select count(*) from invocations where status = 'running')
      union all select 'tasks', 0
      union all select 'cronjob runs', (select count(*) from invocations
        where cronjob_id is not null and first_end_time is null and status in ('queued', 'running') and not_before is null)
      union all select kinds.name, (select count(*) from jobs j
        where j.kind = kinds.kind and lease_token is not null and lease_expire_time > now()) from kinds
      union all select 'evaluation cases', (select count(*) from eval_run_cases where status = 'running'))
  select json_agg(json_build_object('name', name, 'waiting', least(waiting, 1000), 'more', waiting > 1000, 'running', running,
      'oldestSeconds', case when waiting > 0 then greatest(extract(epoch from clock_timestamp() - oldest), 0) end) order by name)
    into queues from (
      select name, running, count(since) as waiting, min(since) as oldest from works left join waits using (name) group by 1, 2) each;
end $function$;

CREATE OR REPLACE FUNCTION public.session_etag(p_session timestamp with time zone, p_app_state timestamp with time zone, p_user_state timestamp with time zone)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
AS $function$ select '"' || row_version(p_session) || '.' || coalesce(row_version(p_app_state), '') || '.'
       || coalesce(row_version(p_user_state), '') || '"' $function$;

CREATE OR REPLACE FUNCTION public.skip_runs(p_app text, p_user text, p_cronjob text, p_reason text)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
declare
  r record;
begin
  for r in select * from unqueue_runs(p_app, p_user, p_cronjob) loop
    if r.is_on_request then
      perform queue_run(p_app, p_user, p_cronjob, r.run, r.due, true, r.number, r.since, r.earliest);
    else
      insert into skipped_runs (app_name, user_id, cronjob_id, id, due_time, tries, reason, create_time, end_time)
      values (p_app, p_user, p_cronjob, r.run, r.due, r.number - 1, p_reason, r.since, clock_timestamp());
    end if;
  end loop;
end $function$;

CREATE OR REPLACE FUNCTION public.spend_budget(p_app text, p_user text, p_models jsonb, p_id text, OUT over json)
 RETURNS json
 LANGUAGE plpgsql
AS $function$
begin
  if p_id is not null then
    insert into idempotency_keys (app_name, user_id, scope, key, request_hash, response_body)
    values (p_app, p_user, 'spend', p_id, '', '') on conflict do nothing;
    if not found then p_models := null; end if;
  end if;
  if p_models is not null then perform count_use(p_app, p_user, 0, p_models); end if;
  over := over_budget(p_app, p_user, 0, 0);
end $function$;

CREATE OR REPLACE FUNCTION public.stamp_run_end()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
begin
  new.first_end_time := coalesce(new.end_time, statement_timestamp());
  new.not_before := null;
  return new;
end $function$;

CREATE OR REPLACE FUNCTION public.start_eval_cases()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
begin
  perform advance_eval_run(app_name, run_id) from (select distinct app_name, run_id from added) runs;
  return null;
end $function$;

CREATE OR REPLACE FUNCTION public.state_size(p_state jsonb, p_initial_state jsonb)
 RETURNS bigint
 LANGUAGE sql
 IMMUTABLE
AS $function$ select octet_length(p_state::text)::bigint + octet_length(p_initial_state::text) - 4 $function$;

CREATE OR REPLACE FUNCTION public.store_events(p_app text, p_user text, p_session text, p_events jsonb, p_sizes integer[], p_delta jsonb, p_from_runtime boolean, p_limits jsonb, p_last integer, p_changed timestamp with time zone, p_returns boolean)
 RETURNS text
 LANGUAGE plpgsql
AS $function$
declare
  v_first integer := p_last - cardinality(p_sizes);
  v_event jsonb;
  v_place integer;
  v_line text;
  v_lines text[];
begin
  -- 1
  if p_delta ? 'user' then
    insert into user_states as u (app_name, user_id, state)
    values (p_app, p_user, limited_state(p_delta -> 'user', p_limits))
    on conflict (app_name, user_id) do update set
      state = limited_state(u.state || excluded.state, p_limits),
      update_time = next_time(u.update_time, excluded.update_time);
  end if;
  if p_delta ? 'app' then perform merge_app_state(p_app, p_user, p_delta -> 'app', p_from_runtime, p_limits); end if;
  -- 2
  for v_event, v_place in select given.event, given.place
    from jsonb_array_elements(p_events) with ordinality as given(event, place) order by given.place
  loop
    insert into events as e
      (app_name, user_id, session_id, sequence, id, invocation_id, author, event_time, is_from_runtime, payload, bytes)
    values
      (p_app, p_user, p_session, v_first + v_place, v_event ->> 'id', v_event ->> 'invocationId', v_event ->> 'author',
       case when v_event ->> 'timestamp' is null then p_changed
            else clamped_time((v_event ->> 'timestamp')::float8) end,
       p_from_runtime,
       case when v_event ->> 'timestamp' is null
            then v_event || jsonb_build_object('timestamp', extract(epoch from p_changed)) else v_event end,
       p_sizes[v_place])
    returning case when p_returns then e.payload::text end into v_line;
    v_lines := v_lines || v_line;
  end loop;
  return array_to_string(v_lines, E'\n');
end $function$;

CREATE OR REPLACE FUNCTION public.sum_up_use_of_app()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
declare
  v_today date := (statement_timestamp() at time zone 'utc')::date;
begin
  insert into budget_totals as t (app_name, since, shard, invocations, tokens, cost)
  select new.app_name, period.since, -1,
    used.invocations - counted.invocations, used.tokens - counted.tokens, used.cost - counted.cost
  from (select distinct unnest(array[v_today, date_trunc('month', v_today::timestamp)::date]) as since) period
  cross join lateral (
    select coalesce(sum(u.invocations), 0) as invocations,
           coalesce(sum(u.prompt_tokens + u.output_tokens), 0) as tokens, coalesce(sum(u.cost), 0) as cost
    from budget_uses u where u.app_name = new.app_name and u.day >= period.since) used
  cross join lateral (
    select coalesce(sum(c.invocations), 0) as invocations, coalesce(sum(c.tokens), 0) as tokens,
           coalesce(sum(c.cost), 0) as cost
    from budget_totals c where c.app_name = new.app_name and c.since = period.since and c.shard <> -1) counted
  on conflict (app_name, since, shard) do update set
    invocations = excluded.invocations, tokens = excluded.tokens, cost = excluded.cost;
  return null;
end $function$;

CREATE OR REPLACE FUNCTION public.total_size(p_sizes integer[])
 RETURNS bigint
 LANGUAGE plpgsql
 IMMUTABLE
AS $function$
begin
  if cardinality(p_sizes) = 1 then return p_sizes[1]; end if;
  return coalesce((select sum(size) from unnest(p_sizes) size), 0);
end $function$;

CREATE OR REPLACE FUNCTION public.unqueue_runs(p_app text, p_user text, p_cronjob text, OUT run text, OUT due timestamp with time zone, OUT is_on_request boolean, OUT number integer, OUT since timestamp with time zone, OUT earliest timestamp with time zone)
 RETURNS SETOF record
 LANGUAGE plpgsql
AS $function$
declare
  r record;
begin
  for r in
    select * from invocations i
    where i.app_name = p_app and i.user_id = p_user and i.cronjob_id = p_cronjob and i.status = 'queued'
      and i.not_before is not null
    order by i.create_time, i.due_time
  loop
    -- Before the invocation, because a deletion of the session locks it first.
    perform from sessions s
    where s.app_name = p_app and s.user_id = p_user and s.id = r.session_id for key share;
    delete from invocations i
    where i.app_name = p_app and i.user_id = p_user and i.session_id = r.session_id and i.id = r.id
      and i.status = 'queued' and i.not_before is not null;
    continue when not found;
    delete from sessions s
    where s.app_name = p_app and s.user_id = p_user and s.id = r.session_id and s.id in (r.run_id, r.run_id || '-' || r.try)
      and s.last_sequence = 0 and s.state = '{}' and s.lease_token is null
      and not exists (select from invocations i where i.app_name = p_app and i.user_id = p_user and i.session_id = s.id)
      and not exists (select from legal_holds h
                      where h.app_name = p_app and h.user_id = p_user and h.session_id in ('', s.id));
    run := r.run_id; due := r.due_time; is_on_request := r.is_manual; number := r.try; since := r.create_time;
    earliest := r.not_before;
    return next;
  end loop;
end $function$;

CREATE OR REPLACE FUNCTION public.usage_report(p_app text, p_user text, p_from timestamp with time zone, p_to timestamp with time zone, p_by text[], p_after text[], p_limit integer, OUT rows json)
 RETURNS json
 LANGUAGE plpgsql
 STABLE
AS $function$
begin
  select coalesce(json_agg(json_strip_nulls(row_to_json(page))), '[]') into rows from (
    select line.period, line."userId", line.model, line.version, sum(line.invocations) as invocations, sum(line.failed) as failed,
      sum(line.calls) as "llmCalls", sum(line.prompt) as "promptTokens", sum(line.output) as "outputTokens",
      sum(line.cost) as cost, sum(line.seconds) as seconds, sum(line.scored) as scored, sum(line.passed) as passed,
      percentile_cont(0.95) within group (order by line.seconds::float8) filter (where line.invocations > 0) as "p95Seconds"
    from (
      select case when 'hour' = any(p_by) then to_char(i.create_time at time zone 'utc', 'YYYY-MM-DD"T"HH24":00:00Z"')
                  when 'day' = any(p_by) then to_char(i.create_time at time zone 'utc', 'YYYY-MM-DD') end as period,
        case when 'user' = any(p_by) then i.user_id end as "userId", case when 'model' = any(p_by) then each.model end as model,
        case when 'version' = any(p_by) then i.agent_version end as version,
        (each.calls is null)::int as invocations, (each.calls is null and i.status = 'failed')::int as failed,
        coalesce(each.calls, i.llm_calls - named.calls) as calls, coalesce(each.prompt, i.prompt_tokens - named.prompt) as prompt,
        coalesce(each.output, i.output_tokens - named.output) as output, each.cost,
        case when each.calls is null then coalesce(extract(epoch from i.end_time - i.start_time), 0) else 0 end as seconds,
        case when each.calls is null then scores.scored else 0 end as scored,
        case when each.calls is null then scores.passed else 0 end as passed
      from invocations i
      cross join lateral (
        select coalesce(jsonb_agg(m), '[]') as models, coalesce(sum(m.calls), 0) as calls, coalesce(sum(m.prompt), 0) as prompt,
               coalesce(sum(m.output), 0) as output
        from (
          select e.payload ->> 'modelVersion' as model, count(*) as calls, sum(used.prompt) as prompt,
            sum(used.output) as output,
            sum((used.prompt * price.prompt_price + used.output * price.output_price) / 1000000) as cost
          from events e
          cross join lateral (
            select coalesce((e.payload -> 'usageMetadata' ->> 'promptTokenCount')::numeric, 0) as prompt,
                   coalesce((e.payload -> 'usageMetadata' ->> 'candidatesTokenCount')::numeric, 0)
                     + coalesce((e.payload -> 'usageMetadata' ->> 'thoughtsTokenCount')::numeric, 0) as output) used
          left join lateral (
            select p.prompt_price, p.output_price from model_prices p
            where starts_with(e.payload ->> 'modelVersion', p.model) or p.model = '*'
            order by p.model = '*', length(p.model) desc limit 1) price on true
          where e.app_name = i.app_name and e.user_id = i.user_id and e.session_id = i.session_id
            and e.invocation_id = i.id and e.is_from_runtime and e.payload ? 'usageMetadata'
          group by 1) m) named
      cross join lateral (
        select count(*) as scored, count(*) filter (where r.result ->> 'finalStatus' = 'PASSED') as passed
        from eval_session_scores r
        where r.app_name = i.app_name and r.user_id = i.user_id and r.session_id = i.session_id
          and r.result ->> 'finalStatus' in ('PASSED', 'FAILED')
          and i.id = coalesce(r.invocation_id, (
            select e.invocation_id from events e
            where e.app_name = r.app_name and e.user_id = r.user_id and e.session_id = r.session_id
              and e.sequence = r.last_sequence))) scores
      -- The row without a model comes from the empty object. No union, because a distributed database cannot plan a
      -- union here.
      cross join lateral jsonb_to_recordset('[{}]' || named.models)
        each(model text, calls numeric, prompt numeric, output numeric, cost numeric)
      where i.app_name = p_app and (p_user is null or i.user_id = p_user) and i.create_time >= p_from and i.create_time < p_to
    ) line
    where p_after is null
      or (coalesce(line.period, ''), coalesce(line."userId", ''), coalesce(line.model, '') collate "C",
          coalesce(line.version, '')) > (p_after[1], p_after[2], p_after[3], p_after[4])
    group by line.period, line."userId", line.model, line.version
    order by coalesce(line.period, ''), coalesce(line."userId", ''), coalesce(line.model, '') collate "C", coalesce(line.version, '')
    limit p_limit) page;
end $function$;

CREATE OR REPLACE FUNCTION public.user_data_lock(app text, owner text)
 RETURNS bigint
 LANGUAGE sql
 IMMUTABLE
RETURN hashtextextended(((app || ''::text) || owner), (7240014)::bigint);

CREATE OR REPLACE FUNCTION public.wake_runs(p_user text)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
begin
  if exists (select from invocations i where i.user_id = p_user and i.cronjob_id is not null
             and i.first_end_time is null and i.status = 'queued') then
    perform pg_notify('agent_runtime', '["queue"]');
  end if;
end $function$;

CREATE OR REPLACE FUNCTION public.wake_task(p_app text, p_user text, p_session text, p_id text, OUT woke boolean)
 RETURNS boolean
 LANGUAGE plpgsql
AS $function$
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
      t.reminders := t.reminders + (
        t.create_time + (t.rules #>> array['remindAfter', t.reminders::text])::float8 * interval '1 second' <= v_now
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
  select jsonb_build_object('content', jsonb_build_object('role', 'user', 'parts', jsonb_agg(
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
    -- An invocation that a budget stopped keeps its start time, because it resumes after its last complete step, as
    -- after a crash, or ends there.
    start_time = case when t.kind = 'budget' then i.start_time end,
    stop_requested_as = case when t.kind = 'budget' and not t.answer ? 'goesOn' then 'cancelled'
                             else i.stop_requested_as end,
    request = case when t.kind = 'budget' then i.request
                   else case when i.request is null or i.request ? 'endsBecause'
                             then '{"version": 1, "overrides": {}, "streaming": false}'
                             else i.request - 'began' - 'stateDelta' end
                        || v_message end
  where i.app_name = p_app and i.user_id = p_user and i.session_id = p_session and i.id = t.invocation_id
    and (t.kind <> 'budget' or v_status = 'paused');
  woke := true;
end $function$;

CREATE OR REPLACE FUNCTION public.webhook_time(moment timestamp with time zone)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
RETURN to_char((moment AT TIME ZONE 'utc'::text), 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'::text);

alter table agent_prompts add constraint agent_prompts_pkey PRIMARY KEY (app_name, hash);

alter table agent_runtime_migrations add constraint agent_runtime_migrations_pkey PRIMARY KEY (name);

alter table agent_versions add constraint agent_versions_pkey PRIMARY KEY (app_name, digest);

alter table app_states add constraint app_states_pkey PRIMARY KEY (app_name);

alter table artifact_versions add constraint artifact_versions_content_check CHECK (((content IS NULL) OR (object_key IS NULL)));

alter table artifact_versions add constraint artifact_versions_pkey PRIMARY KEY (app_name, user_id, session_id, artifact_name, version);

alter table artifacts add constraint artifacts_pkey PRIMARY KEY (app_name, user_id, session_id, name);

alter table audit_log add constraint audit_log_caller_kind_check CHECK ((caller_kind = ANY (ARRAY['unknown'::text, 'anonymous'::text, 'key'::text, 'user'::text])));

alter table audit_log add constraint audit_log_decision_check CHECK ((decision = ANY (ARRAY['allowed'::text, 'refused'::text])));

alter table audit_log add constraint audit_log_pkey PRIMARY KEY (id);

alter table budget_alerts add constraint budget_alerts_pkey PRIMARY KEY (app_name, user_id, applies_to, period);

alter table budget_reservations add constraint budget_reservations_pkey PRIMARY KEY (app_name, user_id, id);

alter table budget_totals add constraint budget_totals_pkey PRIMARY KEY (app_name, since, shard);

alter table budget_uses add constraint budget_uses_counts_check CHECK ((LEAST((invocations)::numeric, (prompt_tokens)::numeric, (output_tokens)::numeric, cost) >= (0)::numeric));

alter table budget_uses add constraint budget_uses_pkey PRIMARY KEY (app_name, user_id, day, shard);

alter table budgets add constraint budgets_applies_to_check CHECK ((applies_to = ANY (ARRAY['app'::text, 'users'::text, 'user'::text])));

alter table budgets add constraint budgets_period_check CHECK ((period = ANY (ARRAY['day'::text, 'month'::text])));

alter table budgets add constraint budgets_pkey PRIMARY KEY (app_name, user_id, applies_to, period);

alter table budgets add constraint budgets_user_id_check CHECK (((applies_to = 'user'::text) = (user_id <> ''::text)));

alter table cronjobs add constraint cronjobs_counts_check CHECK ((LEAST(run_count, failure_count, revision) >= 0));

alter table cronjobs add constraint cronjobs_disabled_reason_check CHECK (((NOT enabled) OR (disabled_reason IS NULL)));

alter table cronjobs add constraint cronjobs_missed_runs_check CHECK ((missed_runs = ANY (ARRAY['skip'::text, 'once'::text, 'all'::text])));

alter table cronjobs add constraint cronjobs_next_run_time_check CHECK ((enabled = (next_run_time IS NOT NULL)));

alter table cronjobs add constraint cronjobs_overlap_check CHECK ((overlap = ANY (ARRAY['queue'::text, 'skip'::text, 'replace'::text])));

alter table cronjobs add constraint cronjobs_pkey PRIMARY KEY (app_name, user_id, id);

alter table cronjobs add constraint cronjobs_session_id_check CHECK (((session_policy = 'fixed'::text) = (session_id IS NOT NULL)));

alter table cronjobs add constraint cronjobs_session_policy_check CHECK ((session_policy = ANY (ARRAY['new'::text, 'fixed'::text])));

alter table eval_case_versions add constraint eval_case_versions_pkey PRIMARY KEY (app_name, eval_set_id, eval_id, version);

alter table eval_case_versions add constraint eval_case_versions_version_check CHECK ((version > 0));

alter table eval_cases add constraint eval_cases_pkey PRIMARY KEY (app_name, eval_set_id, id);

alter table eval_run_cases add constraint eval_run_cases_end_check CHECK (((status = ANY (ARRAY['waiting'::text, 'running'::text])) = (end_time IS NULL)));

alter table eval_run_cases add constraint eval_run_cases_error_check CHECK (((status = 'error'::text) = (error IS NOT NULL)));

alter table eval_run_cases add constraint eval_run_cases_pkey PRIMARY KEY (app_name, run_id, place, trial);

alter table eval_run_cases add constraint eval_run_cases_status_check CHECK ((status = ANY (ARRAY['waiting'::text, 'running'::text, 'done'::text, 'error'::text, 'cancelled'::text])));

alter table eval_runs add constraint eval_runs_end_check CHECK (((status = ANY (ARRAY['queued'::text, 'running'::text])) = (end_time IS NULL)));

alter table eval_runs add constraint eval_runs_modes_check CHECK (((model_execution_mode = ANY (ARRAY['live'::text, 'stored'::text])) AND (tool_execution_mode = ANY (ARRAY['live'::text, 'stored'::text]))));

alter table eval_runs add constraint eval_runs_pkey PRIMARY KEY (app_name, id);

alter table eval_runs add constraint eval_runs_result_time_key UNIQUE (app_name, result_time);

alter table eval_runs add constraint eval_runs_status_check CHECK ((status = ANY (ARRAY['queued'::text, 'running'::text, 'done'::text, 'cancelled'::text])));

alter table eval_runs add constraint eval_runs_trials_check CHECK (((trials > 0) AND (parallelism > 0)));

alter table eval_session_scores add constraint eval_session_scores_pkey PRIMARY KEY (app_name, user_id, session_id, last_sequence, metrics_hash);

alter table eval_sets add constraint eval_sets_pkey PRIMARY KEY (app_name, id);

alter table eval_verdicts add constraint eval_verdicts_pkey PRIMARY KEY (app_name, user_id, session_id, turn, metric_name, author);

alter table eval_verdicts add constraint eval_verdicts_turn_check CHECK ((turn >= 0));

alter table event_deltas add constraint event_deltas_pkey PRIMARY KEY (app_name, user_id, session_id, number);

alter table events add constraint events_id_key UNIQUE (app_name, user_id, session_id, id);

alter table events add constraint events_pkey PRIMARY KEY (app_name, user_id, session_id, sequence);

alter table idempotency_keys add constraint idempotency_keys_pkey PRIMARY KEY (app_name, user_id, scope, key);

alter table invocation_tapes add constraint invocation_tapes_pkey PRIMARY KEY (app_name, user_id, session_id, invocation_id, start);

alter table invocations add constraint invocations_counts_check CHECK ((LEAST(tool_calls, llm_calls, prompt_tokens, output_tokens) >= 0));

alter table invocations add constraint invocations_pkey PRIMARY KEY (app_name, user_id, session_id, id);

alter table invocations add constraint invocations_run_check CHECK (((cronjob_id IS NULL) OR ((num_nulls(run_id, due_time, is_manual, try) = 0) AND (try > 0))));

alter table invocations add constraint invocations_status_check CHECK ((status = ANY (ARRAY['queued'::text, 'running'::text, 'paused'::text, 'succeeded'::text, 'failed'::text, 'interrupted'::text, 'cancelled'::text])));

alter table invocations add constraint invocations_stop_requested_as_check CHECK ((stop_requested_as = ANY (ARRAY['cancelled'::text, 'interrupted'::text])));

alter table job_lanes add constraint job_lanes_pkey PRIMARY KEY (app_name, user_id, kind, lane);

alter table jobs add constraint jobs_lease_check CHECK (((lease_token IS NULL) = (lease_expire_time IS NULL)));

alter table jobs add constraint jobs_pkey PRIMARY KEY (app_name, user_id, kind, id);

alter table legal_holds add constraint legal_holds_pkey PRIMARY KEY (app_name, user_id, session_id);

alter table memories add constraint memories_pkey PRIMARY KEY (app_name, user_id, session_id, event_id);

alter table model_prices add constraint model_prices_pkey PRIMARY KEY (model);

alter table rate_limits add constraint rate_limits_pkey PRIMARY KEY (key);

alter table score_rules add constraint score_rules_pkey PRIMARY KEY (app_name, id);

alter table score_rules add constraint score_rules_share_check CHECK (((share >= (0)::double precision) AND (share <= (1)::double precision)));

alter table session_verdicts add constraint session_verdicts_pkey PRIMARY KEY (app_name, user_id, session_id, event_id, author);

alter table sessions add constraint sessions_last_sequence_check CHECK ((last_sequence >= 0));

alter table sessions add constraint sessions_pkey PRIMARY KEY (app_name, user_id, id);

alter table signals add constraint signals_pkey PRIMARY KEY (app_name, user_id, session_id, id);

alter table skipped_runs add constraint skipped_runs_pkey PRIMARY KEY (app_name, user_id, cronjob_id, due_time);

alter table skipped_runs add constraint skipped_runs_tries_check CHECK ((tries >= 0));

alter table spans add constraint spans_pkey PRIMARY KEY (app_name, user_id, session_id, trace_id, id);

alter table tasks add constraint tasks_decided_check CHECK (((state = ANY (ARRAY['answered'::text, 'done'::text])) = (decide_time IS NOT NULL)));

alter table tasks add constraint tasks_decided_via_check CHECK ((decided_via = ANY (ARRAY['tasks'::text, 'run'::text, 'signal'::text, 'deadline'::text])));

alter table tasks add constraint tasks_kind_check CHECK ((kind = ANY (ARRAY['confirmation'::text, 'effect'::text, 'question'::text, 'call'::text, 'sleep'::text, 'signal'::text, 'budget'::text])));

alter table tasks add constraint tasks_pkey PRIMARY KEY (app_name, user_id, session_id, id);

alter table tasks add constraint tasks_state_check CHECK ((state = ANY (ARRAY['open'::text, 'answered'::text, 'done'::text, 'cancelled'::text])));

alter table tool_calls add constraint tool_calls_effect_check CHECK ((effect = ANY (ARRAY['none'::text, 'idempotent'::text, 'once'::text, 'transactional'::text])));

alter table tool_calls add constraint tool_calls_pkey PRIMARY KEY (app_name, user_id, session_id, invocation_id, call_id);

alter table tool_calls add constraint tool_calls_state_check CHECK ((state = ANY (ARRAY['started'::text, 'done'::text, 'unknown'::text, 'settled'::text])));

alter table user_credentials add constraint user_credentials_consent_check CHECK ((num_nulls(consent_sealed, consent_session_id, consent_state_hash, consent_expire_time) = ANY (ARRAY[0, 4])));

alter table user_credentials add constraint user_credentials_pkey PRIMARY KEY (app_name, user_id, resource);

alter table user_erasures add constraint user_erasures_pkey PRIMARY KEY (app_name, user_id);

alter table user_states add constraint user_states_pkey PRIMARY KEY (app_name, user_id);

alter table user_storage add constraint user_storage_pkey PRIMARY KEY (app_name, user_id, shard);

alter table webhook_deliveries add constraint webhook_deliveries_attempt_check CHECK ((attempt >= 0));

alter table webhook_deliveries add constraint webhook_deliveries_end_check CHECK (((status = 'pending'::text) = (end_time IS NULL)));

alter table webhook_deliveries add constraint webhook_deliveries_pkey PRIMARY KEY (app_name, user_id, id);

alter table webhook_deliveries add constraint webhook_deliveries_status_check CHECK ((status = ANY (ARRAY['pending'::text, 'delivered'::text, 'failed'::text])));

alter table webhooks add constraint webhooks_old_secret_check CHECK (((old_secret IS NULL) = (old_secret_expire_time IS NULL)));

alter table webhooks add constraint webhooks_pkey PRIMARY KEY (app_name, user_id, id);

alter table artifact_versions add constraint artifact_versions_artifact_fkey FOREIGN KEY (app_name, user_id, session_id, artifact_name) REFERENCES artifacts(app_name, user_id, session_id, name) ON DELETE CASCADE;

alter table eval_cases add constraint eval_cases_set_fkey FOREIGN KEY (app_name, eval_set_id) REFERENCES eval_sets(app_name, id) ON DELETE CASCADE;

alter table eval_cases add constraint eval_cases_version_fkey FOREIGN KEY (app_name, eval_set_id, id, version) REFERENCES eval_case_versions(app_name, eval_set_id, eval_id, version);

alter table eval_run_cases add constraint eval_run_cases_run_fkey FOREIGN KEY (app_name, run_id) REFERENCES eval_runs(app_name, id) ON DELETE CASCADE;

alter table eval_run_cases add constraint eval_run_cases_version_fkey FOREIGN KEY (app_name, eval_set_id, eval_id, case_version) REFERENCES eval_case_versions(app_name, eval_set_id, eval_id, version);

alter table eval_session_scores add constraint eval_session_scores_session_fkey FOREIGN KEY (app_name, user_id, session_id) REFERENCES sessions(app_name, user_id, id) ON DELETE CASCADE;

alter table eval_verdicts add constraint eval_verdicts_session_fkey FOREIGN KEY (app_name, user_id, session_id) REFERENCES sessions(app_name, user_id, id) ON DELETE CASCADE;

alter table event_deltas add constraint event_deltas_session_fkey FOREIGN KEY (app_name, user_id, session_id) REFERENCES sessions(app_name, user_id, id) ON DELETE CASCADE;

alter table events add constraint events_session_fkey FOREIGN KEY (app_name, user_id, session_id) REFERENCES sessions(app_name, user_id, id) ON DELETE CASCADE;

alter table invocation_tapes add constraint invocation_tapes_invocation_fkey FOREIGN KEY (app_name, user_id, session_id, invocation_id) REFERENCES invocations(app_name, user_id, session_id, id) ON DELETE CASCADE;

alter table invocations add constraint invocations_session_fkey FOREIGN KEY (app_name, user_id, session_id) REFERENCES sessions(app_name, user_id, id) ON DELETE CASCADE;

alter table session_verdicts add constraint session_verdicts_session_fkey FOREIGN KEY (app_name, user_id, session_id) REFERENCES sessions(app_name, user_id, id) ON DELETE CASCADE;

alter table signals add constraint signals_session_fkey FOREIGN KEY (app_name, user_id, session_id) REFERENCES sessions(app_name, user_id, id) ON DELETE CASCADE;

alter table skipped_runs add constraint skipped_runs_cronjob_fkey FOREIGN KEY (app_name, user_id, cronjob_id) REFERENCES cronjobs(app_name, user_id, id) ON DELETE CASCADE;

alter table tasks add constraint tasks_invocation_fkey FOREIGN KEY (app_name, user_id, session_id, invocation_id) REFERENCES invocations(app_name, user_id, session_id, id) ON DELETE CASCADE;

alter table tool_calls add constraint tool_calls_invocation_fkey FOREIGN KEY (app_name, user_id, session_id, invocation_id) REFERENCES invocations(app_name, user_id, session_id, id) ON DELETE CASCADE;

alter table webhook_deliveries add constraint webhook_deliveries_webhook_fkey FOREIGN KEY (app_name, user_id, webhook_id) REFERENCES webhooks(app_name, user_id, id) ON DELETE CASCADE;

CREATE INDEX agent_prompts_age_idx ON public.agent_prompts USING btree (use_time);

CREATE INDEX audit_log_time_idx ON public.audit_log USING btree ("time");

CREATE INDEX budget_uses_day_idx ON public.budget_uses USING btree (app_name, day);

CREATE INDEX cronjobs_due_idx ON public.cronjobs USING btree (next_run_time) WHERE enabled;

CREATE UNIQUE INDEX cronjobs_id_idx ON public.cronjobs USING btree (id);

CREATE INDEX cronjobs_list_idx ON public.cronjobs USING btree (user_id, create_time DESC, id DESC);

CREATE INDEX eval_case_versions_owner_idx ON public.eval_case_versions USING btree (app_name, owner_id);

CREATE INDEX eval_case_versions_quoted_idx ON public.eval_case_versions USING hash (((payload #>> '{sessionInput,userId}'::text[])));

CREATE INDEX eval_cases_owner_idx ON public.eval_cases USING btree (app_name, owner_id);

CREATE INDEX eval_cases_source_idx ON public.eval_cases USING btree (app_name, source_user_id, source_session_id);

CREATE INDEX eval_run_cases_open_idx ON public.eval_run_cases USING btree (app_name, run_id, place, trial) WHERE (status = ANY (ARRAY['waiting'::text, 'running'::text]));

CREATE INDEX eval_run_cases_owner_idx ON public.eval_run_cases USING btree (app_name, owner_id);

CREATE INDEX eval_run_cases_user_idx ON public.eval_run_cases USING btree (app_name, session_user_id);

CREATE INDEX eval_run_cases_version_idx ON public.eval_run_cases USING btree (app_name, eval_set_id, eval_id, case_version);

CREATE INDEX eval_runs_list_idx ON public.eval_runs USING btree (app_name, requested_by, result_time);

CREATE INDEX eval_runs_open_idx ON public.eval_runs USING btree (create_time) WHERE (status = ANY (ARRAY['queued'::text, 'running'::text]));

CREATE INDEX eval_runs_set_idx ON public.eval_runs USING btree (app_name, eval_set_id, result_time);

CREATE INDEX eval_session_scores_list_idx ON public.eval_session_scores USING btree (app_name, create_time);

CREATE INDEX eval_sets_owner_idx ON public.eval_sets USING btree (app_name, owner_id, id);

CREATE INDEX idempotency_keys_age_idx ON public.idempotency_keys USING btree (create_time);

CREATE INDEX idempotency_keys_session_idx ON public.idempotency_keys USING btree (app_name, user_id, session_id) WHERE (session_id IS NOT NULL);

CREATE INDEX invocations_background_idx ON public.invocations USING btree (create_time) WHERE ((status = 'queued'::text) AND (request IS NOT NULL));

CREATE UNIQUE INDEX invocations_idempotency_key ON public.invocations USING btree (app_name, user_id, idempotency_key) WHERE (idempotency_key IS NOT NULL);

CREATE INDEX invocations_key_age_idx ON public.invocations USING btree (create_time) WHERE (idempotency_key IS NOT NULL);

CREATE INDEX invocations_lease_idx ON public.invocations USING btree (lease_expire_time) WHERE (status = 'running'::text);

CREATE INDEX invocations_left_idx ON public.invocations USING btree (lease_expire_time) WHERE ((status = 'queued'::text) AND (request IS NOT NULL) AND (start_time IS NOT NULL));

CREATE INDEX invocations_open_runs_idx ON public.invocations USING btree (user_id, app_name, cronjob_id) WHERE ((cronjob_id IS NOT NULL) AND (first_end_time IS NULL) AND (status = ANY (ARRAY['queued'::text, 'running'::text])));

CREATE INDEX invocations_queue_idx ON public.invocations USING btree (app_name, user_id, session_id, create_time) WHERE (status = 'queued'::text);

CREATE UNIQUE INDEX invocations_run_key ON public.invocations USING btree (app_name, user_id, cronjob_id, due_time, try) WHERE (cronjob_id IS NOT NULL);

CREATE INDEX invocations_time_idx ON public.invocations USING btree (create_time, app_name);

CREATE INDEX invocations_waiters_idx ON public.invocations USING btree (lease_expire_time) WHERE ((status = 'queued'::text) AND (request IS NULL));

CREATE INDEX job_lanes_blocked_idx ON public.job_lanes USING btree (kind, blocked_by, turn_time) WHERE (blocked_by IS NOT NULL);

CREATE INDEX job_lanes_turn_idx ON public.job_lanes USING btree (kind, app_name, turn_time) WHERE (blocked_by IS NULL);

CREATE INDEX jobs_due_idx ON public.jobs USING btree (kind, due_time) WHERE (lease_token IS NULL);

CREATE INDEX jobs_lane_idx ON public.jobs USING btree (kind, app_name, user_id, lane, due_time, id) WHERE (lease_token IS NULL);

CREATE INDEX jobs_running_idx ON public.jobs USING btree (kind, lease_expire_time) WHERE (lease_token IS NOT NULL);

CREATE INDEX memories_embedding_idx ON public.memories USING btree (app_name, user_id, event_time) WHERE (embedding IS NOT NULL);

CREATE INDEX memories_search_idx ON public.memories USING gin (((search_vector || array_to_tsvector(ARRAY[md5(((app_name || chr(1)) || user_id))]))));

CREATE INDEX session_verdicts_list_idx ON public.session_verdicts USING btree (app_name, create_time);

CREATE INDEX sessions_created_idx ON public.sessions USING btree (app_name, user_id, create_time DESC, id DESC) WHERE (NOT is_eval);

CREATE INDEX sessions_list_idx ON public.sessions USING btree (app_name, user_id, update_time DESC, id DESC) WHERE (NOT is_eval);

CREATE INDEX spans_age_idx ON public.spans USING btree (create_time);

CREATE INDEX spans_event_idx ON public.spans USING btree (app_name, event_id);

CREATE INDEX spans_session_idx ON public.spans USING btree (app_name, session_id, start_ns);

CREATE INDEX tasks_decided_idx ON public.tasks USING btree (decided_by) WHERE (decided_by IS NOT NULL);

CREATE INDEX tasks_due_idx ON public.tasks USING btree (due_time) WHERE (due_time IS NOT NULL);

CREATE INDEX tasks_id_idx ON public.tasks USING btree (id);

CREATE INDEX tasks_invocation_idx ON public.tasks USING btree (app_name, user_id, session_id, invocation_id, call_id);

CREATE INDEX tasks_list_idx ON public.tasks USING btree (state, COALESCE(expire_time, '9999-12-31 00:00:00+00'::timestamp with time zone), id);

CREATE INDEX tasks_people_idx ON public.tasks USING gin (assigned_users, assigned_groups, approvals jsonb_path_ops, comments jsonb_path_ops);

CREATE INDEX tasks_token_idx ON public.tasks USING btree (token_hash) WHERE (token_hash IS NOT NULL);

CREATE INDEX tasks_user_idx ON public.tasks USING btree (user_id, app_name, state);

CREATE INDEX tool_calls_unknown_idx ON public.tool_calls USING btree (app_name, user_id, create_time, call_id) WHERE (state = 'unknown'::text);

CREATE UNIQUE INDEX user_credentials_state_idx ON public.user_credentials USING btree (consent_state_hash);

CREATE INDEX user_erasures_age_idx ON public.user_erasures USING btree (update_time);

CREATE INDEX webhook_deliveries_list_idx ON public.webhook_deliveries USING btree (app_name, user_id, webhook_id, create_time DESC, id DESC);

CREATE INDEX webhook_deliveries_pending_idx ON public.webhook_deliveries USING btree (app_name, user_id) WHERE (status = 'pending'::text);

CREATE UNIQUE INDEX webhooks_id_idx ON public.webhooks USING btree (id);

CREATE INDEX webhooks_list_idx ON public.webhooks USING btree (user_id, create_time);

CREATE UNIQUE INDEX webhooks_url_key ON public.webhooks USING btree (app_name, user_id, url) WHERE (push IS NULL);

CREATE TRIGGER artifact_versions_erasure BEFORE INSERT ON public.artifact_versions FOR EACH ROW EXECUTE FUNCTION refuse_while_erased();

CREATE TRIGGER artifact_versions_hold BEFORE DELETE ON public.artifact_versions FOR EACH ROW EXECUTE FUNCTION refuse_on_hold('session_id');

CREATE TRIGGER artifact_versions_storage_delete_old AFTER DELETE ON public.artifact_versions REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION count_stored_bytes('artifact_versions', '-');

CREATE TRIGGER artifact_versions_storage_insert_new AFTER INSERT ON public.artifact_versions REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION count_stored_bytes('artifact_versions', '+');

CREATE TRIGGER artifact_versions_storage_update_new AFTER UPDATE ON public.artifact_versions REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION count_stored_bytes('artifact_versions', '+');

CREATE TRIGGER artifact_versions_storage_update_old AFTER UPDATE ON public.artifact_versions REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION count_stored_bytes('artifact_versions', '-');

CREATE TRIGGER artifacts_erasure BEFORE INSERT ON public.artifacts FOR EACH ROW EXECUTE FUNCTION refuse_while_erased();

CREATE TRIGGER artifacts_hold BEFORE DELETE ON public.artifacts FOR EACH ROW EXECUTE FUNCTION refuse_on_hold('session_id');

CREATE TRIGGER audit_log_append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON public.audit_log FOR EACH STATEMENT EXECUTE FUNCTION refuse_audit_change();

CREATE TRIGGER budgets_totals AFTER INSERT ON public.budgets FOR EACH ROW WHEN ((new.applies_to = 'app'::text)) EXECUTE FUNCTION sum_up_use_of_app();

CREATE TRIGGER cronjobs_erasure BEFORE INSERT ON public.cronjobs FOR EACH ROW EXECUTE FUNCTION refuse_while_erased();

CREATE TRIGGER cronjobs_hold BEFORE DELETE ON public.cronjobs FOR EACH ROW EXECUTE FUNCTION refuse_on_hold('');

CREATE TRIGGER eval_run_cases_delete AFTER DELETE ON public.eval_run_cases FOR EACH ROW WHEN ((old.status = ANY (ARRAY['waiting'::text, 'running'::text]))) EXECUTE FUNCTION end_eval_case();

CREATE TRIGGER eval_run_cases_end AFTER UPDATE OF status ON public.eval_run_cases FOR EACH ROW WHEN (((old.status = ANY (ARRAY['waiting'::text, 'running'::text])) AND (new.status <> ALL (ARRAY['waiting'::text, 'running'::text])))) EXECUTE FUNCTION end_eval_case();

CREATE TRIGGER eval_run_cases_insert AFTER INSERT ON public.eval_run_cases REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION start_eval_cases();

CREATE TRIGGER eval_session_scores_hold BEFORE DELETE ON public.eval_session_scores FOR EACH ROW EXECUTE FUNCTION refuse_on_hold('session_id');

CREATE TRIGGER eval_verdicts_hold BEFORE DELETE ON public.eval_verdicts FOR EACH ROW EXECUTE FUNCTION refuse_on_hold('session_id');

CREATE TRIGGER events_changed AFTER DELETE OR UPDATE ON public.events FOR EACH ROW WHEN ((pg_trigger_depth() = 0)) EXECUTE FUNCTION count_changed_events();

CREATE TRIGGER events_hold BEFORE DELETE ON public.events FOR EACH ROW EXECUTE FUNCTION refuse_on_hold('session_id');

CREATE TRIGGER events_size BEFORE UPDATE OF payload ON public.events FOR EACH ROW EXECUTE FUNCTION count_event_bytes();

CREATE TRIGGER invocation_tapes_hold BEFORE DELETE ON public.invocation_tapes FOR EACH ROW EXECUTE FUNCTION refuse_on_hold('session_id');

CREATE TRIGGER invocations_erasure BEFORE INSERT ON public.invocations FOR EACH ROW EXECUTE FUNCTION refuse_while_erased();

CREATE TRIGGER invocations_follow AFTER UPDATE OF status ON public.invocations FOR EACH ROW EXECUTE FUNCTION follow_invocation();

CREATE TRIGGER invocations_follow_delete AFTER DELETE ON public.invocations FOR EACH ROW EXECUTE FUNCTION follow_deleted_invocation();

CREATE TRIGGER invocations_hold BEFORE DELETE ON public.invocations FOR EACH ROW WHEN ((old.status <> 'queued'::text)) EXECUTE FUNCTION refuse_on_hold('session_id');

CREATE TRIGGER invocations_key AFTER DELETE ON public.invocations FOR EACH ROW WHEN ((old.idempotency_key IS NOT NULL)) EXECUTE FUNCTION keep_invocation_key();

CREATE TRIGGER invocations_run BEFORE UPDATE OF status ON public.invocations FOR EACH ROW WHEN (((new.cronjob_id IS NOT NULL) AND (old.first_end_time IS NULL) AND (new.status <> ALL (ARRAY['queued'::text, 'running'::text])))) EXECUTE FUNCTION stamp_run_end();

CREATE TRIGGER invocations_storage AFTER INSERT OR DELETE OR UPDATE OF request, status, not_before ON public.invocations FOR EACH ROW EXECUTE FUNCTION count_request_bytes();

CREATE TRIGGER memories_erasure BEFORE INSERT ON public.memories FOR EACH ROW EXECUTE FUNCTION refuse_while_erased();

CREATE TRIGGER memories_hold BEFORE DELETE ON public.memories FOR EACH ROW EXECUTE FUNCTION refuse_on_hold('session_id');

CREATE TRIGGER memories_storage_delete_old AFTER DELETE ON public.memories REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION count_stored_bytes('memories', '-');

CREATE TRIGGER memories_storage_insert_new AFTER INSERT ON public.memories REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION count_stored_bytes('memories', '+');

CREATE TRIGGER memories_storage_update_new AFTER UPDATE ON public.memories REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION count_stored_bytes('memories', '+');

CREATE TRIGGER memories_storage_update_old AFTER UPDATE ON public.memories REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION count_stored_bytes('memories', '-');

CREATE TRIGGER session_verdicts_hold BEFORE DELETE ON public.session_verdicts FOR EACH ROW EXECUTE FUNCTION refuse_on_hold('session_id');

CREATE TRIGGER sessions_erasure BEFORE INSERT ON public.sessions FOR EACH ROW EXECUTE FUNCTION refuse_while_erased();

CREATE TRIGGER sessions_hold BEFORE DELETE ON public.sessions FOR EACH ROW EXECUTE FUNCTION refuse_on_hold('id');

CREATE TRIGGER sessions_storage AFTER INSERT OR DELETE OR UPDATE OF event_bytes, state, initial_state ON public.sessions FOR EACH ROW EXECUTE FUNCTION count_session_bytes();

CREATE TRIGGER signals_hold BEFORE DELETE ON public.signals FOR EACH ROW EXECUTE FUNCTION refuse_on_hold('session_id');

CREATE TRIGGER skipped_runs_hold BEFORE DELETE ON public.skipped_runs FOR EACH ROW EXECUTE FUNCTION refuse_on_hold('');

CREATE TRIGGER skipped_runs_webhook AFTER INSERT ON public.skipped_runs FOR EACH ROW EXECUTE FUNCTION insert_delivery_of_skipped_run();

CREATE TRIGGER spans_hold BEFORE DELETE ON public.spans FOR EACH ROW EXECUTE FUNCTION refuse_on_hold('session_id');

CREATE TRIGGER tasks_hold BEFORE DELETE ON public.tasks FOR EACH ROW EXECUTE FUNCTION refuse_on_hold('session_id');

CREATE TRIGGER tasks_webhook_insert AFTER INSERT ON public.tasks FOR EACH ROW EXECUTE FUNCTION insert_delivery_of_task();

CREATE TRIGGER tasks_webhook_update AFTER UPDATE ON public.tasks FOR EACH ROW WHEN (((new.reminders > old.reminders) OR ((old.state = 'open'::text) AND (new.state = ANY (ARRAY['answered'::text, 'done'::text]))) OR ((new.state = 'open'::text) AND (old.rules ? 'escalateTo'::text) AND (NOT (new.rules ? 'escalateTo'::text))))) EXECUTE FUNCTION insert_delivery_of_task();

CREATE TRIGGER tool_calls_hold BEFORE DELETE ON public.tool_calls FOR EACH ROW EXECUTE FUNCTION refuse_on_hold('session_id');

CREATE TRIGGER tool_calls_storage_delete AFTER DELETE ON public.tool_calls FOR EACH ROW WHEN ((old.response IS NOT NULL)) EXECUTE FUNCTION count_kept_bytes();

CREATE TRIGGER tool_calls_storage_insert AFTER INSERT ON public.tool_calls FOR EACH ROW WHEN ((new.response IS NOT NULL)) EXECUTE FUNCTION count_kept_bytes();

CREATE TRIGGER tool_calls_storage_update AFTER UPDATE OF response ON public.tool_calls FOR EACH ROW WHEN ((new.response IS DISTINCT FROM old.response)) EXECUTE FUNCTION count_kept_bytes();

CREATE TRIGGER user_credentials_erasure BEFORE INSERT ON public.user_credentials FOR EACH ROW EXECUTE FUNCTION refuse_while_erased();

CREATE TRIGGER user_credentials_hold BEFORE DELETE ON public.user_credentials FOR EACH ROW EXECUTE FUNCTION refuse_on_hold('');

CREATE TRIGGER user_states_erasure BEFORE INSERT ON public.user_states FOR EACH ROW EXECUTE FUNCTION refuse_while_erased();

CREATE TRIGGER user_states_hold BEFORE DELETE ON public.user_states FOR EACH ROW EXECUTE FUNCTION refuse_on_hold('');

CREATE TRIGGER webhook_deliveries_hold BEFORE DELETE ON public.webhook_deliveries FOR EACH ROW EXECUTE FUNCTION refuse_on_hold('');

CREATE TRIGGER webhook_deliveries_job_delete AFTER DELETE ON public.webhook_deliveries FOR EACH ROW WHEN ((old.status = 'pending'::text)) EXECUTE FUNCTION delete_delivery_job();

CREATE TRIGGER webhook_deliveries_job_insert AFTER INSERT ON public.webhook_deliveries FOR EACH ROW WHEN ((new.status = 'pending'::text)) EXECUTE FUNCTION add_delivery_job();

CREATE TRIGGER webhook_deliveries_job_update AFTER UPDATE OF status ON public.webhook_deliveries FOR EACH ROW WHEN (((new.status = 'pending'::text) AND (old.status <> 'pending'::text))) EXECUTE FUNCTION add_delivery_job();

CREATE TRIGGER webhooks_erasure BEFORE INSERT ON public.webhooks FOR EACH ROW EXECUTE FUNCTION refuse_while_erased();

CREATE TRIGGER webhooks_hold BEFORE DELETE ON public.webhooks FOR EACH ROW EXECUTE FUNCTION refuse_on_hold('');

alter table artifact_versions enable row level security;
alter table artifact_versions force row level security;
create policy of_user on artifact_versions using (((user_id = ( SELECT current_setting('agent_runtime.user'::text, true) AS current_setting)) OR (( SELECT current_setting('agent_runtime.all_users'::text, true) AS current_setting) = 'on'::text)));

alter table artifacts enable row level security;
alter table artifacts force row level security;
create policy of_user on artifacts using (((user_id = ( SELECT current_setting('agent_runtime.user'::text, true) AS current_setting)) OR (( SELECT current_setting('agent_runtime.all_users'::text, true) AS current_setting) = 'on'::text)));

alter table cronjobs enable row level security;
alter table cronjobs force row level security;
create policy of_user on cronjobs using (((user_id = ( SELECT current_setting('agent_runtime.user'::text, true) AS current_setting)) OR (( SELECT current_setting('agent_runtime.all_users'::text, true) AS current_setting) = 'on'::text)));

alter table eval_case_versions enable row level security;
alter table eval_case_versions force row level security;
create policy of_user on eval_case_versions using (((owner_id = ( SELECT current_setting('agent_runtime.user'::text, true) AS current_setting)) OR ((payload #>> '{sessionInput,userId}'::text[]) = ( SELECT current_setting('agent_runtime.user'::text, true) AS current_setting)) OR (( SELECT current_setting('agent_runtime.all_users'::text, true) AS current_setting) = 'on'::text)));

alter table eval_cases enable row level security;
alter table eval_cases force row level security;
create policy of_user on eval_cases using (((owner_id = ( SELECT current_setting('agent_runtime.user'::text, true) AS current_setting)) OR (source_user_id = ( SELECT current_setting('agent_runtime.user'::text, true) AS current_setting)) OR (( SELECT current_setting('agent_runtime.all_users'::text, true) AS current_setting) = 'on'::text)));

alter table eval_run_cases enable row level security;
alter table eval_run_cases force row level security;
create policy of_user on eval_run_cases using (((owner_id = ( SELECT current_setting('agent_runtime.user'::text, true) AS current_setting)) OR (session_user_id = ( SELECT current_setting('agent_runtime.user'::text, true) AS current_setting)) OR (EXISTS ( SELECT
   FROM eval_case_versions v
  WHERE ((v.app_name = eval_run_cases.app_name) AND (v.eval_set_id = eval_run_cases.eval_set_id) AND (v.eval_id = eval_run_cases.eval_id) AND (v.version = eval_run_cases.case_version) AND ((v.payload #>> '{sessionInput,userId}'::text[]) = ( SELECT current_setting('agent_runtime.user'::text, true) AS current_setting))))) OR (( SELECT current_setting('agent_runtime.all_users'::text, true) AS current_setting) = 'on'::text)));

alter table eval_runs enable row level security;
alter table eval_runs force row level security;
create policy of_user on eval_runs using (((requested_by = ( SELECT current_setting('agent_runtime.user'::text, true) AS current_setting)) OR (( SELECT current_setting('agent_runtime.all_users'::text, true) AS current_setting) = 'on'::text)));

alter table eval_session_scores enable row level security;
alter table eval_session_scores force row level security;
create policy of_user on eval_session_scores using (((user_id = ( SELECT current_setting('agent_runtime.user'::text, true) AS current_setting)) OR (( SELECT current_setting('agent_runtime.all_users'::text, true) AS current_setting) = 'on'::text)));

alter table eval_sets enable row level security;
alter table eval_sets force row level security;
create policy of_user on eval_sets using (((owner_id = ( SELECT current_setting('agent_runtime.user'::text, true) AS current_setting)) OR (( SELECT current_setting('agent_runtime.all_users'::text, true) AS current_setting) = 'on'::text)));

alter table eval_verdicts enable row level security;
alter table eval_verdicts force row level security;
create policy of_user on eval_verdicts using (((user_id = ( SELECT current_setting('agent_runtime.user'::text, true) AS current_setting)) OR (( SELECT current_setting('agent_runtime.all_users'::text, true) AS current_setting) = 'on'::text)));

alter table event_deltas enable row level security;
alter table event_deltas force row level security;
create policy of_user on event_deltas using (((user_id = ( SELECT current_setting('agent_runtime.user'::text, true) AS current_setting)) OR (( SELECT current_setting('agent_runtime.all_users'::text, true) AS current_setting) = 'on'::text)));

alter table events enable row level security;
alter table events force row level security;
create policy of_user on events using (((user_id = ( SELECT current_setting('agent_runtime.user'::text, true) AS current_setting)) OR (( SELECT current_setting('agent_runtime.all_users'::text, true) AS current_setting) = 'on'::text)));

alter table idempotency_keys enable row level security;
alter table idempotency_keys force row level security;
create policy of_user on idempotency_keys using (((user_id = ( SELECT current_setting('agent_runtime.user'::text, true) AS current_setting)) OR (( SELECT current_setting('agent_runtime.all_users'::text, true) AS current_setting) = 'on'::text)));

alter table invocation_tapes enable row level security;
alter table invocation_tapes force row level security;
create policy of_user on invocation_tapes using (((user_id = ( SELECT current_setting('agent_runtime.user'::text, true) AS current_setting)) OR (( SELECT current_setting('agent_runtime.all_users'::text, true) AS current_setting) = 'on'::text)));

alter table invocations enable row level security;
alter table invocations force row level security;
create policy of_user on invocations using (((user_id = ( SELECT current_setting('agent_runtime.user'::text, true) AS current_setting)) OR (( SELECT current_setting('agent_runtime.all_users'::text, true) AS current_setting) = 'on'::text)));

alter table job_lanes enable row level security;
alter table job_lanes force row level security;
create policy of_user on job_lanes using (((user_id = ( SELECT current_setting('agent_runtime.user'::text, true) AS current_setting)) OR (( SELECT current_setting('agent_runtime.all_users'::text, true) AS current_setting) = 'on'::text)));

alter table jobs enable row level security;
alter table jobs force row level security;
create policy of_user on jobs using (((user_id = ( SELECT current_setting('agent_runtime.user'::text, true) AS current_setting)) OR (( SELECT current_setting('agent_runtime.all_users'::text, true) AS current_setting) = 'on'::text)));

alter table legal_holds enable row level security;
alter table legal_holds force row level security;
create policy of_user on legal_holds using (((user_id = ( SELECT current_setting('agent_runtime.user'::text, true) AS current_setting)) OR (( SELECT current_setting('agent_runtime.all_users'::text, true) AS current_setting) = 'on'::text)));

alter table memories enable row level security;
alter table memories force row level security;
create policy of_user on memories using (((user_id = ( SELECT current_setting('agent_runtime.user'::text, true) AS current_setting)) OR (( SELECT current_setting('agent_runtime.all_users'::text, true) AS current_setting) = 'on'::text)));

alter table session_verdicts enable row level security;
alter table session_verdicts force row level security;
create policy of_user on session_verdicts using (((user_id = ( SELECT current_setting('agent_runtime.user'::text, true) AS current_setting)) OR (( SELECT current_setting('agent_runtime.all_users'::text, true) AS current_setting) = 'on'::text)));

alter table sessions enable row level security;
alter table sessions force row level security;
create policy of_user on sessions using (((user_id = ( SELECT current_setting('agent_runtime.user'::text, true) AS current_setting)) OR (( SELECT current_setting('agent_runtime.all_users'::text, true) AS current_setting) = 'on'::text)));

alter table signals enable row level security;
alter table signals force row level security;
create policy of_user on signals using (((user_id = ( SELECT current_setting('agent_runtime.user'::text, true) AS current_setting)) OR (( SELECT current_setting('agent_runtime.all_users'::text, true) AS current_setting) = 'on'::text)));

alter table skipped_runs enable row level security;
alter table skipped_runs force row level security;
create policy of_user on skipped_runs using (((user_id = ( SELECT current_setting('agent_runtime.user'::text, true) AS current_setting)) OR (( SELECT current_setting('agent_runtime.all_users'::text, true) AS current_setting) = 'on'::text)));

alter table spans enable row level security;
alter table spans force row level security;
create policy of_user on spans using (((user_id = ( SELECT current_setting('agent_runtime.user'::text, true) AS current_setting)) OR (( SELECT current_setting('agent_runtime.all_users'::text, true) AS current_setting) = 'on'::text)));

alter table tasks enable row level security;
alter table tasks force row level security;
create policy of_user on tasks using (((user_id = ( SELECT current_setting('agent_runtime.user'::text, true) AS current_setting)) OR (assigned_users @> ARRAY[( SELECT current_setting('agent_runtime.user'::text, true) AS current_setting)]) OR (assigned_groups && ( SELECT string_to_array(current_setting('agent_runtime.groups'::text, true), ''::text) AS string_to_array)) OR (( SELECT current_setting('agent_runtime.all_users'::text, true) AS current_setting) = 'on'::text)));

alter table tool_calls enable row level security;
alter table tool_calls force row level security;
create policy of_user on tool_calls using (((user_id = ( SELECT current_setting('agent_runtime.user'::text, true) AS current_setting)) OR (( SELECT current_setting('agent_runtime.all_users'::text, true) AS current_setting) = 'on'::text)));

alter table user_credentials enable row level security;
alter table user_credentials force row level security;
create policy of_user on user_credentials using (((user_id = ( SELECT current_setting('agent_runtime.user'::text, true) AS current_setting)) OR (( SELECT current_setting('agent_runtime.all_users'::text, true) AS current_setting) = 'on'::text)));

alter table user_erasures enable row level security;
alter table user_erasures force row level security;
create policy of_user on user_erasures using (((user_id = ( SELECT current_setting('agent_runtime.user'::text, true) AS current_setting)) OR (( SELECT current_setting('agent_runtime.all_users'::text, true) AS current_setting) = 'on'::text)));

alter table user_states enable row level security;
alter table user_states force row level security;
create policy of_user on user_states using (((user_id = ( SELECT current_setting('agent_runtime.user'::text, true) AS current_setting)) OR (( SELECT current_setting('agent_runtime.all_users'::text, true) AS current_setting) = 'on'::text)));

alter table user_storage enable row level security;
alter table user_storage force row level security;
create policy of_user on user_storage using (((user_id = ( SELECT current_setting('agent_runtime.user'::text, true) AS current_setting)) OR (( SELECT current_setting('agent_runtime.all_users'::text, true) AS current_setting) = 'on'::text)));

alter table webhook_deliveries enable row level security;
alter table webhook_deliveries force row level security;
create policy of_user on webhook_deliveries using (((user_id = ( SELECT current_setting('agent_runtime.user'::text, true) AS current_setting)) OR (( SELECT current_setting('agent_runtime.all_users'::text, true) AS current_setting) = 'on'::text)));

alter table webhooks enable row level security;
alter table webhooks force row level security;
create policy of_user on webhooks using (((user_id = ( SELECT current_setting('agent_runtime.user'::text, true) AS current_setting)) OR (( SELECT current_setting('agent_runtime.all_users'::text, true) AS current_setting) = 'on'::text)));

create view cronjob_runs as
 SELECT i.app_name,
    i.user_id,
    i.cronjob_id,
    i.run_id AS id,
    i.due_time,
    i.is_manual,
        CASE
            WHEN i.not_before IS NOT NULL THEN
            CASE i.try
                WHEN 1 THEN 'queued'::text
                ELSE 'retrying'::text
            END
            WHEN (i.status = ANY (ARRAY['queued'::text, 'running'::text])) AND i.first_end_time IS NULL THEN 'running'::text
            WHEN i.status = 'succeeded'::text THEN 'success'::text
            WHEN i.status = 'cancelled'::text THEN 'cancelled'::text
            ELSE 'failed'::text
        END AS status,
    i.try - (i.start_time IS NULL)::integer AS attempt,
    i.not_before AS next_attempt_time,
    i.stop_request_time AS cancel_request_time,
    b.session_id,
    b.id AS invocation_id,
    run_output(b.status, b.response_body) AS output,
        CASE b.status
            WHEN 'paused'::text THEN 'paused'::text
            ELSE b.error_code
        END AS error_code,
    run_error(b.status, b.error_message) AS error_message,
    i.create_time,
    b.start_time,
        CASE
            WHEN i.first_end_time IS NOT NULL THEN COALESCE(i.end_time, i.first_end_time)
            ELSE NULL::timestamp with time zone
        END AS end_time
   FROM invocations i
     LEFT JOIN invocations b ON b.app_name = i.app_name AND b.user_id = i.user_id AND b.cronjob_id = i.cronjob_id AND b.due_time = i.due_time AND b.try = (i.try - (i.start_time IS NULL)::integer)
  WHERE i.cronjob_id IS NOT NULL AND (i.user_id = current_setting('agent_runtime.user'::text, true) OR current_setting('agent_runtime.all_users'::text, true) = 'on'::text OR NOT row_security_active('invocations'::regclass::oid)) AND i.try = (( SELECT max(n.try) AS max
           FROM invocations n
          WHERE n.app_name = i.app_name AND n.user_id = i.user_id AND n.cronjob_id = i.cronjob_id AND n.due_time = i.due_time)) AND (( SELECT s.id
           FROM skipped_runs s
          WHERE s.app_name = i.app_name AND s.user_id = i.user_id AND s.cronjob_id = i.cronjob_id AND s.due_time = i.due_time)) IS NULL
UNION ALL
 SELECT s.app_name,
    s.user_id,
    s.cronjob_id,
    s.id,
    s.due_time,
    false AS is_manual,
    'skipped'::text AS status,
    s.tries AS attempt,
    NULL::timestamp with time zone AS next_attempt_time,
    NULL::timestamp with time zone AS cancel_request_time,
    b.session_id,
    b.id AS invocation_id,
    NULL::text AS output,
    'skipped'::text AS error_code,
    s.reason AS error_message,
    s.create_time,
    b.start_time,
    s.end_time
   FROM skipped_runs s
     LEFT JOIN invocations b ON b.app_name = s.app_name AND b.user_id = s.user_id AND b.cronjob_id = s.cronjob_id AND b.due_time = s.due_time AND b.try = s.tries
  WHERE s.user_id = current_setting('agent_runtime.user'::text, true) OR current_setting('agent_runtime.all_users'::text, true) = 'on'::text OR NOT row_security_active('skipped_runs'::regclass::oid);

create view inspect.artifacts as
 SELECT a.app_name,
    a.user_id,
    NULLIF(a.session_id, ''::text) AS session_id,
    a.name,
    count(*) AS version_count,
    max(v.version) AS latest_version,
    (array_agg(v.mime_type ORDER BY v.version DESC))[1] AS mime_type,
    sum(v.size_bytes) AS total_bytes,
    count(v.object_key) AS object_count,
    max(v.create_time) AS update_time
   FROM artifacts a
     JOIN artifact_versions v ON v.app_name = a.app_name AND v.user_id = a.user_id AND v.session_id = a.session_id AND v.artifact_name = a.name
  GROUP BY a.app_name, a.user_id, a.session_id, a.name;

create view inspect.audit as
 SELECT "time",
    decision,
    caller_kind,
    caller,
    address,
    operation,
    resource ->> 'appName'::text AS app_name,
    resource ->> 'userId'::text AS user_id,
    resource ->> 'sessionId'::text AS session_id,
    resource,
    reason,
    request_id,
    left_out
   FROM audit_log;

create view inspect.budget_alerts as
 SELECT app_name,
    NULLIF(user_id, ''::text) AS user_id,
    applies_to,
    period,
    since,
    level
   FROM budget_alerts;

create view inspect.budget_reservations as
 SELECT app_name,
    user_id,
    id AS call_id,
    tokens,
    cost,
    expire_time,
    expire_time <= clock_timestamp() AS is_dead
   FROM budget_reservations;

create view inspect.budget_uses as
 SELECT app_name,
    user_id,
    day,
    sum(invocations)::bigint AS invocations,
    sum(prompt_tokens)::bigint AS prompt_tokens,
    sum(output_tokens)::bigint AS output_tokens,
    sum(cost) AS cost
   FROM budget_uses
  GROUP BY app_name, user_id, day;

create view inspect.budgets as
 SELECT app_name,
    NULLIF(user_id, ''::text) AS user_id,
    applies_to,
    period,
    max_invocations,
    max_tokens,
    max_cost,
    webhook_id,
    update_time
   FROM budgets;

create view inspect.conversation as
 SELECT app_name,
    user_id,
    session_id,
    sequence,
    event_time,
    author,
    invocation_id,
    ( SELECT string_agg(COALESCE(parts.part ->> 'text'::text, ('call '::text || ((parts.part -> 'functionCall'::text) ->> 'name'::text)) || COALESCE((parts.part -> 'functionCall'::text) ->> 'args'::text, ''::text), ('response '::text || ((parts.part -> 'functionResponse'::text) ->> 'name'::text)) || COALESCE((parts.part -> 'functionResponse'::text) ->> 'response'::text, ''::text), ('['::text || COALESCE((parts.part -> 'inlineData'::text) ->> 'mimeType'::text, 'other'::text)) || ']'::text), '
'::text ORDER BY parts."position") AS string_agg
           FROM jsonb_array_elements(
                CASE
                    WHEN jsonb_typeof((e.payload -> 'content'::text) -> 'parts'::text) = 'array'::text THEN (e.payload -> 'content'::text) -> 'parts'::text
                    ELSE '[]'::jsonb
                END) WITH ORDINALITY parts(part, "position")) AS said,
    payload ->> 'errorMessage'::text AS error
   FROM events e;

create view inspect.cronjob_runs as
 SELECT r.app_name,
    r.user_id,
    r.cronjob_id,
    j.name,
    r.id AS run_id,
    r.due_time,
    r.status,
    r.is_manual,
    r.attempt,
        CASE
            WHEN r.attempt = 1 THEN r.start_time - r.due_time
            ELSE NULL::interval
        END AS lateness,
    r.end_time - r.start_time AS duration,
    r.session_id,
    r.invocation_id,
    r.error_code,
    r.error_message,
    r.output
   FROM cronjob_runs r
     JOIN cronjobs j ON j.app_name = r.app_name AND j.user_id = r.user_id AND j.id = r.cronjob_id;

create view inspect.cronjobs as
 SELECT j.app_name,
    j.user_id,
    j.id AS cronjob_id,
    j.name,
    j.schedule ->> 'type'::text AS schedule_type,
    j.enabled,
    j.disabled_reason,
    j.next_run_time,
    r.last_due_time,
    r.last_status,
    r.runs,
    r.success_rate,
    r.median_lateness,
    r.max_lateness,
    j.failure_count AS failures_in_a_row,
    j.revision
   FROM cronjobs j
     CROSS JOIN LATERAL ( SELECT max(cronjob_runs.due_time) AS last_due_time,
            (array_agg(cronjob_runs.status ORDER BY cronjob_runs.due_time DESC))[1] AS last_status,
            count(*) AS runs,
            round(avg((cronjob_runs.status = 'success'::text)::integer) FILTER (WHERE cronjob_runs.status = ANY (ARRAY['success'::text, 'failed'::text])), 3) AS success_rate,
            percentile_cont(0.5::double precision) WITHIN GROUP (ORDER BY (cronjob_runs.start_time - cronjob_runs.due_time)) FILTER (WHERE cronjob_runs.attempt = 1) AS median_lateness,
            max(cronjob_runs.start_time - cronjob_runs.due_time) FILTER (WHERE cronjob_runs.attempt = 1) AS max_lateness
           FROM cronjob_runs
          WHERE cronjob_runs.app_name = j.app_name AND cronjob_runs.user_id = j.user_id AND cronjob_runs.cronjob_id = j.id) r;

create view inspect.errors as
 SELECT app_name,
    user_id,
    session_id,
    id AS invocation_id,
    status,
    error_code,
    error_message,
    create_time,
    start_time,
    end_time
   FROM invocations
  WHERE error_code IS NOT NULL AND (status = ANY (ARRAY['failed'::text, 'interrupted'::text]));

create view inspect.eval_cases as
 SELECT app_name,
    run_id,
    eval_set_id,
    eval_id,
    case_version,
    trial,
    status,
    result ->> 'finalStatus'::text AS verdict,
    session_user_id AS user_id,
    session_id,
    error,
    (((result -> 'efficiency'::text) -> 'tokenUsage'::text) ->> 'totalTokens'::text)::double precision AS tokens_per_turn,
    end_time - start_time AS duration,
    end_time
   FROM eval_run_cases;

create view inspect.eval_judges as
 SELECT c.app_name,
    c.eval_set_id,
    m.value ->> 'metricName'::text AS metric_name,
    (m.value -> 'judge'::text) ->> 'model'::text AS judge_model,
    (m.value -> 'judge'::text) ->> 'promptVersion'::text AS prompt_version,
    count(*) FILTER (WHERE v.passed AND (t.value ->> 'status'::text) = 'PASSED'::text) AS both_pass,
    count(*) FILTER (WHERE NOT v.passed AND (t.value ->> 'status'::text) = 'PASSED'::text) AS only_judge_passes,
    count(*) FILTER (WHERE v.passed AND (t.value ->> 'status'::text) = 'FAILED'::text) AS only_person_passes,
    count(*) FILTER (WHERE NOT v.passed AND (t.value ->> 'status'::text) = 'FAILED'::text) AS both_fail
   FROM eval_verdicts v
     JOIN eval_run_cases c ON c.app_name = v.app_name AND c.session_user_id = v.user_id AND c.session_id = v.session_id AND c.status = 'done'::text
     CROSS JOIN LATERAL jsonb_array_elements(c.result -> 'overall'::text) m(value)
     CROSS JOIN LATERAL jsonb_array_elements((c.result -> 'turns'::text) -> v.turn) t(value)
  WHERE (m.value ->> 'metricName'::text) = v.metric_name AND (t.value ->> 'metricName'::text) = v.metric_name AND m.value ? 'judge'::text
  GROUP BY c.app_name, c.eval_set_id, (m.value ->> 'metricName'::text), ((m.value -> 'judge'::text) ->> 'model'::text), ((m.value -> 'judge'::text) ->> 'promptVersion'::text);

create view inspect.eval_runs as
 SELECT r.app_name,
    r.id AS run_id,
    r.eval_set_id,
    r.status,
    r.requested_by,
    r.judged_run_id,
    r.model_name,
    r.agent_hash,
    r.judge_tokens,
    c.total,
    c.passed,
    c.failed,
    c.not_evaluated,
    c.errors,
    r.create_time,
    r.end_time,
    r.end_time - r.create_time AS duration
   FROM eval_runs r
     CROSS JOIN LATERAL ( SELECT count(*) AS total,
            count(*) FILTER (WHERE (eval_run_cases.result ->> 'finalStatus'::text) = 'PASSED'::text) AS passed,
            count(*) FILTER (WHERE (eval_run_cases.result ->> 'finalStatus'::text) = 'FAILED'::text) AS failed,
            count(*) FILTER (WHERE (eval_run_cases.result ->> 'finalStatus'::text) = 'NOT_EVALUATED'::text) AS not_evaluated,
            count(*) FILTER (WHERE eval_run_cases.status = 'error'::text) AS errors
           FROM eval_run_cases
          WHERE eval_run_cases.app_name = r.app_name AND eval_run_cases.run_id = r.id) c;

create view inspect.eval_trends as
 SELECT r.app_name,
    r.eval_set_id,
    r.id AS run_id,
    r.create_time,
    m.value ->> 'metricName'::text AS metric_name,
    avg((m.value ->> 'score'::text)::double precision) AS mean_score,
    count(*) FILTER (WHERE (m.value ->> 'status'::text) = 'PASSED'::text) AS passed,
    count(*) FILTER (WHERE (m.value ->> 'status'::text) = 'FAILED'::text) AS failed,
    count(*) FILTER (WHERE (m.value ->> 'status'::text) = 'NOT_EVALUATED'::text) AS not_evaluated
   FROM eval_runs r
     JOIN eval_run_cases c ON c.app_name = r.app_name AND c.run_id = r.id
     CROSS JOIN LATERAL jsonb_array_elements(c.result -> 'overall'::text) m(value)
  WHERE r.status = 'done'::text
  GROUP BY r.app_name, r.eval_set_id, r.id, r.create_time, (m.value ->> 'metricName'::text);

create view inspect.invocation_costs as
 SELECT e.app_name,
    e.user_id,
    e.session_id,
    e.invocation_id,
    e.payload ->> 'modelVersion'::text AS model,
    count(*) AS llm_calls,
    sum(used.prompt)::bigint AS prompt_tokens,
    sum(used.output)::bigint AS output_tokens,
    sum((used.prompt * price.prompt_price + used.output * price.output_price) / 1000000::numeric) AS cost
   FROM events e
     CROSS JOIN LATERAL ( SELECT COALESCE(((e.payload -> 'usageMetadata'::text) ->> 'promptTokenCount'::text)::numeric, 0::numeric) AS prompt,
            COALESCE(((e.payload -> 'usageMetadata'::text) ->> 'candidatesTokenCount'::text)::numeric, 0::numeric) + COALESCE(((e.payload -> 'usageMetadata'::text) ->> 'thoughtsTokenCount'::text)::numeric, 0::numeric) AS output) used
     LEFT JOIN LATERAL ( SELECT p.prompt_price,
            p.output_price
           FROM model_prices p
          WHERE starts_with(e.payload ->> 'modelVersion'::text, p.model) OR p.model = '*'::text
          ORDER BY (p.model = '*'::text), (length(p.model)) DESC
         LIMIT 1) price ON true
  WHERE e.is_from_runtime AND e.payload ? 'usageMetadata'::text
  GROUP BY e.app_name, e.user_id, e.session_id, e.invocation_id, (e.payload ->> 'modelVersion'::text);

create view inspect.invocations as
 SELECT app_name,
    user_id,
    session_id,
    id AS invocation_id,
    agent_version,
    status,
    (status = ANY (ARRAY['queued'::text, 'running'::text])) AND lease_expire_time < clock_timestamp() AS is_dead,
    create_time,
    start_time,
    end_time,
    COALESCE(end_time, clock_timestamp()) - start_time AS duration,
    error_code,
    error_message,
    stop_requested_as,
    llm_calls,
    tool_calls,
    prompt_tokens,
    output_tokens
   FROM invocations;

create view inspect.open_invocations as
 SELECT app_name,
    user_id,
    session_id,
    id AS invocation_id,
    status,
    clock_timestamp() - create_time AS age,
    clock_timestamp() - start_time AS running_for,
    lease_expire_time < clock_timestamp() AS is_dead,
    stop_requested_as,
    llm_calls,
    tool_calls
   FROM invocations
  WHERE status = ANY (ARRAY['queued'::text, 'running'::text]);

create view inspect.queue as
 SELECT q.app_name,
    q.user_id,
    q.session_id,
    row_number() OVER (PARTITION BY q.app_name, q.user_id, q.session_id ORDER BY q.create_time, q.id) AS place,
    q.id AS invocation_id,
    q.create_time AS waiting_since,
    clock_timestamp() - q.create_time AS waited,
    r.id AS running_invocation,
    r.start_time AS running_since
   FROM invocations q
     LEFT JOIN invocations r ON r.app_name = q.app_name AND r.user_id = q.user_id AND r.session_id = q.session_id AND r.status = 'running'::text
  WHERE q.status = 'queued'::text AND q.lease_expire_time > clock_timestamp();

create view inspect.session_scores as
 SELECT s.app_name,
    s.user_id,
    s.session_id,
    s.last_sequence,
    s.rule_id,
    s.invocation_id,
    s.result ->> 'finalStatus'::text AS verdict,
    m.value ->> 'metricName'::text AS metric_name,
    m.value ->> 'status'::text AS status,
    (m.value ->> 'score'::text)::double precision AS score,
    (m.value -> 'judge'::text) ->> 'model'::text AS judge_model,
    m.value ->> 'explanation'::text AS explanation,
    s.create_time
   FROM eval_session_scores s
     CROSS JOIN LATERAL jsonb_array_elements(s.result -> 'overall'::text) m(value);

create view inspect.session_verdicts as
 SELECT app_name,
    user_id,
    session_id,
    NULLIF(event_id, ''::text) AS event_id,
    author,
    passed,
    label,
    comment,
    create_time
   FROM session_verdicts;

create view inspect.sessions as
 SELECT s.app_name,
    s.user_id,
    s.id AS session_id,
    s.last_sequence AS event_count,
    i.id AS running_invocation,
    i.lease_expire_time AS lease_until,
    s.create_time,
    s.update_time,
    s.is_eval,
    s.state
   FROM sessions s
     LEFT JOIN invocations i ON i.app_name = s.app_name AND i.user_id = s.user_id AND i.session_id = s.id AND i.status = 'running'::text AND i.lease_token = s.lease_token;

create view inspect.storage as
 SELECT COALESCE(s.app_name, a.app_name) AS app_name,
    COALESCE(s.user_id, a.user_id) AS user_id,
    COALESCE(s.sessions, 0::bigint) AS sessions,
    COALESCE(s.events, 0::bigint) AS events,
    COALESCE(s.event_bytes, 0::numeric) AS event_bytes,
    COALESCE(a.versions, 0::bigint) AS artifact_versions,
    COALESCE(a.bytes, 0::bigint) AS artifact_bytes
   FROM ( SELECT sessions.app_name,
            sessions.user_id,
            count(*) AS sessions,
            sum(sessions.last_sequence) AS events,
            sum(sessions.event_bytes) AS event_bytes
           FROM sessions
          GROUP BY sessions.app_name, sessions.user_id) s
     FULL JOIN ( SELECT artifact_versions.app_name,
            artifact_versions.user_id,
            count(*) AS versions,
            sum(artifact_versions.size_bytes) AS bytes
           FROM artifact_versions
          GROUP BY artifact_versions.app_name, artifact_versions.user_id) a ON a.app_name = s.app_name AND a.user_id = s.user_id;

create view inspect.tool_calls as
 SELECT e.app_name,
    e.user_id,
    e.session_id,
    e.invocation_id,
    e.sequence,
    e.author AS agent,
    (part.value -> 'functionCall'::text) ->> 'name'::text AS tool,
    (part.value -> 'functionCall'::text) ->> 'id'::text AS call_id,
    e.event_time AS call_time,
    answer.event_time - e.event_time AS duration,
        CASE
            WHEN answer.event_time IS NULL THEN 'open'::text
            WHEN answer.response ? 'error'::text THEN 'failed'::text
            ELSE 'answered'::text
        END AS outcome,
    t.effect,
    t.state,
    t.attempt,
    t.operation_id
   FROM events e
     CROSS JOIN LATERAL jsonb_array_elements(
        CASE
            WHEN jsonb_typeof((e.payload -> 'content'::text) -> 'parts'::text) = 'array'::text THEN (e.payload -> 'content'::text) -> 'parts'::text
            ELSE '[]'::jsonb
        END) part(value)
     LEFT JOIN LATERAL ( SELECT r.event_time,
            (response.value -> 'functionResponse'::text) -> 'response'::text AS response
           FROM events r
             CROSS JOIN LATERAL jsonb_array_elements(
                CASE
                    WHEN jsonb_typeof((r.payload -> 'content'::text) -> 'parts'::text) = 'array'::text THEN (r.payload -> 'content'::text) -> 'parts'::text
                    ELSE '[]'::jsonb
                END) response(value)
          WHERE r.app_name = e.app_name AND r.user_id = e.user_id AND r.session_id = e.session_id AND r.sequence > e.sequence AND ((response.value -> 'functionResponse'::text) ->> 'id'::text) = ((part.value -> 'functionCall'::text) ->> 'id'::text)
          ORDER BY r.sequence
         LIMIT 1) answer ON true
     LEFT JOIN tool_calls t ON t.app_name = e.app_name AND t.user_id = e.user_id AND t.session_id = e.session_id AND t.invocation_id = e.invocation_id AND t.call_id = ((part.value -> 'functionCall'::text) ->> 'id'::text)
  WHERE part.value ? 'functionCall'::text;

create view inspect.usage as
 SELECT app_name,
    user_id,
    (create_time AT TIME ZONE 'utc'::text)::date AS day,
    count(*) AS invocations,
    count(*) FILTER (WHERE status = 'failed'::text) AS failed,
    sum(llm_calls) AS llm_calls,
    sum(tool_calls) AS tool_calls,
    sum(prompt_tokens) AS prompt_tokens,
    sum(output_tokens) AS output_tokens
   FROM invocations
  GROUP BY app_name, user_id, ((create_time AT TIME ZONE 'utc'::text)::date);

create view inspect.user_storage as
 SELECT app_name,
    user_id,
    sum(event_bytes + artifact_bytes + memory_bytes)::bigint AS bytes,
    sum(event_bytes)::bigint AS event_bytes,
    sum(artifact_bytes)::bigint AS artifact_bytes,
    sum(memory_bytes)::bigint AS memory_bytes
   FROM user_storage
  GROUP BY app_name, user_id;

create view inspect.version as
 SELECT 1 AS version;

create view inspect.webhook_deliveries as
 SELECT d.app_name,
    d.user_id,
    w.id AS webhook_id,
    w.url,
    d.id AS delivery_id,
    d.payload::json ->> 'type'::text AS type,
    (d.payload::json -> 'data'::text) ->> 'status'::text AS ended_as,
    d.status,
    COALESCE(j.attempt, d.attempt) AS attempt,
    COALESCE(j.lease_expire_time, j.due_time) AS next_attempt_time,
    (d.answers -> '-1'::integer) ->> 'status'::text AS last_status,
    (d.answers -> '-1'::integer) ->> 'error'::text AS last_error,
    d.create_time,
    d.end_time,
    d.end_time - d.create_time AS duration
   FROM webhook_deliveries d
     JOIN webhooks w ON w.app_name = d.app_name AND w.user_id = d.user_id AND w.id = d.webhook_id
     LEFT JOIN jobs j ON j.app_name = d.app_name AND j.user_id = d.user_id AND j.kind = 'delivery'::text AND j.id = d.id;

create view inspect_outline.artifacts as
 SELECT app_name,
    user_id,
    session_id,
    version_count,
    latest_version,
    mime_type,
    total_bytes,
    object_count,
    update_time
   FROM inspect.artifacts;

create view inspect_outline.audit as
 SELECT "time",
    decision,
    caller_kind,
    caller,
    address,
    operation,
    app_name,
    user_id,
    session_id,
    reason,
    request_id,
    left_out
   FROM inspect.audit;

create view inspect_outline.budget_alerts as
 SELECT app_name,
    user_id,
    applies_to,
    period,
    since,
    level
   FROM inspect.budget_alerts;

create view inspect_outline.budget_reservations as
 SELECT app_name,
    user_id,
    call_id,
    tokens,
    cost,
    expire_time,
    is_dead
   FROM inspect.budget_reservations;

create view inspect_outline.budget_uses as
 SELECT app_name,
    user_id,
    day,
    invocations,
    prompt_tokens,
    output_tokens,
    cost
   FROM inspect.budget_uses;

create view inspect_outline.budgets as
 SELECT app_name,
    user_id,
    applies_to,
    period,
    max_invocations,
    max_tokens,
    max_cost,
    webhook_id,
    update_time
   FROM inspect.budgets;

create view inspect_outline.conversation as
 SELECT app_name,
    user_id,
    session_id,
    sequence,
    event_time,
    author,
    invocation_id,
    octet_length(said) AS said_bytes,
    error IS NOT NULL AS has_error
   FROM inspect.conversation;

create view inspect_outline.cronjob_runs as
 SELECT app_name,
    user_id,
    cronjob_id,
    run_id,
    due_time,
    status,
    is_manual,
    attempt,
    lateness,
    duration,
    session_id,
    invocation_id,
    error_code
   FROM inspect.cronjob_runs;

create view inspect_outline.cronjobs as
 SELECT app_name,
    user_id,
    cronjob_id,
    schedule_type,
    enabled,
    disabled_reason,
    next_run_time,
    last_due_time,
    last_status,
    runs,
    success_rate,
    median_lateness,
    max_lateness,
    failures_in_a_row,
    revision
   FROM inspect.cronjobs;

create view inspect_outline.errors as
 SELECT app_name,
    user_id,
    session_id,
    invocation_id,
    status,
    error_code,
    create_time,
    start_time,
    end_time
   FROM inspect.errors;

create view inspect_outline.eval_cases as
 SELECT app_name,
    run_id,
    eval_set_id,
    eval_id,
    case_version,
    trial,
    status,
    verdict,
    user_id,
    session_id,
    tokens_per_turn,
    duration,
    end_time,
    error IS NOT NULL AS has_error
   FROM inspect.eval_cases;

create view inspect_outline.eval_judges as
 SELECT app_name,
    eval_set_id,
    metric_name,
    judge_model,
    prompt_version,
    both_pass,
    only_judge_passes,
    only_person_passes,
    both_fail
   FROM inspect.eval_judges;

create view inspect_outline.eval_runs as
 SELECT app_name,
    run_id,
    eval_set_id,
    status,
    requested_by,
    judged_run_id,
    model_name,
    agent_hash,
    judge_tokens,
    total,
    passed,
    failed,
    not_evaluated,
    errors,
    create_time,
    end_time,
    duration
   FROM inspect.eval_runs;

create view inspect_outline.eval_trends as
 SELECT app_name,
    eval_set_id,
    run_id,
    create_time,
    metric_name,
    mean_score,
    passed,
    failed,
    not_evaluated
   FROM inspect.eval_trends;

create view inspect_outline.invocation_costs as
 SELECT app_name,
    user_id,
    session_id,
    invocation_id,
    model,
    llm_calls,
    prompt_tokens,
    output_tokens,
    cost
   FROM inspect.invocation_costs;

create view inspect_outline.invocations as
 SELECT app_name,
    user_id,
    session_id,
    invocation_id,
    agent_version,
    status,
    is_dead,
    create_time,
    start_time,
    end_time,
    duration,
    error_code,
    stop_requested_as,
    llm_calls,
    tool_calls,
    prompt_tokens,
    output_tokens
   FROM inspect.invocations;

create view inspect_outline.open_invocations as
 SELECT app_name,
    user_id,
    session_id,
    invocation_id,
    status,
    age,
    running_for,
    is_dead,
    stop_requested_as,
    llm_calls,
    tool_calls
   FROM inspect.open_invocations;

create view inspect_outline.queue as
 SELECT app_name,
    user_id,
    session_id,
    place,
    invocation_id,
    waiting_since,
    waited,
    running_invocation,
    running_since
   FROM inspect.queue;

create view inspect_outline.session_scores as
 SELECT app_name,
    user_id,
    session_id,
    last_sequence,
    rule_id,
    invocation_id,
    verdict,
    metric_name,
    status,
    score,
    judge_model,
    create_time
   FROM inspect.session_scores;

create view inspect_outline.session_verdicts as
 SELECT app_name,
    user_id,
    session_id,
    event_id,
    author,
    passed,
    label,
    create_time
   FROM inspect.session_verdicts;

create view inspect_outline.sessions as
 SELECT app_name,
    user_id,
    session_id,
    event_count,
    running_invocation,
    lease_until,
    create_time,
    update_time,
    is_eval
   FROM inspect.sessions;

create view inspect_outline.storage as
 SELECT app_name,
    user_id,
    sessions,
    events,
    event_bytes,
    artifact_versions,
    artifact_bytes
   FROM inspect.storage;

create view inspect_outline.tool_calls as
 SELECT app_name,
    user_id,
    session_id,
    invocation_id,
    sequence,
    agent,
    tool,
    call_id,
    call_time,
    duration,
    outcome,
    effect,
    state,
    attempt,
    operation_id
   FROM inspect.tool_calls;

create view inspect_outline.usage as
 SELECT app_name,
    user_id,
    day,
    invocations,
    failed,
    llm_calls,
    tool_calls,
    prompt_tokens,
    output_tokens
   FROM inspect.usage;

create view inspect_outline.user_storage as
 SELECT app_name,
    user_id,
    bytes,
    event_bytes,
    artifact_bytes,
    memory_bytes
   FROM inspect.user_storage;

create view inspect_outline.version as
 SELECT version
   FROM inspect.version;

create view inspect_outline.webhook_deliveries as
 SELECT app_name,
    user_id,
    webhook_id,
    delivery_id,
    type,
    ended_as,
    status,
    attempt,
    next_attempt_time,
    last_status,
    create_time,
    end_time,
    duration
   FROM inspect.webhook_deliveries;

comment on column agent_prompts.app_name is 'Application.';
comment on column agent_prompts.hash is 'SHA-256 of the whole prompt, hexadecimal; invocation_tapes refer to it.';
comment on column agent_prompts.payload is 'Agent, instruction template, declared tools, model and sampling. The instruction is absent if a request overrode it; then it is in the invocation_tapes.';
comment on column agent_prompts.use_time is 'Day of the last use.';
comment on column agent_runtime_migrations.apply_time is 'When it was applied.';
comment on column agent_runtime_migrations.hash is 'SHA-256 of the file.';
comment on column agent_runtime_migrations.name is 'Name of the file in migrations/, without its ending.';
comment on column agent_versions.app_name is 'Application.';
comment on column agent_versions.create_time is 'First deployment.';
comment on column agent_versions.definition is 'Runtime, models, agents with their instructions and tools, by name; no secrets.';
comment on column agent_versions.digest is 'SHA-256 of the definition as canonical JSON, hexadecimal.';
comment on column app_states.app_name is 'Application.';
comment on column app_states.state is 'Keys with their prefix; merged in SQL.';
comment on column app_states.update_time is 'Last merge.';
comment on column app_states.writers is 'By key: the user in whose session an agent last wrote it. Keys without an entry were written by the operator.';
comment on column artifact_versions.app_name is 'Application.';
comment on column artifact_versions.artifact_name is 'Artifact name.';
comment on column artifact_versions.canonical_uri is 'URI of the content.';
comment on column artifact_versions.content is 'The bytes; null if they are in the object store, or the part references a file elsewhere.';
comment on column artifact_versions.create_time is 'When the version was saved.';
comment on column artifact_versions.custom_metadata is 'Free-form members sent with the save.';
comment on column artifact_versions.mime_type is 'MIME type of the content.';
comment on column artifact_versions.object_key is 'Key of the content in the object store; null if it is not stored there.';
comment on column artifact_versions.part is 'The part as it was sent, without its bytes.';
comment on column artifact_versions.session_id is 'Session, or empty for an artifact of the user.';
comment on column artifact_versions.sha256 is 'SHA-256 of the content.';
comment on column artifact_versions.size_bytes is 'Length of the content in bytes.';
comment on column artifact_versions.user_id is 'Owner.';
comment on column artifact_versions.version is '0, 1, 2 … per artifact.';
comment on column artifacts.app_name is 'Application.';
comment on column artifacts.name is 'Artifact name as it was sent.';
comment on column artifacts.next_version is 'Number of the next version; never reused, even after a delete.';
comment on column artifacts.session_id is 'Session, or empty for an artifact of the user (name begins with user:).';
comment on column artifacts.user_id is 'Owner.';
comment on column audit_log."time" is 'When the entry was stored: before the request for an allowed change, within a second otherwise.';
comment on column audit_log.address is 'Address of the client, determined with TRUSTED_PROXIES.';
comment on column audit_log.caller is 'User of the token or id of the key; null for keys of RUNTIME_API_KEYS, which have no id.';
comment on column audit_log.caller_kind is 'user: token; key: API key; anonymous: local mode; unknown: refused before authentication.';
comment on column audit_log.decision is 'allowed (the request was executed, with any result) or refused.';
comment on column audit_log.id is 'Order of the entries; has gaps.';
comment on column audit_log.left_out is 'Refusals of the same caller that were not logged before this entry.';
comment on column audit_log.operation is 'operationId of the OpenAPI document; null if refused before routing.';
comment on column audit_log.reason is 'Why it was refused.';
comment on column audit_log.request_id is 'X-Request-Id of the answer.';
comment on column audit_log.resource is 'Names in the path, and the user and application in the body.';
comment on column budget_alerts.app_name is 'Application.';
comment on column budget_alerts.applies_to is 'Same as in budgets.';
comment on column budget_alerts.level is '50, 80 or 100 percent.';
comment on column budget_alerts.period is 'Same as in budgets.';
comment on column budget_alerts.since is 'First day of the period in UTC.';
comment on column budget_alerts.user_id is 'User of the budget; empty for all users.';
comment on column budget_reservations.app_name is 'Application.';
comment on column budget_reservations.cost is 'Their cost at the prices of that time.';
comment on column budget_reservations.expire_time is 'When the reservation ends, unless its process renews it.';
comment on column budget_reservations.id is 'Id of the model call.';
comment on column budget_reservations.tokens is 'Prompt and output tokens.';
comment on column budget_reservations.user_id is 'User.';
comment on column budget_totals.app_name is 'Application.';
comment on column budget_totals.cost is 'Their cost at the prices of that time.';
comment on column budget_totals.invocations is 'Started invocations.';
comment on column budget_totals.shard is 'Shard, so that concurrent invocations do not block each other.';
comment on column budget_totals.since is 'First day in UTC: a day for its own total, the first of a month for the month''s total.';
comment on column budget_totals.tokens is 'Prompt, answer and thought tokens of all model calls.';
comment on column budget_uses.app_name is 'Application.';
comment on column budget_uses.cost is 'Their cost at the prices of that time.';
comment on column budget_uses.day is 'Day in UTC.';
comment on column budget_uses.invocations is 'Started invocations.';
comment on column budget_uses.output_tokens is 'Answer and thought tokens of all model calls.';
comment on column budget_uses.prompt_tokens is 'Prompt tokens of all model calls.';
comment on column budget_uses.shard is 'Shard, so that a user''s concurrent invocations do not block each other.';
comment on column budget_uses.user_id is 'User.';
comment on column budgets.app_name is 'Application.';
comment on column budgets.applies_to is 'app: all users together; users: each user without a budget of their own for the period; user: the user in user_id.';
comment on column budgets.max_cost is 'Maximum cost by model_prices; null: no limit.';
comment on column budgets.max_invocations is 'Maximum number of invocations; null: no limit.';
comment on column budgets.max_tokens is 'Maximum number of prompt, answer and thought tokens; null: no limit.';
comment on column budgets.period is 'day or month.';
comment on column budgets.update_time is 'Last change.';
comment on column budgets.user_id is 'The user if it applies to one; otherwise empty.';
comment on column budgets.webhook_id is 'Webhook to notify when 50, 80 or 100 percent are used; null for none.';
comment on column cronjob_runs.app_name is 'Application.';
comment on column cronjob_runs.attempt is 'Number of attempts started.';
comment on column cronjob_runs.cancel_request_time is 'When cancellation was requested.';
comment on column cronjob_runs.create_time is 'When it was queued.';
comment on column cronjob_runs.cronjob_id is 'Cronjob that runs.';
comment on column cronjob_runs.due_time is 'Due time; for a manual run, the time of the request.';
comment on column cronjob_runs.end_time is 'When it ended.';
comment on column cronjob_runs.error_code is 'Stable error code.';
comment on column cronjob_runs.error_message is 'Why it failed or was skipped, a sentence.';
comment on column cronjob_runs.id is 'Run identifier.';
comment on column cronjob_runs.invocation_id is 'Invocation of its last attempt.';
comment on column cronjob_runs.is_manual is 'Requested manually.';
comment on column cronjob_runs.next_attempt_time is 'When a waiting run may start; null otherwise.';
comment on column cronjob_runs.output is 'Text of the answer.';
comment on column cronjob_runs.session_id is 'Session of its last attempt.';
comment on column cronjob_runs.start_time is 'Start of the last attempt.';
comment on column cronjob_runs.status is 'queued, running, retrying (waits for another attempt), success, failed, cancelled or skipped.';
comment on column cronjob_runs.user_id is 'Owner.';
comment on column cronjobs.app_name is 'Application.';
comment on column cronjobs.create_time is 'When it was created.';
comment on column cronjobs.disabled_reason is 'Why the runtime disabled it; null if the owner did.';
comment on column cronjobs.enabled is 'False if the owner or the runtime disabled it.';
comment on column cronjobs.failure_count is 'Consecutive failed runs.';
comment on column cronjobs.harness is 'Agent overrides for each run, as sent; null if none.';
comment on column cronjobs.id is 'Cronjob identifier.';
comment on column cronjobs.max_attempts is 'Maximum number of attempts of a run.';
comment on column cronjobs.max_failures is 'Disabled after this many consecutive failed runs; 0: never.';
comment on column cronjobs.max_retry_pause_seconds is 'Maximum back-off.';
comment on column cronjobs.max_runs is 'Disabled after this many scheduled runs; null: no limit.';
comment on column cronjobs.missed_runs is 'Handling of due times missed by more than a minute: skip, once or all.';
comment on column cronjobs.name is 'Name for people.';
comment on column cronjobs.next_run_time is 'Next due time; null if disabled.';
comment on column cronjobs.overlap is 'Handling of a run while an earlier one is running: queue, skip or replace.';
comment on column cronjobs.prompt is 'Prompt of each run.';
comment on column cronjobs.retry_pause_seconds is 'Back-off before the second attempt; doubles with each attempt.';
comment on column cronjobs.revision is 'Increases with each change.';
comment on column cronjobs.run_count is 'Scheduled runs so far.';
comment on column cronjobs.schedule is 'Schedule with time zone, in the API''s format: once, interval, daily, weekly, monthly or cron.';
comment on column cronjobs.session_id is 'The session if the policy is fixed.';
comment on column cronjobs.session_policy is 'new (a session per run) or fixed (one session for all runs).';
comment on column cronjobs.timeout_seconds is 'Time limit of a run; null: no limit of its own.';
comment on column cronjobs.until is 'Fires only before this time; null: no end.';
comment on column cronjobs.update_time is 'When it was changed last.';
comment on column cronjobs.user_id is 'Owner.';
comment on column cronjobs.webhook_url is 'Address of the webhook for results of runs; null for none.';
comment on column eval_case_versions.app_name is 'Application.';
comment on column eval_case_versions.create_time is 'When it was written.';
comment on column eval_case_versions.eval_id is 'Case.';
comment on column eval_case_versions.eval_set_id is 'Set that the case belongs to.';
comment on column eval_case_versions.hash is 'SHA-256 of the payload without its creation time, hexadecimal.';
comment on column eval_case_versions.owner_id is 'Owner of the set; null if it has none.';
comment on column eval_case_versions.payload is 'The case in the API''s format.';
comment on column eval_case_versions.version is 'From 1; increases with each write.';
comment on column eval_cases.app_name is 'Application.';
comment on column eval_cases.create_time is 'When the case was created.';
comment on column eval_cases.eval_set_id is 'Set that the case belongs to.';
comment on column eval_cases.id is 'Case identifier, unique within its set.';
comment on column eval_cases.owner_id is 'Owner of the set; null if it has none.';
comment on column eval_cases.source_session_id is 'Session that the case was made from.';
comment on column eval_cases.source_user_id is 'User of the session that the case was made from.';
comment on column eval_cases.version is 'Its newest version.';
comment on column eval_run_cases.app_name is 'Application.';
comment on column eval_run_cases.case_version is 'Version of the case that is run.';
comment on column eval_run_cases.end_time is 'When it ended.';
comment on column eval_run_cases.error is 'Why it could not be completed, a sentence.';
comment on column eval_run_cases.eval_id is 'Case.';
comment on column eval_run_cases.eval_set_id is 'Set of the case.';
comment on column eval_run_cases.failed_turn is 'Turn that failed, from 0.';
comment on column eval_run_cases.last_sequence is 'Last event of its session that belongs to the case.';
comment on column eval_run_cases.owner_id is 'User who requested the run; null for an API key or without authentication.';
comment on column eval_run_cases.place is 'Place of the case in the run, from 1.';
comment on column eval_run_cases.result is 'Scores of the case and of its turns; the turns themselves are the events of the session.';
comment on column eval_run_cases.run_id is 'Run.';
comment on column eval_run_cases.session_count is 'Number of sessions used; after an interrupted turn it starts again in a new one.';
comment on column eval_run_cases.session_id is 'Session that it runs in; null until it starts.';
comment on column eval_run_cases.session_user_id is 'User of its session.';
comment on column eval_run_cases.start_time is 'When it started.';
comment on column eval_run_cases.status is 'waiting, running, done, error (could not be completed) or cancelled.';
comment on column eval_run_cases.trial is 'Trial of the case, from 1.';
comment on column eval_runs.agent_hash is 'SHA-256 of the description of the agent that was deployed when it was requested, hexadecimal.';
comment on column eval_runs.app_name is 'Application.';
comment on column eval_runs.create_time is 'When it was requested.';
comment on column eval_runs.end_time is 'When its last case ended, or when it was cancelled.';
comment on column eval_runs.eval_set_id is 'Evaluation set; may be deleted by now.';
comment on column eval_runs.id is 'Run.';
comment on column eval_runs.judge_tokens is 'Tokens used by judges and simulated users, including the maximum of running calls.';
comment on column eval_runs.judged_run_id is 'Run whose stored turns are judged again without calling the agent; null for an ordinary run.';
comment on column eval_runs.max_judge_tokens is 'Token limit for judges and simulated users.';
comment on column eval_runs.metrics is 'Metrics for scoring turns, as requested.';
comment on column eval_runs.model_execution_mode is 'stored: model answers are taken from the cases; live: models are called.';
comment on column eval_runs.model_name is 'Model of that agent.';
comment on column eval_runs.parallelism is 'Maximum concurrent cases, over all processes.';
comment on column eval_runs.requested_by is 'User of the token that requested it; null for keys and local callers.';
comment on column eval_runs.result_time is 'Identifies the result: unique within the application, never a whole second.';
comment on column eval_runs.status is 'queued, running, done or cancelled.';
comment on column eval_runs.summary is 'Case counts and mean scores at the end; null for cancelled and open runs.';
comment on column eval_runs.tool_execution_mode is 'stored: tool answers are taken from the cases; live: tools are run.';
comment on column eval_runs.trials is 'Trials per case.';
comment on column eval_runs.user_simulator is 'Configuration of the simulated user, as requested.';
comment on column eval_session_scores.app_name is 'Application.';
comment on column eval_session_scores.create_time is 'When it was scored.';
comment on column eval_session_scores.invocation_id is 'Scored invocation; null for the whole session.';
comment on column eval_session_scores.last_sequence is 'Last event that was scored.';
comment on column eval_session_scores.metrics_hash is 'SHA-256 of the metrics as requested, hexadecimal.';
comment on column eval_session_scores.result is 'Scores of the session and of its turns, with tokens and times.';
comment on column eval_session_scores.rule_id is 'Score rule that caused it; null if requested directly.';
comment on column eval_session_scores.session_id is 'Session.';
comment on column eval_session_scores.user_id is 'Owner of the session.';
comment on column eval_sets.app_name is 'Application.';
comment on column eval_sets.create_time is 'When the set was created.';
comment on column eval_sets.description is 'Description for people.';
comment on column eval_sets.id is 'Evaluation set identifier.';
comment on column eval_sets.model_execution_mode is 'Default for runs, as sent; null: live.';
comment on column eval_sets.name is 'Name for people.';
comment on column eval_sets.owner_id is 'User who created the set; other users cannot see it. Null if created by an API key or without authentication; those callers see all sets.';
comment on column eval_sets.tool_execution_mode is 'Default for runs, as sent; null: live.';
comment on column eval_verdicts.app_name is 'Application.';
comment on column eval_verdicts.author is 'Author: user of a token, id of a key, or local.';
comment on column eval_verdicts.comment is 'Why, in words.';
comment on column eval_verdicts.create_time is 'When it was given.';
comment on column eval_verdicts.metric_name is 'Metric that the verdict is compared with.';
comment on column eval_verdicts.passed is 'Whether the turn is good.';
comment on column eval_verdicts.session_id is 'Session of the case.';
comment on column eval_verdicts.turn is 'Turn of the session, from 0.';
comment on column eval_verdicts.user_id is 'Owner of the session.';
comment on column event_deltas.app_name is 'Application.';
comment on column event_deltas.event_id is 'Id of the complete event to come.';
comment on column event_deltas.lease_token is 'Lease under which it was written. Valid while it equals sessions.lease_token.';
comment on column event_deltas.number is 'Order of a session''s chunks: microseconds since 1970, or the previous number plus one. Never reused.';
comment on column event_deltas.payload is 'The chunk in the API''s format: a partial event, JSON.';
comment on column event_deltas.session_id is 'Session.';
comment on column event_deltas.user_id is 'Owner of the session.';
comment on column events.app_name is 'Application.';
comment on column events.author is 'user, or the name of the agent.';
comment on column events.bytes is 'Size of the payload as text, bytes.';
comment on column events.event_time is 'The timestamp of the payload; imported events keep their own.';
comment on column events.id is 'Event identifier, unique within its session.';
comment on column events.invocation_id is 'Invocation that wrote the event.';
comment on column events.is_from_runtime is 'True if the runtime made the event; false if a request sent it, whatever author it names. False for events older than this column.';
comment on column events.payload is 'The event in the API''s format. U+E000 and four hex digits encode a code unit that jsonb refuses.';
comment on column events.sequence is '1, 2, 3 … per session, without gap or tie.';
comment on column events.session_id is 'Session.';
comment on column events.user_id is 'Owner of the session.';
comment on column idempotency_keys.app_name is 'Application of the request; empty if none.';
comment on column idempotency_keys.create_time is 'When the request was answered.';
comment on column idempotency_keys.key is 'Idempotency-Key of the request.';
comment on column idempotency_keys.request_hash is 'SHA-256 of the request; distinguishes a retry from another request with the same key.';
comment on column idempotency_keys.response_body is 'The response as sent; a retry receives the same bytes.';
comment on column idempotency_keys.scope is 'Operation and caller.';
comment on column idempotency_keys.session_id is 'Session of the answer; null if none. When it is deleted the answer is cleared, and a retry receives 404.';
comment on column idempotency_keys.user_id is 'User of the request; empty if none.';
comment on column inspect.artifacts.app_name is 'Application.';
comment on column inspect.artifacts.latest_version is 'Number of the latest version; the first one is 0.';
comment on column inspect.artifacts.mime_type is 'MIME type of the latest version.';
comment on column inspect.artifacts.name is 'Name.';
comment on column inspect.artifacts.object_count is 'Versions whose bytes are in the object store.';
comment on column inspect.artifacts.session_id is 'Session; null for an artifact shared by all sessions of the user.';
comment on column inspect.artifacts.total_bytes is 'Bytes of all versions.';
comment on column inspect.artifacts.update_time is 'When the latest version was saved.';
comment on column inspect.artifacts.user_id is 'Owner.';
comment on column inspect.artifacts.version_count is 'Number of its versions.';
comment on column inspect.audit."time" is 'When it was stored.';
comment on column inspect.audit.address is 'Address of the client.';
comment on column inspect.audit.app_name is 'Application of the request.';
comment on column inspect.audit.caller is 'User of the token or id of the key.';
comment on column inspect.audit.caller_kind is 'user, key, anonymous or unknown.';
comment on column inspect.audit.decision is 'allowed or refused.';
comment on column inspect.audit.left_out is 'Refusals of the same caller that were not logged before this entry.';
comment on column inspect.audit.operation is 'operationId of the OpenAPI document.';
comment on column inspect.audit.reason is 'Why it was refused.';
comment on column inspect.audit.request_id is 'X-Request-Id of the answer.';
comment on column inspect.audit.resource is 'Names in the path, and the user and application in the body.';
comment on column inspect.audit.session_id is 'Session in the path.';
comment on column inspect.audit.user_id is 'User of the request.';
comment on column inspect.budget_alerts.app_name is 'Application.';
comment on column inspect.budget_alerts.applies_to is 'As in inspect.budgets.';
comment on column inspect.budget_alerts.level is '50, 80 or 100 percent.';
comment on column inspect.budget_alerts.period is 'day or month.';
comment on column inspect.budget_alerts.since is 'First day of the period in UTC.';
comment on column inspect.budget_alerts.user_id is 'User of the budget; null for all users.';
comment on column inspect.budget_reservations.app_name is 'Application.';
comment on column inspect.budget_reservations.call_id is 'Id of the model call.';
comment on column inspect.budget_reservations.cost is 'Their cost at the model_prices of that time.';
comment on column inspect.budget_reservations.expire_time is 'When the reservation ends, unless its process renews it.';
comment on column inspect.budget_reservations.is_dead is 'True after expiry: it no longer counts.';
comment on column inspect.budget_reservations.tokens is 'Prompt and output tokens.';
comment on column inspect.budget_reservations.user_id is 'User.';
comment on column inspect.budget_uses.app_name is 'Application.';
comment on column inspect.budget_uses.cost is 'Their cost at the model_prices of that time.';
comment on column inspect.budget_uses.day is 'Day in UTC.';
comment on column inspect.budget_uses.invocations is 'Started invocations.';
comment on column inspect.budget_uses.output_tokens is 'Answer and thought tokens of all model calls.';
comment on column inspect.budget_uses.prompt_tokens is 'Prompt tokens of all model calls.';
comment on column inspect.budget_uses.user_id is 'User.';
comment on column inspect.budgets.app_name is 'Application.';
comment on column inspect.budgets.applies_to is 'app: all users together; users: each user without a budget of their own; user: the user in user_id.';
comment on column inspect.budgets.max_cost is 'Maximum cost by model_prices; null: no limit.';
comment on column inspect.budgets.max_invocations is 'Maximum number of invocations; null: no limit.';
comment on column inspect.budgets.max_tokens is 'Maximum number of prompt, answer and thought tokens; null: no limit.';
comment on column inspect.budgets.period is 'day or month of UTC.';
comment on column inspect.budgets.update_time is 'Last change.';
comment on column inspect.budgets.user_id is 'The user if it applies to one.';
comment on column inspect.budgets.webhook_id is 'Webhook to notify at 50, 80 and 100 percent.';
comment on column inspect.conversation.app_name is 'Application.';
comment on column inspect.conversation.author is 'user, or the name of an agent.';
comment on column inspect.conversation.error is 'Error of the event.';
comment on column inspect.conversation.event_time is 'Timestamp of the event.';
comment on column inspect.conversation.invocation_id is 'Invocation of the event.';
comment on column inspect.conversation.said is 'Texts, function calls and their responses; other parts by their MIME type.';
comment on column inspect.conversation.sequence is 'Place in the session.';
comment on column inspect.conversation.session_id is 'Session.';
comment on column inspect.conversation.user_id is 'Owner.';
comment on column inspect.cronjob_runs.app_name is 'Application.';
comment on column inspect.cronjob_runs.attempt is 'Number of attempts started.';
comment on column inspect.cronjob_runs.cronjob_id is 'Cronjob.';
comment on column inspect.cronjob_runs.due_time is 'When it was due.';
comment on column inspect.cronjob_runs.duration is 'Duration of the last attempt.';
comment on column inspect.cronjob_runs.error_code is 'Stable error code.';
comment on column inspect.cronjob_runs.error_message is 'Why it failed or was skipped, a sentence.';
comment on column inspect.cronjob_runs.invocation_id is 'Invocation of its last attempt.';
comment on column inspect.cronjob_runs.is_manual is 'Requested manually.';
comment on column inspect.cronjob_runs.lateness is 'Time from due time to start, for runs with a single attempt.';
comment on column inspect.cronjob_runs.name is 'Name of the cronjob.';
comment on column inspect.cronjob_runs.output is 'Text of the answer.';
comment on column inspect.cronjob_runs.run_id is 'Run.';
comment on column inspect.cronjob_runs.session_id is 'Session of its last attempt.';
comment on column inspect.cronjob_runs.status is 'queued, running, retrying, success, failed, cancelled or skipped.';
comment on column inspect.cronjob_runs.user_id is 'Owner.';
comment on column inspect.cronjobs.app_name is 'Application.';
comment on column inspect.cronjobs.cronjob_id is 'Cronjob.';
comment on column inspect.cronjobs.disabled_reason is 'Why the runtime disabled it.';
comment on column inspect.cronjobs.enabled is 'True if enabled.';
comment on column inspect.cronjobs.failures_in_a_row is 'Consecutive failed runs.';
comment on column inspect.cronjobs.last_due_time is 'Due time of its newest run.';
comment on column inspect.cronjobs.last_status is 'Status of the newest run.';
comment on column inspect.cronjobs.max_lateness is 'Maximum time from due time to start, for runs with a single attempt.';
comment on column inspect.cronjobs.median_lateness is 'Median time from due time to start, for runs with a single attempt.';
comment on column inspect.cronjobs.name is 'Name for people.';
comment on column inspect.cronjobs.next_run_time is 'Next due time.';
comment on column inspect.cronjobs.revision is 'Increases with each change.';
comment on column inspect.cronjobs.runs is 'Number of stored runs.';
comment on column inspect.cronjobs.schedule_type is 'Kind of schedule.';
comment on column inspect.cronjobs.success_rate is 'Share of successful runs among successful and failed ones.';
comment on column inspect.cronjobs.user_id is 'Owner.';
comment on column inspect.errors.app_name is 'Application.';
comment on column inspect.errors.create_time is 'When it was requested.';
comment on column inspect.errors.end_time is 'When it ended.';
comment on column inspect.errors.error_code is 'Stable error code.';
comment on column inspect.errors.error_message is 'Why it failed, a sentence.';
comment on column inspect.errors.invocation_id is 'Invocation.';
comment on column inspect.errors.session_id is 'Session.';
comment on column inspect.errors.start_time is 'When it started running.';
comment on column inspect.errors.status is 'failed or interrupted.';
comment on column inspect.errors.user_id is 'Owner of the session.';
comment on column inspect.eval_cases.app_name is 'Application.';
comment on column inspect.eval_cases.case_version is 'Version of the case that was run.';
comment on column inspect.eval_cases.duration is 'How long it took.';
comment on column inspect.eval_cases.end_time is 'When it ended.';
comment on column inspect.eval_cases.error is 'Why it could not be completed.';
comment on column inspect.eval_cases.eval_id is 'Case.';
comment on column inspect.eval_cases.eval_set_id is 'Set of the case.';
comment on column inspect.eval_cases.run_id is 'Run.';
comment on column inspect.eval_cases.session_id is 'Session of the run; see inspect.conversation.';
comment on column inspect.eval_cases.status is 'waiting, running, done, error or cancelled.';
comment on column inspect.eval_cases.tokens_per_turn is 'Mean tokens per turn; null if no model reported any.';
comment on column inspect.eval_cases.trial is 'Trial, from 1.';
comment on column inspect.eval_cases.user_id is 'User of its session.';
comment on column inspect.eval_cases.verdict is 'PASSED, FAILED or NOT_EVALUATED; null unless it is done.';
comment on column inspect.eval_judges.app_name is 'Application.';
comment on column inspect.eval_judges.both_fail is 'Turns that both fail.';
comment on column inspect.eval_judges.both_pass is 'Turns that both pass.';
comment on column inspect.eval_judges.eval_set_id is 'Set.';
comment on column inspect.eval_judges.judge_model is 'Model that judged.';
comment on column inspect.eval_judges.metric_name is 'Metric.';
comment on column inspect.eval_judges.only_judge_passes is 'Turns that only the judge passes.';
comment on column inspect.eval_judges.only_person_passes is 'Turns that only a person passes.';
comment on column inspect.eval_judges.prompt_version is 'Version of the judge''s prompt; changes with its text.';
comment on column inspect.eval_runs.agent_hash is 'SHA-256 of the agent: two runs with one hash had the same instructions and tools.';
comment on column inspect.eval_runs.app_name is 'Application.';
comment on column inspect.eval_runs.create_time is 'When it was requested.';
comment on column inspect.eval_runs.duration is 'How long it took.';
comment on column inspect.eval_runs.end_time is 'When it ended; null until then.';
comment on column inspect.eval_runs.errors is 'Cases that could not be completed.';
comment on column inspect.eval_runs.eval_set_id is 'Set that was run.';
comment on column inspect.eval_runs.failed is 'Cases that failed a metric.';
comment on column inspect.eval_runs.judge_tokens is 'Tokens used by judges and simulated users, including the maximum of running calls.';
comment on column inspect.eval_runs.judged_run_id is 'Run whose stored turns were judged again; null for an ordinary run.';
comment on column inspect.eval_runs.model_name is 'Model of the agent.';
comment on column inspect.eval_runs.not_evaluated is 'Cases without a result from any metric.';
comment on column inspect.eval_runs.passed is 'Cases that passed.';
comment on column inspect.eval_runs.requested_by is 'User of the token that requested it; null for keys and local callers.';
comment on column inspect.eval_runs.run_id is 'Run.';
comment on column inspect.eval_runs.status is 'queued, running, done or cancelled.';
comment on column inspect.eval_runs.total is 'Number of cases, each trial counted.';
comment on column inspect.eval_trends.app_name is 'Application.';
comment on column inspect.eval_trends.create_time is 'When the run was requested.';
comment on column inspect.eval_trends.eval_set_id is 'Set.';
comment on column inspect.eval_trends.failed is 'Cases that failed the metric.';
comment on column inspect.eval_trends.mean_score is 'Mean score over the cases; null if there is none.';
comment on column inspect.eval_trends.metric_name is 'Metric.';
comment on column inspect.eval_trends.not_evaluated is 'Cases without a result from the metric.';
comment on column inspect.eval_trends.passed is 'Cases that passed the metric.';
comment on column inspect.eval_trends.run_id is 'Run.';
comment on column inspect.invocation_costs.app_name is 'Application.';
comment on column inspect.invocation_costs.cost is 'Cost by the longest matching prefix in model_prices, otherwise by *; null if none matches.';
comment on column inspect.invocation_costs.invocation_id is 'Invocation.';
comment on column inspect.invocation_costs.llm_calls is 'Model answers with token counts.';
comment on column inspect.invocation_costs.model is 'Model name in the provider''s answer.';
comment on column inspect.invocation_costs.output_tokens is 'Answer and thought tokens.';
comment on column inspect.invocation_costs.prompt_tokens is 'Prompt tokens.';
comment on column inspect.invocation_costs.session_id is 'Session.';
comment on column inspect.invocation_costs.user_id is 'Owner of the session.';
comment on column inspect.invocations.agent_version is 'Application version that ran it, with +overrides if the request changed the agent.';
comment on column inspect.invocations.app_name is 'Application.';
comment on column inspect.invocations.create_time is 'When it was requested.';
comment on column inspect.invocations.duration is 'Time from start to end, or until now; null while waiting.';
comment on column inspect.invocations.end_time is 'When it ended.';
comment on column inspect.invocations.error_code is 'Stable error code.';
comment on column inspect.invocations.error_message is 'Why it failed, a sentence.';
comment on column inspect.invocations.invocation_id is 'Invocation id; its events refer to it.';
comment on column inspect.invocations.is_dead is 'True if its lease has expired; another process will take it over.';
comment on column inspect.invocations.llm_calls is 'Model calls made.';
comment on column inspect.invocations.output_tokens is 'Answer and thought tokens of all model calls.';
comment on column inspect.invocations.prompt_tokens is 'Prompt tokens of all model calls.';
comment on column inspect.invocations.session_id is 'Session.';
comment on column inspect.invocations.start_time is 'When it started running.';
comment on column inspect.invocations.status is 'queued, running, paused (waits for an answer), succeeded, failed, interrupted or cancelled.';
comment on column inspect.invocations.stop_requested_as is 'Requested stop, and the status to end with: cancelled or interrupted.';
comment on column inspect.invocations.tool_calls is 'Tool calls made.';
comment on column inspect.invocations.user_id is 'Owner of the session.';
comment on column inspect.open_invocations.age is 'Time since it was requested.';
comment on column inspect.open_invocations.app_name is 'The application.';
comment on column inspect.open_invocations.invocation_id is 'The invocation.';
comment on column inspect.open_invocations.is_dead is 'True if its lease has expired; another process will take it over.';
comment on column inspect.open_invocations.llm_calls is 'Model calls with stored answers.';
comment on column inspect.open_invocations.running_for is 'Time since the start; null while waiting.';
comment on column inspect.open_invocations.session_id is 'The session.';
comment on column inspect.open_invocations.status is 'queued or running.';
comment on column inspect.open_invocations.stop_requested_as is 'Requested stop that has not happened yet: cancelled or interrupted.';
comment on column inspect.open_invocations.tool_calls is 'Tool calls with stored requests.';
comment on column inspect.open_invocations.user_id is 'Owner of the session.';
comment on column inspect.queue.app_name is 'Application.';
comment on column inspect.queue.invocation_id is 'Queued invocation.';
comment on column inspect.queue.place is 'Position in the session''s queue, from 1.';
comment on column inspect.queue.running_invocation is 'Invocation that runs in the session now.';
comment on column inspect.queue.running_since is 'Start of the running invocation.';
comment on column inspect.queue.session_id is 'Busy session.';
comment on column inspect.queue.user_id is 'Owner of the session.';
comment on column inspect.queue.waited is 'Waiting time.';
comment on column inspect.queue.waiting_since is 'When it was requested.';
comment on column inspect.session_scores.app_name is 'Application.';
comment on column inspect.session_scores.create_time is 'When it was scored.';
comment on column inspect.session_scores.explanation is 'Why it could not be evaluated.';
comment on column inspect.session_scores.invocation_id is 'Scored invocation; null for the whole session.';
comment on column inspect.session_scores.judge_model is 'Judge model; null if none.';
comment on column inspect.session_scores.last_sequence is 'Last event of the session when it was scored.';
comment on column inspect.session_scores.metric_name is 'Metric.';
comment on column inspect.session_scores.rule_id is 'Score rule that caused it; null if requested directly.';
comment on column inspect.session_scores.score is 'From 0 to 1; null if it could not be evaluated.';
comment on column inspect.session_scores.session_id is 'Session.';
comment on column inspect.session_scores.status is 'Result of this metric: PASSED, FAILED or NOT_EVALUATED.';
comment on column inspect.session_scores.user_id is 'Owner of the session.';
comment on column inspect.session_scores.verdict is 'Result of all metrics: PASSED, FAILED or NOT_EVALUATED.';
comment on column inspect.session_verdicts.app_name is 'Application.';
comment on column inspect.session_verdicts.author is 'Author: user of a token, id of a key, or local.';
comment on column inspect.session_verdicts.comment is 'Comment.';
comment on column inspect.session_verdicts.create_time is 'When it was given.';
comment on column inspect.session_verdicts.event_id is 'The event; null for the session.';
comment on column inspect.session_verdicts.label is 'Label for filtering.';
comment on column inspect.session_verdicts.passed is 'Thumbs up or down; null for neither.';
comment on column inspect.session_verdicts.session_id is 'Session.';
comment on column inspect.session_verdicts.user_id is 'Owner of the session.';
comment on column inspect.sessions.app_name is 'Application.';
comment on column inspect.sessions.create_time is 'When the session was created.';
comment on column inspect.sessions.event_count is 'Number of its events.';
comment on column inspect.sessions.is_eval is 'Created by an evaluation run; not listed.';
comment on column inspect.sessions.lease_until is 'Expiry of its lease, unless renewed.';
comment on column inspect.sessions.running_invocation is 'Running invocation; null if none.';
comment on column inspect.sessions.session_id is 'Session.';
comment on column inspect.sessions.state is 'State of this session only.';
comment on column inspect.sessions.update_time is 'Last change.';
comment on column inspect.sessions.user_id is 'Owner.';
comment on column inspect.storage.app_name is 'The application.';
comment on column inspect.storage.artifact_bytes is 'Bytes of artifact versions, in the database or the object store.';
comment on column inspect.storage.artifact_versions is 'Number of artifact versions.';
comment on column inspect.storage.event_bytes is 'Bytes of JSON of events.';
comment on column inspect.storage.events is 'Number of events.';
comment on column inspect.storage.sessions is 'Number of sessions, including those of evaluation runs.';
comment on column inspect.storage.user_id is 'The user.';
comment on column inspect.tool_calls.agent is 'Calling agent.';
comment on column inspect.tool_calls.app_name is 'The application.';
comment on column inspect.tool_calls.attempt is 'Number of attempts started; null if none.';
comment on column inspect.tool_calls.call_id is 'Id of the call within the session.';
comment on column inspect.tool_calls.call_time is 'When the call was stored.';
comment on column inspect.tool_calls.duration is 'Time until the answer was stored; null if there is none yet.';
comment on column inspect.tool_calls.effect is 'none, idempotent or once.';
comment on column inspect.tool_calls.invocation_id is 'The invocation.';
comment on column inspect.tool_calls.operation_id is 'Id of the operation for the tool; the same for every attempt.';
comment on column inspect.tool_calls.outcome is 'answered; failed (the answer has an error); open (no answer yet).';
comment on column inspect.tool_calls.sequence is 'Sequence of the event with the call.';
comment on column inspect.tool_calls.session_id is 'The session.';
comment on column inspect.tool_calls.state is 'started, done, unknown or settled.';
comment on column inspect.tool_calls.tool is 'Name of the tool.';
comment on column inspect.tool_calls.user_id is 'Owner of the session.';
comment on column inspect.usage.app_name is 'Application.';
comment on column inspect.usage.day is 'Day in UTC on which the invocations were requested.';
comment on column inspect.usage.failed is 'Number of failed invocations.';
comment on column inspect.usage.invocations is 'Number of invocations.';
comment on column inspect.usage.llm_calls is 'Model calls made.';
comment on column inspect.usage.output_tokens is 'Answer and thought tokens of all model calls.';
comment on column inspect.usage.prompt_tokens is 'Prompt tokens of all model calls.';
comment on column inspect.usage.tool_calls is 'Tool calls made.';
comment on column inspect.usage.user_id is 'User.';
comment on column inspect.user_storage.app_name is 'Application.';
comment on column inspect.user_storage.artifact_bytes is 'Bytes of artifact versions with metadata.';
comment on column inspect.user_storage.bytes is 'Sum of the three; limited by MAX_USER_BYTES.';
comment on column inspect.user_storage.event_bytes is 'Bytes of events, session states and queued requests.';
comment on column inspect.user_storage.memory_bytes is 'Bytes of memories.';
comment on column inspect.user_storage.user_id is 'User.';
comment on column inspect.version.version is 'Increases when a column is dropped, renamed or retyped.';
comment on column inspect.webhook_deliveries.app_name is 'Application.';
comment on column inspect.webhook_deliveries.attempt is 'Number of attempts.';
comment on column inspect.webhook_deliveries.create_time is 'Time of the reported event.';
comment on column inspect.webhook_deliveries.delivery_id is 'Delivery, the header webhook-id.';
comment on column inspect.webhook_deliveries.duration is 'Time until the end.';
comment on column inspect.webhook_deliveries.end_time is 'When it was delivered or given up.';
comment on column inspect.webhook_deliveries.ended_as is 'Final status of the invocation or run.';
comment on column inspect.webhook_deliveries.last_error is 'Error of the last attempt without an answer.';
comment on column inspect.webhook_deliveries.last_status is 'Receiver''s last HTTP status.';
comment on column inspect.webhook_deliveries.next_attempt_time is 'Next attempt.';
comment on column inspect.webhook_deliveries.status is 'pending, delivered or failed.';
comment on column inspect.webhook_deliveries.type is 'Type of the event.';
comment on column inspect.webhook_deliveries.url is 'Address.';
comment on column inspect.webhook_deliveries.user_id is 'Owner.';
comment on column inspect.webhook_deliveries.webhook_id is 'Webhook.';
comment on column inspect_outline.artifacts.app_name is 'Application.';
comment on column inspect_outline.artifacts.latest_version is 'Number of the latest version; the first one is 0.';
comment on column inspect_outline.artifacts.mime_type is 'MIME type of the latest version.';
comment on column inspect_outline.artifacts.object_count is 'Versions whose bytes are in the object store.';
comment on column inspect_outline.artifacts.session_id is 'Session; null for an artifact shared by all sessions of the user.';
comment on column inspect_outline.artifacts.total_bytes is 'Bytes of all versions.';
comment on column inspect_outline.artifacts.update_time is 'When the latest version was saved.';
comment on column inspect_outline.artifacts.user_id is 'Owner.';
comment on column inspect_outline.artifacts.version_count is 'Number of its versions.';
comment on column inspect_outline.audit."time" is 'When it was stored.';
comment on column inspect_outline.audit.address is 'Address of the client.';
comment on column inspect_outline.audit.app_name is 'Application of the request.';
comment on column inspect_outline.audit.caller is 'User of the token or id of the key.';
comment on column inspect_outline.audit.caller_kind is 'user, key, anonymous or unknown.';
comment on column inspect_outline.audit.decision is 'allowed or refused.';
comment on column inspect_outline.audit.left_out is 'Refusals of the same caller that were not logged before this entry.';
comment on column inspect_outline.audit.operation is 'operationId of the OpenAPI document.';
comment on column inspect_outline.audit.reason is 'Why it was refused.';
comment on column inspect_outline.audit.request_id is 'X-Request-Id of the answer.';
comment on column inspect_outline.audit.session_id is 'Session in the path.';
comment on column inspect_outline.audit.user_id is 'User of the request.';
comment on column inspect_outline.budget_alerts.app_name is 'Application.';
comment on column inspect_outline.budget_alerts.applies_to is 'As in inspect.budgets.';
comment on column inspect_outline.budget_alerts.level is '50, 80 or 100 percent.';
comment on column inspect_outline.budget_alerts.period is 'day or month.';
comment on column inspect_outline.budget_alerts.since is 'First day of the period in UTC.';
comment on column inspect_outline.budget_alerts.user_id is 'User of the budget; null for all users.';
comment on column inspect_outline.budget_reservations.app_name is 'Application.';
comment on column inspect_outline.budget_reservations.call_id is 'Id of the model call.';
comment on column inspect_outline.budget_reservations.cost is 'Their cost at the model_prices of that time.';
comment on column inspect_outline.budget_reservations.expire_time is 'When the reservation ends, unless its process renews it.';
comment on column inspect_outline.budget_reservations.is_dead is 'True after expiry: it no longer counts.';
comment on column inspect_outline.budget_reservations.tokens is 'Prompt and output tokens.';
comment on column inspect_outline.budget_reservations.user_id is 'User.';
comment on column inspect_outline.budget_uses.app_name is 'Application.';
comment on column inspect_outline.budget_uses.cost is 'Their cost at the model_prices of that time.';
comment on column inspect_outline.budget_uses.day is 'Day in UTC.';
comment on column inspect_outline.budget_uses.invocations is 'Started invocations.';
comment on column inspect_outline.budget_uses.output_tokens is 'Answer and thought tokens of all model calls.';
comment on column inspect_outline.budget_uses.prompt_tokens is 'Prompt tokens of all model calls.';
comment on column inspect_outline.budget_uses.user_id is 'User.';
comment on column inspect_outline.budgets.app_name is 'Application.';
comment on column inspect_outline.budgets.applies_to is 'app: all users together; users: each user without a budget of their own; user: the user in user_id.';
comment on column inspect_outline.budgets.max_cost is 'Maximum cost by model_prices; null: no limit.';
comment on column inspect_outline.budgets.max_invocations is 'Maximum number of invocations; null: no limit.';
comment on column inspect_outline.budgets.max_tokens is 'Maximum number of prompt, answer and thought tokens; null: no limit.';
comment on column inspect_outline.budgets.period is 'day or month of UTC.';
comment on column inspect_outline.budgets.update_time is 'Last change.';
comment on column inspect_outline.budgets.user_id is 'The user if it applies to one.';
comment on column inspect_outline.budgets.webhook_id is 'Webhook to notify at 50, 80 and 100 percent.';
comment on column inspect_outline.conversation.app_name is 'Application.';
comment on column inspect_outline.conversation.author is 'user, or the name of an agent.';
comment on column inspect_outline.conversation.event_time is 'Timestamp of the event.';
comment on column inspect_outline.conversation.has_error is 'True if the event has an error.';
comment on column inspect_outline.conversation.invocation_id is 'Invocation of the event.';
comment on column inspect_outline.conversation.said_bytes is 'Size of the column said in inspect.conversation.';
comment on column inspect_outline.conversation.sequence is 'Place in the session.';
comment on column inspect_outline.conversation.session_id is 'Session.';
comment on column inspect_outline.conversation.user_id is 'Owner.';
comment on column inspect_outline.cronjob_runs.app_name is 'Application.';
comment on column inspect_outline.cronjob_runs.attempt is 'Number of attempts started.';
comment on column inspect_outline.cronjob_runs.cronjob_id is 'Cronjob.';
comment on column inspect_outline.cronjob_runs.due_time is 'When it was due.';
comment on column inspect_outline.cronjob_runs.duration is 'Duration of the last attempt.';
comment on column inspect_outline.cronjob_runs.error_code is 'Stable error code.';
comment on column inspect_outline.cronjob_runs.invocation_id is 'Invocation of its last attempt.';
comment on column inspect_outline.cronjob_runs.is_manual is 'Requested manually.';
comment on column inspect_outline.cronjob_runs.lateness is 'Time from due time to start, for runs with a single attempt.';
comment on column inspect_outline.cronjob_runs.run_id is 'Run.';
comment on column inspect_outline.cronjob_runs.session_id is 'Session of its last attempt.';
comment on column inspect_outline.cronjob_runs.status is 'queued, running, retrying, success, failed, cancelled or skipped.';
comment on column inspect_outline.cronjob_runs.user_id is 'Owner.';
comment on column inspect_outline.cronjobs.app_name is 'Application.';
comment on column inspect_outline.cronjobs.cronjob_id is 'Cronjob.';
comment on column inspect_outline.cronjobs.disabled_reason is 'Why the runtime disabled it.';
comment on column inspect_outline.cronjobs.enabled is 'True if enabled.';
comment on column inspect_outline.cronjobs.failures_in_a_row is 'Consecutive failed runs.';
comment on column inspect_outline.cronjobs.last_due_time is 'Due time of its newest run.';
comment on column inspect_outline.cronjobs.last_status is 'Status of the newest run.';
comment on column inspect_outline.cronjobs.max_lateness is 'Maximum time from due time to start, for runs with a single attempt.';
comment on column inspect_outline.cronjobs.median_lateness is 'Median time from due time to start, for runs with a single attempt.';
comment on column inspect_outline.cronjobs.next_run_time is 'Next due time.';
comment on column inspect_outline.cronjobs.revision is 'Increases with each change.';
comment on column inspect_outline.cronjobs.runs is 'Number of stored runs.';
comment on column inspect_outline.cronjobs.schedule_type is 'Kind of schedule.';
comment on column inspect_outline.cronjobs.success_rate is 'Share of successful runs among successful and failed ones.';
comment on column inspect_outline.cronjobs.user_id is 'Owner.';
comment on column inspect_outline.errors.app_name is 'Application.';
comment on column inspect_outline.errors.create_time is 'When it was requested.';
comment on column inspect_outline.errors.end_time is 'When it ended.';
comment on column inspect_outline.errors.error_code is 'Stable error code.';
comment on column inspect_outline.errors.invocation_id is 'Invocation.';
comment on column inspect_outline.errors.session_id is 'Session.';
comment on column inspect_outline.errors.start_time is 'When it started running.';
comment on column inspect_outline.errors.status is 'failed or interrupted.';
comment on column inspect_outline.errors.user_id is 'Owner of the session.';
comment on column inspect_outline.eval_cases.app_name is 'Application.';
comment on column inspect_outline.eval_cases.case_version is 'Version of the case that was run.';
comment on column inspect_outline.eval_cases.duration is 'How long it took.';
comment on column inspect_outline.eval_cases.end_time is 'When it ended.';
comment on column inspect_outline.eval_cases.eval_id is 'Case.';
comment on column inspect_outline.eval_cases.eval_set_id is 'Set of the case.';
comment on column inspect_outline.eval_cases.has_error is 'True if it could not be completed.';
comment on column inspect_outline.eval_cases.run_id is 'Run.';
comment on column inspect_outline.eval_cases.session_id is 'Session of the run; see inspect.conversation.';
comment on column inspect_outline.eval_cases.status is 'waiting, running, done, error or cancelled.';
comment on column inspect_outline.eval_cases.tokens_per_turn is 'Mean tokens per turn; null if no model reported any.';
comment on column inspect_outline.eval_cases.trial is 'Trial, from 1.';
comment on column inspect_outline.eval_cases.user_id is 'User of its session.';
comment on column inspect_outline.eval_cases.verdict is 'PASSED, FAILED or NOT_EVALUATED; null unless it is done.';
comment on column inspect_outline.eval_judges.app_name is 'Application.';
comment on column inspect_outline.eval_judges.both_fail is 'Turns that both fail.';
comment on column inspect_outline.eval_judges.both_pass is 'Turns that both pass.';
comment on column inspect_outline.eval_judges.eval_set_id is 'Set.';
comment on column inspect_outline.eval_judges.judge_model is 'Model that judged.';
comment on column inspect_outline.eval_judges.metric_name is 'Metric.';
comment on column inspect_outline.eval_judges.only_judge_passes is 'Turns that only the judge passes.';
comment on column inspect_outline.eval_judges.only_person_passes is 'Turns that only a person passes.';
comment on column inspect_outline.eval_judges.prompt_version is 'Version of the judge''s prompt; changes with its text.';
comment on column inspect_outline.eval_runs.agent_hash is 'SHA-256 of the agent: two runs with one hash had the same instructions and tools.';
comment on column inspect_outline.eval_runs.app_name is 'Application.';
comment on column inspect_outline.eval_runs.create_time is 'When it was requested.';
comment on column inspect_outline.eval_runs.duration is 'How long it took.';
comment on column inspect_outline.eval_runs.end_time is 'When it ended; null until then.';
comment on column inspect_outline.eval_runs.errors is 'Cases that could not be completed.';
comment on column inspect_outline.eval_runs.eval_set_id is 'Set that was run.';
comment on column inspect_outline.eval_runs.failed is 'Cases that failed a metric.';
comment on column inspect_outline.eval_runs.judge_tokens is 'Tokens used by judges and simulated users, including the maximum of running calls.';
comment on column inspect_outline.eval_runs.judged_run_id is 'Run whose stored turns were judged again; null for an ordinary run.';
comment on column inspect_outline.eval_runs.model_name is 'Model of the agent.';
comment on column inspect_outline.eval_runs.not_evaluated is 'Cases without a result from any metric.';
comment on column inspect_outline.eval_runs.passed is 'Cases that passed.';
comment on column inspect_outline.eval_runs.requested_by is 'User of the token that requested it; null for keys and local callers.';
comment on column inspect_outline.eval_runs.run_id is 'Run.';
comment on column inspect_outline.eval_runs.status is 'queued, running, done or cancelled.';
comment on column inspect_outline.eval_runs.total is 'Number of cases, each trial counted.';
comment on column inspect_outline.eval_trends.app_name is 'Application.';
comment on column inspect_outline.eval_trends.create_time is 'When the run was requested.';
comment on column inspect_outline.eval_trends.eval_set_id is 'Set.';
comment on column inspect_outline.eval_trends.failed is 'Cases that failed the metric.';
comment on column inspect_outline.eval_trends.mean_score is 'Mean score over the cases; null if there is none.';
comment on column inspect_outline.eval_trends.metric_name is 'Metric.';
comment on column inspect_outline.eval_trends.not_evaluated is 'Cases without a result from the metric.';
comment on column inspect_outline.eval_trends.passed is 'Cases that passed the metric.';
comment on column inspect_outline.eval_trends.run_id is 'Run.';
comment on column inspect_outline.invocation_costs.app_name is 'Application.';
comment on column inspect_outline.invocation_costs.cost is 'Cost by the longest matching prefix in model_prices, otherwise by *; null if none matches.';
comment on column inspect_outline.invocation_costs.invocation_id is 'Invocation.';
comment on column inspect_outline.invocation_costs.llm_calls is 'Model answers with token counts.';
comment on column inspect_outline.invocation_costs.model is 'Model name in the provider''s answer.';
comment on column inspect_outline.invocation_costs.output_tokens is 'Answer and thought tokens.';
comment on column inspect_outline.invocation_costs.prompt_tokens is 'Prompt tokens.';
comment on column inspect_outline.invocation_costs.session_id is 'Session.';
comment on column inspect_outline.invocation_costs.user_id is 'Owner of the session.';
comment on column inspect_outline.invocations.agent_version is 'Application version that ran it, with +overrides if the request changed the agent.';
comment on column inspect_outline.invocations.app_name is 'Application.';
comment on column inspect_outline.invocations.create_time is 'When it was requested.';
comment on column inspect_outline.invocations.duration is 'Time from start to end, or until now; null while waiting.';
comment on column inspect_outline.invocations.end_time is 'When it ended.';
comment on column inspect_outline.invocations.error_code is 'Stable error code.';
comment on column inspect_outline.invocations.invocation_id is 'Invocation id; its events refer to it.';
comment on column inspect_outline.invocations.is_dead is 'True if its lease has expired; another process will take it over.';
comment on column inspect_outline.invocations.llm_calls is 'Model calls made.';
comment on column inspect_outline.invocations.output_tokens is 'Answer and thought tokens of all model calls.';
comment on column inspect_outline.invocations.prompt_tokens is 'Prompt tokens of all model calls.';
comment on column inspect_outline.invocations.session_id is 'Session.';
comment on column inspect_outline.invocations.start_time is 'When it started running.';
comment on column inspect_outline.invocations.status is 'queued, running, paused (waits for an answer), succeeded, failed, interrupted or cancelled.';
comment on column inspect_outline.invocations.stop_requested_as is 'Requested stop, and the status to end with: cancelled or interrupted.';
comment on column inspect_outline.invocations.tool_calls is 'Tool calls made.';
comment on column inspect_outline.invocations.user_id is 'Owner of the session.';
comment on column inspect_outline.open_invocations.age is 'Time since it was requested.';
comment on column inspect_outline.open_invocations.app_name is 'The application.';
comment on column inspect_outline.open_invocations.invocation_id is 'The invocation.';
comment on column inspect_outline.open_invocations.is_dead is 'True if its lease has expired; another process will take it over.';
comment on column inspect_outline.open_invocations.llm_calls is 'Model calls with stored answers.';
comment on column inspect_outline.open_invocations.running_for is 'Time since the start; null while waiting.';
comment on column inspect_outline.open_invocations.session_id is 'The session.';
comment on column inspect_outline.open_invocations.status is 'queued or running.';
comment on column inspect_outline.open_invocations.stop_requested_as is 'Requested stop that has not happened yet: cancelled or interrupted.';
comment on column inspect_outline.open_invocations.tool_calls is 'Tool calls with stored requests.';
comment on column inspect_outline.open_invocations.user_id is 'Owner of the session.';
comment on column inspect_outline.queue.app_name is 'Application.';
comment on column inspect_outline.queue.invocation_id is 'Queued invocation.';
comment on column inspect_outline.queue.place is 'Position in the session''s queue, from 1.';
comment on column inspect_outline.queue.running_invocation is 'Invocation that runs in the session now.';
comment on column inspect_outline.queue.running_since is 'Start of the running invocation.';
comment on column inspect_outline.queue.session_id is 'Busy session.';
comment on column inspect_outline.queue.user_id is 'Owner of the session.';
comment on column inspect_outline.queue.waited is 'Waiting time.';
comment on column inspect_outline.queue.waiting_since is 'When it was requested.';
comment on column inspect_outline.session_scores.app_name is 'Application.';
comment on column inspect_outline.session_scores.create_time is 'When it was scored.';
comment on column inspect_outline.session_scores.invocation_id is 'Scored invocation; null for the whole session.';
comment on column inspect_outline.session_scores.judge_model is 'Judge model; null if none.';
comment on column inspect_outline.session_scores.last_sequence is 'Last event of the session when it was scored.';
comment on column inspect_outline.session_scores.metric_name is 'Metric.';
comment on column inspect_outline.session_scores.rule_id is 'Score rule that caused it; null if requested directly.';
comment on column inspect_outline.session_scores.score is 'From 0 to 1; null if it could not be evaluated.';
comment on column inspect_outline.session_scores.session_id is 'Session.';
comment on column inspect_outline.session_scores.status is 'Result of this metric: PASSED, FAILED or NOT_EVALUATED.';
comment on column inspect_outline.session_scores.user_id is 'Owner of the session.';
comment on column inspect_outline.session_scores.verdict is 'Result of all metrics: PASSED, FAILED or NOT_EVALUATED.';
comment on column inspect_outline.session_verdicts.app_name is 'Application.';
comment on column inspect_outline.session_verdicts.author is 'Author: user of a token, id of a key, or local.';
comment on column inspect_outline.session_verdicts.create_time is 'When it was given.';
comment on column inspect_outline.session_verdicts.event_id is 'The event; null for the session.';
comment on column inspect_outline.session_verdicts.label is 'Label for filtering.';
comment on column inspect_outline.session_verdicts.passed is 'Thumbs up or down; null for neither.';
comment on column inspect_outline.session_verdicts.session_id is 'Session.';
comment on column inspect_outline.session_verdicts.user_id is 'Owner of the session.';
comment on column inspect_outline.sessions.app_name is 'Application.';
comment on column inspect_outline.sessions.create_time is 'When the session was created.';
comment on column inspect_outline.sessions.event_count is 'Number of its events.';
comment on column inspect_outline.sessions.is_eval is 'Created by an evaluation run; not listed.';
comment on column inspect_outline.sessions.lease_until is 'Expiry of its lease, unless renewed.';
comment on column inspect_outline.sessions.running_invocation is 'Running invocation; null if none.';
comment on column inspect_outline.sessions.session_id is 'Session.';
comment on column inspect_outline.sessions.update_time is 'Last change.';
comment on column inspect_outline.sessions.user_id is 'Owner.';
comment on column inspect_outline.storage.app_name is 'The application.';
comment on column inspect_outline.storage.artifact_bytes is 'Bytes of artifact versions, in the database or the object store.';
comment on column inspect_outline.storage.artifact_versions is 'Number of artifact versions.';
comment on column inspect_outline.storage.event_bytes is 'Bytes of JSON of events.';
comment on column inspect_outline.storage.events is 'Number of events.';
comment on column inspect_outline.storage.sessions is 'Number of sessions, including those of evaluation runs.';
comment on column inspect_outline.storage.user_id is 'The user.';
comment on column inspect_outline.tool_calls.agent is 'Calling agent.';
comment on column inspect_outline.tool_calls.app_name is 'The application.';
comment on column inspect_outline.tool_calls.attempt is 'Number of attempts started; null if none.';
comment on column inspect_outline.tool_calls.call_id is 'Id of the call within the session.';
comment on column inspect_outline.tool_calls.call_time is 'When the call was stored.';
comment on column inspect_outline.tool_calls.duration is 'Time until the answer was stored; null if there is none yet.';
comment on column inspect_outline.tool_calls.effect is 'none, idempotent or once.';
comment on column inspect_outline.tool_calls.invocation_id is 'The invocation.';
comment on column inspect_outline.tool_calls.operation_id is 'Id of the operation for the tool; the same for every attempt.';
comment on column inspect_outline.tool_calls.outcome is 'answered; failed (the answer has an error); open (no answer yet).';
comment on column inspect_outline.tool_calls.sequence is 'Sequence of the event with the call.';
comment on column inspect_outline.tool_calls.session_id is 'The session.';
comment on column inspect_outline.tool_calls.state is 'started, done, unknown or settled.';
comment on column inspect_outline.tool_calls.tool is 'Name of the tool.';
comment on column inspect_outline.tool_calls.user_id is 'Owner of the session.';
comment on column inspect_outline.usage.app_name is 'Application.';
comment on column inspect_outline.usage.day is 'Day in UTC on which the invocations were requested.';
comment on column inspect_outline.usage.failed is 'Number of failed invocations.';
comment on column inspect_outline.usage.invocations is 'Number of invocations.';
comment on column inspect_outline.usage.llm_calls is 'Model calls made.';
comment on column inspect_outline.usage.output_tokens is 'Answer and thought tokens of all model calls.';
comment on column inspect_outline.usage.prompt_tokens is 'Prompt tokens of all model calls.';
comment on column inspect_outline.usage.tool_calls is 'Tool calls made.';
comment on column inspect_outline.usage.user_id is 'User.';
comment on column inspect_outline.user_storage.app_name is 'Application.';
comment on column inspect_outline.user_storage.artifact_bytes is 'Bytes of artifact versions with metadata.';
comment on column inspect_outline.user_storage.bytes is 'Sum of the three; limited by MAX_USER_BYTES.';
comment on column inspect_outline.user_storage.event_bytes is 'Bytes of events, session states and queued requests.';
comment on column inspect_outline.user_storage.memory_bytes is 'Bytes of memories.';
comment on column inspect_outline.user_storage.user_id is 'User.';
comment on column inspect_outline.version.version is 'Increases when a column is dropped, renamed or retyped.';
comment on column inspect_outline.webhook_deliveries.app_name is 'Application.';
comment on column inspect_outline.webhook_deliveries.attempt is 'Number of attempts.';
comment on column inspect_outline.webhook_deliveries.create_time is 'Time of the reported event.';
comment on column inspect_outline.webhook_deliveries.delivery_id is 'Delivery, the header webhook-id.';
comment on column inspect_outline.webhook_deliveries.duration is 'Time until the end.';
comment on column inspect_outline.webhook_deliveries.end_time is 'When it was delivered or given up.';
comment on column inspect_outline.webhook_deliveries.ended_as is 'Final status of the invocation or run.';
comment on column inspect_outline.webhook_deliveries.last_status is 'Receiver''s last HTTP status.';
comment on column inspect_outline.webhook_deliveries.next_attempt_time is 'Next attempt.';
comment on column inspect_outline.webhook_deliveries.status is 'pending, delivered or failed.';
comment on column inspect_outline.webhook_deliveries.type is 'Type of the event.';
comment on column inspect_outline.webhook_deliveries.user_id is 'Owner.';
comment on column inspect_outline.webhook_deliveries.webhook_id is 'Webhook.';
comment on column invocation_tapes.app_name is 'Application.';
comment on column invocation_tapes.invocation_id is 'The invocation.';
comment on column invocation_tapes.payload is 'Agent overrides of the request, state values used in instructions, and per model call its prompt and digests of its input.';
comment on column invocation_tapes.session_id is 'Session.';
comment on column invocation_tapes.start is 'Number of events in the session at the start of the run, including the prompt.';
comment on column invocation_tapes.user_id is 'Owner of the session.';
comment on column invocations.agent_version is 'Digest of the application version that ran it (the last one if resumed), with +overrides if the request changed the agent. Null until it starts.';
comment on column invocations.app_name is 'Application.';
comment on column invocations.attempt is 'Number of processes that ran it; increases with each take-over after a crash.';
comment on column invocations.create_time is 'When it was requested; the order of the queue.';
comment on column invocations.cronjob_id is 'Cronjob whose run it is; null for all others, and once the run is older than runs are kept.';
comment on column invocations.due_time is 'When the run was due; of a manual run, when it was requested.';
comment on column invocations.end_time is 'When it ended.';
comment on column invocations.error_code is 'Stable error code.';
comment on column invocations.error_message is 'Why it failed, a sentence.';
comment on column invocations.first_end_time is 'When the run ended or paused first. Only this end counts for its cronjob.';
comment on column invocations.id is 'Invocation id; its events refer to it.';
comment on column invocations.idempotency_key is 'Idempotency-Key of the request, if any.';
comment on column invocations.is_manual is 'True for a run that was requested, false for one that the schedule fired.';
comment on column invocations.job is 'Job of which it is a step: kind, userId and id, and the number of the step. Its end adds the job again. Null for none.';
comment on column invocations.lease_expire_time is 'When the lease expires; then a running invocation is dead and may be taken over.';
comment on column invocations.lease_token is 'Lease token of the process that runs it; equals sessions.lease_token while running.';
comment on column invocations.llm_calls is 'Model calls made.';
comment on column invocations.not_before is 'Of a run of a cronjob that has not begun: it begins at this time at the earliest. Null for all others.';
comment on column invocations.output_tokens is 'Answer and thought tokens of all model calls.';
comment on column invocations.prompt_tokens is 'Prompt tokens of all model calls.';
comment on column invocations.request is 'JSON that lets another process start or resume it; null if none can, and after the end.';
comment on column invocations.request_hash is 'SHA-256 of the request; distinguishes a retry from another request with the same key.';
comment on column invocations.response_body is 'The response as sent; a retry receives the same bytes.';
comment on column invocations.run_id is 'Run of the cronjob; the tries of a run share it.';
comment on column invocations.session_id is 'Session.';
comment on column invocations.start_time is 'When it started running.';
comment on column invocations.status is 'queued, running, paused (waits for an answer), succeeded, failed, interrupted or cancelled.';
comment on column invocations.stop_request_time is 'When a stop was requested first.';
comment on column invocations.stop_requested_as is 'Requested stop, and the status to end with: cancelled or interrupted.';
comment on column invocations.tool_calls is 'Tool calls made.';
comment on column invocations.try is 'Number of the try of the run, from 1: a try that failed for a transient reason is followed by another.';
comment on column invocations.user_id is 'Owner of the session.';
comment on column invocations.webhook_url is 'Address of the webhook for the result; empty if only A2A push clients are notified, null for none.';
comment on column job_lanes.app_name is 'Application.';
comment on column job_lanes.blocked_by is 'Full limit that the lane waits behind: user:…, lane:… or pair:….';
comment on column job_lanes.half_open is 'The last job got no answer; one job runs at a time.';
comment on column job_lanes.kind is 'Kind of the jobs.';
comment on column job_lanes.lane is 'Name of the lane; the host of a delivery.';
comment on column job_lanes.turn_time is 'When the lane has its next turn.';
comment on column job_lanes.user_id is 'User.';
comment on column jobs.app_name is 'Application.';
comment on column jobs.attempt is 'Number of attempts.';
comment on column jobs.create_time is 'Creation.';
comment on column jobs.due_time is 'Earliest time of the next attempt.';
comment on column jobs.id is 'What the job is about, unique within its kind; the delivery.';
comment on column jobs.kind is 'delivery.';
comment on column jobs.lane is 'Name of its lane.';
comment on column jobs.lease_expire_time is 'Lease expiry.';
comment on column jobs.lease_token is 'Lease token of the process that runs it; null while it waits.';
comment on column jobs.losses is 'Number of processes that crashed while holding it; given up after two.';
comment on column jobs.user_id is 'User.';
comment on column legal_holds.app_name is 'Application.';
comment on column legal_holds.create_time is 'When it was set.';
comment on column legal_holds.reason is 'Reason, a free text.';
comment on column legal_holds.session_id is 'The session; empty for all data of the user.';
comment on column legal_holds.user_id is 'User.';
comment on column memories.app_name is 'Application.';
comment on column memories.author is 'Author of the event.';
comment on column memories.content is 'The content of the event.';
comment on column memories.embedding is 'Embedding vector; null if not embedded yet, or the model refused the text.';
comment on column memories.embedding_model is 'Model and dimensions of the vector, or of the model that refused the text.';
comment on column memories.event_id is 'The event.';
comment on column memories.event_time is 'Timestamp of the event.';
comment on column memories.search_vector is 'Words for full-text search, configuration simple.';
comment on column memories.session_id is 'Session of the event; may be deleted by now.';
comment on column memories.user_id is 'User.';
comment on column model_prices.model is 'Prefix of model names; * for models without a price.';
comment on column model_prices.output_price is 'Price of a million answer and thought tokens.';
comment on column model_prices.prompt_price is 'Price of a million prompt tokens.';
comment on column model_prices.update_time is 'Last change.';
comment on column rate_limits.expire is 'End of the window, Unix time in milliseconds.';
comment on column rate_limits.key is 'Class of operations, and a digest of the caller.';
comment on column rate_limits.points is 'Points used in the window.';
comment on column score_rules.app_name is 'Application.';
comment on column score_rules.day is 'UTC day of the counter scored.';
comment on column score_rules.definition is 'The rule as requested: metrics, filter, daily limits, webhook.';
comment on column score_rules.id is 'Rule, unique within the application.';
comment on column score_rules.quiet_minutes is 'A session is scored when no invocation has ended for this many minutes; null: each invocation is scored.';
comment on column score_rules.scored is 'Scores started on that day.';
comment on column score_rules.share is 'Share of invocations or sessions to score, sampled by a hash of their ids; 0 pauses the rule.';
comment on column score_rules.skipped is 'Scores skipped because the daily limit was reached.';
comment on column score_rules.update_time is 'When it was saved.';
comment on column session_verdicts.app_name is 'Application.';
comment on column session_verdicts.author is 'Author: user of a token, id of a key, or local.';
comment on column session_verdicts.comment is 'Comment.';
comment on column session_verdicts.create_time is 'When it was given.';
comment on column session_verdicts.event_id is 'The event; empty for the session.';
comment on column session_verdicts.label is 'Label for filtering.';
comment on column session_verdicts.passed is 'Thumbs up or down; null for neither.';
comment on column session_verdicts.session_id is 'Session.';
comment on column session_verdicts.user_id is 'Owner of the session.';
comment on column sessions.app_name is 'Application; harness_agent for the command-line deployment.';
comment on column sessions.create_time is 'When the session was created.';
comment on column sessions.event_bytes is 'Size of all events of the session as text, bytes.';
comment on column sessions.events_version is 'Increases when stored events are changed or deleted by SQL, which the service never does; invalidates caches.';
comment on column sessions.first_text is 'Start of the user''s first text; empty if there is none yet.';
comment on column sessions.forked_from_id is 'Source session of a fork; may be deleted by now.';
comment on column sessions.forked_from_sequence is 'Number of events copied by the fork.';
comment on column sessions.id is 'Session identifier, unique per application and user.';
comment on column sessions.initial_state is 'Its own state before its first event.';
comment on column sessions.is_eval is 'Created by an evaluation run; not listed.';
comment on column sessions.labels is 'Labels set by clients: names and string values.';
comment on column sessions.last_sequence is 'Sequence of the newest event; increased by the statement that inserts the event.';
comment on column sessions.lease_token is 'Lease (fencing token) of the running invocation; null if none runs. Checked by every write of an invocation.';
comment on column sessions.state is 'Keys of this session only; app: and user: keys are in app_states and user_states.';
comment on column sessions.update_time is 'Last change, by the database''s clock; never decreases.';
comment on column sessions.user_id is 'Owner; other users never see the session.';
comment on column signals.app_name is 'Application.';
comment on column signals.create_time is 'When it was received.';
comment on column signals.id is 'Row id.';
comment on column signals.name is 'Name of the signal.';
comment on column signals.payload is 'Payload of the signal.';
comment on column signals.sender_groups is 'Groups of the sender, the owner of the session; null if sent with an operator''s credential.';
comment on column signals.session_id is 'Session.';
comment on column signals.user_id is 'Owner of the session.';
comment on column skipped_runs.app_name is 'Application.';
comment on column skipped_runs.create_time is 'When it was queued.';
comment on column skipped_runs.cronjob_id is 'Cronjob of the run.';
comment on column skipped_runs.due_time is 'When it was due.';
comment on column skipped_runs.end_time is 'When it was left out.';
comment on column skipped_runs.id is 'Run identifier.';
comment on column skipped_runs.reason is 'Why it was left out, a sentence.';
comment on column skipped_runs.tries is 'How often it had been tried.';
comment on column skipped_runs.user_id is 'Owner of the cronjob.';
comment on column spans.app_name is 'Application.';
comment on column spans.attributes is 'Attributes in the API''s format.';
comment on column spans.create_time is 'When the span was stored.';
comment on column spans.end_ns is 'End, Unix time in nanoseconds.';
comment on column spans.event_id is 'Event that the step produced.';
comment on column spans.id is 'Span identifier.';
comment on column spans.name is 'invocation, invoke_agent, call_llm or execute_tool, with a name.';
comment on column spans.parent_id is 'Parent span.';
comment on column spans.session_id is 'Session.';
comment on column spans.start_ns is 'Start, Unix time in nanoseconds.';
comment on column spans.trace_id is 'Trace; one per invocation.';
comment on column spans.user_id is 'Owner of the session.';
comment on column tasks.answer is 'Answer to the call; null if a message of the session contained it, except for confirmations.';
comment on column tasks.app_name is 'Application.';
comment on column tasks.approvals is 'Approvals so far, with times.';
comment on column tasks.assigned_groups is 'Groups whose members may see and answer it.';
comment on column tasks.assigned_users is 'Users who may see and answer it. Without assigned users and groups, the session''s owner may.';
comment on column tasks.call_id is 'Id of the function call to answer.';
comment on column tasks.call_name is 'Name of that function.';
comment on column tasks.comments is 'Comments by people.';
comment on column tasks.create_time is 'When the invocation paused.';
comment on column tasks.decide_time is 'When it was answered.';
comment on column tasks.decided_by is 'Who answered; null for the deadline.';
comment on column tasks.decided_via is 'How it was answered: tasks (API), run (a message of the session), signal or deadline; null if imported.';
comment on column tasks.due_time is 'Next action: a reminder, the deadline or, after the answer, resuming the invocation. Null: none.';
comment on column tasks.expire_time is 'Deadline; null for none.';
comment on column tasks.form is 'Shown to the person who answers: tool, arguments, hint, JSON Schema of the answer.';
comment on column tasks.id is 'Task id.';
comment on column tasks.invocation_id is 'The invocation that waits.';
comment on column tasks.kind is 'confirmation (of a call); effect (of a call that may have had effects); question; call (answered later by its tool); sleep; signal; budget.';
comment on column tasks.reminders is 'Number of reminders sent.';
comment on column tasks.rules is 'Who must answer, and what happens otherwise: approvals, excludesRequester, remindAfter, escalateTo, defaultAnswer.';
comment on column tasks.session_id is 'Session.';
comment on column tasks.signal_name is 'Name of the signal that answers it; null for other kinds.';
comment on column tasks.state is 'open; answered: the invocation is not resumed yet; done: the invocation has the answer; cancelled.';
comment on column tasks.token_expire_time is 'When the public address expires.';
comment on column tasks.token_hash is 'SHA-256 of the token in its public address; null if it has none.';
comment on column tasks.user_id is 'Owner of the session.';
comment on column tasks.version is 'Change counter; used as ETag.';
comment on column tool_calls.app_name is 'Application.';
comment on column tool_calls.attempt is 'Number of attempts started.';
comment on column tool_calls.call_id is 'Id of the function call in the events.';
comment on column tool_calls.create_time is 'When it started.';
comment on column tool_calls.effect is 'Effect of a call: none, idempotent, once (must not be repeated), or transactional (committed with its response, or not at all).';
comment on column tool_calls.invocation_id is 'The invocation.';
comment on column tool_calls.operation_id is 'Id of the operation for the tool; the same for every attempt, so that it can be idempotent.';
comment on column tool_calls.response is 'Response with actions and attachments, until the step''s event contains it; null otherwise.';
comment on column tool_calls.session_id is 'Session.';
comment on column tool_calls.state is 'started; done; unknown (interrupted, may have had effects); settled (a check or a person determined the outcome).';
comment on column tool_calls.tool is 'Name of the tool.';
comment on column tool_calls.update_time is 'Last change.';
comment on column tool_calls.user_id is 'Owner of the session.';
comment on column user_credentials.app_name is 'Application.';
comment on column user_credentials.consent_expire_time is 'When the pending consent expires.';
comment on column user_credentials.consent_sealed is 'Data to complete the pending consent, encrypted; null if none is pending.';
comment on column user_credentials.consent_session_id is 'Session whose invocation waits for the consent.';
comment on column user_credentials.consent_state_hash is 'SHA-256 of the OAuth state returned by the browser.';
comment on column user_credentials.grant_sealed is 'Access and refresh tokens, encrypted; null if nothing is granted.';
comment on column user_credentials.lease_expire_time is 'End of the lease of the process that renews the grant; null if none does.';
comment on column user_credentials.resource is 'Address of the resource, an MCP server.';
comment on column user_credentials.update_time is 'Last change.';
comment on column user_credentials.user_id is 'User who granted it.';
comment on column user_erasures.app_name is 'Application.';
comment on column user_erasures.counts is 'Rows deleted so far, by table.';
comment on column user_erasures.create_time is 'First request.';
comment on column user_erasures.update_time is 'Last progress; the sweeper resumes abandoned erasures.';
comment on column user_erasures.user_id is 'User.';
comment on column user_erasures.webhook_id is 'Webhook to notify when done; null for none.';
comment on column user_states.app_name is 'Application.';
comment on column user_states.state is 'Keys with their prefix; merged in SQL.';
comment on column user_states.update_time is 'Last merge.';
comment on column user_states.user_id is 'User.';
comment on column user_storage.app_name is 'Application.';
comment on column user_storage.artifact_bytes is 'Versions of artifacts with their metadata, in the database or in a bucket.';
comment on column user_storage.event_bytes is 'Bytes of JSON of events, session states and queued requests; negative if another shard had counted data deleted since.';
comment on column user_storage.memory_bytes is 'Bytes of JSON of memories, without their search index.';
comment on column user_storage.shard is 'Shard; each connection uses one.';
comment on column user_storage.user_id is 'User.';
comment on column webhook_deliveries.answers is 'Answers to the attempts, newest last: time, and status with the start of the body, or error.';
comment on column webhook_deliveries.app_name is 'Application.';
comment on column webhook_deliveries.attempt is 'Number of attempts, written at the end; the job of a pending delivery counts them.';
comment on column webhook_deliveries.create_time is 'Time of the reported event.';
comment on column webhook_deliveries.end_time is 'When it was delivered or given up.';
comment on column webhook_deliveries.host is 'Host and port of the webhook, for the limit per host.';
comment on column webhook_deliveries.id is 'Delivery identifier, the header webhook-id of every attempt.';
comment on column webhook_deliveries.payload is 'Signed JSON text.';
comment on column webhook_deliveries.retry_end_time is 'No more attempts after this time.';
comment on column webhook_deliveries.status is 'pending, delivered or failed.';
comment on column webhook_deliveries.user_id is 'Owner.';
comment on column webhook_deliveries.webhook_id is 'Target webhook.';
comment on column webhooks.app_name is 'Application.';
comment on column webhooks.create_time is 'When it was registered.';
comment on column webhooks.host is 'Host and port of the address.';
comment on column webhooks.id is 'Webhook identifier.';
comment on column webhooks.includes_output is 'True: deliveries include the start of the answer.';
comment on column webhooks.is_silent is 'True if the host did not answer the last attempt, or was never tried: one delivery at a time until it answers.';
comment on column webhooks.old_secret is 'Previous secret; also signs until old_secret_expire_time. Null for none.';
comment on column webhooks.old_secret_expire_time is 'When the old secret stops signing.';
comment on column webhooks.push is 'A2A push configuration: the task and the headers to send; null for an ordinary webhook.';
comment on column webhooks.secret is 'Signing secret; starts with whsec_. Shown only once, and in no view.';
comment on column webhooks.url is 'Normalised URL; requests and cronjobs refer to it.';
comment on column webhooks.user_id is 'Owner.';
comment on function add_delivery_job() is 'Trigger function: a delivery is to be sent; adds its job.';
comment on function add_job(text,text,text,text,text,boolean,timestamp with time zone) is 'Adds a job, in the transaction that makes it necessary. One that waits already stays due when it was; one that runs is due again at its end.';
comment on function add_job_lane(text,text,text,text,timestamp with time zone,boolean) is 'Inserts a lane, or makes it due by p_due. It stays half-open only if p_half_open.';
comment on function add_score_jobs(invocations) is 'Adds the jobs of an ended invocation''s scores, by the application''s rules.';
comment on function add_user_bytes(text,text,bigint,bigint,bigint) is 'Adds to a user''s stored bytes in an application.';
comment on function advance_eval_run(text,uuid) is 'Starts the next cases of an evaluation run, up to its parallelism, and ends the run after its last case.';
comment on function alert_budgets(text,text) is 'Notifies webhooks of budgets that 50, 80 or 100 % are used.';
comment on function answer_calls(text,text,text,jsonb) is 'Closes the tasks of the calls that a message of the session''s user answers, or refuses the message.';
comment on function answered_text(text,text,text,text,timestamp with time zone) is 'Returns the error message for an answer to a task that is closed already.';
comment on function append_deltas(text,text,text,uuid,bigint,text[],text[]) is 'Stores chunks of streamed text while the caller holds the lease.';
comment on function append_events(text,text,text,jsonb,jsonb,text,boolean,uuid,text[],jsonb,text,integer,integer,integer,integer,boolean,jsonb,jsonb,jsonb) is 'Appends events to a session, with their state changes.';
comment on function artifact_size(bigint,jsonb,jsonb) is 'Returns the size of an artifact version that counts for its user''s storage.';
comment on function assert_own_user(text) is 'Fails if the role agent_runtime_user names a user other than that of the transaction.';
comment on function assert_session_size(bigint,bigint) is 'Returns the size; fails if it exceeds p_max_bytes.';
comment on function assert_state_size(jsonb,integer,integer) is 'Returns the state; fails if it has more than p_max_bytes of text or p_max_keys keys.';
comment on function assert_user_storage(text,text,bigint,bigint,boolean) is 'Returns the added bytes; fails if the user''s storage would exceed p_max_bytes.';
comment on function assert_without_task(text,text,text,text,boolean) is 'Refuses an answer to a call without a task in its session, unless no particular person has to answer the call.';
comment on function assert_writer_share(jsonb,jsonb,jsonb,integer) is 'Returns the writers; fails if agents wrote more than p_max_bytes on behalf of the writer.';
comment on function audit_retention() is 'Returns for how many days, and how many, entries of the audit log are kept. Each migration writes the operator''s settings into this function.';
comment on function begun_runs(text) is 'Returns the number of a user''s runs of cronjobs that go on.';
comment on function budget_uses_of_app(text,date) is 'Returns the usage of all users of an application since today or the first of this month, and the current reservations.';
comment on function budgets_for(text,text) is 'Returns the budgets that apply to a user, with what was used and reserved in the current period.';
comment on function change_task(text,text,text,text,text,text[],boolean,integer,text,jsonb) is 'Answers, rejects, settles, assigns, comments or postpones an open task, or creates its public address.';
comment on function claim_jobs(text,text[],integer,integer,jsonb) is 'Claims jobs of one kind, lanes in turn and within limits; returns them, and what job_pause says then.';
comment on function claim_session(text,text,text,text,uuid,uuid,integer,text,text,text,jsonb,boolean,boolean,boolean,boolean,boolean,text,jsonb,boolean,jsonb,jsonb,text,jsonb,boolean,jsonb,integer) is 'Starts or resumes an invocation in an idle session, with its first events.';
comment on function clamped_time(double precision) is 'Converts Unix seconds to a timestamp; a number out of range becomes the earliest or latest possible year.';
comment on function continue_job(invocations) is 'Adds the job of which an ended or deleted invocation is a step.';
comment on function count_changed_events() is 'Trigger function: a stored event was changed or deleted by SQL.';
comment on function count_event_bytes() is 'Trigger function: recomputes an event''s size after its payload was changed by SQL.';
comment on function count_kept_bytes() is 'Trigger function: a call''s stored answer was added or removed.';
comment on function count_open_runs(text,text,text) is 'Returns the number of runs of a cronjob that have not ended.';
comment on function count_request_bytes() is 'Trigger function: a stored request was added, changed or removed.';
comment on function count_session_bytes() is 'Trigger function: the size of a session''s events or states has changed.';
comment on function count_stored_bytes() is 'Trigger function: rows were inserted or deleted. Arguments: the table and a sign.';
comment on function count_use(text,text,bigint,jsonb) is 'Adds invocations, tokens and their cost to a user''s usage of today.';
comment on function count_use_of_app(text,date,bigint,bigint,numeric) is 'Adds usage to an application''s totals of today and of this month.';
comment on function counted_request(text,timestamp with time zone,jsonb) is 'Bytes of a stored request that count for its user.';
comment on function create_session(text,text,text,boolean,jsonb,jsonb,jsonb,text,jsonb) is 'Inserts a session with its initial state and events; an existing session stays unchanged.';
comment on function delete_cronjob(text,text,text) is 'Deletes a cronjob with its runs, unless one of them goes on.';
comment on function delete_delivery_job() is 'Trigger function: a pending delivery was deleted; deletes its job.';
comment on function delete_old_audit_entries() is 'Deletes a batch of audit entries that exceed audit_retention: those that are too old, or the oldest of the callers with the most entries. Entries of the last day are kept if there are too many. Returns true if there may be more. SECURITY DEFINER, so that the service needs no privilege to delete.';
comment on function end_eval_case() is 'Trigger function: a case of an evaluation run has ended; starts the next one.';
comment on function end_job(text,text,text,text,uuid) is 'Ends a claimed job, or puts it back if it was added again since; false if another process has claimed it.';
comment on function end_run(invocations) is 'Queues the next try of a cronjob''s run, or ends the run.';
comment on function end_turn(text,text,text,text) is 'Gives a lane that had a turn its next one, or deletes it if it is empty.';
comment on function enqueue_invocation(text,text,text,text,uuid,integer,text,text,text,jsonb,integer,bigint) is 'Adds an invocation to its session''s queue.';
comment on function eval_case_job(uuid,integer,integer) is 'Returns the id of the job of a case in an evaluation run.';
comment on function eval_job_user(text) is 'Returns the user of the jobs of a requester''s evaluation runs.';
comment on function eval_run_counts(text,uuid) is 'Counts the cases of an evaluation run by status, and those that are done by their result.';
comment on function eval_run_scores(text,uuid) is 'Returns the mean score of each metric over the cases of an evaluation run; null for a metric without scores.';
comment on function event_sizes(jsonb) is 'Returns the size of each event in an array as text, in bytes.';
comment on function finish_invocation(text,text,text,text,uuid,uuid,text,text,text,text,integer,integer,integer,integer,jsonb,jsonb,jsonb,integer,jsonb,jsonb,boolean,jsonb,jsonb,text,boolean,jsonb) is 'Ends an invocation: stores its last events, status and answer, and releases the session.';
comment on function fire_cronjobs(jsonb) is 'Queues the runs of due cronjobs and stores their next due times.';
comment on function follow_deleted_invocation() is 'Trigger function: an invocation was deleted.';
comment on function follow_invocation() is 'Trigger function: an invocation has ended or paused.';
comment on function forget_runs(integer,integer,integer) is 'Forgets old runs of cronjobs, in a batch.';
comment on function has_no_rules(jsonb,text[],text[]) is 'True if the task''s rules name nobody who has to answer.';
comment on function insert_delivery_of_invocation(invocations) is 'Inserts the webhook delivery of an invocation that has ended or paused.';
comment on function insert_delivery_of_skipped_run() is 'Trigger function: a cronjob''s run was left out.';
comment on function insert_delivery_of_task() is 'Trigger function: a task was created, sent a reminder, was escalated at its deadline, or was decided.';
comment on function insert_webhook_delivery(text,text,text,text,jsonb) is 'Inserts a webhook delivery into the outbox and notifies the senders at commit; does nothing if the webhook was deleted.';
comment on function is_forgotten_key(text,text,text) is 'True if the idempotency key belongs to an invocation that was deleted with its session.';
comment on function is_sampled(text,text,double precision) is 'True if an id is in a rule''s sample; deterministic.';
comment on function job_apps(text,text[]) is 'Returns the applications of p_apps, or those with lanes if it is null.';
comment on function job_block(text,text,boolean,jsonb,text[]) is 'Returns the full limit that blocks a lane; null if none does.';
comment on function job_keys(text,text) is 'Returns the limits that a lane counts for.';
comment on function job_pause(text,text[]) is 'Milliseconds until a lane is due or a lease expires; not positive if lanes are due or blocked; null if nothing waits.';
comment on function job_places(jsonb,text) is 'Returns the maximum number of running jobs of a limit.';
comment on function keep_answer(text,text,text,text,uuid,jsonb,bigint) is 'Stores the response of a transactional tool within the tool''s own transaction.';
comment on function keep_calls(text,text,text,text,uuid,jsonb,bigint) is 'Writes tool calls whose event is already stored into the ledger, under the session''s lease.';
comment on function keep_invocation_key() is 'Trigger function: stores the idempotency key of an invocation deleted with its session.';
comment on function keep_signal(text,text,text,text,jsonb,text[],integer) is 'Stores a signal until an invocation waits for it.';
comment on function keep_tape(text,text,text,text,integer,jsonb,jsonb) is 'Stores the inputs of a replay that are not in the events, and prompts that are not stored yet.';
comment on function latest_run_time(text,text,text) is 'Returns when the newest run of a cronjob was due.';
comment on function lease_job(text,text,text,text,integer,integer) is 'Gives a job, whose row is locked, a new lease; returns the claimed job.';
comment on function leave_out_deleted_run(invocations) is 'Records a cronjob''s open run whose session was deleted.';
comment on function limited_size(bigint,jsonb) is 'Returns a session''s size; fails if it exceeds the limits.';
comment on function limited_state(jsonb,jsonb) is 'Returns the state; fails if it exceeds the limits.';
comment on function list_audit(json) is 'Returns a page of the audit log, the newest entry first.';
comment on function lock_budgets(text,text) is 'Serialises charges to a user''s budgets until the transaction ends.';
comment on function lock_open_runs(text,text,text) is 'Locks the open runs of a cronjob; false if another transaction has locked one.';
comment on function may_answer(text,jsonb,text[],text[],text,text[]) is 'True if a person may answer a task.';
comment on function may_begin_run(text,text,text,integer) is 'True if a run of a cronjob may begin; locks the user''s runs.';
comment on function memory_pieces(text,boolean) is 'Splits text in scripts without blanks into pieces of one and two characters.';
comment on function memory_words(text,boolean) is 'Returns the words by which full-text search finds a memory.';
comment on function memory_words_asked(text) is 'Converts a text to a full-text query for any of its words.';
comment on function merge_app_state(text,text,jsonb,boolean,jsonb) is 'Merges a delta into the state shared by all users of an application.';
comment on function move_job(text,text,text,text,text,timestamp with time zone) is 'Adds a job, or postpones it until p_due; a process that runs it loses it.';
comment on function new_eval_session() is 'Returns a new id for the session of a case.';
comment on function next_due(timestamp with time zone,timestamp with time zone,jsonb,integer) is 'Returns when an open task is due next.';
comment on function next_eval_case_version(text,text,text) is 'Returns the next version number of an evaluation case, unique across all users'' sets.';
comment on function next_time(timestamp with time zone,timestamp with time zone) is 'Returns the time to store for a change, always later than the previous change.';
comment on function open_tasks(text,text,text,text,jsonb,integer) is 'Inserts tasks for the calls that a pausing invocation leaves open.';
comment on function over_budget(text,text,bigint,numeric) is 'Returns, as JSON, a budget of a user that is exhausted or has less left than a model call may use; null if there is none.';
comment on function push_payload(jsonb,jsonb,timestamp with time zone) is 'Payload for an A2A push client: a status update; in version 0.3 the task.';
comment on function put_back_job(text,text,text,text,uuid,bigint,boolean,boolean) is 'Puts a claimed job back for another attempt after a pause; p_anew: its attempts and crashes are counted anew. False if another process has claimed it.';
comment on function queue_in_session(text,text,text,text) is 'Gives a cronjob''s run its place in the queue of its session, by the time when it was queued.';
comment on function queue_manual_run(text,text,text,integer) is 'Queues a run of a cronjob that is due now; returns the run, or why there is none.';
comment on function queue_run(text,text,text,text,timestamp with time zone,boolean,integer,timestamp with time zone,timestamp with time zone) is 'Queues a try of a cronjob''s run; false if the run exists.';
comment on function record_calls(text,text,text,text,jsonb) is 'Writes started tool calls and their outcomes into the ledger (table tool_calls).';
comment on function refuse_audit_change() is 'Trigger function: audit entries are immutable, and only delete_old_audit_entries deletes them.';
comment on function refuse_on_hold() is 'Trigger function: refuses deletion of data on legal hold. Argument: the session''s column, or empty.';
comment on function refuse_while_erased() is 'Trigger function: refuses new data of a user being erased.';
comment on function renew_claim(text,text,text,text,uuid,integer) is 'Renews the lease of a claim that succeeded although its response was lost; true if the session has this lease token.';
comment on function renew_jobs(text,jsonb,integer) is 'Renews the leases of claimed jobs, as claim_jobs returned them; returns the tokens of those that no other process has claimed.';
comment on function renew_reservation(text,text,uuid,integer) is 'Extends the reservation of a running model call.';
comment on function requeue_runs(text,text,text) is 'Gives the runs of a cronjob that have not begun its present settings.';
comment on function reserve_budget(text,text,uuid,text,bigint,bigint,integer) is 'Reserves the maximum use of a model call in its user''s budgets.';
comment on function row_version(timestamp with time zone) is 'Returns the version of a row: the time of its last change in microseconds, hexadecimal.';
comment on function run_error(text,text) is 'Returns why a cronjob''s run failed.';
comment on function run_output(text,text) is 'Returns the answer of a cronjob''s run.';
comment on function run_request(text,jsonb,integer) is 'Returns the stored request of a cronjob''s run.';
comment on function service_state() is 'Returns the connected replicas of the service, and the numbers of waiting and running entries of each queue.';
comment on function session_etag(timestamp with time zone,timestamp with time zone,timestamp with time zone) is 'Returns the ETag of a session: the versions of its row, of the application''s state and of the user''s state.';
comment on function skip_runs(text,text,text,text) is 'Leaves out the scheduled runs of a cronjob that have not begun.';
comment on function spend_budget(text,text,jsonb,text) is 'Charges model usage that is not part of stored events; returns a budget that is exhausted afterwards.';
comment on function stamp_run_end() is 'Trigger function: a try of a cronjob''s run ends or pauses; stores when.';
comment on function start_eval_cases() is 'Trigger function: cases of evaluation runs were inserted; starts the first ones.';
comment on function state_size(jsonb,jsonb) is 'Returns the size of a session''s states that counts for its user''s storage.';
comment on function store_events(text,text,text,jsonb,integer[],jsonb,boolean,jsonb,integer,timestamp with time zone,boolean) is 'Merges shared state and inserts events, after the caller has locked and advanced the session''s row.';
comment on function sum_up_use_of_app() is 'Trigger function for an application''s first budget: sets the application''s totals to its users'' usage.';
comment on function total_size(integer[]) is 'Returns the sum of sizes.';
comment on function unqueue_runs(text,text,text) is 'Deletes the runs of a cronjob that have not begun, with their sessions.';
comment on function usage_report(text,text,timestamp with time zone,timestamp with time zone,text[],text[],integer) is 'Returns a page of the usage by invocations that were requested in a period, grouped by user, model, version, day or hour.';
comment on function user_data_lock(text,text) is 'Advisory lock of a user''s data: shared by statements that add or delete data, exclusive for starting an erasure or setting a hold.';
comment on function wake_runs(text) is 'Notifies the queues if a run of the user waits.';
comment on function wake_task(text,text,text,text) is 'Handles a due task. Queues the task''s invocation if no other call of the invocation is open.';
comment on function webhook_time(timestamp with time zone) is 'Formats a time for deliveries.';
comment on schema inspect is 'Views for people and reports; inspect.version states their compatibility.';
comment on schema inspect_outline is 'The views of inspect without content of conversations, names of artifacts and cronjobs, webhook addresses and error messages.';
comment on table agent_prompts is 'Prompts of agents: everything that models receive besides the conversation, each stored once per application. Replays report what changed since. Deleted after 90 days without use.';
comment on table agent_runtime_migrations is 'The migrations that this schema has; the service compares them at its start.';
comment on table agent_versions is 'Deployed versions of applications, each once; the newest 1,000 per application are kept.';
comment on table app_states is 'State keys with the prefix app:, shared by all users of an application.';
comment on table artifact_versions is 'Versions of artifacts with their content.';
comment on table artifacts is 'One row per artifact name and scope; version numbers are assigned under its row lock.';
comment on table audit_log is 'Access decisions, without content. The service may insert and read but not change them.';
comment on table budget_alerts is 'The level of a budget last reported to its webhook.';
comment on table budget_reservations is 'Maximum use by running model calls, until it is counted.';
comment on table budget_totals is 'Total use by all users of an application since a day, counted along with budget_uses; empty in a distributed database.';
comment on table budget_uses is 'Use by user and day, counted by the statements that start invocations and store model answers.';
comment on table budgets is 'Limits on use per UTC day or month. Read with each claim, so a change takes effect at once.';
comment on table cronjobs is 'Prompts that run on a schedule.';
comment on table eval_case_versions is 'Versions of evaluation cases. A run refers to versions, so they outlive changes and deletion of the case.';
comment on table eval_cases is 'Evaluation cases: conversations to evaluate an application with.';
comment on table eval_run_cases is 'Cases of evaluation runs, one row per trial.';
comment on table eval_runs is 'Runs of evaluation sets.';
comment on table eval_session_scores is 'Scores of sessions outside of runs, as of one of their events.';
comment on table eval_sets is 'Named sets of evaluation cases of an application.';
comment on table eval_verdicts is 'People''s verdicts on turns, in addition to the judges''.';
comment on table event_deltas is 'Streamed text of incomplete events, in chunks, for followers of a session. Replaced by the complete event.';
comment on table events is 'Events of conversations. Order by sequence, never by time.';
comment on table idempotency_keys is 'Stored answers to requests with an Idempotency-Key, for a day; those of invocations are in invocations.';
comment on table invocation_tapes is 'Replay inputs that are not in the events, one row per run of an invocation.';
comment on table invocations is 'Invocations: one prompt up to its final answer.';
comment on table job_lanes is 'Lanes that have waiting jobs: a lane is the queue of a user''s jobs of one kind that take turns with those of other lanes.';
comment on table jobs is 'Jobs that wait or run: work that the processes share. An ended job has no row.';
comment on table legal_holds is 'Legal holds: data that nobody may delete, of a user or of one session. Enforced by triggers.';
comment on table memories is 'Memories of users: events of sessions, searchable by words.';
comment on table model_prices is 'Model prices, in the operator''s currency.';
comment on table rate_limits is 'Requests per caller and class of operations in the current minute, and failed logins. May be truncated at any time.';
comment on table score_rules is 'Rules for scoring users'' sessions.';
comment on table session_verdicts is 'People''s verdicts on sessions and events.';
comment on table sessions is 'One conversation of one user with one application.';
comment on table signals is 'Signals sent before any invocation waited for them.';
comment on table skipped_runs is 'Runs of cronjobs that were left out before they began. All other runs are invocations.';
comment on table spans is 'Traces of invocations for the development UI; deleted after some time.';
comment on table tasks is 'Calls of paused invocations that wait for a person, a time or a signal, with their outcome.';
comment on table tool_calls is 'Ledger of tool calls: one row per call that has started, or may have. Calls inside an agent used as a tool belong to the outer call''s row.';
comment on table user_credentials is 'Users'' grants to external resources, and pending consents; encrypted with RUNTIME_SECRET_KEY.';
comment on table user_erasures is 'Users being erased. The row is deleted with their last data; until then triggers refuse new data.';
comment on table user_states is 'State keys with the prefix user:, shared by all sessions of a user in an application.';
comment on table user_storage is 'Bytes stored by each user, in shards; the sum counts.';
comment on table webhook_deliveries is 'Outbox of webhook deliveries. Triggers insert rows in the statement that ends an invocation or a run.';
comment on table webhooks is 'Webhook addresses registered by users.';
comment on view cronjob_runs is 'Runs of cronjobs: invocations, and runs that were left out.';
comment on view inspect.artifacts is 'Artifacts with the number and size of their versions, without deleted ones.';
comment on view inspect.audit is 'Access decisions.';
comment on view inspect.budget_alerts is 'The level of a budget last reported to its webhook.';
comment on view inspect.budget_reservations is 'Maximum use by running model calls, until it is counted.';
comment on view inspect.budget_uses is 'Use by user and day, including deleted sessions and failed invocations.';
comment on view inspect.budgets is 'Limits on use per day or month; see inspect.budget_uses for the use.';
comment on view inspect.conversation is 'Events of sessions as readable lines. Filter by app_name, user_id and session_id; order by sequence.';
comment on view inspect.cronjob_runs is 'Runs of cronjobs, with lateness and duration.';
comment on view inspect.cronjobs is 'Cronjobs with next and last due times, success rate and lateness of the stored runs.';
comment on view inspect.errors is 'Invocations that failed or were interrupted, and why; order by end_time.';
comment on view inspect.eval_cases is 'Cases of evaluation runs, one row per trial. Filter by app_name and run_id.';
comment on view inspect.eval_judges is 'Agreement of judges with people on the same turns, by judge and prompt version.';
comment on view inspect.eval_runs is 'Evaluation runs with the counts of their cases; order by create_time.';
comment on view inspect.eval_trends is 'Results of a set''s runs by metric. Filter by app_name and eval_set_id; order by create_time.';
comment on view inspect.invocation_costs is 'Tokens and cost of invocations by model, from their events at current prices. Filter by session, because all its events are read.';
comment on view inspect.invocations is 'Invocations with status and errors; order by create_time.';
comment on view inspect.open_invocations is 'Running and queued invocations, to find slow or stuck ones.';
comment on view inspect.queue is 'Queued invocations, and the running one that each waits for.';
comment on view inspect.session_scores is 'Scores of sessions outside of runs, one row per metric; order by create_time.';
comment on view inspect.session_verdicts is 'People''s verdicts on sessions and events; order by create_time.';
comment on view inspect.sessions is 'Sessions with their number of events and running invocation.';
comment on view inspect.storage is 'Stored data by user and application.';
comment on view inspect.tool_calls is 'Tool calls with duration and outcome, without arguments and answers. Filter by session, because all its events are read.';
comment on view inspect.usage is 'Invocations, calls and tokens by user and day, without deleted sessions.';
comment on view inspect.user_storage is 'Bytes stored by users, as counted at each write.';
comment on view inspect.version is 'Version of these views: within a version columns are not dropped, renamed or retyped, but may be added.';
comment on view inspect.webhook_deliveries is 'Webhook deliveries, with the receivers'' last answers.';
comment on view inspect_outline.artifacts is 'inspect.artifacts without name.';
comment on view inspect_outline.audit is 'inspect.audit without resource.';
comment on view inspect_outline.budget_alerts is 'inspect.budget_alerts.';
comment on view inspect_outline.budget_reservations is 'inspect.budget_reservations.';
comment on view inspect_outline.budget_uses is 'inspect.budget_uses.';
comment on view inspect_outline.budgets is 'inspect.budgets.';
comment on view inspect_outline.conversation is 'inspect.conversation without said, error.';
comment on view inspect_outline.cronjob_runs is 'inspect.cronjob_runs without name, output, error_message.';
comment on view inspect_outline.cronjobs is 'inspect.cronjobs without name.';
comment on view inspect_outline.errors is 'inspect.errors without error_message.';
comment on view inspect_outline.eval_cases is 'inspect.eval_cases without error.';
comment on view inspect_outline.eval_judges is 'inspect.eval_judges.';
comment on view inspect_outline.eval_runs is 'inspect.eval_runs.';
comment on view inspect_outline.eval_trends is 'inspect.eval_trends.';
comment on view inspect_outline.invocation_costs is 'inspect.invocation_costs.';
comment on view inspect_outline.invocations is 'inspect.invocations without error_message.';
comment on view inspect_outline.open_invocations is 'inspect.open_invocations.';
comment on view inspect_outline.queue is 'inspect.queue.';
comment on view inspect_outline.session_scores is 'inspect.session_scores without explanation.';
comment on view inspect_outline.session_verdicts is 'inspect.session_verdicts without comment.';
comment on view inspect_outline.sessions is 'inspect.sessions without state.';
comment on view inspect_outline.storage is 'inspect.storage.';
comment on view inspect_outline.tool_calls is 'inspect.tool_calls.';
comment on view inspect_outline.usage is 'inspect.usage.';
comment on view inspect_outline.user_storage is 'inspect.user_storage.';
comment on view inspect_outline.version is 'inspect.version.';
comment on view inspect_outline.webhook_deliveries is 'inspect.webhook_deliveries without url, last_error.';
