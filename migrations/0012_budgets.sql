CREATE TABLE "budget_uses" (
	"app_name" text collate "C" NOT NULL,
	"user_id" text collate "C" NOT NULL,
	"day" date NOT NULL,
	"shard" smallint NOT NULL,
	"invocations" bigint NOT NULL,
	"prompt_tokens" bigint NOT NULL,
	"output_tokens" bigint NOT NULL,
	"cost" numeric NOT NULL,
	CONSTRAINT "budget_uses_pkey" PRIMARY KEY("app_name","user_id","day","shard")
);
--> statement-breakpoint
CREATE TABLE "budgets" (
	"app_name" text collate "C" NOT NULL,
	"user_id" text collate "C" NOT NULL,
	"applies_to" text NOT NULL,
	"period" text NOT NULL,
	"max_invocations" bigint,
	"max_tokens" bigint,
	"max_cost" numeric,
	"update_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "budgets_pkey" PRIMARY KEY("app_name","user_id","applies_to","period"),
	CONSTRAINT "budgets_applies_to_check" CHECK (applies_to in ('app', 'users', 'user')),
	CONSTRAINT "budgets_period_check" CHECK (period in ('day', 'month')),
	CONSTRAINT "budgets_user_id_check" CHECK ((applies_to = 'user') = (user_id <> ''))
);
--> statement-breakpoint
CREATE TABLE "model_prices" (
	"model" text collate "C" PRIMARY KEY NOT NULL,
	"prompt_price" numeric NOT NULL,
	"output_price" numeric NOT NULL,
	"update_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL
);
--> statement-breakpoint
CREATE INDEX "budget_uses_day_idx" ON "budget_uses" USING btree ("app_name","day");--> statement-breakpoint
comment on table budgets is 'What users of an application may use in a day or a month of UTC. Read with each claim, so a change holds at once.';--> statement-breakpoint
comment on column budgets.app_name is 'Application.';--> statement-breakpoint
comment on column budgets.user_id is 'User, where it applies to one; empty otherwise.';--> statement-breakpoint
comment on column budgets.applies_to is 'app: all users together; users: each user without a budget of their own for the period; user: the one in user_id.';--> statement-breakpoint
comment on column budgets.period is 'day or month.';--> statement-breakpoint
comment on column budgets.max_invocations is 'Maximum number of invocations; null: no limit.';--> statement-breakpoint
comment on column budgets.max_tokens is 'Maximum number of prompt, answer and thought tokens; null: no limit.';--> statement-breakpoint
comment on column budgets.max_cost is 'Maximum cost by model_prices; null: no limit.';--> statement-breakpoint
comment on column budgets.update_time is 'Last change.';--> statement-breakpoint
comment on table budget_uses is 'What was used, counted by the statements that begin invocations and store what models answered.';--> statement-breakpoint
comment on column budget_uses.app_name is 'Application.';--> statement-breakpoint
comment on column budget_uses.user_id is 'User.';--> statement-breakpoint
comment on column budget_uses.day is 'Day in UTC.';--> statement-breakpoint
comment on column budget_uses.shard is 'One of several rows of a day, so that invocations of one user do not wait for each other.';--> statement-breakpoint
comment on column budget_uses.invocations is 'Invocations that began.';--> statement-breakpoint
comment on column budget_uses.prompt_tokens is 'Prompt tokens of all model calls.';--> statement-breakpoint
comment on column budget_uses.output_tokens is 'Answer and thought tokens of all model calls.';--> statement-breakpoint
comment on column budget_uses.cost is 'Their cost by the prices of then.';--> statement-breakpoint
comment on table model_prices is 'What models cost, in a currency of the operator.';--> statement-breakpoint
comment on column model_prices.model is 'Model as the agent calls it; * for all that have no row.';--> statement-breakpoint
comment on column model_prices.prompt_price is 'Price of a million prompt tokens.';--> statement-breakpoint
comment on column model_prices.output_price is 'Price of a million answer and thought tokens.';--> statement-breakpoint
comment on column model_prices.update_time is 'Last change.';--> statement-breakpoint
create view inspect.budget_uses as
select app_name, user_id, day, sum(invocations)::bigint as invocations, sum(prompt_tokens)::bigint as prompt_tokens,
       sum(output_tokens)::bigint as output_tokens, sum(cost) as cost
from budget_uses group by app_name, user_id, day;--> statement-breakpoint
comment on view inspect.budget_uses is 'What each user used by day, those of deleted sessions and of failed invocations included.';--> statement-breakpoint
comment on column inspect.budget_uses.app_name is 'Application.';--> statement-breakpoint
comment on column inspect.budget_uses.user_id is 'User.';--> statement-breakpoint
comment on column inspect.budget_uses.day is 'Day in UTC.';--> statement-breakpoint
comment on column inspect.budget_uses.invocations is 'Invocations that began.';--> statement-breakpoint
comment on column inspect.budget_uses.prompt_tokens is 'Prompt tokens of all model calls.';--> statement-breakpoint
comment on column inspect.budget_uses.output_tokens is 'Answer and thought tokens of all model calls.';--> statement-breakpoint
comment on column inspect.budget_uses.cost is 'Their cost by model_prices of then.';
