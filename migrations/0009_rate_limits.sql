CREATE TABLE "rate_limits" (
	"key" varchar(255) PRIMARY KEY NOT NULL,
	"points" integer DEFAULT 0 NOT NULL,
	"expire" bigint
);
--> statement-breakpoint
comment on table rate_limits is 'What callers did in the running minute, by classes of operations, and wrong credentials. May be emptied at any time.';--> statement-breakpoint
comment on column rate_limits.key is 'Class, and the digest of the caller: nobody is named.';--> statement-breakpoint
comment on column rate_limits.points is 'How much has been taken in the window.';--> statement-breakpoint
comment on column rate_limits.expire is 'End of the window, Unix time in milliseconds.';
