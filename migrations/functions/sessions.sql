-- Small pieces of the functions that write sessions. Those in SQL are inlined into the statements that use them.

-- The time of a change: p_moment, and after the change before, also where the clock went back or the statement waited
-- for a writer that began later. In UTC: to add to a time in a zone is not immutable.
create function next_time(p_before timestamptz, p_moment timestamptz) returns timestamptz language sql immutable as
$$ select greatest((p_before at time zone 'utc' + interval '1 microsecond') at time zone 'utc', p_moment) $$;
comment on function next_time is 'The time of a change: the moment, and after the change before.';

-- The version of a row: its last change in microseconds. Each change moves it on.
create function row_version(p_update_time timestamptz) returns text language sql immutable as
$$ select to_hex((extract(epoch from p_update_time at time zone 'utc') * 1000000)::bigint) $$;
comment on function row_version is 'The version of a row: its last change in microseconds, hexadecimal.';

-- The ETag of a session: "session.app.user".
create function session_etag(p_session timestamptz, p_app_state timestamptz, p_user_state timestamptz) returns text
language sql immutable as
$$ select '"' || row_version(p_session) || '.' || coalesce(row_version(p_app_state), '') || '.'
       || coalesce(row_version(p_user_state), '') || '"' $$;
comment on function session_etag is 'The ETag of a session, of the last changes of its row and of the two shared states.';

-- Unix seconds as a time; what lies outside timestamptz (an import may say anything) becomes its first or last year.
create function clamped_time(p_seconds float8) returns timestamptz language sql immutable as
$$ select to_timestamp(least(greatest(p_seconds, -2e11), 9e12)) $$;
comment on function clamped_time is 'Unix seconds as a time; what lies outside timestamptz becomes its first or last year.';

-- The size of each event as text. Only the database knows it: 1e308 is 309 digits here.
create function event_sizes(p_events jsonb) returns integer[] language plpgsql immutable as $$
begin
  if jsonb_array_length(p_events) = 1 then return array[octet_length((p_events -> 0)::text)]; end if;
  return array(
    select octet_length(given.event::text)
    from jsonb_array_elements(p_events) with ordinality as given(event, place) order by given.place);
end $$;
comment on function event_sizes is 'The size of each event of an array as text, bytes.';

create function total_size(p_sizes integer[]) returns bigint language plpgsql immutable as $$
begin
  if cardinality(p_sizes) = 1 then return p_sizes[1]; end if;
  return coalesce((select sum(size) from unnest(p_sizes) size), 0);
end $$;
comment on function total_size is 'The sum of sizes.';
