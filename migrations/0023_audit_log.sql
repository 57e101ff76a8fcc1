CREATE TABLE "audit_log" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "audit_log_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	"caller_kind" text NOT NULL,
	"caller" text,
	"address" text,
	"operation" text,
	"resource" jsonb NOT NULL,
	"decision" text NOT NULL,
	"reason" text,
	"request_id" text NOT NULL,
	"left_out" integer DEFAULT 0 NOT NULL,
	CONSTRAINT "audit_log_caller_kind_check" CHECK (caller_kind in ('unknown', 'anonymous', 'key', 'user')),
	CONSTRAINT "audit_log_decision_check" CHECK (decision in ('allowed', 'refused'))
);
--> statement-breakpoint
CREATE INDEX "audit_log_time_idx" ON "audit_log" USING btree ("time");--> statement-breakpoint
comment on table audit_log is 'Who was allowed or refused what, without content. Appended by the service, which may do nothing else with it.';--> statement-breakpoint
comment on column audit_log.id is 'Order of the entries; has gaps.';--> statement-breakpoint
comment on column audit_log.time is 'When the entry was stored: of what was allowed to change something before it began, of the rest within a second.';--> statement-breakpoint
comment on column audit_log.caller_kind is 'user: of a token; key: holder of a runtime key; anonymous: mode local; unknown: refused before anybody was known.';--> statement-breakpoint
comment on column audit_log.caller is 'User of the token or id of the key; null for keys of RUNTIME_API_KEYS, which have none.';--> statement-breakpoint
comment on column audit_log.address is 'Address of the client, as TRUSTED_PROXIES lets it be known.';--> statement-breakpoint
comment on column audit_log.operation is 'operationId of the document; null for what was refused before that was known.';--> statement-breakpoint
comment on column audit_log.resource is 'What the request was about: names of its path, and the user and application of its content.';--> statement-breakpoint
comment on column audit_log.decision is 'allowed: the request was let begin, whatever came of it; refused.';--> statement-breakpoint
comment on column audit_log.reason is 'Why it was refused.';--> statement-breakpoint
comment on column audit_log.request_id is 'X-Request-Id of the answer.';--> statement-breakpoint
comment on column audit_log.left_out is 'How many refusals of the same caller were not kept before this one.';--> statement-breakpoint
create function refuse_audit_change() returns trigger language plpgsql as $$
begin
  if tg_op = 'DELETE' and current_setting('agent_runtime.audit_deletes', true) = 'on' then return null; end if;
  raise exception 'audit_log is only appended to' using errcode = '42501';
end $$;--> statement-breakpoint
comment on function refuse_audit_change is 'For a trigger: no entry of the audit is changed, and none is deleted but by delete_old_audit_entries.';--> statement-breakpoint
create trigger audit_log_append_only before update or delete or truncate on audit_log
for each statement execute function refuse_audit_change();--> statement-breakpoint
create function delete_old_audit_entries(days integer, entries bigint) returns boolean language plpgsql security definer
set search_path from current as $$
declare
  deleted integer;
begin
  perform set_config('agent_runtime.audit_deletes', 'on', true);
  delete from audit_log where id in (
    select id from (select id, time from audit_log order by id limit 1000) oldest
    where time < clock_timestamp() - interval '1 day'
      and (time < clock_timestamp() - days * interval '1 day' or id <= (select max(id) from audit_log) - entries));
  get diagnostics deleted = row_count;
  perform set_config('agent_runtime.audit_deletes', 'off', true);
  return deleted = 1000;
end $$;--> statement-breakpoint
comment on function delete_old_audit_entries is 'Deletes up to 1,000 entries of the audit that are older than so many days or beyond so many, none of the last day. True: there may be more. Runs as the owner of the tables, so that the service needs no right to delete.';--> statement-breakpoint
create view inspect.audit as
select time, decision, caller_kind, caller, address, operation, resource ->> 'appName' as app_name,
       resource ->> 'userId' as user_id, resource ->> 'sessionId' as session_id, resource, reason, request_id, left_out
from audit_log;--> statement-breakpoint
comment on view inspect.audit is 'Who was allowed or refused what.';--> statement-breakpoint
comment on column inspect.audit.time is 'When it was stored.';--> statement-breakpoint
comment on column inspect.audit.decision is 'allowed or refused.';--> statement-breakpoint
comment on column inspect.audit.caller_kind is 'user, key, anonymous or unknown.';--> statement-breakpoint
comment on column inspect.audit.caller is 'User of the token or id of the key.';--> statement-breakpoint
comment on column inspect.audit.address is 'Address of the client.';--> statement-breakpoint
comment on column inspect.audit.operation is 'operationId of the document.';--> statement-breakpoint
comment on column inspect.audit.app_name is 'Application that the request was about.';--> statement-breakpoint
comment on column inspect.audit.user_id is 'User that the request was about.';--> statement-breakpoint
comment on column inspect.audit.session_id is 'Session that the path named.';--> statement-breakpoint
comment on column inspect.audit.resource is 'All names of what the request was about.';--> statement-breakpoint
comment on column inspect.audit.reason is 'Why it was refused.';--> statement-breakpoint
comment on column inspect.audit.request_id is 'X-Request-Id of the answer.';--> statement-breakpoint
comment on column inspect.audit.left_out is 'Refusals of the same caller that were not kept before this one.';
