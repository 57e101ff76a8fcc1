-- Starting an erasure waits for running statements that add data; later ones see the erasure and are refused.
create or replace function user_data_lock(app text, owner text) returns bigint language sql immutable
return hashtextextended(app || E'\x01' || owner, 7240014);
comment on function user_data_lock is 'Advisory lock of a user''s data: shared by statements that add or delete data, exclusive for starting an erasure or setting a hold.';

create or replace function lock_user_data() returns trigger language plpgsql as $$
begin
  perform pg_advisory_xact_lock(user_data_lock(new.app_name, new.user_id));
  return new;
end $$;
comment on function lock_user_data is 'Trigger function: an erasure waits for running statements that add the user''s data.';

create or replace function refuse_while_erased() returns trigger language plpgsql as $$
begin
  perform pg_advisory_xact_lock_shared(user_data_lock(new.app_name, new.user_id));
  if exists (select from user_erasures e where e.app_name = new.app_name and e.user_id = new.user_id) then
    raise exception 'the user is being erased' using errcode = 'AR409';
  end if;
  return new;
end $$;
comment on function refuse_while_erased is 'Trigger function: refuses new data of a user being erased.';

-- No statement may delete data on legal hold. Setting a hold waits for running statements that delete data; later ones
-- see the hold and are refused. The argument names the session's column. A hold on a session covers its child sessions.
create or replace function refuse_on_hold() returns trigger language plpgsql as $$
declare
  held_session text := '';
begin
  if tg_argv[0] = 'id' then held_session := old.id;
  elsif tg_argv[0] = 'session_id' then held_session := coalesce(old.session_id, '');
  end if;
  perform pg_advisory_xact_lock_shared(user_data_lock(old.app_name, old.user_id));
  if exists (select from legal_holds h where h.app_name = old.app_name and h.user_id = old.user_id
             and (h.session_id in ('', held_session)
                  or held_session <> '' and h.session_id = (
                    select s.root_session_id from sessions s
                    where s.app_name = old.app_name and s.user_id = old.user_id and s.id = held_session))) then
    raise exception 'the data is on legal hold' using errcode = 'AR423';
  end if;
  return old;
end $$;
comment on function refuse_on_hold is 'Trigger function: refuses deletion of data on legal hold. Argument: the session''s column, or empty.';

-- A hold on a child session is one on the session of the user above it: both are deleted together.
create or replace function hold_root() returns trigger language plpgsql as $$
declare
  v_root constant text := (
    select s.root_session_id from sessions s
    where s.app_name = new.app_name and s.user_id = new.user_id and s.id = new.session_id);
begin
  if v_root is not null then new.session_id := v_root; end if;
  return new;
end $$;
comment on function hold_root is 'Trigger function: a hold on a child session is one on the session above it.';
