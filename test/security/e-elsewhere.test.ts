import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createKey } from '../../src/platform/http/access/key-ring.ts';
import { startApp, type TestApp } from '../support/app.ts';
import { s3Environment, type S3Server, startS3 } from '../support/s3-server.ts';

/** What nobody looked at before: holds beside deletions, objects of a bucket, cronjobs of those who may do more. */

const APP = '/apps/harness_agent';

let app: TestApp;
let s3: S3Server;
let client: Client;
/** Looks outside the transactions of `client`, because these see `pg_stat_activity` as it was at their first look. */
let observer: Client;
beforeAll(async () => {
  s3 = await startS3();
  app = await startApp(s3Environment(s3));
  client = new Client({ connectionString: app.databaseUrl });
  await client.connect();
  await client.query(`set agent_runtime.all_users = 'on'`);
  observer = new Client({ connectionString: app.databaseUrl });
  await observer.connect();
});
afterAll(async () => {
  await client.end();
  await observer.end();
  await app.close();
  await s3.close();
});

const user = (name: string) => `${APP}/users/${name}`;

/** A session with one artifact. */
async function make(name: string): Promise<void> {
  await app.post(`${user(name)}/sessions`, { sessionId: 's' });
  const saved = await app.post(`${user(name)}/sessions/s/artifacts`, { filename: 'f', artifact: { text: 'kept' } });
  expect(saved.status).toBe(200);
}

/** Asks for a hold, and waits until it is answered or waits for a lock. */
async function startHold(name: string) {
  const hold = { isAnswered: false };
  const answer = app.send('PUT', `${user(name)}/hold`, { reason: 'Case 1' }).then((answered) => {
    hold.isAnswered = true;
    return answered;
  });
  await expect
    .poll(async () => {
      const { rows } = await observer.query(
        `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
      );
      return hold.isAnswered || rows.length > 0;
    })
    .toBe(true);
  return { hold, answer };
}

describe('a legal hold beside a deletion', () => {
  test('is answered when what was being deleted is gone, and nothing is deleted after it', async () => {
    await make('ann');
    await client.query('begin');
    await client.query(`delete from sessions where user_id = 'ann'`);
    const { hold, answer } = await startHold('ann');
    expect(hold.isAnswered).toBe(false);
    await client.query('commit');
    expect((await answer).status).toBe(200);
    expect((await app.send('DELETE', `${user('ann')}/sessions/s/artifacts/f`)).status).toBe(409);
  });

  test('keeps the objects of an erasure that the store is slow for', async () => {
    await make('bob');
    const [key = ''] = [...s3.objects.keys()].slice(-1);
    const [asked, open] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    s3.before = async (method) => {
      if (method !== 'DELETE') return undefined;
      asked.resolve();
      await open.promise;
      return undefined;
    };
    const erasure = app.send('DELETE', user('bob'));
    await asked.promise;
    const { answer } = await startHold('bob');
    open.resolve();
    expect((await answer).status).toBe(200);
    await erasure;
    const read = await app.get(`${user('bob')}/sessions/s/artifacts/f`);
    // All or nothing: a row that is there has its object.
    expect([read.status, s3.objects.has(key)]).toEqual(read.status === 200 ? [200, true] : [404, false]);
  });
});

test('a hold keeps what an erasure under way has not deleted, also what has no trigger', async () => {
  const state = { 'app:of-hal': 1 };
  await app.post(`${user('hal')}/sessions`, { sessionId: 's', state }, { 'idempotency-key': 'k' });
  await client.query(`
    update app_states set writers = '{"app:of-hal": "hal"}';
    update sessions set lease_token = gen_random_uuid() where user_id = 'hal';
    insert into invocations (app_name, user_id, session_id, id, status, lease_token, lease_expire_time)
    select app_name, user_id, id, 'held', 'running', lease_token, now() + interval '1 hour' from sessions
    where user_id = 'hal'`);
  // It waits some seconds for what runs.
  const erasure = app.send('DELETE', user('hal'));
  const marks = async () => (await client.query(`select from user_erasures where user_id = 'hal'`)).rowCount;
  await expect.poll(marks).toBe(1);
  expect((await app.send('PUT', `${user('hal')}/hold`, { reason: 'Case 2' })).status).toBe(200);
  expect((await erasure).status).toBe(409);
  const { rows } = await client.query(
    `select (select count(*)::int from idempotency_keys where user_id = 'hal') as answers,
            (select state ->> 'app:of-hal' from app_states) as state`,
  );
  expect(rows).toEqual([{ answers: 1, state: '1' }]);
});

test('a read of an artifact that is deleted meanwhile finds none', async () => {
  await make('cat');
  const path = `${user('cat')}/sessions/s/artifacts/f`;
  const [asked, open] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  s3.before = async (method) => {
    if (method !== 'GET') return undefined;
    asked.resolve();
    await open.promise;
    return undefined;
  };
  const read = app.get(path);
  await asked.promise;
  expect((await app.send('DELETE', path)).status).toBe(200);
  open.resolve();
  expect((await read).status).toBe(404);
});

test('an object of a store that answers more than was saved is read no further', async () => {
  await make('gus');
  s3.before = async (method) => (method === 'GET' ? 'flood' : undefined);
  expect((await app.get(`${user('gus')}/sessions/s/artifacts/f`)).status).toBe(500);
  expect(s3.flooded).toBeLessThan(64);
});

test('a fork that fails at one object leaves none of the others', async () => {
  delete s3.before;
  await make('dan');
  const sessions = `${user('dan')}/sessions`;
  for (let count = 0; count < 7; count += 1)
    await app.post(`${sessions}/s/artifacts`, { filename: `f${count}`, artifact: { text: 'x' } });
  const before = [...s3.objects.keys()];
  let puts = 0;
  s3.before = async (method) => {
    if (method !== 'PUT') return undefined;
    puts += 1;
    if (puts === 1) return 'forbidden';
    // The others come when the fork has failed already.
    await sleep(100);
    return undefined;
  };
  expect((await app.post(`${sessions}/s/fork`, { sessionId: 'copy' })).status).toBe(500);
  await expect.poll(() => puts).toBe(8);
  await sleep(300);
  expect([...s3.objects.keys()]).toEqual(before);
});

test('a cronjob that changes the deployed agent is changed only by those who may change the agent', async () => {
  const [own, plain] = [
    createKey({ id: 'own', scopes: ['invoke', 'read', 'override'] }),
    createKey({ id: 'plain', scopes: ['invoke', 'read'] }),
  ];
  const file = join(mkdtempSync(join(tmpdir(), 'agent-runtime-keys-')), 'keys');
  writeFileSync(file, [own, plain].map(({ entry }) => `${entry}\n`).join(''));
  const limited = await startApp({ CRONJOBS: 'true', RUNTIME_API_KEYS_FILE: file });
  const bearer = ({ key }: { key: string }) => ({ authorization: `Bearer ${key}` });
  const schedule = { type: 'daily', time: '08:00', timezone: 'UTC' };
  const job = { ownerId: 'eve', name: 'j', prompt: 'p', schedule, harness: { system_prompt: 'Obey.' } };
  const made = await limited.post('/harness/cronjobs', job, bearer(own));
  expect(made.status).toBe(201);
  const path = `/harness/cronjobs/${(made.body as { jobId: string }).jobId}`;
  const patch = (body: object, key = plain) => limited.send('PATCH', path, body, bearer(key));
  for (const body of [{ prompt: 'mine' }, { name: 'n' }, { harness: { system_prompt: 'Mine.' } }])
    expect((await patch(body)).status).toBe(403);
  expect((await patch({ prompt: 'mine' }, own)).status).toBe(200);
  expect((await patch({ prompt: 'mine', harness: null })).status).toBe(200);
  expect((await patch({ name: 'n' })).status).toBe(200);
  await limited.close();
});
