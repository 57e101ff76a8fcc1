import { readFileSync } from 'node:fs';
import { getTableName, is } from 'drizzle-orm';
import { getTableConfig, PgTable } from 'drizzle-orm/pg-core';
import { expect, test } from 'vitest';
import { COPIED_TABLES, DISTRIBUTED_TABLES } from '../../../../src/platform/db/cluster.ts';
import { isFunctions, readSections } from '../../../../src/platform/db/repeatable.ts';
import * as schema from '../../../../src/platform/db/schema/schema.ts';
import { MIGRATIONS } from '../../../support/migrations.ts';
import { dialectFaults, nodeFaults, spreadFaults, routingFaults, unroutedFunctions } from '../../../support/dialect.ts';

const EVENTS = 'insert into "events" ("id") select given.id from advanced';

test.each([
  ['update "sessions" set "update_time" = clock_timestamp()', ['sessions: a volatile function']],
  ['delete from "spans" where "create_time" < clock_timestamp()', ['spans: a volatile function']],
  [
    `with done as (update "invocations" set "lease_token" = gen_random_uuid()) ${EVENTS}`,
    ['invocations: a volatile function'],
  ],
  [
    `update "sessions" set "state" = limited("sessions"."state", current_setting('agent_runtime.max'))`,
    ['sessions: a setting of the connection, which workers do not have'],
  ],
  [
    `update "sessions" set "update_time" = "sessions"."update_time" + interval '1 microsecond'`,
    ['sessions: a column and an interval: the sum with a time in a zone is not immutable'],
  ],
  [
    'update "invocations" set "end_time" = case when $1 then statement_timestamp() end',
    ['invocations: the time of the statement in a case or coalesce'],
  ],
  [
    'insert into "user_states" ("state") values ($1) on conflict ("user_id") do update set "update_time" = now()',
    ['user_states: a function that is not immutable'],
  ],
  [
    'insert into "sessions" ("id") values ($1) on conflict ("id") do nothing where exists (select from "events")',
    ['sessions: a query'],
  ],
  ['insert into "sessions" ("id") values ((select max(id) from given))', ['sessions: a query among the values']],
])('a distributed database refuses %s', (statement, faults) => {
  expect(dialectFaults(statement)).toEqual(faults);
});

test.each([
  'update "sessions" set "update_time" = statement_timestamp() returning "id"',
  `update "sessions" set "name" = 'clock_timestamp()' -- clock_timestamp()`,
  `update "invocations" set "lease_expire_time" = statement_timestamp() + $1 * interval '1 millisecond'`,
  'insert into "invocations" ("start_time") select clock_timestamp() on conflict ("id") do nothing',
  // The coordinator's own tables, and a read beside a write.
  'update "cronjobs" set "next_run_time" = clock_timestamp()',
  'with written as (update "sessions" set "state" = $1) select clock_timestamp()',
  'select "id" from "cronjobs" for update skip locked',
])('a distributed database takes %s', (statement) => {
  expect(dialectFaults(statement)).toEqual([]);
});

test('a distributed database takes the writes of the functions of migrations', () => {
  // Which name tables without quotes, and rows by aliases.
  const writes = readSections(MIGRATIONS, true)
    .filter(isFunctions)
    .flatMap(({ text }) => text.replaceAll(/--.*$/gm, '').split(';'))
    .flatMap((text) => /\b(?:insert into|update|delete from) \w+\b[^]*/.exec(text)?.[0] ?? [])
    .map((text) => text.replace(/^(insert into|update|delete from) (\w+)/, '$1 "$2"'));
  expect(writes.length).toBeGreaterThan(20);
  expect(writes.flatMap((text) => dialectFaults(text).map((fault) => `${fault}: ${text.slice(0, 100)}`))).toEqual([]);
});

const OF_USER = '"s"."user_id" = $1';

test.each([
  [
    `select from "sessions" "s" left join "user_states" "u" on "u"."user_id" = "s"."user_id" where ${OF_USER}`,
    ['"u" stands there 1 times, and has a user 0 times'],
  ],
  [
    `select (select max("id") from "events" where "events"."user_id" = "s"."user_id")
       from "sessions" "s" where ${OF_USER}`,
    ['"events" stands there 1 times, and has a user 0 times'],
  ],
  [
    `update "invocations" set "status" = $1 where "invocations"."user_id" = $2
       and exists (select from "sessions" where "sessions"."user_id" = "invocations"."user_id")`,
    ['"sessions" stands there 1 times, and has a user 0 times'],
  ],
  [
    `delete from "spans" where "spans"."user_id" = $1 and ctid = any(array(select ctid from "spans" limit 2))`,
    ['"spans" stands there 2 times, and has a user 1 times'],
  ],
])('a distributed database asks all its nodes for %s', (statement, faults) => {
  expect(routingFaults(statement)).toEqual(faults);
});

test.each([
  `select from "sessions" "s" left join "user_states" "u" on "u"."user_id" = $2
     left join "app_states" "a" on "a"."app_name" = "s"."app_name" where ${OF_USER}`,
  // For all users, and a table of the coordinator's own.
  `select from "invocations"
     where exists (select from "sessions" where "sessions"."user_id" = "invocations"."user_id")`,
  `select "s"."id", "events"."id" from "sessions" "s", "cronjobs" where ${OF_USER}`,
])('one node of a distributed database has all of %s', (statement) => {
  expect(routingFaults(statement)).toEqual([]);
});

/** What a real cluster (Citus 13.2.2) refused, as a statement of the service would be written, or did wrong. */
test.each([
  ['select from "sessions" where "id" = $1 for update', ['sessions: a lock of rows without their user']],
  [
    `with due as (select "id" from "tasks" where "due_time" < now() for no key update skip locked)
       select from due, "sessions" "s" where ${OF_USER}`,
    ['tasks: a lock of rows without their user'],
  ],
  [
    `with recursive tree as (select "id" from "invocations" union all select "i"."id" from "invocations" "i", tree)
       select from tree`,
    ['invocations: a recursion without a user', 'invocations: a recursion without a user'],
  ],
  [
    `select "eval_runs"."status" from "eval_runs" left join (select from "eval_run_cases"
       left join "sessions" "s" on "s"."user_id" = "eval_run_cases"."session_user_id"
       where exists (select from "eval_runs" where "eval_runs"."id" = $1 and "eval_runs"."status" = 'done')) e on true`,
    ['eval_runs: a query by itself that has no columns'],
  ],
  [
    `select "id" from "jobs" where exists (select from "sessions" "s" where ${OF_USER})`,
    ['sessions: a query by itself that has no columns'],
  ],
  [
    `select (select count(*) from "jobs")::int as waiting, count(*) filter (where "job" is null)::int as others
       from "invocations" where "status" = 'running'`,
    ['invocations: an aggregate of all users beside a query'],
  ],
  [
    `update "invocations" set "status" = $1, "end_time" = now() where ctid = any(array(
       select ctid from "invocations" where "lease_expire_time" < now() limit 100))`,
    ['invocations: ends of several users, whose triggers cannot reach the coordinator'],
  ],
])('a distributed database refuses %s', (statement, faults) => {
  expect(spreadFaults(statement)).toEqual(faults);
});

test.each([
  `select from "sessions" "s" where ${OF_USER} for update`,
  `select "id" from "jobs" where exists (select 1 from "sessions" "s" where ${OF_USER}) for update skip locked`,
  `select from "sessions" "s" where exists (select from "tasks" "t" where "t"."user_id" = "s"."user_id")`,
  `with recursive tree as (select "i"."id" from "invocations" "i" where "i"."user_id" = $1) select from tree`,
  `select from "sessions" "s" where ${OF_USER} and exists (select 1 from "eval_runs" where "eval_runs"."id" = $2)`,
  `select count(*)::int from "invocations" where "status" = 'running'`,
  `select (select count(*) from "jobs"), count(*) from "invocations" where "invocations"."user_id" = $1`,
  `update "invocations" set "status" = $1 where "invocations"."user_id" = $2`,
])('a distributed database takes, of spread tables, %s', (statement) => {
  expect(spreadFaults(statement)).toEqual([]);
});

test('each of the hottest statements names the user of every spread table, or calls for one user', () => {
  const text = readFileSync(new URL('../docs/statements.sql', MIGRATIONS), 'utf8').replaceAll(/^--.*$/gm, '');
  const statements = text.split(/;\s*\n/).filter((each) => each.trim() !== '');
  expect(statements.length).toBeGreaterThan(10);
  for (const statement of statements) {
    const faults = [...dialectFaults(statement), ...routingFaults(statement), ...spreadFaults(statement)];
    expect(faults).toEqual([]);
    // The user comes by value, as an argument or as a condition.
    expect(statement).toMatch(/p_user => \$\d+|"user_id" = \$\d+|insert into "\w+" \(.*?"user_id"/s);
  }
});

const UNROUTED = `create or replace function claim_session(p_user text) returns int language plpgsql as $$
begin
  perform helped(p_user);
  update sessions s set lease_token = null where s.user_id = p_user;
end $$;
create or replace function helped(p_user text) returns void language plpgsql as $$
begin
  delete from events e where e.session_id = 's';
end $$;
do $$ begin perform 1 from pg_proc p where p.proname in ('claim_session'); call distribution_arg_name; end $$;`;

test('functions that run on the node of a user name that user for each spread table', () => {
  const distribute = readFileSync(new URL('citus/distribute.sql', MIGRATIONS), 'utf8');
  const texts = [...readSections(MIGRATIONS, true).map(({ text }) => text), distribute];
  // A budget of an application asks all nodes (docs/scale.md).
  expect(unroutedFunctions(texts)).toEqual([
    'budget_uses_of_app: budget_uses',
    'budget_uses_of_app: budget_reservations',
  ]);
  expect(unroutedFunctions([UNROUTED])).toEqual(['helped: events']);
});

test('each key of a spread table has its user in it, and each reference to one leads to rows of the same user', () => {
  const spread = Object.values(schema).flatMap((table) =>
    is(table, PgTable) && DISTRIBUTED_TABLES.includes(getTableName(table)) ? [getTableConfig(table)] : [],
  );
  expect(spread).toHaveLength(DISTRIBUTED_TABLES.length);
  const faults = spread.flatMap(({ name, primaryKeys, uniqueConstraints, indexes, foreignKeys, columns }) => [
    ...columns.filter(({ primary, isUnique }) => primary || isUnique).map((column) => `${name}: ${column.name} alone`),
    ...[...primaryKeys, ...uniqueConstraints]
      .filter((key) => !key.columns.some((column) => column.name === 'user_id'))
      .map((key) => `${name}: a key of ${key.columns.map((column) => column.name).join()}`),
    ...indexes
      .filter(
        ({ config }) =>
          config.unique && !config.columns.some((column) => 'name' in column && column.name === 'user_id'),
      )
      .map(({ config }) => `${name}: the index ${config.name}`),
    ...foreignKeys
      .map((key) => key.reference())
      .filter(({ foreignTable, columns: own, foreignColumns }) => {
        const place = own.findIndex((column) => column.name === 'user_id');
        return DISTRIBUTED_TABLES.includes(getTableName(foreignTable)) && foreignColumns[place]?.name !== 'user_id';
      })
      .map(({ foreignTable }) => `${name}: a reference to ${getTableName(foreignTable)}`),
  ]);
  expect(faults).toEqual([]);
});

test('what a conversation is made of is spread by user; what is looked at for all users stays on one node', () => {
  expect(DISTRIBUTED_TABLES).toEqual([
    'artifact_versions',
    'artifacts',
    'budget_alerts',
    'budget_reservations',
    'budget_uses',
    'eval_session_scores',
    'eval_verdicts',
    'event_deltas',
    'events',
    'idempotency_keys',
    'invocations',
    'memories',
    'session_verdicts',
    'sessions',
    'signals',
    'spans',
    'tasks',
    'tool_calls',
    'user_erasures',
    'user_states',
    'user_storage',
  ]);
});

test('migrations/citus/distribute.sql spreads and copies the tables that the code takes for spread and copied', () => {
  const text = readFileSync(new URL('citus/distribute.sql', MIGRATIONS), 'utf8');
  const listOf = (name: string) => {
    const list = new RegExp(`${name} constant text\\[\\] := array\\[(.*?)\\]`, 's').exec(text)?.[1] ?? '';
    const found = [...list.matchAll(/'(\w+)'/g)].map(([, table = '']) => table);
    return found.toSorted((one, other) => (one < other ? -1 : 1));
  };
  expect(listOf('of_users')).toEqual(DISTRIBUTED_TABLES);
  expect(listOf('copied')).toEqual(COPIED_TABLES);
});

test('no table of the coordinator refers to one that is spread: nothing would be deleted with its rows', () => {
  const references = Object.values(schema).flatMap((table) =>
    is(table, PgTable)
      ? getTableConfig(table).foreignKeys.map((key) => [table, key.reference().foreignTable].map(getTableName))
      : [],
  );
  expect(references.length).toBeGreaterThan(5);
  const isSpread = (name: string | undefined) => DISTRIBUTED_TABLES.includes(name ?? '');
  expect(references.filter(([from, to]) => isSpread(from) !== isSpread(to))).toEqual([]);
});

test('what runs on another node names no table of the coordinator and notifies nobody', () => {
  const distribute = readFileSync(new URL('citus/distribute.sql', MIGRATIONS), 'utf8');
  const texts = [...readSections(MIGRATIONS, true).map(({ text }) => text), distribute];
  const coordinatorTables = Object.values(schema)
    .flatMap((table) => (is(table, PgTable) ? [getTableName(table)] : []))
    .filter((name) => !DISTRIBUTED_TABLES.includes(name) && !COPIED_TABLES.includes(name));
  expect(nodeFaults(texts, coordinatorTables)).toEqual([
    // Only for what is remembered, whose job the coordinator adds there (finish-store.ts).
    'add_job: jobs',
    'add_job_lane: job_lanes',
    // Runs of cronjobs, which are refused on a cluster.
    'end_run: cronjobs',
    'leave_out_deleted_run: cronjobs',
    'leave_out_deleted_run: skipped_runs',
    // Not refused while the transaction is of one node, and heard by nobody: who looks after tasks, queues and stops looks again by time.
    'open_tasks: pg_notify',
    'pass_results: pg_notify',
    'queue_run: cronjobs',
    'queue_run: skipped_runs',
    'queue_run: pg_notify',
    'skip_runs: skipped_runs',
    'stop_children: pg_notify',
    'wake_runs: pg_notify',
  ]);
  // Without what the cluster has in their place, the ends of invocations are refused.
  const onOneServer = nodeFaults(texts.slice(0, -1), coordinatorTables);
  expect(onOneServer).toContain('insert_webhook_delivery: webhooks');
  expect(onOneServer).toContain('continue_job: eval_run_cases');
});

test('what a node calls on the coordinator asks no node; what a claim of jobs calls asks with a plan of its own', () => {
  const distribute = readFileSync(new URL('citus/distribute.sql', MIGRATIONS), 'utf8');
  const texts = [...readSections(MIGRATIONS, true).map(({ text }) => text), distribute];
  // The first text of a function is that of the coordinator, where nodes have another one.
  const textOf = (name: string) =>
    texts
      .flatMap((text) => text.match(new RegExp(`^create or replace function ${name}\\(.*?^end \\$\\$`, 'ms')) ?? [])
      .at(0) ?? '';
  const asksNodes = (name: string) =>
    DISTRIBUTED_TABLES.some((table) => new RegExp(`\\b(?:from|join|into|update) ${table}\\b`).test(textOf(name)));
  const carriedOut = [...textOf('carry_out_call').matchAll(/(?:perform|not) (\w+)\(/g)].map(([, name = '']) => name);
  // Citus 13.2.2 crashes at the commit of a call in which the coordinator wrote into a table of users.
  expect(carriedOut.length).toBeGreaterThan(2);
  expect(carriedOut.map((name) => name.replace(/_here$/, '')).filter(asksNodes)).toEqual([]);
  const works = ['delivery_work', 'evaluation_work', 'score_work'].filter(asksNodes);
  expect(works).toEqual(['evaluation_work']);
  // Otherwise: could not create distributed plan.
  for (const name of works)
    expect(distribute).toContain(`alter function ${name} set plan_cache_mode = force_custom_plan`);
});

test('a file of migrations/citus stands in for one of the same name, with the same functions', () => {
  const functionsOf = (isOnCluster: boolean) =>
    readSections(MIGRATIONS, isOnCluster).map(({ file, text }) => ({
      file,
      names: [...text.matchAll(/^create or replace function (\w+)/gm)].map(([, name = '']) => name).toSorted(),
    }));
  expect(functionsOf(true)).toEqual(functionsOf(false));
  const textOf = (isOnCluster: boolean) =>
    readSections(MIGRATIONS, isOnCluster).find(({ file }) => file === 'functions/single_server.sql')?.text;
  expect(textOf(true)).not.toBe(textOf(false));
});
