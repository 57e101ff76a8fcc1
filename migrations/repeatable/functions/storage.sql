-- A stored event was changed or deleted by SQL, which the service never does: update the session's size, and its
-- events_version, which invalidates caches. Not for events deleted with their session: there the trigger depth is that
-- of the foreign key's own trigger.
create or replace function count_event_bytes() returns trigger language plpgsql as $$
begin
  new.bytes := octet_length(new.payload::text);
  return new;
end $$;
comment on function count_event_bytes is 'Trigger function: recomputes an event''s size after its payload was changed by SQL.';

create or replace function count_changed_events() returns trigger language plpgsql as $$
begin
  update sessions set events_version = events_version + 1, event_bytes = event_bytes + coalesce(new.bytes, 0) - old.bytes
  where app_name = old.app_name and user_id = old.user_id and id = old.session_id;
  return null;
end $$;
comment on function count_changed_events is 'Trigger function: a stored event was changed or deleted by SQL.';

-- Stored bytes are counted by the writes themselves; copies count in full. Connections use one of 32 shards of a user,
-- so that they do not wait for each other's commit.
create or replace function add_user_bytes(p_app text, p_user text, p_events bigint, p_artifacts bigint, p_memories bigint)
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
create or replace function count_session_bytes() returns trigger language plpgsql security definer set search_path from current as $$
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

-- A queued request counts. A running one, which has a limit of its own, counts only if it is large, because two more
-- counter updates per invocation are expensive. That of a cronjob's run that has not begun is a copy, which does not.
create or replace function counted_request(p_status text, p_not_before timestamptz, p_request jsonb) returns integer
language sql immutable as $$
  select case when p_not_before is not null then 0
              when p_status = 'queued' or octet_length(p_request::text) > 8192
              then coalesce(octet_length(p_request::text), 0) else 0 end
$$;
comment on function counted_request is 'Bytes of a stored request that count for its user.';

create or replace function count_request_bytes() returns trigger language plpgsql security definer set search_path from current as $$
declare
  added constant integer := counted_request(new.status, new.not_before, new.request)
                            - counted_request(old.status, old.not_before, old.request);
begin
  if added <> 0 then
    perform add_user_bytes(coalesce(new.app_name, old.app_name), coalesce(new.user_id, old.user_id), added, 0, 0);
  end if;
  return null;
end $$;
comment on function count_request_bytes is 'Trigger function: a stored request was added, changed or removed.';

create or replace function count_kept_bytes() returns trigger language plpgsql security definer set search_path from current as $$
begin
  perform add_user_bytes(coalesce(new.app_name, old.app_name), coalesce(new.user_id, old.user_id),
    coalesce(octet_length(new.response::text), 0) - coalesce(octet_length(old.response::text), 0), 0, 0);
  return null;
end $$;
comment on function count_kept_bytes is 'Trigger function: a call''s stored answer was added or removed.';

-- Summed per statement, because thousands of updates of one row in a transaction are slow.
create or replace function count_stored_bytes() returns trigger language plpgsql security definer set search_path from current as $$
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
