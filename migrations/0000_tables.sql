CREATE TABLE "agent_prompts" (
	"app_name" text collate "C" NOT NULL,
	"hash" text NOT NULL,
	"payload" jsonb NOT NULL,
	"use_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "agent_prompts_pkey" PRIMARY KEY("app_name","hash")
);
--> statement-breakpoint
CREATE TABLE "agent_versions" (
	"app_name" text collate "C" NOT NULL,
	"digest" text NOT NULL,
	"definition" jsonb NOT NULL,
	"create_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "agent_versions_pkey" PRIMARY KEY("app_name","digest")
);
--> statement-breakpoint
CREATE TABLE "app_states" (
	"app_name" text collate "C" PRIMARY KEY NOT NULL,
	"state" jsonb NOT NULL,
	"writers" jsonb DEFAULT '{}'::jsonb NOT NULL,
	"update_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "artifact_versions" (
	"app_name" text collate "C" NOT NULL,
	"user_id" text collate "C" NOT NULL,
	"session_id" text collate "C" NOT NULL,
	"artifact_name" text collate "C" NOT NULL,
	"version" integer NOT NULL,
	"canonical_uri" text NOT NULL,
	"mime_type" text,
	"custom_metadata" jsonb DEFAULT '{}'::jsonb NOT NULL,
	"part" jsonb NOT NULL,
	"content" "bytea",
	"object_key" text,
	"size_bytes" integer NOT NULL,
	"sha256" "bytea" NOT NULL,
	"create_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "artifact_versions_pkey" PRIMARY KEY("app_name","user_id","session_id","artifact_name","version"),
	CONSTRAINT "artifact_versions_content_check" CHECK (content is null or object_key is null)
);
--> statement-breakpoint
CREATE TABLE "artifacts" (
	"app_name" text collate "C" NOT NULL,
	"user_id" text collate "C" NOT NULL,
	"session_id" text collate "C" NOT NULL,
	"name" text collate "C" NOT NULL,
	"next_version" integer NOT NULL,
	CONSTRAINT "artifacts_pkey" PRIMARY KEY("app_name","user_id","session_id","name")
);
--> statement-breakpoint
CREATE TABLE "audit_log" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "audit_log_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	"caller_kind" text NOT NULL,
	"caller" text,
	"address" text,
	"operation" text,
	"resource" jsonb NOT NULL,
	"decision" text NOT NULL,
	"reason" text,
	"request_id" text NOT NULL,
	"left_out" integer DEFAULT 0 NOT NULL,
	CONSTRAINT "audit_log_caller_kind_check" CHECK (caller_kind in ('unknown', 'anonymous', 'key', 'user')),
	CONSTRAINT "audit_log_decision_check" CHECK (decision in ('allowed', 'refused'))
);
--> statement-breakpoint
CREATE TABLE "budget_alerts" (
	"app_name" text collate "C" NOT NULL,
	"user_id" text collate "C" NOT NULL,
	"applies_to" text NOT NULL,
	"period" text NOT NULL,
	"since" date NOT NULL,
	"level" smallint NOT NULL,
	CONSTRAINT "budget_alerts_pkey" PRIMARY KEY("app_name","user_id","applies_to","period")
);
--> statement-breakpoint
CREATE TABLE "budget_reservations" (
	"app_name" text collate "C" NOT NULL,
	"user_id" text collate "C" NOT NULL,
	"id" uuid NOT NULL,
	"tokens" bigint NOT NULL,
	"cost" numeric NOT NULL,
	"expire_time" timestamp (6) with time zone NOT NULL,
	CONSTRAINT "budget_reservations_pkey" PRIMARY KEY("app_name","user_id","id")
);
--> statement-breakpoint
CREATE TABLE "budget_totals" (
	"app_name" text collate "C" NOT NULL,
	"since" date NOT NULL,
	"shard" smallint NOT NULL,
	"invocations" bigint NOT NULL,
	"tokens" bigint NOT NULL,
	"cost" numeric NOT NULL,
	CONSTRAINT "budget_totals_pkey" PRIMARY KEY("app_name","since","shard")
);
--> statement-breakpoint
CREATE TABLE "budget_uses" (
	"app_name" text collate "C" NOT NULL,
	"user_id" text collate "C" NOT NULL,
	"day" date NOT NULL,
	"shard" smallint NOT NULL,
	"invocations" bigint NOT NULL,
	"prompt_tokens" bigint NOT NULL,
	"output_tokens" bigint NOT NULL,
	"cost" numeric NOT NULL,
	CONSTRAINT "budget_uses_pkey" PRIMARY KEY("app_name","user_id","day","shard"),
	CONSTRAINT "budget_uses_counts_check" CHECK (least(invocations, prompt_tokens, output_tokens, cost) >= 0)
);
--> statement-breakpoint
CREATE TABLE "budgets" (
	"app_name" text collate "C" NOT NULL,
	"user_id" text collate "C" NOT NULL,
	"applies_to" text NOT NULL,
	"period" text NOT NULL,
	"max_invocations" bigint,
	"max_tokens" bigint,
	"max_cost" numeric,
	"webhook_id" text,
	"update_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "budgets_pkey" PRIMARY KEY("app_name","user_id","applies_to","period"),
	CONSTRAINT "budgets_applies_to_check" CHECK (applies_to in ('app', 'users', 'user')),
	CONSTRAINT "budgets_period_check" CHECK (period in ('day', 'month')),
	CONSTRAINT "budgets_user_id_check" CHECK ((applies_to = 'user') = (user_id <> ''))
);
--> statement-breakpoint
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
	"losses" smallint DEFAULT 0 NOT NULL,
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
	CONSTRAINT "cronjob_runs_attempt_check" CHECK (attempt >= 0),
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
	"webhook_url" text,
	"next_run_time" timestamp (6) with time zone,
	"run_count" integer DEFAULT 0 NOT NULL,
	"failure_count" integer DEFAULT 0 NOT NULL,
	"revision" integer DEFAULT 1 NOT NULL,
	"create_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	"update_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "cronjobs_pkey" PRIMARY KEY("app_name","user_id","id"),
	CONSTRAINT "cronjobs_counts_check" CHECK (least(run_count, failure_count, revision) >= 0),
	CONSTRAINT "cronjobs_session_policy_check" CHECK (session_policy in ('new', 'fixed')),
	CONSTRAINT "cronjobs_session_id_check" CHECK ((session_policy = 'fixed') = (session_id is not null)),
	CONSTRAINT "cronjobs_missed_runs_check" CHECK (missed_runs in ('skip', 'once', 'all')),
	CONSTRAINT "cronjobs_overlap_check" CHECK (overlap in ('queue', 'skip', 'replace')),
	CONSTRAINT "cronjobs_next_run_time_check" CHECK (enabled = (next_run_time is not null)),
	CONSTRAINT "cronjobs_disabled_reason_check" CHECK (not enabled or disabled_reason is null)
);
--> statement-breakpoint
CREATE TABLE "memory_jobs" (
	"app_name" text collate "C" NOT NULL,
	"user_id" text collate "C" NOT NULL,
	"session_id" text collate "C" DEFAULT '' NOT NULL,
	"invocation_id" text collate "C" DEFAULT '' NOT NULL,
	"due_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	"attempts" smallint DEFAULT 0 NOT NULL,
	CONSTRAINT "memory_jobs_pkey" PRIMARY KEY("app_name","user_id","session_id","invocation_id")
);
--> statement-breakpoint
CREATE TABLE "eval_case_versions" (
	"app_name" text collate "C" NOT NULL,
	"eval_set_id" text collate "C" NOT NULL,
	"eval_id" text collate "C" NOT NULL,
	"version" integer NOT NULL,
	"hash" text NOT NULL,
	"payload" jsonb NOT NULL,
	"owner_id" text collate "C",
	"create_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "eval_case_versions_pkey" PRIMARY KEY("app_name","eval_set_id","eval_id","version"),
	CONSTRAINT "eval_case_versions_version_check" CHECK (version > 0)
);
--> statement-breakpoint
CREATE TABLE "eval_cases" (
	"app_name" text collate "C" NOT NULL,
	"eval_set_id" text collate "C" NOT NULL,
	"id" text collate "C" NOT NULL,
	"version" integer NOT NULL,
	"source_user_id" text collate "C",
	"source_session_id" text collate "C",
	"owner_id" text collate "C",
	"create_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "eval_cases_pkey" PRIMARY KEY("app_name","eval_set_id","id")
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
	"owner_id" text collate "C",
	"session_id" text collate "C",
	"session_count" integer DEFAULT 0 NOT NULL,
	"losses" smallint DEFAULT 0 NOT NULL,
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
	"judged_run_id" uuid,
	"status" text DEFAULT 'queued' NOT NULL,
	"metrics" jsonb NOT NULL,
	"user_simulator" jsonb,
	"model_execution_mode" text DEFAULT 'live' NOT NULL,
	"tool_execution_mode" text DEFAULT 'live' NOT NULL,
	"trials" integer NOT NULL,
	"parallelism" integer NOT NULL,
	"max_judge_tokens" bigint DEFAULT 10000000 NOT NULL,
	"judge_tokens" bigint DEFAULT 0 NOT NULL,
	"agent_hash" text NOT NULL,
	"model_name" text NOT NULL,
	"result_time" timestamp (6) with time zone NOT NULL,
	"summary" jsonb,
	"create_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	"end_time" timestamp (6) with time zone,
	CONSTRAINT "eval_runs_pkey" PRIMARY KEY("app_name","id"),
	CONSTRAINT "eval_runs_result_time_key" UNIQUE("app_name","result_time"),
	CONSTRAINT "eval_runs_status_check" CHECK (status in ('queued', 'running', 'done', 'cancelled')),
	CONSTRAINT "eval_runs_end_check" CHECK ((status in ('queued', 'running')) = (end_time is null)),
	CONSTRAINT "eval_runs_modes_check" CHECK (model_execution_mode in ('live', 'stored') and tool_execution_mode in ('live', 'stored')),
	CONSTRAINT "eval_runs_trials_check" CHECK (trials > 0 and parallelism > 0)
);
--> statement-breakpoint
CREATE TABLE "eval_session_scores" (
	"app_name" text collate "C" NOT NULL,
	"user_id" text collate "C" NOT NULL,
	"session_id" text collate "C" NOT NULL,
	"last_sequence" integer NOT NULL,
	"metrics_hash" text NOT NULL,
	"rule_id" text collate "C",
	"invocation_id" text collate "C",
	"result" jsonb NOT NULL,
	"create_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "eval_session_scores_pkey" PRIMARY KEY("app_name","user_id","session_id","last_sequence","metrics_hash")
);
--> statement-breakpoint
CREATE TABLE "eval_sets" (
	"app_name" text collate "C" NOT NULL,
	"id" text collate "C" NOT NULL,
	"owner_id" text collate "C",
	"name" text,
	"description" text,
	"model_execution_mode" text,
	"tool_execution_mode" text,
	"create_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "eval_sets_pkey" PRIMARY KEY("app_name","id")
);
--> statement-breakpoint
CREATE TABLE "eval_verdicts" (
	"app_name" text collate "C" NOT NULL,
	"user_id" text collate "C" NOT NULL,
	"session_id" text collate "C" NOT NULL,
	"turn" integer NOT NULL,
	"metric_name" text collate "C" NOT NULL,
	"author" text collate "C" NOT NULL,
	"passed" boolean NOT NULL,
	"comment" text,
	"create_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "eval_verdicts_pkey" PRIMARY KEY("app_name","user_id","session_id","turn","metric_name","author"),
	CONSTRAINT "eval_verdicts_turn_check" CHECK (turn >= 0)
);
--> statement-breakpoint
CREATE TABLE "event_deltas" (
	"app_name" text collate "C" NOT NULL,
	"user_id" text collate "C" NOT NULL,
	"session_id" text collate "C" NOT NULL,
	"number" bigint NOT NULL,
	"lease_token" uuid NOT NULL,
	"event_id" text collate "C" NOT NULL,
	"payload" text NOT NULL,
	CONSTRAINT "event_deltas_pkey" PRIMARY KEY("app_name","user_id","session_id","number")
);
--> statement-breakpoint
CREATE TABLE "events" (
	"app_name" text collate "C" NOT NULL,
	"user_id" text collate "C" NOT NULL,
	"session_id" text collate "C" NOT NULL,
	"sequence" integer NOT NULL,
	"id" text collate "C" NOT NULL,
	"invocation_id" text collate "C" NOT NULL,
	"author" text NOT NULL,
	"event_time" timestamp (6) with time zone NOT NULL,
	"is_from_runtime" boolean DEFAULT false NOT NULL,
	"payload" jsonb NOT NULL,
	"bytes" integer NOT NULL,
	CONSTRAINT "events_pkey" PRIMARY KEY("app_name","user_id","session_id","sequence"),
	CONSTRAINT "events_id_key" UNIQUE("app_name","user_id","session_id","id")
);
--> statement-breakpoint
CREATE TABLE "idempotency_keys" (
	"app_name" text collate "C" NOT NULL,
	"user_id" text collate "C" NOT NULL,
	"scope" text collate "C" NOT NULL,
	"key" text collate "C" NOT NULL,
	"request_hash" text NOT NULL,
	"response_body" text NOT NULL,
	"session_id" text collate "C",
	"create_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "idempotency_keys_pkey" PRIMARY KEY("app_name","user_id","scope","key")
);
--> statement-breakpoint
CREATE TABLE "invocation_tapes" (
	"app_name" text collate "C" NOT NULL,
	"user_id" text collate "C" NOT NULL,
	"session_id" text collate "C" NOT NULL,
	"invocation_id" text collate "C" NOT NULL,
	"start" integer NOT NULL,
	"payload" jsonb NOT NULL,
	CONSTRAINT "invocation_tapes_pkey" PRIMARY KEY("app_name","user_id","session_id","invocation_id","start")
);
--> statement-breakpoint
CREATE TABLE "invocations" (
	"app_name" text collate "C" NOT NULL,
	"user_id" text collate "C" NOT NULL,
	"session_id" text collate "C" NOT NULL,
	"id" text collate "C" NOT NULL,
	"status" text NOT NULL,
	"lease_token" uuid NOT NULL,
	"lease_expire_time" timestamp (6) with time zone NOT NULL,
	"idempotency_key" text collate "C",
	"request_hash" text,
	"request" jsonb,
	"agent_version" text,
	"attempt" smallint DEFAULT 1 NOT NULL,
	"webhook_url" text,
	"response_body" text,
	"error_code" text,
	"error_message" text,
	"stop_requested_as" text,
	"tool_calls" integer DEFAULT 0 NOT NULL,
	"llm_calls" integer DEFAULT 0 NOT NULL,
	"prompt_tokens" integer DEFAULT 0 NOT NULL,
	"output_tokens" integer DEFAULT 0 NOT NULL,
	"create_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	"start_time" timestamp (6) with time zone,
	"end_time" timestamp (6) with time zone,
	CONSTRAINT "invocations_pkey" PRIMARY KEY("app_name","user_id","session_id","id"),
	CONSTRAINT "invocations_status_check" CHECK (status in ('queued', 'running', 'paused', 'succeeded', 'failed', 'interrupted', 'cancelled')),
	CONSTRAINT "invocations_counts_check" CHECK (least(tool_calls, llm_calls, prompt_tokens, output_tokens) >= 0),
	CONSTRAINT "invocations_stop_requested_as_check" CHECK (stop_requested_as in ('cancelled', 'interrupted'))
);
--> statement-breakpoint
CREATE TABLE "legal_holds" (
	"app_name" text collate "C" NOT NULL,
	"user_id" text collate "C" NOT NULL,
	"session_id" text collate "C" NOT NULL,
	"reason" text NOT NULL,
	"create_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "legal_holds_pkey" PRIMARY KEY("app_name","user_id","session_id")
);
--> statement-breakpoint
CREATE TABLE "memories" (
	"app_name" text collate "C" NOT NULL,
	"user_id" text collate "C" NOT NULL,
	"session_id" text collate "C" NOT NULL,
	"event_id" text collate "C" NOT NULL,
	"author" text NOT NULL,
	"content" jsonb NOT NULL,
	"event_time" timestamp (6) with time zone NOT NULL,
	"search_vector" "tsvector" NOT NULL,
	"embedding" real[],
	"embedding_model" text,
	CONSTRAINT "memories_pkey" PRIMARY KEY("app_name","user_id","session_id","event_id")
);
--> statement-breakpoint
CREATE TABLE "model_prices" (
	"model" text collate "C" PRIMARY KEY NOT NULL,
	"prompt_price" numeric NOT NULL,
	"output_price" numeric NOT NULL,
	"update_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "rate_limits" (
	"key" varchar(255) PRIMARY KEY NOT NULL,
	"points" integer DEFAULT 0 NOT NULL,
	"expire" bigint
);
--> statement-breakpoint
CREATE TABLE "score_jobs" (
	"app_name" text collate "C" NOT NULL,
	"user_id" text collate "C" NOT NULL,
	"session_id" text collate "C" NOT NULL,
	"rule_id" text collate "C" NOT NULL,
	"invocation_id" text collate "C" NOT NULL,
	"due_time" timestamp (6) with time zone NOT NULL,
	"lease_token" uuid,
	"losses" smallint DEFAULT 0 NOT NULL,
	CONSTRAINT "score_jobs_pkey" PRIMARY KEY("app_name","user_id","session_id","rule_id","invocation_id")
);
--> statement-breakpoint
CREATE TABLE "score_rules" (
	"app_name" text collate "C" NOT NULL,
	"id" text collate "C" NOT NULL,
	"share" double precision NOT NULL,
	"quiet_minutes" integer,
	"definition" jsonb NOT NULL,
	"day" date,
	"scored" integer DEFAULT 0 NOT NULL,
	"skipped" bigint DEFAULT 0 NOT NULL,
	"update_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "score_rules_pkey" PRIMARY KEY("app_name","id"),
	CONSTRAINT "score_rules_share_check" CHECK (share between 0 and 1)
);
--> statement-breakpoint
CREATE TABLE "session_verdicts" (
	"app_name" text collate "C" NOT NULL,
	"user_id" text collate "C" NOT NULL,
	"session_id" text collate "C" NOT NULL,
	"event_id" text collate "C" NOT NULL,
	"author" text collate "C" NOT NULL,
	"passed" boolean,
	"label" text collate "C",
	"comment" text,
	"create_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "session_verdicts_pkey" PRIMARY KEY("app_name","user_id","session_id","event_id","author")
);
--> statement-breakpoint
CREATE TABLE "sessions" (
	"app_name" text collate "C" NOT NULL,
	"user_id" text collate "C" NOT NULL,
	"id" text collate "C" NOT NULL,
	"state" jsonb DEFAULT '{}'::jsonb NOT NULL,
	"initial_state" jsonb DEFAULT '{}'::jsonb NOT NULL,
	"last_sequence" integer DEFAULT 0 NOT NULL,
	"event_bytes" bigint DEFAULT 0 NOT NULL,
	"events_version" integer DEFAULT 0 NOT NULL,
	"is_eval" boolean DEFAULT false NOT NULL,
	"labels" jsonb DEFAULT '{}'::jsonb NOT NULL,
	"first_text" text DEFAULT '' NOT NULL,
	"forked_from_id" text collate "C",
	"forked_from_sequence" integer,
	"lease_token" uuid,
	"create_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	"update_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "sessions_pkey" PRIMARY KEY("app_name","user_id","id"),
	CONSTRAINT "sessions_last_sequence_check" CHECK (last_sequence >= 0)
);
--> statement-breakpoint
CREATE TABLE "signals" (
	"app_name" text collate "C" NOT NULL,
	"user_id" text collate "C" NOT NULL,
	"session_id" text collate "C" NOT NULL,
	"id" text collate "C" NOT NULL,
	"name" text collate "C" NOT NULL,
	"payload" jsonb NOT NULL,
	"sender_groups" text[],
	"create_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "signals_pkey" PRIMARY KEY("app_name","user_id","session_id","id")
);
--> statement-breakpoint
CREATE TABLE "spans" (
	"app_name" text collate "C" NOT NULL,
	"user_id" text collate "C" NOT NULL,
	"session_id" text collate "C" NOT NULL,
	"trace_id" text collate "C" NOT NULL,
	"id" text collate "C" NOT NULL,
	"parent_id" text collate "C",
	"event_id" text collate "C",
	"name" text NOT NULL,
	"start_ns" bigint NOT NULL,
	"end_ns" bigint NOT NULL,
	"attributes" jsonb NOT NULL,
	"create_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "spans_pkey" PRIMARY KEY("app_name","user_id","session_id","trace_id","id")
);
--> statement-breakpoint
CREATE TABLE "tasks" (
	"app_name" text collate "C" NOT NULL,
	"user_id" text collate "C" NOT NULL,
	"session_id" text collate "C" NOT NULL,
	"id" text collate "C" NOT NULL,
	"invocation_id" text collate "C" NOT NULL,
	"call_id" text collate "C" NOT NULL,
	"call_name" text NOT NULL,
	"kind" text NOT NULL,
	"state" text DEFAULT 'open' NOT NULL,
	"form" jsonb NOT NULL,
	"rules" jsonb DEFAULT '{}'::jsonb NOT NULL,
	"assigned_users" text[] DEFAULT '{}' NOT NULL,
	"assigned_groups" text[] DEFAULT '{}' NOT NULL,
	"approvals" jsonb DEFAULT '[]'::jsonb NOT NULL,
	"comments" jsonb DEFAULT '[]'::jsonb NOT NULL,
	"signal_name" text collate "C",
	"token_hash" text,
	"token_expire_time" timestamp (6) with time zone,
	"expire_time" timestamp (6) with time zone,
	"due_time" timestamp (6) with time zone,
	"reminders" smallint DEFAULT 0 NOT NULL,
	"answer" jsonb,
	"decided_by" text,
	"decided_via" text,
	"decide_time" timestamp (6) with time zone,
	"version" integer DEFAULT 1 NOT NULL,
	"create_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "tasks_pkey" PRIMARY KEY("app_name","user_id","session_id","id"),
	CONSTRAINT "tasks_kind_check" CHECK (kind in ('confirmation', 'effect', 'question', 'call', 'sleep', 'signal', 'budget')),
	CONSTRAINT "tasks_state_check" CHECK (state in ('open', 'answered', 'done', 'cancelled')),
	CONSTRAINT "tasks_decided_via_check" CHECK (decided_via in ('tasks', 'run', 'signal', 'deadline')),
	CONSTRAINT "tasks_decided_check" CHECK ((state in ('answered', 'done')) = (decide_time is not null))
);
--> statement-breakpoint
CREATE TABLE "tool_calls" (
	"app_name" text collate "C" NOT NULL,
	"user_id" text collate "C" NOT NULL,
	"session_id" text collate "C" NOT NULL,
	"invocation_id" text collate "C" NOT NULL,
	"call_id" text collate "C" NOT NULL,
	"operation_id" uuid NOT NULL,
	"tool" text NOT NULL,
	"effect" text NOT NULL,
	"state" text NOT NULL,
	"attempt" smallint DEFAULT 1 NOT NULL,
	"response" jsonb,
	"create_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	"update_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "tool_calls_pkey" PRIMARY KEY("app_name","user_id","session_id","invocation_id","call_id"),
	CONSTRAINT "tool_calls_effect_check" CHECK (effect in ('none', 'idempotent', 'once', 'transactional')),
	CONSTRAINT "tool_calls_state_check" CHECK (state in ('started', 'done', 'unknown', 'settled'))
);
--> statement-breakpoint
CREATE TABLE "user_credentials" (
	"app_name" text collate "C" NOT NULL,
	"user_id" text collate "C" NOT NULL,
	"resource" text collate "C" NOT NULL,
	"grant_sealed" text,
	"lease_expire_time" timestamp (6) with time zone,
	"consent_sealed" text,
	"consent_session_id" text collate "C",
	"consent_state_hash" "bytea",
	"consent_expire_time" timestamp (6) with time zone,
	"update_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "user_credentials_pkey" PRIMARY KEY("app_name","user_id","resource"),
	CONSTRAINT "user_credentials_consent_check" CHECK (num_nulls(consent_sealed, consent_session_id, consent_state_hash, consent_expire_time) in (0, 4))
);
--> statement-breakpoint
CREATE TABLE "user_erasures" (
	"app_name" text collate "C" NOT NULL,
	"user_id" text collate "C" NOT NULL,
	"counts" jsonb DEFAULT '{}'::jsonb NOT NULL,
	"webhook_id" text,
	"create_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	"update_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "user_erasures_pkey" PRIMARY KEY("app_name","user_id")
);
--> statement-breakpoint
CREATE TABLE "user_states" (
	"app_name" text collate "C" NOT NULL,
	"user_id" text collate "C" NOT NULL,
	"state" jsonb NOT NULL,
	"update_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "user_states_pkey" PRIMARY KEY("app_name","user_id")
);
--> statement-breakpoint
CREATE TABLE "user_storage" (
	"app_name" text collate "C" NOT NULL,
	"user_id" text collate "C" NOT NULL,
	"shard" smallint NOT NULL,
	"event_bytes" bigint NOT NULL,
	"artifact_bytes" bigint NOT NULL,
	"memory_bytes" bigint NOT NULL,
	CONSTRAINT "user_storage_pkey" PRIMARY KEY("app_name","user_id","shard")
);
--> statement-breakpoint
CREATE TABLE "webhook_deliveries" (
	"app_name" text collate "C" NOT NULL,
	"user_id" text collate "C" NOT NULL,
	"id" text collate "C" NOT NULL,
	"webhook_id" text collate "C" NOT NULL,
	"host" text NOT NULL,
	"payload" text NOT NULL,
	"status" text NOT NULL,
	"attempt" integer DEFAULT 0 NOT NULL,
	"next_attempt_time" timestamp (6) with time zone,
	"lease_token" uuid,
	"losses" smallint DEFAULT 0 NOT NULL,
	"retry_end_time" timestamp (6) with time zone NOT NULL,
	"answers" jsonb DEFAULT '[]'::jsonb NOT NULL,
	"create_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	"end_time" timestamp (6) with time zone,
	CONSTRAINT "webhook_deliveries_pkey" PRIMARY KEY("app_name","user_id","id"),
	CONSTRAINT "webhook_deliveries_attempt_check" CHECK (attempt >= 0),
	CONSTRAINT "webhook_deliveries_status_check" CHECK (status in ('pending', 'delivered', 'failed')),
	CONSTRAINT "webhook_deliveries_wait_check" CHECK ((status = 'pending') = (next_attempt_time is not null)),
	CONSTRAINT "webhook_deliveries_lease_check" CHECK (lease_token is null or status = 'pending'),
	CONSTRAINT "webhook_deliveries_end_check" CHECK ((status = 'pending') = (end_time is null))
);
--> statement-breakpoint
CREATE TABLE "webhooks" (
	"app_name" text collate "C" NOT NULL,
	"user_id" text collate "C" NOT NULL,
	"id" text collate "C" NOT NULL,
	"url" text NOT NULL,
	"host" text NOT NULL,
	"includes_output" boolean NOT NULL,
	"secret" text NOT NULL,
	"old_secret" text,
	"old_secret_expire_time" timestamp (6) with time zone,
	"is_silent" boolean DEFAULT true NOT NULL,
	"push" jsonb,
	"create_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "webhooks_pkey" PRIMARY KEY("app_name","user_id","id"),
	CONSTRAINT "webhooks_old_secret_check" CHECK ((old_secret is null) = (old_secret_expire_time is null))
);
--> statement-breakpoint
ALTER TABLE "artifact_versions" ADD CONSTRAINT "artifact_versions_artifact_fkey" FOREIGN KEY ("app_name","user_id","session_id","artifact_name") REFERENCES "public"."artifacts"("app_name","user_id","session_id","name") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "cronjob_runs" ADD CONSTRAINT "cronjob_runs_cronjob_fkey" FOREIGN KEY ("app_name","user_id","cronjob_id") REFERENCES "public"."cronjobs"("app_name","user_id","id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "eval_cases" ADD CONSTRAINT "eval_cases_set_fkey" FOREIGN KEY ("app_name","eval_set_id") REFERENCES "public"."eval_sets"("app_name","id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "eval_cases" ADD CONSTRAINT "eval_cases_version_fkey" FOREIGN KEY ("app_name","eval_set_id","id","version") REFERENCES "public"."eval_case_versions"("app_name","eval_set_id","eval_id","version") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "eval_run_cases" ADD CONSTRAINT "eval_run_cases_run_fkey" FOREIGN KEY ("app_name","run_id") REFERENCES "public"."eval_runs"("app_name","id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "eval_run_cases" ADD CONSTRAINT "eval_run_cases_version_fkey" FOREIGN KEY ("app_name","eval_set_id","eval_id","case_version") REFERENCES "public"."eval_case_versions"("app_name","eval_set_id","eval_id","version") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "eval_session_scores" ADD CONSTRAINT "eval_session_scores_session_fkey" FOREIGN KEY ("app_name","user_id","session_id") REFERENCES "public"."sessions"("app_name","user_id","id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "eval_verdicts" ADD CONSTRAINT "eval_verdicts_session_fkey" FOREIGN KEY ("app_name","user_id","session_id") REFERENCES "public"."sessions"("app_name","user_id","id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "event_deltas" ADD CONSTRAINT "event_deltas_session_fkey" FOREIGN KEY ("app_name","user_id","session_id") REFERENCES "public"."sessions"("app_name","user_id","id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "events" ADD CONSTRAINT "events_session_fkey" FOREIGN KEY ("app_name","user_id","session_id") REFERENCES "public"."sessions"("app_name","user_id","id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "invocation_tapes" ADD CONSTRAINT "invocation_tapes_invocation_fkey" FOREIGN KEY ("app_name","user_id","session_id","invocation_id") REFERENCES "public"."invocations"("app_name","user_id","session_id","id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "invocations" ADD CONSTRAINT "invocations_session_fkey" FOREIGN KEY ("app_name","user_id","session_id") REFERENCES "public"."sessions"("app_name","user_id","id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "session_verdicts" ADD CONSTRAINT "session_verdicts_session_fkey" FOREIGN KEY ("app_name","user_id","session_id") REFERENCES "public"."sessions"("app_name","user_id","id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "signals" ADD CONSTRAINT "signals_session_fkey" FOREIGN KEY ("app_name","user_id","session_id") REFERENCES "public"."sessions"("app_name","user_id","id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "tasks" ADD CONSTRAINT "tasks_invocation_fkey" FOREIGN KEY ("app_name","user_id","session_id","invocation_id") REFERENCES "public"."invocations"("app_name","user_id","session_id","id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "tool_calls" ADD CONSTRAINT "tool_calls_invocation_fkey" FOREIGN KEY ("app_name","user_id","session_id","invocation_id") REFERENCES "public"."invocations"("app_name","user_id","session_id","id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "webhook_deliveries" ADD CONSTRAINT "webhook_deliveries_webhook_fkey" FOREIGN KEY ("app_name","user_id","webhook_id") REFERENCES "public"."webhooks"("app_name","user_id","id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "agent_prompts_age_idx" ON "agent_prompts" USING btree ("use_time");--> statement-breakpoint
CREATE INDEX "audit_log_time_idx" ON "audit_log" USING btree ("time");--> statement-breakpoint
CREATE INDEX "budget_uses_day_idx" ON "budget_uses" USING btree ("app_name","day");--> statement-breakpoint
CREATE INDEX "cronjob_runs_waiting_idx" ON "cronjob_runs" USING btree ("next_attempt_time") WHERE status in ('queued', 'retrying');--> statement-breakpoint
CREATE INDEX "cronjob_runs_running_idx" ON "cronjob_runs" USING btree ("lease_expire_time") WHERE status = 'running';--> statement-breakpoint
CREATE INDEX "cronjobs_due_idx" ON "cronjobs" USING btree ("next_run_time") WHERE enabled;--> statement-breakpoint
CREATE UNIQUE INDEX "cronjobs_id_idx" ON "cronjobs" USING btree ("id");--> statement-breakpoint
CREATE INDEX "cronjobs_list_idx" ON "cronjobs" USING btree ("user_id","create_time" DESC NULLS FIRST,"id" DESC NULLS FIRST);--> statement-breakpoint
CREATE INDEX "memory_jobs_due_idx" ON "memory_jobs" USING btree ("due_time");--> statement-breakpoint
CREATE INDEX "eval_case_versions_owner_idx" ON "eval_case_versions" USING btree ("app_name","owner_id");--> statement-breakpoint
CREATE INDEX "eval_case_versions_quoted_idx" ON "eval_case_versions" USING hash ((payload #>> '{sessionInput,userId}'));--> statement-breakpoint
CREATE INDEX "eval_cases_owner_idx" ON "eval_cases" USING btree ("app_name","owner_id");--> statement-breakpoint
CREATE INDEX "eval_cases_source_idx" ON "eval_cases" USING btree ("app_name","source_user_id","source_session_id");--> statement-breakpoint
CREATE INDEX "eval_run_cases_open_idx" ON "eval_run_cases" USING btree ("app_name","run_id","place","trial") WHERE status in ('waiting', 'running');--> statement-breakpoint
CREATE INDEX "eval_run_cases_running_idx" ON "eval_run_cases" USING btree ("owner_id") WHERE status = 'running';--> statement-breakpoint
CREATE INDEX "eval_run_cases_version_idx" ON "eval_run_cases" USING btree ("app_name","eval_set_id","eval_id","case_version");--> statement-breakpoint
CREATE INDEX "eval_run_cases_user_idx" ON "eval_run_cases" USING btree ("app_name","session_user_id");--> statement-breakpoint
CREATE INDEX "eval_run_cases_owner_idx" ON "eval_run_cases" USING btree ("app_name","owner_id");--> statement-breakpoint
CREATE INDEX "eval_runs_list_idx" ON "eval_runs" USING btree ("app_name","requested_by","result_time");--> statement-breakpoint
CREATE INDEX "eval_runs_set_idx" ON "eval_runs" USING btree ("app_name","eval_set_id","result_time");--> statement-breakpoint
CREATE INDEX "eval_runs_open_idx" ON "eval_runs" USING btree ("create_time") WHERE status in ('queued', 'running');--> statement-breakpoint
CREATE INDEX "eval_session_scores_list_idx" ON "eval_session_scores" USING btree ("app_name","create_time");--> statement-breakpoint
CREATE INDEX "eval_sets_owner_idx" ON "eval_sets" USING btree ("app_name","owner_id","id");--> statement-breakpoint
CREATE INDEX "idempotency_keys_age_idx" ON "idempotency_keys" USING btree ("create_time");--> statement-breakpoint
CREATE INDEX "idempotency_keys_session_idx" ON "idempotency_keys" USING btree ("app_name","user_id","session_id") WHERE session_id is not null;--> statement-breakpoint
CREATE UNIQUE INDEX "invocations_idempotency_key" ON "invocations" USING btree ("app_name","user_id","idempotency_key") WHERE idempotency_key is not null;--> statement-breakpoint
CREATE INDEX "invocations_lease_idx" ON "invocations" USING btree ("lease_expire_time") WHERE status = 'running';--> statement-breakpoint
CREATE INDEX "invocations_waiters_idx" ON "invocations" USING btree ("lease_expire_time") WHERE status = 'queued' and request is null;--> statement-breakpoint
CREATE INDEX "invocations_key_age_idx" ON "invocations" USING btree ("create_time") WHERE idempotency_key is not null;--> statement-breakpoint
CREATE INDEX "invocations_background_idx" ON "invocations" USING btree ("create_time") WHERE status = 'queued' and request is not null;--> statement-breakpoint
CREATE INDEX "invocations_left_idx" ON "invocations" USING btree ("lease_expire_time") WHERE status = 'queued' and request is not null and start_time is not null;--> statement-breakpoint
CREATE INDEX "invocations_queue_idx" ON "invocations" USING btree ("app_name","user_id","session_id","create_time") WHERE status = 'queued';--> statement-breakpoint
CREATE INDEX "invocations_time_idx" ON "invocations" USING btree ("create_time","app_name");--> statement-breakpoint
CREATE INDEX "memories_embedding_idx" ON "memories" USING btree ("app_name","user_id","event_time") WHERE embedding is not null;--> statement-breakpoint
CREATE INDEX "memories_search_idx" ON "memories" USING gin ((search_vector || array_to_tsvector(array[md5(app_name || chr(1) || user_id)])));--> statement-breakpoint
CREATE INDEX "score_jobs_due_idx" ON "score_jobs" USING btree ("app_name","rule_id","due_time");--> statement-breakpoint
CREATE INDEX "score_jobs_lease_idx" ON "score_jobs" USING btree ("lease_token") WHERE lease_token is not null;--> statement-breakpoint
CREATE INDEX "session_verdicts_list_idx" ON "session_verdicts" USING btree ("app_name","create_time");--> statement-breakpoint
CREATE INDEX "sessions_list_idx" ON "sessions" USING btree ("app_name","user_id","update_time" DESC NULLS FIRST,"id" DESC NULLS FIRST) WHERE not is_eval;--> statement-breakpoint
CREATE INDEX "sessions_created_idx" ON "sessions" USING btree ("app_name","user_id","create_time" DESC NULLS FIRST,"id" DESC NULLS FIRST) WHERE not is_eval;--> statement-breakpoint
CREATE INDEX "spans_session_idx" ON "spans" USING btree ("app_name","session_id","start_ns");--> statement-breakpoint
CREATE INDEX "spans_event_idx" ON "spans" USING btree ("app_name","event_id");--> statement-breakpoint
CREATE INDEX "spans_age_idx" ON "spans" USING btree ("create_time");--> statement-breakpoint
CREATE INDEX "tasks_id_idx" ON "tasks" USING btree ("id");--> statement-breakpoint
CREATE INDEX "tasks_invocation_idx" ON "tasks" USING btree ("app_name","user_id","session_id","invocation_id","call_id");--> statement-breakpoint
CREATE INDEX "tasks_due_idx" ON "tasks" USING btree ("due_time") WHERE due_time is not null;--> statement-breakpoint
CREATE INDEX "tasks_token_idx" ON "tasks" USING btree ("token_hash") WHERE token_hash is not null;--> statement-breakpoint
CREATE INDEX "tasks_list_idx" ON "tasks" USING btree ("state",coalesce(expire_time, timestamptz '9999-12-31 00:00:00Z'),"id");--> statement-breakpoint
CREATE INDEX "tasks_people_idx" ON "tasks" USING gin ("assigned_users","assigned_groups","approvals" jsonb_path_ops,"comments" jsonb_path_ops);--> statement-breakpoint
CREATE INDEX "tasks_decided_idx" ON "tasks" USING btree ("decided_by") WHERE decided_by is not null;--> statement-breakpoint
CREATE INDEX "tasks_user_idx" ON "tasks" USING btree ("user_id","app_name","state");--> statement-breakpoint
CREATE INDEX "tool_calls_unknown_idx" ON "tool_calls" USING btree ("app_name","user_id","create_time","call_id") WHERE state = 'unknown';--> statement-breakpoint
CREATE UNIQUE INDEX "user_credentials_state_idx" ON "user_credentials" USING btree ("consent_state_hash");--> statement-breakpoint
CREATE INDEX "user_erasures_age_idx" ON "user_erasures" USING btree ("update_time");--> statement-breakpoint
CREATE INDEX "webhook_deliveries_due_idx" ON "webhook_deliveries" USING btree ("next_attempt_time") WHERE status = 'pending';--> statement-breakpoint
CREATE INDEX "webhook_deliveries_pending_idx" ON "webhook_deliveries" USING btree ("app_name","user_id") WHERE status = 'pending';--> statement-breakpoint
CREATE INDEX "webhook_deliveries_list_idx" ON "webhook_deliveries" USING btree ("app_name","user_id","webhook_id","create_time" DESC NULLS FIRST,"id" DESC NULLS FIRST);--> statement-breakpoint
CREATE UNIQUE INDEX "webhooks_url_key" ON "webhooks" USING btree ("app_name","user_id","url") WHERE push is null;--> statement-breakpoint
CREATE UNIQUE INDEX "webhooks_id_idx" ON "webhooks" USING btree ("id");--> statement-breakpoint
CREATE INDEX "webhooks_list_idx" ON "webhooks" USING btree ("user_id","create_time");--> statement-breakpoint
comment on table agent_prompts is 'What agents give their models beside the conversation, each once per application: a replay names what has changed since. Forgotten after 90 days without use.';
comment on column agent_prompts.app_name is 'The application.';
comment on column agent_prompts.hash is 'SHA-256 of the whole prompt, hexadecimal; tapes name it.';
comment on column agent_prompts.payload is 'Agent, instruction (a template; absent where a request brought its own, which then stands in its tape), tools as declared, model and sampling.';
comment on column agent_prompts.use_time is 'When it was last used, to the day.';
comment on table agent_versions is 'Applications as they were deployed, each version once; the newest 1,000 of each are kept.';
comment on column agent_versions.app_name is 'Application.';
comment on column agent_versions.create_time is 'When it was deployed for the first time.';
comment on column agent_versions.definition is 'Runtime, models, agents with their instructions and tools, by name; no secrets.';
comment on column agent_versions.digest is 'SHA-256 of the definition as canonical JSON, hexadecimal.';
comment on table app_states is 'State keys with the prefix app:, shared by all users of an application.';
comment on column app_states.app_name is 'Application.';
comment on column app_states.state is 'Keys with their prefix; merged in SQL.';
comment on column app_states.update_time is 'Last merge.';
comment on column app_states.writers is 'For each key that an agent wrote last, the user in whose session it did; the others are the operator''s.';
comment on table artifact_versions is 'The versions of the artifacts and their content.';
comment on column artifact_versions.app_name is 'Application.';
comment on column artifact_versions.user_id is 'Owner.';
comment on column artifact_versions.session_id is 'Session, or empty for an artifact of the user.';
comment on column artifact_versions.artifact_name is 'Artifact name.';
comment on column artifact_versions.version is '0, 1, 2 … per artifact.';
comment on column artifact_versions.canonical_uri is 'Where the content is.';
comment on column artifact_versions.mime_type is 'MIME type of the content.';
comment on column artifact_versions.custom_metadata is 'Free-form members given at the save.';
comment on column artifact_versions.part is 'The part as it was sent, without its bytes.';
comment on column artifact_versions.content is 'The bytes; null for a reference to a file elsewhere.';
comment on column artifact_versions.object_key is 'Key of the content in the object store; null where the content is in this row.';
comment on column artifact_versions.size_bytes is 'Length of the content in bytes.';
comment on column artifact_versions.sha256 is 'SHA-256 of the content.';
comment on column artifact_versions.create_time is 'When the version was saved.';
comment on table artifacts is 'One row per artifact name and scope; its row lock hands out the version numbers.';
comment on column artifacts.app_name is 'Application.';
comment on column artifacts.user_id is 'Owner.';
comment on column artifacts.session_id is 'Session, or empty for an artifact of the user (name begins with user:).';
comment on column artifacts.name is 'Artifact name as it was sent.';
comment on column artifacts.next_version is 'Number of the next version; only rises, also after a delete.';
comment on table audit_log is 'Who was allowed or refused what, without content. Appended and read by the service, which may not change it.';
comment on column audit_log.id is 'Order of the entries; has gaps.';
comment on column audit_log."time" is 'When the entry was stored: of what was allowed to change something before it began, of the rest within a second.';
comment on column audit_log.caller_kind is 'user: of a token; key: holder of a runtime key; anonymous: mode local; unknown: refused before anybody was known.';
comment on column audit_log.caller is 'User of the token or id of the key; null for keys of RUNTIME_API_KEYS, which have none.';
comment on column audit_log.address is 'Address of the client, as TRUSTED_PROXIES lets it be known.';
comment on column audit_log.operation is 'operationId of the document; null for what was refused before that was known.';
comment on column audit_log.resource is 'What the request was about: names of its path, and the user and application of its content.';
comment on column audit_log.decision is 'allowed: the request was let begin, whatever came of it; refused.';
comment on column audit_log.reason is 'Why it was refused.';
comment on column audit_log.request_id is 'X-Request-Id of the answer.';
comment on column audit_log.left_out is 'How many refusals of the same caller were not kept before this one.';
comment on table budget_alerts is 'How much of a budget its webhook was told of, the last time.';
comment on column budget_alerts.app_name is 'Application.';
comment on column budget_alerts.user_id is 'User whose use it is; empty for that of all users.';
comment on column budget_alerts.applies_to is 'As of the budget.';
comment on column budget_alerts.period is 'As of the budget.';
comment on column budget_alerts.since is 'First day of the period in UTC.';
comment on column budget_alerts.level is '50, 80 or 100 percent.';
comment on table budget_reservations is 'What model calls under way may use at most, until they are counted.';
comment on column budget_reservations.app_name is 'Application.';
comment on column budget_reservations.user_id is 'User.';
comment on column budget_reservations.id is 'The call.';
comment on column budget_reservations.tokens is 'Prompt and output tokens.';
comment on column budget_reservations.cost is 'Their cost by the prices of then.';
comment on column budget_reservations.expire_time is 'When its process is taken for dead, and it counts no more.';
comment on table budget_totals is 'What all users of an application have used since a day, counted with budget_uses; empty on a cluster.';
comment on column budget_totals.app_name is 'Application.';
comment on column budget_totals.since is 'First day in UTC: a day for its own use, and the first of a month for that of the month.';
comment on column budget_totals.shard is 'One of several rows, so that invocations do not wait for each other.';
comment on column budget_totals.invocations is 'Invocations that began.';
comment on column budget_totals.tokens is 'Prompt, answer and thought tokens of all model calls.';
comment on column budget_totals.cost is 'Their cost by the prices of then.';
comment on table budget_uses is 'What was used, counted by the statements that begin invocations and store what models answered.';
comment on column budget_uses.app_name is 'Application.';
comment on column budget_uses.user_id is 'User.';
comment on column budget_uses.day is 'Day in UTC.';
comment on column budget_uses.shard is 'One of several rows of a day, so that invocations of one user do not wait for each other.';
comment on column budget_uses.invocations is 'Invocations that began.';
comment on column budget_uses.prompt_tokens is 'Prompt tokens of all model calls.';
comment on column budget_uses.output_tokens is 'Answer and thought tokens of all model calls.';
comment on column budget_uses.cost is 'Their cost by the prices of then.';
comment on table budgets is 'What users of an application may use in a day or a month of UTC. Read with each claim, so a change holds at once.';
comment on column budgets.app_name is 'Application.';
comment on column budgets.user_id is 'User, where it applies to one; empty otherwise.';
comment on column budgets.applies_to is 'app: all users together; users: each user without a budget of their own for the period; user: the one in user_id.';
comment on column budgets.period is 'day or month.';
comment on column budgets.max_invocations is 'Maximum number of invocations; null: no limit.';
comment on column budgets.max_tokens is 'Maximum number of prompt, answer and thought tokens; null: no limit.';
comment on column budgets.max_cost is 'Maximum cost by model_prices; null: no limit.';
comment on column budgets.webhook_id is 'Webhook that is told when 50, 80 or 100 percent are used; null for none.';
comment on column budgets.update_time is 'Last change.';
comment on table cronjob_runs is 'The runs of the cronjobs. A due time has one row, which is the claim to fire it.';
comment on column cronjob_runs.app_name is 'Application.';
comment on column cronjob_runs.user_id is 'Owner.';
comment on column cronjob_runs.cronjob_id is 'Cronjob that runs.';
comment on column cronjob_runs.id is 'Run identifier.';
comment on column cronjob_runs.due_time is 'When it was due; of a manual run, when it was requested.';
comment on column cronjob_runs.is_manual is 'Somebody requested it.';
comment on column cronjob_runs.status is 'queued, running, retrying (waits for another attempt), success, failed, cancelled or skipped.';
comment on column cronjob_runs.attempt is 'How often it was begun.';
comment on column cronjob_runs.next_attempt_time is 'When a waiting run may begin; null for others.';
comment on column cronjob_runs.lease_token is 'Token of the process that runs it; null while none does.';
comment on column cronjob_runs.lease_expire_time is 'A running run whose lease is past this time is taken over.';
comment on column cronjob_runs.losses is 'How many processes ended while they held it; with two it is given up.';
comment on column cronjob_runs.cancel_request_time is 'When somebody requested its end.';
comment on column cronjob_runs.session_id is 'Session of its last attempt.';
comment on column cronjob_runs.invocation_id is 'Invocation of its last attempt.';
comment on column cronjob_runs.output is 'Text of the answer.';
comment on column cronjob_runs.error_code is 'Why it did not succeed, a stable word.';
comment on column cronjob_runs.error_message is 'Why it did not succeed or was left out, a sentence.';
comment on column cronjob_runs.create_time is 'When it was queued.';
comment on column cronjob_runs.start_time is 'When its last attempt began.';
comment on column cronjob_runs.end_time is 'When it ended.';
comment on table cronjobs is 'Prompts that run on a schedule.';
comment on column cronjobs.app_name is 'Application that runs.';
comment on column cronjobs.user_id is 'Owner.';
comment on column cronjobs.id is 'Cronjob identifier.';
comment on column cronjobs.name is 'Name for people.';
comment on column cronjobs.prompt is 'What the user says at each run.';
comment on column cronjobs.harness is 'Overrides of the agent for each run, as they were sent; null without any.';
comment on column cronjobs.schedule is 'once, interval, daily, weekly, monthly or cron, as it goes over the wire, with its time zone.';
comment on column cronjobs.enabled is 'It fires; false where its owner or the runtime disabled it.';
comment on column cronjobs.disabled_reason is 'Why the runtime disabled it; null where its owner did.';
comment on column cronjobs.session_policy is 'new (a session of its own for each run) or fixed (one session that grows).';
comment on column cronjobs.session_id is 'The session of the policy fixed.';
comment on column cronjobs.missed_runs is 'What is done about due times that nobody ran for over a minute: skip, once or all.';
comment on column cronjobs.overlap is 'What a run does while an earlier one goes on: queue, skip or replace.';
comment on column cronjobs.max_attempts is 'How often a run is tried.';
comment on column cronjobs.retry_pause_seconds is 'Pause before the second attempt; each later one is twice as long.';
comment on column cronjobs.max_retry_pause_seconds is 'Longest pause between attempts.';
comment on column cronjobs.timeout_seconds is 'Longest time of a run; null without a limit of its own.';
comment on column cronjobs.until is 'It fires before this time only; null without an end.';
comment on column cronjobs.max_runs is 'Scheduled runs after which it is disabled; null without a limit.';
comment on column cronjobs.max_failures is 'Failed runs in a row after which it is disabled; 0 is never.';
comment on column cronjobs.next_run_time is 'When it is due next; null where it is disabled.';
comment on column cronjobs.run_count is 'Scheduled runs so far.';
comment on column cronjobs.failure_count is 'Failed runs in a row.';
comment on column cronjobs.revision is 'Rises with each change.';
comment on column cronjobs.create_time is 'When it was created.';
comment on column cronjobs.update_time is 'When it was changed last.';
comment on column cronjobs.webhook_url is 'Address of the webhook that is sent how its runs end; null without one.';
comment on table eval_case_versions is 'What evaluation cases said and say; a run is about one version of each, whatever becomes of the case.';
comment on column eval_case_versions.app_name is 'Application.';
comment on column eval_case_versions.eval_set_id is 'Set that the case belongs to.';
comment on column eval_case_versions.eval_id is 'Case.';
comment on column eval_case_versions.version is 'Rises with each write, from 1.';
comment on column eval_case_versions.hash is 'SHA-256 of the payload without its creation time, hexadecimal.';
comment on column eval_case_versions.payload is 'The case as it goes over the wire.';
comment on column eval_case_versions.create_time is 'When it was written.';
comment on column eval_case_versions.owner_id is 'Owner of the set; null for a set of nobody.';
comment on table eval_cases is 'A conversation to evaluate an application with.';
comment on column eval_cases.app_name is 'Application.';
comment on column eval_cases.eval_set_id is 'Set that the case belongs to.';
comment on column eval_cases.id is 'Case identifier, unique within its set.';
comment on column eval_cases.source_user_id is 'User of the session that the case was made from.';
comment on column eval_cases.source_session_id is 'Session that the case was made from.';
comment on column eval_cases.create_time is 'When the case was created.';
comment on column eval_cases.version is 'Its newest version.';
comment on column eval_cases.owner_id is 'Owner of the set; null for a set of nobody.';
comment on table eval_run_cases is 'The cases of evaluation runs, each trial by itself; the row is the claim to work on it.';
comment on column eval_run_cases.app_name is 'Application.';
comment on column eval_run_cases.run_id is 'Run.';
comment on column eval_run_cases.place is 'Place of the case in the run, from 1.';
comment on column eval_run_cases.trial is 'Trial of the case, from 1.';
comment on column eval_run_cases.eval_set_id is 'Set of the case.';
comment on column eval_run_cases.eval_id is 'Case.';
comment on column eval_run_cases.case_version is 'Version of the case that is run.';
comment on column eval_run_cases.status is 'waiting, running, done, error (it could not be brought to an end) or cancelled.';
comment on column eval_run_cases.session_user_id is 'User of its session.';
comment on column eval_run_cases.session_id is 'Session that it runs in; set by the first claim.';
comment on column eval_run_cases.session_count is 'How many sessions it had: a further one for each that died within a turn.';
comment on column eval_run_cases.losses is 'How many processes ended while they held it; with two it is given up.';
comment on column eval_run_cases.lease_token is 'Who may finish it; null unless it runs.';
comment on column eval_run_cases.lease_expire_time is 'When its process counts as dead unless it renews the lease.';
comment on column eval_run_cases.last_sequence is 'Last event of its session that belongs to the case.';
comment on column eval_run_cases.failed_turn is 'Turn that failed, from 0.';
comment on column eval_run_cases.error is 'Why it could not be brought to an end, a sentence.';
comment on column eval_run_cases.result is 'Scores of the case and of its turns; the turns themselves are the events of the session.';
comment on column eval_run_cases.start_time is 'When it was claimed first.';
comment on column eval_run_cases.end_time is 'When it ended.';
comment on column eval_run_cases.owner_id is 'The user who requested the run; null for one of a key or of a service without a login.';
comment on table eval_runs is 'Runs of evaluation sets.';
comment on column eval_runs.app_name is 'Application.';
comment on column eval_runs.id is 'Run.';
comment on column eval_runs.eval_set_id is 'Set that is run; it may be gone by now.';
comment on column eval_runs.requested_by is 'User of the token that requested it; null for keys and local callers.';
comment on column eval_runs.status is 'queued, running, done or cancelled.';
comment on column eval_runs.metrics is 'What the turns are scored by, as requested.';
comment on column eval_runs.user_simulator is 'How a simulated user speaks, as requested.';
comment on column eval_runs.trials is 'How often each case is run.';
comment on column eval_runs.parallelism is 'Maximum number of its cases at once, over all processes.';
comment on column eval_runs.max_judge_tokens is 'Tokens that its judges and simulated users may use.';
comment on column eval_runs.judge_tokens is 'Tokens that they have used, with what calls under way may use.';
comment on column eval_runs.agent_hash is 'SHA-256 of the description of the agent that was deployed when it was requested, hexadecimal.';
comment on column eval_runs.model_name is 'Model of that agent.';
comment on column eval_runs.result_time is 'Names its result: unique within the application, never a whole second.';
comment on column eval_runs.create_time is 'When it was requested.';
comment on column eval_runs.end_time is 'When its last case ended, or when it was cancelled.';
comment on column eval_runs.judged_run_id is 'Run whose stored turns this one judges again, without the agent; null for a run of its own.';
comment on column eval_runs.model_execution_mode is 'stored: the models say what the cases say; live: they are called.';
comment on column eval_runs.tool_execution_mode is 'stored: the tools answer what the cases say; live: they are run.';
comment on column eval_runs.summary is 'Counts of its cases and mean scores as it ended; null for cancelled and open ones.';
comment on table eval_session_scores is 'Scores of sessions that no run made, each as the session was at one of its events.';
comment on column eval_session_scores.app_name is 'Application.';
comment on column eval_session_scores.user_id is 'Owner of the session.';
comment on column eval_session_scores.session_id is 'Session.';
comment on column eval_session_scores.last_sequence is 'Last event that is part of what was scored.';
comment on column eval_session_scores.metrics_hash is 'SHA-256 of the metrics as requested, hexadecimal.';
comment on column eval_session_scores.rule_id is 'Rule that asked for it; null for a request.';
comment on column eval_session_scores.invocation_id is 'Invocation whose turn it is of; null for the whole session.';
comment on column eval_session_scores.result is 'Scores of the session and of its turns, with tokens and times.';
comment on column eval_session_scores.create_time is 'When it was scored.';
comment on table eval_sets is 'Named sets of evaluation cases of an application.';
comment on column eval_sets.app_name is 'Application.';
comment on column eval_sets.id is 'Evaluation set identifier.';
comment on column eval_sets.name is 'Name for people.';
comment on column eval_sets.description is 'Description for people.';
comment on column eval_sets.create_time is 'When the set was created.';
comment on column eval_sets.owner_id is 'The user whose token made the set, the only one who sees it with a token; null for one of a key or of a service without a login, which see all.';
comment on column eval_sets.model_execution_mode is 'That of runs that name none, as it was sent; null: live.';
comment on column eval_sets.tool_execution_mode is 'That of runs that name none, as it was sent; null: live.';
comment on table score_rules is 'Rules by which sessions are scored as users have them.';
comment on column score_rules.app_name is 'Application.';
comment on column score_rules.id is 'Rule, unique within the application.';
comment on column score_rules.share is 'Share of invocations or sessions that are scored, by a hash of their ids; 0 pauses the rule.';
comment on column score_rules.quiet_minutes is 'Minutes without the end of an invocation after which a session is scored; null: each invocation.';
comment on column score_rules.definition is 'The rule as it was requested: metrics, filter, bounds of a day, webhook.';
comment on column score_rules.day is 'Day in UTC that scored counts.';
comment on column score_rules.scored is 'Scores begun on that day.';
comment on column score_rules.skipped is 'Scores that were due and not begun, since the bound of a day was reached.';
comment on column score_rules.update_time is 'When it was saved.';
comment on table score_jobs is 'What is to be scored by a rule.';
comment on column score_jobs.app_name is 'Application.';
comment on column score_jobs.user_id is 'Owner of the session.';
comment on column score_jobs.session_id is 'Session.';
comment on column score_jobs.rule_id is 'Rule.';
comment on column score_jobs.invocation_id is 'Invocation that is scored; empty for the session.';
comment on column score_jobs.due_time is 'When it is due; with a lease, when its process is taken for dead.';
comment on column score_jobs.lease_token is 'Names the claim of the process that scores it; null while it waits.';
comment on column score_jobs.losses is 'Processes that ended while they held it.';
comment on table session_verdicts is 'What people say of a session or of one of its events.';
comment on column session_verdicts.app_name is 'Application.';
comment on column session_verdicts.user_id is 'Owner of the session.';
comment on column session_verdicts.session_id is 'Session.';
comment on column session_verdicts.event_id is 'Event that it is about; empty for the session.';
comment on column session_verdicts.author is 'Who said so: a user of a token, the id of a key, or local.';
comment on column session_verdicts.passed is 'Thumb up or down; null for none.';
comment on column session_verdicts.label is 'A word to find it by.';
comment on column session_verdicts.comment is 'In words.';
comment on column session_verdicts.create_time is 'When it was said.';
comment on table eval_verdicts is 'What people say of turns, beside the judges.';
comment on column eval_verdicts.app_name is 'Application.';
comment on column eval_verdicts.user_id is 'User of the session.';
comment on column eval_verdicts.session_id is 'Session of the case.';
comment on column eval_verdicts.turn is 'Turn of the session, from 0.';
comment on column eval_verdicts.metric_name is 'Metric that the verdict stands beside.';
comment on column eval_verdicts.author is 'Who said so: a user of a token, the id of a key, or local.';
comment on column eval_verdicts.passed is 'Whether the turn is good.';
comment on column eval_verdicts.comment is 'Why, in words.';
comment on column eval_verdicts.create_time is 'When it was said.';
comment on table event_deltas is 'Text of events that models still write, in pieces, for those who read along. The whole event replaces it.';
comment on column event_deltas.app_name is 'Application of the session.';
comment on column event_deltas.user_id is 'Owner of the session.';
comment on column event_deltas.session_id is 'Session of the event.';
comment on column event_deltas.number is 'Order of the pieces of a session: microseconds since 1970, or one more than the piece before. None is given twice.';
comment on column event_deltas.lease_token is 'The lease under which it was written. It counts while sessions.lease_token is the same.';
comment on column event_deltas.event_id is 'Identifier that the event will have.';
comment on column event_deltas.payload is 'The piece as it goes over the wire: a partial event, JSON.';
comment on table events is 'The conversation. Ordered by sequence and never by time.';
comment on column events.app_name is 'Application of the session.';
comment on column events.user_id is 'Owner of the session.';
comment on column events.session_id is 'Session that the event belongs to.';
comment on column events.sequence is '1, 2, 3 … per session, without gap or tie.';
comment on column events.id is 'Event identifier, unique within its session.';
comment on column events.invocation_id is 'Invocation that wrote the event.';
comment on column events.author is 'user, or the name of the agent that spoke.';
comment on column events.event_time is 'The timestamp of the payload; imported events keep their own.';
comment on column events.payload is 'The event as it goes over the wire. U+E000 and four hex digits stand for a code unit that jsonb refuses.';
comment on column events.is_from_runtime is 'True where this runtime made the event; false where a request brought it, whatever author it names. Events from before this column count as brought.';
comment on column events.bytes is 'Size of the payload as text, bytes.';
comment on table idempotency_keys is 'Responses to requests with an Idempotency-Key, kept for a day; those of invocations are in invocations.';
comment on column idempotency_keys.scope is 'Operation and caller.';
comment on column idempotency_keys.key is 'Idempotency-Key of the request.';
comment on column idempotency_keys.request_hash is 'SHA-256 of the request, to tell a retry from another request with the same key.';
comment on column idempotency_keys.response_body is 'The response as it was sent; a retry gets these bytes.';
comment on column idempotency_keys.create_time is 'When the request was answered.';
comment on column idempotency_keys.app_name is 'Application that the request is about; empty where it is about none.';
comment on column idempotency_keys.user_id is 'User that the request is about; empty where it is about none.';
comment on column idempotency_keys.session_id is 'Session that the request is about: when it is deleted, the answer is emptied and a retry is told that the session is not found. Null where it is about none.';
comment on table invocation_tapes is 'What a replay needs to know of an invocation beside its events: one row for each time that it ran.';
comment on column invocation_tapes.app_name is 'The application.';
comment on column invocation_tapes.user_id is 'Owner of the session.';
comment on column invocation_tapes.session_id is 'The session.';
comment on column invocation_tapes.invocation_id is 'The invocation.';
comment on column invocation_tapes.start is 'Number of events of the session when it ran, its prompt included.';
comment on column invocation_tapes.payload is 'What its request changed of the agent, the state values that instructions name, and for each model call its prompt and digests of what it was given.';
comment on table invocations is 'One prompt up to its final answer. The row is the truth about it.';
comment on column invocations.agent_version is 'Digest of the version that ran it, the last one where it went on; with +overrides where its request changed the agent. Null until it began.';
comment on column invocations.app_name is 'Application of the session.';
comment on column invocations.user_id is 'Owner of the session.';
comment on column invocations.session_id is 'Session that the invocation belongs to.';
comment on column invocations.id is 'Invocation identifier; the events it wrote carry it.';
comment on column invocations.status is 'queued, running, paused (waits for a person), succeeded, failed, interrupted or cancelled.';
comment on column invocations.lease_token is 'Token of the process that runs it; equal to sessions.lease_token while it does.';
comment on column invocations.lease_expire_time is 'A running invocation whose lease is past this time is dead and may be taken over.';
comment on column invocations.idempotency_key is 'Idempotency-Key of the request, where it had one.';
comment on column invocations.request_hash is 'SHA-256 of the request, to tell a retry from another request with the same key.';
comment on column invocations.response_body is 'The response as it was sent; a retry gets these bytes.';
comment on column invocations.error_code is 'Why it failed, a stable code.';
comment on column invocations.error_message is 'Why it failed, a sentence.';
comment on column invocations.stop_requested_as is 'cancelled or interrupted: what its process is requested to end it as.';
comment on column invocations.tool_calls is 'Tool calls made.';
comment on column invocations.llm_calls is 'Model calls made.';
comment on column invocations.prompt_tokens is 'Prompt tokens of all model calls.';
comment on column invocations.output_tokens is 'Answer and thought tokens of all model calls.';
comment on column invocations.create_time is 'When it was asked for; queued ones take their turn in this order.';
comment on column invocations.start_time is 'When it took the session.';
comment on column invocations.end_time is 'When it ended.';
comment on column invocations.request is 'What another process needs to begin it or to go on with it, as JSON; null where none can, and once it has ended.';
comment on column invocations.attempt is 'Processes that began it: one that ends with its process is taken up by another, so often.';
comment on column invocations.webhook_url is 'Address of the webhook that is sent how it ends; empty where only clients of its task are told, null without any.';
comment on table legal_holds is 'What must not be deleted, whoever wants it: all data of a user, or one session. Triggers refuse it.';
comment on column legal_holds.app_name is 'The application.';
comment on column legal_holds.user_id is 'The user.';
comment on column legal_holds.session_id is 'The session; empty for all that the user has.';
comment on column legal_holds.reason is 'Why, in the words of whoever set it.';
comment on column legal_holds.create_time is 'When it was set.';
comment on table memories is 'What was said in sessions that were added to the memory of a user; searched by words.';
comment on column memories.app_name is 'Application.';
comment on column memories.user_id is 'User.';
comment on column memories.session_id is 'Session that it was said in; the session may be deleted since.';
comment on column memories.event_id is 'Event that said it.';
comment on column memories.author is 'Who said it.';
comment on column memories.content is 'The content of the event.';
comment on column memories.event_time is 'When it was said.';
comment on column memories.search_vector is 'Its words for full-text search, configuration simple.';
comment on column memories.embedding is 'Vector of its meaning; null where there is none yet, or the model takes no such text.';
comment on column memories.embedding_model is 'Model and dimensions of the vector, or that refused the text.';
comment on table memory_jobs is 'Users some of whose memories may have no embedding yet, and invocations of which something may be remembered; none where the application asks for neither.';
comment on column memory_jobs.app_name is 'Application.';
comment on column memory_jobs.user_id is 'User.';
comment on column memory_jobs.session_id is 'Session of the invocation; empty where memories wait for embeddings.';
comment on column memory_jobs.invocation_id is 'Invocation of which something may be remembered; empty where memories wait for embeddings.';
comment on column memory_jobs.due_time is 'When the next batch is due; of one that is under way, when its process is taken for dead.';
comment on column memory_jobs.attempts is 'Attempts since the last success.';
comment on table model_prices is 'What models cost, in a currency of the operator.';
comment on column model_prices.model is 'Model as the agent calls it; * for all that have no row.';
comment on column model_prices.prompt_price is 'Price of a million prompt tokens.';
comment on column model_prices.output_price is 'Price of a million answer and thought tokens.';
comment on column model_prices.update_time is 'Last change.';
comment on table rate_limits is 'What callers did in the running minute, by classes of operations, and wrong credentials. May be emptied at any time.';
comment on column rate_limits.key is 'Class, and the digest of the caller: nobody is named.';
comment on column rate_limits.points is 'How much has been taken in the window.';
comment on column rate_limits.expire is 'End of the window, Unix time in milliseconds.';
comment on table sessions is 'One conversation of one user with one application.';
comment on column sessions.app_name is 'Application; harness_agent for the command-line deployment.';
comment on column sessions.user_id is 'Owner; a session is never seen by another user.';
comment on column sessions.id is 'Session identifier, unique per application and user.';
comment on column sessions.state is 'Keys of this session only; app: and user: keys live in app_states and user_states.';
comment on column sessions.last_sequence is 'Sequence of the newest event; every append raises it in the statement that inserts the event.';
comment on column sessions.is_eval is 'Made by an evaluation run; lists leave it out.';
comment on column sessions.lease_token is 'Fencing token of the running invocation; null while none runs. Every write of an invocation asks for it.';
comment on column sessions.create_time is 'When the session was created.';
comment on column sessions.update_time is 'Last change, by the clock of the database; never goes back.';
comment on column sessions.initial_state is 'Its own state before its first event.';
comment on column sessions.event_bytes is 'Size of all events of the session as text, bytes.';
comment on column sessions.labels is 'Names and values that clients gave it, all strings.';
comment on column sessions.first_text is 'Beginning of the first text of its user; empty where there is none yet.';
comment on column sessions.forked_from_id is 'The session of the same user that it is a copy of; that may be gone by now.';
comment on column sessions.forked_from_sequence is 'Number of events that it was copied with.';
comment on column sessions.events_version is 'Grows when somebody changes or erases stored events with SQL, so that processes forget what they keep of them. The service itself never does.';
comment on table signals is 'Signals that came before an invocation waited for them.';
comment on column signals.app_name is 'Application of the session.';
comment on column signals.user_id is 'Owner of the session.';
comment on column signals.session_id is 'The session.';
comment on column signals.id is 'Names the row.';
comment on column signals.name is 'Name of the signal.';
comment on column signals.payload is 'What it said.';
comment on column signals.sender_groups is 'Groups of the user who sent it, the owner of the session; null where a credential of the operator did.';
comment on column signals.create_time is 'When it came.';
comment on table spans is 'Traces of invocations for the development UI, kept for a bounded time.';
comment on column spans.app_name is 'Application.';
comment on column spans.user_id is 'Owner of the session.';
comment on column spans.session_id is 'Session that the invocation belongs to.';
comment on column spans.trace_id is 'Trace; one per invocation.';
comment on column spans.id is 'Span identifier.';
comment on column spans.parent_id is 'The span around this one.';
comment on column spans.event_id is 'Event that the span led to.';
comment on column spans.name is 'invocation, invoke_agent, call_llm or execute_tool, with a name.';
comment on column spans.start_ns is 'Start, Unix time in nanoseconds.';
comment on column spans.end_ns is 'End, Unix time in nanoseconds.';
comment on column spans.attributes is 'Attributes as the wire shows them.';
comment on column spans.create_time is 'When the span was stored.';
comment on table tasks is 'Calls of paused invocations that wait for a person, a time or a signal, and what became of them.';
comment on column tasks.app_name is 'Application of the session.';
comment on column tasks.user_id is 'Owner of the session.';
comment on column tasks.session_id is 'The session.';
comment on column tasks.id is 'Names the task to who answers it.';
comment on column tasks.invocation_id is 'The invocation that waits.';
comment on column tasks.call_id is 'Id of the function call that the answer goes to.';
comment on column tasks.call_name is 'Name of that function.';
comment on column tasks.kind is 'confirmation (of a call); effect (of a call that may have acted); question; call (whose tool answers later); sleep; signal.';
comment on column tasks.state is 'open; answered: its invocation waits for other answers, or for its turn; done: it has the answer; cancelled.';
comment on column tasks.form is 'What who answers it is shown: the tool, its arguments, a hint, the JSON Schema of the answer.';
comment on column tasks.rules is 'Who has to answer and what happens without: approvals, excludesRequester, remindAfter, escalateTo, defaultAnswer.';
comment on column tasks.assigned_users is 'Users that may see and answer it beside its groups; without either the owner of the session may.';
comment on column tasks.assigned_groups is 'Groups of users that may.';
comment on column tasks.approvals is 'Who has said yes so far, with times.';
comment on column tasks.comments is 'What people wrote beside it.';
comment on column tasks.signal_name is 'Name of the signal that answers it; null for another kind.';
comment on column tasks.token_hash is 'SHA-256 of the token of its public address; null where it has none.';
comment on column tasks.token_expire_time is 'Until when that address is good.';
comment on column tasks.expire_time is 'Its deadline; null where it has none.';
comment on column tasks.due_time is 'When something happens next: a reminder, the deadline, or, once answered, the way on. Null: nothing does.';
comment on column tasks.reminders is 'How many of its reminders have passed.';
comment on column tasks.answer is 'The response that the call gets; null where a message of the session brought it, unless it says yes or no to a confirmation.';
comment on column tasks.decided_by is 'Who answered; null where the deadline did.';
comment on column tasks.decided_via is 'The way of the answer: tasks, run (a message of the session), signal or deadline; null where it was imported.';
comment on column tasks.decide_time is 'When it was answered.';
comment on column tasks.version is 'Counts changes: the ETag.';
comment on column tasks.create_time is 'When the invocation paused.';
comment on table tool_calls is 'The ledger: one row for each call of a tool that has begun, or may have. What the inner calls of an agent that is a tool do stands in the row of the outer one.';
comment on column tool_calls.app_name is 'Application of the session.';
comment on column tool_calls.user_id is 'Owner of the session.';
comment on column tool_calls.session_id is 'The session.';
comment on column tool_calls.invocation_id is 'The invocation.';
comment on column tool_calls.call_id is 'Id of the function call in the events.';
comment on column tool_calls.operation_id is 'Names the call to who carries it out; every attempt has the same.';
comment on column tool_calls.tool is 'Name of the tool.';
comment on column tool_calls.effect is 'none, idempotent or once: what a second run of the call would do; transactional: committed with its response, or not at all.';
comment on column tool_calls.state is 'started; done; unknown (its process stopped or it was cut off: it may have acted); settled (a check or a person said what became of it).';
comment on column tool_calls.attempt is 'How often it was begun.';
comment on column tool_calls.response is 'What it answered, with its actions and attachments, until the event of the step has it; null: no answer is known, or the event has it.';
comment on column tool_calls.create_time is 'When it was begun.';
comment on column tool_calls.update_time is 'Last change.';
comment on table user_erasures is 'Users that are being erased. The row goes with the last of their data; until then triggers refuse new data.';
comment on column user_erasures.app_name is 'The application.';
comment on column user_erasures.user_id is 'The user.';
comment on column user_erasures.counts is 'Rows deleted so far, by table.';
comment on column user_erasures.webhook_id is 'Webhook that is told when it is done; null for none.';
comment on column user_erasures.create_time is 'When it was requested first.';
comment on column user_erasures.update_time is 'When somebody last worked on it: the sweeper takes up what was left.';
comment on table user_states is 'State keys with the prefix user:, shared by all sessions of a user in an application.';
comment on column user_states.app_name is 'Application.';
comment on column user_states.user_id is 'User.';
comment on column user_states.state is 'Keys with their prefix; merged in SQL.';
comment on column user_states.update_time is 'Last merge.';
comment on table user_credentials is 'Access to resources elsewhere that users have granted, and consents on their way; encrypted with RUNTIME_SECRET_KEY.';
comment on column user_credentials.app_name is 'Application.';
comment on column user_credentials.user_id is 'User who granted it.';
comment on column user_credentials.resource is 'Address of the resource, an MCP server.';
comment on column user_credentials.grant_sealed is 'Tokens and what renews them, encrypted; null where nothing is granted.';
comment on column user_credentials.lease_expire_time is 'Until when one process renews it; null while none does.';
comment on column user_credentials.consent_sealed is 'What the end of a consent needs, encrypted; null while none is on its way.';
comment on column user_credentials.consent_session_id is 'Session whose invocation waits for it.';
comment on column user_credentials.consent_state_hash is 'SHA-256 of the state that the browser brings back.';
comment on column user_credentials.consent_expire_time is 'Until when the browser may come back.';
comment on column user_credentials.update_time is 'Last change.';
comment on table user_storage is 'Bytes that users keep. A user has several rows, of which a connection changes one: the sum is what counts.';
comment on column user_storage.app_name is 'Application.';
comment on column user_storage.user_id is 'User.';
comment on column user_storage.shard is 'Row of the user that a connection counts in.';
comment on column user_storage.event_bytes is 'Events and states of the sessions and starts that wait, bytes of JSON; less than nothing where another row counted the bytes that went.';
comment on column user_storage.artifact_bytes is 'Versions of artifacts with their metadata, in the database or in a bucket.';
comment on column user_storage.memory_bytes is 'Memories, bytes of JSON without the index of their words.';
comment on table webhook_deliveries is 'What is sent to webhooks and how that went: the outbox. Triggers insert a row in the statement that ends an invocation or a run.';
comment on column webhook_deliveries.app_name is 'Application.';
comment on column webhook_deliveries.user_id is 'Owner.';
comment on column webhook_deliveries.id is 'Delivery identifier, the header webhook-id of every attempt.';
comment on column webhook_deliveries.webhook_id is 'Webhook that it goes to.';
comment on column webhook_deliveries.host is 'Host and port of the webhook, for the limit of each host.';
comment on column webhook_deliveries.payload is 'JSON text that is sent and signed.';
comment on column webhook_deliveries.status is 'pending, delivered or failed.';
comment on column webhook_deliveries.attempt is 'How often it was sent.';
comment on column webhook_deliveries.next_attempt_time is 'When it is sent next; while it is sent, when its process is taken for dead. Null where it has ended.';
comment on column webhook_deliveries.lease_token is 'Token of the process that sends it; null while none does.';
comment on column webhook_deliveries.losses is 'How many processes ended while they held it; with two it is given up.';
comment on column webhook_deliveries.retry_end_time is 'After this time it is not tried again.';
comment on column webhook_deliveries.answers is 'Answers to the attempts, the newest last: time, status, beginning of the body, or error.';
comment on column webhook_deliveries.create_time is 'When that happened which it tells.';
comment on column webhook_deliveries.end_time is 'When it was delivered or given up.';
comment on table webhooks is 'Addresses that users have registered for deliveries.';
comment on column webhooks.app_name is 'Application.';
comment on column webhooks.user_id is 'Owner.';
comment on column webhooks.id is 'Webhook identifier.';
comment on column webhooks.url is 'Address, as a browser writes it; requests and cronjobs name it.';
comment on column webhooks.host is 'Host and port of the address.';
comment on column webhooks.includes_output is 'Deliveries carry the beginning of the answer.';
comment on column webhooks.secret is 'Signs what is sent; begins with whsec_. Not answered again, not in any view.';
comment on column webhooks.old_secret is 'The secret before, which signs too until old_secret_expire_time; null where there is none.';
comment on column webhooks.old_secret_expire_time is 'Until when the old secret signs.';
comment on column webhooks.is_silent is 'The last attempt at its host got no answer, or there was none yet: one delivery at a time until one comes.';
comment on column webhooks.push is 'The task of A2A whose client is told of it here, with the headers to send; null for a webhook of all that names it.';
comment on column webhooks.create_time is 'When it was registered.';
