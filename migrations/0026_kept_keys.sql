-- A request that waited in vain leaves its queue while its session stays: its key is free again. Before, a retry of it was
-- refused with 404 as if the session had been deleted.
create or replace function keep_invocation_key() returns trigger language plpgsql as $$
begin
  insert into idempotency_keys (app_name, user_id, scope, key, request_hash, response_body, session_id)
  select old.app_name, old.user_id, 'invocation', old.idempotency_key, coalesce(old.request_hash, ''), '', old.session_id
  where not exists (select from sessions
                    where app_name = old.app_name and user_id = old.user_id and id = old.session_id)
  on conflict do nothing;
  return null;
end $$;
--> statement-breakpoint
-- Keys that were kept so although their session is there; what was deleted and made again since cannot be told apart.
delete from idempotency_keys k where k.scope = 'invocation' and exists (
  select from sessions s where s.app_name = k.app_name and s.user_id = k.user_id and s.id = k.session_id);
