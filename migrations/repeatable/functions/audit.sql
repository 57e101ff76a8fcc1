-- delete_old_audit_entries: deletes a batch of old entries of the audit log. Returns true if there may be more.
-- SECURITY DEFINER, because the role that serves requests may not delete entries.
--
--   1. Delete up to 1,000 of the oldest entries that exceed the maximum age.
--   2. If there were none and the maximum number is exceeded: delete up to 50,000 of the oldest entries of the callers
--      with the most entries, so that one caller's entries cannot displace those of other callers. Entries of the last
--      day are kept. This step reads all entries.
create or replace function delete_old_audit_entries() returns boolean language plpgsql security definer
set search_path from current as $$
declare
  kept record := audit_retention();
  deleted integer;
begin
  perform set_config('agent_runtime.audit_deletes', 'on', true);
  -- 1
  delete from audit_log where id in (
    select id from (select id, time from audit_log order by id limit 1000) oldest
    where time < clock_timestamp() - make_interval(days => greatest(kept.days, 1)));
  get diagnostics deleted = row_count;
  -- 2
  if deleted = 0 and (select max(id) - min(id) >= kept.entries from audit_log) then
    delete from audit_log where id in (
      select id from (
        select id, time, row_number() over (order by of_caller, id desc) as place from (
          select id, time, row_number() over (partition by caller_kind, caller order by id desc) as of_caller
          from audit_log) numbered) placed
      where place > kept.entries and time < clock_timestamp() - interval '1 day' limit 50000);
    get diagnostics deleted = row_count;
  end if;
  perform set_config('agent_runtime.audit_deletes', 'off', true);
  return deleted > 0;
end $$;
revoke execute on function delete_old_audit_entries from public;
comment on function delete_old_audit_entries is 'Deletes a batch of audit entries that exceed audit_retention: those that are too old, or the oldest of the callers with the most entries. Entries of the last day are kept if there are too many. Returns true if there may be more. SECURITY DEFINER, so that the service needs no privilege to delete.';

-- The audit is append-only for every role.
create or replace function refuse_audit_change() returns trigger language plpgsql as $$
begin
  if tg_op = 'DELETE' and current_setting('agent_runtime.audit_deletes', true) = 'on' then return null; end if;
  raise exception 'audit_log is only appended to' using errcode = '42501';
end $$;
comment on function refuse_audit_change is 'Trigger function: audit entries are immutable, and only delete_old_audit_entries deletes them.';
