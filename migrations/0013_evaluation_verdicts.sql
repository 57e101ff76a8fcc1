CREATE TABLE "eval_session_scores" (
	"app_name" text collate "C" NOT NULL,
	"user_id" text collate "C" NOT NULL,
	"session_id" text collate "C" NOT NULL,
	"last_sequence" integer NOT NULL,
	"metrics_hash" text NOT NULL,
	"result" jsonb NOT NULL,
	"create_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "eval_session_scores_pkey" PRIMARY KEY("app_name","user_id","session_id","last_sequence","metrics_hash")
);
--> statement-breakpoint
CREATE TABLE "eval_verdicts" (
	"app_name" text collate "C" NOT NULL,
	"user_id" text collate "C" NOT NULL,
	"session_id" text collate "C" NOT NULL,
	"turn" integer NOT NULL,
	"metric_name" text collate "C" NOT NULL,
	"author" text collate "C" NOT NULL,
	"passed" boolean NOT NULL,
	"comment" text,
	"create_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "eval_verdicts_pkey" PRIMARY KEY("app_name","user_id","session_id","turn","metric_name","author"),
	CONSTRAINT "eval_verdicts_turn_check" CHECK (turn >= 0)
);
--> statement-breakpoint
ALTER TABLE "eval_runs" ADD COLUMN "judged_run_id" uuid;--> statement-breakpoint
alter table eval_session_scores add constraint eval_session_scores_session_fkey foreign key (app_name, user_id, session_id) references sessions (app_name, user_id, id) on delete cascade;--> statement-breakpoint
alter table eval_verdicts add constraint eval_verdicts_session_fkey foreign key (app_name, user_id, session_id) references sessions (app_name, user_id, id) on delete cascade;--> statement-breakpoint
comment on column eval_runs.judged_run_id is 'Run whose stored turns this one judges again, without the agent; null for a run of its own.';--> statement-breakpoint
comment on table eval_verdicts is 'What people say of turns, beside the judges.';--> statement-breakpoint
comment on column eval_verdicts.app_name is 'Application.';--> statement-breakpoint
comment on column eval_verdicts.user_id is 'User of the session.';--> statement-breakpoint
comment on column eval_verdicts.session_id is 'Session of the case.';--> statement-breakpoint
comment on column eval_verdicts.turn is 'Turn of the session, from 0.';--> statement-breakpoint
comment on column eval_verdicts.metric_name is 'Metric that the verdict stands beside.';--> statement-breakpoint
comment on column eval_verdicts.author is 'Who said so: a user of a token, the id of a key, or local.';--> statement-breakpoint
comment on column eval_verdicts.passed is 'Whether the turn is good.';--> statement-breakpoint
comment on column eval_verdicts.comment is 'Why, in words.';--> statement-breakpoint
comment on column eval_verdicts.create_time is 'When it was said.';--> statement-breakpoint
comment on table eval_session_scores is 'Scores of sessions that no run made, each as the session was at one of its events.';--> statement-breakpoint
comment on column eval_session_scores.app_name is 'Application.';--> statement-breakpoint
comment on column eval_session_scores.user_id is 'Owner of the session.';--> statement-breakpoint
comment on column eval_session_scores.session_id is 'Session.';--> statement-breakpoint
comment on column eval_session_scores.last_sequence is 'Last event that is part of what was scored.';--> statement-breakpoint
comment on column eval_session_scores.metrics_hash is 'SHA-256 of the metrics as requested, hexadecimal.';--> statement-breakpoint
comment on column eval_session_scores.result is 'Scores of the session and of its turns, with tokens and times.';--> statement-breakpoint
comment on column eval_session_scores.create_time is 'When it was scored.';--> statement-breakpoint

create view inspect.eval_runs as
select r.app_name, r.id as run_id, r.eval_set_id, r.status, r.requested_by, r.judged_run_id, r.model_name, r.agent_hash,
       c.total, c.passed, c.failed, c.not_evaluated, c.errors, r.create_time, r.end_time,
       r.end_time - r.create_time as duration
from eval_runs r cross join lateral (
  select count(*) as total, count(*) filter (where result ->> 'finalStatus' = 'PASSED') as passed,
         count(*) filter (where result ->> 'finalStatus' = 'FAILED') as failed,
         count(*) filter (where result ->> 'finalStatus' = 'NOT_EVALUATED') as not_evaluated,
         count(*) filter (where status = 'error') as errors
  from eval_run_cases where app_name = r.app_name and run_id = r.id) c;--> statement-breakpoint
comment on view inspect.eval_runs is 'Evaluation runs with the counts of their cases; order by create_time.';--> statement-breakpoint
comment on column inspect.eval_runs.app_name is 'Application.';--> statement-breakpoint
comment on column inspect.eval_runs.run_id is 'Run.';--> statement-breakpoint
comment on column inspect.eval_runs.eval_set_id is 'Set that was run.';--> statement-breakpoint
comment on column inspect.eval_runs.status is 'queued, running, done or cancelled.';--> statement-breakpoint
comment on column inspect.eval_runs.requested_by is 'User of the token that requested it; null for keys and local callers.';--> statement-breakpoint
comment on column inspect.eval_runs.judged_run_id is 'Run whose stored turns it judged; null for a run of its own.';--> statement-breakpoint
comment on column inspect.eval_runs.model_name is 'Model of the agent.';--> statement-breakpoint
comment on column inspect.eval_runs.agent_hash is 'SHA-256 of the agent: two runs with one hash had the same instructions and tools.';--> statement-breakpoint
comment on column inspect.eval_runs.total is 'Number of cases, each trial counted.';--> statement-breakpoint
comment on column inspect.eval_runs.passed is 'Those that passed.';--> statement-breakpoint
comment on column inspect.eval_runs.failed is 'Those that failed by a metric.';--> statement-breakpoint
comment on column inspect.eval_runs.not_evaluated is 'Those of which no metric says anything.';--> statement-breakpoint
comment on column inspect.eval_runs.errors is 'Those that could not be brought to an end.';--> statement-breakpoint
comment on column inspect.eval_runs.create_time is 'When it was requested.';--> statement-breakpoint
comment on column inspect.eval_runs.end_time is 'When it ended; null until then.';--> statement-breakpoint
comment on column inspect.eval_runs.duration is 'How long it took.';--> statement-breakpoint

create view inspect.eval_cases as
select app_name, run_id, eval_set_id, eval_id, case_version, trial, status, result ->> 'finalStatus' as verdict,
       session_user_id as user_id, session_id, error,
       (result -> 'efficiency' -> 'tokenUsage' ->> 'overall')::float8 as tokens_per_turn,
       end_time - start_time as duration, end_time
from eval_run_cases;--> statement-breakpoint
comment on view inspect.eval_cases is 'The cases of evaluation runs, each trial by itself; ask for app_name and run_id.';--> statement-breakpoint
comment on column inspect.eval_cases.app_name is 'Application.';--> statement-breakpoint
comment on column inspect.eval_cases.run_id is 'Run.';--> statement-breakpoint
comment on column inspect.eval_cases.eval_set_id is 'Set of the case.';--> statement-breakpoint
comment on column inspect.eval_cases.eval_id is 'Case.';--> statement-breakpoint
comment on column inspect.eval_cases.case_version is 'Version of the case that was run.';--> statement-breakpoint
comment on column inspect.eval_cases.trial is 'Trial, from 1.';--> statement-breakpoint
comment on column inspect.eval_cases.status is 'waiting, running, done, error or cancelled.';--> statement-breakpoint
comment on column inspect.eval_cases.verdict is 'PASSED, FAILED or NOT_EVALUATED; null unless it is done.';--> statement-breakpoint
comment on column inspect.eval_cases.user_id is 'User of its session.';--> statement-breakpoint
comment on column inspect.eval_cases.session_id is 'Session that it ran in: inspect.conversation shows it.';--> statement-breakpoint
comment on column inspect.eval_cases.error is 'Why it could not be brought to an end.';--> statement-breakpoint
comment on column inspect.eval_cases.tokens_per_turn is 'Tokens of a turn, the mean; null where no model reported some.';--> statement-breakpoint
comment on column inspect.eval_cases.duration is 'How long it took.';--> statement-breakpoint
comment on column inspect.eval_cases.end_time is 'When it ended.';--> statement-breakpoint

create view inspect.eval_trends as
select r.app_name, r.eval_set_id, r.id as run_id, r.create_time, m ->> 'metricName' as metric_name,
       avg((m ->> 'score')::float8) as mean_score, count(*) filter (where m ->> 'status' = 'PASSED') as passed,
       count(*) filter (where m ->> 'status' = 'FAILED') as failed,
       count(*) filter (where m ->> 'status' = 'NOT_EVALUATED') as not_evaluated
from eval_runs r
join eval_run_cases c on c.app_name = r.app_name and c.run_id = r.id
cross join lateral jsonb_array_elements(c.result -> 'overall') m
where r.status = 'done'
group by r.app_name, r.eval_set_id, r.id, r.create_time, m ->> 'metricName';--> statement-breakpoint
comment on view inspect.eval_trends is 'What each run of a set gave in each metric: ask for app_name and eval_set_id, and order by create_time.';--> statement-breakpoint
comment on column inspect.eval_trends.app_name is 'Application.';--> statement-breakpoint
comment on column inspect.eval_trends.eval_set_id is 'Set.';--> statement-breakpoint
comment on column inspect.eval_trends.run_id is 'Run.';--> statement-breakpoint
comment on column inspect.eval_trends.create_time is 'When the run was requested.';--> statement-breakpoint
comment on column inspect.eval_trends.metric_name is 'Metric.';--> statement-breakpoint
comment on column inspect.eval_trends.mean_score is 'Mean of its scores over the cases; null where none gave one.';--> statement-breakpoint
comment on column inspect.eval_trends.passed is 'Cases that passed by it.';--> statement-breakpoint
comment on column inspect.eval_trends.failed is 'Cases that failed by it.';--> statement-breakpoint
comment on column inspect.eval_trends.not_evaluated is 'Cases of which it says nothing.';--> statement-breakpoint

create view inspect.eval_judges as
select c.app_name, c.eval_set_id, m ->> 'metricName' as metric_name, m -> 'judge' ->> 'model' as judge_model,
       m -> 'judge' ->> 'promptVersion' as prompt_version,
       count(*) filter (where v.passed and t ->> 'status' = 'PASSED') as both_pass,
       count(*) filter (where not v.passed and t ->> 'status' = 'PASSED') as only_judge_passes,
       count(*) filter (where v.passed and t ->> 'status' = 'FAILED') as only_person_passes,
       count(*) filter (where not v.passed and t ->> 'status' = 'FAILED') as both_fail
from eval_verdicts v
join eval_run_cases c
  on c.app_name = v.app_name and c.session_user_id = v.user_id and c.session_id = v.session_id and c.status = 'done'
cross join lateral jsonb_array_elements(c.result -> 'overall') m
cross join lateral jsonb_array_elements(c.result -> 'turns' -> v.turn) t
where m ->> 'metricName' = v.metric_name and t ->> 'metricName' = v.metric_name and m ? 'judge'
group by c.app_name, c.eval_set_id, m ->> 'metricName', m -> 'judge' ->> 'model', m -> 'judge' ->> 'promptVersion';--> statement-breakpoint
comment on view inspect.eval_judges is 'Verdicts of judges beside those of people on the same turns, by judge and version of its prompt.';--> statement-breakpoint
comment on column inspect.eval_judges.app_name is 'Application.';--> statement-breakpoint
comment on column inspect.eval_judges.eval_set_id is 'Set.';--> statement-breakpoint
comment on column inspect.eval_judges.metric_name is 'Metric.';--> statement-breakpoint
comment on column inspect.eval_judges.judge_model is 'Model that judged.';--> statement-breakpoint
comment on column inspect.eval_judges.prompt_version is 'Changes with the words of its prompt.';--> statement-breakpoint
comment on column inspect.eval_judges.both_pass is 'Turns that both find good.';--> statement-breakpoint
comment on column inspect.eval_judges.only_judge_passes is 'Turns that only the judge finds good.';--> statement-breakpoint
comment on column inspect.eval_judges.only_person_passes is 'Turns that only a person finds good.';--> statement-breakpoint
comment on column inspect.eval_judges.both_fail is 'Turns that neither finds good.';
