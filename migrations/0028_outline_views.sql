-- A call without arguments is a call too.
create or replace view inspect.conversation as
select e.app_name, e.user_id, e.session_id, e.sequence, e.event_time, e.author, e.invocation_id,
       (select string_agg(
          coalesce(
            part ->> 'text',
            'call ' || (part -> 'functionCall' ->> 'name') || coalesce(part -> 'functionCall' ->> 'args', ''),
            'response ' || (part -> 'functionResponse' ->> 'name')
              || coalesce(part -> 'functionResponse' ->> 'response', ''),
            '[' || coalesce(part -> 'inlineData' ->> 'mimeType', 'other') || ']'),
          E'\n' order by position)
        from jsonb_array_elements(
          case when jsonb_typeof(e.payload -> 'content' -> 'parts') = 'array' then e.payload -> 'content' -> 'parts'
               else '[]' end) with ordinality parts (part, position)) as said,
       e.payload ->> 'errorMessage' as error
from events e;--> statement-breakpoint
create view inspect.errors as
select app_name, user_id, session_id, id as invocation_id, status, error_code, error_message,
       create_time, start_time, end_time
from invocations where error_code is not null and status in ('failed', 'interrupted');--> statement-breakpoint
comment on view inspect.errors is 'Invocations that failed or were interrupted, and why; order by end_time.';--> statement-breakpoint
comment on column inspect.errors.app_name is 'Application.';--> statement-breakpoint
comment on column inspect.errors.user_id is 'Owner of the session.';--> statement-breakpoint
comment on column inspect.errors.session_id is 'Session.';--> statement-breakpoint
comment on column inspect.errors.invocation_id is 'Invocation.';--> statement-breakpoint
comment on column inspect.errors.status is 'failed or interrupted.';--> statement-breakpoint
comment on column inspect.errors.error_code is 'Why, a stable code.';--> statement-breakpoint
comment on column inspect.errors.error_message is 'Why, a sentence.';--> statement-breakpoint
comment on column inspect.errors.create_time is 'When it was requested.';--> statement-breakpoint
comment on column inspect.errors.start_time is 'When it took the session.';--> statement-breakpoint
comment on column inspect.errors.end_time is 'When it ended.';--> statement-breakpoint
create view inspect.invocation_costs as
select e.app_name, e.user_id, e.session_id, e.invocation_id, e.payload ->> 'modelVersion' as model,
       count(*) as llm_calls, sum(used.prompt)::bigint as prompt_tokens, sum(used.output)::bigint as output_tokens,
       sum((used.prompt * price.prompt_price + used.output * price.output_price) / 1000000) as cost
from events e
cross join lateral (
  select coalesce((e.payload -> 'usageMetadata' ->> 'promptTokenCount')::numeric, 0) as prompt,
         coalesce((e.payload -> 'usageMetadata' ->> 'candidatesTokenCount')::numeric, 0)
           + coalesce((e.payload -> 'usageMetadata' ->> 'thoughtsTokenCount')::numeric, 0) as output) used
left join lateral (
  select p.prompt_price, p.output_price from model_prices p
  where starts_with(e.payload ->> 'modelVersion', p.model) or p.model = '*'
  order by p.model = '*', length(p.model) desc limit 1) price on true
where e.is_from_runtime and e.payload ? 'usageMetadata'
group by e.app_name, e.user_id, e.session_id, e.invocation_id, e.payload ->> 'modelVersion';--> statement-breakpoint
comment on view inspect.invocation_costs is 'Tokens and cost of invocations by model, from their events and the prices of now. Name the session: it reads all its events.';--> statement-breakpoint
comment on column inspect.invocation_costs.app_name is 'Application.';--> statement-breakpoint
comment on column inspect.invocation_costs.user_id is 'Owner of the session.';--> statement-breakpoint
comment on column inspect.invocation_costs.session_id is 'Session.';--> statement-breakpoint
comment on column inspect.invocation_costs.invocation_id is 'Invocation.';--> statement-breakpoint
comment on column inspect.invocation_costs.model is 'Model as its provider names it.';--> statement-breakpoint
comment on column inspect.invocation_costs.llm_calls is 'Answers of the model with a count of tokens.';--> statement-breakpoint
comment on column inspect.invocation_costs.prompt_tokens is 'Their prompt tokens.';--> statement-breakpoint
comment on column inspect.invocation_costs.output_tokens is 'Their answer and thought tokens.';--> statement-breakpoint
comment on column inspect.invocation_costs.cost is 'Their cost by the row of model_prices that begins the name of the model, else by *; null where none fits.';--> statement-breakpoint
create schema inspect_outline;--> statement-breakpoint
comment on schema inspect_outline is 'The views of inspect without what was said, names of artifacts and cronjobs, addresses of webhooks, and sentences of errors.';--> statement-breakpoint
create view inspect_outline.artifacts as
select app_name, user_id, session_id, version_count, latest_version, mime_type, total_bytes, object_count,
       update_time
from inspect.artifacts;--> statement-breakpoint
comment on view inspect_outline.artifacts is 'inspect.artifacts without name.';--> statement-breakpoint
comment on column inspect_outline.artifacts.app_name is 'Application.';--> statement-breakpoint
comment on column inspect_outline.artifacts.user_id is 'Owner.';--> statement-breakpoint
comment on column inspect_outline.artifacts.session_id is 'Session; null for an artifact that all sessions of the user share.';--> statement-breakpoint
comment on column inspect_outline.artifacts.version_count is 'Number of its versions.';--> statement-breakpoint
comment on column inspect_outline.artifacts.latest_version is 'Number of the latest version; the first one is 0.';--> statement-breakpoint
comment on column inspect_outline.artifacts.mime_type is 'MIME type of the latest version.';--> statement-breakpoint
comment on column inspect_outline.artifacts.total_bytes is 'Bytes of all versions.';--> statement-breakpoint
comment on column inspect_outline.artifacts.object_count is 'Versions whose bytes are in the object store.';--> statement-breakpoint
comment on column inspect_outline.artifacts.update_time is 'When the latest version was saved.';--> statement-breakpoint
create view inspect_outline.audit as
select "time", decision, caller_kind, caller, address, operation, app_name, user_id, session_id, reason,
       request_id, left_out
from inspect.audit;--> statement-breakpoint
comment on view inspect_outline.audit is 'inspect.audit without resource.';--> statement-breakpoint
comment on column inspect_outline.audit."time" is 'When it was stored.';--> statement-breakpoint
comment on column inspect_outline.audit.decision is 'allowed or refused.';--> statement-breakpoint
comment on column inspect_outline.audit.caller_kind is 'user, key, anonymous or unknown.';--> statement-breakpoint
comment on column inspect_outline.audit.caller is 'User of the token or id of the key.';--> statement-breakpoint
comment on column inspect_outline.audit.address is 'Address of the client.';--> statement-breakpoint
comment on column inspect_outline.audit.operation is 'operationId of the document.';--> statement-breakpoint
comment on column inspect_outline.audit.app_name is 'Application that the request was about.';--> statement-breakpoint
comment on column inspect_outline.audit.user_id is 'User that the request was about.';--> statement-breakpoint
comment on column inspect_outline.audit.session_id is 'Session that the path named.';--> statement-breakpoint
comment on column inspect_outline.audit.reason is 'Why it was refused.';--> statement-breakpoint
comment on column inspect_outline.audit.request_id is 'X-Request-Id of the answer.';--> statement-breakpoint
comment on column inspect_outline.audit.left_out is 'Refusals of the same caller that were not kept before this one.';--> statement-breakpoint
create view inspect_outline.budget_uses as
select app_name, user_id, day, invocations, prompt_tokens, output_tokens, cost
from inspect.budget_uses;--> statement-breakpoint
comment on view inspect_outline.budget_uses is 'inspect.budget_uses.';--> statement-breakpoint
comment on column inspect_outline.budget_uses.app_name is 'Application.';--> statement-breakpoint
comment on column inspect_outline.budget_uses.user_id is 'User.';--> statement-breakpoint
comment on column inspect_outline.budget_uses.day is 'Day in UTC.';--> statement-breakpoint
comment on column inspect_outline.budget_uses.invocations is 'Invocations that began.';--> statement-breakpoint
comment on column inspect_outline.budget_uses.prompt_tokens is 'Prompt tokens of all model calls.';--> statement-breakpoint
comment on column inspect_outline.budget_uses.output_tokens is 'Answer and thought tokens of all model calls.';--> statement-breakpoint
comment on column inspect_outline.budget_uses.cost is 'Their cost by model_prices of then.';--> statement-breakpoint
create view inspect_outline.conversation as
select app_name, user_id, session_id, sequence, event_time, author, invocation_id,
       octet_length(said) as said_bytes, error is not null as has_error
from inspect.conversation;--> statement-breakpoint
comment on view inspect_outline.conversation is 'inspect.conversation without said, error.';--> statement-breakpoint
comment on column inspect_outline.conversation.app_name is 'Application.';--> statement-breakpoint
comment on column inspect_outline.conversation.user_id is 'Owner.';--> statement-breakpoint
comment on column inspect_outline.conversation.session_id is 'Session.';--> statement-breakpoint
comment on column inspect_outline.conversation.sequence is 'Place in the session.';--> statement-breakpoint
comment on column inspect_outline.conversation.event_time is 'When it was said.';--> statement-breakpoint
comment on column inspect_outline.conversation.author is 'user, or the name of an agent.';--> statement-breakpoint
comment on column inspect_outline.conversation.invocation_id is 'Invocation that wrote it.';--> statement-breakpoint
comment on column inspect_outline.conversation.said_bytes is 'Size of what was said.';--> statement-breakpoint
comment on column inspect_outline.conversation.has_error is 'Something went wrong.';--> statement-breakpoint
create view inspect_outline.cronjob_runs as
select app_name, user_id, cronjob_id, run_id, due_time, status, is_manual, attempt, lateness, duration, session_id,
       invocation_id, error_code
from inspect.cronjob_runs;--> statement-breakpoint
comment on view inspect_outline.cronjob_runs is 'inspect.cronjob_runs without name, output, error_message.';--> statement-breakpoint
comment on column inspect_outline.cronjob_runs.app_name is 'Application.';--> statement-breakpoint
comment on column inspect_outline.cronjob_runs.user_id is 'Owner.';--> statement-breakpoint
comment on column inspect_outline.cronjob_runs.cronjob_id is 'Cronjob.';--> statement-breakpoint
comment on column inspect_outline.cronjob_runs.run_id is 'Run.';--> statement-breakpoint
comment on column inspect_outline.cronjob_runs.due_time is 'When it was due.';--> statement-breakpoint
comment on column inspect_outline.cronjob_runs.status is 'How it stands.';--> statement-breakpoint
comment on column inspect_outline.cronjob_runs.is_manual is 'Somebody requested it.';--> statement-breakpoint
comment on column inspect_outline.cronjob_runs.attempt is 'How often it was begun.';--> statement-breakpoint
comment on column inspect_outline.cronjob_runs.lateness is 'Time between due time and start, of a run that began once.';--> statement-breakpoint
comment on column inspect_outline.cronjob_runs.duration is 'Time of its last attempt.';--> statement-breakpoint
comment on column inspect_outline.cronjob_runs.session_id is 'Session of its last attempt.';--> statement-breakpoint
comment on column inspect_outline.cronjob_runs.invocation_id is 'Invocation of its last attempt.';--> statement-breakpoint
comment on column inspect_outline.cronjob_runs.error_code is 'Why it did not succeed, a stable word.';--> statement-breakpoint
create view inspect_outline.cronjobs as
select app_name, user_id, cronjob_id, schedule_type, enabled, disabled_reason, next_run_time, last_due_time,
       last_status, runs, success_rate, median_lateness, max_lateness, failures_in_a_row, revision
from inspect.cronjobs;--> statement-breakpoint
comment on view inspect_outline.cronjobs is 'inspect.cronjobs without name.';--> statement-breakpoint
comment on column inspect_outline.cronjobs.app_name is 'Application.';--> statement-breakpoint
comment on column inspect_outline.cronjobs.user_id is 'Owner.';--> statement-breakpoint
comment on column inspect_outline.cronjobs.cronjob_id is 'Cronjob.';--> statement-breakpoint
comment on column inspect_outline.cronjobs.schedule_type is 'Kind of its schedule.';--> statement-breakpoint
comment on column inspect_outline.cronjobs.enabled is 'It fires.';--> statement-breakpoint
comment on column inspect_outline.cronjobs.disabled_reason is 'Why the runtime disabled it.';--> statement-breakpoint
comment on column inspect_outline.cronjobs.next_run_time is 'When it is due next.';--> statement-breakpoint
comment on column inspect_outline.cronjobs.last_due_time is 'Due time of its newest run.';--> statement-breakpoint
comment on column inspect_outline.cronjobs.last_status is 'How that one stands.';--> statement-breakpoint
comment on column inspect_outline.cronjobs.runs is 'Number of its runs that are kept.';--> statement-breakpoint
comment on column inspect_outline.cronjobs.success_rate is 'Share of successes among those that succeeded or failed.';--> statement-breakpoint
comment on column inspect_outline.cronjobs.median_lateness is 'Median time between due time and start, of runs that began once.';--> statement-breakpoint
comment on column inspect_outline.cronjobs.max_lateness is 'Longest such time.';--> statement-breakpoint
comment on column inspect_outline.cronjobs.failures_in_a_row is 'Failed runs since the last success.';--> statement-breakpoint
comment on column inspect_outline.cronjobs.revision is 'Rises with each change.';--> statement-breakpoint
create view inspect_outline.errors as
select app_name, user_id, session_id, invocation_id, status, error_code, create_time, start_time, end_time
from inspect.errors;--> statement-breakpoint
comment on view inspect_outline.errors is 'inspect.errors without error_message.';--> statement-breakpoint
comment on column inspect_outline.errors.app_name is 'Application.';--> statement-breakpoint
comment on column inspect_outline.errors.user_id is 'Owner of the session.';--> statement-breakpoint
comment on column inspect_outline.errors.session_id is 'Session.';--> statement-breakpoint
comment on column inspect_outline.errors.invocation_id is 'Invocation.';--> statement-breakpoint
comment on column inspect_outline.errors.status is 'failed or interrupted.';--> statement-breakpoint
comment on column inspect_outline.errors.error_code is 'Why, a stable code.';--> statement-breakpoint
comment on column inspect_outline.errors.create_time is 'When it was requested.';--> statement-breakpoint
comment on column inspect_outline.errors.start_time is 'When it took the session.';--> statement-breakpoint
comment on column inspect_outline.errors.end_time is 'When it ended.';--> statement-breakpoint
create view inspect_outline.eval_cases as
select app_name, run_id, eval_set_id, eval_id, case_version, trial, status, verdict, user_id, session_id,
       tokens_per_turn, duration, end_time, error is not null as has_error
from inspect.eval_cases;--> statement-breakpoint
comment on view inspect_outline.eval_cases is 'inspect.eval_cases without error.';--> statement-breakpoint
comment on column inspect_outline.eval_cases.app_name is 'Application.';--> statement-breakpoint
comment on column inspect_outline.eval_cases.run_id is 'Run.';--> statement-breakpoint
comment on column inspect_outline.eval_cases.eval_set_id is 'Set of the case.';--> statement-breakpoint
comment on column inspect_outline.eval_cases.eval_id is 'Case.';--> statement-breakpoint
comment on column inspect_outline.eval_cases.case_version is 'Version of the case that was run.';--> statement-breakpoint
comment on column inspect_outline.eval_cases.trial is 'Trial, from 1.';--> statement-breakpoint
comment on column inspect_outline.eval_cases.status is 'waiting, running, done, error or cancelled.';--> statement-breakpoint
comment on column inspect_outline.eval_cases.verdict is 'PASSED, FAILED or NOT_EVALUATED; null unless it is done.';--> statement-breakpoint
comment on column inspect_outline.eval_cases.user_id is 'User of its session.';--> statement-breakpoint
comment on column inspect_outline.eval_cases.session_id is 'Session that it ran in: inspect.conversation shows it.';--> statement-breakpoint
comment on column inspect_outline.eval_cases.tokens_per_turn is 'Tokens of a turn, the mean; null where no model reported some.';--> statement-breakpoint
comment on column inspect_outline.eval_cases.duration is 'How long it took.';--> statement-breakpoint
comment on column inspect_outline.eval_cases.end_time is 'When it ended.';--> statement-breakpoint
comment on column inspect_outline.eval_cases.has_error is 'It could not be brought to an end.';--> statement-breakpoint
create view inspect_outline.eval_judges as
select app_name, eval_set_id, metric_name, judge_model, prompt_version, both_pass, only_judge_passes,
       only_person_passes, both_fail
from inspect.eval_judges;--> statement-breakpoint
comment on view inspect_outline.eval_judges is 'inspect.eval_judges.';--> statement-breakpoint
comment on column inspect_outline.eval_judges.app_name is 'Application.';--> statement-breakpoint
comment on column inspect_outline.eval_judges.eval_set_id is 'Set.';--> statement-breakpoint
comment on column inspect_outline.eval_judges.metric_name is 'Metric.';--> statement-breakpoint
comment on column inspect_outline.eval_judges.judge_model is 'Model that judged.';--> statement-breakpoint
comment on column inspect_outline.eval_judges.prompt_version is 'Changes with the words of its prompt.';--> statement-breakpoint
comment on column inspect_outline.eval_judges.both_pass is 'Turns that both find good.';--> statement-breakpoint
comment on column inspect_outline.eval_judges.only_judge_passes is 'Turns that only the judge finds good.';--> statement-breakpoint
comment on column inspect_outline.eval_judges.only_person_passes is 'Turns that only a person finds good.';--> statement-breakpoint
comment on column inspect_outline.eval_judges.both_fail is 'Turns that neither finds good.';--> statement-breakpoint
create view inspect_outline.eval_runs as
select app_name, run_id, eval_set_id, status, requested_by, judged_run_id, model_name, agent_hash, total, passed,
       failed, not_evaluated, errors, create_time, end_time, duration
from inspect.eval_runs;--> statement-breakpoint
comment on view inspect_outline.eval_runs is 'inspect.eval_runs.';--> statement-breakpoint
comment on column inspect_outline.eval_runs.app_name is 'Application.';--> statement-breakpoint
comment on column inspect_outline.eval_runs.run_id is 'Run.';--> statement-breakpoint
comment on column inspect_outline.eval_runs.eval_set_id is 'Set that was run.';--> statement-breakpoint
comment on column inspect_outline.eval_runs.status is 'queued, running, done or cancelled.';--> statement-breakpoint
comment on column inspect_outline.eval_runs.requested_by is 'User of the token that requested it; null for keys and local callers.';--> statement-breakpoint
comment on column inspect_outline.eval_runs.judged_run_id is 'Run whose stored turns it judged; null for a run of its own.';--> statement-breakpoint
comment on column inspect_outline.eval_runs.model_name is 'Model of the agent.';--> statement-breakpoint
comment on column inspect_outline.eval_runs.agent_hash is 'SHA-256 of the agent: two runs with one hash had the same instructions and tools.';--> statement-breakpoint
comment on column inspect_outline.eval_runs.total is 'Number of cases, each trial counted.';--> statement-breakpoint
comment on column inspect_outline.eval_runs.passed is 'Those that passed.';--> statement-breakpoint
comment on column inspect_outline.eval_runs.failed is 'Those that failed by a metric.';--> statement-breakpoint
comment on column inspect_outline.eval_runs.not_evaluated is 'Those of which no metric says anything.';--> statement-breakpoint
comment on column inspect_outline.eval_runs.errors is 'Those that could not be brought to an end.';--> statement-breakpoint
comment on column inspect_outline.eval_runs.create_time is 'When it was requested.';--> statement-breakpoint
comment on column inspect_outline.eval_runs.end_time is 'When it ended; null until then.';--> statement-breakpoint
comment on column inspect_outline.eval_runs.duration is 'How long it took.';--> statement-breakpoint
create view inspect_outline.eval_trends as
select app_name, eval_set_id, run_id, create_time, metric_name, mean_score, passed, failed, not_evaluated
from inspect.eval_trends;--> statement-breakpoint
comment on view inspect_outline.eval_trends is 'inspect.eval_trends.';--> statement-breakpoint
comment on column inspect_outline.eval_trends.app_name is 'Application.';--> statement-breakpoint
comment on column inspect_outline.eval_trends.eval_set_id is 'Set.';--> statement-breakpoint
comment on column inspect_outline.eval_trends.run_id is 'Run.';--> statement-breakpoint
comment on column inspect_outline.eval_trends.create_time is 'When the run was requested.';--> statement-breakpoint
comment on column inspect_outline.eval_trends.metric_name is 'Metric.';--> statement-breakpoint
comment on column inspect_outline.eval_trends.mean_score is 'Mean of its scores over the cases; null where none gave one.';--> statement-breakpoint
comment on column inspect_outline.eval_trends.passed is 'Cases that passed by it.';--> statement-breakpoint
comment on column inspect_outline.eval_trends.failed is 'Cases that failed by it.';--> statement-breakpoint
comment on column inspect_outline.eval_trends.not_evaluated is 'Cases of which it says nothing.';--> statement-breakpoint
create view inspect_outline.invocation_costs as
select app_name, user_id, session_id, invocation_id, model, llm_calls, prompt_tokens, output_tokens, cost
from inspect.invocation_costs;--> statement-breakpoint
comment on view inspect_outline.invocation_costs is 'inspect.invocation_costs.';--> statement-breakpoint
comment on column inspect_outline.invocation_costs.app_name is 'Application.';--> statement-breakpoint
comment on column inspect_outline.invocation_costs.user_id is 'Owner of the session.';--> statement-breakpoint
comment on column inspect_outline.invocation_costs.session_id is 'Session.';--> statement-breakpoint
comment on column inspect_outline.invocation_costs.invocation_id is 'Invocation.';--> statement-breakpoint
comment on column inspect_outline.invocation_costs.model is 'Model as its provider names it.';--> statement-breakpoint
comment on column inspect_outline.invocation_costs.llm_calls is 'Answers of the model with a count of tokens.';--> statement-breakpoint
comment on column inspect_outline.invocation_costs.prompt_tokens is 'Their prompt tokens.';--> statement-breakpoint
comment on column inspect_outline.invocation_costs.output_tokens is 'Their answer and thought tokens.';--> statement-breakpoint
comment on column inspect_outline.invocation_costs.cost is 'Their cost by the row of model_prices that begins the name of the model, else by *; null where none fits.';--> statement-breakpoint
create view inspect_outline.invocations as
select app_name, user_id, session_id, invocation_id, status, is_dead, create_time, start_time, end_time, duration,
       error_code, stop_requested_as, llm_calls, tool_calls, prompt_tokens, output_tokens
from inspect.invocations;--> statement-breakpoint
comment on view inspect_outline.invocations is 'inspect.invocations without error_message.';--> statement-breakpoint
comment on column inspect_outline.invocations.app_name is 'Application.';--> statement-breakpoint
comment on column inspect_outline.invocations.user_id is 'Owner of the session.';--> statement-breakpoint
comment on column inspect_outline.invocations.session_id is 'Session.';--> statement-breakpoint
comment on column inspect_outline.invocations.invocation_id is 'Invocation; the events that it wrote carry it.';--> statement-breakpoint
comment on column inspect_outline.invocations.status is 'queued, running, paused (waits for a person), succeeded, failed, interrupted or cancelled.';--> statement-breakpoint
comment on column inspect_outline.invocations.is_dead is 'Its process is gone; the next sweep ends it.';--> statement-breakpoint
comment on column inspect_outline.invocations.create_time is 'When it was requested.';--> statement-breakpoint
comment on column inspect_outline.invocations.start_time is 'When it took the session.';--> statement-breakpoint
comment on column inspect_outline.invocations.end_time is 'When it ended.';--> statement-breakpoint
comment on column inspect_outline.invocations.duration is 'From its start to its end, or to now; null while it waits.';--> statement-breakpoint
comment on column inspect_outline.invocations.error_code is 'Why it failed, a stable code.';--> statement-breakpoint
comment on column inspect_outline.invocations.stop_requested_as is 'cancelled or interrupted: what its process is requested to end it as.';--> statement-breakpoint
comment on column inspect_outline.invocations.llm_calls is 'Model calls made.';--> statement-breakpoint
comment on column inspect_outline.invocations.tool_calls is 'Tool calls made.';--> statement-breakpoint
comment on column inspect_outline.invocations.prompt_tokens is 'Prompt tokens of all model calls.';--> statement-breakpoint
comment on column inspect_outline.invocations.output_tokens is 'Answer and thought tokens of all model calls.';--> statement-breakpoint
create view inspect_outline.open_invocations as
select app_name, user_id, session_id, invocation_id, status, age, running_for, is_dead, stop_requested_as,
       llm_calls, tool_calls
from inspect.open_invocations;--> statement-breakpoint
comment on view inspect_outline.open_invocations is 'inspect.open_invocations.';--> statement-breakpoint
comment on column inspect_outline.open_invocations.app_name is 'The application.';--> statement-breakpoint
comment on column inspect_outline.open_invocations.user_id is 'Owner of the session.';--> statement-breakpoint
comment on column inspect_outline.open_invocations.session_id is 'The session.';--> statement-breakpoint
comment on column inspect_outline.open_invocations.invocation_id is 'The invocation.';--> statement-breakpoint
comment on column inspect_outline.open_invocations.status is 'queued or running.';--> statement-breakpoint
comment on column inspect_outline.open_invocations.age is 'Time since it was requested.';--> statement-breakpoint
comment on column inspect_outline.open_invocations.running_for is 'Time since it began; null while it waits.';--> statement-breakpoint
comment on column inspect_outline.open_invocations.is_dead is 'Its process does not renew its lease: the next sweep ends it.';--> statement-breakpoint
comment on column inspect_outline.open_invocations.stop_requested_as is 'Set where it was asked to end and has not.';--> statement-breakpoint
comment on column inspect_outline.open_invocations.llm_calls is 'Model calls; 0 while it runs: they are counted at its end.';--> statement-breakpoint
comment on column inspect_outline.open_invocations.tool_calls is 'Tool calls; as above.';--> statement-breakpoint
create view inspect_outline.queue as
select app_name, user_id, session_id, place, invocation_id, waiting_since, waited, running_invocation, running_since
from inspect.queue;--> statement-breakpoint
comment on view inspect_outline.queue is 'inspect.queue.';--> statement-breakpoint
comment on column inspect_outline.queue.app_name is 'Application.';--> statement-breakpoint
comment on column inspect_outline.queue.user_id is 'Owner of the session.';--> statement-breakpoint
comment on column inspect_outline.queue.session_id is 'Session that it waits for.';--> statement-breakpoint
comment on column inspect_outline.queue.place is 'Place in the queue of the session, from 1.';--> statement-breakpoint
comment on column inspect_outline.queue.invocation_id is 'Invocation that waits.';--> statement-breakpoint
comment on column inspect_outline.queue.waiting_since is 'When it was requested.';--> statement-breakpoint
comment on column inspect_outline.queue.waited is 'How long it has waited.';--> statement-breakpoint
comment on column inspect_outline.queue.running_invocation is 'Invocation that runs in the session now.';--> statement-breakpoint
comment on column inspect_outline.queue.running_since is 'When that took the session.';--> statement-breakpoint
create view inspect_outline.sessions as
select app_name, user_id, session_id, event_count, running_invocation, lease_until, create_time, update_time,
       is_eval
from inspect.sessions;--> statement-breakpoint
comment on view inspect_outline.sessions is 'inspect.sessions without state.';--> statement-breakpoint
comment on column inspect_outline.sessions.app_name is 'Application.';--> statement-breakpoint
comment on column inspect_outline.sessions.user_id is 'Owner.';--> statement-breakpoint
comment on column inspect_outline.sessions.session_id is 'Session.';--> statement-breakpoint
comment on column inspect_outline.sessions.event_count is 'Number of its events.';--> statement-breakpoint
comment on column inspect_outline.sessions.running_invocation is 'Invocation that runs now; null where none does.';--> statement-breakpoint
comment on column inspect_outline.sessions.lease_until is 'When that is taken for dead unless its process renews the lease.';--> statement-breakpoint
comment on column inspect_outline.sessions.create_time is 'When the session was created.';--> statement-breakpoint
comment on column inspect_outline.sessions.update_time is 'Last change.';--> statement-breakpoint
comment on column inspect_outline.sessions.is_eval is 'Made by an evaluation run; lists leave it out.';--> statement-breakpoint
create view inspect_outline.storage as
select app_name, user_id, sessions, events, event_bytes, artifact_versions, artifact_bytes
from inspect.storage;--> statement-breakpoint
comment on view inspect_outline.storage is 'inspect.storage.';--> statement-breakpoint
comment on column inspect_outline.storage.app_name is 'The application.';--> statement-breakpoint
comment on column inspect_outline.storage.user_id is 'The user.';--> statement-breakpoint
comment on column inspect_outline.storage.sessions is 'Sessions, those of evaluation runs too.';--> statement-breakpoint
comment on column inspect_outline.storage.events is 'Events of all sessions.';--> statement-breakpoint
comment on column inspect_outline.storage.event_bytes is 'Bytes of their JSON, as far as it is known.';--> statement-breakpoint
comment on column inspect_outline.storage.artifact_versions is 'Versions of artifacts.';--> statement-breakpoint
comment on column inspect_outline.storage.artifact_bytes is 'Their bytes, in the database or in a bucket.';--> statement-breakpoint
create view inspect_outline.tool_calls as
select app_name, user_id, session_id, invocation_id, sequence, agent, tool, call_id, call_time, duration, outcome
from inspect.tool_calls;--> statement-breakpoint
comment on view inspect_outline.tool_calls is 'inspect.tool_calls.';--> statement-breakpoint
comment on column inspect_outline.tool_calls.app_name is 'The application.';--> statement-breakpoint
comment on column inspect_outline.tool_calls.user_id is 'Owner of the session.';--> statement-breakpoint
comment on column inspect_outline.tool_calls.session_id is 'The session.';--> statement-breakpoint
comment on column inspect_outline.tool_calls.invocation_id is 'The invocation.';--> statement-breakpoint
comment on column inspect_outline.tool_calls.sequence is 'Place of the event with the call.';--> statement-breakpoint
comment on column inspect_outline.tool_calls.agent is 'Agent that called.';--> statement-breakpoint
comment on column inspect_outline.tool_calls.tool is 'Name of the tool.';--> statement-breakpoint
comment on column inspect_outline.tool_calls.call_id is 'Id of the call within the session.';--> statement-breakpoint
comment on column inspect_outline.tool_calls.call_time is 'When the call was stored.';--> statement-breakpoint
comment on column inspect_outline.tool_calls.duration is 'Time until the answer was stored; null while there is none.';--> statement-breakpoint
comment on column inspect_outline.tool_calls.outcome is 'answered; failed: the answer has an error; open: there is none yet.';--> statement-breakpoint
create view inspect_outline.usage as
select app_name, user_id, day, invocations, failed, llm_calls, tool_calls, prompt_tokens, output_tokens
from inspect.usage;--> statement-breakpoint
comment on view inspect_outline.usage is 'inspect.usage.';--> statement-breakpoint
comment on column inspect_outline.usage.app_name is 'Application.';--> statement-breakpoint
comment on column inspect_outline.usage.user_id is 'User.';--> statement-breakpoint
comment on column inspect_outline.usage.day is 'Day in UTC on which the invocations were requested.';--> statement-breakpoint
comment on column inspect_outline.usage.invocations is 'Number of invocations.';--> statement-breakpoint
comment on column inspect_outline.usage.failed is 'Those of them that failed.';--> statement-breakpoint
comment on column inspect_outline.usage.llm_calls is 'Model calls made.';--> statement-breakpoint
comment on column inspect_outline.usage.tool_calls is 'Tool calls made.';--> statement-breakpoint
comment on column inspect_outline.usage.prompt_tokens is 'Prompt tokens of all model calls.';--> statement-breakpoint
comment on column inspect_outline.usage.output_tokens is 'Answer and thought tokens of all model calls.';--> statement-breakpoint
create view inspect_outline.webhook_deliveries as
select app_name, user_id, webhook_id, delivery_id, type, ended_as, status, attempt, next_attempt_time, last_status,
       create_time, end_time, duration
from inspect.webhook_deliveries;--> statement-breakpoint
comment on view inspect_outline.webhook_deliveries is 'inspect.webhook_deliveries without url, last_error.';--> statement-breakpoint
comment on column inspect_outline.webhook_deliveries.app_name is 'Application.';--> statement-breakpoint
comment on column inspect_outline.webhook_deliveries.user_id is 'Owner.';--> statement-breakpoint
comment on column inspect_outline.webhook_deliveries.webhook_id is 'Webhook.';--> statement-breakpoint
comment on column inspect_outline.webhook_deliveries.delivery_id is 'Delivery, the header webhook-id.';--> statement-breakpoint
comment on column inspect_outline.webhook_deliveries.type is 'What happened.';--> statement-breakpoint
comment on column inspect_outline.webhook_deliveries.ended_as is 'Status of the invocation or run.';--> statement-breakpoint
comment on column inspect_outline.webhook_deliveries.status is 'pending, delivered or failed.';--> statement-breakpoint
comment on column inspect_outline.webhook_deliveries.attempt is 'How often it was sent.';--> statement-breakpoint
comment on column inspect_outline.webhook_deliveries.next_attempt_time is 'When it is sent next.';--> statement-breakpoint
comment on column inspect_outline.webhook_deliveries.last_status is 'Status that the receiver answered last.';--> statement-breakpoint
comment on column inspect_outline.webhook_deliveries.create_time is 'When that happened which it tells.';--> statement-breakpoint
comment on column inspect_outline.webhook_deliveries.end_time is 'When it was delivered or given up.';--> statement-breakpoint
comment on column inspect_outline.webhook_deliveries.duration is 'Time until then.';
