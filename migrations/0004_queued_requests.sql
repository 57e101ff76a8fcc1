ALTER TABLE "invocations" ADD COLUMN "request" jsonb;--> statement-breakpoint
CREATE INDEX "invocations_background_idx" ON "invocations" USING btree ("create_time") WHERE status = 'queued' and request is not null;--> statement-breakpoint
comment on column invocations.request is 'Body of a start in the background that waits for its session, as JSON; null once it has begun or ended.';
