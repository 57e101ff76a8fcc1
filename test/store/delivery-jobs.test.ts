import { randomUUID } from 'node:crypto';
import { sql } from 'drizzle-orm';
import { Client } from 'pg';
import { afterEach, expect, test } from 'vitest';
import { endDelivery, postponeDelivery } from '../../src/invocations/webhooks/delivery-store.ts';
import {
  deleteWebhook,
  insertWebhook,
  setSilent,
  type WebhookRow,
} from '../../src/invocations/webhooks/webhook-store.ts';
import { claimDeliveries } from '../support/jobs.ts';
import { testPool } from '../support/store.ts';

/** What deliveries and their jobs come to if transactions overlap, and if much waits. */

const store = testPool();
const LIMITS = { slots: 20, perHost: 4, perUser: 4, leaseMs: 60_000 };
const clients: Client[] = [];
afterEach(async () => {
  for (const client of clients.splice(0)) await client.end();
  await store.pool.db.execute(sql`delete from webhooks`);
  await store.pool.db.execute(sql`delete from job_lanes`);
});

async function connect(): Promise<Client> {
  const client = new Client({ connectionString: store.url });
  await client.connect();
  await client.query(`set agent_runtime.all_users = 'on'`);
  clients.push(client);
  return client;
}
let registered = 0;
/** Ids are in the order of registration. */
async function register(userId: string, host: string): Promise<WebhookRow> {
  const id = `w${String((registered += 1)).padStart(3, '0')}`;
  const webhook = { appName: 'a', userId, id, url: `https://${host}/${id}`, host, includesOutput: false, secret: '' };
  return store.pool.transaction((tx) => insertWebhook(tx, { ...webhook, isSilent: false }, 100));
}
const pushes = (webhook: WebhookRow, invocationId: string) =>
  store.pool.db.execute(sql`
    update webhooks set push = json_build_object('invocationId', ${invocationId}::text, 'isOld', false)
    where id = ${webhook.id}`);
const add = async (client: Client, webhook: WebhookRow, count = 1) =>
  client.query(
    `insert into webhook_deliveries (app_name, user_id, id, webhook_id, host, payload, status, retry_end_time)
     select app_name, user_id, 'd' || n || $3, id, host, '{}', 'pending', clock_timestamp() + interval '24 hours'
     from webhooks, generate_series(1, $2::int) n where id = $1`,
    [webhook.id, count, randomUUID()],
  );
const claim = (limits: Partial<typeof LIMITS> = {}) => claimDeliveries(store.pool, { ...LIMITS, ...limits });
/** Waits until so many connections of this database wait for a lock. */
const blocked = async (count: number) => {
  await expect
    .poll(async () => {
      const { rows } = await store.pool.db.execute(sql`
        select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`);
      return rows.length;
    })
    .toBe(count);
};

test('a host that falls silent while deliveries are being added has one place, and three when it answers', async () => {
  for (const isSilent of [true, false]) {
    const webhook = await register(`u-${isSilent}`, 'silent.example');
    const writer = await connect();
    await setSilent(store.pool.db, webhook, !isSilent);
    await add(writer, webhook);
    const [first] = await claim();
    if (!first) throw new Error('nothing was claimed');
    await writer.query('begin');
    await add(writer, webhook, 10);
    const change = store.pool.transaction((tx) => setSilent(tx, webhook, isSilent));
    await blocked(1);
    await writer.query('commit');
    await change;
    await endDelivery(store.pool.db, first, 'delivered', []);
    expect(await claim()).toHaveLength(isSilent ? 1 : 3);
    await deleteWebhook(store.pool.db, webhook);
  }
});

test('an attempt that got an answer does not open the lane of a host that fell silent meanwhile', async () => {
  const webhook = await register('u', 'silent.example');
  await add(await connect(), webhook, 4);
  const [first, second] = await claim();
  if (!first || !second) throw new Error('too few were claimed');
  const other = await connect();
  await other.query('begin');
  await other.query('update webhooks set is_silent = true where id = $1', [webhook.id]);
  await other.query('update job_lanes set half_open = true');
  const answered = postponeDelivery(store.pool.db, first, 0, []);
  await blocked(1);
  await other.query('commit');
  await answered;
  const { rows } = await store.pool.db.execute(sql`select half_open from job_lanes`);
  expect(rows).toEqual([{ half_open: true }]);
});

test('ends that are told to the same two hosts do not wait for each other', async () => {
  const [holder, ...ends] = [await connect(), await connect(), await connect()];
  const hooks = [];
  for (const [invocation, host] of [
    ['i1', 'x'],
    ['i1', 'y'],
    ['i2', 'y'],
    ['i2', 'x'],
  ] as const) {
    const webhook = await register('u', `${host}.example`);
    await pushes(webhook, invocation);
    await add(holder, webhook);
    hooks.push(webhook);
  }
  // As after a failed attempt: each end makes the lane due again.
  await holder.query(`update job_lanes set turn_time = now() + interval '1 hour'`);
  await holder.query('begin');
  await holder.query(`select from job_lanes where lane = 'x.example' for update`);
  const results = [];
  for (const [n, client] of ends.entries()) {
    const data = { invocationId: `i${n + 1}`, sessionId: 's', status: 'succeeded' };
    results.push(client.query(`select insert_webhook_delivery('a', 'u', null, 'invocation.ended', $1)`, [data]));
    await blocked(n + 1);
  }
  await holder.query('rollback');
  await Promise.all(results);
  const { rows } = await store.pool.db.execute(sql`select id from webhook_deliveries`);
  expect(rows).toHaveLength(2 * hooks.length);
});

test('lanes whose webhooks were deleted behind a full limit do not delay the next one', async () => {
  const client = await connect();
  for (let n = 0; n < 30; n++) await add(client, await register(`u${String(n).padStart(2, '0')}`, 'full.example'));
  const running = await claim();
  expect(running).toHaveLength(4);
  await client.query(`delete from webhooks where user_id <> 'u29'`);
  expect((await claim()).map(({ webhook }) => webhook.userId)).toEqual(['u29']);
});

test('deliveries of two users with the same id have their own jobs', async () => {
  const users = ['u1', 'u2'];
  for (const user of users) await register(user, `${user}.example`);
  await store.pool.db.execute(sql`
    insert into webhook_deliveries (app_name, user_id, id, webhook_id, host, payload, status, retry_end_time)
    select app_name, user_id, 'same', id, host, '{}', 'pending', clock_timestamp() + interval '24 hours' from webhooks`);
  const claimed = await claim();
  expect(claimed.map(({ job }) => job.userId).toSorted()).toEqual(users);
  for (const each of claimed) await endDelivery(store.pool.db, each, 'delivered', []);
});

test('the state of the service is read without the jobs that wait', async () => {
  const client = await connect();
  await client.query(`
    insert into jobs (kind, app_name, user_id, id, lane, due_time)
    select 'delivery', 'a', 'u', n::text, 'l', now() + interval '1 day' from generate_series(1, 5000) n`);
  await client.query('analyze jobs');
  const read = async () =>
    (
      await client.query<{ n: number }>(
        `select (seq_tup_read + idx_tup_fetch)::int as n from pg_stat_xact_user_tables where relname = 'jobs'`,
      )
    ).rows[0]?.n ?? 0;
  await client.query('begin');
  const before = await read();
  await client.query('select from service_state()');
  const count = (await read()) - before;
  await client.query('rollback');
  await client.query('delete from jobs');
  // It counts 1,001 at most of those that wait.
  expect(count).toBeLessThan(1_100);
});

test('jobs are added and ended by their keys, also by a connection that knew almost empty tables', async () => {
  const client = await connect();
  await client.query('vacuum analyze jobs, job_lanes');
  const addMany = (from: number, to: number) =>
    client.query(
      `select add_job('plans', 'a', 'u', n::text, 'l' || n, false) from generate_series($1::int, $2::int) n`,
      [from, to],
    );
  const endMany = (from: number, to: number) =>
    client.query(
      `select end_job('plans', 'a', 'u', n::text, gen_random_uuid()) from generate_series($1::int, $2::int) n`,
      [from, to],
    );
  await client.query('begin');
  await addMany(1, 10);
  await endMany(1, 10);
  await addMany(11, 300);
  await endMany(11, 300);
  const { rows } = await client.query<{ n: number }>(
    `select sum(seq_tup_read)::int as n from pg_stat_xact_user_tables where relname in ('jobs', 'job_lanes')`,
  );
  await client.query('rollback');
  expect(rows).toEqual([{ n: 0 }]);
});
