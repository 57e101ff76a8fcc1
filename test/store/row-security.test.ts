import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { sql } from 'drizzle-orm';
import { Client } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { runAsUser } from '../../src/platform/context.ts';
import { type Database, type DatabasePool, openDatabase } from '../../src/platform/db/database.ts';
import { migrateDatabase } from '../../src/platform/db/migrate.ts';
import { prepareRowSecurity } from '../../src/platform/db/row-security.ts';
import { deleteSessionCases } from '../../src/features/evals/erase-store.ts';
import { insertEvalSet } from '../../src/features/evals/sets/eval-set-store.ts';
import { insertEvalCase } from '../../src/features/evals/cases/eval-case-store.ts';
import { insertEvalRun } from '../../src/features/evals/runs/eval-run-store.ts';
import { HistoryCache } from '../../src/conversation/sessions/history.ts';
import { deleteSession, insertSession } from '../../src/conversation/sessions/session-store.ts';
import { testDatabase } from '../support/database.ts';
import { poolOptions, textEvent } from '../support/store.ts';
import { MINUTE } from '../support/patience.ts';

/** The database keeps users apart where a statement forgot to. */

const database = testDatabase();
let client: Client;
/** One pool as the operator's superuser, one as a role that owns nothing: both are held to it. */
const pools: Record<string, DatabasePool> = {};
const prepared: Record<string, object> = {};
const SERVER = 'row_security_test_server';

beforeAll(async () => {
  client = new Client({ connectionString: database.url });
  await client.connect();
  await client.query(`
    do $$ begin create role ${SERVER} login password 'geheim'; exception when duplicate_object then null; end $$;
    grant select, insert, update, delete on all tables in schema public to ${SERVER}`);
  const plain = new URL(database.url);
  [plain.username, plain.password] = [SERVER, 'geheim'];
  for (const [name, url] of Object.entries({ superuser: database.url, plain: plain.href })) {
    const { isVoid, role } = await prepareRowSecurity({ url }, {});
    prepared[name] = { isVoid, role };
    pools[name] = openDatabase({
      url,
      security: { role },
      size: 4,
      statementTimeoutMs: MINUTE,
      lockTimeoutMs: MINUTE,
      maxStateKeys: 10_000,
      maxAppStateBytesPerUser: 65_536,
      maxStateBytes: 1e6,
      maxSessionBytes: 1e9,
      maxUserBytes: null,
      maxOpenTasks: 1_000,
      maxPendingDeliveries: 100,
      preparesStatements: true,
      connectTimeoutMs: MINUTE,
      onIdleError: () => undefined,
    });
  }
  for (const userId of ['alice', 'bob']) {
    const key = { appName: 'a', userId, sessionId: 's' };
    await insertSession(pool('superuser').db, key, { 'user:k': 1 }, [textEvent(`of ${userId}`)]);
  }
});
afterAll(async () => {
  for (const each of Object.values(pools)) await each.close();
  // Further databases of the server may hold rights of the role, so it stays.
  await client.end();
});

function pool(name: string): DatabasePool {
  const found = pools[name];
  if (!found) throw new TypeError(`no pool ${name}`);
  return found;
}

const roles = ['superuser', 'plain'];
const everybody = sql`select user_id as "user", payload #>> '{content,parts,0,text}' as said from events order by 1`;

test('a superuser serves users as another role, one that is held to it as itself', () => {
  expect(prepared).toEqual({
    superuser: { isVoid: false, role: 'agent_runtime_user' },
    plain: { isVoid: false, role: undefined },
  });
});

test('a serving role above it that may create no role serves users as the role that the migrator made', async () => {
  const above = 'row_security_test_above';
  await client.query(`
    do $$ begin create role ${above} login bypassrls password 'geheim';
    exception when duplicate_object then null; end $$;
    revoke agent_runtime_user from ${above}`);
  const url = new URL(database.url);
  [url.username, url.password] = [above, 'geheim'];
  expect(await prepareRowSecurity({ url: url.href }, {})).toEqual({ isVoid: true, role: undefined });
  await migrateDatabase({ url: database.url }, { servingRole: above });
  expect(await prepareRowSecurity({ url: url.href }, {})).toEqual({ isVoid: false, role: 'agent_runtime_user' });
});

/** Tables of evaluation say by other names whose a row is. */
const EVALUATION = ['eval_sets', 'eval_cases', 'eval_case_versions', 'eval_runs', 'eval_run_cases'];
/** What an application spent is the sum over its users: the statement of one of them compares it. They hold figures. */
const SUMMED = ['budget_alerts', 'budget_reservations', 'budget_uses', 'budgets'];

test('it is forced on every table with a user', async () => {
  const { rows } = await client.query<{ name: string; forced: boolean; policies: string }>(
    `
    select c.relname as name, c.relrowsecurity and c.relforcerowsecurity as forced, count(p.oid) as policies
    from pg_class c left join pg_policy p on p.polrelid = c.oid
    where c.relkind = 'r' and c.relnamespace = 'public'::regnamespace and (c.relname = any($1) or exists (
      select from pg_attribute a where a.attrelid = c.oid and a.attname = 'user_id' and not a.attisdropped))
    group by c.oid`,
    [EVALUATION],
  );
  expect(rows.length).toBeGreaterThan(15);
  const open = rows.filter(({ forced, policies }) => !forced || policies !== '1').map(({ name }) => name);
  expect(open.toSorted()).toEqual(SUMMED);
});

test.each(roles)('a statement that forgets its user reads no row of another (%s)', async (role) => {
  const { db, reads, ...rest } = pool(role);
  const own = [{ user: 'bob', said: 'of bob' }];
  expect((await runAsUser('bob', () => db.execute(everybody))).rows).toEqual(own);
  expect((await runAsUser('bob', () => reads.execute(everybody))).rows).toEqual(own);
  expect((await runAsUser('bob', () => rest.transaction((tx) => tx.execute(everybody)))).rows).toEqual(own);
  expect((await db.execute(everybody)).rows).toHaveLength(2);
  // With parameters, with the builder's arrays, and without any row.
  const [row] = (
    await runAsUser('bob', () => db.execute(sql`select count(*)::int as n from sessions where id = ${'s'}`))
  ).rows;
  expect(row).toEqual({ n: 1 });
  expect((await runAsUser('nobody', () => db.execute(everybody))).rows).toEqual([]);
});

test('the view of runs shows all to a superuser alone; to others those of the user, or all, that a setting names', async () => {
  await client.query(`
    insert into cronjobs (app_name, user_id, id, name, prompt, schedule, enabled, session_policy, missed_runs, overlap,
                          max_attempts, retry_pause_seconds, max_retry_pause_seconds, max_failures)
    select 'a', u, 'job of ' || u, 'n', 'p', '{}', false, 'new', 'once', 'skip', 1, 1, 1, 0 from unnest(array['alice', 'bob']) u`);
  await client.query(`
    insert into skipped_runs (app_name, user_id, cronjob_id, id, due_time, reason)
    select 'a', user_id, id, 'left out', now(), 'r' from cronjobs`);
  await client.query(`
    insert into invocations (app_name, user_id, session_id, id, status, lease_token, lease_expire_time, cronjob_id, run_id,
                             due_time, is_manual, try)
    select 'a', user_id, 's', 'i', 'queued', gen_random_uuid(), now(), id, 'run', now() - interval '1 day', true, 1
    from cronjobs`);
  const seen = async (settings: string) => {
    await client.query(`begin; ${settings}`);
    const { rows } = await client.query<{ user_id: string }>('select user_id from cronjob_runs order by 1');
    await client.query('rollback');
    return rows.map(({ user_id: user }) => user);
  };
  const all = ['alice', 'alice', 'bob', 'bob'];
  const asServer = `set local role ${SERVER};`;
  expect(await seen('')).toEqual(all);
  expect(await seen(asServer)).toEqual([]);
  expect(await seen(`${asServer} set local agent_runtime.all_users = 'on'`)).toEqual(all);
  for (const role of [SERVER, 'agent_runtime_user'])
    expect(await seen(`set local role ${role}; set local agent_runtime."user" = 'bob'`)).toEqual(['bob', 'bob']);
  await client.query('delete from invocations; delete from cronjobs');
});

test.each(roles)('and changes none, and writes none in the name of another (%s)', async (role) => {
  const { db, ...rest } = pool(role);
  const change = sql`update sessions set state = '{"changed": true}'`;
  const forge = sql`insert into sessions (app_name, user_id, id) values ('a', 'alice', 'forged')`;
  expect((await runAsUser('bob', () => db.execute(change))).rowCount).toBe(1);
  expect((await runAsUser('bob', () => db.execute(sql`delete from user_states where app_name = 'x'`))).rowCount).toBe(
    0,
  );
  const refused = { cause: { message: 'new row violates row-level security policy for table "sessions"' } };
  await expect(runAsUser('bob', () => db.execute(forge))).rejects.toMatchObject(refused);
  await expect(runAsUser('bob', () => rest.transaction((tx) => tx.execute(forge)))).rejects.toMatchObject(refused);
  const { rows } = await client.query(`select user_id, state from sessions where id = 's' order by 1`);
  expect(rows[0]).toEqual({ user_id: 'alice', state: {} });
});

/** A set of a user with a case that was made of a session of another, and a run of it; `user` null: of a key. */
async function evaluate(db: Database, user: string | undefined, source: string) {
  const key = { appName: 'a', evalSetId: `set of ${user}`, ownerId: user };
  const evalCase = {
    evalId: `of ${source}`,
    conversation: [],
    sessionInput: { appName: 'a', userId: source, state: {} },
  };
  await insertEvalSet(db, key, { eval_cases: [] });
  await insertEvalCase(db, key, evalCase, { userId: source, sessionId: 's' });
  const cases = [{ evalId: evalCase.evalId, version: 1, userId: `test user of ${user}` }];
  const modes = { modelExecutionMode: 'live', toolExecutionMode: 'live' } as const;
  const run = { ...key, ...modes, runId: randomUUID(), requestedBy: user, metrics: [], userSimulator: null, cases };
  await insertEvalRun(db, { ...run, trials: 1, parallelism: 1, maxJudgeTokens: 1, agentHash: 'h', modelName: 'm' }, 4);
}

test.each(roles)('evaluation: a statement that forgets its user sees what is of the user alone (%s)', async (role) => {
  const { db } = pool(role);
  for (const user of ['alice', 'bob']) await runAsUser(user, () => evaluate(db, user, user));
  await evaluate(db, undefined, 'alice');
  const everything = sql`
    select (select array_agg(id order by id) from eval_sets) as sets, (select count(*)::int from eval_runs) as runs,
           (select array_agg(eval_set_id || ': ' || id order by 1) from eval_cases) as cases,
           (select array_agg(eval_set_id || ': ' || eval_id order by 1) from eval_case_versions) as versions,
           (select array_agg(eval_set_id || ': ' || eval_id order by 1) from eval_run_cases) as run_cases`;
  const seenBy = async (user: string) => (await runAsUser(user, () => db.execute(everything))).rows[0];
  const bobs = ['set of bob: of bob'];
  expect(await seenBy('bob')).toEqual({ sets: ['set of bob'], runs: 1, cases: bobs, versions: bobs, run_cases: bobs });
  // What the operator made of her session is about her: it goes with the session.
  const alices = ['set of alice: of alice', 'set of undefined: of alice'];
  expect(await seenBy('alice')).toEqual({
    sets: ['set of alice'],
    runs: 1,
    cases: alices,
    versions: alices,
    run_cases: alices,
  });
  const nothing = { sets: null, runs: 0, cases: null, versions: null, run_cases: null };
  expect(await seenBy('nobody')).toEqual(nothing);
  for (const table of EVALUATION) {
    const change = sql.raw(`update ${table} set create_time = create_time where app_name = 'a'`);
    const noTime = sql.raw(`update ${table} set place = place where app_name = 'a'`);
    const changed = await runAsUser('bob', () => db.execute(table === 'eval_run_cases' ? noTime : change));
    expect([table, changed.rowCount]).toEqual([table, 1]);
  }
  await runAsUser('bob', async () => {
    // The limit on open runs is that of the user, and a set of another is as absent.
    await expect(evaluate(db, 'bob', 'bob')).rejects.toThrow('already exists');
    const run = { appName: 'a', evalSetId: 'set of bob', runId: randomUUID(), requestedBy: 'bob', cases: [] };
    const rest = {
      metrics: [],
      userSimulator: null,
      trials: 1,
      parallelism: 1,
      maxJudgeTokens: 1,
      agentHash: 'h',
      modelName: 'm',
    };
    const modes = { modelExecutionMode: 'live', toolExecutionMode: 'live' } as const;
    await expect(insertEvalRun(db, { ...run, ...rest, ...modes }, 1)).rejects.toThrow('have not ended yet');
    const other = { appName: 'a', evalSetId: 'set of alice', ownerId: 'bob' };
    const evalCase = { evalId: 'forged', conversation: [], sessionInput: { appName: 'a', userId: 'bob', state: {} } };
    await expect(insertEvalCase(db, other, evalCase, { userId: 'bob', sessionId: 's' })).rejects.toThrow('not found');
    await expect(insertEvalSet(db, other, { eval_cases: [] })).rejects.toThrow('already exists');
  });
  // Her session goes, asked for by herself: so does what anybody made of it, and the runs about that.
  await runAsUser('alice', () => deleteSessionCases(db, { appName: 'a', userId: 'alice', sessionId: 's' }));
  const { rows } = await db.execute(everything);
  expect(rows[0]).toMatchObject({ cases: bobs, versions: bobs, run_cases: bobs });
  // The operator's run had no other case: it has ended, though she does not see it.
  const runs = await client.query('select requested_by, status from eval_runs order by 1');
  expect(runs.rows).toEqual([
    { requested_by: 'alice', status: 'done' },
    { requested_by: 'bob', status: 'running' },
    { requested_by: null, status: 'done' },
  ]);
  await client.query(
    'delete from eval_runs; delete from eval_cases; delete from eval_case_versions; delete from eval_sets',
  );
});

test.each(roles)('a step of the job of another adds it again, whoever ends it (%s)', async (role) => {
  const { db } = pool(role);
  const key = { appName: 'a', userId: 'bob', sessionId: `step of ${role}` };
  await insertSession(pool('superuser').db, key, {}, []);
  const runId = randomUUID();
  await client.query(
    `insert into eval_case_versions (app_name, eval_set_id, eval_id, version, hash, payload)
     values ('a', 'steps', $1, 1, '', '{}')`,
    [role],
  );
  await client.query(
    `insert into eval_runs (app_name, id, eval_set_id, requested_by, status, metrics, trials, parallelism, agent_hash,
                            model_name, result_time)
     values ('a', $1, 'steps', 'alice', 'running', '[]', 1, 1, '', 'm', clock_timestamp())`,
    [runId],
  );
  await client.query(
    `insert into eval_run_cases (app_name, run_id, place, trial, eval_set_id, eval_id, case_version, status,
                                 session_user_id, owner_id, session_id)
     values ('a', $1, 0, 1, 'steps', $2, 1, 'running', 'bob', 'alice', $3)`,
    [runId, role, key.sessionId],
  );
  await client.query('delete from jobs');
  const job = { kind: 'evaluation', userId: 'alice', id: `${runId}.0.1` };
  // What the session's user may write in his row is no way to add jobs of others.
  const forged = [{ ...job, kind: 'memory' }, { ...job, id: `${randomUUID()}.0.1` }, { ...job, id: 'x' }, job];
  for (const [n, one] of forged.entries())
    await client.query(
      `insert into invocations (app_name, user_id, session_id, id, status, lease_token, lease_expire_time, job)
       values ('a', 'bob', $1, $2, 'running', gen_random_uuid(), now(), $3)`,
      [key.sessionId, `i${n}`, one],
    );
  await runAsUser('bob', () => deleteSession(db, key));
  const { rows } = await client.query('select kind, user_id, id from jobs');
  expect(rows).toEqual([{ kind: 'evaluation', user_id: 'alice', id: job.id }]);
  await client.query('delete from eval_runs; delete from eval_case_versions');
});

test('evaluation: no number of a version comes twice, whosever the one before is', async () => {
  const { db } = pool('plain');
  await runAsUser('alice', () => evaluate(db, 'alice', 'alice'));
  await client.query(`update eval_sets set owner_id = 'bob'`);
  await client.query('delete from eval_cases');
  const key = { appName: 'a', evalSetId: 'set of alice', ownerId: 'bob' };
  const evalCase = { evalId: 'of alice', conversation: [], sessionInput: { appName: 'a', userId: 'bob', state: {} } };
  await runAsUser('bob', () => insertEvalCase(db, key, evalCase, { userId: 'bob', sessionId: 's' }));
  const { rows } = await client.query('select version, owner_id from eval_case_versions order by version');
  expect(rows).toEqual([
    { version: 1, owner_id: 'alice' },
    { version: 2, owner_id: 'bob' },
  ]);
  expect(
    (await db.execute(sql`select nullif(current_setting('agent_runtime.user', true), '') as "user"`)).rows,
  ).toEqual([{ user: null }]);
});

test.each(roles)('nothing of a user stays with a connection (%s)', async (role) => {
  const { db } = pool(role);
  const state = sql`select current_user as role, current_setting('agent_runtime.user', true) as "user"`;
  const before = (await db.execute(state)).rows;
  await runAsUser('bob', () => db.execute(everybody));
  await expect(runAsUser('bob', () => db.execute(sql`select 1 / 0`))).rejects.toThrow('select 1 / 0');
  const after = await Promise.all(Array.from({ length: 8 }, () => db.execute(state)));
  for (const { rows } of after)
    expect([rows[0]?.['role'], rows[0]?.['user'] || null]).toEqual([before[0]?.['role'], null]);
});

test('many users at once, each sees the own rows', async () => {
  const { db } = pool('superuser');
  const users = Array.from({ length: 50 }, (_, index) => (index % 2 === 0 ? 'alice' : 'bob'));
  const seen = await Promise.all(users.map((user) => runAsUser(user, () => db.execute(everybody))));
  expect(seen.map(({ rows }) => rows.map((row) => row['user']))).toEqual(users.map((user) => [user]));
});

test('another program that says no user sees nothing', async () => {
  await client.query('begin; set local role agent_runtime_user');
  const { rows } = await client.query('select from events');
  await client.query('rollback');
  expect(rows).toEqual([]);
});

test.each(roles)('what %s keeps of a history is given to nobody else', async (role) => {
  const histories = new HistoryCache(1e6);
  const key = { appName: 'a', userId: 'alice', sessionId: `long ${role}` };
  const { db } = pool(role);
  await insertSession(db, key, {}, [textEvent('of alice '.repeat(2_000))]);
  for (let n = 0; n < 2; n++) {
    expect((await runAsUser('alice', () => histories.find(db, key)))?.events).toHaveLength(1);
    expect(await runAsUser('bob', () => histories.find(db, key))).toBeUndefined();
  }
  await deleteSession(db, key);
});

test('a user whose name PostgreSQL cannot read sees nothing, and never the rows of all', async () => {
  const { db, ...rest } = pool('superuser');
  for (const name of ['bob\u0000', "\u0000'; select 1; --"]) {
    const refused = { cause: { code: '22021' } };
    await expect(runAsUser(name, () => db.execute(everybody))).rejects.toMatchObject(refused);
    await expect(runAsUser(name, () => rest.transaction((tx) => tx.execute(everybody)))).rejects.toMatchObject({
      code: '22021',
    });
  }
  for (const name of ["'; reset role; --", '\\x', "bob'", '\ud800']) {
    expect((await runAsUser(name, () => db.execute(everybody))).rows).toEqual([]);
  }
});

/** Opens a way to the database that counts round trips: each time that the client sends after an answer. */
async function openCountingProxy() {
  let trips = 0;
  let isAnswered = true;
  const { hostname, port } = new URL(database.url);
  const proxy = createServer((socket) => {
    const server = connect(Number(port), hostname);
    socket.on('data', (bytes) => {
      if (isAnswered) trips += 1;
      isAnswered = false;
      server.write(bytes);
    });
    // Late enough for all that is sent without a wait.
    server.on('data', (bytes) => void sleep(20).then(() => (isAnswered = socket.write(bytes))));
    for (const [from, to] of [
      [socket, server],
      [server, socket],
    ] as const) {
      from.on('error', () => undefined).on('close', () => to.destroy());
    }
  });
  proxy.listen(0, '127.0.0.1');
  await once(proxy, 'listening');
  const url = new URL(database.url);
  [url.hostname, url.port] = ['127.0.0.1', String((proxy.address() as AddressInfo).port)];
  return { url: url.href, takeTrips: () => [trips, (trips = 0)][0], close: () => proxy.close() };
}

test('what holds a statement to a user costs no further round trip', async () => {
  const proxy = await openCountingProxy();
  const limited = openDatabase({ ...poolOptions(proxy.url, 1), security: { role: 'agent_runtime_user' } });
  const read = () => limited.db.execute(sql`select id from sessions where id = ${'s'}`);
  await read();
  proxy.takeTrips();
  await read();
  expect(proxy.takeTrips()).toBe(1);
  expect((await runAsUser('bob', read)).rows).toHaveLength(1);
  expect(proxy.takeTrips()).toBe(1);
  await limited.close();
  proxy.close();
});
