CREATE TABLE "eval_case_versions" (
	"app_name" text collate "C" NOT NULL,
	"eval_set_id" text collate "C" NOT NULL,
	"eval_id" text collate "C" NOT NULL,
	"version" integer NOT NULL,
	"hash" text NOT NULL,
	"payload" jsonb NOT NULL,
	"create_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "eval_case_versions_pkey" PRIMARY KEY("app_name","eval_set_id","eval_id","version"),
	CONSTRAINT "eval_case_versions_version_check" CHECK (version > 0)
);
--> statement-breakpoint
CREATE TABLE "eval_run_cases" (
	"app_name" text collate "C" NOT NULL,
	"run_id" uuid NOT NULL,
	"place" integer NOT NULL,
	"trial" integer NOT NULL,
	"eval_set_id" text collate "C" NOT NULL,
	"eval_id" text collate "C" NOT NULL,
	"case_version" integer NOT NULL,
	"status" text DEFAULT 'waiting' NOT NULL,
	"session_user_id" text collate "C" NOT NULL,
	"session_id" text collate "C",
	"session_count" integer DEFAULT 0 NOT NULL,
	"lease_token" uuid,
	"lease_expire_time" timestamp (6) with time zone,
	"last_sequence" integer,
	"failed_turn" integer,
	"error" text,
	"result" jsonb,
	"start_time" timestamp (6) with time zone,
	"end_time" timestamp (6) with time zone,
	CONSTRAINT "eval_run_cases_pkey" PRIMARY KEY("app_name","run_id","place","trial"),
	CONSTRAINT "eval_run_cases_status_check" CHECK (status in ('waiting', 'running', 'done', 'error', 'cancelled')),
	CONSTRAINT "eval_run_cases_lease_check" CHECK ((status = 'running') = (lease_token is not null) and (status = 'running') = (lease_expire_time is not null)),
	CONSTRAINT "eval_run_cases_end_check" CHECK ((status in ('waiting', 'running')) = (end_time is null)),
	CONSTRAINT "eval_run_cases_error_check" CHECK ((status = 'error') = (error is not null))
);
--> statement-breakpoint
CREATE TABLE "eval_runs" (
	"app_name" text collate "C" NOT NULL,
	"id" uuid NOT NULL,
	"eval_set_id" text collate "C" NOT NULL,
	"requested_by" text collate "C",
	"status" text DEFAULT 'queued' NOT NULL,
	"metrics" jsonb NOT NULL,
	"user_simulator" jsonb,
	"trials" integer NOT NULL,
	"parallelism" integer NOT NULL,
	"agent_hash" text NOT NULL,
	"model_name" text NOT NULL,
	"result_time" timestamp (6) with time zone NOT NULL,
	"create_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	"end_time" timestamp (6) with time zone,
	CONSTRAINT "eval_runs_pkey" PRIMARY KEY("app_name","id"),
	CONSTRAINT "eval_runs_result_time_key" UNIQUE("app_name","result_time"),
	CONSTRAINT "eval_runs_status_check" CHECK (status in ('queued', 'running', 'done', 'cancelled')),
	CONSTRAINT "eval_runs_end_check" CHECK ((status in ('queued', 'running')) = (end_time is null)),
	CONSTRAINT "eval_runs_trials_check" CHECK (trials > 0 and parallelism > 0)
);
--> statement-breakpoint
-- No version of the service wrote it.
DROP TABLE "eval_results";--> statement-breakpoint
-- What a case says moves to its first version.
ALTER TABLE "eval_cases" ADD COLUMN "version" integer DEFAULT 1 NOT NULL;--> statement-breakpoint
ALTER TABLE "eval_cases" ALTER COLUMN "version" DROP DEFAULT;--> statement-breakpoint
insert into eval_case_versions (app_name, eval_set_id, eval_id, version, hash, payload, create_time)
select app_name, eval_set_id, id, 1,
       encode(sha256(convert_to((payload - 'creationTimestamp')::text, 'UTF8')), 'hex'), payload, create_time
from eval_cases;--> statement-breakpoint
ALTER TABLE "sessions" ADD COLUMN "initial_state" jsonb;--> statement-breakpoint
ALTER TABLE "eval_run_cases" ADD CONSTRAINT "eval_run_cases_run_fkey" FOREIGN KEY ("app_name","run_id") REFERENCES "public"."eval_runs"("app_name","id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "eval_run_cases" ADD CONSTRAINT "eval_run_cases_version_fkey" FOREIGN KEY ("app_name","eval_set_id","eval_id","case_version") REFERENCES "public"."eval_case_versions"("app_name","eval_set_id","eval_id","version") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "eval_run_cases_open_idx" ON "eval_run_cases" USING btree ("app_name","run_id","place","trial") WHERE status in ('waiting', 'running');--> statement-breakpoint
CREATE INDEX "eval_run_cases_version_idx" ON "eval_run_cases" USING btree ("app_name","eval_set_id","eval_id","case_version");--> statement-breakpoint
CREATE INDEX "eval_runs_open_idx" ON "eval_runs" USING btree ("create_time") WHERE status in ('queued', 'running');--> statement-breakpoint
ALTER TABLE "eval_cases" ADD CONSTRAINT "eval_cases_version_fkey" FOREIGN KEY ("app_name","eval_set_id","id","version") REFERENCES "public"."eval_case_versions"("app_name","eval_set_id","eval_id","version") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "eval_cases" DROP COLUMN "payload";--> statement-breakpoint
comment on column eval_cases.version is 'Its newest version.';--> statement-breakpoint
comment on column sessions.initial_state is 'Its own state before its first event; null for sessions of older versions.';--> statement-breakpoint
comment on table eval_case_versions is 'What evaluation cases said and say; a run is about one version of each, whatever becomes of the case.';--> statement-breakpoint
comment on column eval_case_versions.app_name is 'Application.';--> statement-breakpoint
comment on column eval_case_versions.eval_set_id is 'Set that the case belongs to.';--> statement-breakpoint
comment on column eval_case_versions.eval_id is 'Case.';--> statement-breakpoint
comment on column eval_case_versions.version is 'Rises with each write, from 1.';--> statement-breakpoint
comment on column eval_case_versions.hash is 'SHA-256 of the payload without its creation time, hexadecimal.';--> statement-breakpoint
comment on column eval_case_versions.payload is 'The case as it goes over the wire.';--> statement-breakpoint
comment on column eval_case_versions.create_time is 'When it was written.';--> statement-breakpoint
comment on table eval_runs is 'Runs of evaluation sets.';--> statement-breakpoint
comment on column eval_runs.app_name is 'Application.';--> statement-breakpoint
comment on column eval_runs.id is 'Run.';--> statement-breakpoint
comment on column eval_runs.eval_set_id is 'Set that is run; it may be gone by now.';--> statement-breakpoint
comment on column eval_runs.requested_by is 'User of the token that requested it; null for keys and local callers.';--> statement-breakpoint
comment on column eval_runs.status is 'queued, running, done or cancelled.';--> statement-breakpoint
comment on column eval_runs.metrics is 'What the turns are scored by, as requested.';--> statement-breakpoint
comment on column eval_runs.user_simulator is 'How a simulated user speaks, as requested.';--> statement-breakpoint
comment on column eval_runs.trials is 'How often each case is run.';--> statement-breakpoint
comment on column eval_runs.parallelism is 'Maximum number of its cases at once, over all processes.';--> statement-breakpoint
comment on column eval_runs.agent_hash is 'SHA-256 of the description of the agent that was deployed when it was requested, hexadecimal.';--> statement-breakpoint
comment on column eval_runs.model_name is 'Model of that agent.';--> statement-breakpoint
comment on column eval_runs.result_time is 'Names its result: unique within the application, never a whole second.';--> statement-breakpoint
comment on column eval_runs.create_time is 'When it was requested.';--> statement-breakpoint
comment on column eval_runs.end_time is 'When its last case ended, or when it was cancelled.';--> statement-breakpoint
comment on table eval_run_cases is 'The cases of evaluation runs, each trial by itself; the row is the claim to work on it.';--> statement-breakpoint
comment on column eval_run_cases.app_name is 'Application.';--> statement-breakpoint
comment on column eval_run_cases.run_id is 'Run.';--> statement-breakpoint
comment on column eval_run_cases.place is 'Place of the case in the run, from 1.';--> statement-breakpoint
comment on column eval_run_cases.trial is 'Trial of the case, from 1.';--> statement-breakpoint
comment on column eval_run_cases.eval_set_id is 'Set of the case.';--> statement-breakpoint
comment on column eval_run_cases.eval_id is 'Case.';--> statement-breakpoint
comment on column eval_run_cases.case_version is 'Version of the case that is run.';--> statement-breakpoint
comment on column eval_run_cases.status is 'waiting, running, done, error (it could not be brought to an end) or cancelled.';--> statement-breakpoint
comment on column eval_run_cases.session_user_id is 'User of its session.';--> statement-breakpoint
comment on column eval_run_cases.session_id is 'Session that it runs in; set by the first claim.';--> statement-breakpoint
comment on column eval_run_cases.session_count is 'How many sessions it had: 2 where the first one died within a turn.';--> statement-breakpoint
comment on column eval_run_cases.lease_token is 'Who may finish it; null unless it runs.';--> statement-breakpoint
comment on column eval_run_cases.lease_expire_time is 'When its process counts as dead unless it renews the lease.';--> statement-breakpoint
comment on column eval_run_cases.last_sequence is 'Last event of its session that belongs to the case.';--> statement-breakpoint
comment on column eval_run_cases.failed_turn is 'Turn that failed, from 0.';--> statement-breakpoint
comment on column eval_run_cases.error is 'Why it could not be brought to an end, a sentence.';--> statement-breakpoint
comment on column eval_run_cases.result is 'Scores of the case and of its turns; the turns themselves are the events of the session.';--> statement-breakpoint
comment on column eval_run_cases.start_time is 'When it was claimed first.';--> statement-breakpoint
comment on column eval_run_cases.end_time is 'When it ended.';
