-- append_deltas: stores chunks of streamed text for the session's followers, as long as the caller holds the session's
-- lease.
--
--   1. Check the lease. Chunks that are written after the lease ended have its token, so no reader sees them. They are
--      deleted at the end of the invocation or by a sweep. The check takes the lock of the foreign key, without waiting
--      for it: one statement calls the function for many sessions, of which none may delay the others. is_locked: true
--      if another transaction has the session's row, e.g. a request that looks for the holder; nothing was written.
--   2. p_after must be the number of the last chunk under this lease; null if there is none. Otherwise a crash of the
--      database lost chunks, or the response to an earlier attempt was lost. All chunks of the lease are then deleted,
--      so that no reader gets text with a gap or twice.
--   3. Insert the chunks with numbers above all earlier numbers of the session. last: number of the last chunk; null if
--      nothing was written.
--
-- Commits without waiting for the disk, because the event with the whole text is committed durably later. append_events
-- and finish_invocation delete the chunks. Locks: the session's row for key share; waits for none. Database time: 0.1 ms.
create or replace function append_deltas(
  p_app text, p_user text, p_session text, p_lease uuid, p_after bigint, p_event_ids text[], p_payloads text[],
  out last bigint, out sequence integer, out is_locked boolean)
language plpgsql as $$
declare
  v_before bigint;
begin
  perform set_config('synchronous_commit', 'off', true);
  -- 1
  select s.last_sequence into sequence from sessions s
  where s.app_name = p_app and s.user_id = p_user and s.id = p_session and s.lease_token = p_lease
  for key share skip locked;
  if not found then
    is_locked := exists (select from sessions s where s.app_name = p_app and s.user_id = p_user and s.id = p_session
                           and s.lease_token = p_lease);
    return;
  end if;
  -- 2
  v_before := (select max(d.number) from event_deltas d
               where d.app_name = p_app and d.user_id = p_user and d.session_id = p_session and d.lease_token = p_lease);
  if v_before is distinct from p_after then
    delete from event_deltas d
    where d.app_name = p_app and d.user_id = p_user and d.session_id = p_session and d.lease_token = p_lease;
    return;
  end if;
  -- 3
  last := greatest(v_before, floor(extract(epoch from clock_timestamp()) * 1000000)::bigint) + cardinality(p_payloads);
  insert into event_deltas (app_name, user_id, session_id, number, lease_token, event_id, payload)
  select p_app, p_user, p_session, last - cardinality(p_payloads) + given.place, p_lease, given.event_id, given.payload
  from unnest(p_event_ids, p_payloads) with ordinality as given(event_id, payload, place);
end $$;
comment on function append_deltas is 'Stores chunks of streamed text while the caller holds the lease.';
