-- A run of a cronjob is a queued invocation, which any process takes up like others. Its try ends like any invocation,
-- and the trigger end_run then counts the end for the cronjob. One that is left out before it begins is deleted, and
-- recorded in skipped_runs, because an invocation needs a session.
--
-- Runs of a cronjob go one after another: a run is not begun while one that was queued earlier is open. This holds
-- without a lock between processes, because runs are queued under the lock of the cronjob's row, so that none appears
-- before one that another process has seen first, and because the end of a run is final.
--
-- Locks: a begun invocation, its cronjob, then invocations of the cronjob that have not begun, then their sessions.
-- user_storage comes before the cronjob, so these sessions and invocations count no bytes.

-- The request of a run as the queue reads it (stored-request.ts), from the settings of its cronjob.
create function run_request(p_prompt text, p_harness jsonb, p_timeout_seconds integer) returns jsonb
language sql immutable as $$
  select jsonb_build_object(
    'version', 1, 'streaming', false, 'isRun', true, 'answer', jsonb_build_object('kind', 'output'),
    'content', jsonb_build_object('role', 'user', 'parts', jsonb_build_array(jsonb_build_object('text', p_prompt))),
    'overrides', case when p_timeout_seconds is null then '{}' else jsonb_build_object('timeAtMostMs', 1000 * p_timeout_seconds) end,
    'harness', p_harness)
$$;
comment on function run_request is 'Returns the stored request of a cronjob''s run.';

-- queue_run: queues a try of a run, in a session of its own or the fixed one of its cronjob. False if the cronjob has a
-- run with that due time, or if the user is being erased.
-- p_since: when the run was queued first; it is the place of the run among those of its cronjob.
create function queue_run(
  p_app text, p_user text, p_cronjob text, p_run text, p_due timestamptz, p_is_manual boolean, p_try integer,
  p_since timestamptz, p_not_before timestamptz)
returns boolean language plpgsql as $$
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
end $$;
comment on function queue_run is 'Queues a try of a cronjob''s run; false if the run exists.';

-- fire_cronjobs: queues the runs of due cronjobs, and stores their next due times by compare-and-set on the due time and
-- the revision that the scheduler read. A cronjob whose row is locked stays due.
-- p_firings: [{"app", "owner", "id", "due", "revision", "next", "reason", "runs": [{"id", "due", "skipped"}]}]. next is
-- null if the cronjob never fires again; reason says why. skipped: why the run is left out.
-- Returns the ids of the cronjobs that fired.
create function fire_cronjobs(p_firings jsonb) returns text[] language plpgsql as $$
declare
  f record;
  r record;
  v_now timestamptz;
  v_fired text[] := '{}';
begin
  for f in
    select * from jsonb_to_recordset(p_firings) as each(
      app text, owner text, id text, due timestamptz, revision integer, next timestamptz, reason text, runs jsonb)
  loop
    perform from cronjobs c
    where c.app_name = f.app and c.user_id = f.owner and c.id = f.id and c.enabled and c.revision = f.revision
      and date_trunc('milliseconds', c.next_run_time) = f.due
    for no key update skip locked;
    continue when not found;
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
end $$;
comment on function fire_cronjobs is 'Queues the runs of due cronjobs and stores their next due times.';

-- count_open_runs: the runs of a cronjob that have not ended.
create function count_open_runs(p_app text, p_user text, p_cronjob text) returns integer language sql stable as $$
  select count(*)::integer from invocations i
  where i.app_name = p_app and i.user_id = p_user and i.cronjob_id = p_cronjob and i.first_end_time is null
    and i.status in ('queued', 'running')
$$;
comment on function count_open_runs is 'Returns the number of runs of a cronjob that have not ended.';

-- queue_manual_run: queues a run that is due now. Returns 'queued', or why not: 'absent' (no such cronjob), 'disabled',
-- 'full' (p_most runs of the cronjob are open), 'taken' (a run was requested in this very millisecond).
create function queue_manual_run(p_app text, p_user text, p_cronjob text, p_run text, p_most integer) returns text
language plpgsql as $$
declare
  v_enabled boolean;
  v_due timestamptz;
begin
  select c.enabled into v_enabled from cronjobs c
  where c.app_name = p_app and c.user_id = p_user and c.id = p_cronjob for no key update;
  if not found then return 'absent'; end if;
  if not v_enabled then return 'disabled'; end if;
  if count_open_runs(p_app, p_user, p_cronjob) >= p_most then return 'full'; end if;
  v_due := date_trunc('milliseconds', clock_timestamp());
  if queue_run(p_app, p_user, p_cronjob, p_run, v_due, true, 1, clock_timestamp(), v_due) then return 'queued'; end if;
  return 'taken';
end $$;
comment on function queue_manual_run is 'Queues a run of a cronjob that is due now; returns queued, or why not.';

-- begun_runs: the runs of a user that have begun and not ended, of all cronjobs.
create function begun_runs(p_user text) returns integer language sql stable as $$
  select count(*)::integer from invocations i
  where i.user_id = p_user and i.cronjob_id is not null and i.first_end_time is null
    and i.status in ('queued', 'running') and i.not_before is null
$$;
comment on function begun_runs is 'Returns the number of a user''s runs of cronjobs that go on.';

-- unqueue_runs: deletes the tries of a cronjob that have not begun, and the sessions that were made for them. A try that
-- another process begins meanwhile stays.
create function unqueue_runs(
  p_app text, p_user text, p_cronjob text,
  out run text, out due timestamptz, out is_on_request boolean, out number integer, out since timestamptz,
  out earliest timestamptz)
returns setof record language plpgsql as $$
declare
  r record;
begin
  for r in
    delete from invocations i
    where i.app_name = p_app and i.user_id = p_user and i.cronjob_id = p_cronjob and i.status = 'queued'
      and i.not_before is not null
    returning i.*
  loop
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
end $$;
comment on function unqueue_runs is 'Deletes the runs of a cronjob that have not begun, with their sessions.';

-- requeue_runs: gives the runs that have not begun the settings that their cronjob has now.
create function requeue_runs(p_app text, p_user text, p_cronjob text) returns void language plpgsql as $$
begin
  perform queue_run(p_app, p_user, p_cronjob, r.run, r.due, r.is_on_request, r.number, r.since, r.earliest)
  from unqueue_runs(p_app, p_user, p_cronjob) r;
end $$;
comment on function requeue_runs is 'Gives the runs of a cronjob that have not begun its present settings.';

-- skip_runs: leaves out the runs that the schedule has fired and that have not begun. Manual runs stay.
create function skip_runs(p_app text, p_user text, p_cronjob text, p_reason text) returns void language plpgsql as $$
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
end $$;
comment on function skip_runs is 'Leaves out the scheduled runs of a cronjob that have not begun.';

-- delete_cronjob: deletes a cronjob, whose row the caller has locked, with the runs that have not begun. Invocations of
-- other runs stay with their sessions. False, and deletes nothing, while a run that has begun is open.
create function delete_cronjob(p_app text, p_user text, p_cronjob text) returns boolean language plpgsql as $$
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
end $$;
comment on function delete_cronjob is 'Deletes a cronjob with its runs, unless one of them goes on.';

-- What the run of an invocation says of its end: a paused one has failed, because nobody waits for the person.
create function run_error(p_status text, p_message text) returns text language sql immutable as $$
  select case when p_status = 'paused' then 'The invocation waits for a person, in its session.' else p_message end
$$;
comment on function run_error is 'Returns why a cronjob''s run failed.';
create function run_output(p_status text, p_answer text) returns text language sql immutable as $$
  select case when p_status in ('succeeded', 'paused') then p_answer end
$$;
comment on function run_output is 'Returns the answer of a cronjob''s run.';

-- end_run: a try of a run has ended or paused for the first time. If it failed for a transient reason, queues the next
-- try after a back-off; otherwise the run has ended. Then counts the failures in a row, and disables the cronjob after
-- too many. An invocation that was paused may end once more, which is not counted.
create function end_run() returns trigger language plpgsql as $$
declare
  c record;
  v_status constant text := case new.status when 'succeeded' then 'success' when 'cancelled' then 'cancelled' else 'failed' end;
  v_code constant text := case when new.status = 'paused' then 'paused' when new.start_time is not null then new.error_code end;
  v_disabled boolean;
  v_earliest timestamptz;
begin
  new.first_end_time := coalesce(new.end_time, statement_timestamp());
  new.not_before := null;
  -- A cancelled run counts for nothing. Its cronjob is not locked, because it may have been cancelled before it began:
  -- who changes a cronjob locks these runs after it.
  if v_status <> 'cancelled' then
    perform from cronjobs j where j.app_name = new.app_name and j.user_id = new.user_id and j.id = new.cronjob_id
    for no key update;
  end if;
  select * into c from cronjobs j where j.app_name = new.app_name and j.user_id = new.user_id and j.id = new.cronjob_id;
  if not found then return new; end if;
  if v_code in ('model_rate_limited', 'model_unavailable', 'model_timeout', 'model_stream_cut')
    and new.try < c.max_attempts and new.stop_requested_as is null then
    -- The jitter keeps runs that failed together from coming back together.
    v_earliest := clock_timestamp() + least(c.retry_pause_seconds * 2 ^ (new.try - 1), c.max_retry_pause_seconds)
      * (0.5 + random() / 2) * interval '1 second';
    if queue_run(new.app_name, new.user_id, new.cronjob_id, new.run_id, new.due_time, new.is_manual, new.try + 1,
                 new.create_time, v_earliest) then
      return new;
    end if;
  end if;
  if v_status = 'failed' then
    update cronjobs j set
      failure_count = j.failure_count + 1,
      enabled = j.enabled and not too_many.yes,
      next_run_time = case when too_many.yes then null else j.next_run_time end,
      disabled_reason = case when too_many.yes
        then 'It failed ' || j.failure_count + 1 || ' times in a row; the last time: ' || run_error(new.status, new.error_message)
        else j.disabled_reason end
    from (select c.enabled and c.max_failures > 0 and c.failure_count + 1 >= c.max_failures as yes) too_many
    where j.app_name = new.app_name and j.user_id = new.user_id and j.id = new.cronjob_id
    returning too_many.yes into v_disabled;
    if v_disabled then
      perform skip_runs(new.app_name, new.user_id, new.cronjob_id, 'The cronjob was disabled.');
    end if;
  elsif v_status = 'success' and c.failure_count > 0 then
    update cronjobs j set failure_count = 0
    where j.app_name = new.app_name and j.user_id = new.user_id and j.id = new.cronjob_id;
  end if;
  -- The next run of the cronjob, or another run of the user that waited for a place, can begin.
  if exists (select from invocations i where i.user_id = new.user_id and i.cronjob_id is not null
             and i.first_end_time is null and i.status = 'queued') then
    perform pg_notify('agent_runtime', '["queue"]');
  end if;
  return new;
end $$;
comment on function end_run is 'Trigger function: a try of a cronjob''s run has ended or paused.';

-- forget_runs: forgets at most p_limit runs that ended more than p_days ago, or that exceed the newest p_count of their
-- cronjob. Their invocations stay with their sessions.
create function forget_runs(p_days integer, p_count integer, p_limit integer) returns void language plpgsql as $$
declare
  r record;
begin
  for r in
    select * from (
      select app_name, user_id, cronjob_id, due_time, session_id, end_time,
             row_number() over (partition by app_name, user_id, cronjob_id order by due_time desc) as place
      from cronjob_runs) counted
    where (end_time < clock_timestamp() - p_days * interval '1 day' or (place > p_count and end_time is not null))
      and not exists (select from legal_holds h where h.app_name = counted.app_name and h.user_id = counted.user_id
                      and h.session_id in ('', counted.session_id))
    limit p_limit
  loop
    update invocations i set cronjob_id = null
    where i.app_name = r.app_name and i.user_id = r.user_id and i.cronjob_id = r.cronjob_id and i.due_time = r.due_time;
    delete from skipped_runs s
    where s.app_name = r.app_name and s.user_id = r.user_id and s.cronjob_id = r.cronjob_id and s.due_time = r.due_time;
  end loop;
end $$;
comment on function forget_runs is 'Forgets old runs of cronjobs, in a batch.';

-- latest_run_time: when the newest run of a cronjob was due; found in two indexes, not in the view of runs.
create function latest_run_time(p_app text, p_user text, p_cronjob text) returns timestamptz language sql stable as $$
  select greatest(
    (select max(i.due_time) from invocations i
     where i.app_name = p_app and i.user_id = p_user and i.cronjob_id = p_cronjob),
    (select max(s.due_time) from skipped_runs s
     where s.app_name = p_app and s.user_id = p_user and s.cronjob_id = p_cronjob))
$$;
comment on function latest_run_time is 'Returns when the newest run of a cronjob was due.';
