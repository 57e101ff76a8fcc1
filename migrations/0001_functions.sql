-- delete_old_audit_entries: what the retention of the audit deletes, at most 1,000 entries at a time; true where there
-- may be more. It runs as the owner of the tables: the role that serves has no right to delete entries.
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
end $$;
comment on function delete_old_audit_entries is 'Deletes up to 1,000 entries of the audit that are older than so many days or beyond so many, none of the last day. True: there may be more. Runs as the owner of the tables, so that the service needs no right to delete.';
--> statement-breakpoint
-- budget_uses_of_app: what all users of an application have used since a day. A function of its own, so that a cluster
-- asks all of its nodes for this and one node for the rest of a claim. Planned for its values: a plan for any day
-- expects a third of all rows, and reads the whole table for one day.
create function budget_uses_of_app(app text, since date, out invocations numeric, out tokens numeric, out cost numeric)
language plpgsql stable set plan_cache_mode = 'force_custom_plan' as $$
begin
  select coalesce(sum(u.invocations), 0), coalesce(sum(u.prompt_tokens + u.output_tokens), 0), coalesce(sum(u.cost), 0)
  into budget_uses_of_app.invocations, budget_uses_of_app.tokens, budget_uses_of_app.cost
  from budget_uses u where u.app_name = app and u.day >= since;
end $$;
comment on function budget_uses_of_app is 'What all users of an application have used since a day: invocations, tokens, cost.';
--> statement-breakpoint
-- Questions of evaluation about the rows of all users, asked for any one of them: how many runs an application has
-- open, and which versions a case has had in another user's set before. The setting is restored by hand, since only a
-- superuser may attach one of ours to a function.

create function count_open_eval_runs(app text) returns integer
language plpgsql stable as $$
declare
  before text := current_setting('agent_runtime.all_users', true);
  n integer;
begin
  perform set_config('agent_runtime.all_users', 'on', true);
  n := (select count(*)::int from eval_runs where app_name = app and status in ('queued', 'running'));
  perform set_config('agent_runtime.all_users', coalesce(before, ''), true);
  return n;
end $$;
comment on function count_open_eval_runs is 'How many evaluation runs of an application have not ended, whosever they are.';

create function next_eval_case_version(app text, eval_set text, eval_case text) returns integer
language plpgsql stable as $$
declare
  before text := current_setting('agent_runtime.all_users', true);
  n integer;
begin
  perform set_config('agent_runtime.all_users', 'on', true);
  n := (select 1 + coalesce(max(version), 0) from eval_case_versions
        where app_name = app and eval_set_id = eval_set and eval_id = eval_case);
  perform set_config('agent_runtime.all_users', coalesce(before, ''), true);
  return n;
end $$;
comment on function next_eval_case_version is 'The number of the next version of a case, whosever the versions before are.';
--> statement-breakpoint
-- The limits of what rows may hold. Each returns what it was given, or raises; `limitError` in
-- src/platform/db/database.ts maps the SQLSTATEs. Limits are arguments: a setting of the connection would reach neither
-- the workers of a cluster nor the server behind a pooler.

-- A state. AR413: its text is larger than max_bytes. AR415: it has more than max_keys keys.
create function assert_state_size(state jsonb, max_bytes integer, max_keys integer) returns jsonb
language plpgsql immutable as $$
begin
  if octet_length(state::text) > max_bytes then
    raise exception 'state is larger than % bytes', max_bytes using errcode = 'AR413';
  end if;
  if jsonb_typeof(state) = 'object' and (select count(*) from jsonb_object_keys(state)) > max_keys then
    raise exception 'state has more than % keys', max_keys using errcode = 'AR415';
  end if;
  return state;
end $$;
comment on function assert_state_size is 'The state, or an error when its text is larger than max_bytes, or it has more keys than max_keys.';

-- The size of a session's events. AR414: it is more than max_bytes.
create function assert_session_size(event_bytes bigint, max_bytes bigint) returns bigint
language plpgsql immutable as $$
begin
  if event_bytes > max_bytes then
    raise exception 'events of the session are more than % bytes', max_bytes using errcode = 'AR414';
  end if;
  return event_bytes;
end $$;
comment on function assert_session_size is 'The size, or an error when it is larger than max_bytes.';

-- The writers of an application's state. AR416: what agents wrote for one writer is more than max_bytes.
create function assert_writer_share(state jsonb, writers jsonb, writer jsonb, max_bytes integer) returns jsonb
language plpgsql immutable as $$
begin
  if (select sum(octet_length(key) + octet_length(value::text)) from jsonb_each(state) where writers -> key = writer) > max_bytes then
    raise exception 'what agents wrote for one user is more than % bytes', max_bytes using errcode = 'AR416';
  end if;
  return writers;
end $$;
comment on function assert_writer_share is 'The writers, or an error when what agents wrote for the writer is larger than max_bytes.';
