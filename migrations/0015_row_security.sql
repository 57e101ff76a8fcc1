-- The second wall: statements for one user see and write that user's rows only, whatever their own conditions say.
-- Forced, so that it holds for the owner of the tables too. Without either setting there are no rows.
alter table sessions enable row level security;--> statement-breakpoint
alter table sessions force row level security;--> statement-breakpoint
create policy of_user on sessions using (
  user_id = (select current_setting('agent_runtime.user', true))
  or (select current_setting('agent_runtime.all_users', true)) = 'on');--> statement-breakpoint
alter table events enable row level security;--> statement-breakpoint
alter table events force row level security;--> statement-breakpoint
create policy of_user on events using (
  user_id = (select current_setting('agent_runtime.user', true))
  or (select current_setting('agent_runtime.all_users', true)) = 'on');--> statement-breakpoint
alter table user_states enable row level security;--> statement-breakpoint
alter table user_states force row level security;--> statement-breakpoint
create policy of_user on user_states using (
  user_id = (select current_setting('agent_runtime.user', true))
  or (select current_setting('agent_runtime.all_users', true)) = 'on');--> statement-breakpoint
alter table invocations enable row level security;--> statement-breakpoint
alter table invocations force row level security;--> statement-breakpoint
create policy of_user on invocations using (
  user_id = (select current_setting('agent_runtime.user', true))
  or (select current_setting('agent_runtime.all_users', true)) = 'on');--> statement-breakpoint
alter table artifacts enable row level security;--> statement-breakpoint
alter table artifacts force row level security;--> statement-breakpoint
create policy of_user on artifacts using (
  user_id = (select current_setting('agent_runtime.user', true))
  or (select current_setting('agent_runtime.all_users', true)) = 'on');--> statement-breakpoint
alter table artifact_versions enable row level security;--> statement-breakpoint
alter table artifact_versions force row level security;--> statement-breakpoint
create policy of_user on artifact_versions using (
  user_id = (select current_setting('agent_runtime.user', true))
  or (select current_setting('agent_runtime.all_users', true)) = 'on');--> statement-breakpoint
alter table memories enable row level security;--> statement-breakpoint
alter table memories force row level security;--> statement-breakpoint
create policy of_user on memories using (
  user_id = (select current_setting('agent_runtime.user', true))
  or (select current_setting('agent_runtime.all_users', true)) = 'on');--> statement-breakpoint
alter table idempotency_keys enable row level security;--> statement-breakpoint
alter table idempotency_keys force row level security;--> statement-breakpoint
create policy of_user on idempotency_keys using (
  user_id = (select current_setting('agent_runtime.user', true))
  or (select current_setting('agent_runtime.all_users', true)) = 'on');--> statement-breakpoint
alter table spans enable row level security;--> statement-breakpoint
alter table spans force row level security;--> statement-breakpoint
create policy of_user on spans using (
  user_id = (select current_setting('agent_runtime.user', true))
  or (select current_setting('agent_runtime.all_users', true)) = 'on');--> statement-breakpoint
alter table cronjobs enable row level security;--> statement-breakpoint
alter table cronjobs force row level security;--> statement-breakpoint
create policy of_user on cronjobs using (
  user_id = (select current_setting('agent_runtime.user', true))
  or (select current_setting('agent_runtime.all_users', true)) = 'on');--> statement-breakpoint
alter table cronjob_runs enable row level security;--> statement-breakpoint
alter table cronjob_runs force row level security;--> statement-breakpoint
create policy of_user on cronjob_runs using (
  user_id = (select current_setting('agent_runtime.user', true))
  or (select current_setting('agent_runtime.all_users', true)) = 'on');--> statement-breakpoint
alter table webhooks enable row level security;--> statement-breakpoint
alter table webhooks force row level security;--> statement-breakpoint
create policy of_user on webhooks using (
  user_id = (select current_setting('agent_runtime.user', true))
  or (select current_setting('agent_runtime.all_users', true)) = 'on');--> statement-breakpoint
alter table webhook_deliveries enable row level security;--> statement-breakpoint
alter table webhook_deliveries force row level security;--> statement-breakpoint
create policy of_user on webhook_deliveries using (
  user_id = (select current_setting('agent_runtime.user', true))
  or (select current_setting('agent_runtime.all_users', true)) = 'on');--> statement-breakpoint
alter table eval_session_scores enable row level security;--> statement-breakpoint
alter table eval_session_scores force row level security;--> statement-breakpoint
create policy of_user on eval_session_scores using (
  user_id = (select current_setting('agent_runtime.user', true))
  or (select current_setting('agent_runtime.all_users', true)) = 'on');--> statement-breakpoint
alter table eval_verdicts enable row level security;--> statement-breakpoint
alter table eval_verdicts force row level security;--> statement-breakpoint
create policy of_user on eval_verdicts using (
  user_id = (select current_setting('agent_runtime.user', true))
  or (select current_setting('agent_runtime.all_users', true)) = 'on');
