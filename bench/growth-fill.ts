import type { Client } from 'pg';
import { APP } from './seed.ts';

/** How much others have in a database. */
export interface Size {
  users: number;
  sessionsEach: number;
  /** Sessions of the user `many`. */
  sessionsOfMany: number;
  /** Events of that user's session `long`, each of another invocation. */
  eventsOfLong: number;
  memories: number;
  /** Days of which each user has used something. */
  days: number;
  oldSessions: number;
  running: number;
}

export const SMALL: Size = {
  users: 1_000,
  sessionsEach: 3,
  sessionsOfMany: 20,
  eventsOfLong: 20,
  memories: 2_000,
  days: 1,
  oldSessions: 0,
  running: 0,
};
export const LARGE: Size = {
  users: 100_000,
  sessionsEach: 3,
  sessionsOfMany: 20_000,
  eventsOfLong: 20_000,
  memories: 300_000,
  days: 30,
  oldSessions: 100_000,
  running: 560,
};
/** Both for a trial of the script. */
export const TRIAL = {
  small: { ...SMALL, users: 100 },
  large: { ...LARGE, users: 2_000, sessionsOfMany: 2_000, memories: 5_000, oldSessions: 1_000 },
};

const SESSIONS =
  'insert into sessions (app_name, user_id, id, first_text, labels, create_time, update_time, last_sequence,\n' +
  '                      event_bytes)';
const OLD = `now() - interval '20 days'`;

const OWNER = `'u' || 1 + n % {users}`;
/** The cronjobs, webhooks, artifacts, calls and evaluation of a tenth of the users other than the measured. */
const FEATURES = [
  `insert into artifacts (app_name, user_id, session_id, name, next_version)
   select '${APP}', ${OWNER}, 's1', 'a' || n, 1 from generate_series(1, {users}) n`,
  `insert into artifact_versions (app_name, user_id, session_id, artifact_name, version, canonical_uri, part,
     size_bytes,
                                  sha256)
   select app_name, user_id, session_id, name, 0, 'postgres://' || name, '{"text": "hello"}', 5, '' from artifacts`,
  `insert into tool_calls (app_name, user_id, session_id, invocation_id, call_id, operation_id, tool, effect, state)
   select '${APP}', ${OWNER}, 's1', 'i1', 'c' || n, gen_random_uuid(), 'pay', 'once',
     case when n % 100 = 0 then 'unknown' else 'done' end from generate_series(1, {users}) n`,
  `insert into idempotency_keys (app_name, user_id, scope, key, request_hash, response_body)
   select '${APP}', ${OWNER}, 'create', 'k' || n, '', '' from generate_series(1, {users}) n`,
  `insert into user_states (app_name, user_id, state)
   select '${APP}', ${OWNER}, '{"name": "x"}' from generate_series(1, {users}) n`,
  `insert into spans (app_name, user_id, session_id, trace_id, id, event_id, name, start_ns, end_ns, attributes)
   select '${APP}', ${OWNER}, 's1', 't' || n, 's' || n, 'e1', 'call_llm', 1, 2, '{}'
   from generate_series(1, {users}) n`,
  `insert into cronjobs (app_name, user_id, id, name, prompt, schedule, enabled, session_policy, missed_runs, overlap,
                         max_attempts, retry_pause_seconds, max_retry_pause_seconds, max_failures, next_run_time)
   select '${APP}', 'u' || n * 10, 'j' || n, 'job', 'hello',
     '{"type": "daily", "time": "08:00", "timezone": "UTC"}', true,
     'new', 'skip', 'skip', 1, 1, 1, 1, now() + interval '1 day' from generate_series(1, {users} / 10) n`,
  `insert into skipped_runs (app_name, user_id, cronjob_id, id, due_time, reason)
   select app_name, user_id, id, id || '-' || n, now() - n * interval '1 day', 'The previous run was still going.'
   from cronjobs, generate_series(1, 5) n where user_id <> 'measured'`,
  `insert into webhooks (app_name, user_id, id, url, host, includes_output, secret)
   select '${APP}', 'u' || n * 10, 'w' || n, 'https://hook.example/x', 'hook.example', false, ''
   from generate_series(1, {users} / 10) n`,
  `insert into webhook_deliveries (app_name, user_id, id, webhook_id, host, payload, status, retry_end_time, end_time)
   select app_name, user_id, id || '-' || n, id, host, '{}', case when n = 1 then 'pending' else 'delivered' end, now(),
     case when n > 1 then now() end
   from webhooks, generate_series(1, 5) n where user_id <> 'measured'`,
  `update jobs set due_time = now() + interval '1 day' where user_id <> 'measured'`,
  `update job_lanes set turn_time = now() + interval '1 day' where user_id <> 'measured'`,
  `insert into eval_sets (app_name, id, owner_id)
   select '${APP}', 'other' || n, 'u' || n from generate_series(1, {users} / 100) n`,
  `insert into eval_cases (app_name, eval_set_id, id, version, owner_id)
   select app_name, id, 'c' || n, 1, owner_id from eval_sets, generate_series(1, 10) n`,
  `insert into eval_case_versions (app_name, eval_set_id, eval_id, version, hash, payload, owner_id)
   select app_name, eval_set_id, id, 1, '', '{}', owner_id from eval_cases`,
  `insert into eval_runs (app_name, id, eval_set_id, requested_by, status, metrics, trials, parallelism, agent_hash,
                          model_name, result_time, end_time)
   select app_name, gen_random_uuid(), id, owner_id, 'done', '[]', 1, 1, '', '',
     now() - row_number() over () * interval '1 minute', now()
   from eval_sets, generate_series(1, 10) n`,
  `insert into eval_run_cases (app_name, run_id, place, trial, eval_set_id, eval_id, case_version, status,
                               session_user_id, owner_id, end_time)
   select app_name, id, n, 1, eval_set_id, 'c' || n, 1, 'done', requested_by, requested_by, now()
   from eval_runs, generate_series(1, 10) n`,
  `insert into tasks (app_name, user_id, session_id, id, invocation_id, call_id, call_name, kind, form, assigned_users,
                      expire_time)
   select '${APP}', 'u' || n, 's1', 't' || n, 'i1', 'c', 'ask_person', 'question', '{"tool": "ask_person"}',
     array['u' || n + 1], now() + n * interval '1 minute'
   from generate_series(1, {users}) n`,
  `insert into session_verdicts (app_name, user_id, session_id, event_id, author, passed)
   select '${APP}', 'u' || n, 's1', 'e1', 'u' || n, true from generate_series(1, {users} / 10) n`,
  `insert into sessions (app_name, user_id, id)
   select 'another_agent', ${OWNER}, 's1' from generate_series(1, {users} / 10) n`,
  `insert into eval_session_scores (app_name, user_id, session_id, last_sequence, metrics_hash, result)
   select 'another_agent', ${OWNER}, 's1', 1, '', '{}' from generate_series(1, {users} / 10) n`,
];

/** Fills a migrated database as the service would have, without a request. */
export async function fill(sql: Client, size: Size): Promise<void> {
  const { users, sessionsEach, sessionsOfMany, eventsOfLong, memories, days, oldSessions, running } = size;
  const statements = [
    `set agent_runtime.all_users = 'on'`,
    `set session_replication_role = 'replica'`,
    `${SESSIONS} select '${APP}', 'u' || u, 's' || s, 'hello there', '{}', ${OLD},
       ${OLD} + s * interval '1 second', 1, 200
     from generate_series(1, ${users}) u, generate_series(1, ${sessionsEach}) s`,
    `${SESSIONS} select '${APP}', 'many', 's' || s, 'hello there ' || s,
       case when s % 1000 = 0 then '{"project": "atlas"}' else '{"project": "other"}' end::jsonb,
       ${OLD}, ${OLD} + s * interval '1 second', 1, 200 from generate_series(1, ${sessionsOfMany}) s`,
    `${SESSIONS} select '${APP}', 'old' || s % 5000, 'o' || s, 'hello', '{}', ${OLD}, ${OLD}, 1, 200
     from generate_series(1, ${oldSessions}) s`,
    `insert into events (app_name, user_id, session_id, sequence, id, invocation_id, author, event_time, payload, bytes)
     select app_name, user_id, id, 1, 'e1', 'i1', 'user', update_time,
       jsonb_build_object('id', 'e1', 'invocationId', 'i1', 'author', 'user',
                          'timestamp', extract(epoch from update_time),
                          'content', '{"role": "user", "parts": [{"text": "hello there"}]}'::jsonb), 200 from sessions`,
    `insert into sessions (app_name, user_id, id, last_sequence, event_bytes, create_time, update_time)
     values ('${APP}', 'many', 'long', ${eventsOfLong}, ${eventsOfLong} * 200, ${OLD}, ${OLD})`,
    `insert into events (app_name, user_id, session_id, sequence, id, invocation_id, author, event_time, payload, bytes)
     select '${APP}', 'many', 'long', n, 'e' || n, 'i' || n, 'user', ${OLD},
       jsonb_build_object('id', 'e' || n, 'invocationId', 'i' || n, 'author', 'user',
                          'content', '{"role": "user", "parts": [{"text": "hello there"}]}'::jsonb), 200
     from generate_series(1, ${eventsOfLong}) n`,
    `insert into invocations (app_name, user_id, session_id, id, status, lease_token, lease_expire_time, create_time,
                              start_time, end_time)
     select app_name, user_id, id, 'i1', 'succeeded', gen_random_uuid(), update_time, update_time,
       update_time, update_time
     from sessions`,
    `insert into memories (app_name, user_id, session_id, event_id, author, content, event_time, search_vector)
     select '${APP}', 'u' || n % ${users}, 's1', 'e' || n, 'user',
       '{"role": "user", "parts": [{"text": "some words"}]}',
       ${OLD}, to_tsvector('simple', case when n % 10 = 0 then 'some words of ' else 'another thing of ' end || n)
     from generate_series(1, ${memories}) n`,
    `insert into memories (app_name, user_id, session_id, event_id, author, content, event_time, search_vector,
                           embedding, embedding_model)
     select 'meaning', user_id, session_id, event_id, author, content, event_time, search_vector,
       array_fill(1::real, array[256]), 'instant' from memories where app_name = '${APP}'`,
    `insert into user_storage select app_name, user_id, 0, sum(event_bytes), 0, 0 from sessions group by 1, 2`,
    // Everything of it was counted.
    `insert into budget_uses (app_name, user_id, day, shard, invocations, prompt_tokens, output_tokens, cost)
     select '${APP}', 'u' || u, (now() at time zone 'utc')::date - d, u % 4, 1, 10, 10, 0.1
     from generate_series(1, ${users}) u, generate_series(0, ${days - 1}) d where u % 4 = 0 or d = 0`,
    `insert into budget_totals (app_name, since, shard, invocations, tokens, cost)
     select app_name, since, shard, sum(invocations), sum(prompt_tokens + output_tokens), sum(cost) from (
       select *, day as since from budget_uses union all
       select *, date_trunc('month', day)::date from budget_uses where day > date_trunc('month', day)) counted
     group by 1, 2, 3`,
    `insert into budgets (app_name, user_id, applies_to, period, max_invocations, max_tokens, max_cost)
     select '${APP}', case applies when 'user' then 'measured' else '' end, applies, period, 1e9, 1e15, 1e9
     from unnest(array['app', 'users', 'user']) applies, unnest(array['day', 'month']) period`,
    `insert into model_prices values ('offline', 1, 1)`,
    `insert into sessions (app_name, user_id, id, lease_token)
     select '${APP}', 'running' || n, 's', gen_random_uuid() from generate_series(1, ${running}) n`,
    `insert into invocations (app_name, user_id, session_id, id, status, lease_token, lease_expire_time, create_time,
                              start_time)
     select app_name, user_id, id, 'r', 'running', lease_token, now() + interval '1 day', ${OLD}, now()
     from sessions where lease_token is not null and user_id like 'running%'`,
    `insert into budget_reservations (app_name, user_id, id, tokens, cost, expire_time)
     select '${APP}', 'running' || n, gen_random_uuid(), 10, 0.1, now() + interval '1 day'
     from generate_series(1, ${running}) n`,
    `insert into budget_alerts (app_name, user_id, applies_to, period, since, level)
     select '${APP}', 'u' || u, 'users', 'day', current_date, 50 from generate_series(1, ${users}) u`,
    ...FEATURES.map((statement) => statement.replaceAll('{users}', String(users))),
    `set session_replication_role = 'origin'`,
    `vacuum analyze`,
    `checkpoint`,
  ];
  for (const statement of statements) await sql.query(statement);
}
