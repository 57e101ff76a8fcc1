-- A run of a cronjob is a queued invocation, which any process takes up like others. Its try ends like any invocation,
-- and end_run then counts the end for the cronjob. One that is left out before it begins is deleted, and
-- recorded in skipped_runs, because an invocation needs a session.
--
-- Runs of a cronjob go one after another, in the order in which they were queued; one that waits for its next try holds
-- up no other. A look at the queue chooses the next run, and may_begin_run checks it under a lock, because another
-- process may have chosen another one.
--
-- Locks: a begun invocation, its cronjob, then the sessions of runs that have not begun, then their invocations.
-- user_storage comes before the cronjob, so these sessions and invocations count no bytes.

-- The request of a run as the queue reads it (request.ts), from the settings of its cronjob.
create or replace function run_request(p_prompt text, p_harness jsonb, p_timeout_seconds integer) returns jsonb
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
create or replace function queue_run(
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
    (app_name, user_id, session_id, id, status, lease_token, lease_expire_time, request, first_text, create_time, not_before,
     cronjob_id, run_id, due_time, is_manual, try)
  values
    (p_app, p_user, v_session, 'e-' || gen_random_uuid(), 'queued', gen_random_uuid(), clock_timestamp(), c.request,
     left(jsonb_path_query_first(c.request, '$.content.parts[*].text') #>> '{}', 200), p_since, p_not_before, p_cronjob, p_run, p_due, p_is_manual, p_try);
  perform pg_notify('agent_runtime', '["queue"]');
  return true;
end $$;
comment on function queue_run is 'Queues a try of a cronjob''s run; false if the run exists.';

-- lock_open_runs: locks the open runs of a cronjob. Never waits, because the end of a run locks the cronjob, which the
-- caller has locked, after the run. False if one is locked already.
create or replace function lock_open_runs(p_app text, p_user text, p_cronjob text) returns boolean language plpgsql as $$
declare
  v_locked integer;
begin
  select count(*) into v_locked from (
    select from invocations i
    where i.app_name = p_app and i.user_id = p_user and i.cronjob_id = p_cronjob and i.first_end_time is null
      and i.status in ('queued', 'running')
    for no key update skip locked) locked;
  return v_locked >= count_open_runs(p_app, p_user, p_cronjob);
end $$;
comment on function lock_open_runs is 'Locks the open runs of a cronjob; false if another transaction has locked one.';

-- count_open_runs: the runs of a cronjob that have not ended.
create or replace function count_open_runs(p_app text, p_user text, p_cronjob text) returns integer language sql stable as $$
  select count(*)::integer from invocations i
  where i.app_name = p_app and i.user_id = p_user and i.cronjob_id = p_cronjob and i.first_end_time is null
    and i.status in ('queued', 'running')
$$;
comment on function count_open_runs is 'Returns the number of runs of a cronjob that have not ended.';

-- fire_cronjobs: queues the runs of due cronjobs, and stores their next due times by compare-and-set on the due time and
-- the revision that the scheduler read. A cronjob whose row is locked stays due, and one that replaces its open runs,
-- which the caller stops in the same transaction, also if one of these is locked. `overlap` is applied to the runs that
-- are open now, because a manual run may have been queued since the scheduler looked. Runs that are planned together do
-- not skip one another. Runs that are left out are inserted last, by host: their deliveries lock lanes of jobs, and a
-- deletion of a session locks its lanes behind the session.
-- p_firings: [{"app", "owner", "id", "due", "revision", "next", "reason", "runs": [{"id", "due", "skipped"}]}]. next is
-- null if the cronjob never fires again; reason says why. skipped: why the run is left out.
-- Returns the ids of the cronjobs that fired.
create or replace function fire_cronjobs(p_firings jsonb) returns text[] language plpgsql as $$
declare
  f record;
  r record;
  v_overlap text;
  v_now timestamptz;
  v_open integer;
  v_queued integer;
  v_skipped skipped_runs;
  v_all_skipped skipped_runs[] := '{}';
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
    v_open := count_open_runs(f.app, f.owner, f.id);
    v_queued := 0;
    for r in select * from jsonb_to_recordset(f.runs) as each(id text, due timestamptz, skipped text) loop
      v_skipped.reason := case
        when r.skipped is not null then r.skipped
        when v_overlap = 'skip' and v_open > 0 then 'The previous run was still going.'
        when v_queued + case v_overlap when 'replace' then 0 else v_open end >= 100 then '100 runs wait already.'
      end;
      if v_skipped.reason is null then
        perform queue_run(f.app, f.owner, f.id, r.id, r.due, false, 1, v_now, r.due);
        v_queued := v_queued + 1;
      else
        v_skipped.app_name := f.app; v_skipped.user_id := f.owner; v_skipped.cronjob_id := f.id;
        v_skipped.id := r.id; v_skipped.due_time := r.due; v_skipped.tries := 0;
        v_skipped.create_time := v_now; v_skipped.end_time := v_now;
        v_all_skipped := v_all_skipped || v_skipped;
      end if;
    end loop;
    update cronjobs c set
      next_run_time = f.next, enabled = f.next is not null, disabled_reason = f.reason, run_count = c.run_count + v_queued
    where c.app_name = f.app and c.user_id = f.owner and c.id = f.id;
    v_fired := v_fired || f.id;
  end loop;
  insert into skipped_runs
  select s.* from unnest(v_all_skipped) s
  join cronjobs c on c.app_name = s.app_name and c.user_id = s.user_id and c.id = s.cronjob_id
  order by s.app_name, s.user_id, (
    select min(w.host) from webhooks w
    where w.app_name = c.app_name and w.user_id = c.user_id and w.url = c.webhook_url and w.push is null)
  on conflict do nothing;
  return v_fired;
end $$;
comment on function fire_cronjobs is 'Queues the runs of due cronjobs and stores their next due times.';

-- queue_manual_run: queues a run that is due now.
-- p_user: the owner; null: the cronjob may be anybody's. run: the row of the view cronjob_runs. refusal: why there is none:
-- 'absent' (no such cronjob), 'disabled', 'full' (p_most runs of the cronjob are open), 'taken' (a run was requested in
-- this very moment).
create or replace function queue_manual_run(
  p_user text, p_cronjob text, p_run text, p_most integer, out refusal text, out run jsonb)
language plpgsql as $$
declare
  c record;
  v_due timestamptz;
begin
  select j.app_name, j.user_id, j.enabled into c from cronjobs j
  where j.id = p_cronjob and (p_user is null or j.user_id = p_user) for no key update;
  refusal := case when not found then 'absent' when not c.enabled then 'disabled'
                  when count_open_runs(c.app_name, c.user_id, p_cronjob) >= p_most then 'full' end;
  if refusal is not null then return; end if;
  -- Never a whole millisecond, as the times of schedules are: a due time is one run.
  v_due := clock_timestamp();
  v_due := v_due + (date_trunc('milliseconds', v_due) = v_due)::int * interval '1 microsecond';
  if not queue_run(c.app_name, c.user_id, p_cronjob, p_run, v_due, true, 1, clock_timestamp(), v_due) then
    refusal := 'taken';
    return;
  end if;
  select to_jsonb(r) into run from cronjob_runs r
  where r.app_name = c.app_name and r.user_id = c.user_id and r.cronjob_id = p_cronjob and r.due_time = v_due;
end $$;
comment on function queue_manual_run is 'Queues a run of a cronjob that is due now; returns the run, or why there is none.';

-- begun_runs: the runs of a user that have begun and not ended, of all cronjobs.
create or replace function begun_runs(p_user text) returns integer language sql stable as $$
  select count(*)::integer from invocations i
  where i.user_id = p_user and i.cronjob_id is not null and i.first_end_time is null
    and i.status in ('queued', 'running') and i.not_before is null
$$;
comment on function begun_runs is 'Returns the number of a user''s runs of cronjobs that go on.';

-- may_begin_run: true if no run of the cronjob goes on, and fewer than p_places runs of its user. Serialised by a lock,
-- because concurrent claims would all count the same runs and pass.
create or replace function may_begin_run(p_app text, p_user text, p_cronjob text, p_places integer) returns boolean
language plpgsql as $$
begin
  perform pg_advisory_xact_lock(hashtextextended('cronjob runs of ' || p_user, 0));
  return begun_runs(p_user) < p_places and not exists (
    select from invocations i
    where i.user_id = p_user and i.app_name = p_app and i.cronjob_id = p_cronjob and i.first_end_time is null
      and i.status in ('queued', 'running') and i.not_before is null);
end $$;
comment on function may_begin_run is 'True if a run of a cronjob may begin; locks the user''s runs.';

-- A run of the user has ended: the next one of its cronjob, or another one that waits for a place, can begin.
create or replace function wake_runs(p_user text) returns void language plpgsql as $$
begin
  if exists (select from invocations i where i.user_id = p_user and i.cronjob_id is not null
             and i.first_end_time is null and i.status = 'queued') then
    perform pg_notify('agent_runtime', '["queue"]');
  end if;
end $$;
comment on function wake_runs is 'Notifies the queues if a run of the user waits.';

-- unqueue_runs: deletes the tries of a cronjob that have not begun, and the sessions that were made for them. A try that
-- another process begins meanwhile stays.
create or replace function unqueue_runs(
  p_app text, p_user text, p_cronjob text,
  out run text, out due timestamptz, out is_on_request boolean, out number integer, out since timestamptz,
  out earliest timestamptz)
returns setof record language plpgsql as $$
declare
  r record;
begin
  for r in
    select * from invocations i
    where i.app_name = p_app and i.user_id = p_user and i.cronjob_id = p_cronjob and i.status = 'queued'
      and i.not_before is not null
    order by i.create_time, i.due_time
  loop
    -- The session before the invocation, because a deletion of the session locks it first. For update if it may be
    -- deleted below: with the key share lock, which a claim of the run takes too, the two would wait for each other.
    if r.session_id in (r.run_id, r.run_id || '-' || r.try) then
      perform from sessions s
      where s.app_name = p_app and s.user_id = p_user and s.id = r.session_id for update;
    else
      perform from sessions s
      where s.app_name = p_app and s.user_id = p_user and s.id = r.session_id for key share;
    end if;
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
end $$;
comment on function unqueue_runs is 'Deletes the runs of a cronjob that have not begun, with their sessions.';

-- requeue_runs: gives the runs that have not begun the settings that their cronjob has now.
create or replace function requeue_runs(p_app text, p_user text, p_cronjob text) returns void language plpgsql as $$
begin
  perform queue_run(p_app, p_user, p_cronjob, r.run, r.due, r.is_on_request, r.number, r.since, r.earliest)
  from unqueue_runs(p_app, p_user, p_cronjob) r;
end $$;
comment on function requeue_runs is 'Gives the runs of a cronjob that have not begun its present settings.';

-- skip_runs: leaves out the runs that the schedule has fired and that have not begun. Manual runs stay.
create or replace function skip_runs(p_app text, p_user text, p_cronjob text, p_reason text) returns void language plpgsql as $$
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
create or replace function delete_cronjob(p_app text, p_user text, p_cronjob text) returns boolean language plpgsql as $$
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
create or replace function run_error(p_status text, p_message text) returns text language sql immutable as $$
  select case when p_status = 'paused' then 'The invocation waits for a person, in its session.' else p_message end
$$;
comment on function run_error is 'Returns why a cronjob''s run failed.';
create or replace function run_output(p_status text, p_answer text) returns text language sql immutable as $$
  select case when p_status in ('succeeded', 'paused') then p_answer end
$$;
comment on function run_output is 'Returns the answer of a cronjob''s run.';

-- end_run: a try of a run has ended or paused for the first time. If it failed for a transient reason, queues the next
-- try after a back-off. Otherwise the run has ended: tells the webhook of the cronjob, counts the failures in a row, and
-- disables the cronjob after too many. An invocation that was paused may end once more, which is not counted.
create or replace function end_run(ended anyelement) returns void language plpgsql as $$
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
      update invocations i set is_retried = true
      where i.app_name = ended.app_name and i.user_id = ended.user_id and i.session_id = ended.session_id
        and i.id = ended.id;
      return;
    end if;
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
  -- Behind the sessions of the runs that are left out, because a deleted session locks its lanes behind it.
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
  perform wake_runs(ended.user_id);
end $$;
comment on function end_run is 'Queues the next try of a cronjob''s run, or ends the run.';

-- The session of an open run was deleted, and the run with it: it is recorded as left out. A run that unqueue_runs
-- deletes still has its session.
create or replace function leave_out_deleted_run(deleted anyelement) returns void language plpgsql as $$
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
end $$;
comment on function leave_out_deleted_run is 'Records a cronjob''s open run whose session was deleted.';

-- forget_runs: forgets at most p_limit runs that ended more than p_days ago, or that exceed the newest p_count of their
-- cronjob. Their invocations stay with their sessions. Reads the due times of each cronjob from two indexes, and only
-- the runs that were due before one of the two limits.
create or replace function forget_runs(p_days integer, p_count integer, p_limit integer) returns integer language plpgsql
set enable_seqscan = off as $$
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
  return p_limit - v_left;
end $$;
comment on function forget_runs is 'Forgets old runs of cronjobs, in a batch; returns their number.';

-- latest_run_time: when the newest run of a cronjob was due; found in two indexes, not in the view of runs.
create or replace function latest_run_time(p_app text, p_user text, p_cronjob text) returns timestamptz language sql stable as $$
  select greatest(
    (select max(i.due_time) from invocations i
     where i.app_name = p_app and i.user_id = p_user and i.cronjob_id = p_cronjob and not i.is_retried),
    (select max(s.due_time) from skipped_runs s
     where s.app_name = p_app and s.user_id = p_user and s.cronjob_id = p_cronjob))
$$;
comment on function latest_run_time is 'Returns when the newest run of a cronjob was due.';
