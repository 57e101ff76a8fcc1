import { randomUUID } from 'node:crypto';
import { Writable } from 'node:stream';
import { sql } from 'drizzle-orm';
import { Client } from 'pg';
import pino from 'pino';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { toLogFields } from '../../src/platform/log.ts';
import type { SessionKey } from '../../src/core/session.ts';
import { rowContent } from '../../src/conversation/artifacts/artifact.ts';
import { type Notifications, openNotifications } from '../../src/platform/db/notifications.ts';
import { insertSession } from '../../src/conversation/sessions/session-store.ts';
import { createSecrets } from '../../src/platform/secrets.ts';
import { readConfig } from '../../src/process/config.ts';
import { USER_DATA } from '../../src/process/context.ts';
import { sweepAll, type SweepContext, sweepRegularly } from '../../src/process/sweeper.ts';
import { newKey, takerOn, testPool, textEvent } from '../support/store.ts';
import { MINUTE } from '../support/patience.ts';

const store = testPool();
let notifications: Notifications;
let log: Record<string, unknown>[] = [];

beforeAll(() => (notifications = openNotifications({ url: store.url }, () => undefined)));
afterAll(() => notifications.close());
beforeEach(async () => {
  log = [];
  await store.pool.db.execute(sql`truncate sessions, invocations, events, idempotency_keys, spans cascade`);
});

const lines = new Writable({
  write(chunk: Buffer, _encoding, done) {
    log.push(JSON.parse(chunk.toString()) as Record<string, unknown>);
    done();
  },
});

const context = (): SweepContext =>
  ({
    ...takerOn(store.pool),
    ...USER_DATA,
    address: { url: store.url },
    connectTimeoutMs: 2 * MINUTE,
    notifications,
    contentStore: rowContent(1_000_000),
    secrets: createSecrets([]),
    agents: new Map(),
    grants: { egress: { allowLoopback: false }, redirectUrl: undefined },
    log: pino({ base: null, serializers: { err: toLogFields } }, lines),
    config: readConfig({}),
  }) as unknown as SweepContext;
const sweepOnce = () => sweepAll(context());
const rows = async (text: string) => (await store.pool.db.execute(sql.raw(text))).rows;

/** A session that the invocation of a dead process holds since so many seconds. */
async function deadSession(seconds: number): Promise<SessionKey> {
  const key = newKey();
  const token = randomUUID();
  await insertSession(store.pool.db, key, {}, [textEvent('hello', { invocationId: 'e-dead' })]);
  await store.pool.db.execute(sql`update sessions set lease_token = ${token} where id = ${key.sessionId}`);
  await store.pool.db.execute(sql`
    insert into invocations (app_name, user_id, session_id, id, status, lease_token, lease_expire_time)
    values (${key.appName}, ${key.userId}, ${key.sessionId}, 'e-dead', 'running', ${token},
            clock_timestamp() - ${seconds} * interval '1 second')`);
  return key;
}
const statusOf = async ({ sessionId }: SessionKey) => {
  const { rows: found } = await store.pool.db.execute<{ status: string; free: boolean }>(sql`
    select i.status, s.lease_token is null as free from invocations i
    join sessions s on s.app_name = i.app_name and s.user_id = i.user_id and s.id = i.session_id
    where i.session_id = ${sessionId}`);
  return [found[0]?.status, found[0]?.free];
};
const ended = ['interrupted', true];
const held = ['running', false];

/** A key of either kind and a span, each of this age. */
async function insertOld(hours: number, name: string): Promise<void> {
  const time = sql`clock_timestamp() - ${hours} * interval '1 hour'`;
  const key = newKey();
  await insertSession(store.pool.db, key, {}, []);
  await store.pool.db.execute(sql`
    insert into idempotency_keys (app_name, user_id, scope, key, request_hash, response_body, create_time)
    values (${key.appName}, ${key.userId}, 's', ${name}, 'h', '', ${time})`);
  await store.pool.db.execute(sql`
    insert into invocations (app_name, user_id, session_id, id, status, idempotency_key, create_time, lease_token,
                             lease_expire_time)
    values (${key.appName}, ${key.userId}, ${key.sessionId}, ${name}, 'succeeded', ${name}, ${time},
            gen_random_uuid(), ${time})`);
  await store.pool.db.execute(sql`
    insert into spans (app_name, user_id, session_id, trace_id, id, name, start_ns, end_ns, attributes, create_time)
    values (${key.appName}, ${key.userId}, ${key.sessionId}, 't', ${name}, 'n', 0, 0, '{}', ${time})`);
}

test('idempotency keys are forgotten after a day and traces deleted after their time, younger ones stay', async () => {
  await insertOld(23, 'young');
  await insertOld(25, 'of yesterday');
  await insertOld(73, 'old');
  await sweepOnce();
  expect(await rows('select key from idempotency_keys order by 1')).toEqual([{ key: 'young' }]);
  expect(await rows('select id, idempotency_key as key from invocations order by 1')).toEqual([
    { id: 'of yesterday', key: null },
    { id: 'old', key: null },
    { id: 'young', key: 'young' },
  ]);
  expect(await rows('select id from spans order by 1')).toEqual([{ id: 'of yesterday' }, { id: 'young' }]);
  expect(log).toEqual([]);
});

test('more keys than one statement takes are all deleted', async () => {
  await store.pool.db.execute(sql`
    insert into idempotency_keys (app_name, user_id, scope, key, request_hash, response_body, create_time)
    select 'a', 'u', 's', n::text, 'h', '', clock_timestamp() - interval '25 hours' from generate_series(1, 2500) n`);
  await sweepOnce();
  expect(await rows('select count(*)::int as left from idempotency_keys')).toEqual([{ left: 0 }]);
});

test('a locked session is left to the next sweep and keeps nobody waiting', async () => {
  const [locked, other] = [await deadSession(20), await deadSession(10)];
  await insertOld(25, 'old');
  const client = new Client({ connectionString: store.url });
  await client.connect();
  await client.query('begin');
  await client.query('select from sessions where user_id = $1 and id = $2 for update', [
    locked.userId,
    locked.sessionId,
  ]);
  await sweepOnce();
  expect([await statusOf(locked), await statusOf(other)]).toEqual([held, ended]);
  expect(await rows('select key from idempotency_keys')).toEqual([]);
  await client.query('rollback');
  await client.end();
  await sweepOnce();
  expect(await statusOf(locked)).toEqual(ended);
  expect(log).toEqual([]);
});

test('a session that cannot be read is named in the log with the reason, and the others are ended', async () => {
  const [broken, other] = [await deadSession(20), await deadSession(10)];
  await store.pool.db.execute(sql`update events set payload = 'null' where session_id = ${broken.sessionId}`);
  await insertOld(73, 'old');
  await sweepOnce();
  expect([await statusOf(broken), await statusOf(other)]).toEqual([held, ended]);
  expect(await rows('select id from spans')).toEqual([]);
  expect(log).toEqual([
    expect.objectContaining({
      ...broken,
      err: expect.objectContaining({ name: 'TypeError', reason: expect.any(String) }),
      msg: 'the dead invocation of a session could not be taken over',
    }),
  ]);
});

test('a hundred sessions that cannot be read do not hide the one behind them', async () => {
  for (let n = 0; n < 100; n += 1) await deadSession(100);
  await store.pool.db.execute(sql`update events set payload = 'null'`);
  const behind = await deadSession(10);
  await sweepOnce();
  expect(await statusOf(behind)).toEqual(ended);
  expect(log).toHaveLength(100);
});

test('a job that fails is named in the log, and the others are done', async () => {
  await insertOld(73, 'old');
  const dead = await deadSession(10);
  await store.pool.db.execute(sql`alter table idempotency_keys rename to away`);
  try {
    await sweepOnce();
  } finally {
    await store.pool.db.execute(sql`alter table away rename to idempotency_keys`);
  }
  expect(await statusOf(dead)).toEqual(ended);
  expect(await rows('select id from spans')).toEqual([]);
  expect(log).toEqual([
    expect.objectContaining({
      level: 50,
      job: 'deleting old idempotency keys',
      err: expect.objectContaining({ code: '42P01' }),
      msg: 'a job of the sweep failed',
    }),
  ]);
});

test('one process does a job at a time, and others meanwhile; when it is done or dead the next one may', async () => {
  await insertOld(25, 'old');
  const dead = await deadSession(10);
  const other = new Client({ connectionString: store.url });
  await other.connect();
  await other.query('select pg_advisory_lock(7240004)');
  await sweepOnce();
  expect(await rows('select key from idempotency_keys')).toEqual([{ key: 'old' }]);
  expect(await statusOf(dead)).toEqual(ended);
  await other.end();
  await expect.poll(() => sweepOnce().then(() => rows('select key from idempotency_keys'))).toEqual([]);
});

test('a dead invocation is ended when its lease ends, whatever else a sweep does', async () => {
  const { pool } = store;
  const keys = await Promise.all([deadSession(-0.5), deadSession(-1)]);
  const stop = new AbortController();
  await pool.db.execute(sql`
    insert into idempotency_keys (app_name, user_id, scope, key, request_hash, response_body, create_time)
    select 'a', 'u', 's', n::text, 'h', '', clock_timestamp() - interval '25 hours' from generate_series(1, 3000) n`);
  // The first batch of old keys waits for a lock.
  const other = new Client({ connectionString: store.url });
  await other.connect();
  await other.query('begin');
  await other.query(`select from idempotency_keys where user_id = 'u' for update`);
  const swept = sweepRegularly(context(), 3_600_000, stop.signal);
  for (const key of keys) await expect.poll(() => statusOf(key)).toEqual(ended);
  stop.abort();
  await other.query('rollback');
  await other.end();
  await swept;
  // It ended behind the batch under way.
  expect(await rows('select count(*)::int as left from idempotency_keys')).toEqual([{ left: 2_000 }]);
  expect(log).toEqual([]);
});

test('every job finds its rows by an index', async () => {
  const indexes = await rows(`select tablename, indexdef from pg_indexes
    where tablename in ('idempotency_keys', 'invocations', 'spans') and indexdef ~ 'create_time|lease_expire_time'`);
  expect(indexes).toEqual(
    expect.arrayContaining([
      {
        tablename: 'invocations',
        indexdef: expect.stringMatching(/\(create_time\) WHERE \(idempotency_key IS NOT NULL\)/),
      },
      { tablename: 'idempotency_keys', indexdef: expect.stringMatching(/\(create_time\)$/) },
      { tablename: 'spans', indexdef: expect.stringMatching(/\(create_time\)$/) },
    ]),
  );
});

test('an erasure that was cut off is gone on with; holds keep what the sweep would delete', async () => {
  await insertOld(73, 'old');
  await store.pool.db.execute(sql`
    insert into user_erasures (app_name, user_id, update_time)
    select app_name, user_id, clock_timestamp() - interval '61 seconds' from spans where id = 'old'`);
  await insertOld(73, 'held');
  await store.pool.db.execute(sql`
    insert into legal_holds select app_name, user_id, session_id, 'Case 1' from spans where id = 'held'`);
  await sweepOnce();
  expect(await rows('select id from spans')).toEqual([{ id: 'held' }]);
  expect(await rows('select id from invocations')).toEqual([{ id: 'held' }]);
  expect(await rows('select from user_erasures')).toEqual([]);
});

test('deliveries that ended a week ago go, younger ones stay', async () => {
  const { userId } = newKey();
  await store.pool.db.execute(sql`
    insert into webhooks (app_name, user_id, id, url, host, includes_output, secret)
    values ('a', ${userId}, 'w', 'https://x.test', 'x.test', false, 's')`);
  for (const days of [6, 8])
    await store.pool.db.execute(sql`
      insert into webhook_deliveries (app_name, user_id, webhook_id, id, host, payload, status, retry_end_time, end_time)
      values ('a', ${userId}, 'w', ${`d${days}`}, 'x.test', '{}', 'delivered', clock_timestamp(),
              clock_timestamp() - ${days} * interval '1 day')`);
  await sweepOnce();
  expect(await rows(`select id from webhook_deliveries where user_id = '${userId}'`)).toEqual([{ id: 'd6' }]);
});
