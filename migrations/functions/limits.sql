-- The limits of what rows may hold. Each function returns what it was given, or raises; src/core/errors.ts maps the
-- SQLSTATEs. Limits are arguments: a setting of the connection would reach neither the workers of a cluster nor the
-- server behind a pooler.

-- A state. AR413: its text is larger than p_max_bytes. AR415: it has more than p_max_keys keys.
create function assert_state_size(p_state jsonb, p_max_bytes integer, p_max_keys integer) returns jsonb
language plpgsql immutable as $$
begin
  if octet_length(p_state::text) > p_max_bytes then
    raise exception 'state is larger than % bytes', p_max_bytes using errcode = 'AR413';
  end if;
  if jsonb_typeof(p_state) = 'object' and (select count(*) from jsonb_object_keys(p_state)) > p_max_keys then
    raise exception 'state has more than % keys', p_max_keys using errcode = 'AR415';
  end if;
  return p_state;
end $$;
comment on function assert_state_size is 'The state, or an error when its text is larger than p_max_bytes, or it has more keys than p_max_keys.';

-- The user that a function of the owner of the tables acts for: the limited role names its own.
create function assert_own_user(p_user text) returns void language plpgsql stable as $$
begin
  if current_setting('role') = 'agent_runtime_user'
     and p_user is distinct from current_setting('agent_runtime.user', true) then
    raise exception 'another user' using errcode = '42501';
  end if;
end $$;
comment on function assert_own_user is 'An error where the limited role names another user than its own.';

-- The size of a session's events. AR414: it is more than p_max_bytes.
create function assert_session_size(p_event_bytes bigint, p_max_bytes bigint) returns bigint
language plpgsql immutable as $$
begin
  if p_event_bytes > p_max_bytes then
    raise exception 'events of the session are more than % bytes', p_max_bytes using errcode = 'AR414';
  end if;
  return p_event_bytes;
end $$;
comment on function assert_session_size is 'The size, or an error when it is larger than p_max_bytes.';

-- The writers of an application's state. AR416: what agents wrote for one writer is more than p_max_bytes.
create function assert_writer_share(p_state jsonb, p_writers jsonb, p_writer jsonb, p_max_bytes integer) returns jsonb
language plpgsql immutable as $$
begin
  if (select sum(octet_length(own.key) + octet_length(own.value::text)) from jsonb_each(p_state) own
      where p_writers -> own.key = p_writer) > p_max_bytes then
    raise exception 'what agents wrote for one user is more than % bytes', p_max_bytes using errcode = 'AR416';
  end if;
  return p_writers;
end $$;
comment on function assert_writer_share is 'The writers, or an error when what agents wrote for the writer is larger than p_max_bytes.';

-- The bytes that a statement adds to what a user keeps in an application. AR417: they are more than p_max_bytes with
-- those that are counted; null: no limit. What writes at the same time sees nothing of each other, so large writes of
-- a user take turns here, before they lock a row of what is kept; p_begins: more follows in the transaction.
create function assert_user_storage(p_app text, p_user text, p_added bigint, p_max_bytes bigint, p_begins boolean)
returns bigint language plpgsql as $$
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
end $$;
comment on function assert_user_storage is 'The bytes that are added, or an error when a user keeps more than p_max_bytes with them.';

-- The size of a session's states as it counts for its user: what is more than two empty ones.
create function state_size(p_state jsonb, p_initial_state jsonb) returns bigint language sql immutable as
$$ select octet_length(p_state::text)::bigint + octet_length(p_initial_state::text) - 4 $$;
comment on function state_size is 'The size of the states of a session, without that of two empty ones.';

-- The size of a version of an artifact as it counts for its user. A reference or notes to an empty one count too.
create function artifact_size(p_size_bytes bigint, p_part jsonb, p_metadata jsonb) returns bigint language sql immutable as
$$ select p_size_bytes + octet_length(p_part::text) + octet_length(p_metadata::text) $$;
comment on function artifact_size is 'The size of a version of an artifact with what is stored beside its bytes.';

-- The same of p_limits, the limits of the service:
-- {"stateBytes", "stateKeys", "appStateBytesPerUser", "sessionBytes", "userBytes"}.
create function limited_state(p_state jsonb, p_limits jsonb) returns jsonb language sql immutable as
$$ select assert_state_size(p_state, (p_limits ->> 'stateBytes')::int, (p_limits ->> 'stateKeys')::int) $$;
comment on function limited_state is 'The state, or an error when it is larger than the limits.';
create function limited_size(p_event_bytes bigint, p_limits jsonb) returns bigint language sql immutable as
$$ select assert_session_size(p_event_bytes, (p_limits ->> 'sessionBytes')::bigint) $$;
comment on function limited_size is 'The size of a session, or an error when it is larger than the limits.';
