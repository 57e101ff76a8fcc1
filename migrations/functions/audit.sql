-- audit_retention: how long entries of the audit are kept, and how many. Migrations write the operator's settings into it:
-- its owner alone says that, whoever calls what deletes.
create function audit_retention(out days integer, out entries bigint) language sql immutable as
$$ select 90, 1000000::bigint $$;
comment on function audit_retention is 'How many days entries of the audit are kept, and how many entries. Each migration writes it.';

-- delete_old_audit_entries: deletes a batch of what the retention of the audit does not keep; true where there may be
-- more. It runs as the owner of the tables: the role that serves has no right to delete entries.
--
--   1. Up to 1,000 of the oldest entries that are too old.
--   2. Where none is, of those beyond the number: the oldest of the callers who have the most, so that nobody's entries
--      drive out those of others. All entries are read for it, where they may be too many. Up to 50,000.
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
comment on function delete_old_audit_entries is 'Deletes entries of the audit that audit_retention does not keep, none of the last day, of many those of the callers who have the most. True: there may be more. Runs as the owner of the tables, so that the service needs no right to delete.';
