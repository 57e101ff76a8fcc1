-- Reads versions of a case in all users' sets, on behalf of any user. The setting is restored in the body, because only
-- a superuser may attach one of our settings to a function.

create function next_eval_case_version(app text, eval_set text, eval_case text) returns integer
language plpgsql stable as $$
declare
  before text := current_setting('agent_runtime.all_users', true);
  n integer;
begin
  perform set_config('agent_runtime.all_users', 'on', true);
  n := (select 1 + coalesce(max(version), 0) from eval_case_versions
        where app_name = app and eval_set_id = eval_set and eval_id = eval_case);
  perform set_config('agent_runtime.all_users', coalesce(before, ''), true);
  return n;
end $$;
comment on function next_eval_case_version is 'Next version number of a case, over all users'' sets.';
