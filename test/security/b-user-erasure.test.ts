import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { startApp } from '../support/app.ts';
import { s3Environment, startS3 } from '../support/s3-server.ts';
import { tablesWith } from './support/tables-with.ts';
import { staged, stagedSql } from '../support/staged.ts';

/** After a user is erased no word and no name of it is in the database or the object store, whatever feature had it. */

const s3 = staged(() => startS3());
const app = staged(() =>
  startApp({ CRONJOBS: 'true', WEBHOOKS: 'true', MAX_SESSION_BYTES: '67108864', ...s3Environment(s3) }),
);
const client = stagedSql(app);

const APP = '/apps/harness_agent';
const DEV = '/dev/apps/harness_agent';
const content = (text: string) => ({ role: 'user', parts: [{ text }] });

/** Sends a request that must succeed, with a key of its own. */
async function ask(method: string, path: string, body?: object): Promise<unknown> {
  const answer = await app.send(method, path, body, method === 'GET' ? {} : { 'idempotency-key': randomUUID() });
  expect([path, answer.status < 300, answer.text]).toEqual([path, true, answer.text]);
  return answer.body;
}

const objectsWith = (word: string) => [...s3.objects.values()].filter((bytes) => bytes.includes(word)).length;

/** Has every feature keep the mark of a user, which is part of the user's name too. */
async function plant(user: string, mark: string): Promise<void> {
  const sessions = `${APP}/users/${user}/sessions`;
  const session = `${sessions}/s-${mark}`;
  await ask('POST', sessions, { sessionId: `s-${mark}`, state: { said: mark, 'user:likes': mark } });
  await ask('POST', `${session}/events`, { author: 'user', content: content(mark) });
  const run = { appName: 'harness_agent', userId: user, sessionId: `s-${mark}`, newMessage: content(`say ${mark}`) };
  await ask('POST', '/run', run);
  await client.query(
    `insert into tool_calls (app_name, user_id, session_id, invocation_id, call_id, operation_id, tool, effect, state)
     select app_name, user_id, session_id, id, 'c', gen_random_uuid(), $2, 'once', 'unknown' from invocations
     where user_id = $1`,
    [user, mark],
  );
  await ask('PATCH', `${APP}/users/${user}/memory`, { sessionId: `s-${mark}` });
  const file = { inlineData: { mimeType: 'text/plain', data: Buffer.from(mark).toString('base64') } };
  await ask('POST', `${session}/artifacts`, { filename: 'f.txt', artifact: file });
  await ask('POST', `${session}/artifacts`, { filename: `user:${mark}`, artifact: { text: mark } });
  const { secret } = (await ask('POST', '/harness/webhooks', {
    ownerId: user,
    url: `https://hook.example/${mark}`,
    includeOutput: true,
  })) as { secret: string };
  expect(secret).toMatch(/^whsec_/);
  const schedule = { type: 'daily', time: '08:00', timezone: 'UTC' };
  const job = {
    ownerId: user,
    name: mark,
    prompt: `say ${mark}`,
    schedule,
    webhookUrl: `https://hook.example/${mark}`,
  };
  const { jobId } = (await ask('POST', '/harness/cronjobs', job)) as { jobId: string };
  await ask('POST', `/harness/cronjobs/${jobId}/run`);
  const ended = `select from cronjob_runs where user_id = $1 and status = 'success'`;
  await expect.poll(async () => (await client.query(ended, [user])).rowCount).toBe(1);
  const set = `set_${s3.requests.length}`;
  const chosen = { userId: user, sessionId: `s-${mark}` };
  for (const evalId of ['kept', 'deleted'])
    await ask('POST', `${DEV}/eval-sets/${set}/add-session`, { evalId, ...chosen });
  const metrics = { evalMetrics: [{ metricName: 'response_match_score', threshold: 1 }] };
  await ask('POST', `${DEV}/eval-sets/${set}/run`, metrics);
  // Its versions stay, since a run is about one of them.
  await ask('DELETE', `${DEV}/eval-sets/${set}/eval-cases/deleted`);
  await ask('PUT', `${APP}/budgets`, { appliesTo: 'user', forUser: user, period: 'day', maxTokens: 1_000_000 });
  await ask('GET', `${DEV}/debug/trace/session/s-${mark}`);
}

const KEEPING = [
  'app_states',
  'artifact_versions',
  'artifacts',
  'budget_uses',
  'budgets',
  'cronjobs',
  'eval_case_versions',
  'eval_cases',
  'eval_run_cases',
  'events',
  'idempotency_keys',
  'invocations',
  'memories',
  'sessions',
  'spans',
  'tool_calls',
  'user_states',
  'user_storage',
  'webhook_deliveries',
  'webhooks',
];

test('a user is erased from every table and the bucket, and nobody else', async () => {
  await ask('POST', `${APP}/users/other/sessions`, { sessionId: 'shared', state: { 'app:all': 1 } });
  await plant('mark7gone', 'mark7gone');
  await plant('stays', 'mark7stays');
  // What an agent wrote for all, in a session of this user; nobody has read it since.
  await client.query(
    `update app_states set state = state || jsonb_build_object('app:' || $1, $1::text),
       writers = writers || jsonb_build_object('app:' || $1, $2::text)`,
    ['mark7gone', 'mark7gone'],
  );
  expect(await tablesWith(client, 'mark7gone')).toEqual(expect.arrayContaining(KEEPING));
  const before = await tablesWith(client, 'mark7stays');
  expect(objectsWith('mark7gone')).toBe(2);

  const dry = await app.send('DELETE', `${APP}/users/mark7gone?dryRun=true`);
  expect(dry.body).toMatchObject({ status: 'dryRun', counts: { sessions: expect.any(Number), eval_cases: 1 } });
  expect(await tablesWith(client, 'mark7gone')).toEqual(expect.arrayContaining(['sessions', 'memories']));

  const erased = await app.send('DELETE', `${APP}/users/mark7gone`);
  const counted = { ...(dry.body as { counts: Record<string, number> }).counts };
  const { counts, status } = erased.body as { counts: Record<string, number>; status: string };
  expect([erased.status, status, objectsWith('mark7gone')]).toEqual([200, 'done', 0]);
  // The tables of the dry run, and the objects; rows that fall with others (of the runs of a set, say) are not counted.
  expect(Object.keys(counts).toSorted()).toEqual([...Object.keys(counted), 'objects'].toSorted());
  expect(await tablesWith(client, 'mark7gone')).toEqual([]);
  expect([await tablesWith(client, 'mark7stays'), objectsWith('mark7stays')]).toEqual([before, 2]);

  const again = await app.send('DELETE', `${APP}/users/mark7gone`);
  expect([again.status, again.body]).toEqual([200, { status: 'done', counts: {} }]);
});

test('an import that is refused leaves no object behind', async () => {
  const row = { app_name: 'harness_agent', user_id: 'brings', session_id: 's1', artifact_name: 'f', version: 0 };
  const line = JSON.stringify({
    table: 'artifact_versions',
    row,
    content: Buffer.from('mark8left').toString('base64'),
  });
  const headers = { 'content-type': 'application/x-ndjson' };
  const refused = await app.post(`${APP}/users/brings/import`, `${line}\n{"table":7}`, headers);
  expect([refused.status, objectsWith('mark8left')]).toEqual([400, 0]);
});

const EMPTY = { status: 'done', counts: {} };
const ERASED = { detail: 'The data of this user is being erased: nothing new is taken until that is done.' };

test('an erasure that was cut off refuses new data, and is ended by the next request', async () => {
  await ask('POST', `${APP}/users/half/sessions`, { sessionId: 's1' });
  await client.query(
    `insert into user_erasures (app_name, user_id, counts) values ('harness_agent', 'half', '{"events": 7}')`,
  );
  const run = { appName: 'harness_agent', userId: 'half', sessionId: 's1', newMessage: content('hello') };
  for (const [path, body] of [
    [`${APP}/users/half/sessions`, { sessionId: 's2' }],
    [`${APP}/users/half/sessions/s1/artifacts`, { filename: 'f', artifact: { text: 'x' } }],
    ['/run', run],
    ['/harness/webhooks', { ownerId: 'half', url: 'https://hook.example/' }],
  ] as const) {
    const { status, body: answer } = await app.post(path, body);
    expect([path, status, answer]).toEqual([path, 409, ERASED]);
  }
  const erased = await app.send('DELETE', `${APP}/users/half`);
  expect(erased.body).toEqual({ status: 'done', counts: { events: 7, idempotency_keys: 1, sessions: 1 } });
  expect((await app.post(`${APP}/users/half/sessions`, { sessionId: 's2' })).status).toBe(200);
});

test('what runs is cancelled first', async () => {
  const body = { newMessage: content('slow') };
  await ask('POST', `${APP}/users/busy/sessions`, { sessionId: 's1' });
  // A process that died holds the session; another invocation waits for it in the background.
  await client.query(`
    update sessions set lease_token = gen_random_uuid() where user_id = 'busy';
    insert into invocations (app_name, user_id, session_id, id, status, lease_token, lease_expire_time)
    select app_name, user_id, id, 'e-dead', 'running', lease_token, clock_timestamp() + interval '1 hour'
    from sessions where user_id = 'busy'`);
  const started = await ask('POST', `${APP}/users/busy/sessions/s1/invocations`, body);
  expect(started).toMatchObject({ status: 'queued' });
  await client.query(
    `update invocations set lease_expire_time = clock_timestamp() + interval '1 second' where id = 'e-dead'`,
  );
  const erased = await app.send('DELETE', `${APP}/users/busy`);
  expect(erased.body).toMatchObject({ status: 'done', counts: { invocations: 2, sessions: 1 } });
  expect((await app.send('DELETE', `${APP}/users/busy`)).body).toEqual(EMPTY);
});

test('more rows than one statement takes are all deleted', async () => {
  await client.query(`
    insert into sessions (app_name, user_id, id, last_sequence) values ('harness_agent', 'many', 's1', 2500);
    insert into events (app_name, user_id, session_id, sequence, id, invocation_id, author, event_time, payload, bytes)
    select 'harness_agent', 'many', 's1', n, n::text, 'i', 'user', now(), '{}', 2 from generate_series(1, 2500) n`);
  const erased = await app.send('DELETE', `${APP}/users/many`);
  expect(erased.body).toEqual({ status: 'done', counts: { events: 2500, sessions: 1 } });
});

test('what is on legal hold is not deleted by anybody, until the hold is removed', async () => {
  const user = `${APP}/users/held`;
  const session = `${user}/sessions/s1`;
  await ask('POST', `${user}/sessions`, { sessionId: 's1' });
  await ask('POST', `${user}/sessions`, { sessionId: 's2' });
  await ask('POST', `${session}/artifacts`, { filename: 'f.txt', artifact: { text: 'kept' } });
  expect((await app.send('PUT', `${user}/hold`, { sessionId: 's1', reason: 'Case 1' })).status).toBe(200);
  const refused = { detail: 'The data is on legal hold: nothing of it is deleted until an operator removes the hold.' };
  for (const path of [session, `${session}/artifacts/f.txt`, `${session}?forgetMemories=true`]) {
    const { status, body } = await app.send('DELETE', path);
    expect([path, status, body]).toEqual([path, 409, refused]);
  }
  expect((await app.send('DELETE', `${user}/sessions/s2`)).status).toBe(200);
  const erasure = await app.send('DELETE', user);
  expect([erasure.status, erasure.body]).toEqual([
    409,
    { detail: 'Session s1 of the user is on legal hold and cannot be erased: Case 1' },
  ]);
  // Nothing was begun: the user goes on.
  expect((await app.post(`${user}/sessions`, { sessionId: 's3' })).status).toBe(200);
  expect((await app.send('PUT', `${user}/hold`, { reason: 'Case 2' })).status).toBe(200);
  const holds = await app.get(`${APP}/holds`);
  const held = { appName: 'harness_agent', userId: 'held', createTime: expect.any(Number) };
  expect(holds.body).toEqual([
    { ...held, sessionId: null, reason: 'Case 2' },
    { ...held, sessionId: 's1', reason: 'Case 1' },
  ]);
  expect((await app.send('DELETE', `${user}/sessions/s3`)).status).toBe(409);
  for (const query of ['', '?sessionId=s1'])
    expect((await app.send('DELETE', `${user}/hold${query}`)).status).toBe(200);
  expect((await app.send('DELETE', user)).body).toMatchObject({ status: 'done', counts: { sessions: 2 } });
});
