import { Client } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { migrateDatabase } from '../../src/platform/db/migrate.ts';
import { testDatabase } from '../support/database.ts';

/**
 * What the two roles of the service may do, all of it: a new table or function of the owner belongs in these lists. The
 * limited role runs the statements of one user where the serving one is above row-level security.
 */

const SERVING = 'rights_test_server';
const LIMITED = 'agent_runtime_user';
/** Rows of users, which row-level security keeps apart. */
const OF_USERS = [
  'artifact_versions',
  'artifacts',
  'cronjobs',
  'eval_case_versions',
  'eval_cases',
  'eval_run_cases',
  'eval_runs',
  'eval_session_scores',
  'eval_sets',
  'eval_verdicts',
  'event_deltas',
  'events',
  'idempotency_keys',
  'invocations',
  'job_lanes',
  'jobs',
  'legal_holds',
  'memories',
  'session_verdicts',
  'sessions',
  'signals',
  'skipped_runs',
  'spans',
  'tasks',
  'tool_calls',
  'user_credentials',
  'user_erasures',
  'user_states',
  'user_storage',
  'webhook_deliveries',
  'webhooks',
];
const ALL = 'delete, insert, select, update';
/** Rows of nobody, and those that triggers and functions write: [serving role, limited role]. */
const LISTED: Record<string, [serving: string, limited: string]> = {
  agent_prompts: [ALL, 'insert, select, update (use_time)'],
  agent_runtime_migrations: ['select', ''],
  agent_runtime_repeatables: ['select', ''],
  agent_versions: [ALL, 'select'],
  app_states: [ALL, 'select'],
  audit_log: ['insert, select', ''],
  budget_alerts: [ALL, 'select'],
  budget_reservations: [ALL, 'select'],
  budget_totals: [ALL, 'select'],
  budget_uses: [ALL, 'select'],
  budgets: [ALL, 'select'],
  model_prices: [ALL, 'select'],
  rate_limits: [ALL, ''],
  score_rules: [ALL, 'select'],
  user_storage: [ALL, 'select'],
};
/** Functions that run as the owner of the tables, and whether the two roles may call them; triggers need no right. */
const AS_OWNER: Record<string, [serving: boolean, limited: boolean]> = {
  count_session_bytes: [false, false],
  count_stored_bytes: [false, false],
  count_kept_bytes: [false, false],
  count_request_bytes: [false, false],
  count_use: [true, true],
  // It finds the webhook of a budget, whose owner is another user.
  alert_budgets: [true, true],
  renew_reservation: [true, true],
  reserve_budget: [true, true],
  delete_old_audit_entries: [true, false],
  keep_answer: [true, false],
  merge_app_state: [true, true],
};

const database = testDatabase();
let client: Client;
beforeAll(async () => {
  client = new Client({ connectionString: database.url });
  await client.connect();
  await client.query(`do $$ begin create role ${SERVING}; exception when duplicate_object then null; end $$`);
  await migrateDatabase({ url: database.url }, { servingRole: SERVING });
});
afterAll(() => client.end());

const ours = `'public'::regnamespace`;
const rightsOf = (role: string) => `(
  select string_agg(lower(right_) || case when name <> '' then ' (' || name || ')' else '' end, ', ' order by right_)
  from (select privilege_type as right_, '' as name, grantee from aclexplode(c.relacl)
        union all select privilege_type, attname, grantee
        from pg_attribute a, aclexplode(a.attacl) where a.attrelid = c.oid) given
  where grantee = ${role})`;

/** Returns what is not as the lists above say, a sentence each. */
async function listViolations(): Promise<string[]> {
  const { rows: tables } = await client.query<{
    name: string;
    hasUsers: boolean;
    isKept: boolean;
    serving: string | null;
    limited: string | null;
    everybody: string | null;
  }>(`
    select c.relname as name,
           exists (select from pg_attribute where attrelid = c.oid and not attisdropped
                   and attname in ('user_id', 'owner_id', 'requested_by')) as "hasUsers",
           c.relrowsecurity and c.relforcerowsecurity and (
             select count(*) = 1 and bool_and(polcmd = '*') from pg_policy where polrelid = c.oid) as "isKept",
           ${rightsOf(`'${SERVING}'::regrole`)} as serving, ${rightsOf(`'${LIMITED}'::regrole`)} as limited,
           ${rightsOf('0')} as everybody
    from pg_class c where c.relkind in ('r', 'p') and c.relnamespace = ${ours}`);
  const { rows: functions } = await client.query<{ name: string; as: boolean; path: string; may: boolean[] }>(`
    select p.proname as name, p.prosecdef as as, array_to_string(p.proconfig, '; ') as path,
           array(select has_function_privilege(role, p.oid, 'execute')
                 from unnest(array['${SERVING}', '${LIMITED}', 'public']) role) as may
    from pg_proc p where p.pronamespace = ${ours}`);
  const wrong: string[] = [];
  for (const { name, hasUsers, isKept, ...rights } of tables) {
    const isOfUsers = OF_USERS.includes(name);
    if (hasUsers !== isOfUsers && !name.startsWith('budget')) wrong.push(`${name}: whose rows are they?`);
    if (isOfUsers && !isKept) wrong.push(`${name}: row-level security is not forced, or has not its one policy`);
    const [serving, limited] = LISTED[name] ?? (isOfUsers ? [ALL, ALL] : ['?', '?']);
    if ((rights.serving ?? '') !== serving) wrong.push(`${name}: the serving role may ${rights.serving}`);
    if ((rights.limited ?? '') !== limited) wrong.push(`${name}: the limited role may ${rights.limited}`);
    if (rights.everybody !== null) wrong.push(`${name}: everybody may ${rights.everybody}`);
  }
  for (const { name, as: asOwner, path, may } of functions) {
    if (asOwner !== name in AS_OWNER) wrong.push(`${name}: it runs as ${asOwner ? 'its owner' : 'its caller'}`);
    if (asOwner && path !== 'search_path=public, pg_temp') wrong.push(`${name}: its path is ${path}`);
    const expected = asOwner ? [...(AS_OWNER[name] ?? []), false] : [true, true, true];
    if (may.join() !== expected.join())
      wrong.push(`${name}: serving, limited and every role may call it: ${may.join()}`);
  }
  const { rows: more } = await client.query<{ wrong: string }>(`
    select role || ' may create in the schema' as wrong from unnest(array['${SERVING}', '${LIMITED}', 'public']) role
    where has_schema_privilege(role, 'public', 'create')
    union all select role || ' owns ' || relname from unnest(array['${SERVING}', '${LIMITED}']) role
      join pg_class on relowner = role::regrole`);
  return [...wrong, ...more.map((row) => row.wrong)].toSorted();
}

test('roles have the rights of the lists, and functions of the owner a fixed path', async () => {
  expect(await listViolations()).toEqual([]);
});

test('what is in no list is found', async () => {
  await client.query(`
    begin;
    create table planted (app_name text, user_id text);
    create function planted() returns integer language sql security definer set search_path = public as 'select 1';
    alter table memories no force row level security;
    create policy further on events for select using (true);
    grant update on budgets to ${LIMITED};
    grant delete on audit_log to ${SERVING};
    grant select on events to public;
    grant execute on function count_use to public;
    alter function merge_app_state security invoker;
    grant create on schema public to ${LIMITED}`);
  const found = await listViolations();
  await client.query('rollback');
  expect(found).toEqual([
    'agent_runtime_user may create in the schema',
    'audit_log: the serving role may delete, insert, select',
    'budgets: the limited role may select, update',
    'count_use: serving, limited and every role may call it: true,true,true',
    'events: everybody may select',
    'events: row-level security is not forced, or has not its one policy',
    'memories: row-level security is not forced, or has not its one policy',
    'merge_app_state: it runs as its caller',
    'merge_app_state: serving, limited and every role may call it: true,true,false',
    'planted: it runs as its owner',
    'planted: its path is search_path=public',
    'planted: serving, limited and every role may call it: true,true,true',
    'planted: the limited role may null',
    'planted: the serving role may null',
    'planted: whose rows are they?',
  ]);
});
