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
CREATE TABLE "skipped_runs" (
	"app_name" text collate "C" NOT NULL,
	"user_id" text collate "C" NOT NULL,
	"cronjob_id" text collate "C" NOT NULL,
	"id" text collate "C" NOT NULL,
	"due_time" timestamp (6) with time zone NOT NULL,
	"tries" smallint DEFAULT 0 NOT NULL,
	"reason" text NOT NULL,
	"create_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	"end_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "skipped_runs_pkey" PRIMARY KEY("app_name","user_id","cronjob_id","due_time"),
	CONSTRAINT "skipped_runs_tries_check" CHECK (tries >= 0)
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
CREATE TABLE "job_lanes" (
	"app_name" text collate "C" NOT NULL,
	"user_id" text collate "C" NOT NULL,
	"kind" text collate "C" NOT NULL,
	"lane" text collate "C" NOT NULL,
	"turn_time" timestamp (6) with time zone NOT NULL,
	"blocked_by" text collate "C",
	"half_open" boolean DEFAULT false NOT NULL,
	CONSTRAINT "job_lanes_pkey" PRIMARY KEY("app_name","user_id","kind","lane")
);
--> statement-breakpoint
CREATE TABLE "jobs" (
	"app_name" text collate "C" NOT NULL,
	"user_id" text collate "C" NOT NULL,
	"kind" text collate "C" NOT NULL,
	"id" text collate "C" NOT NULL,
	"lane" text collate "C" NOT NULL,
	"due_time" timestamp (6) with time zone NOT NULL,
	"attempt" integer DEFAULT 0 NOT NULL,
	"losses" smallint DEFAULT 0 NOT NULL,
	"lease_token" uuid,
	"lease_expire_time" timestamp (6) with time zone,
	"create_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "jobs_pkey" PRIMARY KEY("app_name","user_id","kind","id"),
	CONSTRAINT "jobs_lease_check" CHECK ((lease_token is null) = (lease_expire_time is null))
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
	"last_sequence" integer,
	"failed_turn" integer,
	"error" text,
	"result" jsonb,
	"start_time" timestamp (6) with time zone,
	"end_time" timestamp (6) with time zone,
	CONSTRAINT "eval_run_cases_pkey" PRIMARY KEY("app_name","run_id","place","trial"),
	CONSTRAINT "eval_run_cases_status_check" CHECK (status in ('waiting', 'running', 'done', 'error', 'cancelled')),
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
	"job" jsonb,
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
	"stop_request_time" timestamp (6) with time zone,
	"not_before" timestamp (6) with time zone,
	"cronjob_id" text collate "C",
	"run_id" text collate "C",
	"due_time" timestamp (6) with time zone,
	"is_manual" boolean,
	"try" smallint,
	"first_end_time" timestamp (6) with time zone,
	CONSTRAINT "invocations_pkey" PRIMARY KEY("app_name","user_id","session_id","id"),
	CONSTRAINT "invocations_status_check" CHECK (status in ('queued', 'running', 'paused', 'succeeded', 'failed', 'interrupted', 'cancelled')),
	CONSTRAINT "invocations_counts_check" CHECK (least(tool_calls, llm_calls, prompt_tokens, output_tokens) >= 0),
	CONSTRAINT "invocations_stop_requested_as_check" CHECK (stop_requested_as in ('cancelled', 'interrupted')),
	CONSTRAINT "invocations_run_check" CHECK (cronjob_id is null or num_nulls(run_id, due_time, is_manual, try) = 0 and try > 0)
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
	"retry_end_time" timestamp (6) with time zone NOT NULL,
	"answers" jsonb DEFAULT '[]'::jsonb NOT NULL,
	"create_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	"end_time" timestamp (6) with time zone,
	CONSTRAINT "webhook_deliveries_pkey" PRIMARY KEY("app_name","user_id","id"),
	CONSTRAINT "webhook_deliveries_attempt_check" CHECK (attempt >= 0),
	CONSTRAINT "webhook_deliveries_status_check" CHECK (status in ('pending', 'delivered', 'failed')),
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
ALTER TABLE "skipped_runs" ADD CONSTRAINT "skipped_runs_cronjob_fkey" FOREIGN KEY ("app_name","user_id","cronjob_id") REFERENCES "public"."cronjobs"("app_name","user_id","id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
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
CREATE INDEX "cronjobs_due_idx" ON "cronjobs" USING btree ("next_run_time") WHERE enabled;--> statement-breakpoint
CREATE UNIQUE INDEX "cronjobs_id_idx" ON "cronjobs" USING btree ("id");--> statement-breakpoint
CREATE INDEX "cronjobs_list_idx" ON "cronjobs" USING btree ("user_id","create_time" DESC NULLS FIRST,"id" DESC NULLS FIRST);--> statement-breakpoint
CREATE INDEX "job_lanes_turn_idx" ON "job_lanes" USING btree ("kind","app_name","turn_time") WHERE blocked_by is null;--> statement-breakpoint
CREATE INDEX "job_lanes_blocked_idx" ON "job_lanes" USING btree ("kind","blocked_by","turn_time") WHERE blocked_by is not null;--> statement-breakpoint
CREATE INDEX "jobs_lane_idx" ON "jobs" USING btree ("kind","app_name","user_id","lane","due_time","id") WHERE lease_token is null;--> statement-breakpoint
CREATE INDEX "jobs_due_idx" ON "jobs" USING btree ("kind","due_time") WHERE lease_token is null;--> statement-breakpoint
CREATE INDEX "jobs_running_idx" ON "jobs" USING btree ("kind","lease_expire_time") WHERE lease_token is not null;--> statement-breakpoint
CREATE INDEX "eval_case_versions_owner_idx" ON "eval_case_versions" USING btree ("app_name","owner_id");--> statement-breakpoint
CREATE INDEX "eval_case_versions_quoted_idx" ON "eval_case_versions" USING hash ((payload #>> '{sessionInput,userId}'));--> statement-breakpoint
CREATE INDEX "eval_cases_owner_idx" ON "eval_cases" USING btree ("app_name","owner_id");--> statement-breakpoint
CREATE INDEX "eval_cases_source_idx" ON "eval_cases" USING btree ("app_name","source_user_id","source_session_id");--> statement-breakpoint
CREATE INDEX "eval_run_cases_open_idx" ON "eval_run_cases" USING btree ("app_name","run_id","place","trial") WHERE status in ('waiting', 'running');--> statement-breakpoint
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
CREATE UNIQUE INDEX "invocations_run_key" ON "invocations" USING btree ("app_name","user_id","cronjob_id","due_time","try") WHERE cronjob_id is not null;--> statement-breakpoint
CREATE INDEX "invocations_open_runs_idx" ON "invocations" USING btree ("user_id","app_name","cronjob_id") WHERE cronjob_id is not null and first_end_time is null and status in ('queued', 'running');--> statement-breakpoint
CREATE INDEX "invocations_time_idx" ON "invocations" USING btree ("create_time","app_name");--> statement-breakpoint
CREATE INDEX "memories_embedding_idx" ON "memories" USING btree ("app_name","user_id","event_time") WHERE embedding is not null;--> statement-breakpoint
CREATE INDEX "memories_search_idx" ON "memories" USING gin ((search_vector || array_to_tsvector(array[md5(app_name || chr(1) || user_id)])));--> statement-breakpoint
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
CREATE INDEX "webhook_deliveries_pending_idx" ON "webhook_deliveries" USING btree ("app_name","user_id") WHERE status = 'pending';--> statement-breakpoint
CREATE INDEX "webhook_deliveries_list_idx" ON "webhook_deliveries" USING btree ("app_name","user_id","webhook_id","create_time" DESC NULLS FIRST,"id" DESC NULLS FIRST);--> statement-breakpoint
CREATE UNIQUE INDEX "webhooks_url_key" ON "webhooks" USING btree ("app_name","user_id","url") WHERE push is null;--> statement-breakpoint
CREATE UNIQUE INDEX "webhooks_id_idx" ON "webhooks" USING btree ("id");--> statement-breakpoint
CREATE INDEX "webhooks_list_idx" ON "webhooks" USING btree ("user_id","create_time");--> statement-breakpoint
comment on table agent_prompts is 'Prompts of agents: everything that models receive besides the conversation, each stored once per application. Replays report what changed since. Deleted after 90 days without use.';
comment on column agent_prompts.app_name is 'The application.';
comment on column agent_prompts.hash is 'SHA-256 of the whole prompt, hexadecimal; invocation_tapes refer to it.';
comment on column agent_prompts.payload is 'Agent, instruction template, declared tools, model and sampling. The instruction is absent if a request overrode it; then it is in the invocation_tapes.';
comment on column agent_prompts.use_time is 'Day of the last use.';
comment on table agent_versions is 'Deployed versions of applications, each once; the newest 1,000 per application are kept.';
comment on column agent_versions.app_name is 'Application.';
comment on column agent_versions.create_time is 'First deployment.';
comment on column agent_versions.definition is 'Runtime, models, agents with their instructions and tools, by name; no secrets.';
comment on column agent_versions.digest is 'SHA-256 of the definition as canonical JSON, hexadecimal.';
comment on table app_states is 'State keys with the prefix app:, shared by all users of an application.';
comment on column app_states.app_name is 'Application.';
comment on column app_states.state is 'Keys with their prefix; merged in SQL.';
comment on column app_states.update_time is 'Last merge.';
comment on column app_states.writers is 'By key: the user in whose session an agent last wrote it. Keys without an entry were written by the operator.';
comment on table artifact_versions is 'Versions of artifacts with their content.';
comment on column artifact_versions.app_name is 'Application.';
comment on column artifact_versions.user_id is 'Owner.';
comment on column artifact_versions.session_id is 'Session, or empty for an artifact of the user.';
comment on column artifact_versions.artifact_name is 'Artifact name.';
comment on column artifact_versions.version is '0, 1, 2 … per artifact.';
comment on column artifact_versions.canonical_uri is 'URI of the content.';
comment on column artifact_versions.mime_type is 'MIME type of the content.';
comment on column artifact_versions.custom_metadata is 'Free-form members sent with the save.';
comment on column artifact_versions.part is 'The part as it was sent, without its bytes.';
comment on column artifact_versions.content is 'The bytes; null if they are in the object store, or the part references a file elsewhere.';
comment on column artifact_versions.object_key is 'Key of the content in the object store; null if it is not stored there.';
comment on column artifact_versions.size_bytes is 'Length of the content in bytes.';
comment on column artifact_versions.sha256 is 'SHA-256 of the content.';
comment on column artifact_versions.create_time is 'When the version was saved.';
comment on table artifacts is 'One row per artifact name and scope; version numbers are assigned under its row lock.';
comment on column artifacts.app_name is 'Application.';
comment on column artifacts.user_id is 'Owner.';
comment on column artifacts.session_id is 'Session, or empty for an artifact of the user (name begins with user:).';
comment on column artifacts.name is 'Artifact name as it was sent.';
comment on column artifacts.next_version is 'Number of the next version; never reused, even after a delete.';
comment on table audit_log is 'Access decisions, without content. The service may insert and read but not change them.';
comment on column audit_log.id is 'Order of the entries; has gaps.';
comment on column audit_log."time" is 'When the entry was stored: before the request for an allowed change, within a second otherwise.';
comment on column audit_log.caller_kind is 'user: token; key: API key; anonymous: local mode; unknown: refused before authentication.';
comment on column audit_log.caller is 'User of the token or id of the key; null for keys of RUNTIME_API_KEYS, which have no id.';
comment on column audit_log.address is 'Address of the client, determined with TRUSTED_PROXIES.';
comment on column audit_log.operation is 'operationId of the OpenAPI document; null if refused before routing.';
comment on column audit_log.resource is 'Names in the path, and the user and application in the body.';
comment on column audit_log.decision is 'allowed (the request was executed, with any result) or refused.';
comment on column audit_log.reason is 'Why it was refused.';
comment on column audit_log.request_id is 'X-Request-Id of the answer.';
comment on column audit_log.left_out is 'Refusals of the same caller that were not logged before this entry.';
comment on table budget_alerts is 'The level of a budget last reported to its webhook.';
comment on column budget_alerts.app_name is 'Application.';
comment on column budget_alerts.user_id is 'User of the budget; empty for all users.';
comment on column budget_alerts.applies_to is 'Same as in budgets.';
comment on column budget_alerts.period is 'Same as in budgets.';
comment on column budget_alerts.since is 'First day of the period in UTC.';
comment on column budget_alerts.level is '50, 80 or 100 percent.';
comment on table budget_reservations is 'Maximum use by running model calls, until it is counted.';
comment on column budget_reservations.app_name is 'Application.';
comment on column budget_reservations.user_id is 'User.';
comment on column budget_reservations.id is 'Id of the model call.';
comment on column budget_reservations.tokens is 'Prompt and output tokens.';
comment on column budget_reservations.cost is 'Their cost at the prices of that time.';
comment on column budget_reservations.expire_time is 'When the reservation ends, unless its process renews it.';
comment on table budget_totals is 'Total use by all users of an application since a day, counted along with budget_uses; empty in a distributed database.';
comment on column budget_totals.app_name is 'Application.';
comment on column budget_totals.since is 'First day in UTC: a day for its own total, the first of a month for the month''s total.';
comment on column budget_totals.shard is 'Shard, so that concurrent invocations do not block each other.';
comment on column budget_totals.invocations is 'Started invocations.';
comment on column budget_totals.tokens is 'Prompt, answer and thought tokens of all model calls.';
comment on column budget_totals.cost is 'Their cost at the prices of that time.';
comment on table budget_uses is 'Use by user and day, counted by the statements that start invocations and store model answers.';
comment on column budget_uses.app_name is 'Application.';
comment on column budget_uses.user_id is 'User.';
comment on column budget_uses.day is 'Day in UTC.';
comment on column budget_uses.shard is 'Shard, so that a user''s concurrent invocations do not block each other.';
comment on column budget_uses.invocations is 'Started invocations.';
comment on column budget_uses.prompt_tokens is 'Prompt tokens of all model calls.';
comment on column budget_uses.output_tokens is 'Answer and thought tokens of all model calls.';
comment on column budget_uses.cost is 'Their cost at the prices of that time.';
comment on table budgets is 'Limits on use per UTC day or month. Read with each claim, so a change takes effect at once.';
comment on column budgets.app_name is 'Application.';
comment on column budgets.user_id is 'The user if it applies to one; otherwise empty.';
comment on column budgets.applies_to is 'app: all users together; users: each user without a budget of their own for the period; user: the user in user_id.';
comment on column budgets.period is 'day or month.';
comment on column budgets.max_invocations is 'Maximum number of invocations; null: no limit.';
comment on column budgets.max_tokens is 'Maximum number of prompt, answer and thought tokens; null: no limit.';
comment on column budgets.max_cost is 'Maximum cost by model_prices; null: no limit.';
comment on column budgets.webhook_id is 'Webhook to notify when 50, 80 or 100 percent are used; null for none.';
comment on column budgets.update_time is 'Last change.';
comment on table cronjobs is 'Prompts that run on a schedule.';
comment on column cronjobs.app_name is 'Application that runs.';
comment on column cronjobs.user_id is 'Owner.';
comment on column cronjobs.id is 'Cronjob identifier.';
comment on column cronjobs.name is 'Name for people.';
comment on column cronjobs.prompt is 'Prompt of each run.';
comment on column cronjobs.harness is 'Agent overrides for each run, as sent; null if none.';
comment on column cronjobs.schedule is 'Schedule with time zone, in the API''s format: once, interval, daily, weekly, monthly or cron.';
comment on column cronjobs.enabled is 'False if the owner or the runtime disabled it.';
comment on column cronjobs.disabled_reason is 'Why the runtime disabled it; null if the owner did.';
comment on column cronjobs.session_policy is 'new (a session per run) or fixed (one session for all runs).';
comment on column cronjobs.session_id is 'The session if the policy is fixed.';
comment on column cronjobs.missed_runs is 'Handling of due times missed by more than a minute: skip, once or all.';
comment on column cronjobs.overlap is 'Handling of a run while an earlier one is running: queue, skip or replace.';
comment on column cronjobs.max_attempts is 'Maximum number of attempts of a run.';
comment on column cronjobs.retry_pause_seconds is 'Back-off before the second attempt; doubles with each attempt.';
comment on column cronjobs.max_retry_pause_seconds is 'Maximum back-off.';
comment on column cronjobs.timeout_seconds is 'Time limit of a run; null: no limit of its own.';
comment on column cronjobs.until is 'Fires only before this time; null: no end.';
comment on column cronjobs.max_runs is 'Disabled after this many scheduled runs; null: no limit.';
comment on column cronjobs.max_failures is 'Disabled after this many consecutive failed runs; 0: never.';
comment on column cronjobs.next_run_time is 'Next due time; null if disabled.';
comment on column cronjobs.run_count is 'Scheduled runs so far.';
comment on column cronjobs.failure_count is 'Consecutive failed runs.';
comment on column cronjobs.revision is 'Increases with each change.';
comment on column cronjobs.create_time is 'When it was created.';
comment on column cronjobs.update_time is 'When it was changed last.';
comment on column cronjobs.webhook_url is 'Address of the webhook for results of runs; null for none.';
comment on table eval_case_versions is 'Versions of evaluation cases. A run refers to versions, so they outlive changes and deletion of the case.';
comment on column eval_case_versions.app_name is 'Application.';
comment on column eval_case_versions.eval_set_id is 'Set that the case belongs to.';
comment on column eval_case_versions.eval_id is 'Case.';
comment on column eval_case_versions.version is 'From 1; increases with each write.';
comment on column eval_case_versions.hash is 'SHA-256 of the payload without its creation time, hexadecimal.';
comment on column eval_case_versions.payload is 'The case in the API''s format.';
comment on column eval_case_versions.create_time is 'When it was written.';
comment on column eval_case_versions.owner_id is 'Owner of the set; null if it has none.';
comment on table eval_cases is 'Evaluation cases: conversations to evaluate an application with.';
comment on column eval_cases.app_name is 'Application.';
comment on column eval_cases.eval_set_id is 'Set that the case belongs to.';
comment on column eval_cases.id is 'Case identifier, unique within its set.';
comment on column eval_cases.source_user_id is 'User of the session that the case was made from.';
comment on column eval_cases.source_session_id is 'Session that the case was made from.';
comment on column eval_cases.create_time is 'When the case was created.';
comment on column eval_cases.version is 'Its newest version.';
comment on column eval_cases.owner_id is 'Owner of the set; null if it has none.';
comment on table eval_run_cases is 'Cases of evaluation runs, one row per trial.';
comment on column eval_run_cases.app_name is 'Application.';
comment on column eval_run_cases.run_id is 'Run.';
comment on column eval_run_cases.place is 'Place of the case in the run, from 1.';
comment on column eval_run_cases.trial is 'Trial of the case, from 1.';
comment on column eval_run_cases.eval_set_id is 'Set of the case.';
comment on column eval_run_cases.eval_id is 'Case.';
comment on column eval_run_cases.case_version is 'Version of the case that is run.';
comment on column eval_run_cases.status is 'waiting, running, done, error (could not be completed) or cancelled.';
comment on column eval_run_cases.session_user_id is 'User of its session.';
comment on column eval_run_cases.session_id is 'Session that it runs in; null until it starts.';
comment on column eval_run_cases.session_count is 'Number of sessions used; after an interrupted turn it starts again in a new one.';
comment on column eval_run_cases.last_sequence is 'Last event of its session that belongs to the case.';
comment on column eval_run_cases.failed_turn is 'Turn that failed, from 0.';
comment on column eval_run_cases.error is 'Why it could not be completed, a sentence.';
comment on column eval_run_cases.result is 'Scores of the case and of its turns; the turns themselves are the events of the session.';
comment on column eval_run_cases.start_time is 'When it started.';
comment on column eval_run_cases.end_time is 'When it ended.';
comment on column eval_run_cases.owner_id is 'User who requested the run; null for an API key or without authentication.';
comment on table eval_runs is 'Runs of evaluation sets.';
comment on column eval_runs.app_name is 'Application.';
comment on column eval_runs.id is 'Run.';
comment on column eval_runs.eval_set_id is 'Evaluation set; may be deleted by now.';
comment on column eval_runs.requested_by is 'User of the token that requested it; null for keys and local callers.';
comment on column eval_runs.status is 'queued, running, done or cancelled.';
comment on column eval_runs.metrics is 'Metrics for scoring turns, as requested.';
comment on column eval_runs.user_simulator is 'Configuration of the simulated user, as requested.';
comment on column eval_runs.trials is 'Trials per case.';
comment on column eval_runs.parallelism is 'Maximum concurrent cases, over all processes.';
comment on column eval_runs.max_judge_tokens is 'Token limit for judges and simulated users.';
comment on column eval_runs.judge_tokens is 'Tokens used by judges and simulated users, including the maximum of running calls.';
comment on column eval_runs.agent_hash is 'SHA-256 of the description of the agent that was deployed when it was requested, hexadecimal.';
comment on column eval_runs.model_name is 'Model of that agent.';
comment on column eval_runs.result_time is 'Identifies the result: unique within the application, never a whole second.';
comment on column eval_runs.create_time is 'When it was requested.';
comment on column eval_runs.end_time is 'When its last case ended, or when it was cancelled.';
comment on column eval_runs.judged_run_id is 'Run whose stored turns are judged again without calling the agent; null for an ordinary run.';
comment on column eval_runs.model_execution_mode is 'stored: model answers are taken from the cases; live: models are called.';
comment on column eval_runs.tool_execution_mode is 'stored: tool answers are taken from the cases; live: tools are run.';
comment on column eval_runs.summary is 'Case counts and mean scores at the end; null for cancelled and open runs.';
comment on table eval_session_scores is 'Scores of sessions outside of runs, as of one of their events.';
comment on column eval_session_scores.app_name is 'Application.';
comment on column eval_session_scores.user_id is 'Owner of the session.';
comment on column eval_session_scores.session_id is 'Session.';
comment on column eval_session_scores.last_sequence is 'Last event that was scored.';
comment on column eval_session_scores.metrics_hash is 'SHA-256 of the metrics as requested, hexadecimal.';
comment on column eval_session_scores.rule_id is 'Score rule that caused it; null if requested directly.';
comment on column eval_session_scores.invocation_id is 'Scored invocation; null for the whole session.';
comment on column eval_session_scores.result is 'Scores of the session and of its turns, with tokens and times.';
comment on column eval_session_scores.create_time is 'When it was scored.';
comment on table eval_sets is 'Named sets of evaluation cases of an application.';
comment on column eval_sets.app_name is 'Application.';
comment on column eval_sets.id is 'Evaluation set identifier.';
comment on column eval_sets.name is 'Name for people.';
comment on column eval_sets.description is 'Description for people.';
comment on column eval_sets.create_time is 'When the set was created.';
comment on column eval_sets.owner_id is 'User who created the set; other users cannot see it. Null if created by an API key or without authentication; those callers see all sets.';
comment on column eval_sets.model_execution_mode is 'Default for runs, as sent; null: live.';
comment on column eval_sets.tool_execution_mode is 'Default for runs, as sent; null: live.';
comment on table score_rules is 'Rules for scoring users'' sessions.';
comment on column score_rules.app_name is 'Application.';
comment on column score_rules.id is 'Rule, unique within the application.';
comment on column score_rules.share is 'Share of invocations or sessions to score, sampled by a hash of their ids; 0 pauses the rule.';
comment on column score_rules.quiet_minutes is 'A session is scored when no invocation has ended for this many minutes; null: each invocation is scored.';
comment on column score_rules.definition is 'The rule as requested: metrics, filter, daily limits, webhook.';
comment on column score_rules.day is 'UTC day of the counter scored.';
comment on column score_rules.scored is 'Scores started on that day.';
comment on column score_rules.skipped is 'Scores skipped because the daily limit was reached.';
comment on column score_rules.update_time is 'When it was saved.';
comment on table session_verdicts is 'People''s verdicts on sessions and events.';
comment on column session_verdicts.app_name is 'Application.';
comment on column session_verdicts.user_id is 'Owner of the session.';
comment on column session_verdicts.session_id is 'Session.';
comment on column session_verdicts.event_id is 'The event; empty for the session.';
comment on column session_verdicts.author is 'Author: user of a token, id of a key, or local.';
comment on column session_verdicts.passed is 'Thumbs up or down; null for neither.';
comment on column session_verdicts.label is 'Label for filtering.';
comment on column session_verdicts.comment is 'Comment.';
comment on column session_verdicts.create_time is 'When it was given.';
comment on table eval_verdicts is 'People''s verdicts on turns, in addition to the judges''.';
comment on column eval_verdicts.app_name is 'Application.';
comment on column eval_verdicts.user_id is 'User of the session.';
comment on column eval_verdicts.session_id is 'Session of the case.';
comment on column eval_verdicts.turn is 'Turn of the session, from 0.';
comment on column eval_verdicts.metric_name is 'Metric that the verdict is compared with.';
comment on column eval_verdicts.author is 'Author: user of a token, id of a key, or local.';
comment on column eval_verdicts.passed is 'Whether the turn is good.';
comment on column eval_verdicts.comment is 'Why, in words.';
comment on column eval_verdicts.create_time is 'When it was given.';
comment on table event_deltas is 'Streamed text of incomplete events, in chunks, for followers of a session. Replaced by the complete event.';
comment on column event_deltas.app_name is 'Application of the session.';
comment on column event_deltas.user_id is 'Owner of the session.';
comment on column event_deltas.session_id is 'Session of the event.';
comment on column event_deltas.number is 'Order of a session''s chunks: microseconds since 1970, or the previous number plus one. Never reused.';
comment on column event_deltas.lease_token is 'Lease under which it was written. Valid while it equals sessions.lease_token.';
comment on column event_deltas.event_id is 'Id of the complete event to come.';
comment on column event_deltas.payload is 'The chunk in the API''s format: a partial event, JSON.';
comment on table events is 'Events of conversations. Order by sequence, never by time.';
comment on column events.app_name is 'Application of the session.';
comment on column events.user_id is 'Owner of the session.';
comment on column events.session_id is 'Session that the event belongs to.';
comment on column events.sequence is '1, 2, 3 … per session, without gap or tie.';
comment on column events.id is 'Event identifier, unique within its session.';
comment on column events.invocation_id is 'Invocation that wrote the event.';
comment on column events.author is 'user, or the name of the agent.';
comment on column events.event_time is 'The timestamp of the payload; imported events keep their own.';
comment on column events.payload is 'The event in the API''s format. U+E000 and four hex digits encode a code unit that jsonb refuses.';
comment on column events.is_from_runtime is 'True if the runtime made the event; false if a request sent it, whatever author it names. False for events older than this column.';
comment on column events.bytes is 'Size of the payload as text, bytes.';
comment on table idempotency_keys is 'Stored answers to requests with an Idempotency-Key, for a day; those of invocations are in invocations.';
comment on column idempotency_keys.scope is 'Operation and caller.';
comment on column idempotency_keys.key is 'Idempotency-Key of the request.';
comment on column idempotency_keys.request_hash is 'SHA-256 of the request; distinguishes a retry from another request with the same key.';
comment on column idempotency_keys.response_body is 'The response as sent; a retry receives the same bytes.';
comment on column idempotency_keys.create_time is 'When the request was answered.';
comment on column idempotency_keys.app_name is 'Application of the request; empty if none.';
comment on column idempotency_keys.user_id is 'User of the request; empty if none.';
comment on column idempotency_keys.session_id is 'Session of the answer; null if none. When it is deleted the answer is cleared, and a retry receives 404.';
comment on table invocation_tapes is 'Replay inputs that are not in the events, one row per run of an invocation.';
comment on column invocation_tapes.app_name is 'The application.';
comment on column invocation_tapes.user_id is 'Owner of the session.';
comment on column invocation_tapes.session_id is 'The session.';
comment on column invocation_tapes.invocation_id is 'The invocation.';
comment on column invocation_tapes.start is 'Number of events in the session at the start of the run, including the prompt.';
comment on column invocation_tapes.payload is 'Agent overrides of the request, state values used in instructions, and per model call its prompt and digests of its input.';
comment on table invocations is 'Invocations: one prompt up to its final answer.';
comment on column invocations.agent_version is 'Digest of the application version that ran it (the last one if resumed), with +overrides if the request changed the agent. Null until it starts.';
comment on column invocations.app_name is 'Application of the session.';
comment on column invocations.user_id is 'Owner of the session.';
comment on column invocations.session_id is 'Session that the invocation belongs to.';
comment on column invocations.id is 'Invocation id; its events refer to it.';
comment on column invocations.status is 'queued, running, paused (waits for an answer), succeeded, failed, interrupted or cancelled.';
comment on column invocations.lease_token is 'Lease token of the process that runs it; equals sessions.lease_token while running.';
comment on column invocations.lease_expire_time is 'When the lease expires; then a running invocation is dead and may be taken over.';
comment on column invocations.idempotency_key is 'Idempotency-Key of the request, if any.';
comment on column invocations.request_hash is 'SHA-256 of the request; distinguishes a retry from another request with the same key.';
comment on column invocations.response_body is 'The response as sent; a retry receives the same bytes.';
comment on column invocations.error_code is 'Stable error code.';
comment on column invocations.error_message is 'Why it failed, a sentence.';
comment on column invocations.stop_requested_as is 'Requested stop, and the status to end with: cancelled or interrupted.';
comment on column invocations.tool_calls is 'Tool calls made.';
comment on column invocations.llm_calls is 'Model calls made.';
comment on column invocations.prompt_tokens is 'Prompt tokens of all model calls.';
comment on column invocations.output_tokens is 'Answer and thought tokens of all model calls.';
comment on column invocations.create_time is 'When it was requested; the order of the queue.';
comment on column invocations.start_time is 'When it started running.';
comment on column invocations.end_time is 'When it ended.';
comment on column invocations.stop_request_time is 'When a stop was requested first.';
comment on column invocations.not_before is 'Of a run of a cronjob that has not begun: it begins at this time at the earliest. Null for all others.';
comment on column invocations.cronjob_id is 'Cronjob whose run it is; null for all others, and once the run is older than runs are kept.';
comment on column invocations.run_id is 'Run of the cronjob; the tries of a run share it.';
comment on column invocations.due_time is 'When the run was due; of a manual run, when it was requested.';
comment on column invocations.is_manual is 'True for a run that was requested, false for one that the schedule fired.';
comment on column invocations."try" is 'Number of the try of the run, from 1: a try that failed for a transient reason is followed by another.';
comment on column invocations.first_end_time is 'When the run ended or paused first. Only this end counts for its cronjob.';
comment on column invocations.request is 'JSON that lets another process start or resume it; null if none can, and after the end.';
comment on column invocations.job is 'Job of which it is a step: kind, userId and id, and the number of the step. Its end adds the job again. Null for none.';
comment on column invocations.attempt is 'Number of processes that ran it; increases with each take-over after a crash.';
comment on column invocations.webhook_url is 'Address of the webhook for the result; empty if only A2A push clients are notified, null for none.';
comment on table legal_holds is 'Legal holds: data that nobody may delete, of a user or of one session. Enforced by triggers.';
comment on column legal_holds.app_name is 'The application.';
comment on column legal_holds.user_id is 'The user.';
comment on column legal_holds.session_id is 'The session; empty for all data of the user.';
comment on column legal_holds.reason is 'Reason, a free text.';
comment on column legal_holds.create_time is 'When it was set.';
comment on table memories is 'Memories of users: events of sessions, searchable by words.';
comment on column memories.app_name is 'Application.';
comment on column memories.user_id is 'User.';
comment on column memories.session_id is 'Session of the event; may be deleted by now.';
comment on column memories.event_id is 'The event.';
comment on column memories.author is 'Author of the event.';
comment on column memories.content is 'The content of the event.';
comment on column memories.event_time is 'Timestamp of the event.';
comment on column memories.search_vector is 'Words for full-text search, configuration simple.';
comment on column memories.embedding is 'Embedding vector; null if not embedded yet, or the model refused the text.';
comment on column memories.embedding_model is 'Model and dimensions of the vector, or of the model that refused the text.';
comment on table job_lanes is 'Lanes that have waiting jobs: a lane is the queue of a user''s jobs of one kind that take turns with those of other lanes.';
comment on column job_lanes.app_name is 'Application.';
comment on column job_lanes.user_id is 'User.';
comment on column job_lanes.kind is 'Kind of the jobs.';
comment on column job_lanes.lane is 'Name of the lane; the host of a delivery.';
comment on column job_lanes.turn_time is 'When the lane has its next turn.';
comment on column job_lanes.blocked_by is 'Full limit that the lane waits behind: user:…, lane:… or pair:….';
comment on column job_lanes.half_open is 'The last job got no answer; one job runs at a time.';
comment on table jobs is 'Jobs that wait or run: work that the processes share. An ended job has no row.';
comment on column jobs.app_name is 'Application.';
comment on column jobs.user_id is 'User.';
comment on column jobs.kind is 'delivery.';
comment on column jobs.id is 'What the job is about, unique within its kind; the delivery.';
comment on column jobs.lane is 'Name of its lane.';
comment on column jobs.due_time is 'Earliest time of the next attempt.';
comment on column jobs.attempt is 'Number of attempts.';
comment on column jobs.losses is 'Number of processes that crashed while holding it; given up after two.';
comment on column jobs.lease_token is 'Lease token of the process that runs it; null while it waits.';
comment on column jobs.lease_expire_time is 'Lease expiry.';
comment on column jobs.create_time is 'Creation.';
comment on table model_prices is 'Model prices, in the operator''s currency.';
comment on column model_prices.model is 'Prefix of model names; * for models without a price.';
comment on column model_prices.prompt_price is 'Price of a million prompt tokens.';
comment on column model_prices.output_price is 'Price of a million answer and thought tokens.';
comment on column model_prices.update_time is 'Last change.';
comment on table rate_limits is 'Requests per caller and class of operations in the current minute, and failed logins. May be truncated at any time.';
comment on column rate_limits.key is 'Class of operations, and a digest of the caller.';
comment on column rate_limits.points is 'Points used in the window.';
comment on column rate_limits.expire is 'End of the window, Unix time in milliseconds.';
comment on table sessions is 'One conversation of one user with one application.';
comment on column sessions.app_name is 'Application; harness_agent for the command-line deployment.';
comment on column sessions.user_id is 'Owner; other users never see the session.';
comment on column sessions.id is 'Session identifier, unique per application and user.';
comment on column sessions.state is 'Keys of this session only; app: and user: keys are in app_states and user_states.';
comment on column sessions.last_sequence is 'Sequence of the newest event; increased by the statement that inserts the event.';
comment on column sessions.is_eval is 'Created by an evaluation run; not listed.';
comment on column sessions.lease_token is 'Lease (fencing token) of the running invocation; null if none runs. Checked by every write of an invocation.';
comment on column sessions.create_time is 'When the session was created.';
comment on column sessions.update_time is 'Last change, by the database''s clock; never decreases.';
comment on column sessions.initial_state is 'Its own state before its first event.';
comment on column sessions.event_bytes is 'Size of all events of the session as text, bytes.';
comment on column sessions.labels is 'Labels set by clients: names and string values.';
comment on column sessions.first_text is 'Start of the user''s first text; empty if there is none yet.';
comment on column sessions.forked_from_id is 'Source session of a fork; may be deleted by now.';
comment on column sessions.forked_from_sequence is 'Number of events copied by the fork.';
comment on column sessions.events_version is 'Increases when stored events are changed or deleted by SQL, which the service never does; invalidates caches.';
comment on table signals is 'Signals sent before any invocation waited for them.';
comment on column signals.app_name is 'Application of the session.';
comment on column signals.user_id is 'Owner of the session.';
comment on column signals.session_id is 'The session.';
comment on column signals.id is 'Row id.';
comment on column signals.name is 'Name of the signal.';
comment on column signals.payload is 'Payload of the signal.';
comment on column signals.sender_groups is 'Groups of the sender, the owner of the session; null if sent with an operator''s credential.';
comment on column signals.create_time is 'When it was received.';
comment on table spans is 'Traces of invocations for the development UI; deleted after some time.';
comment on column spans.app_name is 'Application.';
comment on column spans.user_id is 'Owner of the session.';
comment on column spans.session_id is 'Session that the invocation belongs to.';
comment on column spans.trace_id is 'Trace; one per invocation.';
comment on column spans.id is 'Span identifier.';
comment on column spans.parent_id is 'Parent span.';
comment on column spans.event_id is 'Event that the step produced.';
comment on column spans.name is 'invocation, invoke_agent, call_llm or execute_tool, with a name.';
comment on column spans.start_ns is 'Start, Unix time in nanoseconds.';
comment on column spans.end_ns is 'End, Unix time in nanoseconds.';
comment on column spans.attributes is 'Attributes in the API''s format.';
comment on column spans.create_time is 'When the span was stored.';
comment on table tasks is 'Calls of paused invocations that wait for a person, a time or a signal, with their outcome.';
comment on column tasks.app_name is 'Application of the session.';
comment on column tasks.user_id is 'Owner of the session.';
comment on column tasks.session_id is 'The session.';
comment on column tasks.id is 'Task id.';
comment on column tasks.invocation_id is 'The invocation that waits.';
comment on column tasks.call_id is 'Id of the function call to answer.';
comment on column tasks.call_name is 'Name of that function.';
comment on column tasks.kind is 'confirmation (of a call); effect (of a call that may have had effects); question; call (answered later by its tool); sleep; signal; budget.';
comment on column tasks.state is 'open; answered: the invocation is not resumed yet; done: the invocation has the answer; cancelled.';
comment on column tasks.form is 'Shown to the person who answers: tool, arguments, hint, JSON Schema of the answer.';
comment on column tasks.rules is 'Who must answer, and what happens otherwise: approvals, excludesRequester, remindAfter, escalateTo, defaultAnswer.';
comment on column tasks.assigned_users is 'Users who may see and answer it. Without assigned users and groups, the session''s owner may.';
comment on column tasks.assigned_groups is 'Groups whose members may see and answer it.';
comment on column tasks.approvals is 'Approvals so far, with times.';
comment on column tasks.comments is 'Comments by people.';
comment on column tasks.signal_name is 'Name of the signal that answers it; null for other kinds.';
comment on column tasks.token_hash is 'SHA-256 of the token in its public address; null if it has none.';
comment on column tasks.token_expire_time is 'When the public address expires.';
comment on column tasks.expire_time is 'Deadline; null for none.';
comment on column tasks.due_time is 'Next action: a reminder, the deadline or, after the answer, resuming the invocation. Null: none.';
comment on column tasks.reminders is 'Number of reminders sent.';
comment on column tasks.answer is 'Answer to the call; null if a message of the session contained it, except for confirmations.';
comment on column tasks.decided_by is 'Who answered; null for the deadline.';
comment on column tasks.decided_via is 'How it was answered: tasks (API), run (a message of the session), signal or deadline; null if imported.';
comment on column tasks.decide_time is 'When it was answered.';
comment on column tasks.version is 'Change counter; used as ETag.';
comment on column tasks.create_time is 'When the invocation paused.';
comment on table tool_calls is 'Ledger of tool calls: one row per call that has started, or may have. Calls inside an agent used as a tool belong to the outer call''s row.';
comment on column tool_calls.app_name is 'Application of the session.';
comment on column tool_calls.user_id is 'Owner of the session.';
comment on column tool_calls.session_id is 'The session.';
comment on column tool_calls.invocation_id is 'The invocation.';
comment on column tool_calls.call_id is 'Id of the function call in the events.';
comment on column tool_calls.operation_id is 'Id of the operation for the tool; the same for every attempt, so that it can be idempotent.';
comment on column tool_calls.tool is 'Name of the tool.';
comment on column tool_calls.effect is 'Effect of a call: none, idempotent, once (must not be repeated), or transactional (committed with its response, or not at all).';
comment on column tool_calls.state is 'started; done; unknown (interrupted, may have had effects); settled (a check or a person determined the outcome).';
comment on column tool_calls.attempt is 'Number of attempts started.';
comment on column tool_calls.response is 'Response with actions and attachments, until the step''s event contains it; null otherwise.';
comment on column tool_calls.create_time is 'When it started.';
comment on column tool_calls.update_time is 'Last change.';
comment on table user_erasures is 'Users being erased. The row is deleted with their last data; until then triggers refuse new data.';
comment on column user_erasures.app_name is 'The application.';
comment on column user_erasures.user_id is 'The user.';
comment on column user_erasures.counts is 'Rows deleted so far, by table.';
comment on column user_erasures.webhook_id is 'Webhook to notify when done; null for none.';
comment on column user_erasures.create_time is 'First request.';
comment on column user_erasures.update_time is 'Last progress; the sweeper resumes abandoned erasures.';
comment on table user_states is 'State keys with the prefix user:, shared by all sessions of a user in an application.';
comment on column user_states.app_name is 'Application.';
comment on column user_states.user_id is 'User.';
comment on column user_states.state is 'Keys with their prefix; merged in SQL.';
comment on column user_states.update_time is 'Last merge.';
comment on table skipped_runs is 'Runs of cronjobs that were left out before they began. All other runs are invocations.';
comment on column skipped_runs.app_name is 'Application of the cronjob.';
comment on column skipped_runs.user_id is 'Owner of the cronjob.';
comment on column skipped_runs.cronjob_id is 'Cronjob of the run.';
comment on column skipped_runs.id is 'Run identifier.';
comment on column skipped_runs.due_time is 'When it was due.';
comment on column skipped_runs.tries is 'How often it had been tried.';
comment on column skipped_runs.reason is 'Why it was left out, a sentence.';
comment on column skipped_runs.create_time is 'When it was queued.';
comment on column skipped_runs.end_time is 'When it was left out.';
comment on table user_credentials is 'Users'' grants to external resources, and pending consents; encrypted with RUNTIME_SECRET_KEY.';
comment on column user_credentials.app_name is 'Application.';
comment on column user_credentials.user_id is 'User who granted it.';
comment on column user_credentials.resource is 'Address of the resource, an MCP server.';
comment on column user_credentials.grant_sealed is 'Access and refresh tokens, encrypted; null if nothing is granted.';
comment on column user_credentials.lease_expire_time is 'End of the lease of the process that renews the grant; null if none does.';
comment on column user_credentials.consent_sealed is 'Data to complete the pending consent, encrypted; null if none is pending.';
comment on column user_credentials.consent_session_id is 'Session whose invocation waits for the consent.';
comment on column user_credentials.consent_state_hash is 'SHA-256 of the OAuth state returned by the browser.';
comment on column user_credentials.consent_expire_time is 'When the pending consent expires.';
comment on column user_credentials.update_time is 'Last change.';
comment on table user_storage is 'Bytes stored by each user, in shards; the sum counts.';
comment on column user_storage.app_name is 'Application.';
comment on column user_storage.user_id is 'User.';
comment on column user_storage.shard is 'Shard; each connection uses one.';
comment on column user_storage.event_bytes is 'Bytes of JSON of events, session states and queued requests; negative if another shard had counted data deleted since.';
comment on column user_storage.artifact_bytes is 'Versions of artifacts with their metadata, in the database or in a bucket.';
comment on column user_storage.memory_bytes is 'Bytes of JSON of memories, without their search index.';
comment on table webhook_deliveries is 'Outbox of webhook deliveries. Triggers insert rows in the statement that ends an invocation or a run.';
comment on column webhook_deliveries.app_name is 'Application.';
comment on column webhook_deliveries.user_id is 'Owner.';
comment on column webhook_deliveries.id is 'Delivery identifier, the header webhook-id of every attempt.';
comment on column webhook_deliveries.webhook_id is 'Target webhook.';
comment on column webhook_deliveries.host is 'Host and port of the webhook, for the limit per host.';
comment on column webhook_deliveries.payload is 'Signed JSON text.';
comment on column webhook_deliveries.status is 'pending, delivered or failed.';
comment on column webhook_deliveries.attempt is 'Number of attempts, written at the end; the job of a pending delivery counts them.';
comment on column webhook_deliveries.retry_end_time is 'No more attempts after this time.';
comment on column webhook_deliveries.answers is 'Answers to the attempts, newest last: time, and status with the start of the body, or error.';
comment on column webhook_deliveries.create_time is 'Time of the reported event.';
comment on column webhook_deliveries.end_time is 'When it was delivered or given up.';
comment on table webhooks is 'Webhook addresses registered by users.';
comment on column webhooks.app_name is 'Application.';
comment on column webhooks.user_id is 'Owner.';
comment on column webhooks.id is 'Webhook identifier.';
comment on column webhooks.url is 'Normalised URL; requests and cronjobs refer to it.';
comment on column webhooks.host is 'Host and port of the address.';
comment on column webhooks.includes_output is 'True: deliveries include the start of the answer.';
comment on column webhooks.secret is 'Signing secret; starts with whsec_. Shown only once, and in no view.';
comment on column webhooks.old_secret is 'Previous secret; also signs until old_secret_expire_time. Null for none.';
comment on column webhooks.old_secret_expire_time is 'When the old secret stops signing.';
comment on column webhooks.is_silent is 'True if the host did not answer the last attempt, or was never tried: one delivery at a time until it answers.';
comment on column webhooks.push is 'A2A push configuration: the task and the headers to send; null for an ordinary webhook.';
comment on column webhooks.create_time is 'When it was registered.';
