-- is_sampled: true if an id is in a rule's sample. Deterministic.
create or replace function is_sampled(rule text, id text, share float8) returns boolean language sql immutable
return ('x' || left(md5(rule || E'\x01' || id), 8))::bit(32)::bigint < share * 4294967296;
comment on function is_sampled is 'True if an id is in a rule''s sample; deterministic.';
