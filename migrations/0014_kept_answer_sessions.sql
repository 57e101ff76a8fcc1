ALTER TABLE "idempotency_keys" ADD COLUMN "session_id" text collate "C";--> statement-breakpoint
CREATE INDEX "idempotency_keys_session_idx" ON "idempotency_keys" USING btree ("app_name","user_id","session_id") WHERE session_id is not null;--> statement-breakpoint
comment on column idempotency_keys.session_id is 'Session that the request is about: when it is deleted, the answer is emptied and a retry is told that the session is not found. Null where it is about none.';
