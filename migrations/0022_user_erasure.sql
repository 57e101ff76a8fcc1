CREATE TABLE "legal_holds" (
	"app_name" text collate "C" NOT NULL,
	"user_id" text collate "C" NOT NULL,
	"session_id" text collate "C" NOT NULL,
	"reason" text NOT NULL,
	"create_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "legal_holds_pkey" PRIMARY KEY("app_name","user_id","session_id")
);
--> statement-breakpoint
CREATE TABLE "user_erasures" (
	"app_name" text collate "C" NOT NULL,
	"user_id" text collate "C" NOT NULL,
	"counts" jsonb DEFAULT '{}'::jsonb NOT NULL,
	"create_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	"update_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "user_erasures_pkey" PRIMARY KEY("app_name","user_id")
);
--> statement-breakpoint
CREATE INDEX "user_erasures_age_idx" ON "user_erasures" USING btree ("update_time");--> statement-breakpoint
comment on table legal_holds is 'What must not be deleted, whoever wants it: all data of a user, or one session. Triggers refuse it.';--> statement-breakpoint
comment on column legal_holds.app_name is 'The application.';--> statement-breakpoint
comment on column legal_holds.user_id is 'The user.';--> statement-breakpoint
comment on column legal_holds.session_id is 'The session; empty for all that the user has.';--> statement-breakpoint
comment on column legal_holds.reason is 'Why, in the words of whoever set it.';--> statement-breakpoint
comment on column legal_holds.create_time is 'When it was set.';--> statement-breakpoint
comment on table user_erasures is 'Users that are being erased. The row goes with the last of their data; until then triggers refuse new data.';--> statement-breakpoint
comment on column user_erasures.app_name is 'The application.';--> statement-breakpoint
comment on column user_erasures.user_id is 'The user.';--> statement-breakpoint
comment on column user_erasures.counts is 'Rows deleted so far, by table.';--> statement-breakpoint
comment on column user_erasures.create_time is 'When it was requested first.';--> statement-breakpoint
comment on column user_erasures.update_time is 'When somebody last worked on it: the sweeper takes up what was left.';--> statement-breakpoint
alter table legal_holds enable row level security;--> statement-breakpoint
alter table legal_holds force row level security;--> statement-breakpoint
create policy of_user on legal_holds using (
  user_id = (select current_setting('agent_runtime.user', true))
  or (select current_setting('agent_runtime.all_users', true)) = 'on');--> statement-breakpoint
alter table user_erasures enable row level security;--> statement-breakpoint
alter table user_erasures force row level security;--> statement-breakpoint
create policy of_user on user_erasures using (
  user_id = (select current_setting('agent_runtime.user', true))
  or (select current_setting('agent_runtime.all_users', true)) = 'on');--> statement-breakpoint
-- The begin of an erasure waits for statements that add something; what comes later sees it and is refused.
create function user_data_lock(app text, owner text) returns bigint language sql immutable
return hashtextextended(app || E'\x01' || owner, 7240014);--> statement-breakpoint
comment on function user_data_lock is 'The advisory lock of a user''s data: shared by statements that add some, exclusive for the begin of an erasure.';--> statement-breakpoint
create function refuse_on_hold() returns trigger language plpgsql as $$
declare
  held_session text := '';
begin
  if tg_argv[0] = 'id' then held_session := old.id;
  elsif tg_argv[0] = 'session_id' then held_session := coalesce(old.session_id, '');
  end if;
  if exists (select from legal_holds h where h.app_name = old.app_name and h.user_id = old.user_id
             and h.session_id in ('', held_session)) then
    raise exception 'the data is on legal hold' using errcode = 'AR423';
  end if;
  return old;
end $$;--> statement-breakpoint
comment on function refuse_on_hold is 'For a trigger: what is on legal hold is not deleted. Its argument is the column with the session, or empty.';--> statement-breakpoint
create function refuse_while_erased() returns trigger language plpgsql as $$
begin
  perform pg_advisory_xact_lock_shared(user_data_lock(new.app_name, new.user_id));
  if exists (select from user_erasures e where e.app_name = new.app_name and e.user_id = new.user_id) then
    raise exception 'the user is being erased' using errcode = 'AR409';
  end if;
  return new;
end $$;--> statement-breakpoint
comment on function refuse_while_erased is 'For a trigger: a user that is being erased gets nothing new.';--> statement-breakpoint
create trigger sessions_hold before delete on sessions for each row execute function refuse_on_hold('id');--> statement-breakpoint
create trigger events_hold before delete on events for each row execute function refuse_on_hold('session_id');--> statement-breakpoint
create trigger invocation_tapes_hold before delete on invocation_tapes for each row execute function refuse_on_hold('session_id');--> statement-breakpoint
create trigger artifacts_hold before delete on artifacts for each row execute function refuse_on_hold('session_id');--> statement-breakpoint
create trigger artifact_versions_hold before delete on artifact_versions for each row execute function refuse_on_hold('session_id');--> statement-breakpoint
create trigger memories_hold before delete on memories for each row execute function refuse_on_hold('session_id');--> statement-breakpoint
create trigger spans_hold before delete on spans for each row execute function refuse_on_hold('session_id');--> statement-breakpoint
create trigger eval_verdicts_hold before delete on eval_verdicts for each row execute function refuse_on_hold('session_id');--> statement-breakpoint
create trigger eval_session_scores_hold before delete on eval_session_scores for each row execute function refuse_on_hold('session_id');--> statement-breakpoint
create trigger cronjob_runs_hold before delete on cronjob_runs for each row execute function refuse_on_hold('session_id');--> statement-breakpoint
create trigger user_states_hold before delete on user_states for each row execute function refuse_on_hold('');--> statement-breakpoint
create trigger cronjobs_hold before delete on cronjobs for each row execute function refuse_on_hold('');--> statement-breakpoint
create trigger webhooks_hold before delete on webhooks for each row execute function refuse_on_hold('');--> statement-breakpoint
create trigger webhook_deliveries_hold before delete on webhook_deliveries for each row execute function refuse_on_hold('');--> statement-breakpoint
-- One that waits has done nothing: it leaves the queue by its deletion.
create trigger invocations_hold before delete on invocations for each row when (old.status <> 'queued')
execute function refuse_on_hold('session_id');--> statement-breakpoint
create trigger sessions_erasure before insert on sessions for each row execute function refuse_while_erased();--> statement-breakpoint
create trigger invocations_erasure before insert on invocations for each row execute function refuse_while_erased();--> statement-breakpoint
create trigger artifacts_erasure before insert on artifacts for each row execute function refuse_while_erased();--> statement-breakpoint
create trigger artifact_versions_erasure before insert on artifact_versions for each row execute function refuse_while_erased();--> statement-breakpoint
create trigger memories_erasure before insert on memories for each row execute function refuse_while_erased();--> statement-breakpoint
create trigger user_states_erasure before insert on user_states for each row execute function refuse_while_erased();--> statement-breakpoint
create trigger cronjobs_erasure before insert on cronjobs for each row execute function refuse_while_erased();--> statement-breakpoint
create trigger webhooks_erasure before insert on webhooks for each row execute function refuse_while_erased();
