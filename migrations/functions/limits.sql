-- The limits of what rows may hold. Each returns what it was given, or raises; `limitError` in
-- src/platform/db/database.ts maps the SQLSTATEs. Limits are arguments: a setting of the connection would reach neither
-- the workers of a cluster nor the server behind a pooler.

-- A state. AR413: its text is larger than max_bytes. AR415: it has more than max_keys keys.
create function assert_state_size(state jsonb, max_bytes integer, max_keys integer) returns jsonb
language plpgsql immutable as $$
begin
  if octet_length(state::text) > max_bytes then
    raise exception 'state is larger than % bytes', max_bytes using errcode = 'AR413';
  end if;
  if jsonb_typeof(state) = 'object' and (select count(*) from jsonb_object_keys(state)) > max_keys then
    raise exception 'state has more than % keys', max_keys using errcode = 'AR415';
  end if;
  return state;
end $$;
comment on function assert_state_size is 'The state, or an error when its text is larger than max_bytes, or it has more keys than max_keys.';

-- The size of a session's events. AR414: it is more than max_bytes.
create function assert_session_size(event_bytes bigint, max_bytes bigint) returns bigint
language plpgsql immutable as $$
begin
  if event_bytes > max_bytes then
    raise exception 'events of the session are more than % bytes', max_bytes using errcode = 'AR414';
  end if;
  return event_bytes;
end $$;
comment on function assert_session_size is 'The size, or an error when it is larger than max_bytes.';

-- The writers of an application's state. AR416: what agents wrote for one writer is more than max_bytes.
create function assert_writer_share(state jsonb, writers jsonb, writer jsonb, max_bytes integer) returns jsonb
language plpgsql immutable as $$
begin
  if (select sum(octet_length(key) + octet_length(value::text)) from jsonb_each(state) where writers -> key = writer) > max_bytes then
    raise exception 'what agents wrote for one user is more than % bytes', max_bytes using errcode = 'AR416';
  end if;
  return writers;
end $$;
comment on function assert_writer_share is 'The writers, or an error when what agents wrote for the writer is larger than max_bytes.';
