-- The hottest statements as they are sent, to read and to review. Written by npm run docs:statements.
-- A call of a function is explained in its file; PostgreSQL keeps the plans of what it does, behind a pooler too.

-- Create a session. See migrations/repeatable/functions/create_session.sql.
select * from create_session(p_app => $1, p_user => $2, p_session => $3, p_events => $4, p_delta => $5, p_first_text => $6, p_limits => $7, p_is_eval => $8, p_initial_state => $9);

-- Claim a session, which begins an invocation. See migrations/repeatable/functions/claim_session.sql.
select * from claim_session(p_invocation => $1, p_token => $2, p_duration_ms => $3, p_key => $4, p_hash => $5, p_webhook => $6, p_app => $7, p_user => $8, p_session => $9, p_events => $10, p_delta => $11, p_first_text => $12, p_limits => $13, p_is_queued => $14, p_creates => $15, p_is_new => $16, p_read => $17, p_request => $18, p_is_eval => $19, p_is_free => $20, p_version => $21, p_answers => $22, p_ends_sleeps => $23, p_returns => $24, p_job => $25, p_places => $26);

-- The history that an invocation goes on from.
select page.text, page.last, page.own, "s"."last_sequence" as final,
  extract(epoch from "s"."create_time")::text as created, "s"."events_version" as version,
  (
  select "events"."id" from "events"
  where "events"."app_name" = $1 and "events"."user_id" = $2 and "events"."session_id" = $3 and "events"."sequence" >= $4::int and "events"."sequence" <= $4::int
  order by "events"."sequence" limit 1) as "idBefore",
  ("s"."state" || coalesce("a"."state", '{}') || coalesce("u"."state", '{}'))::text as state, assert_session_size("s"."event_bytes", $5::bigint) as size
  from "sessions" "s"
  left join "app_states" "a" on "a"."app_name" = $1
  left join "user_states" "u" on "u"."app_name" = $1 and "u"."user_id" = $2 cross join lateral (
  select string_agg(sized.payload::text, ',' order by sized.sequence) as text, max(sized.sequence) as last,
  array_agg(sized.id order by sized.sequence) filter (where sized.is_own) as own
  from (
  select e.*, sum(e.bytes) over (order by e.sequence) - e.bytes as bytes_before
  from (select "events"."payload" as payload, "events"."sequence" as sequence, "events"."id" as id,
  "events"."is_from_runtime" as is_own, "events"."bytes" as bytes from "events"
  where "events"."app_name" = $1 and "events"."user_id" = $2 and "events"."session_id" = $3 and "events"."sequence" > $4::int and "events"."sequence" <= "s"."last_sequence"
  order by "events"."sequence" limit $6) e) sized where sized.bytes_before < $7) page where "s"."app_name" = $1 and "s"."user_id" = $2 and "s"."id" = $3;

-- Append an event. See migrations/repeatable/functions/append_events.sql.
select * from append_events(p_app => $1, p_user => $2, p_session => $3, p_events => $4, p_delta => $5, p_first_text => $6, p_limits => $7, p_from_runtime => $8, p_lease => $9, p_versions => $10, p_models => $11, p_invocation => $12, p_llm_calls => $13, p_tool_calls => $14, p_prompt_tokens => $15, p_output_tokens => $16, p_has_deltas => $17, p_calls => $18, p_answers => $19);

-- Wait for a busy session. See migrations/repeatable/functions/claim_session.sql.
select * from enqueue_invocation(p_app => $1, p_user => $2, p_session => $3, p_invocation => $4, p_token => $5, p_duration_ms => $6, p_key => $7, p_hash => $8, p_webhook => $9, p_request => $10, p_depth => $11, p_max_user_bytes => $12);

-- Finish an invocation. See migrations/repeatable/functions/finish_invocation.sql.
select * from finish_invocation(p_app => $1, p_user => $2, p_session => $3, p_events => $4, p_delta => $5, p_first_text => $6, p_limits => $7, p_invocation => $8, p_token => $9, p_new_token => $10, p_status => $11, p_answer => $12, p_error_code => $13, p_error_message => $14, p_llm_calls => $15, p_tool_calls => $16, p_prompt_tokens => $17, p_output_tokens => $18, p_models => $19, p_calls => $20, p_tasks => $21, p_tape => $22, p_prompts => $23, p_has_deltas => $24, p_remembers => $25);

-- Claim a session for an invocation that waited. See migrations/repeatable/functions/claim_session.sql.
select * from claim_session(p_invocation => $1, p_token => $2, p_duration_ms => $3, p_key => $4, p_hash => $5, p_webhook => $6, p_app => $7, p_user => $8, p_session => $9, p_events => $10, p_delta => $11, p_first_text => $12, p_limits => $13, p_is_queued => $14, p_creates => $15, p_is_new => $16, p_read => $17, p_request => $18, p_is_eval => $19, p_is_free => $20, p_version => $21, p_answers => $22, p_ends_sleeps => $23, p_returns => $24, p_job => $25, p_places => $26);

-- Get a session.
select case when coalesce(page.place, 0) = 0 then concat('{"id":', to_json("s"."id"), ',', '"appName":', to_json("s"."app_name"), ',"userId":', to_json("s"."user_id"), ',"state":', ("s"."state" || coalesce("a"."state", '{}') || coalesce("u"."state", '{}')), ',"events":[') end as head, page.text as events,
  case when coalesce(page.place, 0) = 0 then concat('],"lastUpdateTime":', extract(epoch from "s"."update_time"),  '}') end as tail, page.last, "s"."last_sequence" as final,
  "s"."last_sequence" as reached, extract(epoch from "s"."create_time") as created, session_etag("s"."update_time", "a"."update_time", "u"."update_time") as etag
  from "sessions" "s"
  left join "app_states" "a" on "a"."app_name" = $1
  left join "user_states" "u" on "u"."app_name" = $1 and "u"."user_id" = $2  left join lateral (
  select string_agg(sized.payload::text, ',' order by sized.sequence) as text, max(sized.sequence) as last,
  sized.bytes_before / 32768 as place
  from (
  select e.*, sum(e.bytes) over (order by e.sequence) - e.bytes as bytes_before
  from (select "events"."payload" as payload, "events"."sequence" as sequence, "events"."id" as id,
  "events"."is_from_runtime" as is_own, "events"."bytes" as bytes from "events"
  where "events"."app_name" = $1 and "events"."user_id" = $2 and "events"."session_id" = $3 and "events"."sequence" > greatest($4::int, "s"."last_sequence" - $5::int) and "events"."sequence" <= "s"."last_sequence"
  order by "events"."sequence" limit $6) e) sized
  where sized.bytes_before < $7 group by sized.bytes_before / 32768) page on true
  where "s"."app_name" = $1 and "s"."user_id" = $2 and "s"."id" = $3 order by page.place;

-- A page of the list of sessions.
with shared as materialized (
  select nullif(merged.state, '{}') as state, octet_length(merged.state::text) as bytes from (select
  coalesce((select "app_states"."state" from "app_states" where "app_states"."app_name" = $1), '{}') ||
  coalesce((select "user_states"."state" from "user_states"
  where "user_states"."app_name" = $1 and "user_states"."user_id" = $2), '{}') as state
  offset 0) merged),
  page as materialized (
  select string_agg(case when is_taken then concat('{"id":', to_json("s"."id"), ',', $3::text, ',"state":', coalesce("s"."state" || shared_state, "s"."state"), ',"events":[', '],"lastUpdateTime":', extract(epoch from "s"."update_time"),  '}') end, ',' order by "s"."update_time" desc, "s"."id" desc) as text,
  (count(*) filter (where is_taken))::int as n, not bool_and(is_taken) as is_more
  from (
  select "s".*, shared.state as shared_state,
  place <= $4::int and (place = 1 or "s".bytes + place * shared.bytes <= $5) as is_taken
  from (
  select "s".*, row_number() over listed as place, sum(20 * pg_column_size("s"."state")) over listed as bytes
  from "sessions" "s" where ("s"."app_name" = $1 and "s"."user_id" = $2 and not "s"."is_eval" and "s"."parent_session_id" is null and ("s"."update_time", "s"."id") < ($6::timestamptz, $7::text) and "s"."update_time" > to_timestamp($8::float8) and "s"."update_time" < to_timestamp($9::float8)) window listed as (order by "s"."update_time" desc, "s"."id" desc rows unbounded preceding) order by "s"."update_time" desc, "s"."id" desc limit $4::int + 1) "s", shared) "s")
  select text, '{}'::text[] as further,
  case when is_more then (select json_build_object('id', "s"."id", 'time', to_char("s"."update_time" at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')) from "sessions" "s" where ("s"."app_name" = $1 and "s"."user_id" = $2 and not "s"."is_eval" and "s"."parent_session_id" is null and ("s"."update_time", "s"."id") < ($6::timestamptz, $7::text) and "s"."update_time" > to_timestamp($8::float8) and "s"."update_time" < to_timestamp($9::float8)) order by "s"."update_time" desc, "s"."id" desc limit 1 offset n - 1) else null end as last from page;

-- A page of events.
select page.text, page.last, "s"."last_sequence" as reached, "s"."last_sequence" as final
  from "sessions" "s" left join lateral (
  select string_agg(sized.payload::text, ',' order by sized.sequence) as text, max(sized.sequence) as last,
  sized.bytes_before / 32768 as place
  from (
  select e.*, sum(e.bytes) over (order by e.sequence) - e.bytes as bytes_before
  from (select "events"."payload" as payload, "events"."sequence" as sequence, "events"."id" as id,
  "events"."is_from_runtime" as is_own, "events"."bytes" as bytes from "events"
  where "events"."app_name" = $1 and "events"."user_id" = $2 and "events"."session_id" = $3 and "events"."sequence" > $4::int and "events"."sequence" <= "s"."last_sequence"
  order by "events"."sequence" limit $5::int) e) sized
  where sized.bytes_before < $6 group by sized.bytes_before / 32768) page on true
  where "s"."app_name" = $1 and "s"."user_id" = $2 and "s"."id" = $3 order by page.place;

-- Save a version of an artifact.
with
  given as materialized (
  select $1::jsonb as part, $2::jsonb as metadata),
  checked as materialized (
  select assert_user_storage($3, $4, artifact_size($5::bigint, part, metadata), $6::bigint, $7)
  from given ),
  numbered as (insert into "artifacts" ("app_name", "user_id", "session_id", "name", "next_version") select $8, $9, $10, $11, $12 from checked
  on conflict ("app_name", "user_id", "session_id", "name")
  do update set "next_version" = "artifacts"."next_version" + 1 returning "artifacts"."next_version" - 1 as version)
  insert into "artifact_versions" ("app_name", "user_id", "session_id", "artifact_name", "version", "canonical_uri", "mime_type", "custom_metadata", "part", "content", "object_key", "size_bytes", "sha256") select $13, $14, $15, $16, numbered.version, $17 || numbered.version, $18, given.metadata, given.part, $19, $20, $21, $22 from numbered, given returning
  '{"version":' || "artifact_versions"."version" || ',"canonicalUri":' || to_json("artifact_versions"."canonical_uri") ||
  ',"customMetadata":' || "artifact_versions"."custom_metadata" ||
  ',"createTime":' || extract(epoch from "artifact_versions"."create_time") ||
  case when "artifact_versions"."mime_type" is null then ''
  else ',"mimeType":' || to_json("artifact_versions"."mime_type") end || '}' as text;

-- The metadata of a version of an artifact.
select
  '{"version":' || "artifact_versions"."version" || ',"canonicalUri":' || to_json("artifact_versions"."canonical_uri") ||
  ',"customMetadata":' || "artifact_versions"."custom_metadata" ||
  ',"createTime":' || extract(epoch from "artifact_versions"."create_time") ||
  case when "artifact_versions"."mime_type" is null then ''
  else ',"mimeType":' || to_json("artifact_versions"."mime_type") end || '}' as text from "artifact_versions"
  where "artifact_versions"."app_name" = $1 and "artifact_versions"."user_id" = $2
  and "artifact_versions"."session_id" = $3
  and "artifact_versions"."artifact_name" = $4
  and "artifact_versions"."version" = $5;
