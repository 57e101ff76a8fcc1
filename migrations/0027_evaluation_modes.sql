ALTER TABLE "eval_runs" ADD COLUMN "model_execution_mode" text DEFAULT 'live' NOT NULL;--> statement-breakpoint
ALTER TABLE "eval_runs" ADD COLUMN "tool_execution_mode" text DEFAULT 'live' NOT NULL;--> statement-breakpoint
ALTER TABLE "eval_runs" ADD COLUMN "summary" jsonb;--> statement-breakpoint
ALTER TABLE "eval_sets" ADD COLUMN "model_execution_mode" text;--> statement-breakpoint
ALTER TABLE "eval_sets" ADD COLUMN "tool_execution_mode" text;--> statement-breakpoint
ALTER TABLE "eval_runs" ADD CONSTRAINT "eval_runs_modes_check" CHECK (model_execution_mode in ('live', 'stored') and tool_execution_mode in ('live', 'stored'));--> statement-breakpoint
comment on column eval_runs.model_execution_mode is 'stored: the models say what the cases say; live: they are called.';--> statement-breakpoint
comment on column eval_runs.tool_execution_mode is 'stored: the tools answer what the cases say; live: they are run.';--> statement-breakpoint
comment on column eval_runs.summary is 'Counts of its cases and mean scores as it ended; null for cancelled and open ones.';--> statement-breakpoint
comment on column eval_sets.model_execution_mode is 'That of runs that name none, as it was sent; null: live.';--> statement-breakpoint
comment on column eval_sets.tool_execution_mode is 'That of runs that name none, as it was sent; null: live.';
