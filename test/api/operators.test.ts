import { mkdtempSync, writeFileSync } from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client } from 'pg';
import { expect, test } from 'vitest';
import { createKey } from '../../src/platform/http/access/key-ring.ts';
import { SCOPES } from '../../src/platform/http/operation/principal.ts';
import { type Answer, startApp, startOn, testApp } from '../support/app.ts';

/** What operators see of the service: replicas, queues, sweeps, the audit, keys without secrets. */

const FULL = 'a-key-of-32-characters-xxxxxxxxxx';
const file = join(mkdtempSync(join(tmpdir(), 'keys-')), 'keys');
const reader = createKey({ id: 'reader', scopes: ['read'], users: ['u1'], expires: '2900-01-01T00:00:00Z' });
const operator = createKey({ id: 'operator', scopes: ['read', 'admin'] });
writeFileSync(file, `${reader.entry}\n${operator.entry}\n`);
const environment = {
  RUNTIME_API_KEYS: FULL,
  RUNTIME_API_KEYS_FILE: file,
  AUDIT: 'writes',
  DEV_UI: 'false',
  TOOLS: 'ask_person',
};
const app = testApp(environment);
const as = (key: string) => ({ authorization: `Bearer ${key}` });
const get = (path: string, key = operator.key) => app.get(path, as(key));
async function sql(statements: string) {
  const client = new Client({ connectionString: app.databaseUrl });
  await client.connect();
  try {
    await client.query(statements);
  } finally {
    await client.end();
  }
}

test('each caller reads its own scopes and bounds', async () => {
  expect((await get('/caller', reader.key)).body).toEqual({
    kind: 'key',
    id: 'reader',
    scopes: ['read'],
    users: ['u1'],
    expireTime: Date.parse('2900-01-01T00:00:00Z') / 1000,
  });
  expect((await get('/caller', FULL)).body).toEqual({ kind: 'key', scopes: SCOPES });
  expect((await app.get('/caller')).status).toBe(401);
});

test('budgets are told with their use, those of every user with that of one', async () => {
  const budgets = '/apps/harness_agent/budgets';
  const set = (budget: object) => app.send('PUT', budgets, budget, as(FULL));
  await set({ appliesTo: 'app', period: 'month', maxTokens: 1_000_000 });
  await set({ appliesTo: 'users', period: 'day', maxInvocations: 100 });
  await set({ appliesTo: 'user', forUser: 'spender', period: 'month', maxInvocations: 50 });
  const request = { user_id: 'spender', session_id: 'spent' };
  const asked = { prompt: 'Hello', harness_name: 'd', run_agent_request: request };
  expect((await app.post('/harness/invoke', asked, as(FULL))).status).toBe(200);
  const used = { invocations: 1, tokens: expect.any(Number), cost: 0 };
  const all = (await get(budgets)).body as object[];
  expect(all).toMatchObject([{ appliesTo: 'app', used }, { appliesTo: 'users' }, { appliesTo: 'user', used }]);
  expect(all[1]).not.toHaveProperty('used');
  expect(all[1]).not.toHaveProperty('isUsedUp');
  expect((await get(`${budgets}?ofUser=spender`)).body).toMatchObject([{}, { appliesTo: 'users', used }, {}]);
  expect((await get(`${budgets}?ofUser=nobody`)).body).toMatchObject([{}, { used: { invocations: 0, tokens: 0 } }, {}]);
  for (const limit of [1, 2, 3]) {
    const pages: object[][] = [];
    for (let cursor: string | undefined; pages.length === 0 || cursor !== undefined; ) {
      const page: Answer = await get(`${budgets}?limit=${limit}${cursor === undefined ? '' : `&cursor=${cursor}`}`);
      pages.push(page.body as object[]);
      cursor = page.headers.get('x-next-cursor') ?? undefined;
    }
    expect(pages.map(({ length }) => length)).toEqual({ 1: [1, 1, 1], 2: [2, 1], 3: [3] }[limit]);
    expect(pages.flat()).toEqual(all);
  }
  for (const cursor of ['x', Buffer.from('["a","b"]').toString('base64url'), Buffer.from('{}').toString('base64url')])
    expect((await get(`${budgets}?cursor=${cursor}`)).status).toBe(422);
  for (const { appliesTo, period, forUser } of all as { appliesTo: string; period: string; forUser?: string }[])
    await app.send(
      'DELETE',
      `${budgets}?appliesTo=${appliesTo}&period=${period}${forUser ? `&forUser=${forUser}` : ''}`,
      undefined,
      as(FULL),
    );
});

test('are for the scope admin', async () => {
  for (const path of ['/service', '/audit']) {
    expect((await get(path)).status).toBe(200);
    expect((await get(path, reader.key)).status).toBe(403);
    expect((await app.get(path)).status).toBe(401);
  }
});

test('the state: replicas with their versions, queues with the oldest wait, jobs of the sweep', async () => {
  const ask = `Use ask_person ${JSON.stringify({ question: 'Which size?' })}`;
  const request = { prompt: ask, harness_name: 'd', run_agent_request: { user_id: 'u1', session_id: 's1' } };
  expect((await app.post('/harness/invoke', request, as(FULL))).status).toBe(200);
  const other = await startOn(app.databaseUrl, environment);
  try {
    const replica = { version: '0.1.0', host: expect.any(String), startTime: expect.any(Number) };
    await expect
      .poll(async () => (await get('/service')).body)
      .toMatchObject({
        replicas: [replica, replica],
        queues: [
          { name: 'cronjob runs', waiting: 0, more: false, running: 0, oldestSeconds: null },
          { name: 'evaluation cases', waiting: 0, more: false, running: 0, oldestSeconds: null },
          { name: 'invocations', waiting: 0, more: false, running: 0, oldestSeconds: null },
          { name: 'memories', waiting: 0, more: false, running: 0, oldestSeconds: null },
          { name: 'scores', waiting: 0, more: false, running: 0, oldestSeconds: null },
          { name: 'tasks', waiting: 1, more: false, running: 0, oldestSeconds: expect.any(Number) },
          { name: 'webhook deliveries', waiting: 0, more: false, running: 0, oldestSeconds: null },
        ],
        stranded: 0,
        sweeps: expect.arrayContaining([{ job: 'deleting old prompts', secondsAgo: expect.any(Number) }]),
      });
    const { replicas } = (await get('/service')).body as { replicas: { host: string }[] };
    expect(hostname().startsWith(replicas[0]?.host ?? '-')).toBe(true);
  } finally {
    await other.close();
  }
  await expect.poll(async () => ((await get('/service')).body as { replicas: object[] }).replicas.length).toBe(1);
});

test('of a long queue the first 1,000 are counted, and work under way beside them', async () => {
  await sql(`set session_replication_role = 'replica';
    insert into tasks (app_name, user_id, session_id, id, invocation_id, call_id, call_name, kind, form)
    select app_name, user_id, session_id, 't' || n, id, 'c', 'ask', 'call', '{}'
    from invocations, generate_series(1, 1001) n;
    insert into jobs (app_name, user_id, kind, id, lane, due_time, lease_token, lease_expire_time)
    select 'a', 'u', 'delivery', 'd' || n, 'h', now() - interval '1 minute', case when n > 1 then gen_random_uuid() end,
      case when n > 1 then now() + (n - 3) * interval '10 seconds' end
    from generate_series(1, 5) n`);
  const { queues } = (await get('/service')).body as { queues: { name: string }[] };
  const find = (name: string) => queues.find((queue) => queue.name === name);
  expect(find('tasks')).toMatchObject({ waiting: 1_000, more: true });
  // One is due, of two the process has died, and two are being sent.
  expect(find('webhook deliveries')).toMatchObject({ waiting: 3, more: false, running: 2 });
});

test('the audit: the last entry first, by pages, with filters', async () => {
  const sessions = '/apps/harness_agent/users/u2/sessions';
  const refused = await app.post(sessions, {}, as(reader.key));
  for (const sessionId of ['a', 'b', 'c']) await app.post(sessions, { sessionId }, as(FULL));
  const list = async (query: string) =>
    (await get(`/audit?${query}`)).body as { items: Record<string, unknown>[]; nextCursor?: string };
  const about = 'userId=u2&operation=createSession';
  const first = await list(`${about}&decision=allowed&limit=2`);
  expect(first.items).toHaveLength(2);
  expect(first.items[0]).toEqual({
    time: expect.any(Number),
    decision: 'allowed',
    callerKind: 'key',
    address: '127.0.0.1',
    operation: 'createSession',
    resource: { appName: 'harness_agent', userId: 'u2' },
    requestId: expect.any(String),
    leftOut: 0,
  });
  const rest = await list(`${about}&decision=allowed&limit=2&cursor=${first.nextCursor}`);
  expect(rest.items).toHaveLength(1);
  expect(rest).not.toHaveProperty('nextCursor');
  const seen = [...first.items, ...rest.items];
  expect(new Set(seen.map(({ requestId }) => requestId)).size).toBe(3);
  expect(seen.map(({ time }) => time)).toEqual(seen.map(({ time }) => time as number).toSorted((a, b) => b - a));
  await expect
    .poll(async () => (await list('decision=refused&caller=reader&appName=harness_agent')).items)
    .toMatchObject([{ requestId: refused.headers.get('x-request-id'), caller: 'reader', operation: 'createSession' }]);
  const [newest, oldest] = [seen[0]?.['time'] as number, seen.at(-1)?.['time'] as number];
  const count = async (range: string) => (await list(`${about}&decision=allowed&${range}`)).items.length;
  // To the millisecond, as the wire has times.
  expect(await count(`from=${oldest}&to=${newest + 0.001}`)).toBe(3);
  expect([await count(`to=${oldest}`), await count(`from=${newest + 0.001}`)]).toEqual([0, 0]);
  expect((await get('/audit?cursor=x')).status).toBe(422);
});

test('a page of the audit looks through 10,000 entries, from the end of the time that is asked for', async () => {
  await sql(`insert into audit_log (time, caller_kind, caller, resource, decision, request_id)
    select now() - interval '2 days' + n * interval '1 second', 'key',
      case when n % 10000 = 1 then 'rare' else 'other' end, '{}', 'allowed', 'r' || n
    from generate_series(1, 20002) n`);
  const pages: { items: { requestId: string }[]; nextCursor?: string }[] = [];
  const [from, to] = [Date.now() / 1000 - 86_400 * 3, Date.now() / 1000 - 86_400];
  do {
    const cursor = pages.at(-1)?.nextCursor;
    const page = await get(`/audit?caller=rare&from=${from}&to=${to}${cursor ? `&cursor=${cursor}` : ''}`);
    pages.push(page.body as (typeof pages)[number]);
  } while (pages.at(-1)?.nextCursor);
  expect(pages.map(({ items }) => items.map(({ requestId }) => requestId))).toEqual([['r20001'], ['r10001'], ['r1']]);
});

test('keys: who may do what, and no secret', async () => {
  const { body, text } = await get('/service');
  expect((body as { keys: object[] }).keys).toEqual([
    { scopes: SCOPES },
    { id: 'reader', scopes: ['read'], users: ['u1'], expires: '2900-01-01T00:00:00Z' },
    { id: 'operator', scopes: ['read', 'admin'] },
  ]);
  for (const { key, entry } of [reader, operator]) {
    expect(text).not.toContain(key.split('.')[1]);
    expect(text).not.toContain((JSON.parse(entry) as { digest: string }).digest);
  }
  expect(text).not.toContain(FULL);
});

test('where callers have no keys there are none', async () => {
  const local = await startApp();
  expect((await local.get('/service')).body).toMatchObject({ keys: [] });
  expect((await local.get('/audit')).body).toEqual({ items: [] });
  await local.close();
});
