-- Tapes of replays have a user, so they stand behind the second wall as all other tables of users do (0015).
alter table invocation_tapes enable row level security;--> statement-breakpoint
alter table invocation_tapes force row level security;--> statement-breakpoint
create policy of_user on invocation_tapes using (
  user_id = (select current_setting('agent_runtime.user', true))
  or (select current_setting('agent_runtime.all_users', true)) = 'on');
