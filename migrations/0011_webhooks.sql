CREATE TABLE "webhook_deliveries" (
	"app_name" text collate "C" NOT NULL,
	"user_id" text collate "C" NOT NULL,
	"id" text collate "C" NOT NULL,
	"webhook_id" text collate "C" NOT NULL,
	"host" text NOT NULL,
	"payload" text NOT NULL,
	"status" text NOT NULL,
	"attempt" integer DEFAULT 0 NOT NULL,
	"next_attempt_time" timestamp (6) with time zone,
	"lease_token" uuid,
	"retry_end_time" timestamp (6) with time zone NOT NULL,
	"answers" jsonb DEFAULT '[]'::jsonb NOT NULL,
	"create_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	"end_time" timestamp (6) with time zone,
	CONSTRAINT "webhook_deliveries_pkey" PRIMARY KEY("app_name","user_id","id"),
	CONSTRAINT "webhook_deliveries_status_check" CHECK (status in ('pending', 'delivered', 'failed')),
	CONSTRAINT "webhook_deliveries_wait_check" CHECK ((status = 'pending') = (next_attempt_time is not null)),
	CONSTRAINT "webhook_deliveries_lease_check" CHECK (lease_token is null or status = 'pending'),
	CONSTRAINT "webhook_deliveries_end_check" CHECK ((status = 'pending') = (end_time is null))
);
--> statement-breakpoint
CREATE TABLE "webhooks" (
	"app_name" text collate "C" NOT NULL,
	"user_id" text collate "C" NOT NULL,
	"id" text collate "C" NOT NULL,
	"url" text NOT NULL,
	"host" text NOT NULL,
	"includes_output" boolean NOT NULL,
	"secret" text NOT NULL,
	"old_secret" text,
	"old_secret_expire_time" timestamp (6) with time zone,
	"create_time" timestamp (6) with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "webhooks_pkey" PRIMARY KEY("app_name","user_id","id"),
	CONSTRAINT "webhooks_url_key" UNIQUE("app_name","user_id","url"),
	CONSTRAINT "webhooks_old_secret_check" CHECK ((old_secret is null) = (old_secret_expire_time is null))
);
--> statement-breakpoint
ALTER TABLE "cronjobs" ADD COLUMN "webhook_url" text;--> statement-breakpoint
ALTER TABLE "invocations" ADD COLUMN "webhook_url" text;--> statement-breakpoint
ALTER TABLE "webhook_deliveries" ADD CONSTRAINT "webhook_deliveries_webhook_fkey" FOREIGN KEY ("app_name","user_id","webhook_id") REFERENCES "public"."webhooks"("app_name","user_id","id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "webhook_deliveries_due_idx" ON "webhook_deliveries" USING btree ("next_attempt_time") WHERE status = 'pending';--> statement-breakpoint
CREATE INDEX "webhook_deliveries_pending_idx" ON "webhook_deliveries" USING btree ("app_name","user_id") WHERE status = 'pending';--> statement-breakpoint
CREATE INDEX "webhook_deliveries_list_idx" ON "webhook_deliveries" USING btree ("app_name","user_id","webhook_id","create_time" DESC NULLS FIRST,"id" DESC NULLS FIRST);--> statement-breakpoint
CREATE INDEX "webhooks_id_idx" ON "webhooks" USING btree ("id");--> statement-breakpoint
CREATE INDEX "webhooks_list_idx" ON "webhooks" USING btree ("user_id","create_time");--> statement-breakpoint
comment on table webhooks is 'Addresses that users have registered for deliveries.';
--> statement-breakpoint
comment on table webhook_deliveries is 'What is sent to webhooks and how that went: the outbox. Triggers insert a row in the statement that ends an invocation or a run.';
--> statement-breakpoint
comment on column webhooks.app_name is 'Application.';
--> statement-breakpoint
comment on column webhooks.user_id is 'Owner.';
--> statement-breakpoint
comment on column webhooks.id is 'Webhook identifier.';
--> statement-breakpoint
comment on column webhooks.url is 'Address, as a browser writes it; requests and cronjobs name it.';
--> statement-breakpoint
comment on column webhooks.host is 'Host and port of the address.';
--> statement-breakpoint
comment on column webhooks.includes_output is 'Deliveries carry the beginning of the answer.';
--> statement-breakpoint
comment on column webhooks.secret is 'Signs what is sent; begins with whsec_. Not answered again, not in any view.';
--> statement-breakpoint
comment on column webhooks.old_secret is 'The secret before, which signs too until old_secret_expire_time; null where there is none.';
--> statement-breakpoint
comment on column webhooks.old_secret_expire_time is 'Until when the old secret signs.';
--> statement-breakpoint
comment on column webhooks.create_time is 'When it was registered.';
--> statement-breakpoint
comment on column webhook_deliveries.app_name is 'Application.';
--> statement-breakpoint
comment on column webhook_deliveries.user_id is 'Owner.';
--> statement-breakpoint
comment on column webhook_deliveries.id is 'Delivery identifier, the header webhook-id of every attempt.';
--> statement-breakpoint
comment on column webhook_deliveries.webhook_id is 'Webhook that it goes to.';
--> statement-breakpoint
comment on column webhook_deliveries.host is 'Host and port of the webhook, for the limit of each host.';
--> statement-breakpoint
comment on column webhook_deliveries.payload is 'JSON text that is sent and signed.';
--> statement-breakpoint
comment on column webhook_deliveries.status is 'pending, delivered or failed.';
--> statement-breakpoint
comment on column webhook_deliveries.attempt is 'How often it was sent.';
--> statement-breakpoint
comment on column webhook_deliveries.next_attempt_time is 'When it is sent next; while it is sent, when its process is taken for dead. Null where it has ended.';
--> statement-breakpoint
comment on column webhook_deliveries.lease_token is 'Token of the process that sends it; null while none does.';
--> statement-breakpoint
comment on column webhook_deliveries.retry_end_time is 'After this time it is not tried again.';
--> statement-breakpoint
comment on column webhook_deliveries.answers is 'Answers to the attempts, the newest last: time, status, beginning of the body, or error.';
--> statement-breakpoint
comment on column webhook_deliveries.create_time is 'When that happened which it tells.';
--> statement-breakpoint
comment on column webhook_deliveries.end_time is 'When it was delivered or given up.';
--> statement-breakpoint
comment on column cronjobs.webhook_url is 'Address of the webhook that is sent how its runs end; null without one.';
--> statement-breakpoint
comment on column invocations.webhook_url is 'Address of the webhook that is sent how it ends; null without one.';
--> statement-breakpoint
create function webhook_time(moment timestamptz) returns text language sql immutable
return to_char(moment at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"');
--> statement-breakpoint
create function insert_webhook_delivery(app text, owner text, address text, type text, data jsonb) returns void
language plpgsql as $$
declare
  max_pending integer := coalesce(nullif(current_setting('agent_runtime.max_pending_deliveries', true), ''), '1000');
  hook record;
  is_full boolean;
  payload text;
  now_time timestamptz := date_trunc('milliseconds', clock_timestamp()); -- the places of pages
begin
  -- Locked, so that one that is being deleted does not keep the invocation from ending.
  select * into hook from webhooks
  where app_name = app and user_id = owner and url = address for key share;
  if not found then return; end if;
  is_full := (select count(*) >= max_pending from (
    select from webhook_deliveries
    where app_name = app and user_id = owner and status = 'pending' limit max_pending) pending);
  data := jsonb_strip_nulls(data);
  if not hook.includes_output then data := data - 'output' - 'outputTruncated'; end if;
  payload := json_build_object('type', type, 'timestamp', webhook_time(now_time), 'data', data);
  insert into webhook_deliveries
    (app_name, user_id, id, webhook_id, host, payload, status, next_attempt_time, retry_end_time, answers, create_time,
     end_time)
  values
    (app, owner, 'msg_' || gen_random_uuid(), hook.id, hook.host, payload,
     case when is_full then 'failed' else 'pending' end, case when not is_full then now_time end,
     now_time + interval '24 hours',
     case when is_full then jsonb_build_array(jsonb_build_object(
       'at', webhook_time(now_time), 'error', 'Not sent: ' || max_pending || ' deliveries of the user wait already.'))
     else '[]' end,
     now_time, case when is_full then now_time end);
  perform pg_notify('agent_runtime', '["webhooks"]');
end $$;
--> statement-breakpoint
create function insert_delivery_of_invocation() returns trigger language plpgsql as $$
begin
  perform insert_webhook_delivery(
    new.app_name, new.user_id, new.webhook_url,
    case new.status when 'paused' then 'invocation.paused' else 'invocation.ended' end,
    jsonb_build_object(
      'appName', new.app_name, 'userId', new.user_id, 'sessionId', new.session_id, 'invocationId', new.id,
      'status', new.status, 'errorCode', new.error_code, 'output', left(new.response_body, 4096),
      'outputTruncated', case when length(new.response_body) > 4096 then true end));
  return null;
end $$;
--> statement-breakpoint
create function insert_delivery_of_run() returns trigger language plpgsql as $$
declare
  address text := (select webhook_url from cronjobs
                   where app_name = new.app_name and user_id = new.user_id and id = new.cronjob_id);
begin
  if address is null then return null; end if;
  perform insert_webhook_delivery(
    new.app_name, new.user_id, address, 'cronjob_run.ended',
    jsonb_build_object(
      'appName', new.app_name, 'userId', new.user_id, 'jobId', new.cronjob_id, 'runId', new.id,
      'scheduledAt', webhook_time(new.due_time), 'status', new.status, 'sessionId', new.session_id,
      'invocationId', new.invocation_id, 'errorCode', new.error_code, 'output', left(new.output, 4096),
      'outputTruncated', case when length(new.output) > 4096 then true end));
  return null;
end $$;
--> statement-breakpoint
create trigger invocations_webhook after update of status on invocations for each row
when (new.webhook_url is not null and new.status is distinct from old.status and new.status not in ('queued', 'running'))
execute function insert_delivery_of_invocation();
--> statement-breakpoint
create trigger cronjob_runs_webhook_insert after insert on cronjob_runs for each row
when (new.end_time is not null) execute function insert_delivery_of_run();
--> statement-breakpoint
create trigger cronjob_runs_webhook_update after update of end_time on cronjob_runs for each row
when (old.end_time is null and new.end_time is not null) execute function insert_delivery_of_run();
--> statement-breakpoint
comment on function insert_webhook_delivery is 'Puts what is to be sent to a webhook into the outbox, and wakes the senders at the commit. Nothing where the webhook is gone.';
--> statement-breakpoint
comment on function webhook_time is 'A moment as deliveries write it.';
--> statement-breakpoint
comment on function insert_delivery_of_invocation is 'For a trigger: an invocation has ended or paused.';
--> statement-breakpoint
comment on function insert_delivery_of_run is 'For a trigger: a run of a cronjob has ended.';
--> statement-breakpoint
create view inspect.webhook_deliveries as
select d.app_name, d.user_id, w.id as webhook_id, w.url, d.id as delivery_id, (d.payload::json) ->> 'type' as type,
       (d.payload::json) -> 'data' ->> 'status' as ended_as, d.status, d.attempt, d.next_attempt_time,
       d.answers -> -1 ->> 'status' as last_status, d.answers -> -1 ->> 'error' as last_error, d.create_time, d.end_time,
       d.end_time - d.create_time as duration
from webhook_deliveries d
join webhooks w on w.app_name = d.app_name and w.user_id = d.user_id and w.id = d.webhook_id;
--> statement-breakpoint
comment on view inspect.webhook_deliveries is 'What was sent to webhooks, what waits, and what the receivers answered last.';
--> statement-breakpoint
comment on column inspect.webhook_deliveries.app_name is 'Application.';
--> statement-breakpoint
comment on column inspect.webhook_deliveries.user_id is 'Owner.';
--> statement-breakpoint
comment on column inspect.webhook_deliveries.webhook_id is 'Webhook.';
--> statement-breakpoint
comment on column inspect.webhook_deliveries.url is 'Address.';
--> statement-breakpoint
comment on column inspect.webhook_deliveries.delivery_id is 'Delivery, the header webhook-id.';
--> statement-breakpoint
comment on column inspect.webhook_deliveries.type is 'What happened.';
--> statement-breakpoint
comment on column inspect.webhook_deliveries.ended_as is 'Status of the invocation or run.';
--> statement-breakpoint
comment on column inspect.webhook_deliveries.status is 'pending, delivered or failed.';
--> statement-breakpoint
comment on column inspect.webhook_deliveries.attempt is 'How often it was sent.';
--> statement-breakpoint
comment on column inspect.webhook_deliveries.next_attempt_time is 'When it is sent next.';
--> statement-breakpoint
comment on column inspect.webhook_deliveries.last_status is 'Status that the receiver answered last.';
--> statement-breakpoint
comment on column inspect.webhook_deliveries.last_error is 'Why there was no answer.';
--> statement-breakpoint
comment on column inspect.webhook_deliveries.create_time is 'When that happened which it tells.';
--> statement-breakpoint
comment on column inspect.webhook_deliveries.end_time is 'When it was delivered or given up.';
--> statement-breakpoint
comment on column inspect.webhook_deliveries.duration is 'Time until then.';
