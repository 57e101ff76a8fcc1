-- next_eval_case_version: returns the next version number of an evaluation case. Evaluation sets belong to users, but
-- version numbers are unique across all users' sets with the same name, so row-level security is switched off while the
-- function reads them (agent_runtime.all_users). The function itself switches it, because only a superuser may attach
-- such a setting to a function.

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
comment on function next_eval_case_version is 'Returns the next version number of an evaluation case, unique across all users'' sets.';
