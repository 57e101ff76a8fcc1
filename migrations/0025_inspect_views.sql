create view inspect.tool_calls as
select e.app_name, e.user_id, e.session_id, e.invocation_id, e.sequence, e.author as agent,
       part -> 'functionCall' ->> 'name' as tool, part -> 'functionCall' ->> 'id' as call_id, e.event_time as call_time,
       answer.event_time - e.event_time as duration,
       case when answer.event_time is null then 'open' when answer.response ? 'error' then 'failed' else 'answered' end
         as outcome
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
where part ? 'functionCall';--> statement-breakpoint
comment on view inspect.tool_calls is 'Calls of tools with their duration and outcome, without arguments and answers. Name the session: it reads all its events.';--> statement-breakpoint
comment on column inspect.tool_calls.app_name is 'The application.';--> statement-breakpoint
comment on column inspect.tool_calls.user_id is 'Owner of the session.';--> statement-breakpoint
comment on column inspect.tool_calls.session_id is 'The session.';--> statement-breakpoint
comment on column inspect.tool_calls.invocation_id is 'The invocation.';--> statement-breakpoint
comment on column inspect.tool_calls.sequence is 'Place of the event with the call.';--> statement-breakpoint
comment on column inspect.tool_calls.agent is 'Agent that called.';--> statement-breakpoint
comment on column inspect.tool_calls.tool is 'Name of the tool.';--> statement-breakpoint
comment on column inspect.tool_calls.call_id is 'Id of the call within the session.';--> statement-breakpoint
comment on column inspect.tool_calls.call_time is 'When the call was stored.';--> statement-breakpoint
comment on column inspect.tool_calls.duration is 'Time until the answer was stored; null while there is none.';--> statement-breakpoint
comment on column inspect.tool_calls.outcome is 'answered; failed: the answer has an error; open: there is none yet.';--> statement-breakpoint
create view inspect.storage as
select coalesce(s.app_name, a.app_name) as app_name, coalesce(s.user_id, a.user_id) as user_id,
       coalesce(s.sessions, 0) as sessions, coalesce(s.events, 0) as events, coalesce(s.event_bytes, 0) as event_bytes,
       coalesce(a.versions, 0) as artifact_versions, coalesce(a.bytes, 0) as artifact_bytes
from (select app_name, user_id, count(*) as sessions, sum(last_sequence) as events, sum(event_bytes) as event_bytes
      from sessions group by 1, 2) s
full join (select app_name, user_id, count(*) as versions, sum(size_bytes) as bytes
           from artifact_versions group by 1, 2) a on a.app_name = s.app_name and a.user_id = s.user_id;--> statement-breakpoint
comment on view inspect.storage is 'What users keep, by application.';--> statement-breakpoint
comment on column inspect.storage.app_name is 'The application.';--> statement-breakpoint
comment on column inspect.storage.user_id is 'The user.';--> statement-breakpoint
comment on column inspect.storage.sessions is 'Sessions, those of evaluation runs too.';--> statement-breakpoint
comment on column inspect.storage.events is 'Events of all sessions.';--> statement-breakpoint
comment on column inspect.storage.event_bytes is 'Bytes of their JSON, as far as it is known.';--> statement-breakpoint
comment on column inspect.storage.artifact_versions is 'Versions of artifacts.';--> statement-breakpoint
comment on column inspect.storage.artifact_bytes is 'Their bytes, in the database or in a bucket.';--> statement-breakpoint
create view inspect.open_invocations as
select app_name, user_id, session_id, id as invocation_id, status, clock_timestamp() - create_time as age,
       clock_timestamp() - start_time as running_for, lease_expire_time < clock_timestamp() as is_dead,
       stop_requested_as, llm_calls, tool_calls
from invocations where status in ('queued', 'running');--> statement-breakpoint
comment on view inspect.open_invocations is 'What runs or waits, to find what is slow or stuck.';--> statement-breakpoint
comment on column inspect.open_invocations.app_name is 'The application.';--> statement-breakpoint
comment on column inspect.open_invocations.user_id is 'Owner of the session.';--> statement-breakpoint
comment on column inspect.open_invocations.session_id is 'The session.';--> statement-breakpoint
comment on column inspect.open_invocations.invocation_id is 'The invocation.';--> statement-breakpoint
comment on column inspect.open_invocations.status is 'queued or running.';--> statement-breakpoint
comment on column inspect.open_invocations.age is 'Time since it was requested.';--> statement-breakpoint
comment on column inspect.open_invocations.running_for is 'Time since it began; null while it waits.';--> statement-breakpoint
comment on column inspect.open_invocations.is_dead is 'Its process does not renew its lease: the next sweep ends it.';--> statement-breakpoint
comment on column inspect.open_invocations.stop_requested_as is 'Set where it was asked to end and has not.';--> statement-breakpoint
comment on column inspect.open_invocations.llm_calls is 'Model calls; 0 while it runs: they are counted at its end.';--> statement-breakpoint
comment on column inspect.open_invocations.tool_calls is 'Tool calls; as above.';
