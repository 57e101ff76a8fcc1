-- delete_old_audit_entries: what the retention of the audit deletes, at most 1,000 entries at a time; true where there
-- may be more. It runs as the owner of the tables: the role that serves has no right to delete entries.
create function delete_old_audit_entries(days integer, entries bigint) returns boolean language plpgsql security definer
set search_path from current as $$
declare
  deleted integer;
begin
  perform set_config('agent_runtime.audit_deletes', 'on', true);
  delete from audit_log where id in (
    select id from (select id, time from audit_log order by id limit 1000) oldest
    where time < clock_timestamp() - interval '1 day'
      and (time < clock_timestamp() - days * interval '1 day' or id <= (select max(id) from audit_log) - entries));
  get diagnostics deleted = row_count;
  perform set_config('agent_runtime.audit_deletes', 'off', true);
  return deleted = 1000;
end $$;
comment on function delete_old_audit_entries is 'Deletes up to 1,000 entries of the audit that are older than so many days or beyond so many, none of the last day. True: there may be more. Runs as the owner of the tables, so that the service needs no right to delete.';
