-- A retry must not bring a deleted session back: the keys of its invocations stay until they are too old, without a word.
create function keep_invocation_key() returns trigger language plpgsql as $$
begin
  insert into idempotency_keys (app_name, user_id, scope, key, request_hash, response_body, session_id)
  values (old.app_name, old.user_id, 'invocation', old.idempotency_key, coalesce(old.request_hash, ''), '', old.session_id)
  on conflict do nothing;
  return null;
end $$;
--> statement-breakpoint
comment on function keep_invocation_key is 'For a trigger: an invocation goes with its session, and its idempotency key stays.';
--> statement-breakpoint
create trigger invocations_key after delete on invocations for each row
when (old.idempotency_key is not null) execute function keep_invocation_key();
