-- append_deltas: stores pieces of the text of events to come, for those who read along, while the lease is the caller's.
--
--   1. Look at the lease. Nothing is locked: what is written behind a lease that ended meanwhile has its token, counts
--      for nobody, and goes with the end of the invocation or a sweep.
--   2. Is p_after (null for none) the last piece of this lease? A crash of the server may have lost some, or the answer
--      to an earlier try was lost: then all of them go, so that no reader has text with a hole, and none twice.
--   3. Insert the pieces, with numbers above all before them in the session. last: null where nothing was written.
--
-- It commits without a wait for the disk: the whole event follows, and that does. Deleted by append_events and
-- finish_invocation. Locks: none. Database time: 0.2 ms.
create function append_deltas(
  p_app text, p_user text, p_session text, p_lease uuid, p_after bigint, p_event_ids text[], p_payloads text[],
  out last bigint, out sequence integer)
language plpgsql as $$
declare
  v_before bigint;
begin
  perform set_config('synchronous_commit', 'off', true);
  -- 1
  select s.last_sequence into sequence from sessions s
  where s.app_name = p_app and s.user_id = p_user and s.id = p_session and s.lease_token = p_lease;
  if not found then return; end if;
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
comment on function append_deltas is 'Stores pieces of the text of events to come, while the lease is the caller''s.';
