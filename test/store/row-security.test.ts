import { sql } from 'drizzle-orm';
import { Client } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { actingFor } from '../../src/db/acting-user.ts';
import { type DatabasePool, openDatabase } from '../../src/db/database.ts';
import { migrateDatabase } from '../../src/db/migrate.ts';
import { prepareRowSecurity, queryFor } from '../../src/db/row-security.ts';
import { HistoryCache } from '../../src/sessions/history-cache.ts';
import { deleteSession, insertSession } from '../../src/sessions/session-store.ts';
import { testDatabase } from '../support/database.ts';
import { textEvent } from '../support/store.ts';

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
      statementTimeoutMs: 60_000,
      lockTimeoutMs: 60_000,
      maxStateKeys: 10_000,
      maxAppStateBytesPerUser: 65_536,
      maxStateBytes: 1e6,
      maxSessionBytes: 1e9,
      maxPendingDeliveries: 100,
      preparesStatements: true,
      connectTimeoutMs: 60_000,
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

/** What an application spent is the sum over its users: the statement of one of them compares it. They hold figures. */
const SUMMED = ['budget_uses', 'budgets'];

test('it is forced on every table with a user', async () => {
  const { rows } = await client.query<{ name: string; forced: boolean; policies: string }>(`
    select c.relname as name, c.relrowsecurity and c.relforcerowsecurity as forced, count(p.oid) as policies
    from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'user_id' and not a.attisdropped
    left join pg_policy p on p.polrelid = c.oid
    where c.relkind = 'r' and c.relnamespace = 'public'::regnamespace group by c.oid`);
  expect(rows.length).toBeGreaterThan(10);
  const open = rows.filter(({ forced, policies }) => !forced || policies !== '1').map(({ name }) => name);
  expect(open.toSorted()).toEqual(SUMMED);
});

test.each(roles)('a statement that forgets its user reads no row of another (%s)', async (role) => {
  const { db, reads, ...rest } = pool(role);
  const own = [{ user: 'bob', said: 'of bob' }];
  expect((await actingFor('bob', () => db.execute(everybody))).rows).toEqual(own);
  expect((await actingFor('bob', () => reads.execute(everybody))).rows).toEqual(own);
  expect((await actingFor('bob', () => rest.transaction((tx) => tx.execute(everybody)))).rows).toEqual(own);
  expect((await db.execute(everybody)).rows).toHaveLength(2);
  // With parameters, with the builder's arrays, and without any row.
  const [row] = (
    await actingFor('bob', () => db.execute(sql`select count(*)::int as n from sessions where id = ${'s'}`))
  ).rows;
  expect(row).toEqual({ n: 1 });
  expect((await actingFor('nobody', () => db.execute(everybody))).rows).toEqual([]);
});

test.each(roles)('and changes none, and writes none in the name of another (%s)', async (role) => {
  const { db, ...rest } = pool(role);
  const change = sql`update sessions set state = '{"changed": true}'`;
  const forge = sql`insert into sessions (app_name, user_id, id) values ('a', 'alice', 'forged')`;
  expect((await actingFor('bob', () => db.execute(change))).rowCount).toBe(1);
  expect((await actingFor('bob', () => db.execute(sql`delete from user_states where app_name = 'x'`))).rowCount).toBe(
    0,
  );
  const refused = { cause: { message: 'new row violates row-level security policy for table "sessions"' } };
  await expect(actingFor('bob', () => db.execute(forge))).rejects.toMatchObject(refused);
  await expect(actingFor('bob', () => rest.transaction((tx) => tx.execute(forge)))).rejects.toMatchObject(refused);
  const { rows } = await client.query(`select user_id, state from sessions where id = 's' order by 1`);
  expect(rows[0]).toEqual({ user_id: 'alice', state: {} });
});

test.each(roles)('nothing of a user stays with a connection (%s)', async (role) => {
  const { db } = pool(role);
  const state = sql`select current_user as role, current_setting('agent_runtime.user', true) as "user"`;
  const before = (await db.execute(state)).rows;
  await actingFor('bob', () => db.execute(everybody));
  await expect(actingFor('bob', () => db.execute(sql`select 1 / 0`))).rejects.toThrow('select 1 / 0');
  const after = await Promise.all(Array.from({ length: 8 }, () => db.execute(state)));
  for (const { rows } of after)
    expect([rows[0]?.['role'], rows[0]?.['user'] || null]).toEqual([before[0]?.['role'], null]);
});

test('many users at once, each sees the own rows', async () => {
  const { db } = pool('superuser');
  const users = Array.from({ length: 50 }, (_, index) => (index % 2 === 0 ? 'alice' : 'bob'));
  const seen = await Promise.all(users.map((user) => actingFor(user, () => db.execute(everybody))));
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
    expect((await actingFor('alice', () => histories.find(db, key)))?.events).toHaveLength(1);
    expect(await actingFor('bob', () => histories.find(db, key))).toBeUndefined();
  }
  await deleteSession(db, key);
});

test('a read that a replica was too far behind for is prepared when it comes again on that connection', async () => {
  const limits = { role: 'agent_runtime_user', planMode: 'force_generic_plan' } as const;
  const looked = { text: 'select user_id from sessions where id = $1', values: ['s'] };
  const read = (since?: string) =>
    queryFor(client, 'alice', limits, looked, { isFixed: true, ...(since === undefined ? {} : { since }) });
  const prepares = async () => {
    const { rows } = await client.query('select count(*)::int as n from pg_prepared_statements where statement = $1', [
      looked.text,
    ]);
    return rows;
  };
  // A primary is no replica: the check always fails, and the server leaves out what stands behind it.
  await expect(read('0/0')).rejects.toMatchObject({ code: '22012' });
  await expect(read('0/0')).rejects.toMatchObject({ code: '22012' });
  expect(await prepares()).toEqual([{ n: 0 }]);
  for (const _ of [1, 2]) expect(await read()).toMatchObject({ rows: [{ user_id: 'alice' }] });
  await expect(read('0/0')).rejects.toMatchObject({ code: '22012' });
  expect(await read()).toMatchObject({ rows: [{ user_id: 'alice' }] });
  expect(await prepares()).toEqual([{ n: 1 }]);
});
