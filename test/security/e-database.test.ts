import { Client } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { migrateDatabase } from '../../src/platform/db/migrate.ts';
import { createEmptyDatabase, type TestDatabase } from '../support/database.ts';

/** What a statement that somebody smuggled in can do as the roles of the service. */

const SERVING = 'database_test_server';
const LIMITED = 'agent_runtime_user';
let database: TestDatabase;
let client: Client;
/** A schema with a name that needs quotes, as an operator may have chosen it. */
const SCHEMA = 'Agents, 2';

beforeAll(async () => {
  database = await createEmptyDatabase();
  client = new Client({ connectionString: database.url });
  await client.connect();
  await client.query(`do $$ begin create role ${SERVING}; exception when duplicate_object then null; end $$`);
  await migrateDatabase({ url: database.url, schema: SCHEMA }, { servingRole: SERVING });
  await migrateDatabase({ url: database.url, schema: SCHEMA });
  await client.query(`set search_path = "${SCHEMA}"`);
});
afterAll(async () => {
  await client.end();
  await database.drop();
});

/** Does something as a role, for a user, and undoes it. @returns the rows, or the SQLSTATE of the refusal */
async function as(role: string, ...statements: string[]) {
  await client.query(`begin; set local role ${role}; select set_config('agent_runtime.user', 'alice', true)`);
  try {
    for (const statement of statements.slice(0, -1)) await client.query(statement);
    return (await client.query(statements.at(-1) ?? '')).rows as unknown[];
  } catch (error) {
    return (error as { code: string }).code;
  } finally {
    await client.query('rollback');
  }
}

/** A temporary table in the place of one of ours, which notes who touches it. */
const trap = (table: string) => `
  create temp table ran_as (name text);
  grant all on ran_as to public;
  create function pg_temp.note() returns trigger language plpgsql as
    $$ begin insert into pg_temp.ran_as values (current_user); return null; end $$;
  create temp table ${table} as select * from "${SCHEMA}".${table} limit 0;
  grant all on ${table} to public;
  create trigger note before insert or update or delete on pg_temp.${table}
  for each statement execute function pg_temp.note()`;
const limits = `'{"stateBytes": 1000, "stateKeys": 10, "appStateBytesPerUser": 1000}'`;

test.each([
  [LIMITED, 'budget_uses', `select count_use('a', 'alice', 1, null)`],
  [LIMITED, 'budget_reservations', `select renew_reservation('a', 'alice', gen_random_uuid(), 1000)`],
  [LIMITED, 'app_states', `select merge_app_state('a', 'alice', '{"k": 1}', true, ${limits})`],
  [SERVING, 'audit_log', `select delete_old_audit_entries()`],
])(
  'A6: as %s a temporary table %s with a trigger runs nothing as the owner of the tables',
  async (role, table, call) => {
    const copy = table === 'audit_log' ? `create temp table audit_log (id bigint, time timestamptz)` : '';
    const set = copy ? trap(table).replace(/create temp table audit_log as.*;/, `${copy};`) : trap(table);
    expect(await as(role, set, call, 'select name from pg_temp.ran_as')).toEqual([]);
  },
);

test.each([
  `insert into budgets (app_name, user_id, applies_to, period) values ('a', '', 'app', 'day')`,
  `update budgets set max_tokens = 0`,
  `delete from budgets`,
  `update model_prices set prompt_price = 0`,
  `insert into model_prices (model, prompt_price, output_price) values ('*', 0, 0)`,
  `update rate_limits set points = 1000000`,
  `select from rate_limits`,
  `insert into budget_uses values ('a', 'bob', '2026-01-01', 0, 1000000, 0, 0, 0)`,
  `delete from budget_uses`,
  `insert into budget_reservations values ('a', 'bob', gen_random_uuid(), 1, 1, now())`,
  `delete from budget_reservations`,
  `insert into budget_alerts values ('a', 'bob', 'user', 'day', '2026-01-01', 100)`,
  `update app_states set state = '{}'`,
  `delete from app_states`,
  `update agent_prompts set payload = '{}'`,
  `delete from agent_prompts`,
  `insert into audit_log (caller_kind, resource, decision, request_id) values ('user', '{}', 'allowed', 'forged')`,
  `select delete_old_audit_entries()`,
  `select from agent_runtime_migrations`,
  `update user_storage set event_bytes = 0`,
  `delete from user_storage`,
  `select add_user_bytes('a', 'ann', -1000, 0, 0)`,
  `select count_use('a', 'bob', 1000000, null)`,
  `select reserve_budget('a', 'bob', gen_random_uuid(), 'm', 1, 1, 1000)`,
  `select renew_reservation('a', 'bob', gen_random_uuid(), 1000)`,
  `select alert_budgets('a', 'bob')`,
  `select merge_app_state('a', 'bob', '{"k": 1}', true, ${limits})`,
])('A14: the role for statements of one user is refused: %s', async (statement) => {
  expect(await as(LIMITED, statement)).toBe('42501');
});

test('A14: and does what an invocation of its user needs', async () => {
  const used = `select user_id, invocations::int from budget_uses`;
  expect(await as(LIMITED, `select count_use('a', 'alice', 2, null)`, used)).toEqual([
    { user_id: 'alice', invocations: 2 },
  ]);
  const merge = `select merge_app_state('a', 'alice', '{"k": 1}', true, ${limits})`;
  expect(await as(LIMITED, merge, 'select state, writers from app_states')).toEqual([
    { state: { k: 1 }, writers: { k: 'alice' } },
  ]);
});

const entries = `
  insert into audit_log (time, caller_kind, caller, resource, decision, request_id)
  select clock_timestamp() - age, 'user', who, '{}', 'allowed', who || n
  from (values ('alice', 3, interval '40 days'), ('mallory', 500, interval '30 hours'),
               ('bob', 2, interval '1 hour')) given(who, count, age), generate_series(1, count) n`;
const left = `select caller, count(*)::int as n from audit_log group by 1 order by 1`;
const all = [
  { caller: 'alice', n: 3 },
  { caller: 'bob', n: 2 },
  { caller: 'mallory', n: 500 },
];

test('A9: the role that serves deletes nothing that the owner of the tables keeps', async () => {
  const keep = (days: number, count: number) =>
    migrateDatabase({ url: database.url, schema: SCHEMA }, { servingRole: SERVING, audit: { days, count } });
  const keeping = async (days: number, count: number) => {
    await keep(days, count);
    await client.query(`begin; ${entries}`);
    await client.query(`set local role ${SERVING}`);
    let calls = 0;
    for (let isMore = true; isMore && calls < 9; calls += 1) {
      const { rows } = await client.query('select delete_old_audit_entries() as "isMore"');
      isMore = (rows[0] as { isMore: boolean }).isMore;
    }
    await client.query('reset role');
    const { rows } = await client.query(left);
    await client.query('rollback');
    return { rows, calls };
  };
  expect(await keeping(90, 1_000_000)).toEqual({ rows: all, calls: 1 });
  expect((await keeping(30, 1_000_000)).rows).toEqual(all.slice(1));
  // One user's many entries go, not the few older ones of another; those of the last day stay.
  expect((await keeping(90, 100)).rows).toEqual([
    { caller: 'alice', n: 3 },
    { caller: 'bob', n: 2 },
    { caller: 'mallory', n: 95 },
  ]);
  await keep(90, 1_000_000);
  expect(await as(SERVING, `select delete_old_audit_entries(0, 0)`)).toBe('42883');
  const replace = `create or replace function audit_retention(out days integer, out entries bigint) language sql
    immutable as 'select 0, 0::bigint'`;
  expect(await as(SERVING, replace)).toBe('42501');
});
