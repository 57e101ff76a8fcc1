ALTER TABLE "app_states" ADD COLUMN "writers" jsonb DEFAULT '{}'::jsonb NOT NULL;--> statement-breakpoint
comment on column app_states.writers is 'For each key that an agent wrote last, the user in whose session it did; the others are the operator''s.';--> statement-breakpoint
create or replace function assert_state_size(state jsonb) returns jsonb language plpgsql stable as $$
declare
  max_bytes integer := coalesce(nullif(current_setting('agent_runtime.max_state_bytes', true), ''), '1048576');
  max_keys integer := coalesce(nullif(current_setting('agent_runtime.max_state_keys', true), ''), '10000');
begin
  if octet_length(state::text) > max_bytes then
    raise exception 'state is larger than % bytes', max_bytes using errcode = 'AR413';
  end if;
  if jsonb_typeof(state) = 'object' and (select count(*) from jsonb_object_keys(state)) > max_keys then
    raise exception 'state has more than % keys', max_keys using errcode = 'AR415';
  end if;
  return state;
end $$;--> statement-breakpoint
comment on function assert_state_size is 'The state, or an error when its text is larger than the setting agent_runtime.max_state_bytes of the connection, or it has more keys than agent_runtime.max_state_keys.';--> statement-breakpoint
create function assert_writer_share(state jsonb, writers jsonb, writer jsonb) returns jsonb language plpgsql stable as $$
declare
  max_bytes integer := coalesce(nullif(current_setting('agent_runtime.max_app_state_bytes_per_user', true), ''), '65536');
begin
  if (select sum(octet_length(key) + octet_length(value::text)) from jsonb_each(state) where writers -> key = writer) > max_bytes then
    raise exception 'what agents wrote for one user is more than % bytes', max_bytes using errcode = 'AR416';
  end if;
  return writers;
end $$;--> statement-breakpoint
comment on function assert_writer_share is 'The writers, or an error when what agents wrote for the writer is larger than the setting agent_runtime.max_app_state_bytes_per_user of the connection.';
