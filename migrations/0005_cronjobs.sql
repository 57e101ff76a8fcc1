CREATE TABLE "cronjob_runs" (
	"app_name" text collate "C" NOT NULL,
	"user_id" text collate "C" NOT NULL,
	"cronjob_id" text collate "C" NOT NULL,
	"id" text collate "C" NOT NULL,
	"due_time" timestamp (6) with time zone NOT NULL,
	"is_manual" boolean NOT NULL,
	"status" text NOT NULL,
	"attempt" integer DEFAULT 0 NOT NULL,
	"next_attempt_time" timestamp (6) with time zone,
	"lease_token" uuid,
	"lease_expire_time" timestamp (6) with time zone,
	"cancel_request_time" timestamp (6) with time zone,
	"session_id" text collate "C",
	"invocation_id" text collate "C",
	"output" text,
	"error_code" text,
	"error_message" text,
	"create_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	"start_time" timestamp (6) with time zone,
	"end_time" timestamp (6) with time zone,
	CONSTRAINT "cronjob_runs_pkey" PRIMARY KEY("app_name","user_id","cronjob_id","id"),
	CONSTRAINT "cronjob_runs_due_key" UNIQUE("app_name","user_id","cronjob_id","due_time"),
	CONSTRAINT "cronjob_runs_status_check" CHECK (status in ('queued', 'running', 'retrying', 'success', 'failed', 'cancelled', 'skipped')),
	CONSTRAINT "cronjob_runs_wait_check" CHECK ((status in ('queued', 'retrying')) = (next_attempt_time is not null)),
	CONSTRAINT "cronjob_runs_lease_check" CHECK ((status = 'running') = (lease_token is not null) and (status = 'running') = (lease_expire_time is not null)),
	CONSTRAINT "cronjob_runs_end_check" CHECK ((status in ('queued', 'retrying', 'running')) = (end_time is null))
);
--> statement-breakpoint
CREATE TABLE "cronjobs" (
	"app_name" text collate "C" NOT NULL,
	"user_id" text collate "C" NOT NULL,
	"id" text collate "C" NOT NULL,
	"name" text NOT NULL,
	"prompt" text NOT NULL,
	"harness" jsonb,
	"schedule" jsonb NOT NULL,
	"enabled" boolean NOT NULL,
	"disabled_reason" text,
	"session_policy" text NOT NULL,
	"session_id" text collate "C",
	"missed_runs" text NOT NULL,
	"overlap" text NOT NULL,
	"max_attempts" integer NOT NULL,
	"retry_pause_seconds" integer NOT NULL,
	"max_retry_pause_seconds" integer NOT NULL,
	"timeout_seconds" integer,
	"until" timestamp (6) with time zone,
	"max_runs" integer,
	"max_failures" integer NOT NULL,
	"next_run_time" timestamp (6) with time zone,
	"run_count" integer DEFAULT 0 NOT NULL,
	"failure_count" integer DEFAULT 0 NOT NULL,
	"revision" integer DEFAULT 1 NOT NULL,
	"create_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	"update_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "cronjobs_pkey" PRIMARY KEY("app_name","user_id","id"),
	CONSTRAINT "cronjobs_session_policy_check" CHECK (session_policy in ('new', 'fixed')),
	CONSTRAINT "cronjobs_session_id_check" CHECK ((session_policy = 'fixed') = (session_id is not null)),
	CONSTRAINT "cronjobs_missed_runs_check" CHECK (missed_runs in ('skip', 'once', 'all')),
	CONSTRAINT "cronjobs_overlap_check" CHECK (overlap in ('queue', 'skip', 'replace')),
	CONSTRAINT "cronjobs_next_run_time_check" CHECK (enabled = (next_run_time is not null)),
	CONSTRAINT "cronjobs_disabled_reason_check" CHECK (not enabled or disabled_reason is null)
);
--> statement-breakpoint
ALTER TABLE "cronjob_runs" ADD CONSTRAINT "cronjob_runs_cronjob_fkey" FOREIGN KEY ("app_name","user_id","cronjob_id") REFERENCES "public"."cronjobs"("app_name","user_id","id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "cronjob_runs_waiting_idx" ON "cronjob_runs" USING btree ("next_attempt_time") WHERE status in ('queued', 'retrying');--> statement-breakpoint
CREATE INDEX "cronjob_runs_running_idx" ON "cronjob_runs" USING btree ("lease_expire_time") WHERE status = 'running';--> statement-breakpoint
CREATE INDEX "cronjobs_due_idx" ON "cronjobs" USING btree ("next_run_time") WHERE enabled;--> statement-breakpoint
CREATE INDEX "cronjobs_id_idx" ON "cronjobs" USING btree ("id");--> statement-breakpoint
CREATE INDEX "cronjobs_list_idx" ON "cronjobs" USING btree ("user_id","create_time" DESC NULLS FIRST,"id" DESC NULLS FIRST);--> statement-breakpoint
comment on table cronjobs is 'Prompts that run on a schedule.';
--> statement-breakpoint
comment on column cronjobs.app_name is 'Application that runs.';
--> statement-breakpoint
comment on column cronjobs.user_id is 'Owner.';
--> statement-breakpoint
comment on column cronjobs.id is 'Cronjob identifier.';
--> statement-breakpoint
comment on column cronjobs.name is 'Name for people.';
--> statement-breakpoint
comment on column cronjobs.prompt is 'What the user says at each run.';
--> statement-breakpoint
comment on column cronjobs.harness is 'Overrides of the agent for each run, as they were sent; null without any.';
--> statement-breakpoint
comment on column cronjobs.schedule is 'once, interval, daily, weekly, monthly or cron, as it goes over the wire, with its time zone.';
--> statement-breakpoint
comment on column cronjobs.enabled is 'It fires; false where its owner or the runtime disabled it.';
--> statement-breakpoint
comment on column cronjobs.disabled_reason is 'Why the runtime disabled it; null where its owner did.';
--> statement-breakpoint
comment on column cronjobs.session_policy is 'new (a session of its own for each run) or fixed (one session that grows).';
--> statement-breakpoint
comment on column cronjobs.session_id is 'The session of the policy fixed.';
--> statement-breakpoint
comment on column cronjobs.missed_runs is 'What is done about due times that nobody ran for over a minute: skip, once or all.';
--> statement-breakpoint
comment on column cronjobs.overlap is 'What a run does while an earlier one goes on: queue, skip or replace.';
--> statement-breakpoint
comment on column cronjobs.max_attempts is 'How often a run is tried.';
--> statement-breakpoint
comment on column cronjobs.retry_pause_seconds is 'Pause before the second attempt; each later one is twice as long.';
--> statement-breakpoint
comment on column cronjobs.max_retry_pause_seconds is 'Longest pause between attempts.';
--> statement-breakpoint
comment on column cronjobs.timeout_seconds is 'Longest time of a run; null without a limit of its own.';
--> statement-breakpoint
comment on column cronjobs.until is 'It fires before this time only; null without an end.';
--> statement-breakpoint
comment on column cronjobs.max_runs is 'Scheduled runs after which it is disabled; null without a limit.';
--> statement-breakpoint
comment on column cronjobs.max_failures is 'Failed runs in a row after which it is disabled; 0 is never.';
--> statement-breakpoint
comment on column cronjobs.next_run_time is 'When it is due next; null where it is disabled.';
--> statement-breakpoint
comment on column cronjobs.run_count is 'Scheduled runs so far.';
--> statement-breakpoint
comment on column cronjobs.failure_count is 'Failed runs in a row.';
--> statement-breakpoint
comment on column cronjobs.revision is 'Rises with each change.';
--> statement-breakpoint
comment on column cronjobs.create_time is 'When it was created.';
--> statement-breakpoint
comment on column cronjobs.update_time is 'When it was changed last.';
--> statement-breakpoint
comment on table cronjob_runs is 'The runs of the cronjobs. A due time has one row, which is the claim to fire it.';
--> statement-breakpoint
comment on column cronjob_runs.app_name is 'Application.';
--> statement-breakpoint
comment on column cronjob_runs.user_id is 'Owner.';
--> statement-breakpoint
comment on column cronjob_runs.cronjob_id is 'Cronjob that runs.';
--> statement-breakpoint
comment on column cronjob_runs.id is 'Run identifier.';
--> statement-breakpoint
comment on column cronjob_runs.due_time is 'When it was due; of a manual run, when it was requested.';
--> statement-breakpoint
comment on column cronjob_runs.is_manual is 'Somebody requested it.';
--> statement-breakpoint
comment on column cronjob_runs.status is 'queued, running, retrying (waits for another attempt), success, failed, cancelled or skipped.';
--> statement-breakpoint
comment on column cronjob_runs.attempt is 'How often it was begun.';
--> statement-breakpoint
comment on column cronjob_runs.next_attempt_time is 'When a waiting run may begin; null for others.';
--> statement-breakpoint
comment on column cronjob_runs.lease_token is 'Token of the process that runs it; null while none does.';
--> statement-breakpoint
comment on column cronjob_runs.lease_expire_time is 'A running run whose lease is past this time is taken over.';
--> statement-breakpoint
comment on column cronjob_runs.cancel_request_time is 'When somebody requested its end.';
--> statement-breakpoint
comment on column cronjob_runs.session_id is 'Session of its last attempt.';
--> statement-breakpoint
comment on column cronjob_runs.invocation_id is 'Invocation of its last attempt.';
--> statement-breakpoint
comment on column cronjob_runs.output is 'Text of the answer.';
--> statement-breakpoint
comment on column cronjob_runs.error_code is 'Why it did not succeed, a stable word.';
--> statement-breakpoint
comment on column cronjob_runs.error_message is 'Why it did not succeed or was left out, a sentence.';
--> statement-breakpoint
comment on column cronjob_runs.create_time is 'When it was queued.';
--> statement-breakpoint
comment on column cronjob_runs.start_time is 'When its last attempt began.';
--> statement-breakpoint
comment on column cronjob_runs.end_time is 'When it ended.';
--> statement-breakpoint
create view inspect.cronjobs as
select j.app_name, j.user_id, j.id as cronjob_id, j.name, j.schedule ->> 'type' as schedule_type, j.enabled, j.disabled_reason,
       j.next_run_time, r.last_due_time, r.last_status, r.runs, r.success_rate, r.median_lateness, r.max_lateness,
       j.failure_count as failures_in_a_row, j.revision
from cronjobs j
cross join lateral (
  select max(due_time) as last_due_time,
         (array_agg(status order by due_time desc))[1] as last_status,
         count(*) as runs,
         round(avg((status = 'success')::int) filter (where status in ('success', 'failed')), 3) as success_rate,
         percentile_cont(0.5) within group (order by start_time - due_time) filter (where attempt = 1) as median_lateness,
         max(start_time - due_time) filter (where attempt = 1) as max_lateness
  from cronjob_runs where app_name = j.app_name and user_id = j.user_id and cronjob_id = j.id) r;
--> statement-breakpoint
comment on view inspect.cronjobs is 'Cronjobs with their next and last times, success rate and lateness, over the runs that are kept.';
--> statement-breakpoint
create view inspect.cronjob_runs as
select r.app_name, r.user_id, r.cronjob_id, j.name, r.id as run_id, r.due_time, r.status, r.is_manual, r.attempt,
       case when r.attempt = 1 then r.start_time - r.due_time end as lateness, r.end_time - r.start_time as duration,
       r.session_id, r.invocation_id, r.error_code, r.error_message, r.output
from cronjob_runs r
join cronjobs j on j.app_name = r.app_name and j.user_id = r.user_id and j.id = r.cronjob_id;
--> statement-breakpoint
comment on view inspect.cronjob_runs is 'The runs of cronjobs with how late they began and how long they took.';
--> statement-breakpoint
comment on column inspect.cronjobs.app_name is 'Application.';
--> statement-breakpoint
comment on column inspect.cronjobs.user_id is 'Owner.';
--> statement-breakpoint
comment on column inspect.cronjobs.cronjob_id is 'Cronjob.';
--> statement-breakpoint
comment on column inspect.cronjobs.name is 'Name for people.';
--> statement-breakpoint
comment on column inspect.cronjobs.schedule_type is 'Kind of its schedule.';
--> statement-breakpoint
comment on column inspect.cronjobs.enabled is 'It fires.';
--> statement-breakpoint
comment on column inspect.cronjobs.disabled_reason is 'Why the runtime disabled it.';
--> statement-breakpoint
comment on column inspect.cronjobs.next_run_time is 'When it is due next.';
--> statement-breakpoint
comment on column inspect.cronjobs.last_due_time is 'Due time of its newest run.';
--> statement-breakpoint
comment on column inspect.cronjobs.last_status is 'How that one stands.';
--> statement-breakpoint
comment on column inspect.cronjobs.runs is 'Number of its runs that are kept.';
--> statement-breakpoint
comment on column inspect.cronjobs.success_rate is 'Share of successes among those that succeeded or failed.';
--> statement-breakpoint
comment on column inspect.cronjobs.median_lateness is 'Median time between due time and start, of runs that began once.';
--> statement-breakpoint
comment on column inspect.cronjobs.max_lateness is 'Longest such time.';
--> statement-breakpoint
comment on column inspect.cronjobs.failures_in_a_row is 'Failed runs since the last success.';
--> statement-breakpoint
comment on column inspect.cronjobs.revision is 'Rises with each change.';
--> statement-breakpoint
comment on column inspect.cronjob_runs.app_name is 'Application.';
--> statement-breakpoint
comment on column inspect.cronjob_runs.user_id is 'Owner.';
--> statement-breakpoint
comment on column inspect.cronjob_runs.cronjob_id is 'Cronjob.';
--> statement-breakpoint
comment on column inspect.cronjob_runs.name is 'Name of the cronjob.';
--> statement-breakpoint
comment on column inspect.cronjob_runs.run_id is 'Run.';
--> statement-breakpoint
comment on column inspect.cronjob_runs.due_time is 'When it was due.';
--> statement-breakpoint
comment on column inspect.cronjob_runs.status is 'How it stands.';
--> statement-breakpoint
comment on column inspect.cronjob_runs.is_manual is 'Somebody requested it.';
--> statement-breakpoint
comment on column inspect.cronjob_runs.attempt is 'How often it was begun.';
--> statement-breakpoint
comment on column inspect.cronjob_runs.lateness is 'Time between due time and start, of a run that began once.';
--> statement-breakpoint
comment on column inspect.cronjob_runs.duration is 'Time of its last attempt.';
--> statement-breakpoint
comment on column inspect.cronjob_runs.session_id is 'Session of its last attempt.';
--> statement-breakpoint
comment on column inspect.cronjob_runs.invocation_id is 'Invocation of its last attempt.';
--> statement-breakpoint
comment on column inspect.cronjob_runs.error_code is 'Why it did not succeed, a stable word.';
--> statement-breakpoint
comment on column inspect.cronjob_runs.error_message is 'Why it did not succeed or was left out, a sentence.';
--> statement-breakpoint
comment on column inspect.cronjob_runs.output is 'Text of the answer.';
