ALTER TABLE "invocations" ADD COLUMN "failed_calls" integer DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE "invocations" ADD COLUMN "work_ms" integer DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE "invocations" ADD COLUMN "model_tokens" jsonb;--> statement-breakpoint
CREATE INDEX "invocations_failed_calls_idx" ON "invocations" USING btree ("app_name","create_time","id") WHERE failed_calls > 0;