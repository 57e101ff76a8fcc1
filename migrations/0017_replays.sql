CREATE TABLE "agent_prompts" (
	"app_name" text collate "C" NOT NULL,
	"hash" text NOT NULL,
	"payload" jsonb NOT NULL,
	"use_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "agent_prompts_pkey" PRIMARY KEY("app_name","hash")
);
--> statement-breakpoint
CREATE TABLE "invocation_tapes" (
	"app_name" text collate "C" NOT NULL,
	"user_id" text collate "C" NOT NULL,
	"session_id" text collate "C" NOT NULL,
	"invocation_id" text collate "C" NOT NULL,
	"start" integer NOT NULL,
	"payload" jsonb NOT NULL,
	CONSTRAINT "invocation_tapes_pkey" PRIMARY KEY("app_name","user_id","session_id","invocation_id","start")
);
--> statement-breakpoint
ALTER TABLE "invocation_tapes" ADD CONSTRAINT "invocation_tapes_invocation_fkey" FOREIGN KEY ("app_name","user_id","session_id","invocation_id") REFERENCES "public"."invocations"("app_name","user_id","session_id","id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "agent_prompts_age_idx" ON "agent_prompts" USING btree ("use_time");--> statement-breakpoint
comment on table agent_prompts is 'What agents give their models beside the conversation, each once per application: a replay names what has changed since. Forgotten after PROMPT_RETENTION_DAYS without use.';--> statement-breakpoint
comment on column agent_prompts.app_name is 'The application.';--> statement-breakpoint
comment on column agent_prompts.hash is 'SHA-256 of the whole prompt, hexadecimal; tapes name it.';--> statement-breakpoint
comment on column agent_prompts.payload is 'Agent, instruction (a template; absent where a request brought its own, which then stands in its tape), tools as declared, model and sampling.';--> statement-breakpoint
comment on column agent_prompts.use_time is 'When it was last used, to the day.';--> statement-breakpoint
comment on table invocation_tapes is 'What a replay needs to know of an invocation beside its events: one row for each time that it ran.';--> statement-breakpoint
comment on column invocation_tapes.app_name is 'The application.';--> statement-breakpoint
comment on column invocation_tapes.user_id is 'Owner of the session.';--> statement-breakpoint
comment on column invocation_tapes.session_id is 'The session.';--> statement-breakpoint
comment on column invocation_tapes.invocation_id is 'The invocation.';--> statement-breakpoint
comment on column invocation_tapes.start is 'Number of events of the session when it ran, its prompt included.';--> statement-breakpoint
comment on column invocation_tapes.payload is 'What its request changed of the agent, the state values that instructions name, and for each model call its prompt and digests of what it was given.';
