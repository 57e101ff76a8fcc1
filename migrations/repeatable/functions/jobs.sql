-- Jobs: work that the processes of a deployment share. Only these functions claim, put back and end a job; the loop is
-- src/platform/jobs/run-jobs.ts.
--
-- A lane is a queue of one user's jobs of one kind, for instance the deliveries to one host. The lanes of a kind take
-- turns, a job a turn, so that a flood in one lane delays no other. A claim reads due lanes in the order of their
-- turns, never the jobs behind them, so that its cost does not grow with the backlog.
--
-- Limits on the jobs that run hold over all processes: per user, per lane name (over users), and per pair of user and
-- lane. Running jobs are counted, because a stored counter could drift. A lane of which a limit is full is blocked
-- (blocked_by) and not read. For each place that becomes free, a claim unblocks a lane. A half-open lane, whose last
-- job got no answer, runs one job at a time.

-- The limits on running jobs that a lane (a queue of one user's jobs) counts for, as texts for the column `blocked_by`.
create or replace function job_keys(p_user text, p_lane text) returns text[] language sql immutable
return array['user:' || p_user, 'lane:' || p_lane, 'pair:' || p_user || E'\x01' || p_lane];
comment on function job_keys is 'Returns the limits that a lane counts for.';

create or replace function job_places(p_limits jsonb, p_key text) returns integer language sql immutable
return coalesce((p_limits ->> split_part(p_key, ':', 1))::integer, 2147483647);
comment on function job_places is 'Returns the maximum number of running jobs of a limit.';

create or replace function job_block(p_user text, p_lane text, p_half_open boolean, p_running jsonb, p_full text[]) returns text
language sql immutable
return case
  when 'user:' || p_user = any(p_full) then 'user:' || p_user
  when 'lane:' || p_lane = any(p_full) then 'lane:' || p_lane
  when 'pair:' || p_user || E'\x01' || p_lane = any(p_full)
    or p_half_open and p_running ? ('pair:' || p_user || E'\x01' || p_lane) then 'pair:' || p_user || E'\x01' || p_lane
end;
comment on function job_block is 'Returns the full limit that blocks a lane; null if none does.';

-- p_apps: the applications that the process serves; null: all.
create or replace function job_apps(p_kind text, p_apps text[]) returns text[] language sql stable as $$
  with recursive app(name) as (  -- a step for each application, however many lanes it has
    (select l.app_name from job_lanes l where l.kind = p_kind and l.blocked_by is null order by l.app_name limit 1)
    union all
    select (select l.app_name from job_lanes l where l.kind = p_kind and l.blocked_by is null and l.app_name > app.name
            order by l.app_name limit 1)
    from app where app.name is not null)
  select coalesce(p_apps, array(select app.name from app where app.name is not null))
$$;
comment on function job_apps is 'Returns the applications of p_apps, or those with lanes if it is null.';

create or replace function job_pause(p_kind text, p_apps text[]) returns float8 language sql stable as $$
  select (1000 * extract(epoch from least(
    (select min(l.turn_time) from unnest(job_apps(p_kind, p_apps)) app(name) cross join lateral (
       select l.turn_time from job_lanes l where l.kind = p_kind and l.app_name = app.name and l.blocked_by is null
       order by l.turn_time limit 1) l),
    (select min(j.lease_expire_time) from jobs j
     where j.kind = p_kind and j.lease_token is not null and (p_apps is null or j.app_name = any(p_apps))),
    (select clock_timestamp() from job_lanes l where l.kind = p_kind and l.blocked_by is not null limit 1))
    - clock_timestamp()))::float8
$$;
comment on function job_pause is 'Milliseconds until a lane is due or a lease expires; not positive if lanes are due or blocked; null if nothing waits.';

-- Announces that a lane has a job that is due at p_due. Writers of a lane do not wait for each other: they share a row
-- lock (key share), which only conflicts with a claim that empties or postpones the lane. A lane that is due already is
-- not updated. Functions that look up one row never scan the table: a connection would keep a plan that it made while
-- the tables were almost empty.
create or replace function add_job_lane(p_kind text, p_app text, p_user text, p_lane text, p_due timestamptz, p_half_open boolean)
returns void language plpgsql set enable_seqscan = off as $$
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
end $$;
comment on function add_job_lane is 'Inserts a lane, or makes it due by p_due. It stays half-open only if p_half_open.';

create or replace function add_job(p_kind text, p_app text, p_user text, p_id text, p_lane text, p_half_open boolean default false,
                        p_due timestamptz default clock_timestamp()) returns void language plpgsql as $$
begin
  perform add_job_lane(p_kind, p_app, p_user, p_lane, p_due, p_half_open);
  insert into jobs (kind, app_name, user_id, id, lane, due_time) values (p_kind, p_app, p_user, p_id, p_lane, p_due)
  on conflict (app_name, user_id, kind, id) do update set attempt = 0;
end $$;
comment on function add_job is 'Adds a job, in the transaction that makes it necessary. One that waits already stays due when it was; one that runs is due again at its end.';

create or replace function move_job(p_kind text, p_app text, p_user text, p_id text, p_lane text, p_due timestamptz) returns void
language plpgsql as $$
begin
  perform add_job_lane(p_kind, p_app, p_user, p_lane, p_due, false);
  insert into jobs (kind, app_name, user_id, id, lane, due_time) values (p_kind, p_app, p_user, p_id, p_lane, p_due)
  on conflict (app_name, user_id, kind, id) do update set
    due_time = excluded.due_time, attempt = 0, losses = 0, lease_token = null, lease_expire_time = null;
end $$;
comment on function move_job is 'Adds a job, or postpones it until p_due; a process that runs it loses it.';

-- begin_step: a step of a claimed job begins, as an invocation, which counts its own crashes: those of the job are
-- counted anew.
create or replace function begin_step(p_kind text, p_app text, p_user text, p_id text, p_token uuid) returns boolean
language plpgsql set enable_seqscan = off as $$
begin
  update jobs j set attempt = greatest(j.attempt, 1), losses = 0
  where j.app_name = p_app and j.user_id = p_user and j.kind = p_kind and j.id = p_id and j.lease_token = p_token;
  return found;
end $$;
comment on function begin_step is 'A step of a job begins; false if another process has claimed the job, or it is gone.';

-- end_step: a step of a job has ended: the process that holds the job goes on with it, or another one if the lease has
-- expired. The lease is read when the row is locked, because a claim may be renewing it. True if the job is due.
create or replace function end_step(p_kind text, p_app text, p_user text, p_id text) returns boolean
language plpgsql set enable_seqscan = off as $$
declare
  v_is_held boolean;
begin
  perform add_job_lane(p_kind, p_app, p_user, '', clock_timestamp(), false);
  insert into jobs as j (kind, app_name, user_id, id, lane, due_time)
  values (p_kind, p_app, p_user, p_id, '', clock_timestamp())
  on conflict (app_name, user_id, kind, id) do update set
    attempt = 0, losses = 0, due_time = excluded.due_time,
    lease_token = case when j.lease_expire_time > clock_timestamp() then j.lease_token end,
    lease_expire_time = case when j.lease_expire_time > clock_timestamp() then j.lease_expire_time end
  returning j.lease_token is not null into v_is_held;
  return not v_is_held;
end $$;
comment on function end_step is 'A step of a job has ended. True if the job is due, because no process holds it.';

create or replace function lease_job(p_kind text, p_app text, p_user text, p_id text, p_lease_ms integer, p_losses integer)
returns jsonb language plpgsql as $$
declare
  v_job jsonb;
begin
  update jobs j set lease_token = gen_random_uuid(), attempt = j.attempt + 1, losses = j.losses + p_losses,
                    lease_expire_time = clock_timestamp() + p_lease_ms * interval '1 millisecond'
  where j.app_name = p_app and j.user_id = p_user and j.kind = p_kind and j.id = p_id
  returning jsonb_build_object('appName', j.app_name, 'userId', j.user_id, 'id', j.id, 'attempt', j.attempt,
                               'losses', j.losses, 'token', j.lease_token) into v_job;
  return v_job;
end $$;
comment on function lease_job is 'Gives a job, whose row is locked, a new lease; returns the claimed job.';

create or replace function read_job_work(p_kind text, p_claimed jsonb, p_function text) returns jsonb language plpgsql as $$
declare
  j record;
  v_work jsonb;
  v_read jsonb[] := '{}';  -- an array, because appending to jsonb copies all before it
begin
  for j in
    select c.job, c.job ->> 'appName' as app, c.job ->> 'userId' as owner, c.job ->> 'id' as id
    from jsonb_array_elements(p_claimed) with ordinality as c(job, place) order by c.place
  loop
    execute format('select %I($1, $2, $3)', p_function) into v_work using j.app, j.owner, j.id;
    if v_work is null then
      perform end_job(p_kind, j.app, j.owner, j.id, (j.job ->> 'token')::uuid);
    else
      v_read := array_append(v_read, j.job || jsonb_build_object('work', v_work));
    end if;
  end loop;
  return to_jsonb(v_read);
end $$;
comment on function read_job_work is 'Adds to claimed jobs what they are about, and ends those about nothing; returns the others.';

-- A lane with further due jobs goes to the end of the queue. A lane without due jobs is deleted, or postponed to its next
-- job, but only under a lock that excludes writers of the lane; else it is looked at again soon. Its next job is read
-- after the lock, because the snapshot of the locking statement may be older than a job that was committed before it.
create or replace function end_turn(p_kind text, p_app text, p_user text, p_lane text) returns void language plpgsql as $$
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
      v_next := v_now + interval '10 milliseconds';
    end if;
  end if;
  if v_next is null then
    delete from job_lanes l
    where l.app_name = p_app and l.user_id = p_user and l.kind = p_kind and l.lane = p_lane;
  else
    update job_lanes l set turn_time = v_next
    where l.app_name = p_app and l.user_id = p_user and l.kind = p_kind and l.lane = p_lane;
  end if;
end $$;
comment on function end_turn is 'Gives a lane that had a turn its next one, or deletes it if it is empty.';

-- claim_jobs: claims jobs for a process with p_slots free slots. Claims of a kind run one at a time, because the jobs
-- that a concurrent claim starts cannot be counted before it commits.
--   1. Nothing is due: return null without the lock.
--   2. Claim jobs whose lease has expired, because their process died: losses + 1. They counted as running all the
--      time.
-- then in rounds, until the slots are used or no lane fits:
--   3. Unblock lanes of limits that are no longer full, a lane for each free place. Only in the first round, and after
--      one whose lanes had no job, because their places are still free.
--   4. Block due lanes of which a limit is full (blocked_by).
--   5. Choose lanes in turn, as long as none of their limits is full. If users are limited, the last slots of a process
--      are left to others: a user's nth running job needs n free slots.
--   6. Claim the first job of each chosen lane, and give the lane its next turn.
-- Each row is changed by its key, and no join chooses rows to change: its plan would depend on how many rows the tables
-- had when the connection made it, and `update … from (select … limit n for update skip locked)` may take more than n.
-- Generic plans, because making a plan for each round takes longer than the round. No bitmap scans, because they read all
-- due lanes before the first one: the planner expects few lanes that no limit blocks.
-- p_work: the function of the kind that reads what a job is about, in the statement of its claim, but after it: a
-- snapshot of the claim may be older than what it has waited for. It takes application, user and id, and returns the
-- member `work` of the claimed job; null if there is nothing to do any more, which ends the job. Null: no function.
create or replace function claim_jobs(p_kind text, p_apps text[], p_slots integer, p_lease_ms integer, p_limits jsonb,
                           p_work text default null, out claimed jsonb, out pause_ms float8) language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan as $$
declare
  v_now timestamptz;
  v_free integer;
  v_free_before integer;  -- free slots in the round before
  v_running jsonb;  -- number of running jobs by limit
  v_full text[];
  v_row record;
  v_id text;
begin
  pause_ms := job_pause(p_kind, p_apps);
  if pause_ms is null or pause_ms > 0 or p_slots <= 0 then return; end if;  -- 1
  claimed := '[]';
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
  if p_work is not null then claimed := read_job_work(p_kind, claimed, p_work); end if;
  pause_ms := job_pause(p_kind, p_apps);
end $$;
comment on function claim_jobs is 'Claims jobs of one kind, lanes in turn and within limits; returns them, and what job_pause says then.';

-- The functions below check the token, so that a process that lost the job changes nothing. They lock the lane before
-- the job, as add_job does.
create or replace function put_back_job(p_kind text, p_app text, p_user text, p_id text, p_token uuid, p_pause_ms bigint,
                             p_half_open boolean default false, p_attempt integer default null) returns boolean
language plpgsql set enable_seqscan = off as $$
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
    attempt = coalesce(p_attempt, j.attempt), losses = case when p_attempt = 0 then 0 else j.losses end
  where j.app_name = p_app and j.user_id = p_user and j.kind = p_kind and j.id = p_id and j.lease_token = p_token;
  return found;
end $$;
comment on function put_back_job is 'Puts a claimed job back for another attempt after a pause; p_attempt: how many it has had; 0: its crashes are counted anew too. False if another process has claimed it.';

create or replace function end_job(p_kind text, p_app text, p_user text, p_id text, p_token uuid) returns boolean
language plpgsql set enable_seqscan = off as $$
begin
  delete from jobs j
  where j.app_name = p_app and j.user_id = p_user and j.kind = p_kind and j.id = p_id and j.lease_token = p_token
    and j.attempt > 0;  -- else it was added again since its claim
  return case when found then true when put_back_job(p_kind, p_app, p_user, p_id, p_token, 0) then false end;
end $$;
comment on function end_job is 'Ends a claimed job: true; or puts it back if it was added again since: false. Null if another process has claimed it.';

create or replace function holds_job(p_kind text, p_app text, p_user text, p_id text, p_token uuid) returns boolean
language plpgsql set enable_seqscan = off as $$
begin
  perform from jobs j
  where j.app_name = p_app and j.user_id = p_user and j.kind = p_kind and j.id = p_id and j.lease_token = p_token
  for update;
  return found;
end $$;
comment on function holds_job is 'Locks a claimed job until the transaction ends; false if another process has claimed it, or it is gone.';

create or replace function renew_jobs(p_kind text, p_jobs jsonb, p_lease_ms integer, out tokens uuid[])
language plpgsql set enable_seqscan = off as $$
begin
  with renewed as (
    update jobs j set lease_expire_time = clock_timestamp() + p_lease_ms * interval '1 millisecond'
    from jsonb_to_recordset(p_jobs) c("appName" text, "userId" text, id text, token uuid)
    where j.kind = p_kind and j.app_name = c."appName" and j.user_id = c."userId" and j.id = c.id
      and j.lease_token = c.token
    returning j.lease_token)
  select coalesce(array_agg(lease_token), '{}') into tokens from renewed;
end $$;
comment on function renew_jobs is 'Renews the leases of claimed jobs, as claim_jobs returned them; returns the tokens of those that no other process has claimed.';
