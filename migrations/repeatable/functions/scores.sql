-- is_sampled: true if an id is in a rule's sample. Deterministic.
create or replace function is_sampled(rule text, id text, share float8) returns boolean language sql immutable
return ('x' || left(md5(rule || E'\x01' || id), 8))::bit(32)::bigint < share * 4294967296;
comment on function is_sampled is 'True if an id is in a rule''s sample; deterministic.';

-- score_work: the id of a score's job is the JSON of rule, session and invocation (add_score_jobs).
create or replace function score_work(p_app text, p_user text, p_id text) returns jsonb language sql stable as $$
  select r.definition from score_rules r where r.app_name = p_app and r.id = p_id::jsonb ->> 0
$$;
comment on function score_work is 'Returns the rule of a score that is due; null if it was deleted.';
