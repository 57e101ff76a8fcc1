import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Client } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { gatedAgents } from '../support/agents.ts';
import { type Answer, startApp, type TestApp } from '../support/app.ts';
import { type Received, type Receiver, startReceiver, verifies } from '../support/webhook-receiver.ts';
import { HOSTILE_ADDRESSES } from '../data/webhooks/hostile-addresses.ts';

const HOOKS = '/harness/webhooks';
const JOBS = '/harness/cronjobs';
const ISO = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/) as unknown;
const UUID = expect.stringMatching(/^[0-9a-f-]{36}$/) as unknown;
const MESSAGE_ID = expect.stringMatching(/^msg_[0-9a-f-]{36}$/) as unknown;
const FAR = { type: 'once', onceAt: '2900-01-01T00:00:00Z' };

let receiver: Receiver;
let app: TestApp;
let sql: Client;
const gate = gatedAgents();
beforeAll(async () => {
  receiver = await startReceiver();
  app = await startApp(
    { CRONJOBS: 'true', WEBHOOKS: 'true', WEBHOOKS_ALLOWED_HOSTS: receiver.origin, WEBHOOKS_MAX_PER_USER: '3' },
    { agents: gate.agents },
  );
  sql = new Client({ connectionString: app.databaseUrl });
  await sql.connect();
});
afterAll(async () => {
  await sql.end();
  await app.close();
  await receiver.close();
});

interface Hook {
  webhookId: string;
  ownerId: string;
  url: string;
  secret: string;
}
interface Delivery {
  deliveryId: string;
  status: string;
  attempt: number;
  payload: unknown;
  answers: { status?: number; body?: string; error?: string }[];
}

const valueOf = ({ status, body }: Answer, expected: number) => {
  expect([status, body]).toEqual([expected, expect.anything()]);
  return body;
};
/** A webhook of a user of its own; its path is that of no other test. */
async function register(more: object = {}): Promise<Hook & { path: string }> {
  const path = `/${randomUUID()}`;
  const body = { ownerId: `owner-${randomUUID()}`, url: `${receiver.origin}${path}`, ...more };
  return { ...(valueOf(await app.post(HOOKS, body), 201) as Hook), path };
}
const sessionOf = async ({ ownerId }: Hook) => {
  const sessions = `/apps/harness_agent/users/${ownerId}/sessions`;
  const { id } = valueOf(await app.post(sessions, {}), 200) as { id: string };
  return `${sessions}/${id}`;
};
const say = (text: string) => ({ newMessage: { role: 'user', parts: [{ text }] } });
const start = async (session: string, { url }: Hook) =>
  (valueOf(await app.post(`${session}/invocations`, { ...say('hi'), webhookUrl: url }), 200) as { id: string }).id;
let calls = 0;
/** Lets the next model call answer. */
const answer = async (text: string) => {
  await gate.entered(++calls);
  gate.open([{ text }]);
};
const deliveriesOf = async ({ webhookId }: Hook, query = '') =>
  (valueOf(await app.get(`${HOOKS}/${webhookId}/deliveries${query}`), 200) as { items: Delivery[] }).items;
/** Waits until the only delivery of a webhook is what the test expects. */
const deliveryOnce = async (hook: Hook, expected: Partial<Delivery>) => {
  await expect.poll(async () => (await deliveriesOf(hook))[0]).toMatchObject(expected);
};
/** Makes a waiting delivery due. */
const hurry = ({ webhookId }: Hook) =>
  sql.query(
    `with due as (
       update jobs set due_time = clock_timestamp() where lease_token is null and kind = 'delivery'
         and id in (select id from webhook_deliveries where webhook_id = $1) returning jobs.*),
     lanes as (
       update job_lanes l set turn_time = due.due_time from due
       where (l.app_name, l.user_id, l.kind, l.lane) = (due.app_name, due.user_id, due.kind, due.lane))
     select pg_notify('agent_runtime', '["webhooks"]') from due`,
    [webhookId],
  );

test('a webhook of the application is told that a user was erased', async () => {
  const hook = await register();
  const erase = (webhookId: string) => app.send('DELETE', `/apps/harness_agent/users/gone?webhookId=${webhookId}`);
  expect(await erase('none')).toMatchObject({ status: 400, body: { detail: 'Webhook not found: none' } });
  expect((await erase(hook.webhookId)).status).toBe(200);
  const data = { appName: 'harness_agent', userId: 'gone', counts: {} };
  await deliveryOnce(hook, { payload: expect.objectContaining({ type: 'user.erased', data }) as Delivery['payload'] });
});

describe('a webhook', () => {
  test('is registered with a secret that is answered once', async () => {
    const path = `/${randomUUID()}`;
    const given = { ownerId: `owner-${randomUUID()}`, url: `${receiver.origin}${path}` };
    const { status, body } = await app.post(HOOKS, given);
    const hook = { webhookId: UUID, ...given, appName: 'harness_agent', includeOutput: false, createdAt: ISO };
    expect([status, body]).toEqual([201, { ...hook, secret: expect.stringMatching(/^whsec_[\w+/]{43}=$/) }]);
    expect((await app.get(`${HOOKS}?ownerId=${given.ownerId}`)).body).toEqual({ items: [hook] });
    expect(await app.post(HOOKS, given)).toMatchObject({
      status: 409,
      body: { detail: 'The user has a webhook with this address already.' },
    });
  });

  test('of a user with as many as are allowed is refused, also of requests at once', async () => {
    const ownerId = `owner-${randomUUID()}`;
    const answers = await Promise.all(
      Array.from({ length: 5 }, (_, n) => app.post(HOOKS, { ownerId, url: `${receiver.origin}/${n}` })),
    );
    expect(answers.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([201, 201, 201, 409, 409]);
    expect(answers.find(({ status }) => status === 409)?.body).toEqual({
      detail: 'The user has 3 webhooks; WEBHOOKS_MAX_PER_USER allows 3. Delete one first.',
    });
  });

  test('that is absent cannot be given by its address', async () => {
    const hook = await register();
    const unknown = { webhookUrl: `${receiver.origin}/unknown` };
    const refusal = {
      status: 422,
      body: {
        detail: [
          {
            loc: ['body', 'webhookUrl'],
            msg: 'Value error, no webhook has this address; POST /harness/webhooks registers it',
          },
        ],
      },
    };
    const session = await sessionOf(hook);
    expect(await app.post(`${session}/invocations`, { ...say('hi'), ...unknown })).toMatchObject(refusal);
    const job = { ownerId: hook.ownerId, name: 'n', prompt: 'p', schedule: FAR };
    expect(await app.post(JOBS, { ...job, ...unknown })).toMatchObject(refusal);
    expect(await app.post(JOBS, { ...job, ownerId: 'other', webhookUrl: hook.url })).toMatchObject(refusal);
  });
});

describe('the end of an invocation in the background', () => {
  test('is sent, signed, and listed with the answer', async () => {
    const hook = await register();
    receiver.reply(hook.path, () => ({ status: 200, body: `thanks ${'x'.repeat(5_000)}` }));
    const session = await sessionOf(hook);
    const invocationId = await start(session, hook);
    await answer('secret words');
    const [sent] = (await receiver.until(hook.path, 1)) as [Received];
    const sessionId = session.split('/').at(-1);
    const data = { appName: 'harness_agent', userId: hook.ownerId, sessionId, invocationId, status: 'succeeded' };
    expect(sent.message).toEqual({ type: 'invocation.ended', timestamp: ISO, data });
    expect([verifies(hook.secret, sent), verifies('whsec_AAAA', sent)]).toEqual([true, false]);
    expect(sent.headers).toMatchObject({ 'content-type': 'application/json', 'webhook-id': MESSAGE_ID });
    await deliveryOnce(hook, { status: 'delivered' });
    expect(await deliveriesOf(hook)).toEqual([
      {
        deliveryId: sent.id,
        webhookId: hook.webhookId,
        status: 'delivered',
        attempt: 1,
        payload: sent.message,
        answers: [
          {
            at: ISO,
            attempt: 1,
            status: 200,
            body: `thanks ${'x'.repeat(1_017)}`,
            durationMs: expect.any(Number) as unknown,
          },
        ],
        createdAt: ISO,
        finishedAt: ISO,
      },
    ]);
  });

  test('carries the beginning of the answer where the webhook says so', async () => {
    const hook = await register({ includeOutput: true });
    const session = await sessionOf(hook);
    await start(session, hook);
    await answer('short \u0000');
    const [first] = await receiver.until(hook.path, 1);
    expect(first?.message.data).toMatchObject({ output: 'short \u0000' });
    await start(session, hook);
    await answer('x'.repeat(5_000));
    const [, second] = await receiver.until(hook.path, 2);
    expect(second?.message.data).toMatchObject({ output: 'x'.repeat(4_096), outputTruncated: true });
  });

  test('is sent where it was cancelled while it waited, and where it ran', async () => {
    const hook = await register();
    const session = await sessionOf(hook);
    const running = await start(session, hook);
    await gate.entered(++calls);
    const waiting = await start(session, hook);
    for (const id of [waiting, running]) valueOf(await app.post(`${session}/invocations/${id}/cancel`), 200);
    const sent = await receiver.until(hook.path, 2);
    gate.open(); // of the cancelled one, which nobody awaits any more
    const ends = sent.map(({ message }) => [message.data['invocationId'], message.data['status']]);
    expect(new Map(ends as [string, string][])).toEqual(
      new Map([
        [waiting, 'cancelled'],
        [running, 'cancelled'],
      ]),
    );
    expect(sent[0]?.message.data).toMatchObject({ errorCode: 'cancelled' });
  });

  test('is tried again with the same id and body until it is taken', async () => {
    const hook = await register();
    receiver.reply(hook.path, (n) => (n < 3 ? { status: 500, body: `no ${n}` } : 204));
    const session = await sessionOf(hook);
    await start(session, hook);
    await answer('hi');
    await deliveryOnce(hook, { status: 'pending', attempt: 1 });
    await hurry(hook);
    await deliveryOnce(hook, { status: 'pending', attempt: 2 });
    await hurry(hook);
    await deliveryOnce(hook, { status: 'delivered', attempt: 3 });
    const sent = receiver.at(hook.path);
    expect(new Set(sent.map(({ id, body }) => `${id} ${body}`)).size).toBe(1);
    expect(sent.map((each) => verifies(hook.secret, each))).toEqual([true, true, true]);
    const [delivery] = await deliveriesOf(hook);
    expect(delivery?.answers.map(({ status, body }) => [status, body])).toEqual([
      [500, 'no 1'],
      [500, 'no 2'],
      [204, undefined],
    ]);
    expect(await deliveriesOf(hook, '?status=pending')).toEqual([]);
  });

  test('is not tried again where the receiver says that it is gone; it can be sent again by hand', async () => {
    const hook = await register();
    receiver.reply(hook.path, (n) => (n === 1 ? 410 : 204));
    await start(await sessionOf(hook), hook);
    await answer('hi');
    await deliveryOnce(hook, { status: 'failed', attempt: 1 });
    const [failed] = await deliveriesOf(hook);
    const replay = await app.post(`${HOOKS}/${hook.webhookId}/deliveries/${failed?.deliveryId}/replay`);
    expect(valueOf(replay, 202)).toMatchObject({
      deliveryId: failed?.deliveryId,
      status: 'pending',
      nextAttemptAt: ISO,
    });
    await deliveryOnce(hook, { status: 'delivered', attempt: 1, answers: [{ status: 410 }, { status: 204 }] });
    expect(new Set(receiver.at(hook.path).map(({ id }) => id)).size).toBe(1);
  });

  test('is not sent where a redirect leads', async () => {
    const hook = await register();
    receiver.reply(hook.path, () => ({ status: 307, headers: { location: `${receiver.origin}${hook.path}-other` } }));
    await start(await sessionOf(hook), hook);
    await answer('hi');
    await deliveryOnce(hook, { status: 'pending', attempt: 1, answers: [{ status: 307 }] });
    expect(receiver.at(`${hook.path}-other`)).toEqual([]);
  });

  test('is signed with both secrets for a time after they were replaced', async () => {
    const hook = await register();
    const session = await sessionOf(hook);
    const rotate = async (graceSeconds: number) =>
      valueOf(await app.post(`${HOOKS}/${hook.webhookId}/rotate-secret`, { graceSeconds }), 200) as Hook;
    const second = await rotate(3_600);
    expect(second).toEqual({ ...hook, path: undefined, secret: second.secret, oldSecretExpiresAt: ISO });
    await start(session, hook);
    await answer('hi');
    const [both] = (await receiver.until(hook.path, 1)) as [Received];
    expect([verifies(hook.secret, both), verifies(second.secret, both)]).toEqual([true, true]);
    expect(String(both.headers['webhook-signature'])).toMatch(/^v1,\S+ v1,\S+$/);
    const third = await rotate(0);
    await start(session, hook);
    await answer('hi');
    const [, one] = (await receiver.until(hook.path, 2)) as [Received, Received];
    expect([second, third].map(({ secret }) => verifies(secret, one))).toEqual([false, true]);
  });

  test('is not sent to a webhook that was deleted', async () => {
    const hook = await register();
    const session = await sessionOf(hook);
    const id = await start(session, hook);
    const { status: deleted, text } = await app.send('DELETE', `${HOOKS}/${hook.webhookId}`);
    expect([deleted, text]).toEqual([200, 'null']);
    await answer('hi');
    const ended = async () => ((await app.get(`${session}/invocations/${id}`)).body as { status: string }).status;
    await expect.poll(ended).toBe('succeeded');
    const { rows } = await sql.query('select 1 from webhook_deliveries where user_id = $1', [hook.ownerId]);
    expect([rows, receiver.at(hook.path)]).toEqual([[], []]);
  });
});

test('the end of a cronjob run is sent; one that is cancelled while it waits ends too', async () => {
  const hook = await register();
  const job = { ownerId: hook.ownerId, name: 'n', prompt: 'p', schedule: FAR, webhookUrl: hook.url };
  const { jobId } = valueOf(await app.post(JOBS, job), 201) as { jobId: string };
  expect((await app.get(`${JOBS}/${jobId}`)).body).toMatchObject({ webhookUrl: hook.url });
  const runNow = async () => (valueOf(await app.post(`${JOBS}/${jobId}/run`), 202) as { runId: string }).runId;
  const first = await runNow();
  await gate.entered(++calls);
  const second = await runNow();
  valueOf(await app.post(`${JOBS}/${jobId}/runs/${second}/cancel`), 200);
  await receiver.until(hook.path, 1);
  gate.open([{ text: 'done' }]);
  const sent = await receiver.until(hook.path, 2);
  expect(sent.map(({ message }) => message)).toEqual([
    {
      type: 'cronjob_run.ended',
      timestamp: ISO,
      data: { ...data(hook, jobId, second), status: 'cancelled' },
    },
    {
      type: 'cronjob_run.ended',
      timestamp: ISO,
      data: {
        ...data(hook, jobId, first),
        status: 'success',
        sessionId: first,
        invocationId: expect.stringMatching(/^e-/) as unknown,
      },
    },
  ]);
  expect((await app.send('PATCH', `${JOBS}/${jobId}`, { webhookUrl: null })).body).not.toHaveProperty('webhookUrl');
});

const data = (hook: Hook, jobId: string, runId: string) => ({
  appName: 'harness_agent',
  userId: hook.ownerId,
  jobId,
  runId,
  scheduledAt: ISO,
});

describe('without the setting', () => {
  test('no request can name a webhook', async () => {
    const plain = await startApp({ CRONJOBS: 'true' });
    const job = { ownerId: 'u', name: 'n', prompt: 'p', schedule: FAR, webhookUrl: 'https://example.com/' };
    expect(await plain.post(JOBS, job)).toMatchObject({
      status: 422,
      body: { detail: [{ msg: 'Value error, webhooks are not enabled here; the setting is WEBHOOKS' }] },
    });
    await plain.close();
  });
});

test('forty hostile addresses are refused, and a name that leads to this machine is not called', async () => {
  let connections = 0;
  const server = createServer();
  server.on('connection', () => connections++);
  await new Promise<void>((resolve) => server.listen(0, resolve));
  const { port } = server.address() as AddressInfo;
  const open = await startApp({ WEBHOOKS: 'true' }, { agents: gate.agents });
  expect(HOSTILE_ADDRESSES).toHaveLength(40);
  for (const { url, says } of HOSTILE_ADDRESSES) {
    const { status, body } = await open.post(HOOKS, { ownerId: 'u', url });
    const [first] = (body as { detail: { loc: unknown; msg: string }[] }).detail;
    expect([url, status, first]).toEqual([
      url,
      422,
      expect.objectContaining({ loc: ['body', 'url'], msg: expect.stringMatching(says) as unknown }),
    ]);
  }
  expect((await open.get(`${HOOKS}?ownerId=u`)).body).toEqual({ items: [] });
  const sessions = '/apps/harness_agent/users/u/sessions';
  const hook = valueOf(await open.post(HOOKS, { ownerId: 'u', url: `https://localhost:${port}/` }), 201) as Hook;
  const { id } = valueOf(await open.post(sessions, {}), 200) as { id: string };
  await open.post(`${sessions}/${id}/invocations`, { ...say('hi'), webhookUrl: hook.url });
  await answer('hi');
  const deliveries = async () => (await open.get(`${HOOKS}/${hook.webhookId}/deliveries`)).body;
  await expect.poll(deliveries).toMatchObject({
    items: [{ status: 'pending', answers: [{ error: 'localhost is not a public address.' }] }],
  });
  expect(connections).toBe(0);
  await open.close();
  server.close();
});
