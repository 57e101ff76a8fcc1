ALTER TABLE "tasks" DROP CONSTRAINT "tasks_kind_check";--> statement-breakpoint
ALTER TABLE "tasks" DROP CONSTRAINT "tasks_decided_via_check";--> statement-breakpoint
ALTER TABLE "invocations" ADD COLUMN "children" smallint DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE "sessions" ADD COLUMN "parent_session_id" text collate "C";--> statement-breakpoint
ALTER TABLE "sessions" ADD COLUMN "parent_invocation_id" text collate "C";--> statement-breakpoint
ALTER TABLE "sessions" ADD COLUMN "parent_call_id" text collate "C";--> statement-breakpoint
ALTER TABLE "sessions" ADD COLUMN "root_session_id" text collate "C";--> statement-breakpoint
ALTER TABLE "sessions" ADD COLUMN "depth" smallint DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE "sessions" ADD CONSTRAINT "sessions_parent_fkey" FOREIGN KEY ("app_name","user_id","parent_session_id") REFERENCES "public"."sessions"("app_name","user_id","id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "sessions_parent_idx" ON "sessions" USING btree ("app_name","user_id","parent_session_id","parent_invocation_id") WHERE parent_session_id is not null;--> statement-breakpoint
ALTER TABLE "sessions" ADD CONSTRAINT "sessions_parent_check" CHECK (num_nulls(parent_session_id, parent_invocation_id, parent_call_id, root_session_id) = case when depth = 0 then 4 else 0 end);--> statement-breakpoint
ALTER TABLE "tasks" ADD CONSTRAINT "tasks_kind_check" CHECK (kind in ('confirmation', 'effect', 'question', 'call', 'sleep', 'signal', 'budget', 'child'));--> statement-breakpoint
ALTER TABLE "tasks" ADD CONSTRAINT "tasks_decided_via_check" CHECK (decided_via in ('tasks', 'run', 'signal', 'deadline', 'child'));