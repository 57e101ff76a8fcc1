-- record_calls: writes started tool calls and their outcomes into the ledger (table tool_calls). Internal: called by
-- append_events, finish_invocation and keep_calls. A call that is in the ledger already is started again only by a
-- later attempt. A running tool may store an intermediate response, from which a later attempt resumes.
-- p_calls: [{"id", "tool", "effect", "operationId", "state", "attempt", "response"}]. response is null if the stored
-- event contains the response. Calls without a state are not written: keep_calls receives them to look up their rows.
-- Locks: the calls' rows of tool_calls, all in one session.
create or replace function record_calls(p_app text, p_user text, p_session text, p_invocation text, p_calls jsonb) returns void
language plpgsql as $$
declare
  v_call jsonb;
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
end $$;
comment on function record_calls is 'Writes started tool calls and their outcomes into the ledger (table tool_calls).';

-- keep_calls: writes calls into the ledger like record_calls, for calls whose event is already stored. Used before a
-- confirmed or repeated tool runs, and to store the response of one call while other calls of the same step still run.
-- Locks: sessions (shared, so that a take-over by another process comes either before or after), user_storage,
-- tool_calls. Errors: AR417.
-- Database time: 0.2 ms.
--
-- held: false if the lease was lost; then nothing is written. earlier: the rows that the calls had before, [{"id",
-- "state", "attempt", "response"}] as text.
create or replace function keep_calls(
  p_app text, p_user text, p_session text, p_invocation text, p_token uuid, p_calls jsonb, p_max_user_bytes bigint,
  out held boolean, out earlier text)
language plpgsql as $$
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
  perform assert_user_storage(p_app, p_user, octet_length(p_calls::text), p_max_user_bytes, false);
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
