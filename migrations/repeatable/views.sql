-- Views for people and reports, a section per view. src/platform/db/schema has their schemas.
comment on schema inspect is 'Views for people and reports; inspect.version states their compatibility.';
-- drizzle creates its journal without comments.
comment on table agent_runtime_migrations is 'The migrations of tables that this schema has: the journal of drizzle.';
comment on column agent_runtime_migrations.id is 'Order of application.';
comment on column agent_runtime_migrations.hash is 'SHA-256 of the file.';
comment on column agent_runtime_migrations.created_at is 'When the file was generated, Unix time in milliseconds: its entry in migrations/meta/_journal.json.';
--> statement-breakpoint
-- Runs of cronjobs. A run is its last try, an invocation; what that try has not yet comes from the try before. A run
-- whose last try has ended goes with the session of that try. The
-- tables' policies hold for the view's owner; here they are repeated for the role that reads the view.
create or replace view cronjob_runs as
select i.app_name, i.user_id, i.cronjob_id, i.run_id as id, i.due_time, i.is_manual,
       case when i.not_before is not null then case i.try when 1 then 'queued' else 'retrying' end
            when i.status in ('queued', 'running') and i.first_end_time is null then 'running'
            when i.status = 'succeeded' then 'success' when i.status = 'cancelled' then 'cancelled' else 'failed' end as status,
       i.try - (i.start_time is null)::int as attempt, i.not_before as next_attempt_time,
       i.stop_request_time as cancel_request_time, b.session_id, b.id as invocation_id,
       run_output(b.status, b.response_body) as output,
       case b.status when 'paused' then 'paused' else b.error_code end as error_code,
       run_error(b.status, b.error_message) as error_message,
       i.create_time, b.start_time, case when i.first_end_time is not null then coalesce(i.end_time, i.first_end_time) end as end_time
from invocations i
left join invocations b
  on b.app_name = i.app_name and b.user_id = i.user_id and b.cronjob_id = i.cronjob_id and b.due_time = i.due_time
     and b.try = i.try - (i.start_time is null)::int
where i.cronjob_id is not null
  and (i.user_id = current_setting('agent_runtime.user', true) or current_setting('agent_runtime.all_users', true) = 'on'
       or not row_security_active('invocations'::regclass))
  and not i.is_retried
  -- A scalar subquery looks up one row for each run; `not exists` would be a join that reads all skipped runs for each.
  and (select s.id from skipped_runs s where s.app_name = i.app_name and s.user_id = i.user_id
         and s.cronjob_id = i.cronjob_id and s.due_time = i.due_time) is null
union all
select s.app_name, s.user_id, s.cronjob_id, s.id, s.due_time, false, 'skipped', s.tries, null, null, b.session_id, b.id,
       null, 'skipped', s.reason, s.create_time, b.start_time, s.end_time
from skipped_runs s
left join invocations b
  on b.app_name = s.app_name and b.user_id = s.user_id and b.cronjob_id = s.cronjob_id and b.due_time = s.due_time
     and b.try = s.tries
where s.user_id = current_setting('agent_runtime.user', true) or current_setting('agent_runtime.all_users', true) = 'on'
   or not row_security_active('skipped_runs'::regclass);
comment on view cronjob_runs is 'Runs of cronjobs: invocations, and runs that were left out.';
comment on column cronjob_runs.app_name is 'Application.';
comment on column cronjob_runs.user_id is 'Owner.';
comment on column cronjob_runs.cronjob_id is 'Cronjob that runs.';
comment on column cronjob_runs.id is 'Run identifier.';
comment on column cronjob_runs.due_time is 'Due time; for a manual run, the time of the request.';
comment on column cronjob_runs.is_manual is 'Requested manually.';
comment on column cronjob_runs.status is 'queued, running, retrying (waits for another attempt), success, failed, cancelled or skipped.';
comment on column cronjob_runs.attempt is 'Number of attempts started.';
comment on column cronjob_runs.next_attempt_time is 'When a waiting run may start; null otherwise.';
comment on column cronjob_runs.cancel_request_time is 'When cancellation was requested.';
comment on column cronjob_runs.session_id is 'Session of its last attempt.';
comment on column cronjob_runs.invocation_id is 'Invocation of its last attempt.';
comment on column cronjob_runs.output is 'Text of the answer.';
comment on column cronjob_runs.error_code is 'Stable error code.';
comment on column cronjob_runs.error_message is 'Why it failed or was skipped, a sentence.';
comment on column cronjob_runs.create_time is 'When it was queued.';
comment on column cronjob_runs.start_time is 'Start of the last attempt.';
comment on column cronjob_runs.end_time is 'When it ended.';
--> statement-breakpoint
create or replace view inspect.artifacts as
select a.app_name, a.user_id, nullif(a.session_id, '') as session_id, a.name,
       count(*) as version_count, max(v.version) as latest_version,
       (array_agg(v.mime_type order by v.version desc))[1] as mime_type,
       sum(v.size_bytes) as total_bytes, count(v.object_key) as object_count, max(v.create_time) as update_time
from artifacts a
join artifact_versions v
  on v.app_name = a.app_name and v.user_id = a.user_id and v.session_id = a.session_id and v.artifact_name = a.name
group by a.app_name, a.user_id, a.session_id, a.name;
comment on view inspect.artifacts is 'Artifacts with the number and size of their versions, without deleted ones.';
comment on column inspect.artifacts.app_name is 'Application.';
comment on column inspect.artifacts.latest_version is 'Number of the latest version; the first one is 0.';
comment on column inspect.artifacts.mime_type is 'MIME type of the latest version.';
comment on column inspect.artifacts.name is 'Name.';
comment on column inspect.artifacts.object_count is 'Versions whose bytes are in the object store.';
comment on column inspect.artifacts.session_id is 'Session; null for an artifact shared by all sessions of the user.';
comment on column inspect.artifacts.total_bytes is 'Bytes of all versions.';
comment on column inspect.artifacts.update_time is 'When the latest version was saved.';
comment on column inspect.artifacts.user_id is 'Owner.';
comment on column inspect.artifacts.version_count is 'Number of its versions.';
--> statement-breakpoint
create or replace view inspect.audit as
select time, decision, caller_kind, caller, address, operation, resource ->> 'appName' as app_name,
       resource ->> 'userId' as user_id, resource ->> 'sessionId' as session_id, resource, reason, request_id, left_out
from audit_log;
comment on view inspect.audit is 'Access decisions.';
comment on column inspect.audit."time" is 'When it was stored.';
comment on column inspect.audit.address is 'Address of the client.';
comment on column inspect.audit.app_name is 'Application of the request.';
comment on column inspect.audit.caller is 'User of the token or id of the key.';
comment on column inspect.audit.caller_kind is 'user, key, anonymous or unknown.';
comment on column inspect.audit.decision is 'allowed or refused.';
comment on column inspect.audit.left_out is 'Refusals of the same caller that were not logged before this entry.';
comment on column inspect.audit.operation is 'operationId of the OpenAPI document.';
comment on column inspect.audit.reason is 'Why it was refused.';
comment on column inspect.audit.request_id is 'X-Request-Id of the answer.';
comment on column inspect.audit.resource is 'Names in the path, and the user and application in the body.';
comment on column inspect.audit.session_id is 'Session in the path.';
comment on column inspect.audit.user_id is 'User of the request.';
--> statement-breakpoint
create or replace view inspect.budget_alerts as
select app_name, nullif(user_id, '') as user_id, applies_to, period, since, level
from budget_alerts;
comment on view inspect.budget_alerts is 'The level of a budget last reported to its webhook.';
comment on column inspect.budget_alerts.app_name is 'Application.';
comment on column inspect.budget_alerts.applies_to is 'As in inspect.budgets.';
comment on column inspect.budget_alerts.level is '50, 80 or 100 percent.';
comment on column inspect.budget_alerts.period is 'day or month.';
comment on column inspect.budget_alerts.since is 'First day of the period in UTC.';
comment on column inspect.budget_alerts.user_id is 'User of the budget; null for all users.';
--> statement-breakpoint
create or replace view inspect.budget_reservations as
select app_name, user_id, id as call_id, tokens, cost, expire_time, expire_time <= clock_timestamp() as is_dead
from budget_reservations;
comment on view inspect.budget_reservations is 'Maximum use by running model calls, until it is counted.';
comment on column inspect.budget_reservations.app_name is 'Application.';
comment on column inspect.budget_reservations.call_id is 'Id of the model call.';
comment on column inspect.budget_reservations.cost is 'Their cost at the model_prices of that time.';
comment on column inspect.budget_reservations.expire_time is 'When the reservation ends, unless its process renews it.';
comment on column inspect.budget_reservations.is_dead is 'True after expiry: it no longer counts.';
comment on column inspect.budget_reservations.tokens is 'Prompt and output tokens.';
comment on column inspect.budget_reservations.user_id is 'User.';
--> statement-breakpoint
create or replace view inspect.budget_uses as
select app_name, user_id, day, sum(invocations)::bigint as invocations, sum(prompt_tokens)::bigint as prompt_tokens,
       sum(output_tokens)::bigint as output_tokens, sum(cost) as cost
from budget_uses group by app_name, user_id, day;
comment on view inspect.budget_uses is 'Use by user and day, including deleted sessions and failed invocations.';
comment on column inspect.budget_uses.app_name is 'Application.';
comment on column inspect.budget_uses.cost is 'Their cost at the model_prices of that time.';
comment on column inspect.budget_uses.day is 'Day in UTC.';
comment on column inspect.budget_uses.invocations is 'Invocations: those that have started if the user has a budget, else those that have ended or paused.';
comment on column inspect.budget_uses.output_tokens is 'Answer and thought tokens of all model calls.';
comment on column inspect.budget_uses.prompt_tokens is 'Prompt tokens of all model calls.';
comment on column inspect.budget_uses.user_id is 'User.';
--> statement-breakpoint
create or replace view inspect.budgets as
select b.app_name, nullif(b.user_id, '') as user_id, b.applies_to, b.period, b.max_invocations, b.max_tokens, b.max_cost,
       b.webhook_id, b.update_time, used.invocations as used_invocations, used.tokens as used_tokens, used.cost as used_cost,
       case when b.applies_to <> 'users' then coalesce(
         used.invocations >= b.max_invocations or used.tokens >= b.max_tokens or used.cost >= b.max_cost, false) end as is_used_up
from budgets b
left join lateral (
  select coalesce(sum(u.invocations), 0)::bigint as invocations,
         coalesce(sum(u.prompt_tokens + u.output_tokens), 0)::bigint as tokens, coalesce(sum(u.cost), 0) as cost
  from budget_uses u
  where u.app_name = b.app_name and u.user_id = b.user_id
    and u.day >= date_trunc(b.period, clock_timestamp() at time zone 'utc')::date
  having b.applies_to = 'user'
  union all
  select coalesce(sum(u.invocations), 0)::bigint, coalesce(sum(u.prompt_tokens + u.output_tokens), 0)::bigint,
         coalesce(sum(u.cost), 0)
  from budget_uses u
  where u.app_name = b.app_name and u.day >= date_trunc(b.period, clock_timestamp() at time zone 'utc')::date
  having b.applies_to = 'app') used on true;
comment on view inspect.budgets is 'Limits on use per day or month, with what is used; see inspect.budget_uses for the use of each user.';
comment on column inspect.budgets.app_name is 'Application.';
comment on column inspect.budgets.applies_to is 'app: all users together; users: each user without a budget of their own; user: the user in user_id.';
comment on column inspect.budgets.is_used_up is 'Whether a maximum is reached in this period; null where the use is of each user.';
comment on column inspect.budgets.max_cost is 'Maximum cost by model_prices; null: no limit.';
comment on column inspect.budgets.max_invocations is 'Maximum number of invocations; null: no limit.';
comment on column inspect.budgets.max_tokens is 'Maximum number of prompt, answer and thought tokens; null: no limit.';
comment on column inspect.budgets.period is 'day or month of UTC.';
comment on column inspect.budgets.update_time is 'Last change.';
comment on column inspect.budgets.used_cost is 'Cost in this period; null where the use is of each user.';
comment on column inspect.budgets.used_invocations is 'Invocations in this period; null where the use is of each user.';
comment on column inspect.budgets.used_tokens is 'Tokens in this period; null where the use is of each user.';
comment on column inspect.budgets.user_id is 'The user if it applies to one.';
comment on column inspect.budgets.webhook_id is 'Webhook to notify at 50, 80 and 100 percent.';
--> statement-breakpoint
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
from events e;
comment on view inspect.conversation is 'Events of sessions as readable lines. Filter by app_name, user_id and session_id; order by sequence.';
comment on column inspect.conversation.app_name is 'Application.';
comment on column inspect.conversation.author is 'user, or the name of an agent.';
comment on column inspect.conversation.error is 'Error of the event.';
comment on column inspect.conversation.event_time is 'Timestamp of the event.';
comment on column inspect.conversation.invocation_id is 'Invocation of the event.';
comment on column inspect.conversation.said is 'Texts, function calls and their responses; other parts by their MIME type.';
comment on column inspect.conversation.sequence is 'Place in the session.';
comment on column inspect.conversation.session_id is 'Session.';
comment on column inspect.conversation.user_id is 'Owner.';
--> statement-breakpoint
create or replace view inspect.cronjob_runs as
select r.app_name, r.user_id, r.cronjob_id, j.name, r.id as run_id, r.due_time, r.status, r.is_manual, r.attempt,
       case when r.attempt = 1 then r.start_time - r.due_time end as lateness, r.end_time - r.start_time as duration,
       r.session_id, r.invocation_id, r.error_code, r.error_message, r.output
from cronjob_runs r
join cronjobs j on j.app_name = r.app_name and j.user_id = r.user_id and j.id = r.cronjob_id;
comment on view inspect.cronjob_runs is 'Runs of cronjobs, with lateness and duration.';
comment on column inspect.cronjob_runs.app_name is 'Application.';
comment on column inspect.cronjob_runs.attempt is 'Number of attempts started.';
comment on column inspect.cronjob_runs.cronjob_id is 'Cronjob.';
comment on column inspect.cronjob_runs.due_time is 'When it was due.';
comment on column inspect.cronjob_runs.duration is 'Duration of the last attempt.';
comment on column inspect.cronjob_runs.error_code is 'Stable error code.';
comment on column inspect.cronjob_runs.error_message is 'Why it failed or was skipped, a sentence.';
comment on column inspect.cronjob_runs.invocation_id is 'Invocation of its last attempt.';
comment on column inspect.cronjob_runs.is_manual is 'Requested manually.';
comment on column inspect.cronjob_runs.lateness is 'Time from due time to start, for runs with a single attempt.';
comment on column inspect.cronjob_runs.name is 'Name of the cronjob.';
comment on column inspect.cronjob_runs.output is 'Text of the answer.';
comment on column inspect.cronjob_runs.run_id is 'Run.';
comment on column inspect.cronjob_runs.session_id is 'Session of its last attempt.';
comment on column inspect.cronjob_runs.status is 'queued, running, retrying, success, failed, cancelled or skipped.';
comment on column inspect.cronjob_runs.user_id is 'Owner.';
--> statement-breakpoint
create or replace view inspect.cronjobs as
select j.app_name, j.user_id, j.id as cronjob_id, j.name, j.schedule ->> 'type' as schedule_type, j.enabled, j.disabled_reason,
       j.next_run_time, r.last_due_time, r.last_status, r.runs, r.success_rate, r.median_lateness, r.max_lateness,
       j.failure_count as failures_in_a_row, j.revision
from cronjobs j
cross join lateral (
  select max(due_time) as last_due_time,
         (array_agg(status order by due_time desc))[1] as last_status,
         count(*) as runs,
         round(avg((status = 'success')::int) filter (where status in ('success', 'failed')), 3) as success_rate,
         percentile_cont(0.5) within group (order by start_time - due_time) filter (where attempt = 1) as median_lateness,
         max(start_time - due_time) filter (where attempt = 1) as max_lateness
  from cronjob_runs where app_name = j.app_name and user_id = j.user_id and cronjob_id = j.id) r;
comment on view inspect.cronjobs is 'Cronjobs with next and last due times, success rate and lateness of the stored runs.';
comment on column inspect.cronjobs.app_name is 'Application.';
comment on column inspect.cronjobs.cronjob_id is 'Cronjob.';
comment on column inspect.cronjobs.disabled_reason is 'Why the runtime disabled it.';
comment on column inspect.cronjobs.enabled is 'True if enabled.';
comment on column inspect.cronjobs.failures_in_a_row is 'Consecutive failed runs.';
comment on column inspect.cronjobs.last_due_time is 'Due time of its newest run.';
comment on column inspect.cronjobs.last_status is 'Status of the newest run.';
comment on column inspect.cronjobs.max_lateness is 'Maximum time from due time to start, for runs with a single attempt.';
comment on column inspect.cronjobs.median_lateness is 'Median time from due time to start, for runs with a single attempt.';
comment on column inspect.cronjobs.name is 'Name for people.';
comment on column inspect.cronjobs.next_run_time is 'Next due time.';
comment on column inspect.cronjobs.revision is 'Increases with each change.';
comment on column inspect.cronjobs.runs is 'Number of stored runs.';
comment on column inspect.cronjobs.schedule_type is 'Kind of schedule.';
comment on column inspect.cronjobs.success_rate is 'Share of successful runs among successful and failed ones.';
comment on column inspect.cronjobs.user_id is 'Owner.';
--> statement-breakpoint
create or replace view inspect.errors as
select app_name, user_id, session_id, id as invocation_id, status, error_code, error_message,
       create_time, start_time, end_time
from invocations where error_code is not null and status in ('failed', 'interrupted');
comment on view inspect.errors is 'Invocations that failed or were interrupted, and why; order by end_time.';
comment on column inspect.errors.app_name is 'Application.';
comment on column inspect.errors.create_time is 'When it was requested.';
comment on column inspect.errors.end_time is 'When it ended.';
comment on column inspect.errors.error_code is 'Stable error code.';
comment on column inspect.errors.error_message is 'Why it failed, a sentence.';
comment on column inspect.errors.invocation_id is 'Invocation.';
comment on column inspect.errors.session_id is 'Session.';
comment on column inspect.errors.start_time is 'When it started running.';
comment on column inspect.errors.status is 'failed or interrupted.';
comment on column inspect.errors.user_id is 'Owner of the session.';
--> statement-breakpoint
create or replace view inspect.eval_cases as
select app_name, run_id, eval_set_id, eval_id, case_version, trial, status, result ->> 'finalStatus' as verdict,
       session_user_id as user_id, session_id, error,
       (result -> 'efficiency' -> 'tokenUsage' ->> 'totalTokens')::float8 as tokens_per_turn,
       end_time - start_time as duration, end_time
from eval_run_cases;
comment on view inspect.eval_cases is 'Cases of evaluation runs, one row per trial. Filter by app_name and run_id.';
comment on column inspect.eval_cases.app_name is 'Application.';
comment on column inspect.eval_cases.case_version is 'Version of the case that was run.';
comment on column inspect.eval_cases.duration is 'How long it took.';
comment on column inspect.eval_cases.end_time is 'When it ended.';
comment on column inspect.eval_cases.error is 'Why it could not be completed.';
comment on column inspect.eval_cases.eval_id is 'Case.';
comment on column inspect.eval_cases.eval_set_id is 'Set of the case.';
comment on column inspect.eval_cases.run_id is 'Run.';
comment on column inspect.eval_cases.session_id is 'Session of the run; see inspect.conversation.';
comment on column inspect.eval_cases.status is 'waiting, running, done, error or cancelled.';
comment on column inspect.eval_cases.tokens_per_turn is 'Mean tokens per turn; null if no model reported any.';
comment on column inspect.eval_cases.trial is 'Trial, from 1.';
comment on column inspect.eval_cases.user_id is 'User of its session.';
comment on column inspect.eval_cases.verdict is 'PASSED, FAILED or NOT_EVALUATED; null unless it is done.';
--> statement-breakpoint
create or replace view inspect.eval_judges as
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
group by c.app_name, c.eval_set_id, m ->> 'metricName', m -> 'judge' ->> 'model', m -> 'judge' ->> 'promptVersion';
comment on view inspect.eval_judges is 'Agreement of judges with people on the same turns, by judge and prompt version.';
comment on column inspect.eval_judges.app_name is 'Application.';
comment on column inspect.eval_judges.both_fail is 'Turns that both fail.';
comment on column inspect.eval_judges.both_pass is 'Turns that both pass.';
comment on column inspect.eval_judges.eval_set_id is 'Set.';
comment on column inspect.eval_judges.judge_model is 'Model that judged.';
comment on column inspect.eval_judges.metric_name is 'Metric.';
comment on column inspect.eval_judges.only_judge_passes is 'Turns that only the judge passes.';
comment on column inspect.eval_judges.only_person_passes is 'Turns that only a person passes.';
comment on column inspect.eval_judges.prompt_version is 'Version of the judge''s prompt; changes with its text.';
--> statement-breakpoint
create or replace view inspect.eval_runs as
select r.app_name, r.id as run_id, r.eval_set_id, r.status, r.requested_by, r.judged_run_id, r.model_name, r.agent_hash,
       r.judge_tokens, c.total, c.passed, c.failed, c.not_evaluated, c.errors, r.create_time, r.end_time,
       r.end_time - r.create_time as duration
from eval_runs r cross join lateral (
  select count(*) as total, count(*) filter (where result ->> 'finalStatus' = 'PASSED') as passed,
         count(*) filter (where result ->> 'finalStatus' = 'FAILED') as failed,
         count(*) filter (where result ->> 'finalStatus' = 'NOT_EVALUATED') as not_evaluated,
         count(*) filter (where status = 'error') as errors
  from eval_run_cases where app_name = r.app_name and run_id = r.id) c;
comment on view inspect.eval_runs is 'Evaluation runs with the counts of their cases; order by create_time.';
comment on column inspect.eval_runs.agent_hash is 'SHA-256 of the agent: two runs with one hash had the same instructions and tools.';
comment on column inspect.eval_runs.app_name is 'Application.';
comment on column inspect.eval_runs.create_time is 'When it was requested.';
comment on column inspect.eval_runs.duration is 'How long it took.';
comment on column inspect.eval_runs.end_time is 'When it ended; null until then.';
comment on column inspect.eval_runs.errors is 'Cases that could not be completed.';
comment on column inspect.eval_runs.eval_set_id is 'Set that was run.';
comment on column inspect.eval_runs.failed is 'Cases that failed a metric.';
comment on column inspect.eval_runs.judge_tokens is 'Tokens used by judges and simulated users, including the maximum of running calls.';
comment on column inspect.eval_runs.judged_run_id is 'Run whose stored turns were judged again; null for an ordinary run.';
comment on column inspect.eval_runs.model_name is 'Model of the agent.';
comment on column inspect.eval_runs.not_evaluated is 'Cases without a result from any metric.';
comment on column inspect.eval_runs.passed is 'Cases that passed.';
comment on column inspect.eval_runs.requested_by is 'User of the token that requested it; null for keys and local callers.';
comment on column inspect.eval_runs.run_id is 'Run.';
comment on column inspect.eval_runs.status is 'queued, running, done or cancelled.';
comment on column inspect.eval_runs.total is 'Number of cases, each trial counted.';
--> statement-breakpoint
create or replace view inspect.eval_trends as
select r.app_name, r.eval_set_id, r.id as run_id, r.create_time, m ->> 'metricName' as metric_name,
       avg((m ->> 'score')::float8) as mean_score, count(*) filter (where m ->> 'status' = 'PASSED') as passed,
       count(*) filter (where m ->> 'status' = 'FAILED') as failed,
       count(*) filter (where m ->> 'status' = 'NOT_EVALUATED') as not_evaluated
from eval_runs r
join eval_run_cases c on c.app_name = r.app_name and c.run_id = r.id
cross join lateral jsonb_array_elements(c.result -> 'overall') m
where r.status = 'done'
group by r.app_name, r.eval_set_id, r.id, r.create_time, m ->> 'metricName';
comment on view inspect.eval_trends is 'Results of a set''s runs by metric. Filter by app_name and eval_set_id; order by create_time.';
comment on column inspect.eval_trends.app_name is 'Application.';
comment on column inspect.eval_trends.create_time is 'When the run was requested.';
comment on column inspect.eval_trends.eval_set_id is 'Set.';
comment on column inspect.eval_trends.failed is 'Cases that failed the metric.';
comment on column inspect.eval_trends.mean_score is 'Mean score over the cases; null if there is none.';
comment on column inspect.eval_trends.metric_name is 'Metric.';
comment on column inspect.eval_trends.not_evaluated is 'Cases without a result from the metric.';
comment on column inspect.eval_trends.passed is 'Cases that passed the metric.';
comment on column inspect.eval_trends.run_id is 'Run.';
--> statement-breakpoint
create or replace view inspect.invocation_costs as
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
group by e.app_name, e.user_id, e.session_id, e.invocation_id, e.payload ->> 'modelVersion';
comment on view inspect.invocation_costs is 'Tokens and cost of invocations by model, from their events at current prices. Filter by session, because all its events are read.';
comment on column inspect.invocation_costs.app_name is 'Application.';
comment on column inspect.invocation_costs.cost is 'Cost by the longest matching prefix in model_prices, otherwise by *; null if none matches.';
comment on column inspect.invocation_costs.invocation_id is 'Invocation.';
comment on column inspect.invocation_costs.llm_calls is 'Model answers with token counts.';
comment on column inspect.invocation_costs.model is 'Model name in the provider''s answer.';
comment on column inspect.invocation_costs.output_tokens is 'Answer and thought tokens.';
comment on column inspect.invocation_costs.prompt_tokens is 'Prompt tokens.';
comment on column inspect.invocation_costs.session_id is 'Session.';
comment on column inspect.invocation_costs.user_id is 'Owner of the session.';
--> statement-breakpoint
create or replace view inspect.invocations as
select app_name, user_id, session_id, id as invocation_id, agent_version, status,
       (status = 'running' or status = 'queued' and request is null) and lease_expire_time < clock_timestamp() as is_dead,
       create_time, start_time, end_time,
       coalesce(end_time, clock_timestamp()) - start_time as duration,
       error_code, error_message, stop_requested_as,
       llm_calls, tool_calls, prompt_tokens, output_tokens, agent, first_text, work_ms * interval '1 millisecond' as work
from invocations;
comment on view inspect.invocations is 'Invocations with status and errors; order by create_time.';
comment on column inspect.invocations.agent is 'Agent that made its last event; null until it ends.';
comment on column inspect.invocations.agent_version is 'Application version that ran it, with +overrides if the request changed the agent.';
comment on column inspect.invocations.app_name is 'Application.';
comment on column inspect.invocations.create_time is 'When it was requested.';
comment on column inspect.invocations.duration is 'Time from start to end, or until now, with what it waited for people, times and signals; null until it starts.';
comment on column inspect.invocations.end_time is 'When it ended.';
comment on column inspect.invocations.error_code is 'Stable error code.';
comment on column inspect.invocations.error_message is 'Why it failed, a sentence.';
comment on column inspect.invocations.first_text is 'Start of the text of its prompt; null if there is none.';
comment on column inspect.invocations.invocation_id is 'Invocation id; its events refer to it.';
comment on column inspect.invocations.is_dead is 'True if the process that has it is gone: another one will take it over, or end it. Never of one that waits in the background, which no process has.';
comment on column inspect.invocations.llm_calls is 'Model calls made.';
comment on column inspect.invocations.output_tokens is 'Answer and thought tokens of all model calls.';
comment on column inspect.invocations.prompt_tokens is 'Prompt tokens of all model calls.';
comment on column inspect.invocations.session_id is 'Session.';
comment on column inspect.invocations.start_time is 'When it started running.';
comment on column inspect.invocations.status is 'queued, running, paused (waits for an answer), succeeded, failed, interrupted or cancelled.';
comment on column inspect.invocations.stop_requested_as is 'Requested stop, and the status to end with: cancelled or interrupted.';
comment on column inspect.invocations.tool_calls is 'Tool calls made.';
comment on column inspect.invocations.user_id is 'Owner of the session.';
comment on column inspect.invocations.work is 'Time for which a process ran it, until its last end or pause; without what it waited.';
--> statement-breakpoint
create or replace view inspect.memories as
select app_name, user_id, session_id, event_id, author, event_time, octet_length(content::text)::bigint as bytes,
       embedding is not null as has_embedding, embedding_model, content
from memories;
comment on view inspect.memories is 'Memories of users: events of sessions that the agent can search; order by event_time.';
comment on column inspect.memories.app_name is 'Application.';
comment on column inspect.memories.author is 'Author of the event.';
comment on column inspect.memories.bytes is 'Bytes of the content as JSON.';
comment on column inspect.memories.content is 'What was said.';
comment on column inspect.memories.embedding_model is 'Model and dimensions of the embedding, or of the model that refused the text.';
comment on column inspect.memories.event_id is 'Event.';
comment on column inspect.memories.event_time is 'Timestamp of the event.';
comment on column inspect.memories.has_embedding is 'True if it is found by meaning too.';
comment on column inspect.memories.session_id is 'Session of the event; may be deleted by now.';
comment on column inspect.memories.user_id is 'Owner.';
--> statement-breakpoint
create or replace view inspect.open_invocations as
select i.app_name, i.user_id, i.session_id, i.id as invocation_id, i.status, clock_timestamp() - i.create_time as age,
       case when i.status <> 'paused' then clock_timestamp() - i.start_time end as running_for,
       (i.status = 'running' or i.status = 'queued' and i.request is null) and i.lease_expire_time < clock_timestamp()
         as is_dead,
       i.stop_requested_as, i.llm_calls, i.tool_calls, i.not_before as earliest_start_time,
       case when i.status = 'paused' then t.since
            when i.status = 'queued' and i.start_time is null and i.end_time is null then i.create_time
            when i.status = 'queued' then i.lease_expire_time end as waiting_since, t.kinds as waits_for,
       i.status = 'paused' and i.waits_for_tasks is true and t.kinds is null and t.due = 0 as is_stranded
from invocations i
left join lateral (
  select min(t.create_time) filter (where t.state = 'open') as since,
         string_agg(distinct t.kind, ', ' order by t.kind) filter (where t.state = 'open') as kinds,
         count(*) filter (where t.due_time is not null) as due
  from tasks t
  where t.app_name = i.app_name and t.user_id = i.user_id and t.session_id = i.session_id and t.invocation_id = i.id) t on true
where i.status in ('queued', 'running', 'paused');
comment on view inspect.open_invocations is 'Running, queued and paused invocations, to find slow or stuck ones and what waits since when.';
comment on column inspect.open_invocations.age is 'Time since it was requested.';
comment on column inspect.open_invocations.app_name is 'The application.';
comment on column inspect.open_invocations.earliest_start_time is 'Of a run of a cronjob that has not begun: it begins at this time at the earliest. Null for all others.';
comment on column inspect.open_invocations.invocation_id is 'The invocation.';
comment on column inspect.open_invocations.is_dead is 'True if the process that has it is gone: another one will take it over, or end it. Never of one that waits in the background, which no process has.';
comment on column inspect.open_invocations.is_stranded is 'True if it is paused and nothing will resume it: it waits for tasks, and none is open or due.';
comment on column inspect.open_invocations.llm_calls is 'Model calls with stored answers.';
comment on column inspect.open_invocations.running_for is 'Time since the start; null if it is queued or paused.';
comment on column inspect.open_invocations.session_id is 'The session.';
comment on column inspect.open_invocations.status is 'queued, running or paused.';
comment on column inspect.open_invocations.stop_requested_as is 'Requested stop that has not happened yet: cancelled or interrupted.';
comment on column inspect.open_invocations.tool_calls is 'Tool calls with stored requests.';
comment on column inspect.open_invocations.user_id is 'Owner of the session.';
comment on column inspect.open_invocations.waiting_since is 'Since when it waits: in the queue, or for the oldest of its open tasks. Null while it runs.';
comment on column inspect.open_invocations.waits_for is 'Kinds of its open tasks, see inspect.tasks; null if it has none.';
--> statement-breakpoint
create or replace view inspect.queue as
select q.app_name, q.user_id, q.session_id,
       row_number() over (partition by q.app_name, q.user_id, q.session_id
         order by q.start_time is null, q.create_time, q.id) as place,
       q.id as invocation_id, w.since as waiting_since, clock_timestamp() - w.since as waited,
       r.id as running_invocation, r.start_time as running_since
from invocations q
cross join lateral (
  select case when q.start_time is null and q.end_time is null then q.create_time else q.lease_expire_time end) w(since)
left join invocations r
  on r.app_name = q.app_name and r.user_id = q.user_id and r.session_id = q.session_id and r.status = 'running'
where q.status = 'queued' and (q.request is not null or q.lease_expire_time > clock_timestamp())
  and (q.not_before is null or q.not_before <= clock_timestamp());
comment on view inspect.queue is 'Queued invocations that may begin when their session is free, and the running one that each waits for.';
comment on column inspect.queue.app_name is 'Application.';
comment on column inspect.queue.invocation_id is 'Queued invocation.';
comment on column inspect.queue.place is 'Position in the session''s queue, from 1.';
comment on column inspect.queue.running_invocation is 'Invocation that runs in the session now; null if the session is free.';
comment on column inspect.queue.running_since is 'Start of the running invocation.';
comment on column inspect.queue.session_id is 'Session.';
comment on column inspect.queue.user_id is 'Owner of the session.';
comment on column inspect.queue.waited is 'Waiting time.';
comment on column inspect.queue.waiting_since is 'When it was requested, woken after a pause, or put back; later than now while it backs off.';
--> statement-breakpoint
create or replace view inspect.score_rules as
select app_name, id as rule_id, share, quiet_minutes,
       case when day = (clock_timestamp() at time zone 'utc')::date then scored else 0 end as scored_today, skipped,
       update_time, definition
from score_rules;
comment on view inspect.score_rules is 'Rules for scoring live sessions; see inspect.session_scores for the scores.';
comment on column inspect.score_rules.app_name is 'Application.';
comment on column inspect.score_rules.definition is 'The rule as requested: metrics, filter, daily limits, webhook.';
comment on column inspect.score_rules.quiet_minutes is 'Minutes without an end of an invocation after which a session is scored; null: each invocation is scored.';
comment on column inspect.score_rules.rule_id is 'Rule.';
comment on column inspect.score_rules.scored_today is 'Scores started on this day of UTC.';
comment on column inspect.score_rules.share is 'Share of invocations or sessions that it scores; 0 pauses it.';
comment on column inspect.score_rules.skipped is 'Scores skipped because the daily limit was reached.';
comment on column inspect.score_rules.update_time is 'When it was saved.';
--> statement-breakpoint
create or replace view inspect.session_scores as
select s.app_name, s.user_id, s.session_id, s.last_sequence, s.rule_id, s.invocation_id,
       s.result ->> 'finalStatus' as verdict, m ->> 'metricName' as metric_name, m ->> 'status' as status,
       (m ->> 'score')::float8 as score, m -> 'judge' ->> 'model' as judge_model, m ->> 'explanation' as explanation,
       s.create_time
from eval_session_scores s cross join lateral jsonb_array_elements(s.result -> 'overall') m;
comment on view inspect.session_scores is 'Scores of sessions outside of runs, one row per metric; order by create_time.';
comment on column inspect.session_scores.app_name is 'Application.';
comment on column inspect.session_scores.create_time is 'When it was scored.';
comment on column inspect.session_scores.explanation is 'Why it could not be evaluated.';
comment on column inspect.session_scores.invocation_id is 'Scored invocation; null for the whole session.';
comment on column inspect.session_scores.judge_model is 'Judge model; null if none.';
comment on column inspect.session_scores.last_sequence is 'Last event of the session when it was scored.';
comment on column inspect.session_scores.metric_name is 'Metric.';
comment on column inspect.session_scores.rule_id is 'Score rule that caused it; null if requested directly.';
comment on column inspect.session_scores.score is 'From 0 to 1; null if it could not be evaluated.';
comment on column inspect.session_scores.session_id is 'Session.';
comment on column inspect.session_scores.status is 'Result of this metric: PASSED, FAILED or NOT_EVALUATED.';
comment on column inspect.session_scores.user_id is 'Owner of the session.';
comment on column inspect.session_scores.verdict is 'Result of all metrics: PASSED, FAILED or NOT_EVALUATED.';
--> statement-breakpoint
create or replace view inspect.session_verdicts as
select app_name, user_id, session_id, nullif(event_id, '') as event_id, author, passed, label, comment, create_time
from session_verdicts;
comment on view inspect.session_verdicts is 'People''s verdicts on sessions and events; order by create_time.';
comment on column inspect.session_verdicts.app_name is 'Application.';
comment on column inspect.session_verdicts.author is 'Author: user of a token, id of a key, or local.';
comment on column inspect.session_verdicts.comment is 'Comment.';
comment on column inspect.session_verdicts.create_time is 'When it was given.';
comment on column inspect.session_verdicts.event_id is 'The event; null for the session.';
comment on column inspect.session_verdicts.label is 'Label for filtering.';
comment on column inspect.session_verdicts.passed is 'Thumbs up or down; null for neither.';
comment on column inspect.session_verdicts.session_id is 'Session.';
comment on column inspect.session_verdicts.user_id is 'Owner of the session.';
--> statement-breakpoint
create or replace view inspect.sessions as
select s.app_name, s.user_id, s.id as session_id, s.last_sequence as event_count,
       i.id as running_invocation, i.lease_expire_time as lease_until,
       s.create_time, s.update_time, s.is_eval, s.state
from sessions s
left join invocations i
  on i.app_name = s.app_name and i.user_id = s.user_id and i.session_id = s.id
 and i.status = 'running' and i.lease_token = s.lease_token;
comment on view inspect.sessions is 'Sessions with their number of events and running invocation.';
comment on column inspect.sessions.app_name is 'Application.';
comment on column inspect.sessions.create_time is 'When the session was created.';
comment on column inspect.sessions.event_count is 'Number of its events.';
comment on column inspect.sessions.is_eval is 'Created by an evaluation run; not listed.';
comment on column inspect.sessions.lease_until is 'Expiry of its lease, unless renewed.';
comment on column inspect.sessions.running_invocation is 'Running invocation; null if none.';
comment on column inspect.sessions.session_id is 'Session.';
comment on column inspect.sessions.state is 'State of this session only.';
comment on column inspect.sessions.update_time is 'Last change.';
comment on column inspect.sessions.user_id is 'Owner.';
--> statement-breakpoint
create or replace view inspect.signals as
select app_name, user_id, session_id, id as signal_id, name, create_time as waiting_since,
       octet_length(payload::text)::bigint as bytes, payload
from signals;
comment on view inspect.signals is 'Signals that came before an invocation waited for them; order by waiting_since. A task that waits for a signal is in inspect.tasks.';
comment on column inspect.signals.app_name is 'Application.';
comment on column inspect.signals.bytes is 'Bytes of the payload as JSON.';
comment on column inspect.signals.name is 'Name of the signal.';
comment on column inspect.signals.payload is 'Payload of the signal.';
comment on column inspect.signals.session_id is 'Session.';
comment on column inspect.signals.signal_id is 'Row id.';
comment on column inspect.signals.user_id is 'Owner of the session.';
comment on column inspect.signals.waiting_since is 'When it was received.';
--> statement-breakpoint
create or replace view inspect.storage as
select coalesce(s.app_name, a.app_name) as app_name, coalesce(s.user_id, a.user_id) as user_id,
       coalesce(s.sessions, 0) as sessions, coalesce(s.events, 0) as events, coalesce(s.event_bytes, 0) as event_bytes,
       coalesce(a.versions, 0) as artifact_versions, coalesce(a.bytes, 0) as artifact_bytes
from (select app_name, user_id, count(*) as sessions, sum(last_sequence) as events, sum(event_bytes) as event_bytes
      from sessions group by 1, 2) s
full join (select app_name, user_id, count(*) as versions, sum(size_bytes) as bytes
           from artifact_versions group by 1, 2) a on a.app_name = s.app_name and a.user_id = s.user_id;
comment on view inspect.storage is 'How many sessions, events and versions a user has; what MAX_USER_BYTES counts is in inspect.user_storage.';
comment on column inspect.storage.app_name is 'The application.';
comment on column inspect.storage.artifact_bytes is 'Bytes of artifact versions, in the database or the object store.';
comment on column inspect.storage.artifact_versions is 'Number of artifact versions.';
comment on column inspect.storage.event_bytes is 'Bytes of JSON of events.';
comment on column inspect.storage.events is 'Number of events.';
comment on column inspect.storage.sessions is 'Number of sessions, including those of evaluation runs.';
comment on column inspect.storage.user_id is 'The user.';
--> statement-breakpoint
create or replace view inspect.tasks as
select app_name, user_id, session_id, invocation_id, id as task_id, kind, state, form ->> 'tool' as tool,
       create_time as waiting_since, expire_time, assigned_users, assigned_groups, decided_by, decided_via, decide_time,
       signal_name, form ->> 'hint' as hint
from tasks;
comment on view inspect.tasks is 'What paused invocations wait for, and how it was answered; order by waiting_since.';
comment on column inspect.tasks.app_name is 'Application.';
comment on column inspect.tasks.assigned_groups is 'Groups whose members may answer.';
comment on column inspect.tasks.assigned_users is 'Users who may answer; without users and groups the owner of the session may.';
comment on column inspect.tasks.decide_time is 'When it was answered.';
comment on column inspect.tasks.decided_by is 'Who answered; null for the deadline.';
comment on column inspect.tasks.decided_via is 'tasks, run, signal or deadline; null if open.';
comment on column inspect.tasks.expire_time is 'Deadline; null for none.';
comment on column inspect.tasks.hint is 'What is asked.';
comment on column inspect.tasks.invocation_id is 'Invocation that waits.';
comment on column inspect.tasks.kind is 'confirmation, effect, question, call, sleep, signal or budget.';
comment on column inspect.tasks.session_id is 'Session.';
comment on column inspect.tasks.signal_name is 'Name of the signal that answers it; null for other kinds.';
comment on column inspect.tasks.state is 'open; answered: the invocation is not resumed yet; done: the invocation has the answer; cancelled.';
comment on column inspect.tasks.task_id is 'Task.';
comment on column inspect.tasks.tool is 'Tool that was called.';
comment on column inspect.tasks.user_id is 'Owner of the session.';
comment on column inspect.tasks.waiting_since is 'When the invocation paused.';
--> statement-breakpoint
create or replace view inspect.tool_calls as
select e.app_name, e.user_id, e.session_id, e.invocation_id, e.sequence, e.author as agent,
       part -> 'functionCall' ->> 'name' as tool, part -> 'functionCall' ->> 'id' as call_id, e.event_time as call_time,
       answer.event_time - e.event_time as duration,
       case when answer.event_time is null then 'open' when answer.response ? 'error' then 'failed' else 'answered' end
         as outcome,
       t.effect, t.state, t.attempt, t.operation_id, answer.response ->> 'error' as reason
from events e
cross join lateral jsonb_array_elements(
  case when jsonb_typeof(e.payload -> 'content' -> 'parts') = 'array' then e.payload -> 'content' -> 'parts'
       else '[]' end) part
left join lateral (
  select r.event_time, response -> 'functionResponse' -> 'response' as response
  from events r cross join lateral jsonb_array_elements(
    case when jsonb_typeof(r.payload -> 'content' -> 'parts') = 'array' then r.payload -> 'content' -> 'parts'
         else '[]' end) response
  where r.app_name = e.app_name and r.user_id = e.user_id and r.session_id = e.session_id and r.sequence > e.sequence
    and response -> 'functionResponse' ->> 'id' = part -> 'functionCall' ->> 'id'
  order by r.sequence limit 1) answer on true
left join tool_calls t on t.app_name = e.app_name and t.user_id = e.user_id and t.session_id = e.session_id
  and t.invocation_id = e.invocation_id and t.call_id = part -> 'functionCall' ->> 'id'
where part ? 'functionCall';
comment on view inspect.tool_calls is 'Tool calls with duration, outcome and the reason of a failure, without arguments and answers. Filter by session, because all its events are read.';
comment on column inspect.tool_calls.agent is 'Calling agent.';
comment on column inspect.tool_calls.app_name is 'The application.';
comment on column inspect.tool_calls.attempt is 'Number of attempts started; null if none.';
comment on column inspect.tool_calls.call_id is 'Id of the call within the session.';
comment on column inspect.tool_calls.call_time is 'When the call was stored.';
comment on column inspect.tool_calls.duration is 'Time until the answer was stored; null if there is none yet.';
comment on column inspect.tool_calls.effect is 'none, idempotent or once.';
comment on column inspect.tool_calls.invocation_id is 'The invocation.';
comment on column inspect.tool_calls.operation_id is 'Id of the operation for the tool; the same for every attempt.';
comment on column inspect.tool_calls.outcome is 'answered; failed (the answer has an error); open (no answer yet).';
comment on column inspect.tool_calls.reason is 'Why it failed: the error in its answer.';
comment on column inspect.tool_calls.sequence is 'Sequence of the event with the call.';
comment on column inspect.tool_calls.session_id is 'The session.';
comment on column inspect.tool_calls.state is 'started, done, unknown or settled.';
comment on column inspect.tool_calls.tool is 'Name of the tool.';
comment on column inspect.tool_calls.user_id is 'Owner of the session.';
--> statement-breakpoint
create or replace view inspect.usage as
select i.app_name, i.user_id, (i.create_time at time zone 'utc')::date as day,
       count(*) as invocations, count(*) filter (where i.status in ('failed', 'interrupted')) as failed,
       sum(i.llm_calls) as llm_calls, sum(i.tool_calls) as tool_calls,
       sum(i.prompt_tokens) as prompt_tokens, sum(i.output_tokens) as output_tokens, s.is_eval
from invocations i
join sessions s on s.app_name = i.app_name and s.user_id = i.user_id and s.id = i.session_id
where s.parent_session_id is null and (i.steered_invocation_id is null or i.count_time is not null)
group by i.app_name, i.user_id, (i.create_time at time zone 'utc')::date, s.is_eval;
comment on view inspect.usage is 'Invocations, calls and tokens by user and day, those of evaluation runs apart, without deleted sessions. An invocation includes what the agents used that it called. A message that steered is one, the result of an agent in the background that did so is none, as in budgets.';
comment on column inspect.usage.app_name is 'Application.';
comment on column inspect.usage.day is 'Day in UTC on which the invocations were requested.';
comment on column inspect.usage.failed is 'Number of invocations that failed or were interrupted.';
comment on column inspect.usage.invocations is 'Number of invocations.';
comment on column inspect.usage.is_eval is 'True for the sessions of evaluation runs.';
comment on column inspect.usage.llm_calls is 'Model calls made.';
comment on column inspect.usage.output_tokens is 'Answer and thought tokens of all model calls.';
comment on column inspect.usage.prompt_tokens is 'Prompt tokens of all model calls.';
comment on column inspect.usage.tool_calls is 'Tool calls made.';
comment on column inspect.usage.user_id is 'User.';
--> statement-breakpoint
create or replace view inspect.user_storage as
select app_name, user_id, sum(event_bytes + artifact_bytes + memory_bytes)::bigint as bytes,
       sum(event_bytes)::bigint as event_bytes, sum(artifact_bytes)::bigint as artifact_bytes,
       sum(memory_bytes)::bigint as memory_bytes
from user_storage group by app_name, user_id;
comment on view inspect.user_storage is 'Bytes stored by users, as MAX_USER_BYTES counts them at each write; how many things they are is in inspect.storage.';
comment on column inspect.user_storage.app_name is 'Application.';
comment on column inspect.user_storage.artifact_bytes is 'Bytes of artifact versions with metadata.';
comment on column inspect.user_storage.bytes is 'Sum of the three; limited by MAX_USER_BYTES.';
comment on column inspect.user_storage.event_bytes is 'Bytes of events, session states and queued requests.';
comment on column inspect.user_storage.memory_bytes is 'Bytes of memories.';
comment on column inspect.user_storage.user_id is 'User.';
--> statement-breakpoint
create or replace view inspect.version as
select 1 as version,
       case when current_setting('agent_runtime.all_users', true) = 'on' or r.rolsuper or r.rolbypassrls then 'all users'
            when coalesce(current_setting('agent_runtime.user', true), '') <> ''
              then format('the user %s', current_setting('agent_runtime.user', true))
            else 'no user: set agent_runtime.all_users = ''on''' end as reads
from pg_class c join pg_roles r on r.oid = c.relowner
where c.oid = 'sessions'::regclass;
comment on view inspect.version is 'Version of these views: within a version columns are not dropped, renamed or retyped, but may be added.';
comment on column inspect.version.reads is 'Whose rows the views show in this session; they ask what the owner of the tables may read, also for a superuser.';
comment on column inspect.version.version is 'Increases when a column is dropped, renamed or retyped.';
--> statement-breakpoint
create or replace view inspect.webhook_deliveries as
select d.app_name, d.user_id, w.id as webhook_id, w.url, d.id as delivery_id, (d.payload::json) ->> 'type' as type,
       (d.payload::json) -> 'data' ->> 'status' as ended_as, d.status, coalesce(j.attempt, d.attempt) as attempt,
       coalesce(j.lease_expire_time, j.due_time) as next_attempt_time,
       d.answers -> -1 ->> 'status' as last_status, d.answers -> -1 ->> 'error' as last_error, d.create_time, d.end_time,
       d.end_time - d.create_time as duration
from webhook_deliveries d
join webhooks w on w.app_name = d.app_name and w.user_id = d.user_id and w.id = d.webhook_id
left join jobs j on j.app_name = d.app_name and j.user_id = d.user_id and j.kind = 'delivery' and j.id = d.id;
comment on view inspect.webhook_deliveries is 'Webhook deliveries, with the receivers'' last answers.';
comment on column inspect.webhook_deliveries.app_name is 'Application.';
comment on column inspect.webhook_deliveries.attempt is 'Number of attempts.';
comment on column inspect.webhook_deliveries.create_time is 'Time of the reported event.';
comment on column inspect.webhook_deliveries.delivery_id is 'Delivery, the header webhook-id.';
comment on column inspect.webhook_deliveries.duration is 'Time until the end.';
comment on column inspect.webhook_deliveries.end_time is 'When it was delivered or given up.';
comment on column inspect.webhook_deliveries.ended_as is 'Final status of the invocation or run.';
comment on column inspect.webhook_deliveries.last_error is 'Error of the last attempt without an answer.';
comment on column inspect.webhook_deliveries.last_status is 'Receiver''s last HTTP status.';
comment on column inspect.webhook_deliveries.next_attempt_time is 'Next attempt.';
comment on column inspect.webhook_deliveries.status is 'pending, delivered or failed.';
comment on column inspect.webhook_deliveries.type is 'Type of the event.';
comment on column inspect.webhook_deliveries.url is 'Address.';
comment on column inspect.webhook_deliveries.user_id is 'Owner.';
comment on column inspect.webhook_deliveries.webhook_id is 'Webhook.';
