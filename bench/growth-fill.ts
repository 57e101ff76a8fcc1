import type { Client } from 'pg';
import { APP } from './seed.ts';

/** How much others have in a database. */
export interface Size {
  users: number;
  sessionsEach: number;
  /** Sessions of the user `many`; a page looks at 250 for what it is to show. */
  sessionsOfMany: number;
  memories: number;
  /** Days of which each user has used something. */
  days: number;
  oldSessions: number;
  running: number;
}

export const SMALL: Size = {
  users: 1_000,
  sessionsEach: 3,
  sessionsOfMany: 250,
  memories: 2_000,
  days: 1,
  oldSessions: 0,
  running: 0,
};
export const LARGE: Size = {
  users: 100_000,
  sessionsEach: 3,
  sessionsOfMany: 20_000,
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

/** Fills a migrated database as the service would have, without a request. */
export async function fill(sql: Client, size: Size): Promise<void> {
  const { users, sessionsEach, sessionsOfMany, memories, days, oldSessions, running } = size;
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
    `insert into invocations (app_name, user_id, session_id, id, status, lease_token, lease_expire_time, create_time,
                              start_time, end_time)
     select app_name, user_id, id, 'i1', 'succeeded', gen_random_uuid(), update_time, update_time,
       update_time, update_time
     from sessions`,
    `insert into memories (app_name, user_id, session_id, event_id, author, content, event_time, search_vector)
     select '${APP}', 'u' || n % 1000, 's1', 'e' || n, 'user', '{"role": "user", "parts": [{"text": "some words"}]}',
       ${OLD}, to_tsvector('simple', case when n % 10 = 0 then 'some words of ' else 'another thing of ' end || n)
     from generate_series(1, ${memories}) n`,
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
    `insert into invocations (app_name, user_id, session_id, id, status, lease_token, lease_expire_time, start_time)
     select app_name, user_id, id, 'r', 'running', lease_token, now() + interval '1 day', now()
     from sessions where lease_token is not null and user_id like 'running%'`,
    `set session_replication_role = 'origin'`,
    `vacuum analyze`,
    `checkpoint`,
  ];
  for (const statement of statements) await sql.query(statement);
}
