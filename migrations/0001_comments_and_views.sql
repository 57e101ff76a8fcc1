comment on table sessions is 'One conversation of one user with one application.';--> statement-breakpoint
comment on column sessions.app_name is 'Application; harness_agent for the command-line deployment.';--> statement-breakpoint
comment on column sessions.user_id is 'Owner; a session is never seen by another user.';--> statement-breakpoint
comment on column sessions.id is 'Session identifier, unique per application and user.';--> statement-breakpoint
comment on column sessions.state is 'Keys of this session only; app: and user: keys live in app_states and user_states.';--> statement-breakpoint
comment on column sessions.last_sequence is 'Sequence of the newest event; every append raises it in the statement that inserts the event.';--> statement-breakpoint
comment on column sessions.is_eval is 'Made by an evaluation run; lists leave it out.';--> statement-breakpoint
comment on column sessions.lease_token is 'Fencing token of the running invocation; null while none runs. Every write of an invocation asks for it.';--> statement-breakpoint
comment on column sessions.create_time is 'When the session was created.';--> statement-breakpoint
comment on column sessions.update_time is 'Last change, by the clock of the database; never goes back.';--> statement-breakpoint

comment on table events is 'The conversation. Ordered by sequence and never by time.';--> statement-breakpoint
comment on column events.app_name is 'Application of the session.';--> statement-breakpoint
comment on column events.user_id is 'Owner of the session.';--> statement-breakpoint
comment on column events.session_id is 'Session that the event belongs to.';--> statement-breakpoint
comment on column events.sequence is '1, 2, 3 … per session, without gap or tie.';--> statement-breakpoint
comment on column events.id is 'Event identifier, unique within its session.';--> statement-breakpoint
comment on column events.invocation_id is 'Invocation that wrote the event.';--> statement-breakpoint
comment on column events.author is 'user, or the name of the agent that spoke.';--> statement-breakpoint
comment on column events.event_time is 'The timestamp of the payload; imported events keep their own.';--> statement-breakpoint
comment on column events.payload is 'The event as it goes over the wire. U+E000 and four hex digits stand for a code unit that jsonb refuses.';--> statement-breakpoint

comment on table app_states is 'State keys with the prefix app:, shared by all users of an application.';--> statement-breakpoint
comment on column app_states.app_name is 'Application.';--> statement-breakpoint
comment on column app_states.state is 'Keys with their prefix; merged in SQL.';--> statement-breakpoint
comment on column app_states.update_time is 'Last merge.';--> statement-breakpoint

comment on table user_states is 'State keys with the prefix user:, shared by all sessions of a user in an application.';--> statement-breakpoint
comment on column user_states.app_name is 'Application.';--> statement-breakpoint
comment on column user_states.user_id is 'User.';--> statement-breakpoint
comment on column user_states.state is 'Keys with their prefix; merged in SQL.';--> statement-breakpoint
comment on column user_states.update_time is 'Last merge.';--> statement-breakpoint

comment on table invocations is 'One prompt up to its final answer. The row is the truth about it.';--> statement-breakpoint
comment on column invocations.app_name is 'Application of the session.';--> statement-breakpoint
comment on column invocations.user_id is 'Owner of the session.';--> statement-breakpoint
comment on column invocations.session_id is 'Session that the invocation belongs to.';--> statement-breakpoint
comment on column invocations.id is 'Invocation identifier; the events it wrote carry it.';--> statement-breakpoint
comment on column invocations.status is 'queued, running, paused (waits for a person), succeeded, failed, interrupted or cancelled.';--> statement-breakpoint
comment on column invocations.lease_token is 'Token of the process that runs it; equal to sessions.lease_token while it does.';--> statement-breakpoint
comment on column invocations.lease_expire_time is 'A running invocation whose lease is past this time is dead and may be taken over.';--> statement-breakpoint
comment on column invocations.idempotency_key is 'Idempotency-Key of the request, where it had one.';--> statement-breakpoint
comment on column invocations.request_hash is 'SHA-256 of the request, to tell a retry from another request with the same key.';--> statement-breakpoint
comment on column invocations.answer is 'The answer as it was sent; a retry gets these bytes.';--> statement-breakpoint
comment on column invocations.error_code is 'Why it failed, a stable code.';--> statement-breakpoint
comment on column invocations.error_message is 'Why it failed, a sentence.';--> statement-breakpoint
comment on column invocations.llm_calls is 'Model calls made.';--> statement-breakpoint
comment on column invocations.prompt_tokens is 'Prompt tokens of all model calls.';--> statement-breakpoint
comment on column invocations.output_tokens is 'Answer and thought tokens of all model calls.';--> statement-breakpoint
comment on column invocations.cancel_status is 'cancelled or interrupted: what its process is asked to end it as.';--> statement-breakpoint
comment on column invocations.tool_calls is 'Tool calls made.';--> statement-breakpoint
comment on column invocations.create_time is 'When it was asked for; queued ones take their turn in this order.';--> statement-breakpoint
comment on column invocations.start_time is 'When it took the session.';--> statement-breakpoint
comment on column invocations.end_time is 'When it ended.';--> statement-breakpoint

comment on table artifacts is 'One row per artifact name and scope; its row lock hands out the version numbers.';--> statement-breakpoint
comment on column artifacts.app_name is 'Application.';--> statement-breakpoint
comment on column artifacts.user_id is 'Owner.';--> statement-breakpoint
comment on column artifacts.session_id is 'Session, or empty for an artifact of the user (name begins with user:).';--> statement-breakpoint
comment on column artifacts.name is 'Artifact name as it was sent.';--> statement-breakpoint
comment on column artifacts.next_version is 'Number of the next version; only rises, also after a delete.';--> statement-breakpoint

comment on table artifact_versions is 'The versions of the artifacts and their content.';--> statement-breakpoint
comment on column artifact_versions.app_name is 'Application.';--> statement-breakpoint
comment on column artifact_versions.user_id is 'Owner.';--> statement-breakpoint
comment on column artifact_versions.session_id is 'Session, or empty for an artifact of the user.';--> statement-breakpoint
comment on column artifact_versions.artifact_name is 'Artifact name.';--> statement-breakpoint
comment on column artifact_versions.version is '0, 1, 2 … per artifact.';--> statement-breakpoint
comment on column artifact_versions.canonical_uri is 'Where the content is.';--> statement-breakpoint
comment on column artifact_versions.mime_type is 'MIME type of the content.';--> statement-breakpoint
comment on column artifact_versions.custom_metadata is 'Free-form members given at the save.';--> statement-breakpoint
comment on column artifact_versions.part is 'The part as it was sent, without its bytes.';--> statement-breakpoint
comment on column artifact_versions.content is 'The bytes; null for a reference to a file elsewhere.';--> statement-breakpoint
comment on column artifact_versions.object_key is 'Key of the content in the object store; null where the content is in this row.';--> statement-breakpoint
comment on column artifact_versions.size_bytes is 'Length of the content in bytes.';--> statement-breakpoint
comment on column artifact_versions.sha256 is 'SHA-256 of the content.';--> statement-breakpoint
comment on column artifact_versions.create_time is 'When the version was saved.';--> statement-breakpoint

comment on table memories is 'What was said in sessions that were added to the memory of a user; searched by words.';--> statement-breakpoint
comment on column memories.app_name is 'Application.';--> statement-breakpoint
comment on column memories.user_id is 'User.';--> statement-breakpoint
comment on column memories.session_id is 'Session that it was said in; the session may be deleted since.';--> statement-breakpoint
comment on column memories.event_id is 'Event that said it.';--> statement-breakpoint
comment on column memories.author is 'Who said it.';--> statement-breakpoint
comment on column memories.content is 'The content of the event.';--> statement-breakpoint
comment on column memories.event_time is 'When it was said.';--> statement-breakpoint
comment on column memories.words is 'Its words for full-text search, configuration simple.';--> statement-breakpoint

comment on table eval_sets is 'Named sets of evaluation cases of an application.';--> statement-breakpoint
comment on column eval_sets.app_name is 'Application.';--> statement-breakpoint
comment on column eval_sets.id is 'Evaluation set identifier.';--> statement-breakpoint
comment on column eval_sets.name is 'Name for people.';--> statement-breakpoint
comment on column eval_sets.description is 'Description for people.';--> statement-breakpoint
comment on column eval_sets.create_time is 'When the set was created.';--> statement-breakpoint

comment on table eval_cases is 'A conversation to evaluate an application with.';--> statement-breakpoint
comment on column eval_cases.app_name is 'Application.';--> statement-breakpoint
comment on column eval_cases.eval_set_id is 'Set that the case belongs to.';--> statement-breakpoint
comment on column eval_cases.id is 'Case identifier, unique within its set.';--> statement-breakpoint
comment on column eval_cases.source_user_id is 'User of the session that the case was made from.';--> statement-breakpoint
comment on column eval_cases.source_session_id is 'Session that the case was made from.';--> statement-breakpoint
comment on column eval_cases.payload is 'The case as it goes over the wire.';--> statement-breakpoint
comment on column eval_cases.create_time is 'When the case was created.';--> statement-breakpoint

comment on table eval_results is 'What evaluation runs found.';--> statement-breakpoint
comment on column eval_results.app_name is 'Application.';--> statement-breakpoint
comment on column eval_results.id is 'Result identifier.';--> statement-breakpoint
comment on column eval_results.eval_set_id is 'Set that was run.';--> statement-breakpoint
comment on column eval_results.payload is 'The result as it goes over the wire.';--> statement-breakpoint
comment on column eval_results.create_time is 'When the run ended.';--> statement-breakpoint

comment on table cronjobs is 'Prompts that run on a schedule.';--> statement-breakpoint
comment on column cronjobs.app_name is 'Application.';--> statement-breakpoint
comment on column cronjobs.user_id is 'Owner.';--> statement-breakpoint
comment on column cronjobs.id is 'Cronjob identifier.';--> statement-breakpoint
comment on column cronjobs.name is 'Name for people.';--> statement-breakpoint
comment on column cronjobs.prompt is 'Message that starts the invocation.';--> statement-breakpoint
comment on column cronjobs.schedule is 'once, daily, weekly or cron, as it goes over the wire.';--> statement-breakpoint
comment on column cronjobs.time_zone is 'IANA time zone of the schedule.';--> statement-breakpoint
comment on column cronjobs.enabled is 'A disabled cronjob keeps its place and does not run.';--> statement-breakpoint
comment on column cronjobs.next_run_time is 'When it runs next; null where it never will.';--> statement-breakpoint
comment on column cronjobs.create_time is 'When it was created.';--> statement-breakpoint
comment on column cronjobs.update_time is 'When it was changed last.';--> statement-breakpoint

comment on table cronjob_runs is 'The runs of the cronjobs.';--> statement-breakpoint
comment on column cronjob_runs.app_name is 'Application.';--> statement-breakpoint
comment on column cronjob_runs.user_id is 'Owner.';--> statement-breakpoint
comment on column cronjob_runs.cronjob_id is 'Cronjob that ran.';--> statement-breakpoint
comment on column cronjob_runs.id is 'Run identifier.';--> statement-breakpoint
comment on column cronjob_runs.status is 'queued, pending, running, retrying, success, failed, cancelled or skipped.';--> statement-breakpoint
comment on column cronjob_runs.session_id is 'Session that the run spoke in.';--> statement-breakpoint
comment on column cronjob_runs.invocation_id is 'Invocation of the run.';--> statement-breakpoint
comment on column cronjob_runs.attempt is 'How often it was tried.';--> statement-breakpoint
comment on column cronjob_runs.output is 'Text of the answer.';--> statement-breakpoint
comment on column cronjob_runs.error_message is 'Why it failed, a sentence.';--> statement-breakpoint
comment on column cronjob_runs.scheduled_time is 'When it was due.';--> statement-breakpoint
comment on column cronjob_runs.start_time is 'When it started.';--> statement-breakpoint
comment on column cronjob_runs.end_time is 'When it ended.';--> statement-breakpoint
comment on column cronjob_runs.create_time is 'When the run was queued.';--> statement-breakpoint

comment on table idempotency_keys is 'Answers of requests with an Idempotency-Key, kept for a day; those of invocations are in invocations.';--> statement-breakpoint
comment on column idempotency_keys.scope is 'Who may use the key: operation and caller.';--> statement-breakpoint
comment on column idempotency_keys.key is 'Idempotency-Key of the request.';--> statement-breakpoint
comment on column idempotency_keys.request_hash is 'SHA-256 of the request, to tell a retry from another request with the same key.';--> statement-breakpoint
comment on column idempotency_keys.answer is 'The answer as it was sent; a retry gets these bytes.';--> statement-breakpoint
comment on column idempotency_keys.create_time is 'When the request was answered.';--> statement-breakpoint

comment on table spans is 'Traces of invocations for the development UI, kept for a bounded time.';--> statement-breakpoint
comment on column spans.app_name is 'Application.';--> statement-breakpoint
comment on column spans.user_id is 'Owner of the session.';--> statement-breakpoint
comment on column spans.session_id is 'Session that the invocation belongs to.';--> statement-breakpoint
comment on column spans.trace_id is 'Trace; one per invocation.';--> statement-breakpoint
comment on column spans.id is 'Span identifier.';--> statement-breakpoint
comment on column spans.parent_id is 'The span around this one.';--> statement-breakpoint
comment on column spans.event_id is 'Event that the span led to.';--> statement-breakpoint
comment on column spans.name is 'invocation, invoke_agent, call_llm or execute_tool, with a name.';--> statement-breakpoint
comment on column spans.start_ns is 'Start, Unix time in nanoseconds.';--> statement-breakpoint
comment on column spans.end_ns is 'End, Unix time in nanoseconds.';--> statement-breakpoint
comment on column spans.attributes is 'Attributes as the wire shows them.';--> statement-breakpoint
comment on column spans.create_time is 'When the span was stored.';--> statement-breakpoint

create function limited_state(state jsonb) returns jsonb language plpgsql stable as $$
declare
  max_bytes integer := coalesce(nullif(current_setting('agent_runtime.max_state_bytes', true), ''), '1048576');
begin
  if octet_length(state::text) > max_bytes then
    raise exception 'state is larger than % bytes', max_bytes using errcode = 'AR413';
  end if;
  return state;
end $$;--> statement-breakpoint
comment on function limited_state is 'The state, or an error when its text is larger than the setting agent_runtime.max_state_bytes of the connection.';--> statement-breakpoint

create schema inspect;--> statement-breakpoint
comment on schema inspect is 'Views for people. Their columns may grow; programs use the HTTP interface.';--> statement-breakpoint
create view inspect.sessions as
select s.app_name, s.user_id, s.id as session_id, s.last_sequence as events,
       i.id as running_invocation, i.lease_expire_time as lease_until,
       s.create_time, s.update_time, s.is_eval, s.state
from sessions s
left join invocations i
  on i.app_name = s.app_name and i.user_id = s.user_id and i.session_id = s.id
 and i.status = 'running' and i.lease_token = s.lease_token;--> statement-breakpoint
comment on view inspect.sessions is 'Sessions with the number of their events and the invocation that runs now.';--> statement-breakpoint
create view inspect.conversation as
select e.app_name, e.user_id, e.session_id, e.sequence, e.event_time, e.author, e.invocation_id,
       (select string_agg(
          coalesce(
            part ->> 'text',
            'call ' || (part -> 'functionCall' ->> 'name') || (part -> 'functionCall' ->> 'args'),
            'response ' || (part -> 'functionResponse' ->> 'name') || (part -> 'functionResponse' ->> 'response'),
            '[' || coalesce(part -> 'inlineData' ->> 'mimeType', 'other') || ']'),
          E'\n' order by position)
        from jsonb_array_elements(case when jsonb_typeof(e.payload -> 'content' -> 'parts') = 'array'
                                       then e.payload -> 'content' -> 'parts' else '[]' end)
             with ordinality as parts(part, position)) as said,
       e.payload ->> 'errorMessage' as error
from events e;--> statement-breakpoint
comment on view inspect.conversation is 'The events of sessions as lines to read; ask for one session and order by sequence.';
