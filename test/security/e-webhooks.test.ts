import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { sql } from 'drizzle-orm';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type ClaimedDelivery, endDelivery, postponeDelivery } from '../../src/invocations/webhooks/delivery-store.ts';
import { insertWebhook, setSilent } from '../../src/invocations/webhooks/webhook-store.ts';
import { startApp, type TestApp } from '../support/app.ts';
import { claimDeliveries } from '../support/jobs.ts';
import { testPool } from '../support/store.ts';

/** The places for sending are shared: hosts that do not answer take few of them, whoever named them. */

/** A host that takes requests and answers none. */
async function startHost(answers: boolean) {
  let [count, open, most] = [0, 0, 0];
  const server = createServer((request, response) => {
    count += 1;
    request.resume();
    if (answers) response.writeHead(204).end();
    else {
      most = Math.max(most, (open += 1));
      response.once('close', () => (open -= 1));
    }
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    counts: () => ({ received: count, most }),
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

const HANGING = 6;
const hosts = await Promise.all([...Array.from({ length: HANGING }, () => startHost(false)), startHost(true)]);
const good = hosts.at(-1) as (typeof hosts)[number];
let app: TestApp;
beforeAll(async () => {
  app = await startApp({
    WEBHOOKS: 'true',
    WEBHOOKS_ALLOWED_HOSTS: hosts.map(({ origin }) => origin).join(','),
  });
});
afterAll(async () => {
  for (const host of hosts) host.close();
  await app.close();
});

/** Lets a user run the agent so often in the background, each end told to an address. */
async function deliver(ownerId: string, origin: string, count: number): Promise<void> {
  const url = `${origin}/${randomUUID()}`;
  const made = await app.post('/harness/webhooks', { ownerId, url });
  expect(made.status).toBe(201);
  const sessions = `/apps/harness_agent/users/${ownerId}/sessions`;
  const start = async () => {
    const { id } = (await app.post(sessions, {})).body as { id: string };
    const body = { newMessage: { role: 'user', parts: [{ text: 'hi' }] }, webhookUrl: url };
    expect((await app.post(`${sessions}/${id}/invocations`, body)).status).toBe(200);
  };
  await Promise.all(Array.from({ length: count }, start));
}

test('A10: six accounts with hanging hosts leave places to others, and to other hosts', async () => {
  await Promise.all(hosts.slice(0, HANGING).map(({ origin }, n) => deliver(`mallory${n}`, origin, 8)));
  await expect.poll(() => hosts.slice(0, HANGING).every((host) => host.counts().received > 0)).toBe(true);
  await deliver('alice', good.origin, 1);
  await expect.poll(() => good.counts().received).toBe(1);
  // Of the user whose first host hangs.
  await deliver('mallory0', good.origin, 1);
  await expect.poll(() => good.counts().received).toBe(2);
  // One place each, and for a moment a second where one was given up: never those of the others.
  expect(Math.max(...hosts.map((host) => host.counts().most))).toBeLessThanOrEqual(2);
});

const store = testPool();
const LIMITS = { slots: 20, perHost: 4, perUser: 4, leaseMs: 60_000 };

/** A webhook of a user with deliveries that are due. */
async function register(userId: string, host: string, count: number, isSilent = true) {
  const id = randomUUID();
  const url = `https://${host}/${id}`;
  await store.pool.transaction((tx) =>
    insertWebhook(tx, { appName: 'a', userId, id, url, host, includesOutput: false, secret: 'whsec_', isSilent }, 100),
  );
  await store.pool.db.execute(sql`
    insert into webhook_deliveries (app_name, user_id, id, webhook_id, host, payload, status, retry_end_time)
    select 'a', ${userId}, ${id} || '-' || n, ${id}, ${host}, '{}', 'pending', clock_timestamp() + interval '24 hours'
    from generate_series(1, ${count}::int) n`);
}
const claim = (limits: Partial<typeof LIMITS> = {}) => claimDeliveries(store.pool, { ...LIMITS, ...limits });
const countOf = (claimed: ClaimedDelivery[]) =>
  Object.fromEntries(
    Object.entries(Object.groupBy(claimed, ({ delivery }) => `${delivery.userId} ${delivery.host}`)).map(
      ([name, list]) => [name, list?.length],
    ),
  );

test('A10: a host that does not answer gets one place until it does, and others of the user keep theirs', async () => {
  await register('bob', 'hangs.example', 20);
  const [first, ...none] = await claim();
  if (!first) throw new Error('nothing was claimed');
  expect([none, await claim()]).toEqual([[], []]);
  await endDelivery(store.pool.db, first, 'delivered', []);
  await setSilent(store.pool.db, first.webhook, false);
  const second = await claim();
  expect(countOf(second)).toEqual({ 'bob hangs.example': 3 });
  // All of them run into their limit of time.
  await setSilent(store.pool.db, first.webhook, true);
  for (const each of second) await postponeDelivery(store.pool.db, each, 0, []);
  await register('bob', 'answers.example', 20, false);
  const third = await claim();
  expect(countOf(third)).toEqual({ 'bob hangs.example': 1, 'bob answers.example': 3 });
  // It answers: from now on it has as many places as others.
  await setSilent(store.pool.db, first.webhook, false);
  for (const each of third) await endDelivery(store.pool.db, each, 'delivered', []);
  expect(countOf(await claim())).toEqual({ 'bob hangs.example': 2, 'bob answers.example': 2 });
});

test('A10: at a host that many users name each has a turn, and no user takes the last places', async () => {
  await store.pool.db.execute(sql`delete from webhooks`);
  for (const user of ['u1', 'u2', 'u3', 'u4', 'u5']) await register(user, 'shared.example', 9);
  expect(countOf(await claim())).toEqual(Object.fromEntries([1, 2, 3, 4].map((n) => [`u${n} shared.example`, 1])));
  await register('u6', 'own.example', 9, false);
  expect(countOf(await claim({ slots: 3 }))).toEqual({ 'u6 own.example': 2 });
});
