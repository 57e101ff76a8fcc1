-- audit_retention: how many days, and how many entries, the audit keeps. Migrations write the operator's settings into
-- this function, so that only its owner decides, whoever calls the deletion.
create function audit_retention(out days integer, out entries bigint) language sql immutable as
$$ select 90, 1000000::bigint $$;
comment on function audit_retention is 'Retention of the audit: days and number of entries. Written by each migration.';

-- delete_old_audit_entries: deletes a batch of expired audit entries; true if there may be more. SECURITY DEFINER,
-- because the serving role may not delete entries.
--
--   1. Up to 1,000 of the oldest entries beyond the maximum age.
--   2. If there are none and the number is exceeded: up to 50,000 of the oldest entries of the callers with the most, so
--      that one caller's entries cannot displace those of others. This reads all entries.
create function delete_old_audit_entries() returns boolean language plpgsql security definer
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
comment on function delete_old_audit_entries is 'Deletes a batch of audit entries beyond audit_retention, none of the last day; if there are too many, those of the callers with the most. True: there may be more. SECURITY DEFINER, so that the service needs no right to delete.';
