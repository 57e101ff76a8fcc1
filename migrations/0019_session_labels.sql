ALTER TABLE "sessions" ADD COLUMN "labels" jsonb DEFAULT '{}'::jsonb NOT NULL;--> statement-breakpoint
ALTER TABLE "sessions" ADD COLUMN "first_text" text;--> statement-breakpoint
ALTER TABLE "sessions" ADD COLUMN "forked_from_id" text collate "C";--> statement-breakpoint
ALTER TABLE "sessions" ADD COLUMN "forked_from_sequence" integer;--> statement-breakpoint
CREATE INDEX "sessions_created_idx" ON "sessions" USING btree ("app_name","user_id","create_time" DESC NULLS FIRST,"id" DESC NULLS FIRST) WHERE not is_eval;--> statement-breakpoint
comment on column sessions.labels is 'Names and values that clients gave it, all strings.';--> statement-breakpoint
comment on column sessions.first_text is 'Beginning of the first text of its user; empty where there is none yet, null in sessions of older versions.';--> statement-breakpoint
comment on column sessions.forked_from_id is 'The session of the same user that it is a copy of; that may be gone by now.';--> statement-breakpoint
comment on column sessions.forked_from_sequence is 'Number of events that it was copied with.';
