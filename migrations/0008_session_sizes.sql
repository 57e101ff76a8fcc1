ALTER TABLE "events" ADD COLUMN "bytes" integer;--> statement-breakpoint
ALTER TABLE "sessions" ADD COLUMN "event_bytes" bigint;--> statement-breakpoint
comment on column events.bytes is 'Size of the payload as text, bytes; null in events of earlier versions.';--> statement-breakpoint
comment on column sessions.event_bytes is 'Size of all events of the session as text, bytes; null until a version that counts has appended.';--> statement-breakpoint
create function assert_session_size(event_bytes bigint) returns bigint language plpgsql stable as $$
declare
  max_bytes bigint := coalesce(nullif(current_setting('agent_runtime.max_session_bytes', true), ''), '33554432');
begin
  if event_bytes > max_bytes then
    raise exception 'events of the session are more than % bytes', max_bytes using errcode = 'AR414';
  end if;
  return event_bytes;
end $$;--> statement-breakpoint
comment on function assert_session_size is 'The size, or an error when it is larger than the setting agent_runtime.max_session_bytes of the connection.';
