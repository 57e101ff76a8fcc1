ALTER TABLE "sessions" ADD COLUMN "events_version" integer DEFAULT 0 NOT NULL;
--> statement-breakpoint
comment on column sessions.events_version is 'Grows when somebody changes or erases stored events with SQL, so that processes forget what they keep of them. The service itself never does.';
--> statement-breakpoint
create function count_changed_events() returns trigger language plpgsql as $$
begin
  -- Their size is counted anew by the next append.
  update sessions set events_version = events_version + 1, event_bytes = null
  where app_name = old.app_name and user_id = old.user_id and id = old.session_id;
  return null;
end $$;
--> statement-breakpoint
comment on function count_changed_events is 'For a trigger: a stored event was changed or erased with SQL.';
--> statement-breakpoint
-- Not for those that go with their session: the depth is that of the foreign key's own trigger there.
create trigger events_changed after update or delete on events for each row
when (pg_trigger_depth() = 0) execute function count_changed_events();
