const FROM = `from sessions s left join app_states a on a.app_name = s.app_name
  left join user_states u on u.app_name = s.app_name and u.user_id = s.user_id`;
const HEAD = `'{"id":' || to_json(s.id) || ',"appName":' || to_json(s.app_name) || ',"userId":' || to_json(s.user_id) ||
  ',"state":' || (s.state || coalesce(a.state, '{}') || coalesce(u.state, '{}')) || ',"events":['`;
const TAIL = `'],"lastUpdateTime":' || extract(epoch from s.update_time) || '}'`;
const TAKE = `with taken as (
  update sessions set last_sequence = last_sequence + 1, update_time = clock_timestamp()
  where app_name = $1 and user_id = $2 and id = $3 returning last_sequence, update_time)`;

/** One statement per step, as short as the answers of the runtime allow; the tables are the runtime's own. */
export const STATEMENTS = {
  get: `select ${HEAD} || coalesce((select string_agg(e.payload::text, ',' order by e.sequence) from events e
        where e.app_name = $1 and e.user_id = $2 and e.session_id = $3), '') || ${TAIL} as text
        ${FROM} where s.app_name = $1 and s.user_id = $2 and s.id = $3`,
  list: `select '[' || coalesce(string_agg(${HEAD} || ${TAIL}, ',' order by s.update_time desc, s.id desc), '') || ']'
         as text ${FROM} where s.app_name = $1 and s.user_id = $2 and not s.is_eval`,
  artifact: `select '{"version":' || version || ',"canonicalUri":' || to_json(canonical_uri) || ',"customMetadata":' ||
             custom_metadata || ',"createTime":' || extract(epoch from create_time) || ',"mimeType":' ||
             to_json(mime_type) || '}' as text from artifact_versions
             where app_name = $1 and user_id = $2 and session_id = $3 and artifact_name = $4 and version = $5`,
  create: `with s as (insert into sessions (app_name, user_id, id, state, event_bytes)
             values ($1, $2, $3, $4::jsonb, 0) returning *)
           select ${HEAD} || ${TAIL} as text ${FROM.replace('sessions s', 's')}`,
  append: `${TAKE} insert into events
             (app_name, user_id, session_id, sequence, id, invocation_id, author, event_time, payload, bytes)
           select $1, $2, $3, taken.last_sequence, $4, $5, $6, taken.update_time, $7::text::jsonb ||
             jsonb_build_object('timestamp', extract(epoch from taken.update_time)), octet_length($7::text) from taken
           returning payload::text as text`,
  history: `select '[' || coalesce(string_agg(payload::text, ',' order by sequence), '') || ']' as text from events
            where app_name = $1 and user_id = $2 and session_id = $3`,
};
