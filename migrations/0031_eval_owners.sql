-- Evaluation stands behind the second wall too (0015): with a token, what its user made, what runs in the user's name, and
-- what was made of the user's sessions, which goes when those do.
ALTER TABLE "eval_case_versions" ADD COLUMN "owner_id" text collate "C" DEFAULT nullif(current_setting('agent_runtime.user', true), '');--> statement-breakpoint
ALTER TABLE "eval_cases" ADD COLUMN "owner_id" text collate "C" DEFAULT nullif(current_setting('agent_runtime.user', true), '');--> statement-breakpoint
ALTER TABLE "eval_run_cases" ADD COLUMN "owner_id" text collate "C" DEFAULT nullif(current_setting('agent_runtime.user', true), '');--> statement-breakpoint
update eval_cases set owner_id = s.owner_id from eval_sets s
where s.app_name = eval_cases.app_name and s.id = eval_cases.eval_set_id and s.owner_id is not null;--> statement-breakpoint
update eval_case_versions set owner_id = s.owner_id from eval_sets s
where s.app_name = eval_case_versions.app_name and s.id = eval_case_versions.eval_set_id and s.owner_id is not null;--> statement-breakpoint
update eval_run_cases set owner_id = r.requested_by from eval_runs r
where r.app_name = eval_run_cases.app_name and r.id = eval_run_cases.run_id and r.requested_by is not null;--> statement-breakpoint
comment on column eval_cases.owner_id is 'Owner of the set; null for a set of nobody.';--> statement-breakpoint
comment on column eval_case_versions.owner_id is 'Owner of the set; null for a set of nobody.';--> statement-breakpoint
comment on column eval_run_cases.owner_id is 'The user who requested the run; null for one of a key or of a service without a login.';--> statement-breakpoint
-- What is decided about the rows of all users, whoever asks: how many runs an application has open, and which versions a
-- case has had in the set of somebody before. The setting is put back by hand: only a superuser may give one of ours to
-- a function.
create function count_open_eval_runs(app text) returns integer
language plpgsql stable as $$
declare
  before text := current_setting('agent_runtime.all_users', true);
  n integer;
begin
  perform set_config('agent_runtime.all_users', 'on', true);
  n := (select count(*)::int from eval_runs where app_name = app and status in ('queued', 'running'));
  perform set_config('agent_runtime.all_users', coalesce(before, ''), true);
  return n;
end $$;--> statement-breakpoint
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
end $$;--> statement-breakpoint
comment on function count_open_eval_runs(text) is 'How many evaluation runs of an application have not ended, whosever they are.';--> statement-breakpoint
comment on function next_eval_case_version(text, text, text) is 'The number of the next version of a case, whosever the versions before are.';--> statement-breakpoint
alter table eval_sets enable row level security;--> statement-breakpoint
alter table eval_sets force row level security;--> statement-breakpoint
create policy of_user on eval_sets using (
  (select current_setting('agent_runtime.all_users', true)) = 'on'
  or owner_id = (select current_setting('agent_runtime.user', true)));--> statement-breakpoint
alter table eval_runs enable row level security;--> statement-breakpoint
alter table eval_runs force row level security;--> statement-breakpoint
create policy of_user on eval_runs using (
  (select current_setting('agent_runtime.all_users', true)) = 'on'
  or requested_by = (select current_setting('agent_runtime.user', true)));--> statement-breakpoint
alter table eval_cases enable row level security;--> statement-breakpoint
alter table eval_cases force row level security;--> statement-breakpoint
create policy of_user on eval_cases using (
  (select current_setting('agent_runtime.all_users', true)) = 'on'
  or owner_id = (select current_setting('agent_runtime.user', true))
  or source_user_id = (select current_setting('agent_runtime.user', true)));--> statement-breakpoint
alter table eval_case_versions enable row level security;--> statement-breakpoint
alter table eval_case_versions force row level security;--> statement-breakpoint
create policy of_user on eval_case_versions using (
  (select current_setting('agent_runtime.all_users', true)) = 'on'
  or owner_id = (select current_setting('agent_runtime.user', true))
  or payload #>> '{sessionInput,userId}' = (select current_setting('agent_runtime.user', true)));--> statement-breakpoint
alter table eval_run_cases enable row level security;--> statement-breakpoint
alter table eval_run_cases force row level security;--> statement-breakpoint
create policy of_user on eval_run_cases using (
  (select current_setting('agent_runtime.all_users', true)) = 'on'
  or owner_id = (select current_setting('agent_runtime.user', true))
  or session_user_id = (select current_setting('agent_runtime.user', true))
  or exists (
    select from eval_case_versions v where v.app_name = eval_run_cases.app_name
      and v.eval_set_id = eval_run_cases.eval_set_id and v.eval_id = eval_run_cases.eval_id
      and v.version = eval_run_cases.case_version and v.payload #>> '{sessionInput,userId}' = (select current_setting('agent_runtime.user', true))));
