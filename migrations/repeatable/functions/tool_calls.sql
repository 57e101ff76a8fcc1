-- record_calls: writes started tool calls and their outcomes into the ledger (table tool_calls). Internal: called by
-- append_events, finish_invocation and keep_calls. A call that is in the ledger already is started again only by a
-- later attempt. A running tool may store an intermediate response, from which a later attempt resumes.
-- p_calls: [{"id", "tool", "effect", "operationId", "state", "attempt", "response"}]. response is null if the stored
-- event contains the response. Calls without a state are not written: keep_calls receives them to look up their rows.
-- result: a large response as version 0 of an artifact of the session, of which the stored response holds the head:
-- {"artifact", "uri", "mimeType", "part", "metadata", "bytes", "sha256", "content", "objectKey"}; bytes are base64. A
-- repeated write changes nothing, because the artifact is named by its call.
-- Locks: the calls' rows of tool_calls, all in one session; artifacts.
create or replace function record_calls(p_app text, p_user text, p_session text, p_invocation text, p_calls jsonb) returns void
language plpgsql as $$
declare
  v_call jsonb;
  v_result jsonb;
begin
  for v_call in select given from jsonb_array_elements(p_calls) given where given ? 'state' loop
    insert into tool_calls as t
      (app_name, user_id, session_id, invocation_id, call_id, operation_id, tool, effect, state, attempt, response)
    values
      (p_app, p_user, p_session, p_invocation, v_call ->> 'id', (v_call ->> 'operationId')::uuid, v_call ->> 'tool',
       v_call ->> 'effect', v_call ->> 'state', (v_call ->> 'attempt')::smallint, v_call -> 'response')
    on conflict (app_name, user_id, session_id, invocation_id, call_id) do update set
      state = excluded.state, attempt = greatest(t.attempt, excluded.attempt), response = excluded.response,
      update_time = excluded.update_time
    where excluded.state <> 'started' or excluded.attempt > t.attempt or excluded.response is not null;
  end loop;
  for v_result in select given -> 'result' from jsonb_array_elements(p_calls) given where given ? 'result' loop
    insert into artifacts (app_name, user_id, session_id, name, next_version)
    values (p_app, p_user, p_session, v_result ->> 'artifact', 1)
    on conflict (app_name, user_id, session_id, name) do nothing;
    continue when not found;
    insert into artifact_versions
      (app_name, user_id, session_id, artifact_name, version, canonical_uri, mime_type, custom_metadata, part, content,
       object_key, size_bytes, sha256)
    values
      (p_app, p_user, p_session, v_result ->> 'artifact', 0, v_result ->> 'uri', v_result ->> 'mimeType',
       v_result -> 'metadata', v_result -> 'part', decode(v_result ->> 'content', 'base64'), v_result ->> 'objectKey',
       (v_result ->> 'bytes')::integer, decode(v_result ->> 'sha256', 'base64'));
  end loop;
end $$;
comment on function record_calls is 'Writes started tool calls, their outcomes (table tool_calls) and their large responses (artifacts).';

-- Large responses go with the events that hold their heads, with the empty versions that a rewind added. Those in an
-- object store go with the next sweep (`removeLeftResults`), because a statement cannot delete an object.
create or replace function delete_results() returns trigger language plpgsql as $$
begin
  delete from artifacts a
  where a.app_name = old.app_name and a.user_id = old.user_id and a.session_id = old.id
    and a.name >= 'tool-results/' and a.name < 'tool-results0'
    and not exists (
      select from artifact_versions v
      where v.app_name = old.app_name and v.user_id = old.user_id and v.session_id = old.id and v.artifact_name = a.name
        and (v.object_key is not null or v.size_bytes > 0 and not v.custom_metadata ? 'callId'));
  return null;
end $$;
comment on function delete_results is 'Trigger function: a session was deleted; its large responses go with it.';

-- results_size: bytes of the large responses among calls (record_calls), as they count for their user's storage.
create or replace function results_size(p_calls jsonb) returns bigint language sql immutable as $$
  select coalesce(sum(artifact_size((result ->> 'bytes')::bigint, result -> 'part', result -> 'metadata')), 0)::bigint
  from jsonb_path_query(p_calls, '$[*].result') result
$$;
comment on function results_size is 'Returns the bytes of the large responses among calls.';

-- keep_calls: writes calls into the ledger like record_calls, for calls whose event is already stored. Used before a
-- confirmed or repeated tool runs, and to store the response of one call while other calls of the same step still run.
-- Locks: sessions (shared, so that a take-over by another process comes either before or after), user_storage,
-- tool_calls, artifacts. Errors: AR417.
-- Database time: 0.2 ms.
--
-- held: false if the lease was lost; then nothing is written. earlier: the rows that the calls had before, [{"id",
-- "state", "attempt", "response"}] as text.
create or replace function keep_calls(
  p_app text, p_user text, p_session text, p_invocation text, p_token uuid, p_calls jsonb, p_max_user_bytes bigint,
  out held boolean, out earlier text)
language plpgsql as $$
declare
  v_added bigint;
begin
  perform from sessions s
  where s.app_name = p_app and s.user_id = p_user and s.id = p_session and s.lease_token = p_token
  for share;
  held := found;
  if not held then return; end if;
  -- The rows are locked, to wait for a transaction of a tool that may still commit its response (keep_answer).
  earlier := (
    select jsonb_agg(jsonb_build_object('id', k.call_id, 'state', k.state, 'attempt', k.attempt, 'response', k.response))
    from (
      select t.* from tool_calls t
      where t.app_name = p_app and t.user_id = p_user and t.session_id = p_session and t.invocation_id = p_invocation
        and t.call_id = any(array(select v_call ->> 'id' from jsonb_array_elements(p_calls) v_call))
      for update) k)::text;
  v_added := case when p_calls @? '$[*].result'
    then results_size(p_calls) + (select sum(octet_length((v_call - 'result')::text)) from jsonb_array_elements(p_calls) v_call)
    else octet_length(p_calls::text) end;
  perform assert_user_storage(p_app, p_user, v_added, p_max_user_bytes, false);
  perform record_calls(p_app, p_user, p_session, p_invocation, p_calls);
end $$;
comment on function keep_calls is 'Writes tool calls whose event is already stored into the ledger, under the session''s lease.';

-- keep_answer: stores the response of a transactional tool within the tool's own transaction (keep_calls). SECURITY
-- DEFINER, because the role of transactional tools has no privileges on the runtime's tables. Only rows of the
-- transaction's user can be written, and only under the session's lease.
create or replace function keep_answer(
  p_app text, p_user text, p_session text, p_invocation text, p_token uuid, p_calls jsonb, p_max_user_bytes bigint,
  out held boolean, out earlier text)
language plpgsql security definer set search_path from current as $$
begin
  select kept.held into held
  from keep_calls(p_app, p_user, p_session, p_invocation, p_token, p_calls, p_max_user_bytes) kept;
end $$;
comment on function keep_answer is 'Stores the response of a transactional tool within the tool''s own transaction.';
revoke execute on function keep_answer from public;
