-- Helpers of the functions that write sessions. SQL functions are inlined into the calling statements.

-- Time of a change: p_moment, but always later than the previous change, even if the clock went back or the statement
-- waited for a later writer. Computed in UTC, because adding to a timestamptz is not immutable.
create function next_time(p_before timestamptz, p_moment timestamptz) returns timestamptz language sql immutable as
$$ select greatest((p_before at time zone 'utc' + interval '1 microsecond') at time zone 'utc', p_moment) $$;
comment on function next_time is 'Time of a change: the moment, but later than the previous change.';

-- Version of a row: its last change in microseconds; every change increases it.
create function row_version(p_update_time timestamptz) returns text language sql immutable as
$$ select to_hex((extract(epoch from p_update_time at time zone 'utc') * 1000000)::bigint) $$;
comment on function row_version is 'Version of a row: its last change in microseconds, hexadecimal.';

-- The ETag of a session: "session.app.user".
create function session_etag(p_session timestamptz, p_app_state timestamptz, p_user_state timestamptz) returns text
language sql immutable as
$$ select '"' || row_version(p_session) || '.' || coalesce(row_version(p_app_state), '') || '.'
       || coalesce(row_version(p_user_state), '') || '"' $$;
comment on function session_etag is 'ETag of a session, from the last changes of its row and of the two shared states.';

-- Converts Unix seconds to a timestamp; out-of-range values (imports may contain any) become its first or last year.
create function clamped_time(p_seconds float8) returns timestamptz language sql immutable as
$$ select to_timestamp(least(greatest(p_seconds, -2e11), 9e12)) $$;
comment on function clamped_time is 'Unix seconds as a timestamp; out-of-range values become its first or last year.';

-- Size of each event as text. Only the database knows it: it writes 1e308 with 309 digits.
create function event_sizes(p_events jsonb) returns integer[] language plpgsql immutable as $$
begin
  if jsonb_array_length(p_events) = 1 then return array[octet_length((p_events -> 0)::text)]; end if;
  return array(
    select octet_length(given.event::text)
    from jsonb_array_elements(p_events) with ordinality as given(event, place) order by given.place);
end $$;
comment on function event_sizes is 'Size of each event in an array as text, bytes.';

create function total_size(p_sizes integer[]) returns bigint language plpgsql immutable as $$
begin
  if cardinality(p_sizes) = 1 then return p_sizes[1]; end if;
  return coalesce((select sum(size) from unnest(p_sizes) size), 0);
end $$;
comment on function total_size is 'Sum of sizes.';
