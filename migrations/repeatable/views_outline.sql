-- The views of inspect without what people wrote, a section per view.
comment on schema inspect_outline is 'The views of inspect without content of conversations, names of artifacts and cronjobs, webhook addresses and error messages.';
--> statement-breakpoint
create or replace view inspect_outline.artifacts as
select app_name, user_id, session_id, version_count, latest_version, mime_type, total_bytes, object_count,
       update_time
from inspect.artifacts;
comment on view inspect_outline.artifacts is 'inspect.artifacts without name.';
comment on column inspect_outline.artifacts.app_name is 'Application.';
comment on column inspect_outline.artifacts.latest_version is 'Number of the latest version; the first one is 0.';
comment on column inspect_outline.artifacts.mime_type is 'MIME type of the latest version.';
comment on column inspect_outline.artifacts.object_count is 'Versions whose bytes are in the object store.';
comment on column inspect_outline.artifacts.session_id is 'Session; null for an artifact shared by all sessions of the user.';
comment on column inspect_outline.artifacts.total_bytes is 'Bytes of all versions.';
comment on column inspect_outline.artifacts.update_time is 'When the latest version was saved.';
comment on column inspect_outline.artifacts.user_id is 'Owner.';
comment on column inspect_outline.artifacts.version_count is 'Number of its versions.';
--> statement-breakpoint
create or replace view inspect_outline.audit as
select "time", decision, caller_kind, caller, address, operation, app_name, user_id, session_id, reason,
       request_id, left_out
from inspect.audit;
comment on view inspect_outline.audit is 'inspect.audit without resource.';
comment on column inspect_outline.audit."time" is 'When it was stored.';
comment on column inspect_outline.audit.address is 'Address of the client.';
comment on column inspect_outline.audit.app_name is 'Application of the request.';
comment on column inspect_outline.audit.caller is 'User of the token or id of the key.';
comment on column inspect_outline.audit.caller_kind is 'user, key, anonymous or unknown.';
comment on column inspect_outline.audit.decision is 'allowed or refused.';
comment on column inspect_outline.audit.left_out is 'Refusals of the same caller that were not logged before this entry.';
comment on column inspect_outline.audit.operation is 'operationId of the OpenAPI document.';
comment on column inspect_outline.audit.reason is 'Why it was refused.';
comment on column inspect_outline.audit.request_id is 'X-Request-Id of the answer.';
comment on column inspect_outline.audit.session_id is 'Session in the path.';
comment on column inspect_outline.audit.user_id is 'User of the request.';
--> statement-breakpoint
create or replace view inspect_outline.budget_alerts as
select app_name, user_id, applies_to, period, since, level
from inspect.budget_alerts;
comment on view inspect_outline.budget_alerts is 'inspect.budget_alerts.';
comment on column inspect_outline.budget_alerts.app_name is 'Application.';
comment on column inspect_outline.budget_alerts.applies_to is 'As in inspect.budgets.';
comment on column inspect_outline.budget_alerts.level is '50, 80 or 100 percent.';
comment on column inspect_outline.budget_alerts.period is 'day or month.';
comment on column inspect_outline.budget_alerts.since is 'First day of the period in UTC.';
comment on column inspect_outline.budget_alerts.user_id is 'User of the budget; null for all users.';
--> statement-breakpoint
create or replace view inspect_outline.budget_reservations as
select app_name, user_id, call_id, tokens, cost, expire_time, is_dead
from inspect.budget_reservations;
comment on view inspect_outline.budget_reservations is 'inspect.budget_reservations.';
comment on column inspect_outline.budget_reservations.app_name is 'Application.';
comment on column inspect_outline.budget_reservations.call_id is 'Id of the model call.';
comment on column inspect_outline.budget_reservations.cost is 'Their cost at the model_prices of that time.';
comment on column inspect_outline.budget_reservations.expire_time is 'When the reservation ends, unless its process renews it.';
comment on column inspect_outline.budget_reservations.is_dead is 'True after expiry: it no longer counts.';
comment on column inspect_outline.budget_reservations.tokens is 'Prompt and output tokens.';
comment on column inspect_outline.budget_reservations.user_id is 'User.';
--> statement-breakpoint
create or replace view inspect_outline.budget_uses as
select app_name, user_id, day, invocations, prompt_tokens, output_tokens, cost
from inspect.budget_uses;
comment on view inspect_outline.budget_uses is 'inspect.budget_uses.';
comment on column inspect_outline.budget_uses.app_name is 'Application.';
comment on column inspect_outline.budget_uses.cost is 'Their cost at the model_prices of that time.';
comment on column inspect_outline.budget_uses.day is 'Day in UTC.';
comment on column inspect_outline.budget_uses.invocations is 'Invocations: those that have started if the user has a budget, else those that have ended or paused.';
comment on column inspect_outline.budget_uses.output_tokens is 'Answer and thought tokens of all model calls.';
comment on column inspect_outline.budget_uses.prompt_tokens is 'Prompt tokens of all model calls.';
comment on column inspect_outline.budget_uses.user_id is 'User.';
--> statement-breakpoint
create or replace view inspect_outline.budgets as
select app_name, user_id, applies_to, period, max_invocations, max_tokens, max_cost, webhook_id, update_time,
       used_invocations, used_tokens, used_cost, is_used_up
from inspect.budgets;
comment on view inspect_outline.budgets is 'inspect.budgets.';
comment on column inspect_outline.budgets.app_name is 'Application.';
comment on column inspect_outline.budgets.applies_to is 'app: all users together; users: each user without a budget of their own; user: the user in user_id.';
comment on column inspect_outline.budgets.is_used_up is 'Whether a maximum is reached in this period; null where the use is of each user.';
comment on column inspect_outline.budgets.max_cost is 'Maximum cost by model_prices; null: no limit.';
comment on column inspect_outline.budgets.max_invocations is 'Maximum number of invocations; null: no limit.';
comment on column inspect_outline.budgets.max_tokens is 'Maximum number of prompt, answer and thought tokens; null: no limit.';
comment on column inspect_outline.budgets.period is 'day or month of UTC.';
comment on column inspect_outline.budgets.update_time is 'Last change.';
comment on column inspect_outline.budgets.used_cost is 'Cost in this period; null where the use is of each user.';
comment on column inspect_outline.budgets.used_invocations is 'Invocations in this period; null where the use is of each user.';
comment on column inspect_outline.budgets.used_tokens is 'Tokens in this period; null where the use is of each user.';
comment on column inspect_outline.budgets.user_id is 'The user if it applies to one.';
comment on column inspect_outline.budgets.webhook_id is 'Webhook to notify at 50, 80 and 100 percent.';
--> statement-breakpoint
create or replace view inspect_outline.conversation as
select app_name, user_id, session_id, sequence, event_time, author, invocation_id,
       octet_length(said) as said_bytes, error is not null as has_error
from inspect.conversation;
comment on view inspect_outline.conversation is 'inspect.conversation without said, error.';
comment on column inspect_outline.conversation.app_name is 'Application.';
comment on column inspect_outline.conversation.author is 'user, or the name of an agent.';
comment on column inspect_outline.conversation.event_time is 'Timestamp of the event.';
comment on column inspect_outline.conversation.has_error is 'True if the event has an error.';
comment on column inspect_outline.conversation.invocation_id is 'Invocation of the event.';
comment on column inspect_outline.conversation.said_bytes is 'Size of the column said in inspect.conversation.';
comment on column inspect_outline.conversation.sequence is 'Place in the session.';
comment on column inspect_outline.conversation.session_id is 'Session.';
comment on column inspect_outline.conversation.user_id is 'Owner.';
--> statement-breakpoint
create or replace view inspect_outline.cronjob_runs as
select app_name, user_id, cronjob_id, run_id, due_time, status, is_manual, attempt, lateness, duration, session_id,
       invocation_id, error_code
from inspect.cronjob_runs;
comment on view inspect_outline.cronjob_runs is 'inspect.cronjob_runs without name, output, error_message.';
comment on column inspect_outline.cronjob_runs.app_name is 'Application.';
comment on column inspect_outline.cronjob_runs.attempt is 'Number of attempts started.';
comment on column inspect_outline.cronjob_runs.cronjob_id is 'Cronjob.';
comment on column inspect_outline.cronjob_runs.due_time is 'When it was due.';
comment on column inspect_outline.cronjob_runs.duration is 'Duration of the last attempt.';
comment on column inspect_outline.cronjob_runs.error_code is 'Stable error code.';
comment on column inspect_outline.cronjob_runs.invocation_id is 'Invocation of its last attempt.';
comment on column inspect_outline.cronjob_runs.is_manual is 'Requested manually.';
comment on column inspect_outline.cronjob_runs.lateness is 'Time from due time to start, for runs with a single attempt.';
comment on column inspect_outline.cronjob_runs.run_id is 'Run.';
comment on column inspect_outline.cronjob_runs.session_id is 'Session of its last attempt.';
comment on column inspect_outline.cronjob_runs.status is 'queued, running, retrying, success, failed, cancelled or skipped.';
comment on column inspect_outline.cronjob_runs.user_id is 'Owner.';
--> statement-breakpoint
create or replace view inspect_outline.cronjobs as
select app_name, user_id, cronjob_id, schedule_type, enabled, disabled_reason, next_run_time, last_due_time,
       last_status, runs, success_rate, median_lateness, max_lateness, failures_in_a_row, revision
from inspect.cronjobs;
comment on view inspect_outline.cronjobs is 'inspect.cronjobs without name.';
comment on column inspect_outline.cronjobs.app_name is 'Application.';
comment on column inspect_outline.cronjobs.cronjob_id is 'Cronjob.';
comment on column inspect_outline.cronjobs.disabled_reason is 'Why the runtime disabled it.';
comment on column inspect_outline.cronjobs.enabled is 'True if enabled.';
comment on column inspect_outline.cronjobs.failures_in_a_row is 'Consecutive failed runs.';
comment on column inspect_outline.cronjobs.last_due_time is 'Due time of its newest run.';
comment on column inspect_outline.cronjobs.last_status is 'Status of the newest run.';
comment on column inspect_outline.cronjobs.max_lateness is 'Maximum time from due time to start, for runs with a single attempt.';
comment on column inspect_outline.cronjobs.median_lateness is 'Median time from due time to start, for runs with a single attempt.';
comment on column inspect_outline.cronjobs.next_run_time is 'Next due time.';
comment on column inspect_outline.cronjobs.revision is 'Increases with each change.';
comment on column inspect_outline.cronjobs.runs is 'Number of stored runs.';
comment on column inspect_outline.cronjobs.schedule_type is 'Kind of schedule.';
comment on column inspect_outline.cronjobs.success_rate is 'Share of successful runs among successful and failed ones.';
comment on column inspect_outline.cronjobs.user_id is 'Owner.';
--> statement-breakpoint
create or replace view inspect_outline.errors as
select app_name, user_id, session_id, invocation_id, status, error_code, create_time, start_time, end_time
from inspect.errors;
comment on view inspect_outline.errors is 'inspect.errors without error_message.';
comment on column inspect_outline.errors.app_name is 'Application.';
comment on column inspect_outline.errors.create_time is 'When it was requested.';
comment on column inspect_outline.errors.end_time is 'When it ended.';
comment on column inspect_outline.errors.error_code is 'Stable error code.';
comment on column inspect_outline.errors.invocation_id is 'Invocation.';
comment on column inspect_outline.errors.session_id is 'Session.';
comment on column inspect_outline.errors.start_time is 'When it started running.';
comment on column inspect_outline.errors.status is 'failed or interrupted.';
comment on column inspect_outline.errors.user_id is 'Owner of the session.';
--> statement-breakpoint
create or replace view inspect_outline.eval_cases as
select app_name, run_id, eval_set_id, eval_id, case_version, trial, status, verdict, user_id, session_id,
       tokens_per_turn, duration, end_time, error is not null as has_error
from inspect.eval_cases;
comment on view inspect_outline.eval_cases is 'inspect.eval_cases without error.';
comment on column inspect_outline.eval_cases.app_name is 'Application.';
comment on column inspect_outline.eval_cases.case_version is 'Version of the case that was run.';
comment on column inspect_outline.eval_cases.duration is 'How long it took.';
comment on column inspect_outline.eval_cases.end_time is 'When it ended.';
comment on column inspect_outline.eval_cases.eval_id is 'Case.';
comment on column inspect_outline.eval_cases.eval_set_id is 'Set of the case.';
comment on column inspect_outline.eval_cases.has_error is 'True if it could not be completed.';
comment on column inspect_outline.eval_cases.run_id is 'Run.';
comment on column inspect_outline.eval_cases.session_id is 'Session of the run; see inspect.conversation.';
comment on column inspect_outline.eval_cases.status is 'waiting, running, done, error or cancelled.';
comment on column inspect_outline.eval_cases.tokens_per_turn is 'Mean tokens per turn; null if no model reported any.';
comment on column inspect_outline.eval_cases.trial is 'Trial, from 1.';
comment on column inspect_outline.eval_cases.user_id is 'User of its session.';
comment on column inspect_outline.eval_cases.verdict is 'PASSED, FAILED or NOT_EVALUATED; null unless it is done.';
--> statement-breakpoint
create or replace view inspect_outline.eval_judges as
select app_name, eval_set_id, metric_name, judge_model, prompt_version, both_pass, only_judge_passes,
       only_person_passes, both_fail
from inspect.eval_judges;
comment on view inspect_outline.eval_judges is 'inspect.eval_judges.';
comment on column inspect_outline.eval_judges.app_name is 'Application.';
comment on column inspect_outline.eval_judges.both_fail is 'Turns that both fail.';
comment on column inspect_outline.eval_judges.both_pass is 'Turns that both pass.';
comment on column inspect_outline.eval_judges.eval_set_id is 'Set.';
comment on column inspect_outline.eval_judges.judge_model is 'Model that judged.';
comment on column inspect_outline.eval_judges.metric_name is 'Metric.';
comment on column inspect_outline.eval_judges.only_judge_passes is 'Turns that only the judge passes.';
comment on column inspect_outline.eval_judges.only_person_passes is 'Turns that only a person passes.';
comment on column inspect_outline.eval_judges.prompt_version is 'Version of the judge''s prompt; changes with its text.';
--> statement-breakpoint
create or replace view inspect_outline.eval_runs as
select app_name, run_id, eval_set_id, status, requested_by, judged_run_id, model_name, agent_hash, judge_tokens, total,
       passed, failed, not_evaluated, errors, create_time, end_time, duration
from inspect.eval_runs;
comment on view inspect_outline.eval_runs is 'inspect.eval_runs.';
comment on column inspect_outline.eval_runs.agent_hash is 'SHA-256 of the agent: two runs with one hash had the same instructions and tools.';
comment on column inspect_outline.eval_runs.app_name is 'Application.';
comment on column inspect_outline.eval_runs.create_time is 'When it was requested.';
comment on column inspect_outline.eval_runs.duration is 'How long it took.';
comment on column inspect_outline.eval_runs.end_time is 'When it ended; null until then.';
comment on column inspect_outline.eval_runs.errors is 'Cases that could not be completed.';
comment on column inspect_outline.eval_runs.eval_set_id is 'Set that was run.';
comment on column inspect_outline.eval_runs.failed is 'Cases that failed a metric.';
comment on column inspect_outline.eval_runs.judge_tokens is 'Tokens used by judges and simulated users, including the maximum of running calls.';
comment on column inspect_outline.eval_runs.judged_run_id is 'Run whose stored turns were judged again; null for an ordinary run.';
comment on column inspect_outline.eval_runs.model_name is 'Model of the agent.';
comment on column inspect_outline.eval_runs.not_evaluated is 'Cases without a result from any metric.';
comment on column inspect_outline.eval_runs.passed is 'Cases that passed.';
comment on column inspect_outline.eval_runs.requested_by is 'User of the token that requested it; null for keys and local callers.';
comment on column inspect_outline.eval_runs.run_id is 'Run.';
comment on column inspect_outline.eval_runs.status is 'queued, running, done or cancelled.';
comment on column inspect_outline.eval_runs.total is 'Number of cases, each trial counted.';
--> statement-breakpoint
create or replace view inspect_outline.eval_trends as
select app_name, eval_set_id, run_id, create_time, metric_name, mean_score, passed, failed, not_evaluated
from inspect.eval_trends;
comment on view inspect_outline.eval_trends is 'inspect.eval_trends.';
comment on column inspect_outline.eval_trends.app_name is 'Application.';
comment on column inspect_outline.eval_trends.create_time is 'When the run was requested.';
comment on column inspect_outline.eval_trends.eval_set_id is 'Set.';
comment on column inspect_outline.eval_trends.failed is 'Cases that failed the metric.';
comment on column inspect_outline.eval_trends.mean_score is 'Mean score over the cases; null if there is none.';
comment on column inspect_outline.eval_trends.metric_name is 'Metric.';
comment on column inspect_outline.eval_trends.not_evaluated is 'Cases without a result from the metric.';
comment on column inspect_outline.eval_trends.passed is 'Cases that passed the metric.';
comment on column inspect_outline.eval_trends.run_id is 'Run.';
--> statement-breakpoint
create or replace view inspect_outline.invocation_costs as
select app_name, user_id, session_id, invocation_id, model, llm_calls, prompt_tokens, output_tokens, cost
from inspect.invocation_costs;
comment on view inspect_outline.invocation_costs is 'inspect.invocation_costs.';
comment on column inspect_outline.invocation_costs.app_name is 'Application.';
comment on column inspect_outline.invocation_costs.cost is 'Cost by the longest matching prefix in model_prices, otherwise by *; null if none matches.';
comment on column inspect_outline.invocation_costs.invocation_id is 'Invocation.';
comment on column inspect_outline.invocation_costs.llm_calls is 'Model answers with token counts.';
comment on column inspect_outline.invocation_costs.model is 'Model name in the provider''s answer.';
comment on column inspect_outline.invocation_costs.output_tokens is 'Answer and thought tokens.';
comment on column inspect_outline.invocation_costs.prompt_tokens is 'Prompt tokens.';
comment on column inspect_outline.invocation_costs.session_id is 'Session.';
comment on column inspect_outline.invocation_costs.user_id is 'Owner of the session.';
--> statement-breakpoint
create or replace view inspect_outline.invocations as
select app_name, user_id, session_id, invocation_id, agent_version, status, is_dead, create_time, start_time, end_time,
       duration, error_code, stop_requested_as, llm_calls, tool_calls, prompt_tokens, output_tokens, agent, work
from inspect.invocations;
comment on view inspect_outline.invocations is 'inspect.invocations without error_message and first_text.';
comment on column inspect_outline.invocations.agent is 'Agent that made its last event; null until it ends.';
comment on column inspect_outline.invocations.agent_version is 'Application version that ran it, with +overrides if the request changed the agent.';
comment on column inspect_outline.invocations.app_name is 'Application.';
comment on column inspect_outline.invocations.create_time is 'When it was requested.';
comment on column inspect_outline.invocations.duration is 'Time from start to end, or until now, with what it waited for people, times and signals; null until it starts.';
comment on column inspect_outline.invocations.end_time is 'When it ended.';
comment on column inspect_outline.invocations.error_code is 'Stable error code.';
comment on column inspect_outline.invocations.invocation_id is 'Invocation id; its events refer to it.';
comment on column inspect_outline.invocations.is_dead is 'True if the process that has it is gone: another one will take it over, or end it. Never of one that waits in the background, which no process has.';
comment on column inspect_outline.invocations.llm_calls is 'Model calls made.';
comment on column inspect_outline.invocations.output_tokens is 'Answer and thought tokens of all model calls.';
comment on column inspect_outline.invocations.prompt_tokens is 'Prompt tokens of all model calls.';
comment on column inspect_outline.invocations.session_id is 'Session.';
comment on column inspect_outline.invocations.start_time is 'When it started running.';
comment on column inspect_outline.invocations.status is 'queued, running, paused (waits for an answer), succeeded, failed, interrupted or cancelled.';
comment on column inspect_outline.invocations.stop_requested_as is 'Requested stop, and the status to end with: cancelled or interrupted.';
comment on column inspect_outline.invocations.tool_calls is 'Tool calls made.';
comment on column inspect_outline.invocations.user_id is 'Owner of the session.';
comment on column inspect_outline.invocations.work is 'Time for which a process ran it, until its last end or pause; without what it waited.';
--> statement-breakpoint
create or replace view inspect_outline.memories as
select app_name, user_id, session_id, event_id, author, event_time, bytes, has_embedding, embedding_model
from inspect.memories;
comment on view inspect_outline.memories is 'inspect.memories without content.';
comment on column inspect_outline.memories.app_name is 'Application.';
comment on column inspect_outline.memories.author is 'Author of the event.';
comment on column inspect_outline.memories.bytes is 'Bytes of the content as JSON.';
comment on column inspect_outline.memories.embedding_model is 'Model and dimensions of the embedding, or of the model that refused the text.';
comment on column inspect_outline.memories.event_id is 'Event.';
comment on column inspect_outline.memories.event_time is 'Timestamp of the event.';
comment on column inspect_outline.memories.has_embedding is 'True if it is found by meaning too.';
comment on column inspect_outline.memories.session_id is 'Session of the event; may be deleted by now.';
comment on column inspect_outline.memories.user_id is 'Owner.';
--> statement-breakpoint
create or replace view inspect_outline.open_invocations as
select app_name, user_id, session_id, invocation_id, status, age, running_for, is_dead, stop_requested_as,
       llm_calls, tool_calls, earliest_start_time, waiting_since, waits_for, is_stranded
from inspect.open_invocations;
comment on view inspect_outline.open_invocations is 'inspect.open_invocations.';
comment on column inspect_outline.open_invocations.age is 'Time since it was requested.';
comment on column inspect_outline.open_invocations.app_name is 'The application.';
comment on column inspect_outline.open_invocations.earliest_start_time is 'Of a run of a cronjob that has not begun: it begins at this time at the earliest. Null for all others.';
comment on column inspect_outline.open_invocations.invocation_id is 'The invocation.';
comment on column inspect_outline.open_invocations.is_dead is 'True if the process that has it is gone: another one will take it over, or end it. Never of one that waits in the background, which no process has.';
comment on column inspect_outline.open_invocations.is_stranded is 'True if it is paused and nothing will resume it: it waits for tasks, and none is open or due.';
comment on column inspect_outline.open_invocations.llm_calls is 'Model calls with stored answers.';
comment on column inspect_outline.open_invocations.running_for is 'Time since the start; null if it is queued or paused.';
comment on column inspect_outline.open_invocations.session_id is 'The session.';
comment on column inspect_outline.open_invocations.status is 'queued, running or paused.';
comment on column inspect_outline.open_invocations.stop_requested_as is 'Requested stop that has not happened yet: cancelled or interrupted.';
comment on column inspect_outline.open_invocations.tool_calls is 'Tool calls with stored requests.';
comment on column inspect_outline.open_invocations.user_id is 'Owner of the session.';
comment on column inspect_outline.open_invocations.waiting_since is 'Since when it waits: in the queue, or for the oldest of its open tasks. Null while it runs.';
comment on column inspect_outline.open_invocations.waits_for is 'Kinds of its open tasks, see inspect.tasks; null if it has none.';
--> statement-breakpoint
create or replace view inspect_outline.queue as
select app_name, user_id, session_id, place, invocation_id, waiting_since, waited, running_invocation, running_since
from inspect.queue;
comment on view inspect_outline.queue is 'inspect.queue.';
comment on column inspect_outline.queue.app_name is 'Application.';
comment on column inspect_outline.queue.invocation_id is 'Queued invocation.';
comment on column inspect_outline.queue.place is 'Position in the session''s queue, from 1.';
comment on column inspect_outline.queue.running_invocation is 'Invocation that runs in the session now; null if the session is free.';
comment on column inspect_outline.queue.running_since is 'Start of the running invocation.';
comment on column inspect_outline.queue.session_id is 'Session.';
comment on column inspect_outline.queue.user_id is 'Owner of the session.';
comment on column inspect_outline.queue.waited is 'Waiting time.';
comment on column inspect_outline.queue.waiting_since is 'When it was requested, woken after a pause, or put back; later than now while it backs off.';
--> statement-breakpoint
create or replace view inspect_outline.score_rules as
select app_name, rule_id, share, quiet_minutes, scored_today, skipped, update_time
from inspect.score_rules;
comment on view inspect_outline.score_rules is 'inspect.score_rules without definition.';
comment on column inspect_outline.score_rules.app_name is 'Application.';
comment on column inspect_outline.score_rules.quiet_minutes is 'Minutes without an end of an invocation after which a session is scored; null: each invocation is scored.';
comment on column inspect_outline.score_rules.rule_id is 'Rule.';
comment on column inspect_outline.score_rules.scored_today is 'Scores started on this day of UTC.';
comment on column inspect_outline.score_rules.share is 'Share of invocations or sessions that it scores; 0 pauses it.';
comment on column inspect_outline.score_rules.skipped is 'Scores skipped because the daily limit was reached.';
comment on column inspect_outline.score_rules.update_time is 'When it was saved.';
--> statement-breakpoint
create or replace view inspect_outline.session_scores as
select app_name, user_id, session_id, last_sequence, rule_id, invocation_id, verdict, metric_name, status,
       score, judge_model, create_time
from inspect.session_scores;
comment on view inspect_outline.session_scores is 'inspect.session_scores without explanation.';
comment on column inspect_outline.session_scores.app_name is 'Application.';
comment on column inspect_outline.session_scores.create_time is 'When it was scored.';
comment on column inspect_outline.session_scores.invocation_id is 'Scored invocation; null for the whole session.';
comment on column inspect_outline.session_scores.judge_model is 'Judge model; null if none.';
comment on column inspect_outline.session_scores.last_sequence is 'Last event of the session when it was scored.';
comment on column inspect_outline.session_scores.metric_name is 'Metric.';
comment on column inspect_outline.session_scores.rule_id is 'Score rule that caused it; null if requested directly.';
comment on column inspect_outline.session_scores.score is 'From 0 to 1; null if it could not be evaluated.';
comment on column inspect_outline.session_scores.session_id is 'Session.';
comment on column inspect_outline.session_scores.status is 'Result of this metric: PASSED, FAILED or NOT_EVALUATED.';
comment on column inspect_outline.session_scores.user_id is 'Owner of the session.';
comment on column inspect_outline.session_scores.verdict is 'Result of all metrics: PASSED, FAILED or NOT_EVALUATED.';
--> statement-breakpoint
create or replace view inspect_outline.session_verdicts as
select app_name, user_id, session_id, event_id, author, passed, label, create_time
from inspect.session_verdicts;
comment on view inspect_outline.session_verdicts is 'inspect.session_verdicts without comment.';
comment on column inspect_outline.session_verdicts.app_name is 'Application.';
comment on column inspect_outline.session_verdicts.author is 'Author: user of a token, id of a key, or local.';
comment on column inspect_outline.session_verdicts.create_time is 'When it was given.';
comment on column inspect_outline.session_verdicts.event_id is 'The event; null for the session.';
comment on column inspect_outline.session_verdicts.label is 'Label for filtering.';
comment on column inspect_outline.session_verdicts.passed is 'Thumbs up or down; null for neither.';
comment on column inspect_outline.session_verdicts.session_id is 'Session.';
comment on column inspect_outline.session_verdicts.user_id is 'Owner of the session.';
--> statement-breakpoint
create or replace view inspect_outline.sessions as
select app_name, user_id, session_id, event_count, running_invocation, lease_until, create_time, update_time,
       is_eval
from inspect.sessions;
comment on view inspect_outline.sessions is 'inspect.sessions without state.';
comment on column inspect_outline.sessions.app_name is 'Application.';
comment on column inspect_outline.sessions.create_time is 'When the session was created.';
comment on column inspect_outline.sessions.event_count is 'Number of its events.';
comment on column inspect_outline.sessions.is_eval is 'Created by an evaluation run; not listed.';
comment on column inspect_outline.sessions.lease_until is 'Expiry of its lease, unless renewed.';
comment on column inspect_outline.sessions.running_invocation is 'Running invocation; null if none.';
comment on column inspect_outline.sessions.session_id is 'Session.';
comment on column inspect_outline.sessions.update_time is 'Last change.';
comment on column inspect_outline.sessions.user_id is 'Owner.';
--> statement-breakpoint
create or replace view inspect_outline.signals as
select app_name, user_id, session_id, signal_id, waiting_since, bytes
from inspect.signals;
comment on view inspect_outline.signals is 'inspect.signals without name, payload.';
comment on column inspect_outline.signals.app_name is 'Application.';
comment on column inspect_outline.signals.bytes is 'Bytes of the payload as JSON.';
comment on column inspect_outline.signals.session_id is 'Session.';
comment on column inspect_outline.signals.signal_id is 'Row id.';
comment on column inspect_outline.signals.user_id is 'Owner of the session.';
comment on column inspect_outline.signals.waiting_since is 'When it was received.';
--> statement-breakpoint
create or replace view inspect_outline.storage as
select app_name, user_id, sessions, events, event_bytes, artifact_versions, artifact_bytes
from inspect.storage;
comment on view inspect_outline.storage is 'inspect.storage.';
comment on column inspect_outline.storage.app_name is 'The application.';
comment on column inspect_outline.storage.artifact_bytes is 'Bytes of artifact versions, in the database or the object store.';
comment on column inspect_outline.storage.artifact_versions is 'Number of artifact versions.';
comment on column inspect_outline.storage.event_bytes is 'Bytes of JSON of events.';
comment on column inspect_outline.storage.events is 'Number of events.';
comment on column inspect_outline.storage.sessions is 'Number of sessions, including those of evaluation runs.';
comment on column inspect_outline.storage.user_id is 'The user.';
--> statement-breakpoint
create or replace view inspect_outline.tasks as
select app_name, user_id, session_id, invocation_id, task_id, kind, state, tool, waiting_since, expire_time,
       assigned_users, assigned_groups, decided_by, decided_via, decide_time
from inspect.tasks;
comment on view inspect_outline.tasks is 'inspect.tasks without signal_name, hint.';
comment on column inspect_outline.tasks.app_name is 'Application.';
comment on column inspect_outline.tasks.assigned_groups is 'Groups whose members may answer.';
comment on column inspect_outline.tasks.assigned_users is 'Users who may answer; without users and groups the owner of the session may.';
comment on column inspect_outline.tasks.decide_time is 'When it was answered.';
comment on column inspect_outline.tasks.decided_by is 'Who answered; null for the deadline.';
comment on column inspect_outline.tasks.decided_via is 'tasks, run, signal or deadline; null if open.';
comment on column inspect_outline.tasks.expire_time is 'Deadline; null for none.';
comment on column inspect_outline.tasks.invocation_id is 'Invocation that waits.';
comment on column inspect_outline.tasks.kind is 'confirmation, effect, question, call, sleep, signal or budget.';
comment on column inspect_outline.tasks.session_id is 'Session.';
comment on column inspect_outline.tasks.state is 'open; answered: the invocation is not resumed yet; done: the invocation has the answer; cancelled.';
comment on column inspect_outline.tasks.task_id is 'Task.';
comment on column inspect_outline.tasks.tool is 'Tool that was called.';
comment on column inspect_outline.tasks.user_id is 'Owner of the session.';
comment on column inspect_outline.tasks.waiting_since is 'When the invocation paused.';
--> statement-breakpoint
create or replace view inspect_outline.tool_calls as
select app_name, user_id, session_id, invocation_id, sequence, agent, tool, call_id, call_time, duration, outcome,
       effect, state, attempt, operation_id
from inspect.tool_calls;
comment on view inspect_outline.tool_calls is 'inspect.tool_calls without reason.';
comment on column inspect_outline.tool_calls.agent is 'Calling agent.';
comment on column inspect_outline.tool_calls.app_name is 'The application.';
comment on column inspect_outline.tool_calls.attempt is 'Number of attempts started; null if none.';
comment on column inspect_outline.tool_calls.call_id is 'Id of the call within the session.';
comment on column inspect_outline.tool_calls.call_time is 'When the call was stored.';
comment on column inspect_outline.tool_calls.duration is 'Time until the answer was stored; null if there is none yet.';
comment on column inspect_outline.tool_calls.effect is 'none, idempotent or once.';
comment on column inspect_outline.tool_calls.invocation_id is 'The invocation.';
comment on column inspect_outline.tool_calls.operation_id is 'Id of the operation for the tool; the same for every attempt.';
comment on column inspect_outline.tool_calls.outcome is 'answered; failed (the answer has an error); open (no answer yet).';
comment on column inspect_outline.tool_calls.sequence is 'Sequence of the event with the call.';
comment on column inspect_outline.tool_calls.session_id is 'The session.';
comment on column inspect_outline.tool_calls.state is 'started, done, unknown or settled.';
comment on column inspect_outline.tool_calls.tool is 'Name of the tool.';
comment on column inspect_outline.tool_calls.user_id is 'Owner of the session.';
--> statement-breakpoint
create or replace view inspect_outline.usage as
select app_name, user_id, day, invocations, failed, llm_calls, tool_calls, prompt_tokens, output_tokens, is_eval
from inspect.usage;
comment on view inspect_outline.usage is 'inspect.usage.';
comment on column inspect_outline.usage.app_name is 'Application.';
comment on column inspect_outline.usage.day is 'Day in UTC on which the invocations were requested.';
comment on column inspect_outline.usage.failed is 'Number of failed invocations.';
comment on column inspect_outline.usage.invocations is 'Number of invocations.';
comment on column inspect_outline.usage.is_eval is 'True for the sessions of evaluation runs.';
comment on column inspect_outline.usage.llm_calls is 'Model calls made.';
comment on column inspect_outline.usage.output_tokens is 'Answer and thought tokens of all model calls.';
comment on column inspect_outline.usage.prompt_tokens is 'Prompt tokens of all model calls.';
comment on column inspect_outline.usage.tool_calls is 'Tool calls made.';
comment on column inspect_outline.usage.user_id is 'User.';
--> statement-breakpoint
create or replace view inspect_outline.user_storage as
select app_name, user_id, bytes, event_bytes, artifact_bytes, memory_bytes
from inspect.user_storage;
comment on view inspect_outline.user_storage is 'inspect.user_storage.';
comment on column inspect_outline.user_storage.app_name is 'Application.';
comment on column inspect_outline.user_storage.artifact_bytes is 'Bytes of artifact versions with metadata.';
comment on column inspect_outline.user_storage.bytes is 'Sum of the three; limited by MAX_USER_BYTES.';
comment on column inspect_outline.user_storage.event_bytes is 'Bytes of events, session states and queued requests.';
comment on column inspect_outline.user_storage.memory_bytes is 'Bytes of memories.';
comment on column inspect_outline.user_storage.user_id is 'User.';
--> statement-breakpoint
create or replace view inspect_outline.version as
select version, reads
from inspect.version;
comment on view inspect_outline.version is 'inspect.version.';
comment on column inspect_outline.version.reads is 'Whose rows the views show in this session; they ask what the owner of the tables may read, also for a superuser.';
comment on column inspect_outline.version.version is 'Increases when a column is dropped, renamed or retyped.';
--> statement-breakpoint
create or replace view inspect_outline.webhook_deliveries as
select app_name, user_id, webhook_id, delivery_id, type, ended_as, status, attempt, next_attempt_time, last_status,
       create_time, end_time, duration
from inspect.webhook_deliveries;
comment on view inspect_outline.webhook_deliveries is 'inspect.webhook_deliveries without url, last_error.';
comment on column inspect_outline.webhook_deliveries.app_name is 'Application.';
comment on column inspect_outline.webhook_deliveries.attempt is 'Number of attempts.';
comment on column inspect_outline.webhook_deliveries.create_time is 'Time of the reported event.';
comment on column inspect_outline.webhook_deliveries.delivery_id is 'Delivery, the header webhook-id.';
comment on column inspect_outline.webhook_deliveries.duration is 'Time until the end.';
comment on column inspect_outline.webhook_deliveries.end_time is 'When it was delivered or given up.';
comment on column inspect_outline.webhook_deliveries.ended_as is 'Final status of the invocation or run.';
comment on column inspect_outline.webhook_deliveries.last_status is 'Receiver''s last HTTP status.';
comment on column inspect_outline.webhook_deliveries.next_attempt_time is 'Next attempt.';
comment on column inspect_outline.webhook_deliveries.status is 'pending, delivered or failed.';
comment on column inspect_outline.webhook_deliveries.type is 'Type of the event.';
comment on column inspect_outline.webhook_deliveries.user_id is 'Owner.';
comment on column inspect_outline.webhook_deliveries.webhook_id is 'Webhook.';
