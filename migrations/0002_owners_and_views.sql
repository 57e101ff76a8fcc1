-- Names that say what a column holds.
alter table invocations rename column cancel_status to stop_requested_as;--> statement-breakpoint
alter table invocations rename column answer to response_body;--> statement-breakpoint
alter table memories rename column words to search_vector;--> statement-breakpoint
alter index memories_words_idx rename to memories_search_idx;--> statement-breakpoint
alter function limited_state(jsonb) rename to assert_state_size;--> statement-breakpoint
comment on column invocations.response_body is 'The response as it was sent; a retry gets these bytes.';--> statement-breakpoint
comment on column invocations.stop_requested_as is 'cancelled or interrupted: what its process is requested to end it as.';--> statement-breakpoint

-- Tables that nothing writes or reads.
drop table cronjob_runs;--> statement-breakpoint
drop table cronjobs;--> statement-breakpoint

-- Kept answers hold data of users, so their key begins with the user. Older ones cannot be told apart and live for a day only.
delete from idempotency_keys;--> statement-breakpoint
alter table idempotency_keys rename column answer to response_body;--> statement-breakpoint
alter table idempotency_keys add column app_name text collate "C" not null;--> statement-breakpoint
alter table idempotency_keys add column user_id text collate "C" not null;--> statement-breakpoint
alter table idempotency_keys drop constraint idempotency_keys_pkey;--> statement-breakpoint
alter table idempotency_keys add constraint idempotency_keys_pkey primary key (app_name, user_id, scope, key);--> statement-breakpoint
comment on table idempotency_keys is 'Responses to requests with an Idempotency-Key, kept for a day; those of invocations are in invocations.';--> statement-breakpoint
comment on column idempotency_keys.app_name is 'Application that the request is about; empty where it is about none.';--> statement-breakpoint
comment on column idempotency_keys.user_id is 'User that the request is about; empty where it is about none.';--> statement-breakpoint
comment on column idempotency_keys.scope is 'Operation and caller.';--> statement-breakpoint
comment on column idempotency_keys.response_body is 'The response as it was sent; a retry gets these bytes.';--> statement-breakpoint

alter table sessions add constraint sessions_last_sequence_check check (last_sequence >= 0);--> statement-breakpoint
alter table invocations add constraint invocations_stop_requested_as_check check (stop_requested_as in ('cancelled', 'interrupted'));--> statement-breakpoint
alter table artifact_versions add constraint artifact_versions_content_check check (content is null or object_key is null);--> statement-breakpoint

-- The first view's columns are renamed: a view cannot be replaced with other columns.
drop view inspect.sessions;--> statement-breakpoint
create view inspect.sessions as
select s.app_name, s.user_id, s.id as session_id, s.last_sequence as event_count,
       i.id as running_invocation, i.lease_expire_time as lease_until,
       s.create_time, s.update_time, s.is_eval, s.state
from sessions s
left join invocations i
  on i.app_name = s.app_name and i.user_id = s.user_id and i.session_id = s.id
 and i.status = 'running' and i.lease_token = s.lease_token;--> statement-breakpoint
comment on view inspect.sessions is 'Sessions with the number of their events and the invocation that runs now.';--> statement-breakpoint
comment on column inspect.sessions.app_name is 'Application.';--> statement-breakpoint
comment on column inspect.sessions.user_id is 'Owner.';--> statement-breakpoint
comment on column inspect.sessions.session_id is 'Session.';--> statement-breakpoint
comment on column inspect.sessions.event_count is 'Number of its events.';--> statement-breakpoint
comment on column inspect.sessions.running_invocation is 'Invocation that runs now; null where none does.';--> statement-breakpoint
comment on column inspect.sessions.lease_until is 'When that is taken for dead unless its process renews the lease.';--> statement-breakpoint
comment on column inspect.sessions.create_time is 'When the session was created.';--> statement-breakpoint
comment on column inspect.sessions.update_time is 'Last change.';--> statement-breakpoint
comment on column inspect.sessions.is_eval is 'Made by an evaluation run; lists leave it out.';--> statement-breakpoint
comment on column inspect.sessions.state is 'State of this session alone.';--> statement-breakpoint

comment on view inspect.conversation is 'The events of sessions as lines to read: ask for app_name, user_id and session_id, and order by sequence.';--> statement-breakpoint
comment on column inspect.conversation.app_name is 'Application.';--> statement-breakpoint
comment on column inspect.conversation.user_id is 'Owner.';--> statement-breakpoint
comment on column inspect.conversation.session_id is 'Session.';--> statement-breakpoint
comment on column inspect.conversation.sequence is 'Place in the session.';--> statement-breakpoint
comment on column inspect.conversation.event_time is 'When it was said.';--> statement-breakpoint
comment on column inspect.conversation.author is 'user, or the name of an agent.';--> statement-breakpoint
comment on column inspect.conversation.invocation_id is 'Invocation that wrote it.';--> statement-breakpoint
comment on column inspect.conversation.said is 'Texts, function calls and their responses; other parts by their MIME type.';--> statement-breakpoint
comment on column inspect.conversation.error is 'What went wrong.';--> statement-breakpoint

create view inspect.invocations as
select app_name, user_id, session_id, id as invocation_id, status,
       status in ('queued', 'running') and lease_expire_time < clock_timestamp() as is_dead,
       create_time, start_time, end_time,
       coalesce(end_time, clock_timestamp()) - start_time as duration,
       error_code, error_message, stop_requested_as,
       llm_calls, tool_calls, prompt_tokens, output_tokens
from invocations;--> statement-breakpoint
comment on view inspect.invocations is 'What runs, what waits, what failed and why; order by create_time.';--> statement-breakpoint
comment on column inspect.invocations.app_name is 'Application.';--> statement-breakpoint
comment on column inspect.invocations.user_id is 'Owner of the session.';--> statement-breakpoint
comment on column inspect.invocations.session_id is 'Session.';--> statement-breakpoint
comment on column inspect.invocations.invocation_id is 'Invocation; the events that it wrote carry it.';--> statement-breakpoint
comment on column inspect.invocations.status is 'queued, running, paused (waits for a person), succeeded, failed, interrupted or cancelled.';--> statement-breakpoint
comment on column inspect.invocations.is_dead is 'Its process is gone; the next sweep ends it.';--> statement-breakpoint
comment on column inspect.invocations.create_time is 'When it was requested.';--> statement-breakpoint
comment on column inspect.invocations.start_time is 'When it took the session.';--> statement-breakpoint
comment on column inspect.invocations.end_time is 'When it ended.';--> statement-breakpoint
comment on column inspect.invocations.duration is 'From its start to its end, or to now; null while it waits.';--> statement-breakpoint
comment on column inspect.invocations.error_code is 'Why it failed, a stable code.';--> statement-breakpoint
comment on column inspect.invocations.error_message is 'Why it failed, a sentence.';--> statement-breakpoint
comment on column inspect.invocations.stop_requested_as is 'cancelled or interrupted: what its process is requested to end it as.';--> statement-breakpoint
comment on column inspect.invocations.llm_calls is 'Model calls made.';--> statement-breakpoint
comment on column inspect.invocations.tool_calls is 'Tool calls made.';--> statement-breakpoint
comment on column inspect.invocations.prompt_tokens is 'Prompt tokens of all model calls.';--> statement-breakpoint
comment on column inspect.invocations.output_tokens is 'Answer and thought tokens of all model calls.';--> statement-breakpoint

create view inspect.queue as
select q.app_name, q.user_id, q.session_id,
       row_number() over (partition by q.app_name, q.user_id, q.session_id order by q.create_time, q.id) as place,
       q.id as invocation_id, q.create_time as waiting_since, clock_timestamp() - q.create_time as waited,
       r.id as running_invocation, r.start_time as running_since
from invocations q
left join invocations r
  on r.app_name = q.app_name and r.user_id = q.user_id and r.session_id = q.session_id and r.status = 'running'
where q.status = 'queued' and q.lease_expire_time > clock_timestamp();--> statement-breakpoint
comment on view inspect.queue is 'The invocations that wait for their session, and the one that each of them waits for.';--> statement-breakpoint
comment on column inspect.queue.app_name is 'Application.';--> statement-breakpoint
comment on column inspect.queue.user_id is 'Owner of the session.';--> statement-breakpoint
comment on column inspect.queue.session_id is 'Session that it waits for.';--> statement-breakpoint
comment on column inspect.queue.place is 'Place in the queue of the session, from 1.';--> statement-breakpoint
comment on column inspect.queue.invocation_id is 'Invocation that waits.';--> statement-breakpoint
comment on column inspect.queue.waiting_since is 'When it was requested.';--> statement-breakpoint
comment on column inspect.queue.waited is 'How long it has waited.';--> statement-breakpoint
comment on column inspect.queue.running_invocation is 'Invocation that runs in the session now.';--> statement-breakpoint
comment on column inspect.queue.running_since is 'When that took the session.';--> statement-breakpoint

create view inspect.artifacts as
select a.app_name, a.user_id, nullif(a.session_id, '') as session_id, a.name,
       count(*) as version_count, max(v.version) as latest_version,
       (array_agg(v.mime_type order by v.version desc))[1] as mime_type,
       sum(v.size_bytes) as total_bytes, count(v.object_key) as object_count, max(v.create_time) as update_time
from artifacts a
join artifact_versions v
  on v.app_name = a.app_name and v.user_id = a.user_id and v.session_id = a.session_id and v.artifact_name = a.name
group by a.app_name, a.user_id, a.session_id, a.name;--> statement-breakpoint
comment on view inspect.artifacts is 'Artifacts with the number and the size of their versions; deleted ones are left out.';--> statement-breakpoint
comment on column inspect.artifacts.app_name is 'Application.';--> statement-breakpoint
comment on column inspect.artifacts.user_id is 'Owner.';--> statement-breakpoint
comment on column inspect.artifacts.session_id is 'Session; null for an artifact that all sessions of the user share.';--> statement-breakpoint
comment on column inspect.artifacts.name is 'Name.';--> statement-breakpoint
comment on column inspect.artifacts.version_count is 'Number of its versions.';--> statement-breakpoint
comment on column inspect.artifacts.latest_version is 'Number of the latest version; the first one is 0.';--> statement-breakpoint
comment on column inspect.artifacts.mime_type is 'MIME type of the latest version.';--> statement-breakpoint
comment on column inspect.artifacts.total_bytes is 'Bytes of all versions.';--> statement-breakpoint
comment on column inspect.artifacts.object_count is 'Versions whose bytes are in the object store.';--> statement-breakpoint
comment on column inspect.artifacts.update_time is 'When the latest version was saved.';--> statement-breakpoint

create view inspect.usage as
select app_name, user_id, (create_time at time zone 'utc')::date as day,
       count(*) as invocations, count(*) filter (where status = 'failed') as failed,
       sum(llm_calls) as llm_calls, sum(tool_calls) as tool_calls,
       sum(prompt_tokens) as prompt_tokens, sum(output_tokens) as output_tokens
from invocations
group by app_name, user_id, (create_time at time zone 'utc')::date;--> statement-breakpoint
comment on view inspect.usage is 'Invocations, calls and tokens of each user by day; those of deleted sessions are left out.';--> statement-breakpoint
comment on column inspect.usage.app_name is 'Application.';--> statement-breakpoint
comment on column inspect.usage.user_id is 'User.';--> statement-breakpoint
comment on column inspect.usage.day is 'Day in UTC on which the invocations were requested.';--> statement-breakpoint
comment on column inspect.usage.invocations is 'Number of invocations.';--> statement-breakpoint
comment on column inspect.usage.failed is 'Those of them that failed.';--> statement-breakpoint
comment on column inspect.usage.llm_calls is 'Model calls made.';--> statement-breakpoint
comment on column inspect.usage.tool_calls is 'Tool calls made.';--> statement-breakpoint
comment on column inspect.usage.prompt_tokens is 'Prompt tokens of all model calls.';--> statement-breakpoint
comment on column inspect.usage.output_tokens is 'Answer and thought tokens of all model calls.';
