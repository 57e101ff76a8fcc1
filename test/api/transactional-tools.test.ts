import { randomBytes } from 'node:crypto';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from 'pg';
import { afterEach, beforeEach, describe, expect, inject, test } from 'vitest';
import type { PreparedAgent } from '../../src/agent/definition/agent.ts';
import { agentTool } from '../../src/agent/loop/agent-tree.ts';
import type { Tool, ToolContext } from '../../src/agent/definition/tool.ts';
import type { Part } from '../../src/core/content.ts';
import { defineTool } from '../../src/agent/definition/agent-module.ts';
import { createLog } from '../../src/platform/log.ts';
import { readSections } from '../../src/platform/db/repeatable.ts';
import { hostScript } from '../support/agents.ts';
import { MIGRATIONS } from '../support/migrations.ts';
import { client, startOn, type TestApp } from '../support/app.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';

/** Tools whose effect is committed together with their response, in a schema and a role of their own. */

const call = (name: string, id = name, args = {}): Part => ({ functionCall: { id, name, args } });
const parameters = { type: 'object', properties: {} };
const transactional = (name: string, run: Tool['run'], more: Partial<Tool> = {}) =>
  defineTool({ name, description: 'Writes rows.', transactional: true, parameters, run, ...more });
const insert = (item: string, { sql, functionCallId }: ToolContext) =>
  sql('insert into orders (id, item) values ($1, $2) returning item', [functionCallId, item]);

const ORDERS = `
  create table orders (id text primary key, item text, owner text default current_setting('agent_runtime.user'))`;
const role = `tools_${randomBytes(4).toString('hex')}`;

/** Works with the URL of a role that is only a member of that of the tools. */
async function withToolsRole(work: (url: string) => Promise<void>): Promise<void> {
  await sql.query(`create role ${role} login password 'geheim'`);
  const made = 'do $$ begin create role agent_runtime_tools; exception when duplicate_object then null; end $$';
  try {
    await sql.query(`${made}; grant agent_runtime_tools to ${role}`);
    await work(Object.assign(new URL(database.url), { username: role, password: 'geheim' }).href);
  } finally {
    for (const close of running.splice(0)) await close();
    await sql.query(`drop role ${role}`);
  }
}

let agents: string;
let database: TestDatabase;
let sql: Client;
const running: (() => Promise<void>)[] = [];
beforeEach(async () => {
  agents = mkdtempSync(join(tmpdir(), 'agent-runtime-tools-'));
  write('0001.sql', `${ORDERS};`);
  database = await createTestDatabase();
  sql = new Client({ connectionString: database.url });
  await sql.connect();
});
afterEach(async () => {
  for (const close of running.splice(0)) await close();
  await sql.end();
  await database.drop();
  rmSync(agents, { recursive: true });
});

function write(file: string, text: string): void {
  mkdirSync(join(agents, 'harness_agent', 'migrations'), { recursive: true });
  writeFileSync(join(agents, 'harness_agent', 'migrations', file), text);
}

async function start(
  script: Part[][],
  tools: Tool[],
  settings = {},
  change = (prepared: PreparedAgent) => prepared,
  onLine?: (line: string) => void,
): Promise<Pick<TestApp, 'get' | 'post'>> {
  const log = onLine && createLog('warn', { write: onLine });
  const overrides = {
    agents: hostScript([...script, [{ text: 'done' }]], tools),
    sweepIntervalMs: 50,
    ...(log && { log }),
  };
  for (const [name, hosted] of overrides.agents)
    overrides.agents.set(name, { ...hosted, prepare: async (...given) => change(await hosted.prepare(...given)) });
  const environment = { AGENTS_DIR: agents, ...settings };
  const runtime = await startOn(database.url, environment, overrides);
  running.push(() => runtime.close());
  return client(runtime.url);
}

const ask = async (app: Pick<TestApp, 'post'>, userId = 'u') => {
  await app.post(`/apps/harness_agent/users/${userId}/sessions`, { sessionId: 's' });
  const newMessage = { role: 'user', parts: [{ text: 'Buy.' }] };
  return app.post('/run', { appName: 'harness_agent', userId, sessionId: 's', newMessage });
};
const responsesOf = async (app: Pick<TestApp, 'get'>, userId = 'u') => {
  const { body } = await app.get(`/apps/harness_agent/users/${userId}/sessions/s`);
  const { events } = body as { events: { content?: { parts: Part[] } }[] };
  return events.flatMap(({ content }) =>
    (content?.parts ?? []).flatMap(({ functionResponse: given }) => (given ? [given.response] : [])),
  );
};
const orders = async () => (await sql.query('select id, item, owner from agent_tools.orders order by id')).rows;
const ledger = async () =>
  (await sql.query('select call_id, state, effect, attempt, response from tool_calls order by call_id')).rows;

describe('a transactional tool', () => {
  test('commits a response that is too large for a prompt with its rows too, as an artifact', async () => {
    const order = transactional('order', async (_, context) => {
      await insert('tea', context);
      return 'tea '.repeat(40_000);
    });
    const read = call('read_result', 'read', { handle: 'order', offset: 159_992 });
    const app = await start([[call('order')], [read]], [order]);
    await ask(app);
    const [stub, piece] = await responsesOf(app);
    expect(stub).toMatchObject({ handle: 'order', characters: 160_000 });
    expect(piece).toMatchObject({ text: 'tea tea ' });
    const together = 'select v.xmin = o.xmin as same from artifact_versions v, agent_tools.orders o';
    expect((await sql.query(together)).rows).toEqual([{ same: true }]);
  });

  test('commits its rows with its response: both are there, or neither', async () => {
    const [begun, released] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const order = transactional('order', async (_, context) => {
      const [row] = await insert('tea', context);
      begun.resolve();
      await released.promise;
      context.actions.stateDelta = { ordered: 1 };
      return row;
    });
    const app = await start([[call('order')]], [order]);
    const asked = ask(app);
    await begun.promise;
    expect(await orders()).toEqual([]);
    released.resolve();
    await asked;
    expect(await orders()).toEqual([{ id: 'order', item: 'tea', owner: 'u' }]);
    expect(await responsesOf(app)).toEqual([{ item: 'tea' }]);
    expect(await ledger()).toEqual([
      { call_id: 'order', state: 'done', effect: 'transactional', attempt: 1, response: null },
    ]);
  });

  test('reads JSON from its tables as it wrote it, with the characters by which the service escapes its own', async () => {
    const value = { t: '\uE0000041 \uE0000000' };
    const reads = transactional('reads', async (_, context) => {
      const [row] = await context.sql('select $1::jsonb as value', [value]);
      return row;
    });
    const app = await start([[call('reads')]], [reads]);
    await ask(app);
    expect(await responsesOf(app)).toEqual([{ value }]);
  });

  test('leaves nothing where it throws, also where it has caught what a statement threw', async () => {
    const late: Promise<unknown>[] = [];
    const fails = transactional('fails', async (_, context) => {
      await insert('tea', context);
      throw new Error('There is no tea.');
    });
    const goesOn = transactional('goes_on', async (_, context) => {
      await insert('tea', context);
      await context.sql('insert into nowhere values (1)').catch(() => undefined);
      return 'all is well';
    });
    const keeps = transactional('keeps', async (_, context) => {
      const { sql: send } = context;
      late.push(new Promise((resolve) => setImmediate(resolve)).then(() => send('select 1')));
      late[0]?.catch(() => undefined);
    });
    const app = await start([[call('fails'), call('goes_on')], [call('keeps')]], [fails, goesOn, keeps]);
    await ask(app);
    expect(await orders()).toEqual([]);
    const aborted = { error: 'A statement of the tool failed, so nothing of it was kept.' };
    expect(await responsesOf(app)).toEqual([{ error: 'There is no tea.' }, aborted, { result: null }]);
    await expect(late[0]).rejects.toThrow('The transaction of this call is over');
    expect((await ledger()).map(({ state }: { state: string }) => state)).toEqual(['done', 'done', 'done']);
  });

  test('sees the tables of the tools alone, and cannot leave its transaction', async () => {
    const statements = [
      'select * from public.sessions',
      'select * from public.tool_calls',
      'delete from agent_runtime_migrations',
      'create table more (n int)',
      'commit',
      '/* */ commit',
      'select 1; commit',
      'do $$ begin commit; end $$',
      'reset role',
      `select set_config('role', 'none', true)`,
    ];
    const heard: string[] = [];
    const tries = transactional('tries', async ({ statement }, { sql: send }) => {
      await send(String(statement)).catch((error: Error) => heard.push(error.message));
    });
    const script = statements.map((statement, n) => [call('tries', `t${n}`, { statement })]);
    await ask(await start(script, [tries]));
    const allowed = expect.stringMatching(/^Only select, insert, /) as unknown;
    const denied = expect.stringMatching(/^permission denied for table /) as unknown;
    const two = 'cannot insert multiple commands into a prepared statement';
    expect(heard).toEqual([denied, denied, denied, allowed, allowed, allowed, two, allowed, allowed, allowed]);
  });

  test('has a role that not even a function of its schema leaves, where DATABASE_TOOLS_URL names one', async () => {
    write(
      '0002.sql',
      `create function leave() returns int language plpgsql as $$
       begin perform set_config('role', 'none', true); return (select count(*) from public.sessions); end $$`,
    );
    await withToolsRole(async (url) => {
      const leaves = transactional('leaves', async (_, { sql: send }) => send('select leave()'));
      const needs = /needs the right to act as agent_runtime_tools/;
      const settings = { DATABASE_TOOLS_URL: url };
      await sql.query(`revoke agent_runtime_tools from ${role}`);
      await expect(start([[call('leaves')]], [leaves], settings)).rejects.toThrow(needs);
      await sql.query(`grant agent_runtime_tools to ${role}`);
      const app = await start([[call('leaves')]], [leaves], settings);
      await ask(app);
      expect(await responsesOf(app)).toEqual([{ error: 'permission denied for table sessions' }]);
    });
  });

  test('writes for the user of its session: policies of its tables keep users apart', async () => {
    write(
      '0002.sql',
      `alter table orders enable row level security;
       create policy own on orders using (owner = current_setting('agent_runtime.user'));`,
    );
    const order = transactional('order', async (_, context) => {
      await context.sql('insert into orders (id, item) values ($1, $2)', [context.session.userId, 'tea']);
      return context.sql('select id from orders');
    });
    const app = await start([[call('order')], [{ text: 'one' }], [call('order')]], [order]);
    await ask(app, 'one');
    await ask(app, 'two');
    expect(await responsesOf(app, 'one')).toEqual([{ result: [{ id: 'one' }] }]);
    expect(await responsesOf(app, 'two')).toEqual([{ result: [{ id: 'two' }] }]);
    expect(await orders()).toHaveLength(2);
    // The page says how their owner exports and erases them.
    const page = readFileSync(new URL('../../docs/durability.md', import.meta.url), 'utf8');
    const statements = [...page.matchAll(/`((?:select|delete) [^`]*from agent_tools[^`]*)`/g)];
    const [exporting = '', erasing = ''] = statements.map(([, text = '']) => text.replace("'u1'", "'one'"));
    expect((await sql.query(exporting)).rows).toEqual([{ to_json: { id: 'one', item: 'tea', owner: 'one' } }]);
    await sql.query(erasing);
    expect(await orders()).toEqual([{ id: 'two', item: 'tea', owner: 'two' }]);
  });

  test('is cut off by a cancellation: nothing of it is kept, which is known', async () => {
    const begun = Promise.withResolvers<void>();
    const order = transactional('order', async (_, context) => {
      await insert('tea', context);
      begun.resolve();
      return new Promise(() => undefined);
    });
    const app = await start([[call('order')]], [order]);
    const asked = ask(app);
    await begun.promise;
    const [{ id } = { id: '' }] = (await sql.query<{ id: string }>('select id from invocations')).rows;
    await app.post(`/apps/harness_agent/users/u/sessions/s/invocations/${id}/cancel`, {});
    await asked;
    expect(await orders()).toEqual([]);
    expect(await ledger()).toMatchObject([{ state: 'done' }]);
  });

  test('runs again in the next process, where the one before cannot commit any more', async () => {
    const [begun, released] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    let runs = 0;
    const order = transactional('order', async (_, context) => {
      runs += 1;
      if (runs > 1) return insert(`tea ${runs}`, context);
      begun.resolve();
      await released.promise;
      return context.sql(`insert into orders (id, item) values ('late', 'tea 1')`);
    });
    const app = await start([[call('order')]], [order]);
    const lost = ask(app);
    await begun.promise;
    await sql.query(`update invocations set lease_expire_time = now() - interval '1 second'`);
    const status = async () => (await sql.query('select status from invocations')).rows as unknown;
    await expect.poll(status).toEqual([{ status: 'succeeded' }]);
    released.resolve();
    expect((await lost).status).toBe(503);
    expect((await orders()).map(({ item }: { item: string }) => item)).toEqual(['tea 2']);
    expect(await ledger()).toMatchObject([{ state: 'done', attempt: 2 }]);
  });

  test('commits its rows alone inside of an agent that is a tool: that one acts once', async () => {
    const order = transactional('order', async (_, context) => insert('tea', context));
    const script = [[call('buyer', 'ask', { request: 'Tea.' })], [call('order')], [{ text: 'ordered' }]];
    const app = await start(script, [order], {}, (prepared) => ({
      ...prepared,
      tools: [agentTool({ ...prepared, name: 'buyer' })],
    }));
    await ask(app);
    expect(await orders()).toHaveLength(1);
    expect(await ledger()).toMatchObject([
      { call_id: 'ask', effect: 'once', state: 'done' },
      { call_id: 'order', effect: 'transactional', state: 'done' },
    ]);
  });

  test('is not unknown where no other process may go on', async () => {
    const begun = Promise.withResolvers<void>();
    const order = transactional('order', async (_, context) => {
      await insert('tea', context);
      begun.resolve();
      return new Promise(() => undefined);
    });
    const app = await start([[call('order')]], [order], { INVOCATION_ATTEMPTS: '1' });
    void ask(app);
    await begun.promise;
    await sql.query(`update invocations set lease_expire_time = now() - interval '1 second'`);
    const status = async () => (await sql.query('select status from invocations')).rows as unknown;
    await expect.poll(status).toEqual([{ status: 'interrupted' }]);
    expect(await orders()).toEqual([]);
    expect(await ledger()).toMatchObject([{ state: 'done' }]);
  });

  test('keeps nothing where its connection ends before the commit, and says so', async () => {
    const order = transactional('order', async (_, context) => insert('tea', context));
    write(
      '0002.sql',
      `create function cut() returns trigger language plpgsql security definer as $$
      begin perform pg_terminate_backend(pg_backend_pid()); return null; end $$;
      create constraint trigger cut after insert on orders deferrable initially deferred
      for each row execute function cut();`,
    );
    const app = await start([[call('order')]], [order]);
    await ask(app);
    expect(await orders()).toEqual([]);
    const away = { error: expect.stringMatching(/nothing of this call was kept|terminating connection/) as string };
    expect(await responsesOf(app)).toEqual([away]);
  });

  test('waits while others work for longer than a connection may take to open', async () => {
    const released = Promise.withResolvers<void>();
    let begun = 0;
    const order = transactional('order', async (_, context) => {
      begun += 1;
      await released.promise;
      return insert('tea', context);
    });
    const script = Array.from({ length: 5 }, (_, n) => [call('order', `o${n}`)]);
    // A connection may take half of the time of a statement.
    const app = await start(script, [order], { DATABASE_STATEMENT_TIMEOUT_MS: '6000' });
    const asked = script.map((_, n) => ask(app, `u${n}`));
    const called = `select count(*)::int as n from events where payload @? '$.content.parts[*].functionCall'`;
    await expect.poll(async () => (await sql.query(called)).rows).toEqual([{ n: 5 }]);
    await expect.poll(() => begun).toBe(4);
    await sleep(3_500);
    released.resolve();
    await Promise.all(asked);
    expect(await orders()).toHaveLength(5);
  });

  test('waits in turn: the slow ones of one user leave connections to others', async () => {
    const released = Promise.withResolvers<void>();
    let begun = 0;
    const slow = transactional('slow', async (_, context) => {
      begun += 1;
      await context.sql('select 1');
      if (context.session.userId === 'slow') await released.promise;
      return insert('tea', context);
    });
    const many = Array.from({ length: 6 }, (_, n) => call('slow', `s${n}`));
    const app = await start([many, [call('slow', 'quick')], [{ text: 'quick is done' }]], [slow]);
    const asked = ask(app, 'slow');
    await expect.poll(() => begun).toBe(2);
    await ask(app, 'quick');
    expect(await responsesOf(app, 'quick')).toEqual([{ result: [{ item: 'tea' }] }]);
    expect(begun).toBe(3);
    released.resolve();
    await asked;
    expect(await orders()).toHaveLength(7);
  });
});

describe('its tables', () => {
  test('are made by the files of its folder, each once; a changed one is refused', async () => {
    const order = transactional('order', async (_, context) => insert('tea', context));
    await start([], [order]);
    write('0002.sql', `insert into orders values ('1', 'tea', 'u'), ('2', 'tea', 'u');`);
    await expect(start([], [order], { MIGRATE: 'check' })).rejects.toThrow(
      /its schema agent_tools lacks harness_agent\/migrations\/0002\.sql\. Apply the migrations/,
    );
    await start([], [order]);
    await start([], [order]);
    expect(await orders()).toHaveLength(2);
    write('0001.sql', `${ORDERS}; -- changed`);
    await expect(start([], [order])).rejects.toThrow(
      /another text of harness_agent\/migrations\/0001\.sql was applied/,
    );
  });

  test('are made wholly or not at all, with the reason', async () => {
    write('0002.sql', 'create table more (n int); create table orders (n int);');
    const refused = /0001\.sql, .*0002\.sql missing, and could not be applied: relation "orders" already exists/;
    await expect(start([], [])).rejects.toThrow(refused);
    expect((await sql.query(`select to_regnamespace('agent_tools') as found`)).rows).toEqual([{ found: null }]);
  });

  test('are missed at the start by a tool that has none', async () => {
    rmSync(join(agents, 'harness_agent'), { recursive: true });
    const order = transactional('order', async () => undefined);
    const needs =
      'a tool is `transactional`, and needs its schema agent_tools: write agents/<name>/migrations/0001.sql';
    await expect(start([], [order])).rejects.toThrow(needs);
  });

  test('are refused on a cluster in words, and so is a tool without any', async () => {
    const order = transactional('order', async () => undefined);
    if (inject('workerUrls').length === 0) await start([], []);
    // What tells a cluster, whose tables are all on it: the row and the table that `create extension` makes, and
    // the sections of migrations that a cluster has.
    const pretend = `create view pg_dist_partition as select oid as logicalrelid from pg_class;
      set allow_system_table_mods = on;
      insert into pg_extension (oid, extname, extowner, extnamespace, extrelocatable, extversion)
      select 4000000000, 'citus', extowner, extnamespace, false, '0' from pg_extension where extname = 'plpgsql'`;
    if (inject('workerUrls').length === 0) {
      await sql.query(pretend);
      for (const { names, hash } of readSections(MIGRATIONS, true))
        await sql.query(`update agent_runtime_repeatables set hash = $2 where name = any($1)`, [names, hash]);
    }
    const files = 'it is a cluster, where tools have no tables of their own: remove harness_agent/migrations/0001.sql';
    await expect(start([], [order])).rejects.toThrow(files);
    rmSync(join(agents, 'harness_agent'), { recursive: true });
    const refused = 'it is a cluster, where a tool cannot be `transactional`: its rows would be on other nodes';
    await expect(start([], [order])).rejects.toThrow(refused);
  });

  test('are made by the role that owns the tables, for one that owns nothing', async () => {
    const name = randomBytes(4).toString('hex');
    const [owner, server] = [`owner_${name}`, `server_${name}`];
    const empty = new URL(database.url);
    const urlOf = (user: string) => Object.assign(new URL(empty), { username: user, password: 'geheim' }).href;
    await sql
      .query(`create role ${owner} login password 'geheim'; create role ${server} login password 'geheim';
      grant create on database ${empty.pathname.slice(1)} to ${owner}; create role agent_runtime_tools`)
      .catch(() =>
        sql.query(`create role ${owner} login password 'geheim'; create role ${server} login password 'geheim';
      grant create on database ${empty.pathname.slice(1)} to ${owner}`),
      );
    const order = transactional('order', async (_, context) => insert('tea', context));
    const [theirs, settings] = [database.url, { DATABASE_MIGRATION_URL: urlOf(owner), DATABASE_SCHEMA: 'own' }];
    database = { ...database, url: urlOf(server) };
    try {
      const advice = `As a superuser: create role agent_runtime_tools; grant agent_runtime_tools to "${server}";`;
      await expect(start([[call('order')]], [order], settings)).rejects.toThrow(advice);
      await sql.query(`grant agent_runtime_tools to ${server}`);
      const app = await start([[call('order')]], [order], settings);
      await ask(app);
      expect(await responsesOf(app)).toEqual([{ result: [{ item: 'tea' }] }]);
      await start([], [order], { DATABASE_SCHEMA: 'own' });
      expect((await sql.query('select id from own_tools.orders')).rows).toEqual([{ id: 'order' }]);
      expect((await sql.query('select state from own.tool_calls')).rows).toEqual([{ state: 'done' }]);
    } finally {
      for (const close of running.splice(0)) await close();
      database = { ...database, url: theirs };
      await sql.query(`drop owned by ${owner}, ${server} cascade; drop role ${owner}, ${server}`);
    }
  });
});

/** Statements that a model sends to leave its user, hold up others, or outlive its call; all are refused. */
const SETTING = `U&"set\\005fconfig"('agent_runtime.user', 'bob', true)`;
const READ = `(select json_agg(item) from orders)`;
const HOSTILE: Record<string, string[]> = {
  'a setting, in every place of a statement': [
    `select ${SETTING}`,
    `select pg_catalog.${SETTING}, ${READ}, set_config('agent_runtime.user', 'alice', true)`,
    `select "set_config"(is_local => true, setting_name => 'agent_runtime.user', new_value => 'bob'), ${READ}`,
    `select/**/set_config('agent_runtime.user', 'bob', true)`,
    `select item from orders where ${SETTING} = 'bob'`,
    `select item from orders order by ${SETTING}`,
    `select item from orders limit length(${SETTING})`,
    `select count(*) filter (where ${SETTING} = 'bob') from orders`,
    `select count(*) over (order by ${SETTING}) from orders`,
    `select count(*) from orders group by ${SETTING}`,
    `select o.item from lateral (select ${SETTING}) s, lateral ${READ} o (item)`,
    `select * from rows from (set_config('agent_runtime.user', 'bob', true)) s, orders`,
    `with s as materialized (select ${SETTING} u) select s.u, ${READ} from s`,
    `with recursive s (u) as (select ${SETTING} union select u from s) select u, ${READ} from s`,
    `values (${SETTING}, ${READ})`,
    `insert into orders (id, item) values ('x', ${SETTING}) returning ${READ}`,
    `insert into orders (id, item) values ('of alice', '') on conflict (id) do update set item = ${SETTING}`,
    `update orders set item = ${SETTING} returning ${READ}`,
    `delete from orders where ${SETTING} = '' returning ${READ}`,
    `select case when true then coalesce(nullif(${SETTING}, ''), '') end, array[${SETTING}], row(${SETTING})`,
    `select xmlelement(name a, ${SETTING}), ${READ}`,
    `select * from orders tablesample bernoulli (length(${SETTING}))`,
    `select set_config('statement_timeout', '0', true)`,
    `select set_config('role', 'none', true), ${READ}`,
    `update pg_settings set setting = '0' where name = 'statement_timeout'`,
    `with s as (update U&"pg\\005fsettings" set setting = 'bob' where name = 'lock_timeout' returning 1) select 1 from s`,
    'table pg_settings',
  ],
  'a text that is carried out': [
    `select query_to_xml('select set_' || 'config(''agent_runtime.user'', ''bob'', true)', true, false, '')`,
    `select query_to_xml_and_xmlschema('select item from orders', true, false, '')`,
    `select query_to_xmlschema('select 1', true, false, '')`,
    `select table_to_xml('pg_stat_activity', true, false, '')`,
    `select schema_to_xml('agent_tools', true, false, '')`,
    `select database_to_xml(true, false, '')`,
    `select cursor_to_xml('c', 1, true, false, '')`,
    `select * from ts_stat('select to_tsvector(set_config(''agent_runtime.user'', ''bob'', true))')`,
    `select ts_rewrite('a'::tsquery, 'select ''a''::tsquery, ''b''::tsquery')`,
  ],
  'what holds up others, and what they see or hear': [
    `select pg_advisory_lock(hashtextextended('webhook deliveries', 0))`,
    `select U&"pg\\005fadvisory_xact_lock"(1, 2)`,
    'select pg_try_advisory_lock_shared(1)',
    `select pg_notify('agent_runtime', 'x')`,
    'select pg_terminate_backend(pid) from pg_locks',
    'select pg_cancel_backend(pid) from pg_locks',
    'select query from pg_stat_activity',
    'select query from U&"pg\\005fstat_activity"',
    'select query from pg_stat_get_activity(null)',
    'select pg_stat_get_backend_activity(1)',
    `select pg_logical_emit_message(false, 'a', 'b')`,
    'select pg_export_snapshot()',
  ],
  'files and large objects': [
    `select pg_read_file('/etc/passwd')`,
    `select pg_ls_dir('/')`,
    `select lo_from_bytea(0, 'x')`,
    `select lo_import('/etc/passwd')`,
    'select 1 into temp kept',
    'select 1 into kept',
  ],
  'functions of the service': [
    `select * from public.claim_session(null, null, null, null, null)`,
    `select * from public.keep_answer('a', 'b', 'c', 'd', gen_random_uuid(), '[]', null)`,
  ],
  'another command': [
    'commit',
    'rollback',
    'begin',
    'savepoint a',
    `prepare transaction 'a'`,
    'end',
    'discard all',
    'reset all',
    'set role none',
    `set local agent_runtime.user = 'bob'`,
    'set session authorization default',
    'listen a',
    `notify agent_runtime, 'x'`,
    'lock table orders',
    'create temp table kept (n int)',
    'prepare a as select 1',
    `copy orders to program 'true'`,
    'copy orders to stdout',
    'do $$ begin end $$',
    `load 'a'`,
    'checkpoint',
    'declare c cursor with hold for select 1',
    'execute a',
    'call a()',
    'vacuum',
    'alter role postgres set a.b = 1',
    `explain analyze select ${SETTING}`,
    'select 1; commit',
    'select 1; end; commit',
    'select 1\0; commit',
    'select 1; select 2',
    'select 1 \\; commit',
    `create function f() returns int language sql as 'select 1'`,
  ],
};
const REFUSED =
  /is not for tools\.$|^A statement of the tool failed|^Only select|^permission denied|multiple commands|syntax error|is not allowed here|does not exist|message/;

describe.each(['DATABASE_URL', 'DATABASE_TOOLS_URL'])('SQL of a model, with the role of %s', (setting) => {
  const sends = transactional('sends', async ({ statements }, { sql: send }) => {
    const heard: string[] = [];
    for (const text of statements as string[])
      heard.push(
        await send(text).then(
          (rows) => `rows ${JSON.stringify(rows)}`,
          (error: Error) => error.message,
        ),
      );
    return heard;
  });
  /** What the tool heard when each of the statements was sent in a call of its own. */
  async function hear(statements: string[][], warnings: string[] = []): Promise<string[][]> {
    write(
      '0002.sql',
      `insert into orders values ('of alice', 'tea', 'alice'), ('of bob', 'secret of bob', 'bob');
       alter table orders enable row level security;
       create policy own on orders using (owner = current_setting('agent_runtime.user'));
       create function act_as(name text) returns text language sql volatile as
         $$ select set_config('agent_runtime.user', name, true) $$;`,
    );
    const all: string[][] = [];
    const work = async (settings = {}) => {
      const calls = statements.map((each, n) => call('sends', `t${n}`, { statements: each }));
      const app = await start([calls], [sends], settings, undefined, (line) => warnings.push(line));
      await ask(app, 'alice');
      const responses = (await responsesOf(app, 'alice')) as { result?: string[]; error?: string }[];
      all.push(...responses.map(({ result, error = '' }) => result ?? [error]));
    };
    await (setting === 'DATABASE_URL' ? work() : withToolsRole((url) => work({ DATABASE_TOOLS_URL: url })));
    return all;
  }

  test.each(Object.entries(HOSTILE))('refuses %s', async (_, statements) => {
    const heard = await hear([...statements.map((each) => [each]), [`select item from orders`]]);
    expect(heard.at(-1)).toEqual(['rows [{"item":"tea"}]']);
    const taken = statements.filter((_each, n) => !REFUSED.test(heard[n]?.[0] ?? ''));
    expect(taken).toEqual([]);
    expect(JSON.stringify(heard)).not.toContain('secret of bob');
    // The locks that the statements ask for; the service's own sweeps hold others.
    const { rows } = await sql.query(`select pg_try_advisory_xact_lock(hashtextextended('webhook deliveries', 0))
      and pg_try_advisory_xact_lock(1, 2) and pg_try_advisory_xact_lock(1) as are_free`);
    expect(rows).toEqual([{ are_free: true }]);
    expect((await sql.query(`select from pg_class where relname = 'kept'`)).rowCount).toBe(0);
  });

  test('takes what reads and writes rows, however it is written', async () => {
    const statements = [
      'select count(*) from orders',
      `select ':funcid 2077' as ":funcid 2077", '}' as "({" from orders -- the end`,
      `insert into orders (id, item) values (gen_random_uuid(), clock_timestamp()::text || random()) returning item;`,
      `with more as (insert into orders (id, item) values ('b', 'milk') returning *) select item from more`,
      `merge into orders o using (values ('b', 'cream')) v (id, item) on o.id = v.id
       when matched then update set item = v.item`,
      `select o.* from orders o where item ~ 'e' for update`,
      `select table_name from information_schema.tables where table_schema = 'agent_tools'`,
      `delete from orders where id = 'b' returning item`,
    ];
    const heard = (await hear(statements.map((each) => [each]))).flat();
    const [{ version } = { version: 0 }] = (
      await sql.query<{ version: number }>(`select current_setting('server_version_num')::int as version`)
    ).rows;
    const failed = heard.filter((each, n) => !each.startsWith('rows ') && !(version < 150_000 && n === 4));
    expect(failed).toEqual([]);
  });

  test('keeps nothing where a function of the tools has changed a setting, whatever is done about it', async () => {
    const [heard, next] = await hear([
      [
        `insert into orders (id, item) values ('lost', 'x') returning item`,
        `select act_as('bob')`,
        `select act_as('alice')`,
      ],
      ['select item from orders'],
    ]);
    expect(heard).toEqual(['A setting was changed, so nothing of this call is kept: agent_runtime.user.']);
    expect(next).toEqual(['rows [{"item":"tea"}]']);
    expect((await orders()).map(({ id }: { id: string }) => id)).toEqual(['of alice', 'of bob']);
  });

  test('is said to be kept by this check alone, where its role could do more', async () => {
    const warnings: string[] = [];
    await hear([['select 1']], warnings);
    const alone = warnings.filter((line) => line.includes('by the check of its statements alone'));
    expect(alone).toHaveLength(setting === 'DATABASE_URL' ? 1 : 0);
  });
});

test('a notification of another role that is none does no harm', async () => {
  const app = await start([], []);
  for (const payload of ['x', '{}', '7', 'null', '[1, {}, null]', ''])
    await sql.query(`select pg_notify('agent_runtime', $1)`, [payload]);
  expect((await app.get('/ready')).status).toBe(200);
});
