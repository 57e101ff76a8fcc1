CREATE SCHEMA "inspect";
--> statement-breakpoint
CREATE SCHEMA "inspect_outline";
--> statement-breakpoint
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
ALTER TABLE "artifact_versions" ENABLE ROW LEVEL SECURITY;--> statement-breakpoint
CREATE TABLE "artifacts" (
	"app_name" text collate "C" NOT NULL,
	"user_id" text collate "C" NOT NULL,
	"session_id" text collate "C" NOT NULL,
	"name" text collate "C" NOT NULL,
	"next_version" integer NOT NULL,
	CONSTRAINT "artifacts_pkey" PRIMARY KEY("app_name","user_id","session_id","name")
);
--> statement-breakpoint
ALTER TABLE "artifacts" ENABLE ROW LEVEL SECURITY;--> statement-breakpoint
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
	CONSTRAINT "budget_uses_counts_check" CHECK (least(invocations, prompt_tokens, output_tokens) >= 0 and cost >= 0)
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
ALTER TABLE "cronjobs" ENABLE ROW LEVEL SECURITY;--> statement-breakpoint
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
ALTER TABLE "eval_case_versions" ENABLE ROW LEVEL SECURITY;--> statement-breakpoint
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
ALTER TABLE "eval_cases" ENABLE ROW LEVEL SECURITY;--> statement-breakpoint
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
ALTER TABLE "eval_run_cases" ENABLE ROW LEVEL SECURITY;--> statement-breakpoint
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
ALTER TABLE "eval_runs" ENABLE ROW LEVEL SECURITY;--> statement-breakpoint
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
ALTER TABLE "eval_session_scores" ENABLE ROW LEVEL SECURITY;--> statement-breakpoint
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
ALTER TABLE "eval_sets" ENABLE ROW LEVEL SECURITY;--> statement-breakpoint
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
ALTER TABLE "eval_verdicts" ENABLE ROW LEVEL SECURITY;--> statement-breakpoint
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
ALTER TABLE "event_deltas" ENABLE ROW LEVEL SECURITY;--> statement-breakpoint
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
ALTER TABLE "events" ENABLE ROW LEVEL SECURITY;--> statement-breakpoint
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
ALTER TABLE "idempotency_keys" ENABLE ROW LEVEL SECURITY;--> statement-breakpoint
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
	"agent" text,
	"first_text" text,
	"attempt" smallint DEFAULT 1 NOT NULL,
	"webhook_url" text,
	"tapes" jsonb,
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
	"count_time" timestamp (6) with time zone,
	"stop_request_time" timestamp (6) with time zone,
	"not_before" timestamp (6) with time zone,
	"cronjob_id" text collate "C",
	"run_id" text collate "C",
	"due_time" timestamp (6) with time zone,
	"is_manual" boolean,
	"try" smallint,
	"is_retried" boolean DEFAULT false NOT NULL,
	"first_end_time" timestamp (6) with time zone,
	CONSTRAINT "invocations_pkey" PRIMARY KEY("app_name","user_id","session_id","id"),
	CONSTRAINT "invocations_status_check" CHECK (status = any('{queued,running,paused,succeeded,failed,interrupted,cancelled}')),
	CONSTRAINT "invocations_counts_check" CHECK (least(tool_calls, llm_calls, prompt_tokens, output_tokens) >= 0),
	CONSTRAINT "invocations_stop_requested_as_check" CHECK (stop_requested_as = any('{cancelled,interrupted}')),
	CONSTRAINT "invocations_run_check" CHECK (cronjob_id is null or num_nulls(run_id, due_time, is_manual, try) = 0 and try > 0)
);
--> statement-breakpoint
ALTER TABLE "invocations" ENABLE ROW LEVEL SECURITY;--> statement-breakpoint
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
ALTER TABLE "job_lanes" ENABLE ROW LEVEL SECURITY;--> statement-breakpoint
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
ALTER TABLE "jobs" ENABLE ROW LEVEL SECURITY;--> statement-breakpoint
CREATE TABLE "legal_holds" (
	"app_name" text collate "C" NOT NULL,
	"user_id" text collate "C" NOT NULL,
	"session_id" text collate "C" NOT NULL,
	"reason" text NOT NULL,
	"create_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "legal_holds_pkey" PRIMARY KEY("app_name","user_id","session_id")
);
--> statement-breakpoint
ALTER TABLE "legal_holds" ENABLE ROW LEVEL SECURITY;--> statement-breakpoint
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
ALTER TABLE "memories" ENABLE ROW LEVEL SECURITY;--> statement-breakpoint
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
CREATE TABLE "agent_runtime_repeatables" (
	"name" text collate "C" NOT NULL,
	"hash" text NOT NULL,
	"version" text NOT NULL,
	"apply_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "agent_runtime_repeatables_pkey" PRIMARY KEY("name")
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
ALTER TABLE "session_verdicts" ENABLE ROW LEVEL SECURITY;--> statement-breakpoint
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
ALTER TABLE "sessions" ENABLE ROW LEVEL SECURITY;--> statement-breakpoint
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
ALTER TABLE "signals" ENABLE ROW LEVEL SECURITY;--> statement-breakpoint
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
ALTER TABLE "skipped_runs" ENABLE ROW LEVEL SECURITY;--> statement-breakpoint
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
ALTER TABLE "spans" ENABLE ROW LEVEL SECURITY;--> statement-breakpoint
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
ALTER TABLE "tasks" ENABLE ROW LEVEL SECURITY;--> statement-breakpoint
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
ALTER TABLE "tool_calls" ENABLE ROW LEVEL SECURITY;--> statement-breakpoint
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
ALTER TABLE "user_credentials" ENABLE ROW LEVEL SECURITY;--> statement-breakpoint
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
ALTER TABLE "user_erasures" ENABLE ROW LEVEL SECURITY;--> statement-breakpoint
CREATE TABLE "user_states" (
	"app_name" text collate "C" NOT NULL,
	"user_id" text collate "C" NOT NULL,
	"state" jsonb NOT NULL,
	"update_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "user_states_pkey" PRIMARY KEY("app_name","user_id")
);
--> statement-breakpoint
ALTER TABLE "user_states" ENABLE ROW LEVEL SECURITY;--> statement-breakpoint
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
ALTER TABLE "user_storage" ENABLE ROW LEVEL SECURITY;--> statement-breakpoint
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
ALTER TABLE "webhook_deliveries" ENABLE ROW LEVEL SECURITY;--> statement-breakpoint
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
ALTER TABLE "webhooks" ENABLE ROW LEVEL SECURITY;--> statement-breakpoint
ALTER TABLE "artifact_versions" ADD CONSTRAINT "artifact_versions_artifact_fkey" FOREIGN KEY ("app_name","user_id","session_id","artifact_name") REFERENCES "public"."artifacts"("app_name","user_id","session_id","name") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "eval_cases" ADD CONSTRAINT "eval_cases_set_fkey" FOREIGN KEY ("app_name","eval_set_id") REFERENCES "public"."eval_sets"("app_name","id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "eval_cases" ADD CONSTRAINT "eval_cases_version_fkey" FOREIGN KEY ("app_name","eval_set_id","id","version") REFERENCES "public"."eval_case_versions"("app_name","eval_set_id","eval_id","version") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "eval_run_cases" ADD CONSTRAINT "eval_run_cases_run_fkey" FOREIGN KEY ("app_name","run_id") REFERENCES "public"."eval_runs"("app_name","id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "eval_run_cases" ADD CONSTRAINT "eval_run_cases_version_fkey" FOREIGN KEY ("app_name","eval_set_id","eval_id","case_version") REFERENCES "public"."eval_case_versions"("app_name","eval_set_id","eval_id","version") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "eval_session_scores" ADD CONSTRAINT "eval_session_scores_session_fkey" FOREIGN KEY ("app_name","user_id","session_id") REFERENCES "public"."sessions"("app_name","user_id","id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "eval_verdicts" ADD CONSTRAINT "eval_verdicts_session_fkey" FOREIGN KEY ("app_name","user_id","session_id") REFERENCES "public"."sessions"("app_name","user_id","id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "event_deltas" ADD CONSTRAINT "event_deltas_session_fkey" FOREIGN KEY ("app_name","user_id","session_id") REFERENCES "public"."sessions"("app_name","user_id","id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "events" ADD CONSTRAINT "events_session_fkey" FOREIGN KEY ("app_name","user_id","session_id") REFERENCES "public"."sessions"("app_name","user_id","id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "invocations" ADD CONSTRAINT "invocations_session_fkey" FOREIGN KEY ("app_name","user_id","session_id") REFERENCES "public"."sessions"("app_name","user_id","id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "session_verdicts" ADD CONSTRAINT "session_verdicts_session_fkey" FOREIGN KEY ("app_name","user_id","session_id") REFERENCES "public"."sessions"("app_name","user_id","id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "signals" ADD CONSTRAINT "signals_session_fkey" FOREIGN KEY ("app_name","user_id","session_id") REFERENCES "public"."sessions"("app_name","user_id","id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "skipped_runs" ADD CONSTRAINT "skipped_runs_cronjob_fkey" FOREIGN KEY ("app_name","user_id","cronjob_id") REFERENCES "public"."cronjobs"("app_name","user_id","id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "tasks" ADD CONSTRAINT "tasks_invocation_fkey" FOREIGN KEY ("app_name","user_id","session_id","invocation_id") REFERENCES "public"."invocations"("app_name","user_id","session_id","id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "tool_calls" ADD CONSTRAINT "tool_calls_invocation_fkey" FOREIGN KEY ("app_name","user_id","session_id","invocation_id") REFERENCES "public"."invocations"("app_name","user_id","session_id","id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "webhook_deliveries" ADD CONSTRAINT "webhook_deliveries_webhook_fkey" FOREIGN KEY ("app_name","user_id","webhook_id") REFERENCES "public"."webhooks"("app_name","user_id","id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "agent_prompts_age_idx" ON "agent_prompts" USING btree ("use_time");--> statement-breakpoint
CREATE INDEX "audit_log_time_idx" ON "audit_log" USING btree ("time");--> statement-breakpoint
CREATE INDEX "budget_uses_day_idx" ON "budget_uses" USING btree ("app_name","day");--> statement-breakpoint
CREATE INDEX "cronjobs_due_idx" ON "cronjobs" USING btree ("next_run_time") WHERE enabled;--> statement-breakpoint
CREATE UNIQUE INDEX "cronjobs_id_idx" ON "cronjobs" USING btree ("id");--> statement-breakpoint
CREATE INDEX "cronjobs_list_idx" ON "cronjobs" USING btree ("user_id","create_time" DESC NULLS FIRST,"id" DESC NULLS FIRST);--> statement-breakpoint
CREATE INDEX "eval_case_versions_owner_idx" ON "eval_case_versions" USING btree ("app_name","owner_id");--> statement-breakpoint
CREATE INDEX "eval_case_versions_quoted_idx" ON "eval_case_versions" USING hash ((payload #>> '{sessionInput,userId}'));--> statement-breakpoint
CREATE INDEX "eval_cases_owner_idx" ON "eval_cases" USING btree ("app_name","owner_id");--> statement-breakpoint
CREATE INDEX "eval_cases_source_idx" ON "eval_cases" USING btree ("app_name","source_user_id","source_session_id");--> statement-breakpoint
CREATE INDEX "eval_run_cases_open_idx" ON "eval_run_cases" USING btree ("app_name","run_id","place","trial") WHERE status in ('waiting', 'running');--> statement-breakpoint
CREATE INDEX "eval_run_cases_user_idx" ON "eval_run_cases" USING btree ("app_name","session_user_id");--> statement-breakpoint
CREATE INDEX "eval_run_cases_owner_idx" ON "eval_run_cases" USING btree ("app_name","owner_id");--> statement-breakpoint
CREATE INDEX "eval_run_cases_version_idx" ON "eval_run_cases" USING btree ("app_name","eval_set_id","eval_id","case_version");--> statement-breakpoint
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
CREATE INDEX "invocations_app_time_idx" ON "invocations" USING btree ("app_name","create_time","id") WHERE create_time > '-infinity';--> statement-breakpoint
CREATE INDEX "invocations_user_time_idx" ON "invocations" USING btree ("app_name","user_id","create_time","id") WHERE create_time < 'infinity';--> statement-breakpoint
CREATE INDEX "invocations_failed_idx" ON "invocations" USING btree ("app_name","create_time","id") WHERE status in ('failed', 'interrupted', 'cancelled');--> statement-breakpoint
CREATE INDEX "invocations_key_age_idx" ON "invocations" USING btree ("create_time") WHERE idempotency_key is not null;--> statement-breakpoint
CREATE INDEX "invocations_background_idx" ON "invocations" USING btree ("create_time") WHERE status = 'queued' and request is not null;--> statement-breakpoint
CREATE INDEX "invocations_left_idx" ON "invocations" USING btree ("lease_expire_time") WHERE status = 'queued' and request is not null and start_time is not null;--> statement-breakpoint
CREATE INDEX "invocations_queue_idx" ON "invocations" USING btree ("app_name","user_id","session_id","create_time") WHERE status = 'queued';--> statement-breakpoint
CREATE UNIQUE INDEX "invocations_run_key" ON "invocations" USING btree ("app_name","user_id","cronjob_id","due_time","try") WHERE cronjob_id is not null;--> statement-breakpoint
CREATE INDEX "invocations_open_runs_idx" ON "invocations" USING btree ("user_id","app_name","cronjob_id") WHERE cronjob_id is not null and first_end_time is null and status in ('queued', 'running');--> statement-breakpoint
CREATE INDEX "invocations_begun_runs_idx" ON "invocations" USING btree ("user_id","app_name","cronjob_id") WHERE cronjob_id is not null and first_end_time is null and status in ('queued', 'running') and not_before is null;--> statement-breakpoint
CREATE INDEX "job_lanes_turn_idx" ON "job_lanes" USING btree ("kind","app_name","turn_time") WHERE blocked_by is null;--> statement-breakpoint
CREATE INDEX "job_lanes_blocked_idx" ON "job_lanes" USING btree ("kind","blocked_by","turn_time") WHERE blocked_by is not null;--> statement-breakpoint
CREATE INDEX "jobs_lane_idx" ON "jobs" USING btree ("kind","app_name","user_id","lane","due_time","id") WHERE lease_token is null;--> statement-breakpoint
CREATE INDEX "jobs_due_idx" ON "jobs" USING btree ("kind","due_time") WHERE lease_token is null;--> statement-breakpoint
CREATE INDEX "jobs_running_idx" ON "jobs" USING btree ("kind","lease_expire_time") WHERE lease_token is not null;--> statement-breakpoint
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
CREATE INDEX "tasks_user_idx" ON "tasks" USING btree ("user_id","app_name","state");--> statement-breakpoint
CREATE INDEX "tasks_list_idx" ON "tasks" USING btree ("state",coalesce(expire_time, timestamptz '9999-12-31 00:00:00Z'),"id");--> statement-breakpoint
CREATE INDEX "tasks_due_idx" ON "tasks" USING btree ("due_time") WHERE due_time is not null;--> statement-breakpoint
CREATE INDEX "tasks_people_idx" ON "tasks" USING gin ("assigned_users","assigned_groups","approvals" jsonb_path_ops,"comments" jsonb_path_ops);--> statement-breakpoint
CREATE INDEX "tasks_decided_idx" ON "tasks" USING btree ("decided_by") WHERE decided_by is not null;--> statement-breakpoint
CREATE INDEX "tasks_token_idx" ON "tasks" USING btree ("token_hash") WHERE token_hash is not null;--> statement-breakpoint
CREATE INDEX "tool_calls_unknown_idx" ON "tool_calls" USING btree ("app_name","user_id","create_time","call_id") WHERE state = 'unknown';--> statement-breakpoint
CREATE UNIQUE INDEX "user_credentials_state_idx" ON "user_credentials" USING btree ("consent_state_hash");--> statement-breakpoint
CREATE INDEX "user_erasures_age_idx" ON "user_erasures" USING btree ("update_time");--> statement-breakpoint
CREATE INDEX "webhook_deliveries_pending_idx" ON "webhook_deliveries" USING btree ("app_name","user_id") WHERE status = 'pending';--> statement-breakpoint
CREATE INDEX "webhook_deliveries_list_idx" ON "webhook_deliveries" USING btree ("app_name","user_id","webhook_id","create_time" DESC NULLS FIRST,"id" DESC NULLS FIRST);--> statement-breakpoint
CREATE UNIQUE INDEX "webhooks_url_key" ON "webhooks" USING btree ("app_name","user_id","url") WHERE push is null;--> statement-breakpoint
CREATE UNIQUE INDEX "webhooks_id_idx" ON "webhooks" USING btree ("id");--> statement-breakpoint
CREATE INDEX "webhooks_list_idx" ON "webhooks" USING btree ("user_id","create_time");--> statement-breakpoint
CREATE POLICY "of_user" ON "artifact_versions" AS PERMISSIVE FOR ALL TO public USING (user_id = (select current_setting('agent_runtime.user', true)) or (select current_setting('agent_runtime.all_users', true)) = 'on');--> statement-breakpoint
CREATE POLICY "of_user" ON "artifacts" AS PERMISSIVE FOR ALL TO public USING (user_id = (select current_setting('agent_runtime.user', true)) or (select current_setting('agent_runtime.all_users', true)) = 'on');--> statement-breakpoint
CREATE POLICY "of_user" ON "cronjobs" AS PERMISSIVE FOR ALL TO public USING (user_id = (select current_setting('agent_runtime.user', true)) or (select current_setting('agent_runtime.all_users', true)) = 'on');--> statement-breakpoint
CREATE POLICY "of_user" ON "eval_case_versions" AS PERMISSIVE FOR ALL TO public USING (owner_id = (select current_setting('agent_runtime.user', true)) or payload #>> '{sessionInput,userId}' = (select current_setting('agent_runtime.user', true)) or (select current_setting('agent_runtime.all_users', true)) = 'on');--> statement-breakpoint
CREATE POLICY "of_user" ON "eval_cases" AS PERMISSIVE FOR ALL TO public USING (owner_id = (select current_setting('agent_runtime.user', true)) or source_user_id = (select current_setting('agent_runtime.user', true)) or (select current_setting('agent_runtime.all_users', true)) = 'on');--> statement-breakpoint
CREATE POLICY "of_user" ON "eval_run_cases" AS PERMISSIVE FOR ALL TO public USING (owner_id = (select current_setting('agent_runtime.user', true)) or session_user_id = (select current_setting('agent_runtime.user', true)) or exists (
      select from eval_case_versions v where v.app_name = eval_run_cases.app_name
        and v.eval_set_id = eval_run_cases.eval_set_id and v.eval_id = eval_run_cases.eval_id
        and v.version = eval_run_cases.case_version and v.payload #>> '{sessionInput,userId}' = (select current_setting('agent_runtime.user', true))) or (select current_setting('agent_runtime.all_users', true)) = 'on');--> statement-breakpoint
CREATE POLICY "of_user" ON "eval_runs" AS PERMISSIVE FOR ALL TO public USING (requested_by = (select current_setting('agent_runtime.user', true)) or (select current_setting('agent_runtime.all_users', true)) = 'on');--> statement-breakpoint
CREATE POLICY "of_user" ON "eval_session_scores" AS PERMISSIVE FOR ALL TO public USING (user_id = (select current_setting('agent_runtime.user', true)) or (select current_setting('agent_runtime.all_users', true)) = 'on');--> statement-breakpoint
CREATE POLICY "of_user" ON "eval_sets" AS PERMISSIVE FOR ALL TO public USING (owner_id = (select current_setting('agent_runtime.user', true)) or (select current_setting('agent_runtime.all_users', true)) = 'on');--> statement-breakpoint
CREATE POLICY "of_user" ON "eval_verdicts" AS PERMISSIVE FOR ALL TO public USING (user_id = (select current_setting('agent_runtime.user', true)) or (select current_setting('agent_runtime.all_users', true)) = 'on');--> statement-breakpoint
CREATE POLICY "of_user" ON "event_deltas" AS PERMISSIVE FOR ALL TO public USING (user_id = (select current_setting('agent_runtime.user', true)) or (select current_setting('agent_runtime.all_users', true)) = 'on');--> statement-breakpoint
CREATE POLICY "of_user" ON "events" AS PERMISSIVE FOR ALL TO public USING (user_id = (select current_setting('agent_runtime.user', true)) or (select current_setting('agent_runtime.all_users', true)) = 'on');--> statement-breakpoint
CREATE POLICY "of_user" ON "idempotency_keys" AS PERMISSIVE FOR ALL TO public USING (user_id = (select current_setting('agent_runtime.user', true)) or (select current_setting('agent_runtime.all_users', true)) = 'on');--> statement-breakpoint
CREATE POLICY "of_user" ON "invocations" AS PERMISSIVE FOR ALL TO public USING (user_id = (select current_setting('agent_runtime.user', true)) or (select current_setting('agent_runtime.all_users', true)) = 'on');--> statement-breakpoint
CREATE POLICY "of_user" ON "job_lanes" AS PERMISSIVE FOR ALL TO public USING (user_id = (select current_setting('agent_runtime.user', true)) or (select current_setting('agent_runtime.all_users', true)) = 'on');--> statement-breakpoint
CREATE POLICY "of_user" ON "jobs" AS PERMISSIVE FOR ALL TO public USING (user_id = (select current_setting('agent_runtime.user', true)) or (select current_setting('agent_runtime.all_users', true)) = 'on');--> statement-breakpoint
CREATE POLICY "of_user" ON "legal_holds" AS PERMISSIVE FOR ALL TO public USING (user_id = (select current_setting('agent_runtime.user', true)) or (select current_setting('agent_runtime.all_users', true)) = 'on');--> statement-breakpoint
CREATE POLICY "of_user" ON "memories" AS PERMISSIVE FOR ALL TO public USING (user_id = (select current_setting('agent_runtime.user', true)) or (select current_setting('agent_runtime.all_users', true)) = 'on');--> statement-breakpoint
CREATE POLICY "of_user" ON "session_verdicts" AS PERMISSIVE FOR ALL TO public USING (user_id = (select current_setting('agent_runtime.user', true)) or (select current_setting('agent_runtime.all_users', true)) = 'on');--> statement-breakpoint
CREATE POLICY "of_user" ON "sessions" AS PERMISSIVE FOR ALL TO public USING (user_id = (select current_setting('agent_runtime.user', true)) or (select current_setting('agent_runtime.all_users', true)) = 'on');--> statement-breakpoint
CREATE POLICY "of_user" ON "signals" AS PERMISSIVE FOR ALL TO public USING (user_id = (select current_setting('agent_runtime.user', true)) or (select current_setting('agent_runtime.all_users', true)) = 'on');--> statement-breakpoint
CREATE POLICY "of_user" ON "skipped_runs" AS PERMISSIVE FOR ALL TO public USING (user_id = (select current_setting('agent_runtime.user', true)) or (select current_setting('agent_runtime.all_users', true)) = 'on');--> statement-breakpoint
CREATE POLICY "of_user" ON "spans" AS PERMISSIVE FOR ALL TO public USING (user_id = (select current_setting('agent_runtime.user', true)) or (select current_setting('agent_runtime.all_users', true)) = 'on');--> statement-breakpoint
CREATE POLICY "of_user" ON "tasks" AS PERMISSIVE FOR ALL TO public USING (user_id = (select current_setting('agent_runtime.user', true))
    or assigned_users @> array[(select current_setting('agent_runtime.user', true))]
    or assigned_groups && (select string_to_array(current_setting('agent_runtime.groups', true), E'\x1f')) or (select current_setting('agent_runtime.all_users', true)) = 'on');--> statement-breakpoint
CREATE POLICY "of_user" ON "tool_calls" AS PERMISSIVE FOR ALL TO public USING (user_id = (select current_setting('agent_runtime.user', true)) or (select current_setting('agent_runtime.all_users', true)) = 'on');--> statement-breakpoint
CREATE POLICY "of_user" ON "user_credentials" AS PERMISSIVE FOR ALL TO public USING (user_id = (select current_setting('agent_runtime.user', true)) or (select current_setting('agent_runtime.all_users', true)) = 'on');--> statement-breakpoint
CREATE POLICY "of_user" ON "user_erasures" AS PERMISSIVE FOR ALL TO public USING (user_id = (select current_setting('agent_runtime.user', true)) or (select current_setting('agent_runtime.all_users', true)) = 'on');--> statement-breakpoint
CREATE POLICY "of_user" ON "user_states" AS PERMISSIVE FOR ALL TO public USING (user_id = (select current_setting('agent_runtime.user', true)) or (select current_setting('agent_runtime.all_users', true)) = 'on');--> statement-breakpoint
CREATE POLICY "of_user" ON "user_storage" AS PERMISSIVE FOR ALL TO public USING (user_id = (select current_setting('agent_runtime.user', true)) or (select current_setting('agent_runtime.all_users', true)) = 'on');--> statement-breakpoint
CREATE POLICY "of_user" ON "webhook_deliveries" AS PERMISSIVE FOR ALL TO public USING (user_id = (select current_setting('agent_runtime.user', true)) or (select current_setting('agent_runtime.all_users', true)) = 'on');--> statement-breakpoint
CREATE POLICY "of_user" ON "webhooks" AS PERMISSIVE FOR ALL TO public USING (user_id = (select current_setting('agent_runtime.user', true)) or (select current_setting('agent_runtime.all_users', true)) = 'on');