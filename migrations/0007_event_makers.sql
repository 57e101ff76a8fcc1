ALTER TABLE "events" ADD COLUMN "is_from_runtime" boolean DEFAULT false NOT NULL;--> statement-breakpoint
comment on column events.is_from_runtime is 'True where this runtime made the event; false where a request brought it, whatever author it names. Events from before this column count as brought.';
