CREATE TABLE "app_states" (
	"app_name" text collate "C" PRIMARY KEY NOT NULL,
	"state" jsonb NOT NULL,
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
	CONSTRAINT "artifact_versions_pkey" PRIMARY KEY("app_name","user_id","session_id","artifact_name","version")
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
CREATE TABLE "cronjob_runs" (
	"app_name" text collate "C" NOT NULL,
	"user_id" text collate "C" NOT NULL,
	"cronjob_id" text collate "C" NOT NULL,
	"id" text collate "C" NOT NULL,
	"status" text NOT NULL,
	"session_id" text collate "C",
	"invocation_id" text collate "C",
	"attempt" integer DEFAULT 0 NOT NULL,
	"output" text,
	"error_message" text,
	"scheduled_time" timestamp (6) with time zone NOT NULL,
	"start_time" timestamp (6) with time zone,
	"end_time" timestamp (6) with time zone,
	"create_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "cronjob_runs_pkey" PRIMARY KEY("app_name","user_id","cronjob_id","id")
);
--> statement-breakpoint
CREATE TABLE "cronjobs" (
	"app_name" text collate "C" NOT NULL,
	"user_id" text collate "C" NOT NULL,
	"id" text collate "C" NOT NULL,
	"name" text NOT NULL,
	"prompt" text NOT NULL,
	"schedule" jsonb NOT NULL,
	"time_zone" text NOT NULL,
	"enabled" boolean DEFAULT true NOT NULL,
	"next_run_time" timestamp (6) with time zone,
	"create_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	"update_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "cronjobs_pkey" PRIMARY KEY("app_name","user_id","id")
);
--> statement-breakpoint
CREATE TABLE "eval_cases" (
	"app_name" text collate "C" NOT NULL,
	"eval_set_id" text collate "C" NOT NULL,
	"id" text collate "C" NOT NULL,
	"source_user_id" text collate "C",
	"source_session_id" text collate "C",
	"payload" jsonb NOT NULL,
	"create_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "eval_cases_pkey" PRIMARY KEY("app_name","eval_set_id","id")
);
--> statement-breakpoint
CREATE TABLE "eval_results" (
	"app_name" text collate "C" NOT NULL,
	"id" text collate "C" NOT NULL,
	"eval_set_id" text collate "C" NOT NULL,
	"payload" jsonb NOT NULL,
	"create_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "eval_results_pkey" PRIMARY KEY("app_name","id")
);
--> statement-breakpoint
CREATE TABLE "eval_sets" (
	"app_name" text collate "C" NOT NULL,
	"id" text collate "C" NOT NULL,
	"name" text,
	"description" text,
	"create_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "eval_sets_pkey" PRIMARY KEY("app_name","id")
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
	"payload" jsonb NOT NULL,
	CONSTRAINT "events_pkey" PRIMARY KEY("app_name","user_id","session_id","sequence"),
	CONSTRAINT "events_id_key" UNIQUE("app_name","user_id","session_id","id")
);
--> statement-breakpoint
CREATE TABLE "idempotency_keys" (
	"scope" text collate "C" NOT NULL,
	"key" text collate "C" NOT NULL,
	"request_hash" text NOT NULL,
	"answer" text NOT NULL,
	"create_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "idempotency_keys_pkey" PRIMARY KEY("scope","key")
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
	"answer" text,
	"error_code" text,
	"error_message" text,
	"cancel_status" text,
	"tool_calls" integer DEFAULT 0 NOT NULL,
	"llm_calls" integer DEFAULT 0 NOT NULL,
	"prompt_tokens" integer DEFAULT 0 NOT NULL,
	"output_tokens" integer DEFAULT 0 NOT NULL,
	"create_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	"start_time" timestamp (6) with time zone,
	"end_time" timestamp (6) with time zone,
	CONSTRAINT "invocations_pkey" PRIMARY KEY("app_name","user_id","session_id","id"),
	CONSTRAINT "invocations_idempotency_key" UNIQUE("app_name","user_id","idempotency_key"),
	CONSTRAINT "invocations_status_check" CHECK (status in ('queued', 'running', 'paused', 'succeeded', 'failed', 'interrupted', 'cancelled'))
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
	"words" "tsvector" NOT NULL,
	CONSTRAINT "memories_pkey" PRIMARY KEY("app_name","user_id","session_id","event_id")
);
--> statement-breakpoint
CREATE TABLE "sessions" (
	"app_name" text collate "C" NOT NULL,
	"user_id" text collate "C" NOT NULL,
	"id" text collate "C" NOT NULL,
	"state" jsonb DEFAULT '{}'::jsonb NOT NULL,
	"last_sequence" integer DEFAULT 0 NOT NULL,
	"is_eval" boolean DEFAULT false NOT NULL,
	"lease_token" uuid,
	"create_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	"update_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "sessions_pkey" PRIMARY KEY("app_name","user_id","id")
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
CREATE TABLE "user_states" (
	"app_name" text collate "C" NOT NULL,
	"user_id" text collate "C" NOT NULL,
	"state" jsonb NOT NULL,
	"update_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "user_states_pkey" PRIMARY KEY("app_name","user_id")
);
--> statement-breakpoint
ALTER TABLE "artifact_versions" ADD CONSTRAINT "artifact_versions_artifact_fkey" FOREIGN KEY ("app_name","user_id","session_id","artifact_name") REFERENCES "public"."artifacts"("app_name","user_id","session_id","name") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "cronjob_runs" ADD CONSTRAINT "cronjob_runs_cronjob_fkey" FOREIGN KEY ("app_name","user_id","cronjob_id") REFERENCES "public"."cronjobs"("app_name","user_id","id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "eval_cases" ADD CONSTRAINT "eval_cases_set_fkey" FOREIGN KEY ("app_name","eval_set_id") REFERENCES "public"."eval_sets"("app_name","id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "events" ADD CONSTRAINT "events_session_fkey" FOREIGN KEY ("app_name","user_id","session_id") REFERENCES "public"."sessions"("app_name","user_id","id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "invocations" ADD CONSTRAINT "invocations_session_fkey" FOREIGN KEY ("app_name","user_id","session_id") REFERENCES "public"."sessions"("app_name","user_id","id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "cronjobs_due_idx" ON "cronjobs" USING btree ("next_run_time") WHERE enabled;--> statement-breakpoint
CREATE INDEX "idempotency_keys_age_idx" ON "idempotency_keys" USING btree ("create_time");--> statement-breakpoint
CREATE INDEX "invocations_lease_idx" ON "invocations" USING btree ("lease_expire_time") WHERE status in ('queued', 'running');--> statement-breakpoint
CREATE INDEX "invocations_queue_idx" ON "invocations" USING btree ("app_name","user_id","session_id","create_time") WHERE status = 'queued';--> statement-breakpoint
CREATE INDEX "memories_words_idx" ON "memories" USING gin ("words");--> statement-breakpoint
CREATE INDEX "sessions_list_idx" ON "sessions" USING btree ("app_name","user_id","update_time" DESC NULLS FIRST,"id" DESC NULLS FIRST) WHERE not is_eval;--> statement-breakpoint
CREATE INDEX "spans_session_idx" ON "spans" USING btree ("app_name","session_id","start_ns");--> statement-breakpoint
CREATE INDEX "spans_event_idx" ON "spans" USING btree ("app_name","event_id");--> statement-breakpoint
CREATE INDEX "spans_age_idx" ON "spans" USING btree ("create_time");