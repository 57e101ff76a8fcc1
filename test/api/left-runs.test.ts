import { randomUUID } from 'node:crypto';
import { Client } from 'pg';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { AgentError } from '../../src/core/errors.ts';
import type { Runtime } from '../../src/process/runtime.ts';
import { type Gate, gatedAgents } from '../support/agents.ts';
import { client, startApp, startOn, type TestApp } from '../support/app.ts';

/** A run that another process goes on with: no client is told of a failure, or invited to say its prompt again. */

const SESSIONS = '/apps/harness_agent/users/user/sessions';
const KEY = { 'idempotency-key': 'k' };
const run = {
  appName: 'harness_agent',
  userId: 'user',
  sessionId: 's',
  newMessage: { role: 'user', parts: [{ text: 'one' }] },
};
const harness = {
  prompt: 'one',
  harness_name: 'h',
  run_agent_request: { user_id: 'user', session_id: 's' },
};
const chat = { model: 'harness_agent', messages: [{ role: 'user', content: 'one' }] };
const named = { 'x-session-id': 's' };

let app: TestApp;
let [here, there]: Gate[] = [];
let first: Runtime;
let sql: Client;
let grace: AbortController;
let hasStopped: boolean;
beforeEach(async () => {
  [here, there] = [gatedAgents(), gatedAgents()];
  app = await startApp({ OPENAI_API: 'true' }, { agents: there.agents });
  [grace, hasStopped] = [new AbortController(), false];
  // It looks at its lease often, and has no room to take up again what it lost.
  const settings = { SESSION_LEASE_MS: '3000', MAX_INVOCATIONS: '1', SHUTDOWN_GRACE_MS: '600000', OPENAI_API: 'true' };
  first = await startOn(app.databaseUrl, settings, { agents: here.agents, stopping: grace.signal });
  sql = new Client({ connectionString: app.databaseUrl });
  await sql.connect();
  await app.post(SESSIONS, { sessionId: 's' });
});
afterEach(async () => {
  if (!hasStopped) await stop();
  await sql.end();
  await app.close();
});

/** Ends the first replica after its grace. */
async function stop() {
  hasStopped = true;
  const closed = first.close();
  grace.abort(new AgentError('interrupted', 'The grace is over.'));
  await closed;
}

/** What a take-over by another process does where the first one was frozen: it wakes up, and finds its lease gone. */
async function takeOver() {
  await sql.query('begin');
  await sql.query(`update sessions set lease_token = null where lease_token is not null`);
  await sql.query(
    `update invocations set status = 'queued', lease_token = $1, lease_expire_time = now(),
       request = jsonb_set(request, '{began,spentMs}', '0') where status = 'running'`,
    [randomUUID()],
  );
  await sql.query('commit');
  await sql.query(`select pg_notify('agent_runtime', '["queue"]')`);
}

const invocations = async () =>
  (await sql.query<{ id: string; status: string }>(`select id, status from invocations order by create_time`)).rows;
const goesOn = async () => await expect.poll(invocations).toMatchObject([{ status: 'succeeded' }]);

describe('its lease was lost', () => {
  test.each([
    ['/run', run, {}],
    ['/harness/invoke', harness, {}],
    ['/v1/chat/completions', chat, named],
  ])('%s with a key waits for the answer', async (path, body, headers) => {
    const asked = client(first.url).post(path, body, { ...headers, ...KEY });
    await here?.entered(1);
    await takeOver();
    await there?.entered(1);
    there?.open();
    expect(await asked).toMatchObject({ status: 200, text: expect.stringContaining('answer 1') as string });
    await goesOn();
  });

  test.each([
    ['/run', run],
    ['/harness/invoke', harness],
  ])('%s without a key says where the answer is had', async (path, body) => {
    const asked = client(first.url).post(path, body);
    await here?.entered(1);
    await takeOver();
    const { status, headers, text } = await asked;
    const [found] = await invocations();
    const id = found?.id;
    expect([status, headers.get('retry-after'), headers.get('x-invocation-id')]).toEqual([503, null, id]);
    const [, readAt = ''] = /GET (\S+) says how it ends/.exec(text) ?? [];
    expect((await app.get(readAt)).body).toMatchObject({ id });
    there?.open();
    await there?.entered(1);
    there?.open();
    await goesOn();
  });

  test('a chat completion without a key is answered by the process that was asked', async () => {
    const asked = client(first.url).post('/v1/chat/completions', chat, named);
    await here?.entered(1);
    await takeOver();
    await there?.entered(1);
    there?.open();
    expect(await asked).toMatchObject({ status: 200, text: expect.stringContaining('answer 1') as string });
  });

  test('a stream ends without a failure', async () => {
    const asked = client(first.url).post('/run_sse', { ...run, streaming: true });
    await here?.entered(1);
    await takeOver();
    expect(await asked).toMatchObject({ status: 200, text: '' });
    await there?.entered(1);
    there?.open();
    await goesOn();
  });

  test('a session that is gone is told as it was', async () => {
    const asked = client(first.url).post('/run', run);
    await here?.entered(1);
    await app.send('DELETE', `${SESSIONS}/s`);
    expect((await asked).status).toBe(409);
  });
});

test.each([
  ['/run', run, {}],
  ['/harness/invoke', harness, {}],
  ['/v1/chat/completions', chat, named],
])('%s without a key, as the grace of its process is over: no invitation to say it again', async (path, body, more) => {
  const asked = client(first.url).post(path, body, more);
  await here?.entered(1);
  await stop();
  const { status, headers, text } = await asked;
  const [found] = await invocations();
  const id = found?.id;
  expect([status, headers.get('retry-after'), headers.get('x-invocation-id')]).toEqual([503, null, id]);
  expect(text).toContain('Do not send the prompt again');
  await there?.entered(1);
  there?.open();
  await goesOn();
});
