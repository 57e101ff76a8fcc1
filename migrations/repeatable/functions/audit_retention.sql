-- audit_retention: for how many days, and how many, entries of the audit log are kept. Each migration writes the
-- operator's settings into this function. So only the functions' owner decides on retention, whoever calls
-- delete_old_audit_entries. Created only if absent, because its body is the operator's.
do $$ begin
  if to_regprocedure('audit_retention()') is null then
    create function audit_retention(out days integer, out entries bigint) language sql immutable as
      'select 90, 1000000::bigint';
  end if;
end $$;
comment on function audit_retention is 'Returns for how many days, and how many, entries of the audit log are kept. Each migration writes the operator''s settings into this function.';
