-- Functions that check limits on sizes. Each returns its first argument, or raises an error; src/core/errors.ts maps
-- the SQLSTATEs to error messages. Limits are arguments instead of connection settings, because a connection setting
-- would reach neither the nodes of a distributed database nor the server behind a pooler.

-- Checks the size of a state. AR413: the state has more than p_max_bytes bytes as text. AR415: it has more than
-- p_max_keys keys.
create or replace function assert_state_size(p_state jsonb, p_max_bytes integer, p_max_keys integer) returns jsonb
language plpgsql immutable as $$
declare
  v_bytes constant integer := octet_length(p_state::text);
begin
  if v_bytes > p_max_bytes then
    raise exception 'state is larger than % bytes', p_max_bytes using errcode = 'AR413';
  end if;
  -- Most states are too short for so many keys, and an expression with a query costs more than all else here.
  if v_bytes > p_max_keys and jsonb_typeof(p_state) = 'object' then
    if (select count(*) from jsonb_object_keys(p_state)) > p_max_keys then
      raise exception 'state has more than % keys', p_max_keys using errcode = 'AR415';
    end if;
  end if;
  return p_state;
end $$;
comment on function assert_state_size is 'Returns the state; fails if it has more than p_max_bytes of text or p_max_keys keys.';

-- Checks that a SECURITY DEFINER function is called for the right user: under the role agent_runtime_user, p_user must
-- be the user of the transaction.
create or replace function assert_own_user(p_user text) returns void language plpgsql stable as $$
begin
  if current_setting('role') = 'agent_runtime_user'
     and p_user is distinct from current_setting('agent_runtime.user', true) then
    raise exception 'another user' using errcode = '42501';
  end if;
end $$;
comment on function assert_own_user is 'Fails if the role agent_runtime_user names a user other than that of the transaction.';

-- Checks the total size of a session's events. AR414: it is more than p_max_bytes.
create or replace function assert_session_size(p_event_bytes bigint, p_max_bytes bigint) returns bigint
language plpgsql immutable as $$
begin
  if p_event_bytes > p_max_bytes then
    raise exception 'events of the session are more than % bytes', p_max_bytes using errcode = 'AR414';
  end if;
  return p_event_bytes;
end $$;
comment on function assert_session_size is 'Returns the size; fails if it exceeds p_max_bytes.';

-- Checks what agents wrote into an application's shared state on behalf of one user (p_writer). AR416: it is more than
-- p_max_bytes.
create or replace function assert_writer_share(p_state jsonb, p_writers jsonb, p_writer jsonb, p_max_bytes integer) returns jsonb
language plpgsql immutable as $$
begin
  if (select sum(octet_length(own.key) + octet_length(own.value::text)) from jsonb_each(p_state) own
      where p_writers -> own.key = p_writer) > p_max_bytes then
    raise exception 'what agents wrote for one user is more than % bytes', p_max_bytes using errcode = 'AR416';
  end if;
  return p_writers;
end $$;
comment on function assert_writer_share is 'Returns the writers; fails if agents wrote more than p_max_bytes on behalf of the writer.';

-- Checks the bytes that a statement adds to a user's storage in an application. AR417: the total would exceed
-- p_max_bytes (null: no limit). Concurrent writes do not see each other, so a user's large writes are serialised here,
-- before they lock rows of stored data. p_begins: the transaction writes more after this statement, so it is serialised
-- whatever its size.
create or replace function assert_user_storage(p_app text, p_user text, p_added bigint, p_max_bytes bigint, p_begins boolean)
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
comment on function assert_user_storage is 'Returns the added bytes; fails if the user''s storage would exceed p_max_bytes.';

-- Returns the size of a session's states that counts for its user's storage: without the four bytes of two empty
-- objects.
create or replace function state_size(p_state jsonb, p_initial_state jsonb) returns bigint language sql immutable as
$$ select octet_length(p_state::text)::bigint + octet_length(p_initial_state::text) - 4 $$;
comment on function state_size is 'Returns the size of a session''s states that counts for its user''s storage.';

-- Returns the size of an artifact version that counts for its user's storage: the content, references to other
-- artifacts, and metadata.
create or replace function artifact_size(p_size_bytes bigint, p_part jsonb, p_metadata jsonb) returns bigint language sql immutable as
$$ select p_size_bytes + octet_length(p_part::text) + octet_length(p_metadata::text) $$;
comment on function artifact_size is 'Returns the size of an artifact version that counts for its user''s storage.';

-- Variants of the checks above that read the limits from p_limits:
-- {"stateBytes", "stateKeys", "appStateBytesPerUser", "sessionBytes", "userBytes"}.
create or replace function limited_state(p_state jsonb, p_limits jsonb) returns jsonb language sql immutable as
$$ select assert_state_size(p_state, (p_limits ->> 'stateBytes')::int, (p_limits ->> 'stateKeys')::int) $$;
comment on function limited_state is 'Returns the state; fails if it exceeds the limits.';
create or replace function limited_size(p_event_bytes bigint, p_limits jsonb) returns bigint language sql immutable as
$$ select assert_session_size(p_event_bytes, (p_limits ->> 'sessionBytes')::bigint) $$;
comment on function limited_size is 'Returns a session''s size; fails if it exceeds the limits.';
