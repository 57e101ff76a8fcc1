ALTER TABLE "invocations" ADD COLUMN "steered_invocation_id" text collate "C";--> statement-breakpoint
ALTER TABLE "sessions" ADD COLUMN "is_steered" boolean DEFAULT false NOT NULL;