-- Helpers of the functions that write sessions. PostgreSQL inlines functions in the language SQL into the calling
-- statements.

-- Returns the time to store for a change: p_moment, or one microsecond after the previous change if that is later. So
-- times of changes always increase, even if the clock was set back or the statement waited for another writer. Computed
-- in UTC, because adding to a timestamptz is not immutable.
create or replace function next_time(p_before timestamptz, p_moment timestamptz) returns timestamptz language sql immutable as
$$ select greatest((p_before at time zone 'utc' + interval '1 microsecond') at time zone 'utc', p_moment) $$;
comment on function next_time is 'Returns the time to store for a change, always later than the previous change.';

-- Returns the version of a row: the time of its last change in microseconds. Every change increases it.
create or replace function row_version(p_update_time timestamptz) returns text language sql immutable as
$$ select to_hex((extract(epoch from p_update_time at time zone 'utc') * 1000000)::bigint) $$;
comment on function row_version is 'Returns the version of a row: the time of its last change in microseconds, hexadecimal.';

-- Returns the ETag of a session: the versions of the session's row, of the application's state and of the user's state,
-- joined by dots.
create or replace function session_etag(p_session timestamptz, p_app_state timestamptz, p_user_state timestamptz) returns text
language sql immutable as
$$ select '"' || row_version(p_session) || '.' || coalesce(row_version(p_app_state), '') || '.'
       || coalesce(row_version(p_user_state), '') || '"' $$;
comment on function session_etag is 'Returns the ETag of a session: the versions of its row, of the application''s state and of the user''s state.';

-- Converts Unix seconds to a timestamp. Imported events may have any number; a number out of range becomes the earliest
-- or latest possible year.
create or replace function clamped_time(p_seconds float8) returns timestamptz language sql immutable as
$$ select to_timestamp(least(greatest(p_seconds, -2e11), 9e12)) $$;
comment on function clamped_time is 'Converts Unix seconds to a timestamp; a number out of range becomes the earliest or latest possible year.';

-- Returns the size of each event as text, in bytes. The client cannot compute it, because PostgreSQL writes numbers
-- differently: 1e308 with 309 digits.
create or replace function event_sizes(p_events jsonb) returns integer[] language plpgsql immutable as $$
begin
  case jsonb_array_length(p_events)
  when 0 then return '{}';
  when 1 then return array[octet_length((p_events -> 0)::text)];
  else return array(
    select octet_length(given.event::text)
    from jsonb_array_elements(p_events) with ordinality as given(event, place) order by given.place);
  end case;
end $$;
comment on function event_sizes is 'Returns the size of each event in an array as text, in bytes.';

create or replace function total_size(p_sizes integer[]) returns bigint language plpgsql immutable as $$
begin
  if cardinality(p_sizes) <= 1 then return coalesce(p_sizes[1], 0); end if;
  return (select sum(size) from unnest(p_sizes) size);
end $$;
comment on function total_size is 'Returns the sum of sizes.';

-- refuse_child: a child session is written by its agent alone. Its open calls are answered as tasks.
create or replace function refuse_child(p_session text) returns void language plpgsql as $$
begin
  raise exception 'Session % is that of an agent that another one called, which alone writes there. Answer its tasks by PATCH /tasks/{id}.', p_session
    using errcode = 'AR403';
end $$;
comment on function refuse_child is 'Refuses a write of a client to a child session.';

-- By a trigger, because child sessions are deleted with the one above, by a foreign key. Spans of the session that come
-- later are not stored (`insertSpans`).
create or replace function delete_spans() returns trigger language plpgsql as $$
begin
  delete from spans s where s.app_name = old.app_name and s.user_id = old.user_id and s.session_id = old.id;
  return null;
end $$;
comment on function delete_spans is 'Trigger function: a session was deleted; its traces go with it.';
