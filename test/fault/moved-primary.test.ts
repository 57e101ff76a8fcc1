import { randomBytes, randomUUID } from 'node:crypto';
import type { Client } from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type Notifications, openNotifications } from '../../src/platform/db/notifications.ts';
import type { Runtime } from '../../src/process/runtime.ts';
import { client, startOn } from '../support/app.ts';
import { testDatabase } from '../support/database.ts';
import { type PostgresCluster, startCluster } from './support/cluster.ts';
import { listPath, openSql, sessionPath } from './support/faults.ts';
import { type PostgresProxy, startProxy } from './support/postgres-proxy.ts';
import { MINUTE } from '../support/patience.ts';

const PATIENT = { timeout: MINUTE };

const countConnections = async (sql: { query: Client['query'] }, name: string): Promise<number> => {
  const { rows } = await sql.query<{ n: number }>(
    `select count(*)::int as n from pg_stat_activity where application_name like $1`,
    [name],
  );
  return rows[0]?.n ?? 0;
};

describe('an address that leads to a read-only server for a while', () => {
  let [primary, reader]: PostgresCluster[] = [];
  let proxy: PostgresProxy;
  let runtime: Runtime;

  beforeAll(async () => {
    [primary, reader] = await Promise.all([startCluster(), startCluster()]);
    proxy = await startProxy(primary.url);
    const sql = openSql(reader.url);
    await sql.query(`alter database postgres set default_transaction_read_only = on`);
    await sql.end();
    runtime = await startOn(proxy.url, { DATABASE_POOL_SIZE: '4', DATABASE_STATEMENT_TIMEOUT_MS: '10000' });
  });
  afterAll(async () => {
    await runtime?.close();
    await proxy?.close();
    await Promise.all([primary?.close(), reader?.close()]);
  });

  test('no connection stays there: writes with a key, reads and notifications go to the primary again', async () => {
    const app = client(runtime.url);
    const create = (id: string) => app.post(listPath('u'), { sessionId: id }, { 'idempotency-key': id });
    expect((await create('before')).status).toBe(200);
    proxy.target = reader?.url ?? '';
    proxy.cutAll();
    const [write, read] = await Promise.all([create('refused'), app.get(sessionPath('u', 'before'))]);
    // The other server has not got the session, so this answer shows that it was asked.
    expect([write.status, write.headers.get('retry-after'), read.status]).toEqual([503, '1', 404]);
    // Several at once, so that each connection of the pools is opened there.
    await Promise.all(Array.from({ length: 8 }, (_, n) => create(`refused-${n}`)));
    await Promise.all(Array.from({ length: 8 }, () => app.get(sessionPath('u', 'before'))));
    proxy.target = primary?.url ?? '';
    const answers = [];
    for (let n = 0; n < 20; n++) {
      const id = randomUUID();
      answers.push((await create(id)).status, (await app.get(sessionPath('u', id))).status);
    }
    expect(answers).toEqual(Array.from({ length: 40 }, () => 200));
    const sql = openSql(reader?.url ?? '');
    await expect.poll(() => countConnections(sql, 'agent-runtime%'), PATIENT).toBe(0);
    await sql.end();
  });

  test('several servers and target_session_attrs: the first that takes writes', async () => {
    const [first, second] = [new URL(reader?.url ?? ''), new URL(primary?.url ?? '')];
    const query = 'sslmode=disable&target_session_attrs=read-write';
    const url = `postgres://postgres@${first.host},${second.host}/postgres?${query}`;
    const replica = await startOn(url);
    const id = randomUUID();
    const { status } = await client(replica.url).post(listPath('u'), { sessionId: id });
    expect(status).toBe(200);
    expect((await client(runtime.url).get(sessionPath('u', id))).status).toBe(200);
    await replica.close();
  });
});

describe('the connection that listens', () => {
  const database = testDatabase();
  let proxy: PostgresProxy;
  let far: Notifications;
  const errors: unknown[] = [];

  beforeEach(async () => {
    errors.length = 0;
    proxy = await startProxy(database.url);
  });
  afterEach(async () => {
    await far.close();
    await proxy.close();
  });

  test('is made anew when the network swallows it without a word', async () => {
    const near = openNotifications({ url: database.url }, () => undefined);
    far = openNotifications({ url: proxy.url }, (error) => errors.push(error), { heartbeatMs: 50, timeoutMs: 1_000 });
    let woken = 0;
    far.subscribe('topic', () => woken++);
    const isHeard = () => {
      const before = woken;
      near.publish('topic');
      return expect.poll(() => woken, PATIENT).toBeGreaterThan(before);
    };
    await isHeard();
    proxy.swallowOpen();
    // It reconnects, and wakes everybody because notifications may have been lost.
    await expect.poll(() => errors.length, PATIENT).toBeGreaterThan(0);
    await isHeard();
    await near.close();
  });

  test('leaves no connection behind when it cannot listen', async () => {
    const sql = openSql(database.url);
    const role = `role_${randomBytes(4).toString('hex')}`;
    await sql.query(`create role ${role} login password 'geheim'`);
    await sql.query('revoke execute on function pg_catalog.pg_backend_pid() from public');
    const url = Object.assign(new URL(proxy.url), { username: role, password: 'geheim' });
    far = openNotifications({ url: url.href }, (error) => errors.push(error));
    await expect.poll(() => errors.length, PATIENT).toBeGreaterThan(3);
    // Of this role alone: other files' services share the server.
    const left = async () => (await sql.query(`select from pg_stat_activity where usename = '${role}'`)).rowCount;
    await expect.poll(left, PATIENT).toBeLessThan(2);
    await far.close();
    await sql.query('grant execute on function pg_catalog.pg_backend_pid() to public');
    await sql.query(`drop role ${role}`);
    await sql.end();
  });
});
